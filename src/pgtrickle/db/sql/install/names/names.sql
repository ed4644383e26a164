-- Names, callers, schedules: the small checks that every public function shares.

-- The caller of a SECURITY DEFINER function. PostgreSQL does not report it: session_user and the setting role are those of the session, and a SECURITY
-- DEFINER function of another role in between has another current_user, which is the one whose privileges count. So the caller brings a proof: a view
-- shows current_user as it is where the view is read, and signs it with a key that only the owner of the view can read. It is the default of an argument,
-- because defaults are evaluated with the privileges of the caller. It is good for one transaction of one session.
CREATE TABLE IF NOT EXISTS pgtrickle_changes.caller_key (one bool PRIMARY KEY DEFAULT true CHECK (one), key bytea NOT NULL);
COMMENT ON TABLE pgtrickle_changes.caller_key IS 'The key that signs proofs of the caller.';
INSERT INTO pgtrickle_changes.caller_key (key)
SELECT pg_catalog.decode(pg_catalog.replace(pg_catalog.gen_random_uuid()::text || pg_catalog.gen_random_uuid()::text, '-', ''), 'hex')
ON CONFLICT DO NOTHING;

-- Runs as the role that reads the view: under the path of that role, operators of theirs would be given the key.
CREATE OR REPLACE FUNCTION pgtrickle._signed(who name, key bytea) RETURNS text
LANGUAGE sql STABLE SET search_path = pg_catalog, pg_temp AS $$
    SELECT pg_catalog.encode(pg_catalog.sha256(key || pg_catalog.convert_to(pg_catalog.concat_ws(' ', who, pg_catalog.pg_backend_pid(),
               (extract(epoch FROM pg_catalog.now()) * 1000000)::bigint), 'UTF8') || key), 'hex') || who
$$;
COMMENT ON FUNCTION pgtrickle._signed(name, bytea) IS 'Internal. The name of a role, signed for this transaction.';

CREATE OR REPLACE VIEW pgtrickle._proof AS
SELECT pgtrickle._signed(current_user, k.key) AS proof FROM pgtrickle_changes.caller_key AS k;
COMMENT ON VIEW pgtrickle._proof IS 'Internal. The proof of who reads it.';

CREATE OR REPLACE FUNCTION pgtrickle._me() RETURNS text
LANGUAGE sql STABLE AS $$
    SELECT p.proof FROM pgtrickle._proof AS p
$$;
COMMENT ON FUNCTION pgtrickle._me() IS 'Internal. Proves to functions of the service role who calls them.';

CREATE OR REPLACE FUNCTION pgtrickle._caller(me text) RETURNS name
LANGUAGE plpgsql STABLE SET search_path = pg_catalog, pg_temp AS $$
DECLARE
    who CONSTANT name := substr(me, 65);
BEGIN
    IF me IS NULL OR me <> (SELECT pgtrickle._signed(who, k.key) FROM pgtrickle_changes.caller_key AS k) THEN
        RAISE EXCEPTION USING ERRCODE = 'insufficient_privilege', MESSAGE = 'the caller is not proven', HINT = 'Omit the last argument.';
    END IF;
    RETURN who;
END
$$;
COMMENT ON FUNCTION pgtrickle._caller(text) IS 'Internal, called by SECURITY DEFINER functions. The role that calls, by the proof that it brings.';

-- A role is stored with its name and its oid: a name can be changed, and then given to another role. On another server, in a database
-- restored from a dump, the oids are those of other roles, and only the name is known.
CREATE OR REPLACE FUNCTION pgtrickle._author(created_by name, created_key text) RETURNS name
LANGUAGE sql STABLE SET search_path = pg_catalog, pg_temp AS $$
    SELECT coalesce(
        (SELECT r.rolname FROM pg_roles AS r WHERE r.rolname = created_by AND (created_key IS NULL OR r.oid = split_part(created_key, '/', 2)::oid)),
        (SELECT r.rolname
         FROM pg_roles AS r
         CROSS JOIN pg_control_system() AS s
         WHERE CASE WHEN split_part(created_key, '/', 1) = s.system_identifier::text THEN r.oid = split_part(created_key, '/', 2)::oid
                    ELSE r.rolname = created_by AND created_key IS NOT NULL END))
$$;
COMMENT ON FUNCTION pgtrickle._author(name, text) IS 'Internal. What the role is called now that created something; NULL when it is gone.';

