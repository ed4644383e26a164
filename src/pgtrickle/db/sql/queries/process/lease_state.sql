-- Whether a process holds the lease; no row if it was never taken. %(name)s.
-- Returns: bool.
SELECT until > clock_timestamp()
FROM pgtrickle.pgt_leases
WHERE name = %(name)s
