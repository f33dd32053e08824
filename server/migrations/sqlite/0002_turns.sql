-- What was said. Ids are UUID text, times are milliseconds since the Unix epoch.

CREATE TABLE threads (
    id TEXT PRIMARY KEY,
    project_id TEXT NOT NULL,
    agent_id TEXT NOT NULL,
    owner_id TEXT NOT NULL,
    title TEXT NOT NULL,
    -- Raised by every committed change to what a reader can see.
    revision INTEGER NOT NULL,
    created_at INTEGER NOT NULL,
    updated_at INTEGER NOT NULL
) STRICT;

CREATE INDEX threads_newest_first ON threads (owner_id, project_id, agent_id, updated_at DESC, id DESC);

CREATE TABLE messages (
    pk INTEGER PRIMARY KEY,
    id TEXT NOT NULL,
    thread_id TEXT NOT NULL REFERENCES threads (id) ON DELETE CASCADE,
    owner_id TEXT NOT NULL,
    position INTEGER NOT NULL,
    role TEXT NOT NULL,
    execution_id TEXT,
    status TEXT,
    -- JSON: an ExecutionError.
    error TEXT,
    -- JSON: all parts, once nothing more is written to the message. While it is NULL they are rows of parts and segments, so that
    -- recording one more token costs the same whatever is there already.
    content TEXT,
    created_at INTEGER NOT NULL,
    revision INTEGER NOT NULL,
    -- A message id sent twice by one user is one message; ids of different users do not meet.
    UNIQUE (owner_id, id),
    UNIQUE (thread_id, position)
) STRICT;

CREATE INDEX messages_changed ON messages (thread_id, revision);

CREATE TABLE parts (
    message_pk INTEGER NOT NULL REFERENCES messages (pk) ON DELETE CASCADE,
    part_index INTEGER NOT NULL,
    -- JSON: a Part; the text of text and reasoning is empty here and stands in segments.
    data TEXT NOT NULL,
    PRIMARY KEY (message_pk, part_index)
) STRICT, WITHOUT ROWID;

CREATE TABLE segments (
    message_pk INTEGER NOT NULL REFERENCES messages (pk) ON DELETE CASCADE,
    part_index INTEGER NOT NULL,
    segment_index INTEGER NOT NULL,
    text TEXT NOT NULL,
    PRIMARY KEY (message_pk, part_index, segment_index)
) STRICT, WITHOUT ROWID;

CREATE TABLE executions (
    id TEXT PRIMARY KEY,
    thread_id TEXT NOT NULL REFERENCES threads (id) ON DELETE CASCADE,
    message_pk INTEGER NOT NULL REFERENCES messages (pk) ON DELETE CASCADE,
    -- Who is charged for it.
    user_id TEXT NOT NULL,
    -- The process that runs it. A fact, not a guess: it holds a lock for as long as it lives.
    process_id TEXT NOT NULL,
    -- An execution status, or 'resumed': it was suspended and another one went on.
    status TEXT NOT NULL,
    cancel_requested INTEGER NOT NULL DEFAULT 0,
    started_at INTEGER NOT NULL,
    ended_at INTEGER
) STRICT;

-- One thread runs one turn at a time, and a turn that waits for a person is still that turn.
CREATE UNIQUE INDEX executions_one_open_turn ON executions (thread_id) WHERE status IN ('running', 'suspended');
CREATE INDEX executions_running_by_user ON executions (user_id) WHERE status = 'running';
CREATE INDEX executions_by_thread ON executions (thread_id);

CREATE TABLE suspensions (
    message_pk INTEGER NOT NULL REFERENCES messages (pk) ON DELETE CASCADE,
    tool_call_id TEXT NOT NULL,
    thread_id TEXT NOT NULL REFERENCES threads (id) ON DELETE CASCADE,
    -- 'open', 'answered' or 'cancelled'.
    state TEXT NOT NULL,
    -- JSON: a Suspension.
    data TEXT NOT NULL,
    -- JSON: the ResumeData that won.
    answer TEXT,
    PRIMARY KEY (message_pk, tool_call_id)
) STRICT, WITHOUT ROWID;

CREATE INDEX suspensions_open ON suspensions (thread_id) WHERE state = 'open';