CREATE OR REPLACE FUNCTION pgtrickle._note_creator() RETURNS trigger
LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $$
BEGIN
    NEW.created_key := (SELECT s.system_identifier::text || '/' || r.oid FROM pg_roles AS r, pg_control_system() AS s WHERE r.rolname = NEW.created_by);
    RETURN NEW;
END
$$;
COMMENT ON FUNCTION pgtrickle._note_creator() IS 'Internal. Stores what distinguishes a role from another one of the same name: server and oid.';

DO $$
DECLARE
    relation regclass;
BEGIN
    FOR relation IN
        SELECT c.oid
        FROM pg_class AS c
        WHERE c.relnamespace = 'pgtrickle'::regnamespace
          AND c.relname IN ('pgt_stream_tables', 'pgt_subscribers', 'pgt_refresh_groups', 'pgt_definitions')
          AND NOT EXISTS (SELECT FROM pg_trigger AS t WHERE t.tgrelid = c.oid AND t.tgname = 'note_creator')
        ORDER BY c.relname
    LOOP
        EXECUTE format('CREATE TRIGGER note_creator BEFORE INSERT OR UPDATE OF created_by ON %s '
                       'FOR EACH ROW EXECUTE FUNCTION pgtrickle._note_creator()', relation);
    END LOOP;
END
$$;

CREATE OR REPLACE FUNCTION pgtrickle._origin() RETURNS text
LANGUAGE sql STABLE SET search_path = pg_catalog, pg_temp AS $$
    SELECT s.system_identifier::text || '/' || d.oid::text
    FROM pg_control_system() AS s, pg_database AS d
    WHERE d.datname = current_database()
$$;
COMMENT ON FUNCTION pgtrickle._origin() IS 'Internal. This database''s key in a frontier: system identifier and database oid.';

CREATE OR REPLACE FUNCTION pgtrickle._place() RETURNS text
LANGUAGE sql STABLE SET search_path = pg_catalog, pg_temp AS $$
    SELECT pgtrickle._origin() || '/' || 'pgtrickle.pgt_stream_tables'::regclass::oid::text
$$;
COMMENT ON FUNCTION pgtrickle._place() IS
'Internal. Where oids that the catalog stores are valid: the database, and the oid of the catalog itself, which is another one after a restore.';

CREATE OR REPLACE FUNCTION pgtrickle._require_primary() RETURNS void
LANGUAGE plpgsql STABLE SET search_path = pg_catalog, pg_temp AS $$
BEGIN
    IF pg_is_in_recovery() THEN
        RAISE EXCEPTION USING ERRCODE = 'read_only_sql_transaction',
            MESSAGE = 'this server is a standby: stream tables are changed and refreshed on the primary only',
            HINT = 'Connect to the primary; the result arrives here by replication.';
    END IF;
END
$$;
COMMENT ON FUNCTION pgtrickle._require_primary() IS 'Internal. Raises on a standby.';

-- No SET search_path: it returns the caller's search_path.
CREATE OR REPLACE FUNCTION pgtrickle._search_path() RETURNS text
LANGUAGE sql STABLE AS $$
    SELECT coalesce(pg_catalog.string_agg(pg_catalog.quote_ident(s.nsp), ', ' ORDER BY s.position), '')
    FROM pg_catalog.unnest(pg_catalog.current_schemas(false)) WITH ORDINALITY AS s(nsp, position)
    WHERE s.nsp !~ '^pg_temp_'
$$;
COMMENT ON FUNCTION pgtrickle._search_path() IS
'Internal. The schemas in which names of the caller are looked up, for a session of another role: "$user" would be another schema there.';

-- PostgreSQL 18 reports the search_path to every client, and libpq closes a connection that reports more than 30,000 bytes.
CREATE OR REPLACE FUNCTION pgtrickle._check_path(path text) RETURNS text
LANGUAGE plpgsql IMMUTABLE SET search_path = pg_catalog, pg_temp AS $$
BEGIN
    IF octet_length(path) > 8000 THEN
        RAISE EXCEPTION USING ERRCODE = 'invalid_parameter_value',
            MESSAGE = format('the search_path has %s bytes', octet_length(path)), HINT = 'At most 8,000 bytes are stored with a query.';
    END IF;
    RETURN path;
END
$$;
COMMENT ON FUNCTION pgtrickle._check_path(text) IS 'Internal. A search_path that a session of ours may take over; raises when it is too long.';

