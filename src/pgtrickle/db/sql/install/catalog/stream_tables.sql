-- The catalog, version 1. Tables are created once; later versions change them by migrations/.
CREATE TABLE IF NOT EXISTS pgtrickle.pgt_schema_version (
    version int PRIMARY KEY,
    installed_at timestamptz NOT NULL DEFAULT pg_catalog.clock_timestamp(),
    package_version text NOT NULL
);
COMMENT ON TABLE pgtrickle.pgt_schema_version IS 'Installed versions of the catalog; the highest one is current.';

CREATE TABLE IF NOT EXISTS pgtrickle.pgt_stream_tables (
    pgt_id bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    pgt_relid oid NOT NULL,
    pgt_name name NOT NULL,
    pgt_schema name NOT NULL,
    defining_query text NOT NULL,
    original_query text NOT NULL,
    output_columns jsonb NOT NULL,
    schedule text NOT NULL DEFAULT 'calculated',
    refresh_mode text NOT NULL DEFAULT 'AUTO'
        CHECK (refresh_mode IN ('AUTO', 'DIFFERENTIAL', 'FULL', 'IMMEDIATE')),
    effective_refresh_mode text NOT NULL
        CHECK (effective_refresh_mode IN ('DIFFERENTIAL', 'FULL', 'IMMEDIATE')),
    mode_reason text,
    plan jsonb,
    status text NOT NULL DEFAULT 'INITIALIZING'
        CHECK (status IN ('INITIALIZING', 'ACTIVE', 'SUSPENDED', 'ERROR')),
    is_populated bool NOT NULL DEFAULT false,
    data_timestamp timestamptz,
    frontier jsonb,
    epoch bigint NOT NULL DEFAULT 0,
    needs_reinit bool NOT NULL DEFAULT false,
    reinit_reason text,
    refresh_requested_at timestamptz,
    refresh_done_at timestamptz,
    last_refresh_at timestamptz,
    consecutive_errors int NOT NULL DEFAULT 0,
    last_error_message text,
    refresh_tier text NOT NULL DEFAULT 'hot' CHECK (refresh_tier IN ('hot', 'warm', 'cold', 'frozen')),
    last_full_ms float8,
    last_diff_ms float8,
    definition_version int NOT NULL DEFAULT 1,
    diamond_consistency text CHECK (diamond_consistency IN ('none', 'atomic')),
    diamond_schedule_policy text CHECK (diamond_schedule_policy IN ('fastest', 'slowest')),
    cdc_mode text CHECK (cdc_mode IN ('auto', 'trigger', 'wal')),
    append_only bool NOT NULL DEFAULT false,
    pooler_compatibility_mode bool NOT NULL DEFAULT false,
    partition_by text,
    max_differential_joins int,
    max_delta_fraction float8,
    created_by name NOT NULL,
    created_at timestamptz NOT NULL DEFAULT pg_catalog.clock_timestamp(),
    updated_at timestamptz NOT NULL DEFAULT pg_catalog.clock_timestamp(),
    UNIQUE (pgt_schema, pgt_name),
    UNIQUE (pgt_relid)
) WITH (fillfactor = 50);
ALTER TABLE pgtrickle.pgt_stream_tables ADD COLUMN IF NOT EXISTS functions_used oid[] NOT NULL DEFAULT '{}';
COMMENT ON COLUMN pgtrickle.pgt_stream_tables.functions_used IS
'Functions of the database, not of PostgreSQL itself, that the query calls. When one is replaced, the content is loaded again.';
ALTER TABLE pgtrickle.pgt_stream_tables ADD COLUMN IF NOT EXISTS defined_in text;
COMMENT ON COLUMN pgtrickle.pgt_stream_tables.defined_in IS
'The database, as in a frontier, whose oids pgt_dependencies and pgt_names have. In a database that was restored from a dump, these oids belong to other relations.';
ALTER TABLE pgtrickle.pgt_stream_tables
ADD COLUMN IF NOT EXISTS run_as text NOT NULL DEFAULT 'service' CHECK (run_as IN ('service', 'author')),
ADD COLUMN IF NOT EXISTS session_settings jsonb NOT NULL DEFAULT '{}',
ADD COLUMN IF NOT EXISTS operators oid[] NOT NULL DEFAULT '{}';
COMMENT ON COLUMN pgtrickle.pgt_stream_tables.run_as IS
'The role whose privileges are used to evaluate the query. service: it calls trusted code only, and the author''s privileges are checked at each refresh. author: it calls other code, which runs as created_by.';
COMMENT ON COLUMN pgtrickle.pgt_stream_tables.session_settings IS
'Settings of the author''s session that can affect the result (search_path, TimeZone, DateStyle, ...), as they were when the query was defined.';
COMMENT ON COLUMN pgtrickle.pgt_stream_tables.operators IS
'The operators that PostgreSQL resolved in the author''s session, one entry per use, sorted. The statements of a refresh must resolve to the same ones.';
ALTER TABLE pgtrickle.pgt_stream_tables
ADD COLUMN IF NOT EXISTS functions_reached oid[] NOT NULL DEFAULT '{}',
ADD COLUMN IF NOT EXISTS types_reached oid[] NOT NULL DEFAULT '{}',
ADD COLUMN IF NOT EXISTS tables_of_others oid[] NOT NULL DEFAULT '{}',
ADD COLUMN IF NOT EXISTS is_judged bool NOT NULL DEFAULT false;
COMMENT ON COLUMN pgtrickle.pgt_stream_tables.is_judged IS 'Whether the code that the query calls was checked. For definitions of earlier versions, install checks it.';
COMMENT ON COLUMN pgtrickle.pgt_stream_tables.functions_reached IS
'Functions of the database that evaluating the query can call, also those behind types, casts and operator classes. With types_reached and tables_of_others: when one of them has changed, the code is checked again.';
COMMENT ON COLUMN pgtrickle.pgt_stream_tables.types_reached IS 'Types of the database that values of the query have, with what they are made of.';
COMMENT ON COLUMN pgtrickle.pgt_stream_tables.tables_of_others IS 'Tables that the query reads and that neither the service role nor a superuser owns.';
COMMENT ON TABLE pgtrickle.pgt_stream_tables IS 'One row per stream table: definition, state, frontier.';
COMMENT ON COLUMN pgtrickle.pgt_stream_tables.pgt_relid IS 'The storage table.';
COMMENT ON COLUMN pgtrickle.pgt_stream_tables.defining_query IS
'The query as PostgreSQL parsed it: every name qualified, * expanded, no trailing semicolon. Independent of search_path, DateStyle and IntervalStyle.';
COMMENT ON COLUMN pgtrickle.pgt_stream_tables.original_query IS 'The query as it was typed; updated when a source is renamed.';
COMMENT ON COLUMN pgtrickle.pgt_stream_tables.output_columns IS 'Array of {name, type, typid, typmod, collation} in the order of the query.';
COMMENT ON COLUMN pgtrickle.pgt_stream_tables.mode_reason IS 'Why the effective mode differs from the requested one.';
COMMENT ON COLUMN pgtrickle.pgt_stream_tables.plan IS 'Written by the control plane.';
COMMENT ON COLUMN pgtrickle.pgt_stream_tables.frontier IS 'Per source database ("system_identifier/database oid") the cut of the content.';
COMMENT ON COLUMN pgtrickle.pgt_stream_tables.epoch IS 'The fence: each committed refresh, each alter and each trim past an unloaded reader adds 1; a refresh that read another epoch does not commit.';
COMMENT ON COLUMN pgtrickle.pgt_stream_tables.refresh_requested_at IS 'When a refresh was last requested. Pending while later than refresh_done_at.';
COMMENT ON COLUMN pgtrickle.pgt_stream_tables.refresh_done_at IS 'The refresh_requested_at that the last finished refresh had seen before it took its cut.';
COMMENT ON COLUMN pgtrickle.pgt_stream_tables.last_full_ms IS 'Duration of the last full refresh, without the share of other tables in the same wave.';
COMMENT ON COLUMN pgtrickle.pgt_stream_tables.last_diff_ms IS 'The same for the last differential refresh.';
COMMENT ON COLUMN pgtrickle.pgt_stream_tables.pooler_compatibility_mode IS
'Its refreshes, and those of tables in the same unit, keep no session state: no prepared statements, no settings, no temporary tables past a transaction. The same holds for all tables if connection_pooler_mode is transaction.';
COMMENT ON COLUMN pgtrickle.pgt_stream_tables.definition_version IS 'Incremented whenever the query changes.';

