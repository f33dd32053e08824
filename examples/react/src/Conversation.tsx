import { useSyncExternalStore } from "react";
import type { SendBlocked, ThreadHandle, ThreadState } from "turnfast-client";
import { MessageRow } from "./MessageRow";
import { Question } from "./Question";

export function Conversation({ thread }: { thread: ThreadHandle }) {
  const state = useSyncExternalStore(thread.subscribe, thread.getSnapshot, thread.getServerSnapshot);
  return (
    <section>
      <ol data-testid="messages">
        {state.messages.map((message) => (
          <MessageRow key={message.id} message={message} />
        ))}
      </ol>
      {state.interactions.map((interaction) => (
        <Question key={interaction.toolCallId} interaction={interaction} thread={thread} />
      ))}
      <Notes state={state} thread={thread} />
      <Composer state={state} thread={thread} />
    </section>
  );
}

/** What a reader should know: nothing here stands in the way of reading on. */
function Notes({ state, thread }: { state: ThreadState; thread: ThreadHandle }) {
  return (
    <>
      {state.load.state === "notFound" && <p className="note">There is no such thread.</p>}
      {state.readFailure && <p className="note">What is shown may be old: {state.readFailure.message}</p>}
      {state.warnings.map(({ message }) => (
        <p className="note" key={message}>
          {message}
        </p>
      ))}
      {state.trouble && (
        <p className="note" role="alert">
          {state.trouble.message} <button onClick={thread.dismissTrouble}>Dismiss</button>
        </p>
      )}
    </>
  );
}

function Composer({ state, thread }: { state: ThreadState; thread: ThreadHandle }) {
  return (
    <form onSubmit={(event) => (event.preventDefault(), thread.submit())}>
      <textarea
        aria-label="Message"
        value={state.draft}
        onChange={(event) => thread.setDraft(event.target.value)}
        placeholder={state.sendBlocked ? words[state.sendBlocked] : ""}
      />
      {state.stop === "hidden" ? (
        <button disabled={state.sendBlocked !== null}>Send</button>
      ) : (
        <button type="button" disabled={state.stop !== "usable"} onClick={thread.stop}>
          {state.stop === "usable" ? "Stop" : "Stopping…"}
        </button>
      )}
    </form>
  );
}

const words: Record<SendBlocked, string> = {
  signedOut: "Sign in again to go on.",
  loading: "Loading…",
  notFound: "There is no such thread.",
  checking: "Looking whether the last message arrived…",
  running: "The agent is replying.",
  interactionOpen: "Answer the question first.",
  empty: "Write a message.",
};
