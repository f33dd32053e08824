-- What was said. Times are milliseconds since the Unix epoch. JSON is kept as text: reads pass it on as it was written.

CREATE TABLE threads (
    id UUID PRIMARY KEY,
    project_id TEXT NOT NULL,
    agent_id TEXT NOT NULL,
    owner_id UUID NOT NULL,
    title TEXT NOT NULL,
    -- Raised by every committed change to what a reader can see.
    revision BIGINT NOT NULL,
    created_at BIGINT NOT NULL,
    updated_at BIGINT NOT NULL
);

CREATE INDEX threads_newest_first ON threads (owner_id, project_id, agent_id, updated_at DESC, id DESC);

CREATE TABLE messages (
    pk BIGINT GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    id UUID NOT NULL,
    thread_id UUID NOT NULL REFERENCES threads (id) ON DELETE CASCADE,
    owner_id UUID NOT NULL,
    position BIGINT NOT NULL,
    role TEXT NOT NULL,
    execution_id UUID,
    status TEXT,
    -- JSON: an ExecutionError.
    error TEXT,
    -- JSON: all parts, once nothing more is written to the message. While it is NULL they are rows of parts and segments, so that
    -- recording one more token costs the same whatever is there already.
    content TEXT,
    created_at BIGINT NOT NULL,
    revision BIGINT NOT NULL,
    -- How often the message was continued because the process that wrote it died.
    continuations INTEGER NOT NULL DEFAULT 0,
    -- A message id sent twice by one user is one message; ids of different users do not meet.
    UNIQUE (owner_id, id),
    UNIQUE (thread_id, position)
);

CREATE INDEX messages_changed ON messages (thread_id, revision);

CREATE TABLE parts (
    message_pk BIGINT NOT NULL REFERENCES messages (pk) ON DELETE CASCADE,
    part_index BIGINT NOT NULL,
    -- JSON: a Part; the text of text and reasoning is empty here and stands in segments.
    data TEXT NOT NULL,
    PRIMARY KEY (message_pk, part_index)
);

CREATE TABLE segments (
    message_pk BIGINT NOT NULL REFERENCES messages (pk) ON DELETE CASCADE,
    part_index BIGINT NOT NULL,
    segment_index BIGINT NOT NULL,
    text TEXT NOT NULL,
    PRIMARY KEY (message_pk, part_index, segment_index)
);

CREATE TABLE executions (
    id UUID PRIMARY KEY,
    thread_id UUID NOT NULL REFERENCES threads (id) ON DELETE CASCADE,
    message_pk BIGINT NOT NULL REFERENCES messages (pk) ON DELETE CASCADE,
    -- Who is charged for it.
    user_id UUID NOT NULL,
    -- The process that runs it. A fact, not a guess: it holds a lock for as long as it lives.
    process_id UUID NOT NULL,
    -- An execution status, 'resumed' (it was suspended and another one went on) or 'continued' (its process died and another went on).
    status TEXT NOT NULL,
    cancel_requested BOOLEAN NOT NULL DEFAULT FALSE,
    started_at BIGINT NOT NULL,
    ended_at BIGINT
);

-- One thread runs one turn at a time, and a turn that waits for a person is still that turn.
CREATE UNIQUE INDEX executions_one_open_turn ON executions (thread_id) WHERE status IN ('running', 'suspended');
CREATE INDEX executions_running_by_user ON executions (user_id) WHERE status = 'running';
CREATE INDEX executions_by_thread ON executions (thread_id);
CREATE INDEX executions_by_message ON executions (message_pk);

CREATE TABLE suspensions (
    message_pk BIGINT NOT NULL REFERENCES messages (pk) ON DELETE CASCADE,
    tool_call_id TEXT NOT NULL,
    thread_id UUID NOT NULL REFERENCES threads (id) ON DELETE CASCADE,
    -- 'open', 'answered' or 'cancelled'.
    state TEXT NOT NULL,
    -- JSON: a Suspension.
    data TEXT NOT NULL,
    -- JSON: the ResumeData that won.
    answer TEXT,
    PRIMARY KEY (message_pk, tool_call_id)
);

CREATE INDEX suspensions_open ON suspensions (thread_id) WHERE state = 'open';

-- Processes that serve, or died and left something running. Each holds a session advisory lock of its own.
CREATE TABLE processes (
    id UUID PRIMARY KEY,
    started_at BIGINT NOT NULL
);
