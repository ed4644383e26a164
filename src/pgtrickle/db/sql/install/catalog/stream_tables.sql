-- The tables of the catalog, as a new database gets them. A column that is added later goes last, and in migrations/ as well.
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
    functions_used oid[] NOT NULL DEFAULT '{}',
    defined_in text,
    run_as text NOT NULL DEFAULT 'service' CHECK (run_as IN ('service', 'author')),
    session_settings jsonb NOT NULL DEFAULT '{}',
    operators oid[] NOT NULL DEFAULT '{}',
    functions_reached oid[] NOT NULL DEFAULT '{}',
    types_reached oid[] NOT NULL DEFAULT '{}',
    tables_of_others oid[] NOT NULL DEFAULT '{}',
    is_judged bool NOT NULL DEFAULT false,
    tier_pinned bool NOT NULL DEFAULT false,
    created_key text,
    applied_from text,
    mode_reason_code text,
    mode_reason_params jsonb,
    reinit_reason_code text,
    reinit_reason_params jsonb,
    last_error_code text,
    engine text CHECK (engine IN ('auto', 'spark', 'postgres')),
    last_error_detail jsonb,
    UNIQUE (pgt_schema, pgt_name),
    UNIQUE (pgt_relid)
) WITH (fillfactor = 50);
COMMENT ON COLUMN pgtrickle.pgt_stream_tables.append_only IS 'Always false: the option is refused.';
COMMENT ON COLUMN pgtrickle.pgt_stream_tables.max_differential_joins IS
'Number of joins in all FROM clauses of the query above which it is refreshed in FULL; DIFFERENTIAL and IMMEDIATE fail then. NULL: no limit.';
COMMENT ON COLUMN pgtrickle.pgt_stream_tables.max_delta_fraction IS
'Ratio of changed rows to rows of the sources above which AUTO refreshes this table in FULL, whatever the size of the sources. NULL: '
'differential_max_change_ratio applies.';
COMMENT ON COLUMN pgtrickle.pgt_stream_tables.functions_used IS
'Functions of the database, not of PostgreSQL itself, that the query calls. When one is replaced, the content is loaded again.';
COMMENT ON COLUMN pgtrickle.pgt_stream_tables.defined_in IS
'Where the oids of this row, of pgt_dependencies, pgt_privileges and pgt_names are valid, as _place() says. In a database that was restored or copied it '
'is another place: the relations are found again by name.';
COMMENT ON COLUMN pgtrickle.pgt_stream_tables.run_as IS
'The role whose privileges are used to evaluate the query. service: it calls trusted code only, and the author''s privileges are checked at each '
'refresh. author: it calls other code, which runs as created_by.';
COMMENT ON COLUMN pgtrickle.pgt_stream_tables.session_settings IS
'Settings of the author''s session that can affect the result (search_path, TimeZone, DateStyle, ...), as they were when the query was defined.';
COMMENT ON COLUMN pgtrickle.pgt_stream_tables.operators IS
'The operators that PostgreSQL resolved in the author''s session, one entry per use, sorted. The statements of a refresh must resolve to the same ones.';
COMMENT ON COLUMN pgtrickle.pgt_stream_tables.is_judged IS
'Whether the code that the query calls was checked. An upgrade checks definitions of earlier versions.';
COMMENT ON COLUMN pgtrickle.pgt_stream_tables.functions_reached IS
'Functions of the database that evaluating the query can call, also those behind types, casts and operator classes. With types_reached and '
'tables_of_others: when one of them has changed, the code is checked again.';
COMMENT ON COLUMN pgtrickle.pgt_stream_tables.types_reached IS 'Types of the database that values of the query have, with what they are made of.';
COMMENT ON COLUMN pgtrickle.pgt_stream_tables.tables_of_others IS 'Tables that the query reads and that neither the service role nor a superuser owns.';
COMMENT ON COLUMN pgtrickle.pgt_stream_tables.mode_reason_code IS
'With mode_reason_params: mode_reason as a code with parameters. Decisions are made by these; the text is rendered from them (_reason_text).';
COMMENT ON COLUMN pgtrickle.pgt_stream_tables.reinit_reason_code IS 'The same for reinit_reason.';
COMMENT ON COLUMN pgtrickle.pgt_stream_tables.reinit_reason IS 'Why the content is to be computed from nothing.';
COMMENT ON COLUMN pgtrickle.pgt_stream_tables.last_error_code IS
'The code of last_error_message: of an error (PGT...), or of the reason why the table waits.';
COMMENT ON COLUMN pgtrickle.pgt_stream_tables.last_error_detail IS
'{of, text}: what is added to the last_error_message "of" for roles that may read all sources: values, and keys of the rows that a refresh failed on.';
COMMENT ON TABLE pgtrickle.pgt_stream_tables IS 'One row per stream table: definition, state, frontier.';
COMMENT ON COLUMN pgtrickle.pgt_stream_tables.pgt_relid IS 'The storage table.';
COMMENT ON COLUMN pgtrickle.pgt_stream_tables.defining_query IS
'The query as PostgreSQL parsed it: every name qualified, * expanded, no trailing semicolon. Independent of search_path, DateStyle and IntervalStyle.';
COMMENT ON COLUMN pgtrickle.pgt_stream_tables.original_query IS 'The query as it was typed; updated when a source is renamed.';
COMMENT ON COLUMN pgtrickle.pgt_stream_tables.output_columns IS 'Array of {name, type, typid, typmod, collation} in the order of the query.';
COMMENT ON COLUMN pgtrickle.pgt_stream_tables.mode_reason IS 'Why the effective mode differs from the requested one.';
COMMENT ON COLUMN pgtrickle.pgt_stream_tables.plan IS 'Written by the control plane.';
COMMENT ON COLUMN pgtrickle.pgt_stream_tables.frontier IS 'Per source database ("system_identifier/database oid") the cut of the content.';
COMMENT ON COLUMN pgtrickle.pgt_stream_tables.epoch IS
'The fence: each committed refresh, each alter and each trim past an unloaded reader adds 1; a refresh that read another epoch does not commit.';
COMMENT ON COLUMN pgtrickle.pgt_stream_tables.refresh_requested_at IS 'When a refresh was last requested. Pending while later than refresh_done_at.';
COMMENT ON COLUMN pgtrickle.pgt_stream_tables.refresh_done_at IS 'The refresh_requested_at that the last finished refresh had seen before it took its cut.';
COMMENT ON COLUMN pgtrickle.pgt_stream_tables.last_full_ms IS 'Duration of the last full refresh, without the share of other tables in the same wave.';
COMMENT ON COLUMN pgtrickle.pgt_stream_tables.last_diff_ms IS 'The same for the last differential refresh.';
COMMENT ON COLUMN pgtrickle.pgt_stream_tables.pooler_compatibility_mode IS
'Its refreshes, and those of tables in the same unit, keep no session state: no prepared statements, no settings, no temporary tables past a '
'transaction. The same holds for all tables if connection_pooler_mode is transaction.';
COMMENT ON COLUMN pgtrickle.pgt_stream_tables.definition_version IS 'Incremented whenever the query changes.';
COMMENT ON COLUMN pgtrickle.pgt_stream_tables.tier_pinned IS 'refresh_tier was set by alter_stream_table; otherwise it follows the changes.';
COMMENT ON COLUMN pgtrickle.pgt_stream_tables.created_key IS 'Server and oid of created_by, which may be called otherwise by now.';
COMMENT ON COLUMN pgtrickle.pgt_stream_tables.applied_from IS
'The set of definitions that `pgtrickle apply` created it from, or adopted it into. NULL: created by hand; apply --prune never drops it.';

