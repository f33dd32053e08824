//! Admission, the registry, the writer, Stop, recovery.
