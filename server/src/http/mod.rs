//! Routes, extractors, problem answers, SSE.
