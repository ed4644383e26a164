-- Changes of sources that became visible. %(relids)s: oids; %(sinces)s: a snapshot (text) for each, NULL when it is counted for the first time.
-- Returns: key of the database, snapshot, and arrays of one element per source that has a buffer: oid, changes, greatest LSN among them,
-- id of the first transaction that a reader elsewhere may not have seen.
SELECT b.origin, b.seen::text, b.sources::int8[], b.counts, b.lsns::text[], b.horizons::text[]::int8[]
FROM pgtrickle_changes._broker_counts(%(relids)s::int8[]::oid[], %(sinces)s::text[]::pg_snapshot[]) AS b
