import { StrictMode, useEffect, useState } from "react";
import { createRoot } from "react-dom/client";
import { connect } from "turnfast-client";
import { Conversation } from "./Conversation";
import { SignIn } from "./SignIn";
import { ThreadList } from "./ThreadList";

/** Who the page talks to: `/?project=demo&agent=assistant`. The thread is in the fragment. */
const query = new URLSearchParams(location.search);
const agent = { project: query.get("project") ?? "demo", agent: query.get("agent") ?? "assistant" };

const client = await connect();
const signedIn = await client.me().then(
  () => true,
  () => false,
);

function App() {
  const [ready, setReady] = useState(signedIn);
  const [thread] = useState(() => client.thread({ ...agent, threadId: location.hash.slice(1) || null }));
  useEffect(() => () => thread.dispose(), [thread]);
  if (!ready) return <SignIn client={client} onDone={() => setReady(true)} />;
  return (
    <main>
      <ThreadList client={client} agent={agent} thread={thread} />
      <Conversation thread={thread} />
    </main>
  );
}

createRoot(document.getElementById("root")!).render(
  <StrictMode>
    <App />
  </StrictMode>,
);