CREATE TABLE IF NOT EXISTS pgtrickle.pgt_dependencies (
    pgt_id bigint NOT NULL REFERENCES pgtrickle.pgt_stream_tables ON DELETE CASCADE,
    source_relid oid NOT NULL,
    source_type text NOT NULL
        CHECK (source_type IN ('TABLE', 'STREAM_TABLE', 'VIEW', 'MATVIEW', 'FOREIGN_TABLE', 'REMOTE')),
    columns_used int2[] NOT NULL DEFAULT '{}',
    cdc_mode text NOT NULL DEFAULT 'trigger',
    fingerprint text,
    source_schema name,
    source_name name,
    column_names name[],
    virtual_columns int2[],
    PRIMARY KEY (pgt_id, source_relid)
);
CREATE INDEX IF NOT EXISTS pgt_dependencies_source ON pgtrickle.pgt_dependencies (source_relid);
COMMENT ON TABLE pgtrickle.pgt_dependencies IS 'What each stream table reads: a row per table, and one per view through which it is read.';
COMMENT ON COLUMN pgtrickle.pgt_dependencies.columns_used IS 'Attribute numbers.';
COMMENT ON COLUMN pgtrickle.pgt_dependencies.virtual_columns IS 'Of columns_used, those that are computed from others when they are read.';
COMMENT ON COLUMN pgtrickle.pgt_dependencies.source_schema IS
'With source_name and column_names (of columns_used, in that order): the names that the defining query has for it. If the current name differs, the '
'source was renamed and the stream table follows.';
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
COMMENT ON COLUMN pgtrickle.pgt_privileges.columns IS 'Attribute numbers of the columns that the query reads; 0: it may read whole rows.';
COMMENT ON COLUMN pgtrickle.pgt_privileges.is_elsewhere IS
'It is a mirror: the privileges at its origin are checked. lost_elsewhere: the privilege that was last found missing there.';

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
'Other objects that each query names: functions, operators, types and their attributes, relations in constants of type regclass; and the types of '
'columns. Not those of PostgreSQL itself.';
COMMENT ON COLUMN pgtrickle.pgt_names.in_text IS
'In the query itself: if its name has changed, the table stops, because its text has another meaning. Otherwise in a view, whose text PostgreSQL keeps '
'current, or in our statements.';

