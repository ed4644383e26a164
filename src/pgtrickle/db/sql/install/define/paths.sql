-- Refreshes run with the path pg_catalog, pg_temp, as REFRESH MATERIALIZED VIEW does since PostgreSQL 17. A function that resolves a
-- name only along its caller's path would fail then, or use another object.

CREATE OR REPLACE FUNCTION pgtrickle._names_along(function oid, path name[]) RETURNS TABLE (word text, schema_name name)
LANGUAGE sql STABLE SET search_path = pg_catalog, pg_temp AS $$
    SELECT w.word, w.schema_name
    FROM pg_proc AS p
    JOIN pg_language AS l ON l.oid = p.prolang
    CROSS JOIN LATERAL (
        SELECT DISTINCT ON (m.place) m.place, m.match[1] AS word, n.nspname AS schema_name
        -- a word that no dot is before or behind, outside of texts as far as quotes tell
        FROM regexp_matches(regexp_replace(p.prosrc, '''(?:[^'']|'''')*''|--[^\n]*', ' ', 'g'),
                            '(?:^|[^\w.$"])"?([[:alpha:]_][\w$]*)"?(?![\w$]|"?\s*\.)', 'g') WITH ORDINALITY AS m(match, place)
        CROSS JOIN LATERAL (
            SELECT c.relnamespace FROM pg_class AS c WHERE c.relname = ANY (ARRAY[m.match[1], lower(m.match[1])]::name[])
            UNION ALL
            SELECT c.pronamespace FROM pg_proc AS c WHERE c.proname = ANY (ARRAY[m.match[1], lower(m.match[1])]::name[])
            UNION ALL
            SELECT c.typnamespace FROM pg_type AS c WHERE c.typname = ANY (ARRAY[m.match[1], lower(m.match[1])]::name[])
        ) AS o(namespace)
        JOIN pg_namespace AS n ON n.oid = o.namespace AND n.nspname = ANY (path)
        ORDER BY m.place, array_position(path, n.nspname)
    ) AS w
    WHERE p.oid = function
      AND l.lanname <> ALL ('{internal,c}'::name[])
      -- a body that PostgreSQL has parsed keeps what it found (not before PostgreSQL 14)
      AND (to_jsonb(p) ->> 'prosqlbody') IS NULL
      AND NOT EXISTS (SELECT FROM unnest(p.proconfig) AS s WHERE s ILIKE 'search_path=%')
      AND NOT EXISTS (SELECT FROM pg_depend AS d
                      WHERE d.classid = 'pg_proc'::regclass AND d.objid = p.oid AND d.deptype = 'e')
    ORDER BY w.place
$$;
COMMENT ON FUNCTION pgtrickle._names_along(oid, name[]) IS
'Internal. Names in the text of a function that are found along a search_path alone, in their order, and where.';

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
        CROSS JOIN LATERAL (SELECT n.word FROM pgtrickle._names_along(f.funcid, path) AS n LIMIT 1) AS w
        WHERE NOT f.is_system
    LOOP
        RAISE WARNING USING
            MESSAGE = pg_catalog.format('function %s finds %s along the search_path of its caller, and refreshes have none', found.signature, found.word),
            HINT = pg_catalog.format('ALTER FUNCTION %s SET search_path = %s', found.signature, pgtrickle._search_path());
    END LOOP;
END
$$;
COMMENT ON FUNCTION pgtrickle._warn_of_paths(oid) IS
'Internal. Warns of functions of a query that name what is found along the caller''s search_path alone.';

CREATE OR REPLACE FUNCTION pgtrickle._triggers_along() RETURNS TABLE (function text, table_name text, word text, path text)
LANGUAGE sql STABLE SET search_path = pg_catalog, pg_temp AS $$
    SELECT p.oid::regprocedure::text, min(t.tgrelid::regclass::text), (array_agg(w.word ORDER BY w.place))[1],
           string_agg(DISTINCT quote_ident(w.schema_name), ', ')
    FROM pgtrickle.pgt_stream_tables AS st
    JOIN pg_trigger AS t ON t.tgrelid = st.pgt_relid AND NOT t.tgisinternal AND t.tgenabled IN ('O', 'A')
    JOIN pg_proc AS p ON p.oid = t.tgfoid
    JOIN pg_namespace AS f ON f.oid = p.pronamespace AND f.nspname NOT IN ('pgtrickle', 'pgtrickle_changes')
    CROSS JOIN LATERAL pgtrickle._names_along(p.oid, ARRAY[st.pgt_schema, f.nspname, 'public']::name[])
        WITH ORDINALITY AS w(word, schema_name, place)
    GROUP BY p.oid
    ORDER BY 1
$$;
COMMENT ON FUNCTION pgtrickle._triggers_along() IS
'Internal. Trigger functions of stream tables that name what is found only in the schemas of the table and of the function, or in public.';
