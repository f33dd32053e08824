/** A page that counts how often rows of a thread are rendered: `/renders.html?agent=AGENT#THREAD`. */
import { memo, useSyncExternalStore } from "react";
import { createRoot } from "react-dom/client";
import { type Message, connect, textOf } from "turnfast-client";

const counts = { rows: 0, lists: 0 };
Object.assign(globalThis, { counts });

const client = await connect();
const agent = new URLSearchParams(location.search).get("agent")!;
const thread = client.thread({ project: "demo", agent, threadId: location.hash.slice(1) });
Object.assign(globalThis, { thread });

const Row = memo(function Row({ message }: { message: Message }) {
  counts.rows += 1;
  return <p data-status={message.executionStatus}>{textOf(message)}</p>;
});

function List() {
  counts.lists += 1;
  const { messages } = useSyncExternalStore(thread.subscribe, thread.getSnapshot, thread.getServerSnapshot);
  return messages.map((message) => <Row key={message.id} message={message} />);
}

createRoot(document.getElementById("root")!).render(<List />);
