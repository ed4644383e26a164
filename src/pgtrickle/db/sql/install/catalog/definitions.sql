-- Requests to the control plane, because only it can read other databases or compile a query.
CREATE TABLE IF NOT EXISTS pgtrickle.pgt_definitions (
    pgt_schema name NOT NULL,
    pgt_name name NOT NULL,
    pgt_id bigint,
    query text NOT NULL,
    options jsonb NOT NULL,
    search_path text NOT NULL,
    created_by name NOT NULL,
    created_at timestamptz NOT NULL DEFAULT pg_catalog.clock_timestamp(),
    error_message text,
    is_final bool NOT NULL DEFAULT false,
    created_key text,
    PRIMARY KEY (pgt_schema, pgt_name)
);
COMMENT ON TABLE pgtrickle.pgt_definitions IS 'Stream tables over other databases that were asked for and are not there yet. Shown by pending_definitions().';
COMMENT ON COLUMN pgtrickle.pgt_definitions.pgt_id IS 'The stream table that is to be altered. NULL: a new one.';
COMMENT ON COLUMN pgtrickle.pgt_definitions.is_final IS 'The error will not go away by itself.';

CREATE TABLE IF NOT EXISTS pgtrickle.pgt_plans (
    plan_id bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    query text NOT NULL,
    search_path text NOT NULL,
    asked_by name NOT NULL,
    asked_at timestamptz NOT NULL DEFAULT pg_catalog.clock_timestamp(),
    plan text,
    error_message text,
    understood text,
    asked_in xid8,
    answered_at timestamptz,
    mode text,
    reason text,
    statement text,
    hint text
);
COMMENT ON TABLE pgtrickle.pgt_plans IS 'Requests of explain_query and validate_query with their results, until they are read or a minute old.';
COMMENT ON COLUMN pgtrickle.pgt_plans.understood IS
'Of validate_query: what PostgreSQL made of the query, so that no answer outlives a change of what the query reads. NULL: a call of explain_query '
'waits for the answer.';
COMMENT ON COLUMN pgtrickle.pgt_plans.statement IS
'The query as the session of the caller parsed it, checked to call trusted code only; NULL where it names other databases.';
COMMENT ON COLUMN pgtrickle.pgt_plans.asked_in IS 'The transaction that asked: it waits for no answer.';
