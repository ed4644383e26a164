-- Publications: a stream table for logical replication.

CREATE OR REPLACE FUNCTION pgtrickle._publication_name(id bigint, schema_name name, table_name name) RETURNS name
LANGUAGE plpgsql STABLE SET search_path = pg_catalog, pg_temp AS $$
DECLARE
    whole CONSTANT text := format('pgt_pub_%s_%s', schema_name, table_name);
    wanted text := whole;
BEGIN
    IF octet_length(wanted) > 63 THEN
        WHILE octet_length(wanted) > 54 LOOP
            wanted := left(wanted, -1);
        END LOOP;
        wanted := wanted || '_' || left(md5(whole), 8);
    END IF;
    -- a_b.c and a.b_c have the same name, and a publication of that name may already exist
    IF EXISTS (SELECT FROM pg_publication AS p WHERE p.pubname = wanted)
       OR EXISTS (SELECT FROM pgtrickle.pgt_publications AS p WHERE p.publication = wanted) THEN
        WHILE octet_length(wanted) + length(id::text) > 62 LOOP
            wanted := left(wanted, -1);
        END LOOP;
        wanted := wanted || '_' || id;
    END IF;
    RETURN wanted;
END
$$;
COMMENT ON FUNCTION pgtrickle._publication_name(bigint, name, name) IS 'Internal. A free name for the publication of a stream table, at most 63 bytes.';

-- Apply deletes and inserts, so a deleted row has to be found at the other end. By all columns, hidden ones included (PostgreSQL refuses a list of
-- columns then), or by a key if the table has one: then only the visible columns are published.
CREATE OR REPLACE FUNCTION pgtrickle._shape_publication(id bigint) RETURNS void
LANGUAGE plpgsql VOLATILE SET search_path = pg_catalog, pg_temp AS $$
DECLARE
    pub name;
    qualified text;
    relid oid;
    identity "char";
    kind "char";
    identity_index oid;
    key oid;
    listed text;
BEGIN
    SELECT p.publication, format('%I.%I', n.nspname, c.relname), c.oid, c.relreplident, c.relkind INTO pub, qualified, relid, identity, kind
    FROM pgtrickle.pgt_publications AS p
    JOIN pg_publication AS g ON g.pubname = p.publication
    JOIN pgtrickle.pgt_stream_tables AS st ON st.pgt_id = p.pgt_id
    JOIN pg_class AS c ON c.oid = st.pgt_relid
    JOIN pg_namespace AS n ON n.oid = c.relnamespace
    WHERE p.pgt_id = id;
    IF pub IS NULL THEN
        RETURN;
    END IF;
    -- Rows of a partitioned table are identified in their partitions, which have all columns.
    IF current_setting('server_version_num')::int >= 150000 AND kind = 'r' THEN
        SELECT i.indexrelid INTO key
        FROM pg_index AS i
        WHERE i.indrelid = relid AND i.indisunique AND i.indisvalid AND i.indimmediate AND i.indpred IS NULL AND i.indexprs IS NULL
          AND i.indnkeyatts = i.indnatts
          AND NOT EXISTS (SELECT FROM pg_attribute AS a
                          WHERE a.attrelid = relid AND a.attnum = ANY (i.indkey) AND (NOT a.attnotnull OR a.attname ~ '^__pgt_'))
        ORDER BY NOT i.indisprimary, i.indnatts, i.indexrelid
        LIMIT 1;
    END IF;
    SELECT i.indexrelid INTO identity_index FROM pg_index AS i WHERE i.indrelid = relid AND i.indisreplident;
    -- Not before the list of columns fits it: in between, a list and an identity that do not fit would forbid our deletes.
    IF key IS NULL THEN
        EXECUTE format('ALTER PUBLICATION %I SET TABLE %s', pub, qualified);
        IF identity <> 'f' THEN
            EXECUTE format('ALTER TABLE %s REPLICA IDENTITY FULL', qualified);
        END IF;
    ELSE
        IF identity <> 'i' OR key IS DISTINCT FROM identity_index THEN
            EXECUTE format('ALTER TABLE %s REPLICA IDENTITY USING INDEX %I', qualified, (SELECT c.relname FROM pg_class AS c WHERE c.oid = key));
        END IF;
        SELECT string_agg(quote_ident(a.attname), ', ' ORDER BY a.attnum) INTO listed
        FROM pg_attribute AS a
        WHERE a.attrelid = relid AND a.attnum > 0 AND NOT a.attisdropped AND a.attname !~ '^__pgt_';
        EXECUTE format('ALTER PUBLICATION %I SET TABLE %s (%s)', pub, qualified, listed);
    END IF;
