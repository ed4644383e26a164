-- Definitions that read other databases. A session cannot read their catalogs, so the call stores the definition and its author, and the
-- control plane resolves it: see define/cross_database.py.

CREATE OR REPLACE FUNCTION pgtrickle._names_other_databases(state text, message text) RETURNS bool
LANGUAGE sql IMMUTABLE SET search_path = pg_catalog, pg_temp AS $$
    -- In every language the message ends with the name.
    SELECT state = '0A000' AND message ~ '".+\..+\..+"$'
$$;
COMMENT ON FUNCTION pgtrickle._names_other_databases(text, text) IS
'Internal. Whether PostgreSQL refused a query for a name of the form database.schema.table.';

CREATE OR REPLACE FUNCTION pgtrickle._probe_here(query text) RETURNS oid
LANGUAGE plpgsql VOLATILE AS $$
BEGIN
    RETURN pgtrickle._probe(query);
EXCEPTION WHEN feature_not_supported THEN
    IF NOT pgtrickle._names_other_databases(SQLSTATE, SQLERRM) THEN
        RAISE;
    END IF;
    RETURN NULL;
END
$$;
COMMENT ON FUNCTION pgtrickle._probe_here(text) IS
'Internal. As _probe; NULL where the query names tables of other databases, which the control plane resolves.';

CREATE OR REPLACE FUNCTION pgtrickle._request_definition(
    id bigint, schema_name name, table_name name, query text, options jsonb, path text, me text DEFAULT pgtrickle._me()
)
RETURNS void
LANGUAGE plpgsql VOLATILE SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
DECLARE
    caller CONSTANT name := pgtrickle._caller(me);
BEGIN
    IF id IS NOT NULL THEN
        -- Its own names, whatever the call says: a request stands in the way of others for its name.
        SELECT st.pgt_schema, st.pgt_name INTO schema_name, table_name FROM pgtrickle._authorize(id, me) AS st;
    ELSIF NOT EXISTS (SELECT FROM pg_namespace AS n WHERE n.nspname = schema_name) THEN
        RAISE EXCEPTION USING ERRCODE = 'invalid_schema_name',
            MESSAGE = format('schema %I does not exist', schema_name), HINT = format('CREATE SCHEMA %I', schema_name);
    ELSIF NOT has_schema_privilege(caller, schema_name, 'CREATE') THEN
        RAISE EXCEPTION USING ERRCODE = 'insufficient_privilege',
            MESSAGE = format('permission denied for schema %I', schema_name),
            HINT = format('GRANT CREATE ON SCHEMA %I TO %I', schema_name, caller);
    ELSIF to_regclass(format('%I.%I', schema_name, table_name)) IS NOT NULL THEN
        RAISE EXCEPTION USING ERRCODE = 'duplicate_table',
            MESSAGE = format('a relation or type named %I.%I already exists', schema_name, table_name), HINT = 'Choose another name.';
    END IF;
    DELETE FROM pgtrickle.pgt_definitions AS d
    WHERE d.pgt_schema = schema_name AND d.pgt_name = table_name
      AND (d.is_final OR coalesce((SELECT pg_has_role(caller, r.oid, 'USAGE') FROM pg_roles AS r
          WHERE r.rolname = pgtrickle._author(d.created_by, d.created_key)), true));
    IF EXISTS (SELECT FROM pgtrickle.pgt_definitions AS d WHERE d.pgt_schema = schema_name AND d.pgt_name = table_name) THEN
        RAISE EXCEPTION USING ERRCODE = 'duplicate_table',
            MESSAGE = format('another role has just requested %I.%I', schema_name, table_name), HINT = 'Choose another name.';
    END IF;
    INSERT INTO pgtrickle.pgt_definitions (pgt_schema, pgt_name, pgt_id, query, options, search_path, created_by)
    VALUES (schema_name, table_name, id, query, options, pgtrickle._check_path(path), caller);
    PERFORM pgtrickle._wake('define');
    RAISE NOTICE USING
        MESSAGE = format('%I.%I reads other databases: the control plane validates it now', schema_name, table_name),
        HINT = 'SELECT * FROM pgtrickle.pending_definitions() shows the result.';
END
$$;
COMMENT ON FUNCTION pgtrickle._request_definition(bigint, name, name, text, jsonb, text, text) IS
'Internal. Stores a definition that reads other databases; the control plane validates it with the rights of the caller.';