CREATE TABLE IF NOT EXISTS pgtrickle.pgt_sources (
    source_relid oid PRIMARY KEY,
    captured_columns int2[] NOT NULL,
    fingerprint text,
    created_at timestamptz NOT NULL DEFAULT pg_catalog.clock_timestamp(),
    updated_at timestamptz NOT NULL DEFAULT pg_catalog.clock_timestamp(),
    reports_renames boolean NOT NULL DEFAULT false
);
COMMENT ON TABLE pgtrickle.pgt_sources IS 'Tables whose changes are captured, and which of their columns.';
COMMENT ON COLUMN pgtrickle.pgt_sources.reports_renames IS
'Whether the capture function detects that a column has another name, also if the types agree. Those of earlier versions do not.';

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
    timings jsonb,
    reason_code text,
    reason_params jsonb,
    engine text CHECK (engine IN ('spark', 'postgres')),
    engine_reason_code text,
    engine_reason_params jsonb,
    source_ms float8,
    is_cold bool NOT NULL DEFAULT false,
    wave_start_time timestamptz,
    share_ms float8,
    operator_rows jsonb
);
COMMENT ON COLUMN pgtrickle.pgt_refresh_history.start_time IS
'end_time minus what the refresh of this table took: its own statements, its part of what is sent for several tables together, and the Spark job. The '
'refreshes of a wave overlap, so this is not when the wave began.';
COMMENT ON COLUMN pgtrickle.pgt_refresh_history.end_time IS 'When the result was recorded, in the transaction that commits it.';
COMMENT ON COLUMN pgtrickle.pgt_refresh_history.wave_start_time IS
'When the wave of stream tables began that were refreshed together. NULL: it failed, or was recorded by an earlier version.';
COMMENT ON COLUMN pgtrickle.pgt_refresh_history.share_ms IS
'The share of this table in the duration of its wave: shares of all tables of a wave add up to at most its duration, although each waits for a shared '
'Spark job until the end of it.';
COMMENT ON COLUMN pgtrickle.pgt_refresh_history.operator_rows IS
'Of a differential refresh: changes (changed rows by oid of the source), read (rows that the statement over the changes returned; NULL: evaluated on Spark) '
'and netted (what was left of them by key: rows, or groups). NULL: not differential, without changes, or written by executors.';
COMMENT ON COLUMN pgtrickle.pgt_refresh_history.reason_code IS
'With reason_params: reason as a code with parameters. NULL in rows from before reasons had codes.';
CREATE INDEX IF NOT EXISTS pgt_refresh_history_table ON pgtrickle.pgt_refresh_history (pgt_id, refresh_id DESC);
CREATE INDEX IF NOT EXISTS pgt_refresh_history_time ON pgtrickle.pgt_refresh_history (start_time);
COMMENT ON TABLE pgtrickle.pgt_refresh_history IS 'Every refresh: action, reason and cost.';