-- No SET search_path: an unqualified name goes where CREATE TABLE of the caller would put it.
CREATE OR REPLACE FUNCTION pgtrickle._parse_name(name text, OUT schema_name name, OUT table_name name)
LANGUAGE plpgsql STABLE AS $$
DECLARE
    parts text[];
    part text;
BEGIN
    BEGIN
        parts := pg_catalog.parse_ident(name);
    EXCEPTION WHEN invalid_parameter_value THEN
        parts := NULL;
    END;
    IF parts IS NULL OR pg_catalog.cardinality(parts) NOT IN (1, 2) THEN
        RAISE EXCEPTION USING ERRCODE = 'invalid_name',
            MESSAGE = pg_catalog.format('%s is not a table name', coalesce(pg_catalog.quote_literal(name), 'NULL')),
            HINT = 'Write name, schema.name or "Odd Name"."Other".';
    END IF;
    FOREACH part IN ARRAY parts LOOP
        IF pg_catalog.octet_length(part) > 63 THEN
            RAISE EXCEPTION USING ERRCODE = 'name_too_long',
                MESSAGE = pg_catalog.format('the name %s is longer than 63 bytes', pg_catalog.quote_literal(part)),
                HINT = 'PostgreSQL truncates identifiers there.';
        END IF;
    END LOOP;
    IF pg_catalog.cardinality(parts) = 2 THEN
        schema_name := parts[1];
        table_name := parts[2];
    ELSE
        schema_name := pg_catalog.current_schema();
        table_name := parts[1];
        IF schema_name IS NULL THEN
            RAISE EXCEPTION USING ERRCODE = 'invalid_schema_name',
                MESSAGE = 'no schema has been selected to create in',
                HINT = 'Write schema.name, or set search_path.';
        END IF;
    END IF;
END
$$;
COMMENT ON FUNCTION pgtrickle._parse_name(text) IS 'Internal. Splits a name; unqualified means the first schema of the search_path.';

CREATE OR REPLACE FUNCTION pgtrickle._find(name text) RETURNS bigint
LANGUAGE plpgsql STABLE AS $$
DECLARE
    target record;
    found_id bigint;
BEGIN
    SELECT * INTO target FROM pgtrickle._parse_name(name);
    SELECT st.pgt_id INTO found_id
    FROM pgtrickle.pgt_stream_tables AS st
    LEFT JOIN LATERAL (
        SELECT s.position
        FROM pg_catalog.unnest(pg_catalog.current_schemas(false)) WITH ORDINALITY AS s(nsp, position)
        WHERE s.nsp = st.pgt_schema
    ) AS path ON true
    WHERE st.pgt_name = target.table_name
      AND (st.pgt_schema = target.schema_name
           OR (pg_catalog.cardinality(pg_catalog.parse_ident(name)) = 1 AND path.position IS NOT NULL))
    ORDER BY path.position
    LIMIT 1;
    IF found_id IS NULL THEN
        RAISE EXCEPTION USING ERRCODE = 'undefined_table',
            MESSAGE = pg_catalog.format('stream table %s does not exist', pg_catalog.quote_literal(name)),
            HINT = 'SELECT name FROM pgtrickle.pgt_status() lists them.';
    END IF;
    RETURN found_id;
END
$$;
COMMENT ON FUNCTION pgtrickle._find(text) IS 'Internal. The id of a stream table by name, along the caller''s search_path; raises when there is none.';

CREATE OR REPLACE FUNCTION pgtrickle._cron_field_ok(field text, lowest int, highest int, names text[] DEFAULT '{}')
RETURNS bool
LANGUAGE plpgsql IMMUTABLE SET search_path = pg_catalog, pg_temp AS $$
DECLARE
    item text;
    m text[];
    first int;
    last int;
    i int;
BEGIN
    field := lower(field);
    FOR i IN 1 .. cardinality(names) LOOP
        field := regexp_replace(field, '\m' || names[i] || '\M', (lowest + i - 1)::text, 'g');
    END LOOP;
    FOREACH item IN ARRAY string_to_array(field, ',') LOOP
        m := regexp_match(item, '^(?:(\*)|(\d{1,2})(?:-(\d{1,2}))?)(?:/(\d{1,2}))?$');
        IF m IS NULL OR m[4]::int = 0 THEN
            RETURN false;
        END IF;
        first := coalesce(m[2]::int, lowest);
        last := coalesce(m[3]::int, first);
        IF first < lowest OR last > highest OR last < first THEN
            RETURN false;
        END IF;
    END LOOP;
    RETURN field <> '';
