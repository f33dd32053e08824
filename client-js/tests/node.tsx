/** What the package promises wherever it runs, tried where there is neither a document nor a window. */
import { strict as assert } from "node:assert";
import { webcrypto } from "node:crypto";
import { after, test } from "node:test";
import { useSyncExternalStore } from "react";
import { renderToString } from "react-dom/server";
import { type Client, type ClientOptions, type ThreadHandle, type ThreadState, TurnfastError, connect, textOf } from "turnfast-client";
import { EXECUTION, Script, THREAD, recorded, started, until } from "./script";

// A global of every browser, and of Node from 20 on.
globalThis.crypto ??= webcrypto as Crypto;

const agent = { project: "demo", agent: "assistant" };
const chat = "/projects/demo/agents/v2/assistant/chat";

/** A storage of its own. */
function storage() {
  const kept = new Map<string, string>();
  return {
    getItem: (key: string) => kept.get(key) ?? null,
    setItem: (key: string, value: string) => void kept.set(key, value),
    removeItem: (key: string) => void kept.delete(key),
    key: (at: number) => [...kept.keys()][at] ?? null,
    get length() {
      return kept.size;
    },
  };
}

/** An EventSource that connects to nothing. */
class Silent {
  static readonly made: string[] = [];
  constructor(url: string) {
    Silent.made.push(url);
  }
  addEventListener() {}
  removeEventListener() {}
  close() {}
}

const clients: Client[] = [];

async function scripted(options: ClientOptions = {}) {
  const script = new Script();
  const alone = { locks: null, BroadcastChannel: null };
  const client = await connect({ fetch: script.fetch, EventSource: Silent, storage: storage(), ...alone, ...options });
  clients.push(client);
  return { script, client };
}

/** A thread of so many messages, read. */
async function loaded(count: number) {
  const { script, client } = await scripted();
  const thread = client.thread({ ...agent, threadId: THREAD });
  thread.subscribe(() => {});
  (await script.next("GET", `${chat}/${THREAD}/messages`)).answer(200, recorded(count));
  await until("the thread", () => thread.getSnapshot().load.state === "loaded");
  return { script, client, thread };
}

/** A turn in it whose events the test says. */
async function streaming(count: number) {
  const { script, thread } = await loaded(count);
  thread.setDraft("go on");
  thread.submit();
  const call = (await script.next("POST", chat)).stream();
  call.say(started(call));
  call.say({ type: "text-delta", id: "1", delta: "first" });
  await until("the text", () => last(thread) === "first");
  return { script, thread, call };
}

const last = (thread: ThreadHandle) => textOf(thread.getSnapshot().messages.at(-1)!);

function isDeeplyFrozen(value: unknown): boolean {
  return typeof value !== "object" || value === null || (Object.isFrozen(value) && Object.values(value).every(isDeeplyFrozen));
}

test("a server renders the state before anything is known, and sends nothing", async () => {
  const { script, client } = await scripted({ EventSource: undefined });
  const thread = client.thread({ ...agent, threadId: THREAD });
  function Page() {
    const state = useSyncExternalStore(thread.subscribe, thread.getSnapshot, thread.getServerSnapshot);
    return <p>{state.load.state}</p>;
  }
  assert.equal(renderToString(<Page />), "<p>loading</p>");
  assert.equal(client.thread(agent).getServerSnapshot().load.state, "new");
  assert.equal(thread.getServerSnapshot(), thread.getSnapshot());
  assert.equal(script.left, 0);
});

test("a snapshot has the fields that its type has", async () => {
  const fields: Record<keyof ThreadState, true> = {
    threadId: true,
    load: true,
    messages: true,
    readFailure: true,
    catchingUp: true,
    running: true,
    stop: true,
    interactions: true,
    draft: true,
    attachments: true,
    draftKept: true,
    sendBlocked: true,
    trouble: true,
    warnings: true,
    signedOut: true,
  };
  const { client } = await scripted();
  assert.deepEqual(Object.keys(client.thread(agent).getServerSnapshot()).sort(), Object.keys(fields).sort());
});

