-- Catalogs of version 1 were made by several unreleased states of pgtrickle and differ in columns and in the signatures of functions.
ALTER TABLE IF EXISTS pgtrickle.pgt_stream_tables
    ADD COLUMN IF NOT EXISTS functions_used oid[] NOT NULL DEFAULT '{}',
    ADD COLUMN IF NOT EXISTS defined_in text,
    ADD COLUMN IF NOT EXISTS run_as text NOT NULL DEFAULT 'service' CHECK (run_as IN ('service', 'author')),
    ADD COLUMN IF NOT EXISTS session_settings jsonb NOT NULL DEFAULT '{}',
    ADD COLUMN IF NOT EXISTS operators oid[] NOT NULL DEFAULT '{}',
    ADD COLUMN IF NOT EXISTS functions_reached oid[] NOT NULL DEFAULT '{}',
    ADD COLUMN IF NOT EXISTS types_reached oid[] NOT NULL DEFAULT '{}',
    ADD COLUMN IF NOT EXISTS tables_of_others oid[] NOT NULL DEFAULT '{}',
    ADD COLUMN IF NOT EXISTS is_judged bool NOT NULL DEFAULT false,
    ADD COLUMN IF NOT EXISTS tier_pinned bool NOT NULL DEFAULT false,
    ADD COLUMN IF NOT EXISTS created_key text,
    ADD COLUMN IF NOT EXISTS applied_from text;
ALTER TABLE IF EXISTS pgtrickle.pgt_dependencies
    ADD COLUMN IF NOT EXISTS source_schema name,
    ADD COLUMN IF NOT EXISTS source_name name,
    ADD COLUMN IF NOT EXISTS column_names name[],
    ADD COLUMN IF NOT EXISTS virtual_columns int2[];
ALTER TABLE IF EXISTS pgtrickle.pgt_scheduler_jobs
    ADD COLUMN IF NOT EXISTS iterations int,
    ADD COLUMN IF NOT EXISTS taken_at timestamptz,
    ADD COLUMN IF NOT EXISTS tick_at timestamptz;
ALTER TABLE IF EXISTS pgtrickle.pgt_sources ADD COLUMN IF NOT EXISTS reports_renames boolean NOT NULL DEFAULT false;
ALTER TABLE IF EXISTS pgtrickle.pgt_runtime ADD COLUMN IF NOT EXISTS broker jsonb NOT NULL DEFAULT '[]';
ALTER TABLE IF EXISTS pgtrickle.pgt_readers ADD COLUMN IF NOT EXISTS netted xid8;
ALTER TABLE IF EXISTS pgtrickle.pgt_readers ADD COLUMN IF NOT EXISTS reads_replica bool NOT NULL DEFAULT false;
ALTER TABLE IF EXISTS pgtrickle.pgt_mirrors ADD COLUMN IF NOT EXISTS local_name text;
ALTER TABLE IF EXISTS pgtrickle.pgt_mirrors ADD COLUMN IF NOT EXISTS is_stored bool NOT NULL DEFAULT true;
ALTER TABLE IF EXISTS pgtrickle.pgt_shared_sources ADD COLUMN IF NOT EXISTS local_name text;
ALTER TABLE IF EXISTS pgtrickle.pgt_subscribers ADD COLUMN IF NOT EXISTS created_key text;
ALTER TABLE IF EXISTS pgtrickle.pgt_refresh_groups
    ADD COLUMN IF NOT EXISTS created_key text,
    ADD COLUMN IF NOT EXISTS applied_from text;
ALTER TABLE IF EXISTS pgtrickle.pgt_definitions ADD COLUMN IF NOT EXISTS created_key text;
ALTER TABLE IF EXISTS pgtrickle.pgt_plans
    ADD COLUMN IF NOT EXISTS understood text,
    ADD COLUMN IF NOT EXISTS asked_in xid8,
    ADD COLUMN IF NOT EXISTS answered_at timestamptz,
    ADD COLUMN IF NOT EXISTS mode text,
    ADD COLUMN IF NOT EXISTS reason text,
    ADD COLUMN IF NOT EXISTS statement text,
    ADD COLUMN IF NOT EXISTS hint text;

-- Functions that have other arguments now. None of them is called by capture functions.
DROP FUNCTION IF EXISTS
    pgtrickle._acknowledge_changes(bigint, text, pg_lsn),
    pgtrickle._alter(bigint, oid, text, jsonb),
    pgtrickle._ask_plan(text, text),
    pgtrickle._ask_plan(text, text, text),
    pgtrickle._asked(),
    pgtrickle._authorize(bigint),
    pgtrickle._buffer_sizes(),
    pgtrickle._caller(),
    pgtrickle._check_feed_rights(pgtrickle.pgt_stream_tables),
    pgtrickle._check_rights(oid, oid),
    pgtrickle._create_group(text, bigint[], text),
    pgtrickle._create_subscriber(bigint, text),
    pgtrickle._drop(bigint, bool),
    pgtrickle._drop_subscriber(bigint, text),
    pgtrickle._find_plan(text, text, text),
    pgtrickle._find_plan(text, text, text, text),
    pgtrickle._forget_asked(name, name),
    pgtrickle._forget_definition(name, name),
    pgtrickle._has_renamed_columns(oid, int2[], name[]),
    pgtrickle._note_applied(bigint, text, text[]),
    pgtrickle._note_asked(name, name, jsonb),
    pgtrickle._note_group_applied(text, text),
    pgtrickle._publish(bigint),
    pgtrickle._read_changes(bigint, text, int),
    pgtrickle._reads(oid),
    pgtrickle._request(bigint, text),
    pgtrickle._request_definition(bigint, name, name, text, jsonb, text),
    pgtrickle._restore_storage(bigint),
    pgtrickle._store_dependencies(bigint, oid),
    pgtrickle._subscriber(pgtrickle.pgt_stream_tables, text),
    pgtrickle._subscriber_lags(),
    pgtrickle._take_plan(bigint, bool),
    pgtrickle._unpublish(bigint),
    pgtrickle._wake(text),
    pgtrickle_changes._broker_window(oid, pg_snapshot, pg_snapshot, int2[]);
