-- External consumers of a stream table: logical replication through a publication, and pull consumers of its change feed.
CREATE TABLE IF NOT EXISTS pgtrickle.pgt_publications (
    pgt_id bigint PRIMARY KEY REFERENCES pgtrickle.pgt_stream_tables ON DELETE CASCADE,
    publication name NOT NULL UNIQUE,
    created_by name NOT NULL,
    created_at timestamptz NOT NULL DEFAULT pg_catalog.clock_timestamp()
);
COMMENT ON TABLE pgtrickle.pgt_publications IS 'Publications that stream_table_to_publication() made, one per stream table.';

CREATE TABLE IF NOT EXISTS pgtrickle.pgt_subscribers (
    pgt_id bigint NOT NULL REFERENCES pgtrickle.pgt_stream_tables ON DELETE CASCADE,
    subscriber text NOT NULL,
    origin text NOT NULL,
    snapshot pg_snapshot NOT NULL,
    lsn pg_lsn NOT NULL,
    feed text,
    offered pg_snapshot,
    offered_lsn pg_lsn,
    offered_feed text,
    offered_reset bool NOT NULL DEFAULT false,
    netted xid8,
    created_by name NOT NULL,
    created_xid xid8 NOT NULL DEFAULT pg_catalog.pg_current_xact_id(),
    created_at timestamptz NOT NULL DEFAULT pg_catalog.clock_timestamp(),
    read_at timestamptz,
    acknowledged_at timestamptz,
    created_key text,
    PRIMARY KEY (pgt_id, subscriber)
) WITH (fillfactor = 50);
COMMENT ON TABLE pgtrickle.pgt_subscribers IS 'Consumers of change feeds, and what each has acknowledged. A change buffer is not trimmed past any of them.';
COMMENT ON COLUMN pgtrickle.pgt_subscribers.origin IS
'The database whose snapshot that is. In a restored database it is not valid: all changes are kept until the consumer has started over.';
COMMENT ON COLUMN pgtrickle.pgt_subscribers.snapshot IS 'The cut that it has acknowledged. This is the position; the LSN only identifies it.';
COMMENT ON COLUMN pgtrickle.pgt_subscribers.lsn IS 'What it has acknowledged; before that, where it was created.';
COMMENT ON COLUMN pgtrickle.pgt_subscribers.feed IS
'What the snapshot is a position in: table, columns, capture. NULL, or another than now: it has to start over.';
COMMENT ON COLUMN pgtrickle.pgt_subscribers.offered IS 'The cut of the last read that it has not acknowledged. The next read returns the same changes.';
COMMENT ON COLUMN pgtrickle.pgt_subscribers.netted IS 'The buffer is being compacted before this transaction: no read ends at a cut before it.';
