// The package as its users see it. What it decides, the wasm decides: here is only what JavaScript does better, which is to offer
// what a browser has, to hold listeners and to make frozen objects.
import init, { RawClient, RawParser } from "./turnfast_client.js";

let loaded;

/** See `index.d.ts`. */
export async function connect(options = {}) {
  loaded ??= Promise.resolve(options.wasm).then((wasm) => init(wasm === undefined ? undefined : { module_or_path: wasm }));
  try {
    await loaded;
  } catch (error) {
    // A later call may have better luck.
    loaded = undefined;
    throw error;
  }
  const { token } = options;
  return new Client(options, typeof token === "function" ? await token() : token);
}

export function textOf(message) {
  return message.content.map((part) => (part.type === "text" ? part.text : "")).join("");
}

export class TurnfastError extends Error {
  constructor(failure) {
    super(failure.message);
    this.name = "TurnfastError";
    this.failure = failure;
    this.code = failure.kind === "refused" ? failure.problem.code : null;
  }
}

/** What a client tells its open threads, and nobody else can. */
const signedIn = Symbol("signedIn");

class Client {
  #raw;
  #threads = new Set();

  constructor(options, token) {
    this.#raw = new RawClient(scope(options, token), maker, options.baseUrl ?? "", options.user ?? "anyone");
  }

