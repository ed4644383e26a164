-- Why constants of a probe view must not be read with the privileges of this session, or NULL. %(probe)s: its name.
-- To parse a text reads its constants, which runs the checks of domains inside of arrays and composite types.
SELECT CASE WHEN h.types <> '{}' THEN pgtrickle._untrusted_among(NULL, pgtrickle._keeper(), false, h.types) END
FROM (SELECT pgtrickle._types_handled(%(probe)s::pg_catalog.regclass::oid)) AS h (types)
