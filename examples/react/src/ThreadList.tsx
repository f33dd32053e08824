import { useEffect, useState, useSyncExternalStore } from "react";
import type { AgentKey, Client, Thread, ThreadHandle } from "turnfast-client";

export function ThreadList({ client, agent, thread }: { client: Client; agent: AgentKey; thread: ThreadHandle }) {
  const [threads, setThreads] = useState<readonly Thread[]>([]);
  const { threadId } = useSyncExternalStore(thread.subscribe, thread.getSnapshot, thread.getServerSnapshot);

  // The list is read again whenever a thread changed somewhere. There is nothing to poll.
  useEffect(() => {
    let shown = true;
    const read = () =>
      client.threads(agent).then(
        (page) => shown && setThreads(page.threads),
        () => {}, // The next notification reads again.
      );
    void read();
    const unsubscribe = client.onPush(read);
    return () => {
      shown = false;
      unsubscribe();
    };
  }, [client, agent]);

  // A new thread gets its id when its first message is accepted; from then on a reload comes back to it.
  useEffect(() => {
    if (threadId !== (location.hash.slice(1) || null)) history.replaceState(null, "", threadId ? `#${threadId}` : location.pathname + location.search);
  }, [threadId]);

  return (
    <nav aria-label="Threads">
      <button onClick={() => thread.open(null)}>New thread</button>
      <ul>
        {threads.map(({ id, title }) => (
          <li key={id}>
            <button aria-current={id === threadId || undefined} onClick={() => thread.open(id)}>
              {title}
            </button>
          </li>
        ))}
      </ul>
    </nav>
  );
}