CREATE OR REPLACE FUNCTION pgtrickle._pending_definitions(me text DEFAULT pgtrickle._me())
RETURNS TABLE (name text, is_new bool, query text, requested_by name, requested_at timestamptz, state text, error_message text)
LANGUAGE sql STABLE SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
    SELECT format('%I.%I', d.pgt_schema, d.pgt_name), d.pgt_id IS NULL, d.query, d.created_by, d.created_at,
           CASE WHEN d.is_final THEN 'REFUSED' WHEN d.error_message IS NULL THEN 'WAITING' ELSE 'RETRYING' END, d.error_message
    FROM pgtrickle.pgt_definitions AS d
    WHERE pg_has_role(pgtrickle._caller(me), current_user, 'USAGE')
       OR coalesce((SELECT pg_has_role(pgtrickle._caller(me), r.oid, 'USAGE') FROM pg_roles AS r
           WHERE r.rolname = pgtrickle._author(d.created_by, d.created_key)), false)
    ORDER BY d.created_at
$$;
COMMENT ON FUNCTION pgtrickle._pending_definitions(text) IS 'Internal. What pending_definitions() shows.';

CREATE OR REPLACE FUNCTION pgtrickle.pending_definitions()
RETURNS TABLE (name text, is_new bool, query text, requested_by name, requested_at timestamptz, state text, error_message text)
LANGUAGE sql STABLE AS $$
    SELECT * FROM pgtrickle._pending_definitions()
$$;
COMMENT ON FUNCTION pgtrickle.pending_definitions() IS
'Your requested stream tables over other databases that do not exist yet: WAITING for the control plane, RETRYING because a database does not answer, '
'REFUSED with the reason. A definition that was accepted is not listed.';

CREATE OR REPLACE FUNCTION pgtrickle._reads_mirrors(id bigint) RETURNS bool
LANGUAGE sql STABLE SET search_path = pg_catalog, pg_temp AS $$
    SELECT EXISTS (SELECT
                   FROM pgtrickle.pgt_dependencies AS d
                   JOIN pgtrickle.pgt_stream_tables AS st ON st.pgt_relid = d.source_relid
                   JOIN pgtrickle.pgt_mirrors AS m ON m.pgt_id = st.pgt_id
                   WHERE d.pgt_id = id)
$$;
COMMENT ON FUNCTION pgtrickle._reads_mirrors(bigint) IS 'Internal. Whether a stream table reads tables of other databases.';

CREATE OR REPLACE FUNCTION pgtrickle._origin_of(relation oid) RETURNS text
LANGUAGE sql STABLE SET search_path = pg_catalog, pg_temp AS $$
    SELECT format('%I.%I.%I', m.origin_database || coalesce('@' || nullif(m.origin_server, ''), ''), m.origin_schema, m.origin_table)
    FROM pgtrickle.pgt_stream_tables AS st
    JOIN pgtrickle.pgt_mirrors AS m ON m.pgt_id = st.pgt_id
    WHERE st.pgt_relid = relation
$$;
COMMENT ON FUNCTION pgtrickle._origin_of(oid) IS 'Internal. The table of another database that a relation mirrors; NULL when it is no mirror.';

CREATE OR REPLACE FUNCTION pgtrickle._forget_definition(schema_name name, table_name name, me text DEFAULT pgtrickle._me()) RETURNS bool
LANGUAGE sql VOLATILE SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
    WITH gone AS (
        DELETE FROM pgtrickle.pgt_definitions AS d
        WHERE d.pgt_schema = schema_name AND d.pgt_name = table_name AND d.pgt_id IS NULL
          AND (pg_has_role(pgtrickle._caller(me), current_user, 'USAGE')
               OR coalesce((SELECT pg_has_role(pgtrickle._caller(me), r.oid, 'USAGE') FROM pg_roles AS r
                   WHERE r.rolname = pgtrickle._author(d.created_by, d.created_key)), false))
        RETURNING 1
    )
    SELECT EXISTS (SELECT FROM gone)
$$;
COMMENT ON FUNCTION pgtrickle._forget_definition(name, name, text) IS
'Internal. Takes back a request for a new stream table that the caller made; false when there is none.';
