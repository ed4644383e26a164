-- Which privileges roles lack to read tables of this database. The parameters are arrays of equal length: %(roles)s: names; %(relids)s;
-- %(columns)s: attribute numbers, as the text of an array.
-- Returns for each, in that order: the missing privilege as text, without the name of the table; NULL if none is missing.
SELECT CASE
    WHEN r.oid IS NULL THEN 'there is no role ' || quote_ident(a.role) || ' any more'
    WHEN c.oid IS NULL THEN NULL
    WHEN NOT has_database_privilege(r.oid, current_database(), 'CONNECT') THEN quote_ident(a.role) || ' may no longer connect'
    WHEN NOT has_schema_privilege(r.oid, c.relnamespace, 'USAGE')
        THEN quote_ident(a.role) || ' has lost USAGE on schema ' || c.relnamespace::regnamespace
    WHEN NOT has_table_privilege(r.oid, c.oid, 'SELECT')
        AND EXISTS (
            SELECT FROM unnest(a.columns::int2[]) AS k (attnum) WHERE NOT coalesce(has_column_privilege(r.oid, c.oid, k.attnum, 'SELECT'), true)
        ) THEN quote_ident(a.role) || ' has lost SELECT on it'
    WHEN c.relrowsecurity AND NOT r.rolsuper AND NOT r.rolbypassrls
        AND (c.relforcerowsecurity OR NOT pg_has_role(r.oid, c.relowner, 'USAGE')) THEN 'its row security is active for ' || quote_ident(a.role) || ' now'
END
FROM unnest(%(roles)s::text[], %(relids)s::int8[], %(columns)s::text[]) WITH ORDINALITY AS a (role, relid, columns, i)
LEFT JOIN pg_roles AS r ON r.rolname = a.role
LEFT JOIN pg_class AS c ON c.oid = a.relid::oid
ORDER BY a.i
