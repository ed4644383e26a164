-- Gives our lease back. The row stays: it says that no scheduler runs, whatever a pooler's idle sessions are called. %(name)s, %(holder)s.
UPDATE pgtrickle.pgt_leases
SET until = '-infinity'
WHERE name = %(name)s AND holder = %(holder)s
