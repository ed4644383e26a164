-- Whether somebody has the lease; no row when it has never been taken. %(name)s.
-- Returns: bool.
SELECT until > clock_timestamp()
FROM pgtrickle.pgt_leases
WHERE name = %(name)s
