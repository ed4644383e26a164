-- Whether a schema has a relation of one of these names. %(schema)s, %(names)s. Returns: bool.
SELECT EXISTS (
    SELECT
    FROM pg_catalog.pg_class AS c
    JOIN pg_catalog.pg_namespace AS n ON n.oid = c.relnamespace
    WHERE n.nspname = %(schema)s AND c.relname = ANY (%(names)s::text[])
)
