import { memo } from "react";
import type { Message, Part, ToolState } from "turnfast-client";

/**
 * One message. Memoised by the message alone: as long as nothing changed in it, it is the same object, and the row is not rendered
 * again. The same holds for its parts.
 */
export const MessageRow = memo(function MessageRow({ message }: { message: Message }) {
  const ending = message.executionStatus && endings[message.executionStatus];
  return (
    <li data-testid={`message-${message.role}`} data-role={message.role} data-status={message.executionStatus}>
      {message.content.map((part, index) => (
        <PartView key={index} part={part} />
      ))}
      {ending && <p>{ending}</p>}
      {message.executionError && <p>{message.executionError.message}</p>}
    </li>
  );
});

const endings = {
  running: "Replying…",
  suspended: "Waiting for an answer.",
  success: null,
  error: "This reply failed.",
  cancelled: "Stopped.",
  interrupted: "The server stopped in the middle of this reply.",
};

const PartView = memo(function PartView({ part }: { part: Part }) {
  switch (part.type) {
    case "text":
      return <p>{part.text}</p>;
    case "reasoning":
      return (
        <details>
          <summary>{part.endTime === undefined ? "Thinking…" : "Thought"}</summary>
          <p>{part.text}</p>
        </details>
      );
    case "tool-call":
      return (
        <details>
          <summary>
            {part.toolName}: {toolStates[part.state]}
          </summary>
          <p>{JSON.stringify(part.input)}</p>
          <p>{part.error ?? (part.output === undefined ? "" : JSON.stringify(part.output))}</p>
          {part.childTrace && <p>{part.childTrace.text}</p>}
        </details>
      );
    case "file":
      return (
        <p>
          {part.name} ({part.mediaType}, {part.size} bytes)
        </p>
      );
    default:
      // A kind that is not handled above is an error here, when the types are checked.
      return part satisfies never;
  }
});

const toolStates: Record<ToolState, string> = {
  "input-streaming": "being written",
  pending: "to be run",
  running: "running",
  suspended: "waiting for you",
  resolved: "done",
  rejected: "failed",
  cancelled: "stopped",
};
