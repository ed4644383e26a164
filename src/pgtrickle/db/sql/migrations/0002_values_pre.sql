-- Values and keys of the rows that a refresh failed on, apart from the message.
ALTER TABLE IF EXISTS pgtrickle.pgt_stream_tables ADD COLUMN IF NOT EXISTS last_error_detail jsonb;
