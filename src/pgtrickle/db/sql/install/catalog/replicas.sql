-- Columnar copies of captured tables, one per table. The copy itself is a Delta table on the machine of the control plane; its latest commit says which cut it
-- stands at. The row here limits trimming, so it is never later than that commit.
CREATE TABLE IF NOT EXISTS pgtrickle.pgt_replicas (
    source_relid oid PRIMARY KEY,
    origin text NOT NULL,
    generation text NOT NULL,
    location text NOT NULL,
    columns_used int2[] NOT NULL,
    computed jsonb NOT NULL DEFAULT '[]',
    as_text text[] NOT NULL DEFAULT '{}',
    readers bigint[] NOT NULL DEFAULT '{}',
    is_requested bool NOT NULL DEFAULT false,
    announced text[] NOT NULL DEFAULT '{}',
    committed text,
    snapshot pg_snapshot,
    netted xid8,
    row_count bigint,
    file_count int,
    bytes bigint,
    last_error text,
    created_at timestamptz NOT NULL DEFAULT pg_catalog.clock_timestamp(),
    updated_at timestamptz NOT NULL DEFAULT pg_catalog.clock_timestamp()
) WITH (fillfactor = 50);
COMMENT ON TABLE pgtrickle.pgt_replicas IS 'Columnar copies of captured tables, and their positions. A buffer is not trimmed past any of them.';
COMMENT ON COLUMN pgtrickle.pgt_replicas.origin IS
'This database, as in a frontier. A row that a copy of the database has inherited is not its own, and holds nothing back.';
COMMENT ON COLUMN pgtrickle.pgt_replicas.generation IS 'Directory of the Delta table below location; a replica that is built again gets another.';
COMMENT ON COLUMN pgtrickle.pgt_replicas.location IS 'Directory of the replica on the machine of the control plane.';
COMMENT ON COLUMN pgtrickle.pgt_replicas.columns_used IS 'Attribute numbers of the columns that it has, for all readers.';
COMMENT ON COLUMN pgtrickle.pgt_replicas.computed IS 'Columns that PostgreSQL computes when a row is read: [{name, expression, attnums}].';
COMMENT ON COLUMN pgtrickle.pgt_replicas.as_text IS 'Columns that are stored as text because a value has no exact columnar form.';
COMMENT ON COLUMN pgtrickle.pgt_replicas.readers IS 'Stream tables that read it.';
COMMENT ON COLUMN pgtrickle.pgt_replicas.is_requested IS 'Created by a user, so that it stays when nobody reads it.';
COMMENT ON COLUMN pgtrickle.pgt_replicas.announced IS
'Tokens of commits that may have been made since committed. A commit with another token is not of this history: the replica is built again.';
COMMENT ON COLUMN pgtrickle.pgt_replicas.committed IS 'Token of the commit that snapshot belongs to.';
COMMENT ON COLUMN pgtrickle.pgt_replicas.snapshot IS
'A cut that it has committed, or an earlier one: it is written after the commit. NULL: being built, all changes are kept for it.';
COMMENT ON COLUMN pgtrickle.pgt_replicas.netted IS 'As pgt_readers.netted.';