  thread({ project, agent, threadId = null }) {
    return new Thread(this.#raw, this.#threads, project, agent, threadId);
  }

  onPush(listener) {
    const subscription = this.#raw.on_push((event) => tell(listener, event));
    return () => subscription.end();
  }

  me() {
    return this.#call("GET", "/auth/me");
  }

  async login(name, password) {
    await this.#call("POST", "/auth/login", { name, password });
    for (const thread of this.#threads) thread[signedIn]();
  }

  async logout() {
    await this.#call("POST", "/auth/logout");
    this.#raw.forget_drafts();
  }

  forgetDrafts() {
    this.#raw.forget_drafts();
  }

  async projects() {
    return (await this.#call("GET", "/projects")).projects;
  }

  async agents(project) {
    return (await this.#call("GET", `/projects/${encodeURIComponent(project)}/agents/v2`)).agents;
  }

  threads({ project, agent, limit, cursor }) {
    const query = new URLSearchParams();
    if (limit !== undefined) query.set("limit", String(limit));
    if (cursor != null) query.set("cursor", cursor);
    return this.#call("GET", `${base(project, agent)}/threads?${query}`);
  }

  rename({ project, agent, threadId, title }) {
    return this.#call("PATCH", `${base(project, agent)}/threads/${encodeURIComponent(threadId)}`, { title });
  }

  async delete({ project, agent, threadId }) {
    await this.#call("DELETE", `${base(project, agent)}/threads/${encodeURIComponent(threadId)}`);
  }

  dispose() {
    for (const thread of [...this.#threads]) thread.dispose();
    this.#raw.close();
  }

  async #call(method, path, body) {
    let text;
    try {
      text = await this.#raw.request(method, path, body === undefined ? undefined : JSON.stringify(body));
    } catch (failure) {
      throw new TurnfastError(failure);
    }
    return text ? maker.parse(text) : undefined;
  }
}

class Thread {
  #client;
  #threads;
  #place;
  #raw = null;
  #changes = null;
  #listeners = new Set();
  #initial;
  #snapshot;
  #stale = false;

  constructor(client, threads, project, agent, threadId) {
    this.#client = client;
    this.#threads = threads;
    this.#place = [project, agent];
    this.#initial = this.#snapshot = client.initial(threadId ?? undefined);
    // Handed out as they are, to React for one, so they must not depend on what they are called on.
    for (const name of Object.getOwnPropertyNames(Thread.prototype)) {
      if (name !== "constructor") this[name] = this[name].bind(this);
    }
  }

  subscribe(listener) {
    // An entry of its own, so that one function can be subscribed twice.
    const entry = { listener };
    this.#listeners.add(entry);
    this.#opened();
    return () => this.#listeners.delete(entry);
  }

  getSnapshot() {
    if (this.#stale) {
      this.#stale = false;
      this.#snapshot = this.#raw.snapshot();
    }
    return this.#snapshot;
  }

  getServerSnapshot() {
    return this.#initial;
  }

  open(threadId) {
    if (this.#raw) {
      this.#raw.switch(threadId ?? undefined);
    } else {
      this.#snapshot = this.#client.initial(threadId ?? undefined);
      this.#tell();
    }
  }

  setDraft(text) {
    this.#opened().set_draft(text);
  }

  setAttachments(attachments) {
    this.#opened().set_attachments(JSON.stringify(attachments));
  }

  submit() {
    this.#opened().submit();
  }

  stop() {
    this.#opened().stop();
  }

  answer(toolCallId, data) {
    this.#opened().answer(toolCallId, JSON.stringify(data));
  }

  cancelSuspended() {
    this.#opened().cancel_suspended();
  }

  [signedIn]() {
    this.#raw.signed_in();
  }

  dismissTrouble() {
    this.#opened().dismiss_trouble();
  }

  dispose() {
    if (!this.#raw) return;
    this.getSnapshot();
    this.#changes.end();
    this.#threads.delete(this);
    this.#raw.close();
    this.#raw = this.#changes = null;
  }

  #opened() {
    if (this.#raw) return this.#raw;
    const [project, agent] = this.#place;
    const raw = this.#client.open(project, agent, this.#snapshot.threadId ?? undefined);
    this.#raw = raw;
    this.#threads.add(this);
    this.#changes = raw.subscribe(() => this.#changed());
    this.#changed();
    return raw;
  }

  #changed() {
    this.#stale = true;
    this.#tell();
  }

  #tell() {
    for (const { listener } of [...this.#listeners]) tell(listener);
  }
}

/** A listener's error is its own: it must not end in the middle of what it listens to. */
function tell(listener, ...args) {
  try {
    listener(...args);
  } catch (error) {
    if (globalThis.reportError) return reportError(error);
    queueMicrotask(() => {
      throw error;
    });
  }
}

function base(project, agent) {
  return `/projects/${encodeURIComponent(project)}/agents/v2/${encodeURIComponent(agent)}`;
}

const freeze = Object.freeze;

/** What the wasm makes objects with. */
const maker = {
  parse: (json) => JSON.parse(json, (_, value) => freeze(value)),
  part: (json, text) => freeze({ ...JSON.parse(json), text }),
  message: (json, content) => freeze({ ...maker.parse(json), content }),
  list: freeze,
  replaced(list, index, item) {
    // Many times as fast as `slice` where the list is frozen.
    const copy = [...list];
    copy[index] = item;
    return freeze(copy);
  },
  snapshot: (before, changes) => freeze({ ...before, ...changes }),
};

/** What the wasm takes for the global object. */
function scope(options, token) {
  const choose = (name, member) => (options[name] === undefined ? member() : (options[name] ?? undefined));
  const bare = choose("fetch", () => (...args) => globalThis.fetch(...args));
  const fetch =
    token === undefined
      ? bare
      : async (url, request) => {
          const current = typeof options.token === "function" ? await options.token() : token;
          return bare(url, { ...request, headers: { ...request.headers, authorization: `Bearer ${current}` } });
        };
  const locks = choose("locks", () => globalThis.navigator?.locks);
  const Channel = choose("BroadcastChannel", () => globalThis.BroadcastChannel);
  // Tabs share one connection to /push, and with it what it says. Tabs of different people must not.
  const own = token === undefined ? "" : ` ${digest(token)}`;
  return {
    fetch,
    // An EventSource sends no headers, so with a token /push is read as turns are.
    EventSource: choose("EventSource", () => (token === undefined && globalThis.EventSource) || eventSource(fetch)),
    BroadcastChannel:
      Channel &&
      function (name) {
        return new Channel(name + own);
      },
    get localStorage() {
      return choose("storage", () => globalThis.localStorage);
    },
    navigator: { locks: locks && { request: (name, ...rest) => locks.request(name + own, ...rest) } },
    document: globalThis.document,
    addEventListener: (...args) => globalThis.addEventListener?.(...args),
    removeEventListener: (...args) => globalThis.removeEventListener?.(...args),
  };
}

/** FNV-1a over 64 bits: tells tokens apart without showing them. */
function digest(text) {
  let hash = 0xcbf29ce484222325n;
  for (const byte of new TextEncoder().encode(text)) hash = BigInt.asUintN(64, (hash ^ BigInt(byte)) * 0x100000001b3n);
  return hash.toString(36);
}

/** A class that is to the wasm what EventSource is, over `fetch`. It never reconnects by itself: the wasm does that better. */
function eventSource(fetch) {
  return class {
    #abort = new AbortController();
    #listeners = { message: new Set(), error: new Set() };

    constructor(url) {
      this.#read(url)
        .catch(() => {})
        .then(() => this.#tell("error", {}));
    }

    addEventListener(type, listener) {
      this.#listeners[type].add(listener);
    }

    removeEventListener(type, listener) {
      this.#listeners[type].delete(listener);
    }

    close() {
      this.#abort.abort();
    }

    #tell(type, event) {
      if (this.#abort.signal.aborted) return;
      for (const listener of [...this.#listeners[type]]) listener(event);
    }

    async #read(url) {
      const request = { headers: { accept: "text/event-stream" }, cache: "no-store", signal: this.#abort.signal };
      const response = await fetch(url, request);
      if (!response.ok) return response.body?.cancel();
      const parser = new RawParser();
      const reader = response.body.getReader();
      for (;;) {
        const { done, value } = await reader.read();
        if (done) return;
        for (const data of parser.feed(value)) this.#tell("message", { data });
      }
    }
  };
}