test("a snapshot is the same object until something changes, and is frozen", async () => {
  const { thread, call } = await streaming(4);
  const before = thread.getSnapshot();
  assert.equal(thread.getSnapshot(), before);
  thread.setDraft("");
  assert.equal(thread.getSnapshot(), before, "a draft that is what it was is no change");
  call.say({ type: "text-delta", id: "1", delta: " second" });
  await until("the text", () => last(thread) === "first second");
  assert.notEqual(thread.getSnapshot(), before);
  assert.equal(textOf(before.messages.at(-1)!), "first", "what was handed out never changes");
  assert.ok(isDeeplyFrozen(before) && isDeeplyFrozen(thread.getSnapshot()));
});

test("a delta makes one message and one part anew", async () => {
  const { thread, call } = await streaming(1_000);
  call.say({ type: "text-end", id: "1" });
  call.say({ type: "tool-call", toolCallId: "c", toolName: "clock", input: { zone: ["UTC"] } });
  call.say({ type: "reasoning-delta", id: "1", delta: "hm" });
  await until("the parts", () => thread.getSnapshot().messages.at(-1)!.content.length === 3);
  const before = thread.getSnapshot();
  call.say({ type: "reasoning-delta", id: "1", delta: "m" });
  await until("the change", () => thread.getSnapshot() !== before);
  const after = thread.getSnapshot();
  const differ = after.messages.filter((message, at) => message !== before.messages[at]);
  assert.deepEqual([before.messages.length, differ.length, differ[0]], [1_002, 1, after.messages.at(-1)]);
  const parts = after.messages.at(-1)!.content.map((part, at) => part === before.messages.at(-1)!.content[at]);
  assert.deepEqual(parts, [true, true, false]);
  assert.equal(after.interactions, before.interactions);
});

test("a read keeps every message that it does not change", async () => {
  const { script, thread, call } = await streaming(6);
  const before = thread.getSnapshot();
  call.say({ type: "done", sessionId: THREAD, executionId: EXECUTION, status: "success" });
  const read = await script.next("GET", `${chat}/${THREAD}/messages?since=6`);
  const [user, answer] = before.messages.slice(-2);
  const messages = [
    { ...user, revision: 7 },
    { ...answer, executionStatus: "success", revision: 9 },
  ];
  read.answer(200, { messages, openSuspensions: [], activeExecutionId: null, revision: 9, partial: true });
  await until("the record", () => thread.getSnapshot().running === null && thread.getSnapshot().messages.at(-1)!.revision === 9);
  const after = thread.getSnapshot();
  assert.deepEqual(after.messages.slice(0, 6).map((message, at) => message === before.messages[at]), Array(6).fill(true));
  assert.equal(after.messages.at(-1)!.content[0], answer!.content[0], "its text did not change");
  assert.equal(after.messages.at(-1)!.executionStatus, "success");

  // All of it again, as after a reconnect: nothing to show.
  thread.open(THREAD);
  const whole = { ...recorded(6), messages: after.messages, revision: 9 };
  (await script.next("GET", `${chat}/${THREAD}/messages`)).answer(200, whole);
  await new Promise((resolve) => setTimeout(resolve, 0));
  assert.equal(thread.getSnapshot(), after);
});

test("a listener hears of changes until it unsubscribes, and its errors are its own", async () => {
  const { thread } = await loaded(2);
  const heard: string[] = [];
  const reported: unknown[] = [];
  globalThis.reportError = (error) => void reported.push(error);
  const listener = () => void heard.push("twice");
  const ends = [
    thread.subscribe(() => {
      throw new Error("of the listener");
    }),
    thread.subscribe(listener),
    thread.subscribe(listener),
  ];
  thread.setDraft("a");
  assert.deepEqual(heard, ["twice", "twice"]);
  assert.deepEqual(reported.map(String), ["Error: of the listener"]);
  for (const end of ends) end();
  thread.setDraft("b");
  assert.deepEqual(heard, ["twice", "twice"]);
});

test("a disposed thread follows no more, keeps its draft and opens again", async () => {
  const { script, thread, call } = await streaming(2);
  thread.setDraft("not yet");
  const before = thread.getSnapshot();
  thread.dispose();
  thread.dispose();
  assert.ok(call.aborted);
  assert.equal(thread.getSnapshot(), before);
  thread.subscribe(() => {});
  (await script.next("GET", `${chat}/${THREAD}/messages`)).answer(200, recorded(2));
  await until("the thread", () => thread.getSnapshot().load.state === "loaded");
  assert.deepEqual([thread.getSnapshot().draft, thread.getSnapshot().messages.length], ["not yet", 2]);
});

