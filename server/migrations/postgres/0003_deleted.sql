-- What a deleted thread leaves behind: its ids, so that none of them comes to mean something else. A revision and an ETag name one
-- state of one thread, and a message that is sent again starts no second turn.
CREATE TABLE deleted_threads (
    id UUID PRIMARY KEY
);

CREATE TABLE deleted_messages (
    owner_id UUID NOT NULL,
    id UUID NOT NULL,
    execution_id UUID NOT NULL,
    PRIMARY KEY (owner_id, id)
);

-- The order in which questions of one message were asked.
ALTER TABLE suspensions ADD COLUMN position BIGINT NOT NULL DEFAULT 0;
