-- What keeps a stream table from being written to, and a source from being dropped, by accident.

CREATE OR REPLACE FUNCTION pgtrickle._refuse_write() RETURNS trigger
LANGUAGE plpgsql VOLATILE SET search_path = pg_catalog, pg_temp AS $$
DECLARE
    name CONSTANT text := (SELECT format('%I.%I', n.nspname, c.relname) FROM pg_class AS c JOIN pg_namespace AS n ON n.oid = c.relnamespace
                           WHERE c.oid = coalesce(pg_partition_root(TG_RELID), TG_RELID));
BEGIN
    RAISE EXCEPTION USING ERRCODE = 'wrong_object_type',
        MESSAGE = format('cannot %s stream table %s: pgtrickle maintains it from its query',
                         CASE TG_OP WHEN 'INSERT' THEN 'insert into' WHEN 'DELETE' THEN 'delete from' ELSE lower(TG_OP) END, name),
        HINT = format('Write to the tables that the query reads. To allow direct writes: SELECT pgtrickle.protect_stream_table(%L, false)', name);
END
$$;
COMMENT ON FUNCTION pgtrickle._refuse_write() IS 'Internal. The trigger of stream tables that refuses writes of others than pgtrickle.';

-- Sessions of pgtrickle have the setting pgtrickle.applies; the condition is evaluated without a call of the function. A role without the privilege to
-- write cannot write with the setting either. Not ENABLE ALWAYS: a logical replica of the database receives stream tables as well, and a
-- restore with --disable-triggers fills them; both have session_replication_role = replica or disable triggers, which needs a superuser.
CREATE OR REPLACE FUNCTION pgtrickle._protect(relid oid) RETURNS void
LANGUAGE plpgsql VOLATILE SET search_path = pg_catalog, pg_temp AS $$
BEGIN
    IF EXISTS (SELECT FROM pg_class AS c WHERE c.oid = relid AND c.relkind IN ('r', 'p'))
       AND NOT EXISTS (SELECT FROM pg_trigger AS t WHERE t.tgrelid = relid AND t.tgname = 'pgtrickle_protect') THEN
        EXECUTE format('CREATE TRIGGER pgtrickle_protect BEFORE INSERT OR UPDATE OR DELETE OR TRUNCATE ON %s FOR EACH STATEMENT '
                       'WHEN (pg_catalog.current_setting(''pgtrickle.applies'', true) IS DISTINCT FROM ''on'') '
                       'EXECUTE FUNCTION pgtrickle._refuse_write()', relid::regclass);
    END IF;
END
$$;
COMMENT ON FUNCTION pgtrickle._protect(oid) IS 'Internal. Gives a stream table the trigger that refuses direct writes, if it has none.';

CREATE OR REPLACE FUNCTION pgtrickle._set_protection(id bigint, protect bool, me text DEFAULT pgtrickle._me()) RETURNS bool
LANGUAGE plpgsql VOLATILE SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
DECLARE
    st CONSTANT pgtrickle.pgt_stream_tables := pgtrickle._authorize(id, me);
    was bool;
BEGIN
    PERFORM pgtrickle._protect(st.pgt_relid);
    SELECT t.tgenabled <> 'D' INTO was FROM pg_trigger AS t WHERE t.tgrelid = st.pgt_relid AND t.tgname = 'pgtrickle_protect';
    IF was IS NULL OR was = protect THEN
        RETURN false;
    END IF;
    EXECUTE format('ALTER TABLE %s %s TRIGGER pgtrickle_protect', st.pgt_relid::regclass, CASE WHEN protect THEN 'ENABLE' ELSE 'DISABLE' END);
    RETURN true;
END
$$;
COMMENT ON FUNCTION pgtrickle._set_protection(bigint, bool, text) IS 'Internal. Switches the protection of a stream table; returns whether it was different.';

CREATE OR REPLACE FUNCTION pgtrickle.protect_stream_table(name text, protect bool DEFAULT true) RETURNS void
LANGUAGE plpgsql VOLATILE AS $$
DECLARE
    id bigint;
