//! Routes, extractors, problem answers, SSE.

pub mod assets;
