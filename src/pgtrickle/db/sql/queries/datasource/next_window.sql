-- Offers a subscriber the next changes of a stream table. %(table)s, %(subscriber)s: names; %(rows)s: as max_rows of read_changes().
-- Returns: the LSN by which they are acknowledged, NULL if there are none; whether they begin with a reset.
SELECT max(c.lsn)::text, coalesce(pg_catalog.bool_or(c.action = 'reset'), false)
FROM pgtrickle.read_changes(%(table)s, %(subscriber)s, %(rows)s) AS c
