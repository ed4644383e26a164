-- Reasons are codes with parameters.
ALTER TABLE pgtrickle.pgt_stream_tables
    ADD COLUMN IF NOT EXISTS mode_reason_code text,
    ADD COLUMN IF NOT EXISTS mode_reason_params jsonb,
    ADD COLUMN IF NOT EXISTS reinit_reason_code text,
    ADD COLUMN IF NOT EXISTS reinit_reason_params jsonb,
    ADD COLUMN IF NOT EXISTS last_error_code text;
ALTER TABLE pgtrickle.pgt_refresh_history
    ADD COLUMN IF NOT EXISTS reason_code text,
    ADD COLUMN IF NOT EXISTS reason_params jsonb;
DROP FUNCTION IF EXISTS
    pgtrickle._describe(oid),
    pgtrickle._differential_obstacle(oid),
    pgtrickle._effective_mode(text, text);
