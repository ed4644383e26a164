-- A definition was accepted. %(schema)s, %(name)s: its stream table; %(asked_at)s: the request, which may have given way to a later one.
DELETE FROM pgtrickle.pgt_definitions AS d WHERE d.pgt_schema = %(schema)s AND d.pgt_name = %(name)s AND d.created_at = %(asked_at)s
