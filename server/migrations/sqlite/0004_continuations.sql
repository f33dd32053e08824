-- How often a message was continued because the process that wrote it died. Such an execution is 'continued', as one that was
-- suspended is 'resumed'.
ALTER TABLE messages ADD COLUMN continuations INTEGER NOT NULL DEFAULT 0;
