-- What a deleted thread leaves behind: its ids, so that none of them comes to mean something else. A revision and an ETag name one
-- state of one thread, and a message that is sent again starts no second turn.
CREATE TABLE deleted_threads (
    id TEXT PRIMARY KEY
) STRICT, WITHOUT ROWID;

CREATE TABLE deleted_messages (
    owner_id TEXT NOT NULL,
    id TEXT NOT NULL,
    execution_id TEXT NOT NULL,
    PRIMARY KEY (owner_id, id)
) STRICT, WITHOUT ROWID;

-- The order in which questions of one message were asked.
ALTER TABLE suspensions ADD COLUMN position INTEGER NOT NULL DEFAULT 0;
