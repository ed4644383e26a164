-- Whether a table has an index over an expression. %(table)s: its name; %(expression)s: a part of its text.
SELECT EXISTS (
    SELECT
    FROM pg_catalog.pg_index AS i
    WHERE i.indrelid = %(table)s::pg_catalog.regclass
      AND pg_catalog.strpos(pg_catalog.pg_get_expr(i.indexprs, i.indrelid), %(expression)s) > 0
)
