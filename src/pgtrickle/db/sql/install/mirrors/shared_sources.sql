-- Declarations that a table of this database is the copy of a table of another database. Foreign tables need no declaration.

CREATE OR REPLACE FUNCTION pgtrickle._publisher(conninfo text) RETURNS text
LANGUAGE sql IMMUTABLE SET search_path = pg_catalog, pg_temp AS $$
    -- Parameter by parameter, so that nothing is found in the value of another one; the last of a name counts.
    SELECT CASE WHEN v.database <> '' AND v.host || v.port !~ ',' THEN v.database || CASE WHEN v.host <> '' THEN format('@%s:%s', v.host, v.port)
        ELSE '' END END
    FROM (
        SELECT coalesce(max(p.value) FILTER (WHERE p.name = 'dbname'), '') AS database,
               coalesce(max(p.value) FILTER (WHERE p.name = 'host'), max(p.value) FILTER (WHERE p.name = 'hostaddr'), '') AS host,
               coalesce(max(p.value) FILTER (WHERE p.name = 'port'), '5432') AS port
        FROM (
            SELECT DISTINCT ON (m[1]) m[1] AS name, regexp_replace(coalesce(m[2], m[3]), '\\(.)', '\1', 'g') AS value
            FROM regexp_matches(conninfo, '([a-z_]+)\s*=\s*(?:''((?:[^''\\]|\\.)*)''|((?:[^\s\\]|\\.)*))', 'g') WITH ORDINALITY AS p(m, i)
            WHERE conninfo !~ '^\s*postgres(ql)?://'
            ORDER BY m[1], i DESC
        ) AS p
    ) AS v
$$;
COMMENT ON FUNCTION pgtrickle._publisher(text) IS
'Internal. The database that a connection string leads to: name, or name@host:port. NULL when it does not say so in plain words (a URI, several hosts, '
'no name).';

CREATE OR REPLACE FUNCTION pgtrickle._subscribed_from(local_table oid) RETURNS text[]
LANGUAGE plpgsql STABLE SET search_path = pg_catalog, pg_temp AS $$
DECLARE
    found text[];
BEGIN
    -- Only a superuser may read subconninfo. From two publishers is from neither.
    EXECUTE 'SELECT ARRAY[min(pgtrickle._publisher(s.subconninfo)), min(n.nspname::text), min(c.relname::text)] '
            'FROM pg_subscription_rel AS r JOIN pg_subscription AS s ON s.oid = r.srsubid '
            'JOIN pg_class AS c ON c.oid = r.srrelid JOIN pg_namespace AS n ON n.oid = c.relnamespace WHERE r.srrelid = $1 HAVING count(*) = 1'
    INTO found USING local_table;
    RETURN CASE WHEN found[1] IS NOT NULL THEN found END;
EXCEPTION WHEN insufficient_privilege THEN
    RETURN NULL;
END
$$;
COMMENT ON FUNCTION pgtrickle._subscribed_from(oid) IS
'Internal. The table that a subscription replicates into this one; NULL when there is none, it does not say so plainly, or the caller may not know.';

CREATE OR REPLACE FUNCTION pgtrickle._declare_shared_source(local regclass, origin text, me text DEFAULT pgtrickle._me()) RETURNS text
LANGUAGE plpgsql VOLATILE SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
DECLARE
    caller CONSTANT name := pgtrickle._caller(me);
    owner oid;
    kind "char";
    parts text[];
