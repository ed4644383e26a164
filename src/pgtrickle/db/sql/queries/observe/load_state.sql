-- How far the creation of a stream table is: its status, or that of its definition if it waits for the control plane. %(name)s: as
-- pgt_status() shows it. Returns at most one row: status, whether it is loaded, its error, why no refresh will happen.
SELECT s.status, s.is_populated, s.last_error_message, pgtrickle._no_service()
FROM pgtrickle.pgt_status() AS s
WHERE s.name = %(name)s
UNION ALL
SELECT d.state, false, d.error_message, pgtrickle._no_service()
FROM pgtrickle.pending_definitions() AS d
WHERE d.name = %(name)s
LIMIT 1
