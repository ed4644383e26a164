-- Takes a lease that is free, has run out or is ours, unless a session holds the advisory lock that stands for the same.
-- %(name)s, %(holder)s, %(seconds)s float8, %(lock)s int8 below 2^32. Returns: a row if it is ours now.
INSERT INTO pgtrickle.pgt_leases AS l (name, holder, until)
SELECT %(name)s, %(holder)s, clock_timestamp() + make_interval(secs => %(seconds)s)
WHERE NOT EXISTS (
    SELECT FROM pg_locks AS k
    WHERE k.locktype = 'advisory' AND k.granted AND k.classid = 0 AND k.objid = %(lock)s::int8::oid AND k.objsubid = 1
      AND k.database = (SELECT d.oid FROM pg_database AS d WHERE d.datname = current_database())
)
ON CONFLICT (name) DO UPDATE
SET holder = EXCLUDED.holder, until = clock_timestamp() + make_interval(secs => %(seconds)s)
WHERE l.holder = EXCLUDED.holder OR l.until < clock_timestamp()
RETURNING l.until