CREATE TABLE IF NOT EXISTS pgtrickle.pgt_dependencies (
    pgt_id bigint NOT NULL REFERENCES pgtrickle.pgt_stream_tables ON DELETE CASCADE,
    source_relid oid NOT NULL,
    source_type text NOT NULL
        CHECK (source_type IN ('TABLE', 'STREAM_TABLE', 'VIEW', 'MATVIEW', 'FOREIGN_TABLE', 'REMOTE')),
    columns_used int2[] NOT NULL DEFAULT '{}',
    cdc_mode text NOT NULL DEFAULT 'trigger',
    fingerprint text,
    PRIMARY KEY (pgt_id, source_relid)
);
CREATE INDEX IF NOT EXISTS pgt_dependencies_source ON pgtrickle.pgt_dependencies (source_relid);
COMMENT ON TABLE pgtrickle.pgt_dependencies IS 'What each stream table reads: a row per table, and one per view through which it is read.';
COMMENT ON COLUMN pgtrickle.pgt_dependencies.columns_used IS 'Attribute numbers.';
ALTER TABLE pgtrickle.pgt_dependencies
ADD COLUMN IF NOT EXISTS source_schema name,
ADD COLUMN IF NOT EXISTS source_name name,
ADD COLUMN IF NOT EXISTS column_names name[];
COMMENT ON COLUMN pgtrickle.pgt_dependencies.source_schema IS
'With source_name and column_names (of columns_used, in that order): the names that the defining query has for it. If the current name differs, the source was renamed and the stream table follows.';
COMMENT ON COLUMN pgtrickle.pgt_dependencies.fingerprint IS 'The source''s fingerprint at the reader''s frontier; written together with the frontier.';

