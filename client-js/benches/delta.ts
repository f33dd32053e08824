/** What one delta costs in a thread of 10 messages and in one of 1,000: from the bytes of the stream to the new snapshot. */
import { connect, textOf } from "turnfast-client";
import { ANSWER, Script, THREAD, recorded, started, until } from "./script";

const DELTAS = 2_000;
const ROUNDS = 15;
/** Words of the message before the measured ones, so that its own length is the same in both. */
const WARM = 500;

const chat = "/projects/demo/agents/v2/assistant/chat";
const source = class {
  addEventListener() {}
  removeEventListener() {}
  close() {}
};

/** Microseconds per delta. */
async function measure(count: number): Promise<number> {
  const script = new Script();
  const client = await connect({ fetch: script.fetch, EventSource: source, storage: null, locks: null, BroadcastChannel: null });
  const thread = client.thread({ project: "demo", agent: "assistant", threadId: THREAD });
  let snapshots = 0;
  thread.subscribe(() => {
    thread.getSnapshot();
    snapshots += 1;
  });
  (await script.next("GET", `${chat}/${THREAD}/messages`)).answer(200, recorded(count));
  await until("the thread", () => thread.getSnapshot().load.state === "loaded");
  thread.setDraft("go");
  thread.submit();
  const call = (await script.next("POST", chat)).stream();
  call.sayAtOnce([started(call)]);
  const deltas = async (number: number, until_: string) => {
    for (let n = 0; n < number; n += 1) call.sayAtOnce([{ type: "text-delta", id: "1", delta: "word " }]);
    call.sayAtOnce([{ type: "text-delta", id: "1", delta: until_ }]);
    await until(until_, () => textOf(thread.getSnapshot().messages.at(-1)!).endsWith(until_));
  };
  await deltas(WARM, "warm");
  globalThis.gc?.();
  const before = snapshots;
  const start = performance.now();
  await deltas(DELTAS, "done");
  const took = performance.now() - start;
  if (snapshots - before < DELTAS) throw new Error("deltas were put together: it is not one that was measured");
  if (thread.getSnapshot().messages.at(-1)!.id !== ANSWER) throw new Error("it is not the answer that was measured");
  client.dispose();
  return (took * 1_000) / DELTAS;
}

const costs = { short: [] as number[], long: [] as number[] };
for (let round = 0; round < ROUNDS; round += 1) {
  // By turns, so that whatever else the machine does meets both.
  costs.short.push(await measure(10));
  costs.long.push(await measure(1_000));
}
const median = (of: number[]) => of.sort((a, b) => a - b)[of.length >> 1]!;
const [short, long] = [median(costs.short), median(costs.long)];
console.log(`one delta, from bytes to snapshot (median of ${ROUNDS} rounds of ${DELTAS})`);
console.log(`    10 messages: ${short.toFixed(1)} µs`);
console.log(` 1,000 messages: ${long.toFixed(1)} µs`);
console.log(`          ratio: ${(long / short).toFixed(2)} (at most 1.5)`);
process.exitCode = long / short <= 1.5 ? 0 : 1;
