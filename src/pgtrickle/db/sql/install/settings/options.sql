-- Settings that a database carries itself. PostgreSQL lets only superusers (from 15 on also those with GRANT SET ON PARAMETER) store a
-- parameter that no library has defined, the owner of a database included; set_option() is the way for everybody else.

CREATE OR REPLACE FUNCTION pgtrickle._define_options(definitions jsonb) RETURNS void
LANGUAGE sql VOLATILE SET search_path = pg_catalog, pg_temp AS $$
    DELETE FROM pgtrickle.pgt_options;
    INSERT INTO pgtrickle.pgt_options
    SELECT * FROM jsonb_populate_recordset(NULL::pgtrickle.pgt_options, definitions)
$$;
COMMENT ON FUNCTION pgtrickle._define_options(jsonb) IS 'Internal. Replaces the list of known settings.';
REVOKE ALL ON FUNCTION pgtrickle._define_options(jsonb) FROM PUBLIC;

CREATE OR REPLACE FUNCTION pgtrickle._option_problem(name text, value text) RETURNS text
LANGUAGE plpgsql STABLE SET search_path = pg_catalog, pg_temp AS $$
DECLARE
    o pgtrickle.pgt_options;
    fits bool;
BEGIN
    SELECT * INTO o FROM pgtrickle.pgt_options AS k WHERE k.name = _option_problem.name;
    IF NOT FOUND THEN
        RETURN CASE WHEN split_part(name, '.', 1) <> 'spark_conf' THEN format('unknown setting %s', name) END;
    END IF;
    value := lower(btrim(value, E' \t\n'));
    fits := CASE
        WHEN o.kind = 'bool' THEN value IN ('on', 'true', 'yes', '1', 'off', 'false', 'no', '0')
        WHEN o.kind = 'int' THEN value ~ '^[+-]?\d{1,18}$'
        WHEN o.kind = 'float' THEN value ~ '^[+-]?(\d{1,18}(\.\d{0,18})?|\.\d{1,18})$'
        WHEN o.choices <> '{}' THEN value = ANY (o.choices)
        ELSE true
    END;
    IF fits AND o.kind IN ('int', 'float') THEN
        fits := value::numeric BETWEEN coalesce(o.low, value::numeric) AND coalesce(o.high, value::numeric);
    END IF;
    RETURN CASE WHEN NOT fits THEN format('%s = %s is not valid: it must be %s', name, value, o.allowed) END;
END
$$;
COMMENT ON FUNCTION pgtrickle._option_problem(text, text) IS 'Internal. What is wrong with a value of a setting; NULL when nothing is.';

CREATE OR REPLACE FUNCTION pgtrickle._stored_options()
RETURNS TABLE (name text, value text, origin text, default_value text, allowed text, scope text, problem text, meaning text)
LANGUAGE sql STABLE SET search_path = pg_catalog, pg_temp AS $$
    WITH keeper AS (
        SELECT relowner AS role FROM pg_class WHERE oid = 'pgtrickle.pgt_settings'::regclass
    ), stored AS (
        SELECT s.setrole, 3 + (s.setdatabase <> 0)::int + 2 * (s.setrole <> 0)::int AS rank,
               substr(lower(split_part(entry, '=', 1)), length('pg_trickle.') + 1) AS name, substr(entry, strpos(entry, '=') + 1) AS value
        FROM pg_db_role_setting AS s
        CROSS JOIN LATERAL unnest(s.setconfig) AS entry
        WHERE s.setdatabase IN (0, (SELECT oid FROM pg_database WHERE datname = current_database()))
          AND starts_with(lower(entry), 'pg_trickle.')
    ), said AS (
        SELECT 1 AS rank, o.name, o.value FROM pgtrickle.pgt_settings AS o
        UNION ALL
        -- the value of this session is that of the server only if none is stored for the caller
        SELECT 2, k.name, current_setting('pg_trickle.' || k.name, true)
        FROM pgtrickle.pgt_options AS k
        WHERE NOT EXISTS (
            SELECT FROM stored
            WHERE stored.name = k.name AND stored.setrole IN (0, (SELECT oid FROM pg_roles WHERE rolname = session_user)))
        UNION ALL
        SELECT stored.rank, stored.name, stored.value FROM stored, keeper WHERE stored.setrole IN (0, keeper.role)
    ), winner AS (
        SELECT DISTINCT ON (1) coalesce(k.setting, said.name) AS name, said.value, said.rank
        FROM said
        LEFT JOIN pgtrickle.pgt_options AS k ON k.name = said.name
        WHERE said.value IS NOT NULL
        ORDER BY 1, said.rank DESC
    )
    SELECT coalesce(w.name, k.name), coalesce(w.value, k.default_value),
           coalesce((ARRAY['set_option', 'postgresql.conf', 'all roles', 'database', 'role', 'role in database'])[w.rank], 'default'),
           k.default_value, k.allowed, k.scope, CASE WHEN w.name IS NOT NULL THEN pgtrickle._option_problem(w.name, w.value) END, k.meaning
    FROM (SELECT * FROM pgtrickle.pgt_options AS o WHERE o.name = o.setting) AS k
    FULL JOIN (SELECT * FROM winner WHERE winner.value <> '') AS w ON w.name = k.name
    ORDER BY 1
