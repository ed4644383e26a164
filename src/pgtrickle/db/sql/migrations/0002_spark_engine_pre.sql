-- What evaluates a stream table, as an option and in the history.
ALTER TABLE pgtrickle.pgt_stream_tables
    ADD COLUMN IF NOT EXISTS engine text CHECK (engine IN ('auto', 'spark', 'postgres'));
ALTER TABLE pgtrickle.pgt_refresh_history
    ADD COLUMN IF NOT EXISTS engine text CHECK (engine IN ('spark', 'postgres')),
    ADD COLUMN IF NOT EXISTS engine_reason_code text,
    ADD COLUMN IF NOT EXISTS engine_reason_params jsonb,
    ADD COLUMN IF NOT EXISTS source_ms float8,
    ADD COLUMN IF NOT EXISTS is_cold bool NOT NULL DEFAULT false,
    ADD COLUMN IF NOT EXISTS wave_start_time timestamptz,
    ADD COLUMN IF NOT EXISTS share_ms float8,
    ADD COLUMN IF NOT EXISTS operator_rows jsonb;
-- They have one argument or column more.
DROP FUNCTION IF EXISTS
    pgtrickle.create_stream_table(text, text, text, text, bool, text, text, text, bool, bool, text, int, float8),
    pgtrickle.create_stream_table_if_not_exists(text, text, text, text, bool, text, text, text, bool, bool, text, int, float8),
    pgtrickle.create_or_replace_stream_table(text, text, text, text, bool, text, text, text, bool, bool, text, int, float8),
    pgtrickle.alter_stream_table(text, text, text, text, text, text, text, text, bool, bool, text, text, int, float8),
    pgtrickle.pgt_status(),
    pgtrickle.cache_stats(),
    pgtrickle.get_refresh_history(text, int);
