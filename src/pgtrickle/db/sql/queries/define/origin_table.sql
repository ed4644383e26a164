-- A table at its origin, for a mirror elsewhere. %(schema)s, %(name)s: the table; %(role)s: who wants to read it.
-- Returns one row: oid (NULL: there is no such relation), kind, why the role may not read all of it (NULL: it may, columns are
-- checked one by one; without USAGE on the schema the result does not depend on whether the table exists), columns json [{attnum, name, type,
-- collation, not_null, may_read, obstacle}], key: attribute numbers of a unique index
-- without NULLs, indexes json [{columns, is_unique}] by attribute numbers, why its changes cannot be captured, whether it is a stream table.
SELECT
    c.oid::int8,
    c.relkind::text,
    CASE
        WHEN r.oid IS NULL THEN format('role %%I does not exist there', %(role)s)
        WHEN NOT has_database_privilege(r.oid, current_database(), 'CONNECT') THEN format('role %%I may not connect to it', %(role)s)
        WHEN NOT coalesce(has_schema_privilege(r.oid, n.oid, 'USAGE'), r.rolsuper) THEN format('role %%I has no USAGE on schema %%I', %(role)s, %(schema)s)
        WHEN NOT has_any_column_privilege(r.oid, c.oid, 'SELECT') THEN format('permission denied for role %%I', %(role)s)
        WHEN c.relrowsecurity AND NOT r.rolsuper AND NOT r.rolbypassrls
            AND (c.relforcerowsecurity OR NOT pg_has_role(r.oid, c.relowner, 'USAGE')) THEN format('its row security is active for %%I', %(role)s)
    END,
    (
        SELECT coalesce(json_agg(json_build_object(
            'attnum', a.attnum,
            'name', a.attname,
            'type', format_type(a.atttypid, a.atttypmod),
            'collation', CASE WHEN a.attcollation <> t.typcollation AND a.attcollation <> 0
                              THEN (SELECT format('%%I.%%I', ln.nspname, l.collname) FROM pg_collation AS l
                                    JOIN pg_namespace AS ln ON ln.oid = l.collnamespace WHERE l.oid = a.attcollation) END,
            -- PostgreSQL 18: rows from before a constraint that is NOT VALID may have NULLs.
            'not_null', a.attnotnull AND NOT EXISTS (SELECT FROM pg_constraint AS k
                                                     WHERE k.conrelid = a.attrelid AND k.contype = 'n' AND NOT k.convalidated
                                                       AND k.conkey = ARRAY[a.attnum]),
            'may_read', coalesce(has_column_privilege(r.oid, c.oid, a.attnum, 'SELECT'), false),
            'obstacle', CASE
                WHEN a.attgenerated = 'v' THEN 'is a virtual generated column, which triggers do not see'
                WHEN NOT (SELECT l.collisdeterministic FROM pg_collation AS l WHERE l.oid = a.attcollation)
                    THEN 'is compared by a nondeterministic collation'
                WHEN t.oid < 16384 AND t.typname ~ '^reg' THEN 'is of a type whose text depends on the catalog'
            END
        ) ORDER BY a.attnum), '[]')
        FROM pg_attribute AS a
        JOIN pg_type AS t ON t.oid = a.atttypid
        WHERE a.attrelid = c.oid AND a.attnum > 0 AND NOT a.attisdropped AND a.attname !~ '^__pgt_'
    ),
    CASE WHEN c.relkind = 'p' OR NOT EXISTS (SELECT FROM pg_inherits AS i WHERE i.inhparent = c.oid) THEN pgtrickle._key(c.oid) END,
    (
        SELECT coalesce(json_agg(json_build_object('columns', i.indkey::int2[], 'is_unique', i.indkey::int2[] = pgtrickle._key(c.oid))), '[]')
        FROM (
            SELECT DISTINCT ON (x.indkey::text) x.*
            FROM pg_index AS x
            JOIN pg_class AS xc ON xc.oid = x.indexrelid
            JOIN pg_am AS am ON am.oid = xc.relam AND am.amname = 'btree'
            WHERE x.indrelid = c.oid AND x.indisvalid AND x.indpred IS NULL AND x.indexprs IS NULL AND x.indnkeyatts = x.indnatts
            ORDER BY x.indkey::text, x.indisunique DESC
        ) AS i
    ),
    CASE
        WHEN c.oid < 16384 THEN 'is a system catalog'
        WHEN c.relkind = 'v' THEN 'is a view'
        WHEN c.relkind = 'm' THEN 'is a materialized view'
        WHEN c.relkind = 'f' THEN 'is a foreign table'
        WHEN c.relkind NOT IN ('r', 'p') THEN 'is not a table'
        WHEN c.relpersistence <> 'p' THEN 'is unlogged or temporary'
        WHEN NOT pg_has_role(current_user, c.relowner, 'USAGE') THEN format('is not owned by %%I, the role of the control plane there', current_user)
    END
FROM (SELECT %(role)s AS name) AS asking
LEFT JOIN pg_roles AS r ON r.rolname = asking.name
LEFT JOIN pg_namespace AS n ON n.nspname = %(schema)s
LEFT JOIN pg_class AS c ON c.relnamespace = n.oid AND c.relname = %(name)s
