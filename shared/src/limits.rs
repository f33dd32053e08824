//! Numbers that both sides keep to.

/// Characters (Unicode scalar values) that the record keeps of one delegation's text and reasoning together
/// (contract 1, section 5).
pub const CHILD_TRACE_CHARS: usize = 4_000;

/// Longest delay between the first unrecorded delta and its commit, in milliseconds (contract 1, section 5).
pub const RECORD_WITHIN_MS: u64 = 250;

/// How deep JSON of a tool call or result may be nested. Common readers stop at 128, and in an answer it lies within other JSON.
pub const JSON_DEPTH: usize = 64;

/// Pause between keep-alive comments on a live stream and between pings on `/push`, in seconds (contract 1, sections 4 and 5).
pub const KEEP_ALIVE_SECONDS: u64 = 15;

/// Missed pings after which a reader takes `/push` for dead.
pub const MISSED_PINGS: u64 = 3;

/// Page size of a thread list where none is asked for, and the largest that may be asked for (contract 1, section 3).
pub const THREADS_DEFAULT: u32 = 20;
/// See [`THREADS_DEFAULT`].
pub const THREADS_MAX: u32 = 100;

/// Characters of a thread's title.
pub const TITLE_CHARS: usize = 120;