CREATE TABLE IF NOT EXISTS pgtrickle.pgt_privileges (
    pgt_id bigint NOT NULL REFERENCES pgtrickle.pgt_stream_tables ON DELETE CASCADE,
    relid oid NOT NULL,
    reader oid NOT NULL,
    is_named bool NOT NULL,
    columns int2[] NOT NULL,
    is_elsewhere bool NOT NULL,
    lost_elsewhere text,
    PRIMARY KEY (pgt_id, relid, reader, is_named)
);
COMMENT ON TABLE pgtrickle.pgt_privileges IS
'Required SELECT privileges of each stream table: of its author on the sources of the query, of owners of views on their sources. Checked at each refresh.';
COMMENT ON COLUMN pgtrickle.pgt_privileges.is_named IS 'The query itself names it, for which its author needs USAGE on the schema.';
COMMENT ON COLUMN pgtrickle.pgt_privileges.is_elsewhere IS 'It is a mirror: the privileges at its origin are checked. lost_elsewhere: the privilege that was last found missing there.';

CREATE TABLE IF NOT EXISTS pgtrickle.pgt_names (
    pgt_id bigint NOT NULL REFERENCES pgtrickle.pgt_stream_tables ON DELETE CASCADE,
    classid oid NOT NULL,
    objid oid NOT NULL,
    objsubid int NOT NULL,
    name text NOT NULL,
    in_text bool NOT NULL,
    PRIMARY KEY (pgt_id, classid, objid, objsubid)
);
COMMENT ON TABLE pgtrickle.pgt_names IS
'Other objects that each query names: functions, operators, types and their attributes, relations in constants of type regclass; and the types of columns. Not those of PostgreSQL itself.';
COMMENT ON COLUMN pgtrickle.pgt_names.in_text IS
'In the query itself: if its name has changed, the table stops, because its text has another meaning. Otherwise in a view, whose text PostgreSQL keeps current, or in our statements.';

CREATE TABLE IF NOT EXISTS pgtrickle.pgt_sources (
    source_relid oid PRIMARY KEY,
    captured_columns int2[] NOT NULL,
    fingerprint text,
    created_at timestamptz NOT NULL DEFAULT pg_catalog.clock_timestamp(),
    updated_at timestamptz NOT NULL DEFAULT pg_catalog.clock_timestamp()
);
COMMENT ON TABLE pgtrickle.pgt_sources IS 'Tables whose changes are captured, and which of their columns.';

CREATE TABLE IF NOT EXISTS pgtrickle.pgt_refresh_history (
    refresh_id bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    pgt_id bigint NOT NULL REFERENCES pgtrickle.pgt_stream_tables ON DELETE CASCADE,
    data_timestamp timestamptz,
    start_time timestamptz NOT NULL DEFAULT pg_catalog.clock_timestamp(),
    end_time timestamptz,
    action text NOT NULL CHECK (action IN ('NO_DATA', 'FULL', 'DIFFERENTIAL', 'REINITIALIZE', 'SKIP')),
    reason text,
    rows_inserted bigint,
    rows_deleted bigint,
    delta_row_count bigint,
    status text NOT NULL CHECK (status IN ('RUNNING', 'COMPLETED', 'FAILED', 'SKIPPED')),
    initiated_by text NOT NULL DEFAULT 'SCHEDULER' CHECK (initiated_by IN ('SCHEDULER', 'MANUAL', 'INITIAL')),
    error_message text,
    timings jsonb
);
CREATE INDEX IF NOT EXISTS pgt_refresh_history_table ON pgtrickle.pgt_refresh_history (pgt_id, refresh_id DESC);
CREATE INDEX IF NOT EXISTS pgt_refresh_history_time ON pgtrickle.pgt_refresh_history (start_time);
COMMENT ON TABLE pgtrickle.pgt_refresh_history IS 'Every refresh: action, reason and cost.';
