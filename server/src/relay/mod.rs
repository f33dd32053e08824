//! Who is told that a thread changed.
