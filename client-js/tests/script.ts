/** A server in this process, which says what it is told to. The package gets it in place of the browser's `fetch`. */
import { strict as assert } from "node:assert";
import type { Event, Message, ThreadSnapshot } from "turnfast-client";

export const THREAD = "00000000-0000-4000-8000-000000000001";
export const EXECUTION = "00000000-0000-4000-8000-0000000000e1";
export const ANSWER = "00000000-0000-4000-8000-0000000000a1";

/** A request that waits for its answer. */
export class Call {
  #answer!: (response: Response) => void;
  #fail!: (error: Error) => void;
  #stream?: ReadableStreamDefaultController<Uint8Array>;
  readonly response = new Promise<Response>((resolve, reject) => ([this.#answer, this.#fail] = [resolve, reject]));

  constructor(
    readonly url: string,
    readonly init: RequestInit,
  ) {
    init.signal?.addEventListener("abort", () => this.#fail(new Error("aborted")));
  }

  get aborted() {
    return this.init.signal?.aborted ?? false;
  }

  get body() {
    return JSON.parse(String(this.init.body));
  }

  header(name: string) {
    return new Headers(this.init.headers).get(name);
  }

  answer(status: number, body: unknown) {
    const type = status < 400 ? "application/json" : "application/problem+json";
    this.#answer(new Response(JSON.stringify(body), { status, headers: { "content-type": type } }));
  }

  /** The connection breaks. */
  break() {
    this.#fail(new TypeError("the connection broke"));
  }

  /** Answers with an event stream. */
  stream() {
    const body = new ReadableStream<Uint8Array>({ start: (stream) => void (this.#stream = stream) });
    this.#answer(new Response(body, { headers: { "content-type": "text/event-stream" } }));
    return this;
  }

  /** Sends an event of the stream, in two pieces. */
  say(event: object) {
    const bytes = new TextEncoder().encode(`data: ${JSON.stringify(event)}\n\n`);
    this.#stream?.enqueue(bytes.slice(0, bytes.length >> 1));
    this.#stream?.enqueue(bytes.slice(bytes.length >> 1));
  }

  /** Sends any number of events in one piece. */
  sayAtOnce(events: Event[]) {
    this.#stream?.enqueue(new TextEncoder().encode(events.map((event) => `data: ${JSON.stringify(event)}\n\n`).join("")));
  }

  end() {
    this.#stream?.close();
  }
}

export class Script {
  readonly #calls: Call[] = [];

  readonly fetch = (url: string, init: RequestInit) => {
    const call = new Call(url, init);
    this.#calls.push(call);
    return call.response;
  };

  /** The next request to `method` `url` that nobody took yet. */
  async next(method: string, url: string): Promise<Call> {
    return until(`${method} ${url}`, () => {
      const at = this.#calls.findIndex((call) => (call.init.method ?? "GET") === method && call.url.startsWith(url));
      return at < 0 ? undefined : this.#calls.splice(at, 1)[0];
    });
  }

  /** How many requests nobody took. */
  get left() {
    return this.#calls.length;
  }
}

/** Lets everything else go on until `look` finds something. */
export async function until<T>(what: string, look: () => T | undefined | false): Promise<T> {
  const deadline = Date.now() + 30_000;
  while (Date.now() < deadline) {
    const found = look();
    if (found) return found;
    await new Promise((resolve) => setImmediate(resolve));
  }
  assert.fail(`waited in vain for ${what}`);
}

/** A thread of so many recorded messages. */
export function recorded(count: number): ThreadSnapshot {
  const messages = Array.from({ length: count }, (_, n): Message => {
    const id = `00000000-0000-4000-9000-${n.toString(16).padStart(12, "0")}`;
    const isPerson = n % 2 === 0;
    return {
      id,
      role: isPerson ? "user" : "assistant",
      content: [{ type: "text", text: `Message ${n}, which is about as long as messages in a conversation are.` }],
      executionId: id,
      executionStatus: isPerson ? null : "success",
      createdAt: "2026-01-01T00:00:00Z",
      revision: n + 1,
    };
  });
  return { messages, openSuspensions: [], activeExecutionId: null, revision: count };
}

/** The first event of the turn that `call` submitted. */
export function started(call: Call): Event {
  const { sessionId, messageId } = call.body;
  return { type: "execution-started", executionId: EXECUTION, sessionId, messageId, assistantMessageId: ANSWER };
}
