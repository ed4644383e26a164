-- Notes that a cut of this database was read for mirrors elsewhere. %(cut)s. Returns: the token of the reading, which mirrors keep with the cut.
-- On disk before any of them commits, whatever the setting: then a database without the token lacks the end of what they have read.
WITH durable AS MATERIALIZED (
    SELECT set_config('synchronous_commit', 'on', true) AS done
)
INSERT INTO pgtrickle.pgt_readings (snapshot)
SELECT %(cut)s::pg_snapshot
FROM durable AS d
WHERE d.done = 'on'
RETURNING token::text
