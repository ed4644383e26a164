-- Deletes the request of an accepted definition. %(schema)s, %(name)s: its stream table; %(asked_at)s: when it was requested (a later request stays).
DELETE FROM pgtrickle.pgt_definitions AS d WHERE d.pgt_schema = %(schema)s AND d.pgt_name = %(name)s AND d.created_at = %(asked_at)s