BEGIN
    PERFORM pgtrickle._require_primary();
    id := pgtrickle._find(name);
    IF pgtrickle._set_protection(id, protect) AND protect THEN
        -- What was written to it meanwhile is not known.
        PERFORM pgtrickle._request(id, 'repair');
    END IF;
END
$$;
COMMENT ON FUNCTION pgtrickle.protect_stream_table(text, bool) IS
'Refuses (default) or allows direct writes to a stream table, by roles that have the privilege. What is written stays until a refresh changes the same '
'rows. When the protection is switched on again, the content is loaded again.';

CREATE OR REPLACE FUNCTION pgtrickle._drop_guard(id bigint) RETURNS void
LANGUAGE plpgsql VOLATILE SET search_path = pg_catalog, pg_temp AS $$
DECLARE
    guard regclass;
BEGIN
    FOR guard IN
        SELECT c.oid
        FROM pg_class AS c
        WHERE c.relnamespace = 'pgtrickle_changes'::regnamespace AND c.relkind = 'v' AND obj_description(c.oid, 'pg_class') = 'pgtrickle reader ' || id
    LOOP
        EXECUTE format('DROP VIEW %s', guard);
    END LOOP;
END
$$;
COMMENT ON FUNCTION pgtrickle._drop_guard(bigint) IS 'Internal. Removes the view that _guard_sources() created.';

-- A view without columns depends on the relations and nothing else: PostgreSQL refuses to drop them and names the view, which is named after the reader.
-- DROP ... CASCADE drops the view, too, and reports it. Columns and their types can be altered.
CREATE OR REPLACE FUNCTION pgtrickle._guard_sources(id bigint) RETURNS void
LANGUAGE plpgsql VOLATILE SET search_path = pg_catalog, pg_temp AS $$
DECLARE
    st pgtrickle.pgt_stream_tables;
    sources text;
    guard name;
BEGIN
    PERFORM pgtrickle._drop_guard(id);
    SELECT * INTO STRICT st FROM pgtrickle.pgt_stream_tables AS t WHERE t.pgt_id = id;
    SELECT string_agg(format('%I.%I AS s%s', s.nspname, s.relname, s.i), ', ' ORDER BY s.i) INTO sources
    FROM (
        SELECT n.nspname, c.relname, row_number() OVER (ORDER BY c.oid) AS i
        FROM pg_class AS c
        JOIN pg_namespace AS n ON n.oid = c.relnamespace
        WHERE c.oid IN (SELECT d.source_relid FROM pgtrickle.pgt_dependencies AS d WHERE d.pgt_id = id)
          AND c.relkind IN ('r', 'p', 'v', 'm', 'f') AND c.relpersistence <> 't'
          AND n.nspname NOT IN ('pgtrickle', 'pgtrickle_changes', 'pg_catalog', 'information_schema')
          AND has_schema_privilege(n.oid, 'USAGE')
          -- drop_stream_table() asks for these itself
          AND NOT EXISTS (SELECT FROM pgtrickle.pgt_stream_tables AS t WHERE t.pgt_relid = c.oid)
    ) AS s;
    IF sources IS NULL THEN
        RETURN;
    END IF;
    guard := format('stream table %s.%s', st.pgt_schema, st.pgt_name);
    IF to_regclass(format('pgtrickle_changes.%I', guard)) IS NOT NULL THEN
        guard := format('stream table no. %s', id);  -- names that differ in their ends only
    END IF;
    EXECUTE format('CREATE VIEW pgtrickle_changes.%I AS SELECT FROM %s', guard, sources);
    EXECUTE format('COMMENT ON VIEW pgtrickle_changes.%I IS %L', guard, 'pgtrickle reader ' || id);
END
$$;
COMMENT ON FUNCTION pgtrickle._guard_sources(bigint) IS
'Internal. Makes DROP of a source fail unless with CASCADE; both name the stream tables that read it.';

