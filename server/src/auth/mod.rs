//! Users, sessions, tokens, scopes.
