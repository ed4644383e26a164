-- Tables of other databases. A mirror (pgt_mirrors) is a hidden stream table that copies the needed columns of such a table. A reader
-- (pgt_readers) is the position of a mirror in the change buffer, stored in the database of the table.
CREATE TABLE IF NOT EXISTS pgtrickle.pgt_mirrors (
    pgt_id bigint PRIMARY KEY REFERENCES pgtrickle.pgt_stream_tables ON DELETE CASCADE,
    origin_key text NOT NULL,
    origin_server text NOT NULL,
    origin_database name NOT NULL,
    origin_schema name NOT NULL,
    origin_table name NOT NULL,
    origin_relid oid NOT NULL,
    columns_used int2[] NOT NULL,
    fingerprint text,
    local_relid oid,
    local_name text,
    is_stored bool NOT NULL DEFAULT true
);
CREATE INDEX IF NOT EXISTS pgt_mirrors_origin ON pgtrickle.pgt_mirrors (origin_key, origin_relid);
COMMENT ON TABLE pgtrickle.pgt_mirrors IS
'Copies of tables of other databases, maintained from their changes: one per table and set of columns. They are stream tables of schema pgtrickle_changes. '
'Those that are not stored stand for a table that Spark reads from its replica.';
COMMENT ON COLUMN pgtrickle.pgt_mirrors.origin_key IS 'The database of the table, as in a frontier: system identifier and database oid.';
COMMENT ON COLUMN pgtrickle.pgt_mirrors.origin_server IS 'host:port as the control plane reaches it. Empty: this server.';
COMMENT ON COLUMN pgtrickle.pgt_mirrors.columns_used IS 'Attribute numbers at the origin, in the order of the mirror''s columns.';
COMMENT ON COLUMN pgtrickle.pgt_mirrors.fingerprint IS 'Of the table at the origin, at the mirror''s frontier.';
COMMENT ON COLUMN pgtrickle.pgt_mirrors.local_relid IS 'The foreign or replicated table that it stands for. NULL: a three-part name.';
COMMENT ON COLUMN pgtrickle.pgt_mirrors.local_name IS 'Its qualified name, by which it is found in a database that was restored from a dump.';
COMMENT ON COLUMN pgtrickle.pgt_mirrors.is_stored IS
'False: it has no rows and belongs to one stream table with engine spark, which reads the replica of the table at its origin.';

CREATE TABLE IF NOT EXISTS pgtrickle.pgt_readers (
    reader_key text NOT NULL,
    mirror_id bigint NOT NULL,
    reader_server text NOT NULL,
    reader_database name NOT NULL,
    source_relid oid NOT NULL,
    columns_used int2[] NOT NULL DEFAULT '{}',
    snapshot pg_snapshot,
    created_at timestamptz NOT NULL DEFAULT pg_catalog.clock_timestamp(),
    updated_at timestamptz NOT NULL DEFAULT pg_catalog.clock_timestamp(),
    netted xid8,
    reads_replica bool NOT NULL DEFAULT false,
    PRIMARY KEY (reader_key, mirror_id)
) WITH (fillfactor = 50);
CREATE INDEX IF NOT EXISTS pgt_readers_source ON pgtrickle.pgt_readers (source_relid);
COMMENT ON TABLE pgtrickle.pgt_readers IS 'Mirrors in other databases of tables of this one, and their positions. A buffer is not trimmed past any of them.';
COMMENT ON COLUMN pgtrickle.pgt_readers.reader_key IS 'The database of the mirror: system identifier and database oid.';
COMMENT ON COLUMN pgtrickle.pgt_readers.mirror_id IS 'Its pgt_id there.';
COMMENT ON COLUMN pgtrickle.pgt_readers.reader_server IS 'host:port of that database as the control plane reaches it. Empty: this server.';
COMMENT ON COLUMN pgtrickle.pgt_readers.snapshot IS
'A cut that it has committed, or an earlier one: it is written after the commit. NULL: not loaded, all changes are kept for it.';
COMMENT ON COLUMN pgtrickle.pgt_readers.updated_at IS 'When it last reported its position.';
COMMENT ON COLUMN pgtrickle.pgt_readers.reads_replica IS 'It stores no rows: a stream table there is evaluated on Spark, from the replica of the source.';
COMMENT ON COLUMN pgtrickle.pgt_readers.netted IS
'Changes of transactions before this one have been compacted between the cuts that were known then. A reader that stands neither exactly at snapshot '
'nor at a cut that sees all of them (xmin >= netted) must be loaded again, and must not store such a cut as its snapshot.';

CREATE TABLE IF NOT EXISTS pgtrickle.pgt_readings (
    token uuid PRIMARY KEY DEFAULT pg_catalog.gen_random_uuid(),
    snapshot pg_snapshot NOT NULL,
    read_at timestamptz NOT NULL DEFAULT pg_catalog.clock_timestamp()
);
COMMENT ON TABLE pgtrickle.pgt_readings IS
'Readings of this database for mirrors elsewhere, each committed after the cut that was read and before a mirror commits that cut. A mirror whose reading '
'is not here has rows of a history that this database no longer has: it was restored to an earlier state, and the mirror is loaded again.';

CREATE TABLE IF NOT EXISTS pgtrickle.pgt_shared_sources (
    local_relid oid PRIMARY KEY,
    origin text[] NOT NULL CHECK (pg_catalog.cardinality(origin) = 3),
    declared_by name NOT NULL,
    declared_at timestamptz NOT NULL DEFAULT pg_catalog.clock_timestamp(),
    local_name text
);
COMMENT ON TABLE pgtrickle.pgt_shared_sources IS 'Tables here that were declared to be the copy of a table of another database: see declare_shared_source().';
COMMENT ON COLUMN pgtrickle.pgt_shared_sources.origin IS 'Database (or database@host:port), schema, table.';
COMMENT ON COLUMN pgtrickle.pgt_shared_sources.local_name IS
'The qualified name of local_relid, by which it is found in a database that was restored from a dump.';