$$;
COMMENT ON FUNCTION pgtrickle._stored_options() IS
'Internal. Every setting, its value in this database for the role that installed pgtrickle, its origin and any problem.';

CREATE OR REPLACE FUNCTION pgtrickle.set_option(name text, value text) RETURNS void
LANGUAGE plpgsql VOLATILE SET search_path = pg_catalog, pg_temp AS $$
DECLARE
    wanted text := regexp_replace(lower(btrim(coalesce(name, 'NULL'))), '^pg_trickle\.', '');
    keeper oid;
    acting record;
    wrong text;
BEGIN
    PERFORM pgtrickle._require_primary();
    SELECT c.relowner INTO keeper FROM pg_class AS c WHERE c.oid = 'pgtrickle.pgt_settings'::regclass;
    IF NOT pg_has_role(keeper, 'USAGE') THEN
        RAISE EXCEPTION USING ERRCODE = 'insufficient_privilege',
            MESSAGE = format('only %I, who installed pgtrickle here, may change its settings', pg_get_userbyid(keeper)),
            HINT = format('GRANT %I TO a role that may do so.', pg_get_userbyid(keeper));
    END IF;
    wanted := coalesce((SELECT k.setting FROM pgtrickle.pgt_options AS k WHERE k.name = wanted), wanted);
    IF split_part(wanted, '.', 1) = 'spark_conf' OR EXISTS (SELECT FROM pgtrickle.pgt_options AS k WHERE k.name = wanted AND k.scope = 'host') THEN
        RAISE EXCEPTION USING ERRCODE = 'insufficient_privilege',
            MESSAGE = format('%s concerns the machine that runs pgtrickle and cannot be set in a database', wanted),
            HINT = 'Use the environment, the TOML file or a flag of pgtrickle run.';
    END IF;
    IF value IS NULL THEN
        DELETE FROM pgtrickle.pgt_settings AS s WHERE s.name = wanted;
        IF NOT FOUND AND NOT EXISTS (SELECT FROM pgtrickle.pgt_options AS k WHERE k.name = wanted) THEN
            wrong := format('unknown setting %s', wanted);
        END IF;
    ELSE
        wrong := pgtrickle._option_problem(wanted, value);
    END IF;
    IF wrong IS NOT NULL THEN
        RAISE EXCEPTION USING ERRCODE = 'invalid_parameter_value', MESSAGE = wrong,
            HINT = 'SELECT name, allowed, meaning FROM pgtrickle.options() lists all settings.';
    END IF;
    IF value IS NOT NULL THEN
        INSERT INTO pgtrickle.pgt_settings AS s (name, value) VALUES (wanted, btrim(value, E' \t\n'))
        ON CONFLICT ON CONSTRAINT pgt_settings_pkey
        DO UPDATE SET value = excluded.value, changed_by = excluded.changed_by, changed_at = excluded.changed_at;
        SELECT o.origin, o.value, o.scope INTO acting FROM pgtrickle.options() AS o WHERE o.name = wanted;
        IF acting.origin <> 'set_option' THEN
            RAISE WARNING USING MESSAGE = format('%s = %s of %s overrides it', wanted, acting.value, acting.origin);
        END IF;
        IF acting.scope = 'fleet' THEN
            RAISE NOTICE USING MESSAGE = format('%s applies to all databases: it is read from the database that --server names%s', wanted,
                CASE WHEN wanted NOT IN ('max_dynamic_refresh_workers', 'worker_pool_size', 'template_cache_max_entries')
                     THEN ', when pgtrickle run starts' ELSE '' END);
        END IF;
    END IF;
    PERFORM pgtrickle._wake('settings');
END
$$;
COMMENT ON FUNCTION pgtrickle.set_option(text, text) IS
'Sets pg_trickle.<name> for this database without a superuser; NULL removes it. Refuses unknown names and values out of range.';
