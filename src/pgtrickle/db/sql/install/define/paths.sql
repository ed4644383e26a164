-- Refreshes run with the path pg_catalog, pg_temp, as REFRESH MATERIALIZED VIEW does since PostgreSQL 17. A function that resolves a
-- name only along its caller's path would fail then, or use another object.

-- No SET search_path: the caller's is examined.
CREATE OR REPLACE FUNCTION pgtrickle._warn_of_paths(probe oid) RETURNS void
LANGUAGE plpgsql STABLE AS $$
DECLARE
    found record;
    path CONSTANT name[] := pg_catalog.array_remove(pg_catalog.current_schemas(false), 'pg_catalog');
BEGIN
    FOR found IN
        SELECT f.signature, w.word
        FROM pgtrickle._functions_called(probe) AS f
        JOIN pg_catalog.pg_proc AS p ON p.oid OPERATOR(pg_catalog.=) f.funcid
        JOIN pg_catalog.pg_language AS l ON l.oid OPERATOR(pg_catalog.=) p.prolang
        CROSS JOIN LATERAL (
            SELECT m[1] AS word
            -- a word that no dot is before or behind, outside of texts as far as quotes tell
            FROM pg_catalog.regexp_matches(pg_catalog.regexp_replace(p.prosrc, '''(?:[^'']|'''')*''|--[^\n]*', ' ', 'g'),
                                           '(?:^|[^\w.$"])"?([[:alpha:]_][\w$]*)"?(?![\w$]|"?\s*\.)', 'g') AS m
            WHERE EXISTS (SELECT FROM pg_catalog.pg_class AS c
                          JOIN pg_catalog.pg_namespace AS n ON n.oid OPERATOR(pg_catalog.=) c.relnamespace
                          WHERE c.relname OPERATOR(pg_catalog.=) ANY (ARRAY[m[1], pg_catalog.lower(m[1])]::pg_catalog.name[])
                            AND n.nspname OPERATOR(pg_catalog.=) ANY (path))
               OR EXISTS (SELECT FROM pg_catalog.pg_proc AS c
                          JOIN pg_catalog.pg_namespace AS n ON n.oid OPERATOR(pg_catalog.=) c.pronamespace
                          WHERE c.proname OPERATOR(pg_catalog.=) ANY (ARRAY[m[1], pg_catalog.lower(m[1])]::pg_catalog.name[])
                            AND n.nspname OPERATOR(pg_catalog.=) ANY (path))
               OR EXISTS (SELECT FROM pg_catalog.pg_type AS c
                          JOIN pg_catalog.pg_namespace AS n ON n.oid OPERATOR(pg_catalog.=) c.typnamespace
                          WHERE c.typname OPERATOR(pg_catalog.=) ANY (ARRAY[m[1], pg_catalog.lower(m[1])]::pg_catalog.name[])
                            AND n.nspname OPERATOR(pg_catalog.=) ANY (path))
            LIMIT 1
        ) AS w
        WHERE NOT f.is_system
          AND l.lanname OPERATOR(pg_catalog.<>) ALL ('{internal,c}'::pg_catalog.name[])
          -- a body that PostgreSQL has parsed keeps what it found (not before PostgreSQL 14)
          AND (pg_catalog.to_jsonb(p) OPERATOR(pg_catalog.->>) 'prosqlbody') IS NULL
          AND NOT EXISTS (SELECT FROM pg_catalog.unnest(p.proconfig) AS s WHERE s OPERATOR(pg_catalog.~~*) 'search_path=%')
          AND NOT EXISTS (SELECT FROM pg_catalog.pg_depend AS d
                          WHERE d.classid OPERATOR(pg_catalog.=) 'pg_catalog.pg_proc'::pg_catalog.regclass
                            AND d.objid OPERATOR(pg_catalog.=) p.oid
                            AND d.deptype OPERATOR(pg_catalog.=) 'e')
    LOOP
        RAISE WARNING USING
            MESSAGE = pg_catalog.format('function %s finds %s along the search_path of its caller, and refreshes have none', found.signature, found.word),
            HINT = pg_catalog.format('ALTER FUNCTION %s SET search_path = %s', found.signature, pgtrickle._search_path());
    END LOOP;
END
$$;
COMMENT ON FUNCTION pgtrickle._warn_of_paths(oid) IS
'Internal. Warns of functions of a query that name what is found along the caller''s search_path alone.';
