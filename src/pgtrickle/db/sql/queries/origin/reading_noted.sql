-- Records that a cut of this database was read for mirrors in other databases. %(cut)s. Returns: the token of the reading, which mirrors store with the cut.
-- It is on disk before any mirror commits, whatever the setting synchronous_commit is: a database that lacks the token has lost the transactions that the
-- mirrors have read.
WITH durable AS MATERIALIZED (
    SELECT set_config('synchronous_commit', 'on', true) AS done
)
INSERT INTO pgtrickle.pgt_readings (snapshot)
SELECT %(cut)s::pg_snapshot
FROM durable AS d
WHERE d.done = 'on'
RETURNING token::text