BEGIN
    PERFORM pgtrickle._require_primary();
    SELECT c.relowner, c.relkind INTO owner, kind FROM pg_class AS c WHERE c.oid = local;
    IF kind IS NULL OR kind NOT IN ('r', 'p', 'f') OR EXISTS (SELECT FROM pgtrickle.pgt_stream_tables AS st WHERE st.pgt_relid = local) THEN
        RAISE EXCEPTION USING ERRCODE = 'wrong_object_type',
            MESSAGE = format('%s cannot be a copy of a table of another database', local), HINT = 'Name a table or foreign table of this database.';
    END IF;
    IF NOT pg_has_role(caller, owner, 'USAGE') THEN
        RAISE EXCEPTION USING ERRCODE = 'insufficient_privilege',
            MESSAGE = format('must be the owner of %s', local), HINT = format('It is owned by %I.', pg_get_userbyid(owner));
    END IF;
    IF origin IS NULL THEN
        parts := pgtrickle._subscribed_from(local);
        IF parts IS NULL THEN
            RAISE EXCEPTION USING ERRCODE = 'undefined_object',
                MESSAGE = format('no subscription contains the origin of %s', local),
                HINT = 'Name it: declare_shared_source(local, ''database.schema.table''). Only a superuser''s control plane may read subscriptions.';
        END IF;
    ELSE
        BEGIN
            parts := parse_ident(origin);
        EXCEPTION WHEN invalid_parameter_value THEN
            parts := NULL;
        END;
        IF parts IS NULL OR cardinality(parts) <> 3 THEN
            RAISE EXCEPTION USING ERRCODE = 'invalid_name',
                MESSAGE = format('%L is not the name of a table of another database', origin),
                HINT = 'Write database.schema.table, or "database@host:port".schema.table.';
        END IF;
    END IF;
    INSERT INTO pgtrickle.pgt_shared_sources AS s (local_relid, origin, declared_by, local_name)
    VALUES (local, parts, caller, pgtrickle._table_name(local))
    ON CONFLICT (local_relid) DO UPDATE SET origin = EXCLUDED.origin, declared_by = EXCLUDED.declared_by, declared_at = clock_timestamp(),
        local_name = EXCLUDED.local_name;
    PERFORM pgtrickle._wake('define');
    RETURN format('%I.%I.%I', parts[1], parts[2], parts[3]);
END
$$;
COMMENT ON FUNCTION pgtrickle._declare_shared_source(regclass, text, text) IS 'Internal. What declare_shared_source() does.';

CREATE OR REPLACE FUNCTION pgtrickle.declare_shared_source(local regclass, origin text DEFAULT NULL) RETURNS text
LANGUAGE sql VOLATILE AS $$
    SELECT pgtrickle._declare_shared_source(local, origin)
$$;
COMMENT ON FUNCTION pgtrickle.declare_shared_source(regclass, text) IS
'Declares that a table here (kept by logical replication, or by other means) is a table of another database: stream tables over it are then maintained '
'from the changes at its origin, which are captured once for all databases. Without an origin it is read from the subscription, where the role that '
'installed pgtrickle may. The caller must be allowed to read the table there. Returns the origin.';

CREATE OR REPLACE FUNCTION pgtrickle._forget_shared_source(local regclass, me text DEFAULT pgtrickle._me()) RETURNS void
LANGUAGE plpgsql VOLATILE SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
DECLARE
    owner CONSTANT oid := (SELECT c.relowner FROM pg_class AS c WHERE c.oid = local);
BEGIN
    PERFORM pgtrickle._require_primary();
    IF NOT pg_has_role(pgtrickle._caller(me), owner, 'USAGE') THEN
        RAISE EXCEPTION USING ERRCODE = 'insufficient_privilege',
            MESSAGE = format('must be the owner of %s', local), HINT = format('It is owned by %I.', pg_get_userbyid(owner));
    END IF;
    DELETE FROM pgtrickle.pgt_shared_sources AS s WHERE s.local_relid = local;
    PERFORM pgtrickle._wake('define');
END
$$;
COMMENT ON FUNCTION pgtrickle._forget_shared_source(regclass, text) IS 'Internal. What forget_shared_source() does.';

CREATE OR REPLACE FUNCTION pgtrickle.forget_shared_source(local regclass) RETURNS void
LANGUAGE sql VOLATILE AS $$
    SELECT pgtrickle._forget_shared_source(local)
$$;
COMMENT ON FUNCTION pgtrickle.forget_shared_source(regclass) IS 'Takes a declaration back: stream tables over the table read it as it is here.';
