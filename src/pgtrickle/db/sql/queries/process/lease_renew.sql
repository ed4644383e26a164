-- Renews our lease, even if it has expired and no other process has taken it. %(name)s, %(holder)s, %(seconds)s float8.
-- Returns: a row if it is still ours.
UPDATE pgtrickle.pgt_leases
SET until = clock_timestamp() + make_interval(secs => %(seconds)s)
WHERE name = %(name)s AND holder = %(holder)s
RETURNING until
