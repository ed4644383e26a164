-- How PostgreSQL has parsed the query of a view. %(view)s: its name. Returns: the parse tree as text, and the oids of its operators.
SELECT r.ev_action::text, pgtrickle._operators(r.ev_class)::int8[]
FROM pg_catalog.pg_rewrite AS r
WHERE r.ev_class = %(view)s::pg_catalog.regclass