-- The same for a mirror in another database, and for a stream table there that reads the replica of the table: the view is named after that database.
CREATE OR REPLACE FUNCTION pgtrickle._drop_reader_guard(reader pgtrickle.pgt_readers) RETURNS void
LANGUAGE plpgsql VOLATILE SET search_path = pg_catalog, pg_temp AS $$
DECLARE
    guard regclass;
BEGIN
    FOR guard IN
        SELECT c.oid
        FROM pg_class AS c
        WHERE c.relnamespace = 'pgtrickle_changes'::regnamespace AND c.relkind = 'v'
          AND obj_description(c.oid, 'pg_class') = format('pgtrickle reader %s of %s', reader.mirror_id, reader.reader_key)
    LOOP
        EXECUTE format('DROP VIEW %s', guard);
    END LOOP;
END
$$;
COMMENT ON FUNCTION pgtrickle._drop_reader_guard(pgtrickle.pgt_readers) IS 'Internal. Removes the view that _guard_reader() created.';

CREATE OR REPLACE FUNCTION pgtrickle._guard_reader(reader pgtrickle.pgt_readers) RETURNS void
LANGUAGE plpgsql VOLATILE SET search_path = pg_catalog, pg_temp AS $$
DECLARE
    source text;
    guard name := format('reader %s in database %s', reader.mirror_id, reader.reader_database || coalesce('@' || nullif(reader.reader_server, ''), ''));
BEGIN
    SELECT format('%I.%I', n.nspname, c.relname) INTO source
    FROM pg_class AS c
    JOIN pg_namespace AS n ON n.oid = c.relnamespace
    WHERE c.oid = reader.source_relid AND c.relkind IN ('r', 'p') AND has_schema_privilege(n.oid, 'USAGE')
      -- drop_stream_table() names these readers itself
      AND NOT EXISTS (SELECT FROM pgtrickle.pgt_stream_tables AS t WHERE t.pgt_relid = c.oid);
    IF source IS NULL THEN
        RETURN;
    END IF;
    IF to_regclass(format('pgtrickle_changes.%I', guard)) IS NOT NULL THEN
        guard := format('reader %s of %s', reader.mirror_id, reader.reader_key);  -- another database of that name
    END IF;
    EXECUTE format('CREATE VIEW pgtrickle_changes.%I AS SELECT FROM %s', guard, source);
    EXECUTE format('COMMENT ON VIEW pgtrickle_changes.%I IS %L', guard, format('pgtrickle reader %s of %s', reader.mirror_id, reader.reader_key));
END
$$;
COMMENT ON FUNCTION pgtrickle._guard_reader(pgtrickle.pgt_readers) IS
'Internal. Makes DROP of a table that another database reads fail unless with CASCADE; both name that database.';

CREATE OR REPLACE FUNCTION pgtrickle._guard_readers() RETURNS trigger
LANGUAGE plpgsql VOLATILE SET search_path = pg_catalog, pg_temp AS $$
BEGIN
    IF TG_OP = 'UPDATE' AND (OLD.source_relid, OLD.reader_server, OLD.reader_database) = (NEW.source_relid, NEW.reader_server, NEW.reader_database) THEN
        RETURN NULL;
    END IF;
    IF TG_OP <> 'INSERT' THEN
        PERFORM pgtrickle._drop_reader_guard(OLD);
    END IF;
    IF TG_OP <> 'DELETE' THEN
        PERFORM pgtrickle._guard_reader(NEW);
    END IF;
    RETURN NULL;
END
$$;
COMMENT ON FUNCTION pgtrickle._guard_readers() IS 'Internal. Keeps the views of _guard_reader() up to date.';

DO $$
BEGIN
    IF NOT EXISTS (SELECT FROM pg_catalog.pg_trigger AS t WHERE t.tgrelid = 'pgtrickle.pgt_readers'::pg_catalog.regclass AND t.tgname = 'guard_readers') THEN
        CREATE TRIGGER guard_readers AFTER INSERT OR DELETE OR UPDATE OF source_relid, reader_server, reader_database ON pgtrickle.pgt_readers
            FOR EACH ROW EXECUTE FUNCTION pgtrickle._guard_readers();
    END IF;
END
$$;