END
$$;
COMMENT ON FUNCTION pgtrickle._cron_field_ok(text, int, int, text[]) IS 'Internal. Whether one field of a cron expression is well formed and in range.';

CREATE OR REPLACE FUNCTION pgtrickle._check_schedule(schedule text) RETURNS text
LANGUAGE plpgsql IMMUTABLE SET search_path = pg_catalog, pg_temp AS $$
DECLARE
    s text := btrim(coalesce(schedule, 'calculated'), E' \t\n');
    fields text[];
    n int;
    months CONSTANT text[] := '{jan,feb,mar,apr,may,jun,jul,aug,sep,oct,nov,dec}';
    days CONSTANT text[] := '{sun,mon,tue,wed,thu,fri,sat}';
BEGIN
    IF lower(s) = 'calculated' THEN
        RETURN 'calculated';
    END IF;
    IF s ~ '^\d{1,9}$' AND s::int > 0 THEN
        RETURN s;
    END IF;
    IF s ~* '^(\d{1,9}\s*(ms|s|secs?|seconds?|m|mins?|minutes?|h|hrs?|hours?|d|days?|w|weeks?)\s*)+$' AND s ~ '[1-9]' THEN
        RETURN lower(s);
    END IF;
    IF lower(s) IN ('@yearly', '@annually', '@monthly', '@weekly', '@daily', '@midnight', '@hourly') THEN
        RETURN lower(s);
    END IF;
    fields := regexp_split_to_array(s, '\s+');
    n := cardinality(fields);
    IF n IN (5, 6)
       AND (n = 5 OR pgtrickle._cron_field_ok(fields[1], 0, 59))
       AND pgtrickle._cron_field_ok(fields[n - 4], 0, 59)
       AND pgtrickle._cron_field_ok(fields[n - 3], 0, 23)
       AND pgtrickle._cron_field_ok(fields[n - 2], 1, 31)
       AND pgtrickle._cron_field_ok(fields[n - 1], 1, 12, months)
       AND pgtrickle._cron_field_ok(fields[n], 0, 7, days) THEN
        RETURN array_to_string(fields, ' ');
    END IF;
    RAISE EXCEPTION USING ERRCODE = 'invalid_parameter_value',
        MESSAGE = format('%s is not a schedule', quote_literal(schedule)),
        HINT = 'Write a duration (30s, 1h30m, 1 d), seconds (90), cron with 5 or 6 fields (*/5 * * * *), @hourly and the like, or calculated.';
END
$$;
COMMENT ON FUNCTION pgtrickle._check_schedule(text) IS 'Internal. The schedule in its stored form; raises when it is none.';

CREATE OR REPLACE FUNCTION pgtrickle._is_served() RETURNS bool
LANGUAGE sql STABLE SET search_path = pg_catalog, pg_temp AS $$
    SELECT EXISTS (SELECT FROM pg_stat_activity AS a
                   WHERE a.datname = current_database() AND a.application_name IN ('pgtrickle/scheduler', 'pgtrickle/control'))
        OR EXISTS (SELECT FROM pgtrickle.pgt_leases AS l WHERE l.name = 'scheduler' AND l.until > clock_timestamp())
$$;
COMMENT ON FUNCTION pgtrickle._is_served() IS 'Internal. Whether a scheduler serves this database.';

CREATE OR REPLACE FUNCTION pgtrickle._wake(what text, id bigint DEFAULT NULL) RETURNS void
LANGUAGE sql VOLATILE SET search_path = pg_catalog, pg_temp AS $$
    INSERT INTO pgtrickle.pgt_events (pgt_id, what) VALUES (id, what);
    SELECT pg_notify('pgtrickle_wake', concat_ws(' ', what, id))
$$;
COMMENT ON FUNCTION pgtrickle._wake(text, bigint) IS
'Internal. Notifies the control plane at commit that a stream table, or the whole catalog, must be read again.';

CREATE OR REPLACE FUNCTION pgtrickle._alert(event text, table_name text, detail text) RETURNS void
LANGUAGE sql VOLATILE SET search_path = pg_catalog, pg_temp AS $$
    SELECT pg_notify('pg_trickle_alert', json_build_object('event', event, 'table', table_name, 'detail', detail)::text)
$$;
COMMENT ON FUNCTION pgtrickle._alert(text, text, text) IS
'Internal. Sends an alert: JSON with event, table, detail on channel pg_trickle_alert, to which everybody may listen.';