END
$$;
COMMENT ON FUNCTION pgtrickle._shape_publication(bigint) IS
'Internal. Makes the publication of a stream table, if it has one, fit its storage: table, columns, replica identity.';

CREATE OR REPLACE FUNCTION pgtrickle._unlist_publication(id bigint) RETURNS void
LANGUAGE plpgsql VOLATILE SET search_path = pg_catalog, pg_temp AS $$
DECLARE
    st pgtrickle.pgt_stream_tables;
    pub name;
BEGIN
    SELECT * INTO STRICT st FROM pgtrickle.pgt_stream_tables AS t WHERE t.pgt_id = id;
    SELECT p.publication INTO pub
    FROM pgtrickle.pgt_publications AS p
    JOIN pg_publication AS g ON g.pubname = p.publication
    WHERE p.pgt_id = id;
    IF pub IS NOT NULL THEN
        EXECUTE format('ALTER PUBLICATION %I SET TABLE %s', pub, st.pgt_relid::regclass);
    END IF;
    IF (SELECT c.relreplident FROM pg_class AS c WHERE c.oid = st.pgt_relid) <> 'f' THEN
        EXECUTE format('ALTER TABLE %s REPLICA IDENTITY FULL', st.pgt_relid::regclass);
    END IF;
END
$$;
COMMENT ON FUNCTION pgtrickle._unlist_publication(bigint) IS
'Internal. Before columns of a storage table are dropped: its publication names none of them, and its rows are known by all columns.';

CREATE OR REPLACE FUNCTION pgtrickle._publish(id bigint, me text DEFAULT pgtrickle._me()) RETURNS name
LANGUAGE plpgsql VOLATILE SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
DECLARE
    st CONSTANT pgtrickle.pgt_stream_tables := pgtrickle._authorize(id, me);
    client_messages CONSTANT text := current_setting('client_min_messages');
    pub name;
BEGIN
    IF NOT EXISTS (SELECT FROM pg_class AS c WHERE c.oid = st.pgt_relid) THEN
        RAISE EXCEPTION USING ERRCODE = 'undefined_table',
            MESSAGE = format('the storage table of stream table %I.%I does not exist', st.pgt_schema, st.pgt_name),
            HINT = 'SELECT pgtrickle.repair_stream_table(name) creates it again.';
    END IF;
    SELECT p.publication INTO pub FROM pgtrickle.pgt_publications AS p WHERE p.pgt_id = id;
    IF pub IS NULL THEN
        PERFORM pg_advisory_xact_lock(hashtextextended('pgtrickle.publish', 0));
        pub := pgtrickle._publication_name(id, st.pgt_schema, st.pgt_name);
        INSERT INTO pgtrickle.pgt_publications (pgt_id, publication, created_by) VALUES (id, pub, pgtrickle._caller(me));
    END IF;
    -- PostgreSQL's own words about wal_level come only when one is created
    PERFORM set_config('client_min_messages', 'error', true);
    IF NOT EXISTS (SELECT FROM pg_publication AS p WHERE p.pubname = pub) THEN
        BEGIN
            EXECUTE format('CREATE PUBLICATION %I WITH (publish_via_partition_root = true)', pub);
        EXCEPTION WHEN insufficient_privilege THEN
            RAISE EXCEPTION USING ERRCODE = 'insufficient_privilege',
                MESSAGE = format('%I, the role that installed pgtrickle, cannot create publications', current_user),
                HINT = format('GRANT CREATE ON DATABASE %I TO %I', current_database(), current_user);
        END;
        EXECUTE format('COMMENT ON PUBLICATION %I IS %L', pub, format('Stream table %I.%I, published by pgtrickle.', st.pgt_schema, st.pgt_name));
    END IF;
    PERFORM pgtrickle._shape_publication(id);
    PERFORM set_config('client_min_messages', client_messages, true);
    PERFORM pgtrickle._wake('publish', id);
    IF current_setting('wal_level') <> 'logical' THEN
        RAISE WARNING USING
            MESSAGE = format('wal_level is %s: subscriptions to publication %I will fail', current_setting('wal_level'), pub),
            HINT = 'Set wal_level = logical and restart the server, or read the change feed: pgtrickle.create_subscriber().';
    END IF;
    RETURN pub;
