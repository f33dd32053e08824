import type { Failure, ThreadState } from "./state.js";
import type { Agent, Code, Me, Message, NewAttachment, Project, PushEvent, ResumeData, Thread, ThreadPage } from "./wire.js";

export type * from "./state.js";
export type * from "./wire.js";

/** Connects to a server. Nothing is sent before a thread is subscribed to or acted on, and nobody need be signed in. */
export function connect(options?: ClientOptions): Promise<Client>;

/** The text parts of a message, joined. */
export function textOf(message: Message): string;

/** What the client needs of the place it runs in. Each is the global of that name unless it is given here; `null`: do without. */
export interface ClientOptions {
  /** Where the server is, without a slash at its end. Unless given: where the page came from. */
  baseUrl?: string;
  /**
   * An API token, or what gives the current one before each request. Without: the session cookie, which browsers send to the page's
   * own origin only. With a token, `/push` is read with `fetch`, since an EventSource sends no headers.
   */
  token?: string | (() => string | Promise<string>);
  /** Whose drafts are kept here, such as the id of `me()`. Give it where several people share a browser: drafts are kept per user. */
  user?: string;
  /** For requests and live streams: its answers need a `body` that can be read in pieces. */
  fetch?: (url: string, init: RequestInit) => Promise<Response>;
  /** For `/push`. */
  EventSource?: new (url: string) => EventSourceLike;
  /** For drafts. Without, they are gone after a reload. */
  storage?: Pick<Storage, "getItem" | "setItem" | "removeItem" | "key" | "length"> | null;
  /** For one `/push` connection per browser instead of one per tab; takes a BroadcastChannel too. */
  locks?: Pick<LockManager, "request"> | null;
  /** See `locks`. */
  BroadcastChannel?: (new (name: string) => BroadcastChannelLike) | null;
  /** The package's wasm, where it is not to be found beside the package's script. */
  wasm?: WasmSource | Promise<WasmSource>;
}

/** Where wasm may come from. */
export type WasmSource = string | URL | Request | Response | BufferSource | WebAssembly.Module;

/** What is used of an EventSource: the events `message`, with `data`, and `error`. */
export interface EventSourceLike {
  addEventListener(type: string, listener: (event: any) => void): void;
  removeEventListener(type: string, listener: (event: any) => void): void;
  close(): void;
}

/** What is used of a BroadcastChannel: the event `message`, with `data`. */
export interface BroadcastChannelLike {
  addEventListener(type: string, listener: (event: any) => void): void;
  removeEventListener(type: string, listener: (event: any) => void): void;
  postMessage(message: unknown): void;
  close(): void;
}

/** An agent of a project. */
export interface AgentKey {
  project: string;
  agent: string;
}

/** A thread of an agent. */
export interface ThreadKey extends AgentKey {
  threadId: string;
}

/**
 * One server. Make one per page: its threads share one `/push` connection, with those of other tabs too. A request that fails throws
 * a {@link TurnfastError}.
 */
export interface Client {
  /** A thread; without `threadId` a new one, which gets its id when its first message is accepted. */
  thread(options: AgentKey & { threadId?: string | null }): ThreadHandle;
  /**
   * Calls `listener` with every message of `/push` but pings, whichever tab holds the connection; `connected` means that something
   * may have been missed. For lists of threads: an open thread hears of its changes by itself. Returns what ends it.
   */
  onPush(listener: (event: PushEvent) => void): () => void;
  /** Who is signed in. */
  me(): Promise<Me>;
  /** Signs in with a session cookie, and has open threads read what they missed. */
  login(name: string, password: string): Promise<void>;
  /** Signs out, in every tab, and forgets every draft of this browser. */
  logout(): Promise<void>;
  /** Removes every draft of this browser: somebody else may sit here next. */
  forgetDrafts(): void;
  /** The projects that the caller may use. */
  projects(): Promise<readonly Project[]>;
  /** The agents of a project. */
  agents(project: string): Promise<readonly Agent[]>;
  /** A page of an agent's threads, newest first; `cursor` as the page before gave it. */
  threads(options: AgentKey & { limit?: number; cursor?: string | null }): Promise<ThreadPage>;
  /** Gives a thread another title. */
  rename(options: ThreadKey & { title: string }): Promise<Thread>;
  /** Deletes a thread for good. Refused with `turn_already_running` while it runs. */
  delete(options: ThreadKey): Promise<void>;
  /** The end: disposes of its threads and closes its part in `/push`. Turns run on regardless. */
  dispose(): void;
}

/** A thread. Its functions can be passed on as they are, without the handle. */
export interface ThreadHandle {
  /**
   * Calls `listener` after every change; it then asks `getSnapshot`. The first subscription opens the thread, which reads it and
   * follows it. Returns what ends the subscription.
   */
  readonly subscribe: (listener: () => void) => () => void;
  /** What is to be shown now: the same object until something changes. */
  readonly getSnapshot: () => ThreadState;
  /** What is shown of the thread before anything is known of it: for rendering on a server, and for the hydration of that. */
  readonly getServerSnapshot: () => ThreadState;
  /** The whole draft, after every change. */
  readonly setDraft: (text: string) => void;
  /** The files that go with the draft. */
  readonly setAttachments: (attachments: readonly NewAttachment[]) => void;
  /** Sends the draft, where `sendBlocked` is `null`; else nothing happens. */
  readonly submit: () => void;
  /** Stops what runs; of a suspended turn, cancels it. A second call does nothing. */
  readonly stop: () => void;
  /** Answers a tool call of `interactions`. */
  readonly answer: (toolCallId: string, data: ResumeData) => void;
  /** Cancels the suspended turn. */
  readonly cancelSuspended: () => void;
  /** Takes `trouble` away. */
  readonly dismissTrouble: () => void;
  /** Shows another thread of the same agent; `null`: a new one. The one that is shown already: reads it again. */
  readonly open: (threadId: string | null) => void;
  /** Closes the thread: it reads and follows no more. A turn runs on regardless. To subscribe or act opens it again. */
  readonly dispose: () => void;
}

/** A request that came to nothing. */
export class TurnfastError extends Error {
  constructor(failure: Failure);
  readonly failure: Failure;
  /** The server's code, where it gave one. */
  readonly code: Code | null;
}
