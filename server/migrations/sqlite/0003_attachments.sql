-- Files that people attach to their messages. They go with the message, and so with its thread.
CREATE TABLE attachments (
    id TEXT PRIMARY KEY,
    message_pk INTEGER NOT NULL REFERENCES messages (pk) ON DELETE CASCADE,
    name TEXT NOT NULL,
    media_type TEXT NOT NULL,
    data BLOB NOT NULL
) STRICT;

CREATE INDEX attachments_by_message ON attachments (message_pk);
