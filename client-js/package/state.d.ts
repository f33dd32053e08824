/** What a thread shows, as `getSnapshot` returns it. */
import type { Code, ExecutionId, Message, NewAttachment, Problem, Suspension, ThreadId } from "./wire.js";

/**
 * One consistent picture of a thread. It and everything in it is frozen and never changes: a new one shares with the one before
 * whatever is the same, so that messages and parts can be compared with `===`.
 */
export interface ThreadState {
  /** The thread; `null` until a new one is accepted. When it becomes an id, a page puts it into its address. */
  readonly threadId: ThreadId | null;
  /** How the first read went. */
  readonly load: Load;
  /** The messages in order, the one that is being written in its newest state. */
  readonly messages: readonly Message[];
  /** The last read failed: what is shown may be old. For an unobtrusive note. */
  readonly readFailure: Failure | null;
  /** Whether a read is on its way, or due after a pause. Without one a failure stays until something happens. */
  readonly catchingUp: boolean;
  /** What runs in the thread. */
  readonly running: Running | null;
  /** What a Stop button shows. */
  readonly stop: Stop;
  /** Tool calls that wait for a person, in order. */
  readonly interactions: readonly Interaction[];
  /** What the person typed and has not sent. It is kept per thread over reloads. */
  readonly draft: string;
  /** The files that go with it. They are not kept over reloads. */
  readonly attachments: readonly NewAttachment[];
  /** Whether the draft could be kept for a reload. */
  readonly draftKept: boolean;
  /** Why `submit` does nothing; `null`: it sends. The draft can always be edited. */
  readonly sendBlocked: SendBlocked | null;
  /** What went wrong last, until it is dismissed or the next attempt. */
  readonly trouble: Trouble | null;
  /** Warnings of the turn whose stream this page has or had. */
  readonly warnings: readonly Warning[];
  /** The server wants a sign-in. What is shown stays. */
  readonly signedOut: boolean;
}

/** How the first read of a thread went. */
export type Load =
  /** A thread that does not exist yet: nothing to read. */
  | { readonly state: "new" }
  /** It is on its way. */
  | { readonly state: "loading" }
  /** The thread is shown. */
  | { readonly state: "loaded" }
  /** There is no such thread, or it is someone else's. */
  | { readonly state: "notFound" }
  /** It failed for good; the next occasion tries again. */
  | { readonly state: "failed"; readonly failure: Failure };

/** Why a request came to nothing. `message` words it for people. */
export type Failure =
  /** The server refused it; `retryAfter` is in seconds. */
  | { readonly kind: "refused"; readonly problem: Problem; readonly retryAfter: number | null; readonly message: string }
  /** There was an answer, and not one that the server itself gives (a proxy's error page, say). */
  | { readonly kind: "unreadable"; readonly status: number; readonly message: string }
  /** The connection broke, or never came about, before there was an answer. */
  | { readonly kind: "broken"; readonly message: string };

/** A running turn. */
export type Running =
  /** Submitted from here, and not accepted yet. */
  | { readonly state: "starting" }
  /** Its events arrive here. */
  | { readonly state: "live"; readonly executionId: ExecutionId }
  /** It runs somewhere; reads show how far it is. */
  | { readonly state: "followed"; readonly executionId: ExecutionId };

/** What a Stop button shows. */
export type Stop =
  /** Nothing runs: no button. */
  | "hidden"
  /** Pressing it stops the running turn, or cancels the suspended one. */
  | "usable"
  /** It was pressed before the execution's id was known, and is sent once it is. */
  | "waitingForId"
  /** It was asked; the record will show what became of it. */
  | "stopping";

/** A tool call that waits for a person. */
export interface Interaction extends Suspension {
  readonly state: InteractionState;
}

/** How far an interaction is. */
export type InteractionState =
  /** It can be answered. */
  | "answerable"
  /** The answer given here is on its way. */
  | "answering"
  /** A stream is still open, or the turn is being cancelled: not right now. */
  | "waiting"
  /** It was answered or cancelled elsewhere, and the record is being read. */
  | "closed";

/** Why `submit` does nothing. */
export type SendBlocked =
  /** Nobody is signed in. */
  | "signedOut"
  /** The thread's first read is not done. */
  | "loading"
  /** There is no such thread. */
  | "notFound"
  /** The connection broke on the last submit, and a read is to show whether it was accepted. */
  | "checking"
  /** A turn runs. */
  | "running"
  /** The thread waits for an answer. */
  | "interactionOpen"
  /** There is nothing to send. */
  | "empty";

/** What went wrong last. */
export interface Trouble {
  /** What was attempted. */
  readonly attempt: Attempt;
  /** Why it came to nothing. */
  readonly cause: Cause;
  /** The server's code, where it gave one. */
  readonly code: Code | null;
  /** All of it, for people. */
  readonly message: string;
}

/** What was attempted when something went wrong. */
export type Attempt =
  /** Sending a message. The draft still has it. */
  | "submit"
  /** Answering a suspended tool call. */
  | "answer"
  /** Stopping a turn. */
  | "stop"
  /** Cancelling a suspended turn. */
  | "cancel"
  /** Following the live stream. */
  | "stream";

/** Why an attempt came to nothing. */
export type Cause =
  /** The request failed. */
  | { readonly kind: "failed"; readonly failure: Failure }
  /** The connection broke before any answer, and the record shows that nothing was accepted. */
  | { readonly kind: "notAccepted" }
  /** The live stream was cut off. The turn runs on, and reads follow it. */
  | { readonly kind: "detached" }
  /** A Stop was given up: no execution became known in time. */
  | { readonly kind: "givenUp" }
  /** The stream reported an error before the turn was accepted. */
  | { readonly kind: "reported"; readonly message: string };

/** Something the reader should know about the turn. */
export interface Warning {
  /** For people. */
  readonly message: string;
  /** For programs. */
  readonly code: string | null;
}