END
$$;
COMMENT ON FUNCTION pgtrickle._publish(bigint, text) IS 'Internal. Creates or mends the publication of a stream table.';

CREATE OR REPLACE FUNCTION pgtrickle.stream_table_to_publication(name text) RETURNS name
LANGUAGE plpgsql VOLATILE AS $$
BEGIN
    PERFORM pgtrickle._require_primary();
    RETURN pgtrickle._publish(pgtrickle._find(name));
END
$$;
COMMENT ON FUNCTION pgtrickle.stream_table_to_publication(text) IS
'Publishes a stream table for logical replication and returns the name of the publication. Another call adapts the publication to the table. The '
'subscriber''s table needs all columns, the hidden ones (__pgt_...) included; only the visible ones if the stream table has a unique index on visible '
'NOT NULL columns (PostgreSQL 15 on). Warns where wal_level is not logical.';

CREATE OR REPLACE FUNCTION pgtrickle._unpublish(id bigint, me text DEFAULT pgtrickle._me()) RETURNS void
LANGUAGE plpgsql VOLATILE SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
DECLARE
    st CONSTANT pgtrickle.pgt_stream_tables := pgtrickle._authorize(id, me);
    pub name;
BEGIN
    DELETE FROM pgtrickle.pgt_publications AS p WHERE p.pgt_id = id RETURNING p.publication INTO pub;
    IF pub IS NULL THEN
        RAISE EXCEPTION USING ERRCODE = 'undefined_object',
            MESSAGE = format('stream table %I.%I is not published', st.pgt_schema, st.pgt_name),
            HINT = 'SELECT * FROM pgtrickle.pgt_publications lists publications of stream tables.';
    END IF;
    IF EXISTS (SELECT FROM pg_publication AS p WHERE p.pubname = pub) THEN
        EXECUTE format('DROP PUBLICATION %I', pub);
    END IF;
    IF EXISTS (SELECT FROM pg_class AS c WHERE c.oid = st.pgt_relid) THEN
        PERFORM pgtrickle._unlist_publication(id);
    END IF;
    PERFORM pgtrickle._wake('publish', id);
END
$$;
COMMENT ON FUNCTION pgtrickle._unpublish(bigint, text) IS 'Internal. Drops the publication of a stream table.';

CREATE OR REPLACE FUNCTION pgtrickle.drop_stream_table_publication(name text) RETURNS void
LANGUAGE plpgsql VOLATILE AS $$
BEGIN
    PERFORM pgtrickle._require_primary();
    PERFORM pgtrickle._unpublish(pgtrickle._find(name));
END
$$;
COMMENT ON FUNCTION pgtrickle.drop_stream_table_publication(text) IS
'Drops the publication of a stream table; drop_stream_table does this as well. Subscriptions to it then fail: drop them and their slots in the '
'subscribing database.';
