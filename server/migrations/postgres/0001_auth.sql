-- Who someone is. Times are milliseconds since the Unix epoch, digests are SHA-256 of random secrets.
CREATE TABLE users (
    id UUID PRIMARY KEY,
    name TEXT NOT NULL UNIQUE,
    password_hash TEXT,
    disabled BOOLEAN NOT NULL DEFAULT FALSE,
    signed_in_at BIGINT,
    created_at BIGINT NOT NULL
);

CREATE TABLE browser_sessions (
    digest BYTEA PRIMARY KEY,
    user_id UUID NOT NULL REFERENCES users (id) ON DELETE CASCADE,
    expires_at BIGINT NOT NULL,
    created_at BIGINT NOT NULL
);

CREATE INDEX browser_sessions_by_user ON browser_sessions (user_id);
CREATE INDEX browser_sessions_by_expiry ON browser_sessions (expires_at);

-- One per user: a new link replaces the one before it.
CREATE TABLE sign_in_links (
    user_id UUID PRIMARY KEY REFERENCES users (id) ON DELETE CASCADE,
    digest BYTEA NOT NULL UNIQUE,
    expires_at BIGINT NOT NULL
);

CREATE TABLE api_tokens (
    id UUID PRIMARY KEY,
    user_id UUID NOT NULL REFERENCES users (id) ON DELETE CASCADE,
    digest BYTEA NOT NULL UNIQUE,
    scopes TEXT,
    expires_at BIGINT,
    revoked_at BIGINT,
    created_at BIGINT NOT NULL
);

CREATE INDEX api_tokens_by_user ON api_tokens (user_id);