test("what is given is used in place of the globals", async () => {
  const kept = storage();
  const channels: string[] = [];
  const asked: string[] = [];
  class Channel {
    constructor(name: string) {
      channels.push(name);
    }
    addEventListener() {}
    removeEventListener() {}
    postMessage() {}
    close() {}
  }
  const locks = {
    request(name: string, _: unknown, granted: (lock: null) => Promise<unknown>) {
      asked.push(name);
      return Promise.resolve().then(() => granted(null));
    },
  } as unknown as Pick<LockManager, "request">;
  const { script, client } = await scripted({ baseUrl: "https://chat.example", storage: kept, BroadcastChannel: Channel, locks });
  const thread = client.thread(agent);
  thread.setDraft("mine");
  await until("the connection", () => Silent.made.includes("https://chat.example/push"));
  assert.deepEqual([channels.length, asked.length, kept.length], [1, 1, 1]);
  assert.equal(channels[0], asked[0]);
  thread.submit();
  const call = await script.next("POST", `https://chat.example${chat}`);
  assert.equal(call.body.message, "mine");
  call.break();
  client.forgetDrafts();
  assert.equal(kept.length, 0);
});

test("a token goes with every request, and /push is read with fetch", async () => {
  let token = "one";
  const { script, client } = await scripted({ token: async () => token, EventSource: undefined });
  const heard: string[] = [];
  const end = client.onPush((event) => heard.push(event.type));
  const push = (await script.next("GET", "/push")).stream();
  assert.equal(push.header("authorization"), "Bearer one");
  const data = { projectId: "demo", agentId: "assistant", threadId: THREAD, revision: 3 };
  for (const event of [{ type: "connected" }, { type: "ping" }, { type: "agentExecutionUpdated", data }]) push.say(event);
  await until("the messages", () => heard.length === 2);
  assert.deepEqual(heard, ["connected", "agentExecutionUpdated"]);
  end();

  token = "two";
  const thread = client.thread({ ...agent, threadId: THREAD });
  thread.subscribe(() => {});
  assert.equal((await script.next("GET", `${chat}/${THREAD}`)).header("authorization"), "Bearer two");
});

test("tabs of two people do not share what /push says", async () => {
  const names = new Set<string>();
  const locks = { request: (name: string) => (names.add(name), new Promise(() => {})) } as unknown as Pick<LockManager, "request">;
  for (const token of ["one", "two", undefined, "one"]) {
    const { client } = await scripted({ token, locks, BroadcastChannel: class extends Silent { postMessage() {} } });
    client.onPush(() => {});
  }
  assert.equal(names.size, 3);
  assert.ok([...names].every((name) => !name.includes("one") && !name.includes("two")));
});

test("a refusal has its code, and other failures say what they are", async () => {
  const { script, client } = await scripted();
  const problem = { type: "about:blank", title: "Not found", status: 404, detail: "There is no such agent.", code: "not_found" };
  const failed = async (answer: (url: string) => Promise<void>) => {
    const asked = client.threads({ ...agent, limit: 5, cursor: "a b" }).then(() => assert.fail("it was answered"), (error) => error);
    await answer("/projects/demo/agents/v2/assistant/threads?limit=5&cursor=a+b");
    const error: TurnfastError = await asked;
    assert.ok(error instanceof TurnfastError);
    return error;
  };
  const refused = await failed(async (url) => (await script.next("GET", url)).answer(404, problem));
  assert.deepEqual([refused.code, refused.message], ["not_found", "There is no such agent."]);
  const unreadable = await failed(async (url) => (await script.next("GET", url)).answer(502, "<html>"));
  assert.deepEqual([unreadable.code, unreadable.failure.kind], [null, "unreadable"]);
  const broken = await failed(async (url) => (await script.next("GET", url)).break());
  assert.equal(broken.failure.kind, "broken");
  assert.throws(() => client.thread({ ...agent, threadId: "no id" }));
  client.dispose();
  assert.throws(() => client.onPush(() => {}), /disposed/);
});

// Whose timers are still there keeps the process from ending, so this is a test of `dispose` too.
after(() => clients.forEach((client) => client.dispose()));
