-- A definition was accepted. %(schema)s, %(name)s: its stream table.
DELETE FROM pgtrickle.pgt_definitions AS d WHERE d.pgt_schema = %(schema)s AND d.pgt_name = %(name)s
