-- The change feed of a stream table: what its change buffer holds between two cuts, net, for pull consumers.
--
-- A position is a snapshot, so a transaction that becomes visible late falls in exactly one window, whatever its LSN; the LSN that a consumer gets and
-- acknowledges is the handle of the cut that its window ends at. A window stays offered, the same rows again, until it is acknowledged.

CREATE OR REPLACE FUNCTION pgtrickle._feed_of(relid oid) RETURNS text
LANGUAGE sql STABLE SET search_path = pg_catalog, pg_temp AS $$
    SELECT md5(concat_ws('|', pgtrickle._origin(), relid, b.oid, t.triggers, c.columns))
    FROM (SELECT to_regclass('pgtrickle_changes.changes_' || relid)::oid AS oid) AS b
    CROSS JOIN LATERAL (
        -- by xmin: what was changed and changed back is another
        SELECT string_agg(concat_ws(',', a.attnum, a.attname, a.atttypid, a.atttypmod, a.xmin,
                                    (SELECT string_agg(e.xmin::text, '/' ORDER BY e.oid)
                                     FROM pg_type AS y
                                     JOIN pg_enum AS e ON e.enumtypid = ANY (ARRAY[y.oid, y.typelem, y.typbasetype])
                                     WHERE y.oid = a.atttypid)), ';' ORDER BY a.attnum) AS columns,
               coalesce(array_agg(a.attnum), '{}') AS attnums
        FROM pg_attribute AS a
        WHERE a.attrelid = relid AND a.attnum > 0 AND NOT a.attisdropped AND a.attname !~ '^__pgt_'
    ) AS c
    CROSS JOIN LATERAL (
        SELECT string_agg(concat_ws(',', g.tgname, g.tgenabled, g.xmin), ';' ORDER BY g.tgname) AS triggers,
               bool_and(g.tgenabled IS NOT DISTINCT FROM w.state) AS complete
        FROM pgtrickle._wanted_triggers(relid, (SELECT k.relkind FROM pg_class AS k WHERE k.oid = relid)) AS w
        LEFT JOIN pg_trigger AS g ON g.tgrelid = relid AND g.tgname = w.tgname
    ) AS t
    JOIN pgtrickle.pgt_sources AS s ON s.source_relid = relid
    WHERE b.oid IS NOT NULL AND t.complete AND s.captured_columns @> c.attnums
$$;
COMMENT ON FUNCTION pgtrickle._feed_of(oid) IS
'Internal. What a position in the change feed of a table rests on: the table, its visible columns, its capture. NULL while it is not captured as it should be.';

-- Numbers, booleans and JSON are JSON values; arrays of simple elements are JSON arrays, unless they have explicit bounds; all other values are texts of
-- the type's output function (a cast of char(n) to text would remove blanks). So json_populate_record() returns exactly the row. (Exception: JSON's null
-- in a json column becomes NULL.)
CREATE OR REPLACE FUNCTION pgtrickle._feed_row(relid oid, of_buffer bool) RETURNS text
LANGUAGE sql STABLE SET search_path = pg_catalog, pg_temp AS $$
    WITH RECURSIVE bases AS (
        SELECT a.attnum, a.attname, a.atttypid AS typid
        FROM pg_attribute AS a
        WHERE a.attrelid = relid AND a.attnum > 0 AND NOT a.attisdropped AND a.attname !~ '^__pgt_'
        UNION ALL
        SELECT b.attnum, b.attname, t.typbasetype
        FROM bases AS b
        JOIN pg_type AS t ON t.oid = b.typid AND t.typtype = 'd'
    )
    SELECT string_agg(format(CASE WHEN t.oid = ANY (k.plain || k.json || k.texts) THEN '%1$s AS %2$I'
                                  WHEN t.typcategory = 'A' AND t.typelem = ANY (k.plain || k.texts)
                                      THEN 'CASE WHEN %1$s::text LIKE ''[%%'' THEN to_json(%1$s::text) ELSE to_json(%1$s) END AS %2$I'
                                  ELSE 'CASE WHEN num_nulls(%1$s) = 0 THEN format(''%%s'', %1$s) END AS %2$I' END,
                             '__pgt_t.' || CASE WHEN of_buffer THEN 'c' || b.attnum ELSE quote_ident(b.attname) END, b.attname),
                      ', ' ORDER BY b.attnum)
    FROM bases AS b
    JOIN pg_type AS t ON t.oid = b.typid AND t.typtype <> 'd'
    CROSS JOIN (SELECT '{bool,int2,int4,int8,float4,float8,numeric,oid}'::regtype[]::oid[] AS plain, '{json,jsonb}'::regtype[]::oid[] AS json,
                       '{text,varchar,bpchar,uuid,date,timestamp,timestamptz}'::regtype[]::oid[] AS texts) AS k
$$;
COMMENT ON FUNCTION pgtrickle._feed_row(oid, bool) IS
'Internal. The visible columns of a stream table, of its storage or of its buffer (as __pgt_t), as a list for row_to_json.';

CREATE OR REPLACE FUNCTION pgtrickle._cut_after(a pg_snapshot, b pg_snapshot, last xid8) RETURNS pg_snapshot
LANGUAGE sql IMMUTABLE SET search_path = pg_catalog, pg_temp AS $$
    SELECT format('%s:%s:%s', coalesce(min(o.x), m.top), m.top, string_agg(o.x::text, ',' ORDER BY o.x))::pg_snapshot
    FROM (SELECT greatest(pg_snapshot_xmax(a)::text::numeric, last::text::numeric + 1) AS top) AS m
    LEFT JOIN (SELECT x::text::numeric AS x FROM pg_snapshot_xip(a) AS x WHERE x > last OR NOT pg_visible_in_snapshot(x, b)
               UNION
               SELECT x::text::numeric FROM pg_snapshot_xip(b) AS x WHERE x >= pg_snapshot_xmax(a) AND x <= last) AS o ON true
    GROUP BY m.top
$$;
COMMENT ON FUNCTION pgtrickle._cut_after(pg_snapshot, pg_snapshot, xid8) IS
'Internal. The cut that sees what a has seen and, of what b has seen besides, the transactions up to the last.';

CREATE OR REPLACE FUNCTION pgtrickle._lsn_after(lsn pg_lsn) RETURNS pg_lsn
LANGUAGE sql IMMUTABLE STRICT SET search_path = pg_catalog, pg_temp AS $$
    SELECT format('%s/%s', to_hex(div(n.next, 4294967296)::bigint), to_hex(mod(n.next, 4294967296)::bigint))::pg_lsn
    FROM (SELECT pg_wal_lsn_diff(lsn, '0/0') + 1 AS next) AS n
$$;
COMMENT ON FUNCTION pgtrickle._lsn_after(pg_lsn) IS 'Internal. The next LSN. (PostgreSQL adds to them from version 14 on.)';

-- Roles with SELECT on the whole table, also through membership, may read its feed. Row security does not apply to a buffer.
CREATE OR REPLACE FUNCTION pgtrickle._check_feed_rights(st pgtrickle.pgt_stream_tables, me text) RETURNS void
LANGUAGE plpgsql STABLE SET search_path = pg_catalog, pg_temp AS $$
DECLARE
    caller CONSTANT name := pgtrickle._caller(me);
BEGIN
    IF NOT (coalesce(has_table_privilege(caller, st.pgt_relid, 'SELECT'), false) AND has_schema_privilege(caller, st.pgt_schema::text, 'USAGE')) THEN
        RAISE EXCEPTION USING ERRCODE = 'insufficient_privilege',
            MESSAGE = format('permission denied for the change feed of %I.%I', st.pgt_schema, st.pgt_name),
            HINT = format('GRANT SELECT ON %I.%I TO %I', st.pgt_schema, st.pgt_name, caller);
    END IF;
    IF EXISTS (SELECT FROM pg_class AS c
               WHERE c.oid = st.pgt_relid AND c.relrowsecurity
                 AND NOT (pg_has_role(caller, c.relowner, 'USAGE') AND NOT c.relforcerowsecurity)
                 AND NOT EXISTS (SELECT FROM pg_roles AS r WHERE r.rolname = caller AND (r.rolsuper OR r.rolbypassrls))) THEN
        RAISE EXCEPTION USING ERRCODE = 'insufficient_privilege',
            MESSAGE = format('%I.%I has row security, which its change feed cannot apply', st.pgt_schema, st.pgt_name),
            HINT = 'Only its owner, and roles with BYPASSRLS, can read its feed.';
    END IF;
END
$$;
COMMENT ON FUNCTION pgtrickle._check_feed_rights(pgtrickle.pgt_stream_tables, text) IS 'Internal. Raises unless the caller may read the whole stream table.';

CREATE OR REPLACE FUNCTION pgtrickle._stream_table(id bigint) RETURNS pgtrickle.pgt_stream_tables
LANGUAGE plpgsql STABLE SET search_path = pg_catalog, pg_temp AS $$
DECLARE
    st pgtrickle.pgt_stream_tables;
BEGIN
    SELECT * INTO st FROM pgtrickle.pgt_stream_tables AS t WHERE t.pgt_id = id;
    IF st.pgt_id IS NULL THEN
        RAISE EXCEPTION USING ERRCODE = 'undefined_table',
            MESSAGE = format('stream table %s does not exist', id), HINT = 'It has just been dropped.';
    END IF;
    RETURN st;
END
$$;
COMMENT ON FUNCTION pgtrickle._stream_table(bigint) IS 'Internal. The catalog row of a stream table; raises when there is none.';

CREATE OR REPLACE FUNCTION pgtrickle._subscriber(st pgtrickle.pgt_stream_tables, subscriber text, me text) RETURNS pgtrickle.pgt_subscribers
LANGUAGE plpgsql VOLATILE SET search_path = pg_catalog, pg_temp AS $$
DECLARE
    caller CONSTANT name := pgtrickle._caller(me);
    s pgtrickle.pgt_subscribers;
BEGIN
    SELECT * INTO s FROM pgtrickle.pgt_subscribers AS u WHERE u.pgt_id = st.pgt_id AND u.subscriber = _subscriber.subscriber FOR UPDATE;
    IF s.pgt_id IS NULL THEN
        RAISE EXCEPTION USING ERRCODE = 'undefined_object',
            MESSAGE = format('%I.%I has no subscriber %s', st.pgt_schema, st.pgt_name, coalesce(quote_literal(subscriber), 'NULL')),
            HINT = 'SELECT * FROM pgtrickle.subscribers() lists them; pgtrickle.create_subscriber() makes one.';
    END IF;
    IF NOT pg_has_role(caller, current_user, 'USAGE')
       AND NOT EXISTS (SELECT FROM pg_roles AS r WHERE r.rolname IN (pgtrickle._author(s.created_by, s.created_key),
           pgtrickle._author(st.created_by, st.created_key)) AND pg_has_role(caller, r.oid, 'USAGE')) THEN
        RAISE EXCEPTION USING ERRCODE = 'insufficient_privilege',
            MESSAGE = format('must be the creator of subscriber %s, or of stream table %I.%I', quote_literal(subscriber), st.pgt_schema, st.pgt_name),
            HINT = format('It was created by %I.', s.created_by);
    END IF;
    RETURN s;
END
$$;
COMMENT ON FUNCTION pgtrickle._subscriber(pgtrickle.pgt_stream_tables, text, text) IS
'Internal, called by SECURITY DEFINER functions. Locks a subscriber''s row; raises unless it is the caller''s, or the stream table is.';

CREATE OR REPLACE FUNCTION pgtrickle._create_subscriber(id bigint, subscriber text, me text DEFAULT pgtrickle._me()) RETURNS void
LANGUAGE plpgsql VOLATILE SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
DECLARE
    st CONSTANT pgtrickle.pgt_stream_tables := pgtrickle._stream_table(id);
BEGIN
    IF subscriber IS NULL OR subscriber ~ '^\s*$' THEN
        RAISE EXCEPTION USING ERRCODE = 'invalid_name', MESSAGE = 'a subscriber needs a name', HINT = 'Any text that is not empty.';
    END IF;
    PERFORM pgtrickle._check_feed_rights(st, me);
    INSERT INTO pgtrickle.pgt_subscribers (pgt_id, subscriber, origin, snapshot, lsn, created_by)
    VALUES (id, _create_subscriber.subscriber, pgtrickle._origin(), pg_current_snapshot(), pg_current_wal_insert_lsn(), pgtrickle._caller(me));
    PERFORM pgtrickle._wake('subscribe', id);
    IF NOT pgtrickle._is_served() THEN
        RAISE NOTICE USING
            MESSAGE = format('the change feed of %I.%I begins when a scheduler serves this database', st.pgt_schema, st.pgt_name),
            HINT = 'Start pgtrickle run.';
    END IF;
EXCEPTION WHEN unique_violation THEN
    RAISE EXCEPTION USING ERRCODE = 'duplicate_object',
        MESSAGE = format('%I.%I already has a subscriber %s', st.pgt_schema, st.pgt_name, quote_literal(subscriber)),
        HINT = 'Read on with read_changes(), drop it first, or choose another name.';
END
$$;
COMMENT ON FUNCTION pgtrickle._create_subscriber(bigint, text, text) IS
'Internal. Notes a subscriber and wakes the control plane, which captures the stream table.';

CREATE OR REPLACE FUNCTION pgtrickle.create_subscriber(name text, subscriber text) RETURNS void
LANGUAGE plpgsql VOLATILE AS $$
BEGIN
    PERFORM pgtrickle._require_primary();
    PERFORM pgtrickle._create_subscriber(pgtrickle._find(name), subscriber);
END
$$;
COMMENT ON FUNCTION pgtrickle.create_subscriber(text, text) IS
'Creates a consumer of the changes of a stream table. Requires SELECT on it. From then on changes are kept until this consumer has acknowledged them; '
'see read_changes().';

CREATE OR REPLACE FUNCTION pgtrickle._drop_subscriber(id bigint, subscriber text, me text DEFAULT pgtrickle._me()) RETURNS void
LANGUAGE plpgsql VOLATILE SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
DECLARE
    st CONSTANT pgtrickle.pgt_stream_tables := pgtrickle._stream_table(id);
    s CONSTANT pgtrickle.pgt_subscribers := pgtrickle._subscriber(st, subscriber, me);
BEGIN
    DELETE FROM pgtrickle.pgt_subscribers AS u WHERE u.pgt_id = id AND u.subscriber = s.subscriber;
    PERFORM pgtrickle._wake('subscribe', id);
END
$$;
COMMENT ON FUNCTION pgtrickle._drop_subscriber(bigint, text, text) IS 'Internal. Forgets a subscriber.';

CREATE OR REPLACE FUNCTION pgtrickle.drop_subscriber(name text, subscriber text) RETURNS void
LANGUAGE plpgsql VOLATILE AS $$
BEGIN
    PERFORM pgtrickle._require_primary();
    PERFORM pgtrickle._drop_subscriber(pgtrickle._find(name), subscriber);
END
$$;
COMMENT ON FUNCTION pgtrickle.drop_subscriber(text, text) IS
'Removes a consumer: changes are no longer kept for it. Requires to be its creator or the creator of the stream table. (Remove the slot of a logical '
'subscriber with pg_drop_replication_slot.)';

CREATE OR REPLACE FUNCTION pgtrickle._read_changes(id bigint, subscriber text, max_rows int, me text DEFAULT pgtrickle._me())
RETURNS TABLE (lsn pg_lsn, action text, "row" json)
LANGUAGE plpgsql VOLATILE SECURITY DEFINER
SET search_path = pg_catalog, pg_temp SET datestyle = 'ISO, MDY' SET intervalstyle = 'postgres' SET extra_float_digits = 1 SET bytea_output = 'hex' AS $$
#variable_conflict use_column
DECLARE
    st CONSTANT pgtrickle.pgt_stream_tables := pgtrickle._stream_table(id);
    buffer CONSTANT text := format('pgtrickle_changes.changes_%s', st.pgt_relid);
    unseen CONSTANT text := '__pgt_t.xid >= pg_snapshot_xmin($1) AND __pgt_t.xid < pg_snapshot_xmax($2) AND pg_visible_in_snapshot(__pgt_t.xid, $2)
                             AND NOT pg_visible_in_snapshot(__pgt_t.xid, $1)';
    truncated CONSTANT text := 'the table was truncated, or changed in a way that is not captured row by row';
    s pgtrickle.pgt_subscribers;
    cut pg_snapshot;
    current_feed text;
    reason text;
    w record;
    upto pg_snapshot;
    handle pg_lsn;
    number bigint;
BEGIN
    PERFORM pgtrickle._require_primary();
    IF max_rows IS NULL OR max_rows < 1 THEN
        RAISE EXCEPTION USING ERRCODE = 'invalid_parameter_value', MESSAGE = 'max_rows is out of range', HINT = 'It is 1 or more.';
    END IF;
    PERFORM pgtrickle._check_feed_rights(st, me);
    s := pgtrickle._subscriber(st, subscriber, me);
    IF s.created_xid = pg_current_xact_id_if_assigned() THEN
        -- no other session sees it yet, so no changes would be kept for it
        RAISE EXCEPTION USING ERRCODE = 'object_not_in_prerequisite_state',
            MESSAGE = format('subscriber %s was created in this transaction', quote_literal(s.subscriber)), HINT = 'Commit first.';
    END IF;
    -- Both in one statement, after the row was locked: see capture/compact.py for why no cut of before may be offered.
    SELECT pg_current_snapshot(), pgtrickle._feed_of(st.pgt_relid) INTO cut, current_feed;
    UPDATE pgtrickle.pgt_subscribers AS u SET read_at = clock_timestamp() WHERE u.pgt_id = id AND u.subscriber = s.subscriber;
    IF current_feed IS NULL THEN
        RAISE NOTICE USING
            MESSAGE = format('changes of %I.%I are not captured yet', st.pgt_schema, st.pgt_name),
            HINT = CASE WHEN NOT st.is_populated THEN 'It is to be loaded first.' WHEN pgtrickle._is_served() THEN 'Ask again in a moment.'
                ELSE 'No scheduler is connected to this database: start pgtrickle run.' END;
        RETURN;
    END IF;
    reason := CASE WHEN s.feed IS NULL THEN 'the feed begins'
                   WHEN s.feed <> current_feed THEN 'the table, its columns or its capture were changed'
                   WHEN s.offered_reset THEN truncated END;
    IF s.offered_reset AND s.offered_feed = current_feed THEN
        -- The same rows again: what is there now, less what has changed since. None if that is not known row by row.
        RETURN QUERY EXECUTE format($sql$
            WITH since AS (
                SELECT * FROM %1$s AS b WHERE b.xid >= pg_snapshot_xmin($1) AND NOT pg_visible_in_snapshot(b.xid, $1)
            )
            SELECT $2, r.action, r.image
            FROM (SELECT 0 AS place, 'reset' AS action, $3 AS image
                  UNION ALL
                  SELECT 1, 'insert', n.image::json
                  FROM (SELECT i.image, sum(i.weight) AS weight
                        FROM (SELECT row_to_json(__pgt_r)::text COLLATE "C" AS image, 1 AS weight
                              FROM %2$s AS __pgt_t CROSS JOIN LATERAL (SELECT %3$s) AS __pgt_r
                              UNION ALL
                              SELECT row_to_json(__pgt_r)::text, CASE __pgt_t.action WHEN 'I' THEN -1 ELSE 1 END
                              FROM since AS __pgt_t CROSS JOIN LATERAL (SELECT %4$s) AS __pgt_r) AS i
                        GROUP BY i.image
                        HAVING sum(i.weight) > 0) AS n
                  CROSS JOIN LATERAL generate_series(1, n.weight)) AS r
            WHERE NOT EXISTS (SELECT FROM since AS x WHERE x.action = 'T')
            ORDER BY r.place
            $sql$, buffer, st.pgt_relid::regclass, pgtrickle._feed_row(st.pgt_relid, false), pgtrickle._feed_row(st.pgt_relid, true))
        USING s.offered, s.offered_lsn, json_build_object('reason', reason);
        GET DIAGNOSTICS number = ROW_COUNT;
        IF number > 0 THEN
            RETURN;
        END IF;
    END IF;
    WHILE reason IS NULL LOOP
        IF s.offered IS NOT NULL THEN
            upto := s.offered;
            handle := s.offered_lsn;
        ELSE
            -- Whole transactions, in the order of their ids, which is that of refreshes of one table: they fence one another.
            EXECUTE format($sql$
                SELECT count(*) AS transactions, coalesce(bool_or(w.truncated), false) AS truncated, coalesce(bool_and(w.taken), true) AS whole,
                       (array_agg(w.xid ORDER BY w.xid DESC) FILTER (WHERE w.taken))[1] AS last, max(w.lsn) FILTER (WHERE w.taken) AS lsn
                FROM (SELECT x.*, x.before = 0 OR x.before + x.number <= $3 OR coalesce(x.xid < $4, false) AS taken
                      FROM (SELECT __pgt_t.xid, count(*) AS number, max(__pgt_t.lsn) AS lsn, bool_or(__pgt_t.action = 'T') AS truncated,
                                   sum(count(*)) OVER (ORDER BY __pgt_t.xid) - count(*) AS before
                            FROM %s AS __pgt_t
                            WHERE %s
                            GROUP BY __pgt_t.xid) AS x) AS w
                $sql$, buffer, unseen)
            INTO w
            USING s.snapshot, cut, max_rows, s.netted;
            IF w.truncated THEN
                reason := truncated;
                EXIT;
            END IF;
            upto := CASE WHEN w.whole THEN cut ELSE pgtrickle._cut_after(s.snapshot, cut, w.last) END;
            handle := greatest(CASE WHEN w.whole THEN pg_current_wal_insert_lsn() ELSE w.lsn END, pgtrickle._lsn_after(s.lsn));
        END IF;
        -- Net: one image that came and went is nothing, and rows go before others come.
        RETURN QUERY EXECUTE format($sql$
            SELECT $3, CASE WHEN n.weight > 0 THEN 'insert' ELSE 'delete' END, n.image::json
            FROM (SELECT i.image, sum(i.weight) AS weight
                  FROM (SELECT row_to_json(__pgt_r)::text COLLATE "C" AS image, CASE __pgt_t.action WHEN 'I' THEN 1 ELSE -1 END AS weight
                        FROM %s AS __pgt_t
                        CROSS JOIN LATERAL (SELECT %s) AS __pgt_r
                        WHERE %s) AS i
                  GROUP BY i.image
                  HAVING sum(i.weight) <> 0) AS n
            CROSS JOIN LATERAL generate_series(1, abs(n.weight))
            ORDER BY n.weight > 0, n.image
            $sql$, buffer, pgtrickle._feed_row(st.pgt_relid, true), unseen)
        USING s.snapshot, upto, handle;
        GET DIAGNOSTICS number = ROW_COUNT;
        IF number > 0 THEN
            UPDATE pgtrickle.pgt_subscribers AS u
            SET offered = upto, offered_lsn = handle, offered_feed = current_feed
            WHERE u.pgt_id = id AND u.subscriber = s.subscriber;
            RETURN;
        END IF;
        -- Nothing to acknowledge: it is there.
        UPDATE pgtrickle.pgt_subscribers AS u
        SET snapshot = upto, offered = NULL, offered_lsn = NULL, offered_feed = NULL
        WHERE u.pgt_id = id AND u.subscriber = s.subscriber
        RETURNING * INTO s;
        IF upto::text = cut::text THEN
            RETURN;
        END IF;
    END LOOP;
    handle := greatest(pg_current_wal_insert_lsn(), pgtrickle._lsn_after(s.lsn), pgtrickle._lsn_after(s.offered_lsn));
    RETURN QUERY SELECT handle, 'reset'::text, json_build_object('reason', reason);
    -- The rows and the cut that they are of, in one statement.
    RETURN QUERY EXECUTE format($sql$
        WITH offer AS (
            UPDATE pgtrickle.pgt_subscribers AS u
            SET offered = pg_current_snapshot(), offered_lsn = $1, offered_feed = $2, offered_reset = true
            WHERE u.pgt_id = $3 AND u.subscriber = $4
        )
        SELECT $1, 'insert'::text, row_to_json(__pgt_r)
        FROM %s AS __pgt_t
        CROSS JOIN LATERAL (SELECT %s) AS __pgt_r
        $sql$, st.pgt_relid::regclass, pgtrickle._feed_row(st.pgt_relid, false))
    USING handle, current_feed, id, s.subscriber;
END
$$;
COMMENT ON FUNCTION pgtrickle._read_changes(bigint, text, int, text) IS
'Internal. The changes that a subscriber has not acknowledged, and the note that it was offered them.';

CREATE OR REPLACE FUNCTION pgtrickle.read_changes(name text, subscriber text, max_rows int DEFAULT 10000)
RETURNS TABLE (lsn pg_lsn, action text, "row" json)
LANGUAGE sql VOLATILE ROWS 1000 AS $$
    SELECT c.lsn, c.action, c."row" FROM pgtrickle._read_changes(pgtrickle._find(name), subscriber, max_rows) AS c
$$;
COMMENT ON FUNCTION pgtrickle.read_changes(text, text, int) IS
'The net changes of a stream table since the LSN that this subscriber has acknowledged: first rows to delete, then rows to insert, one row per copy. '
'All rows of one call have the same lsn: when they are applied, acknowledge_changes(name, subscriber, lsn). Until then the same rows are returned '
'again. No rows: nothing has changed. The action reset, always first, means: empty your copy, all rows follow; a feed begins with it. max_rows counts '
'captured changes, taken by whole transactions, so one large refresh may exceed it.';

CREATE OR REPLACE FUNCTION pgtrickle._acknowledge_changes(id bigint, subscriber text, lsn pg_lsn, me text DEFAULT pgtrickle._me()) RETURNS bool
LANGUAGE plpgsql VOLATILE SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
DECLARE
    st CONSTANT pgtrickle.pgt_stream_tables := pgtrickle._stream_table(id);
    s CONSTANT pgtrickle.pgt_subscribers := pgtrickle._subscriber(st, subscriber, me);
BEGIN
    IF _acknowledge_changes.lsn = s.offered_lsn THEN
        UPDATE pgtrickle.pgt_subscribers AS u
        SET origin = pgtrickle._origin(), snapshot = s.offered, lsn = s.offered_lsn, feed = s.offered_feed,
            offered = NULL, offered_lsn = NULL, offered_feed = NULL, offered_reset = false, acknowledged_at = clock_timestamp()
        WHERE u.pgt_id = id AND u.subscriber = s.subscriber;
        RETURN true;
    END IF;
    IF _acknowledge_changes.lsn <= s.lsn THEN
        RETURN false;
    END IF;
    RAISE EXCEPTION USING ERRCODE = 'invalid_parameter_value',
        MESSAGE = format('%s is not the lsn of the last read of subscriber %s', coalesce(_acknowledge_changes.lsn::text, 'NULL'), quote_literal(s.subscriber)),
        HINT = 'Acknowledge the lsn of the latest read_changes(), or read again: unacknowledged changes are returned again.';
END
$$;
COMMENT ON FUNCTION pgtrickle._acknowledge_changes(bigint, text, pg_lsn, text) IS 'Internal. Moves a subscriber to the cut that it was offered.';

CREATE OR REPLACE FUNCTION pgtrickle.acknowledge_changes(name text, subscriber text, lsn pg_lsn) RETURNS bool
LANGUAGE plpgsql VOLATILE AS $$
BEGIN
    PERFORM pgtrickle._require_primary();
    RETURN pgtrickle._acknowledge_changes(pgtrickle._find(name), subscriber, lsn);
END
$$;
COMMENT ON FUNCTION pgtrickle.acknowledge_changes(text, text, pg_lsn) IS
'Acknowledges the changes that read_changes() returned with this LSN: they are not returned again, and are no longer kept for this subscriber. Returns '
'false if they were acknowledged before. In one transaction with the application of the changes (in the same database), they are applied exactly once.';

CREATE OR REPLACE FUNCTION pgtrickle._subscriber_position(id bigint, subscriber text, me text DEFAULT pgtrickle._me())
RETURNS TABLE (lsn pg_lsn, acknowledged_at timestamptz)
LANGUAGE plpgsql VOLATILE SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
DECLARE
    st CONSTANT pgtrickle.pgt_stream_tables := pgtrickle._stream_table(id);
    s pgtrickle.pgt_subscribers;
BEGIN
    PERFORM pgtrickle._check_feed_rights(st, me);
    s := pgtrickle._subscriber(st, subscriber, me);
    RETURN QUERY SELECT CASE WHEN s.acknowledged_at IS NOT NULL THEN s.lsn END, s.acknowledged_at;
END
$$;
COMMENT ON FUNCTION pgtrickle._subscriber_position(bigint, text, text) IS 'Internal. What a subscriber has acknowledged last.';

CREATE OR REPLACE FUNCTION pgtrickle.subscriber_position(name text, subscriber text) RETURNS TABLE (lsn pg_lsn, acknowledged_at timestamptz)
LANGUAGE sql VOLATILE AS $$
    SELECT p.lsn, p.acknowledged_at FROM pgtrickle._subscriber_position(pgtrickle._find(name), subscriber) AS p
$$;
COMMENT ON FUNCTION pgtrickle.subscriber_position(text, text) IS
'The LSN that a consumer of changes has acknowledged last, and when; NULL if it has acknowledged nothing. For consumers that keep positions of their '
'own and have to notice that both differ.';

-- SECURITY DEFINER because buffers are private; for those who may read the stream table, and its creator.
CREATE OR REPLACE FUNCTION pgtrickle._subscriber_lags(me text DEFAULT pgtrickle._me())
RETURNS TABLE (pgt_id bigint, subscriber text, pending_rows bigint, oldest_lsn pg_lsn, lsn pg_lsn, read_at timestamptz, created_at timestamptz)
LANGUAGE plpgsql STABLE SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
#variable_conflict use_column
DECLARE
    caller CONSTANT name := pgtrickle._caller(me);
    s record;
BEGIN
    FOR s IN
        SELECT u.pgt_id, u.subscriber, u.snapshot, u.lsn, u.read_at, u.created_at, to_regclass('pgtrickle_changes.changes_' || st.pgt_relid) AS buffer
        FROM pgtrickle.pgt_subscribers AS u
        JOIN pgtrickle.pgt_stream_tables AS st ON st.pgt_id = u.pgt_id
        WHERE pg_has_role(caller, current_user, 'USAGE') OR coalesce(has_table_privilege(caller, st.pgt_relid, 'SELECT'), false)
           OR EXISTS (SELECT FROM pg_roles AS r WHERE r.rolname = pgtrickle._author(st.created_by, st.created_key) AND pg_has_role(caller, r.oid, 'USAGE'))
    LOOP
        IF s.buffer IS NULL THEN
            RETURN QUERY SELECT s.pgt_id, s.subscriber, 0::bigint, NULL::pg_lsn, s.lsn, s.read_at, s.created_at;
        ELSE
            RETURN QUERY EXECUTE format('SELECT $1, $2, count(*), min(b.lsn), $4, $5, $6 FROM %s AS b WHERE b.xid >= pg_snapshot_xmin($3) AND NOT '
                'pg_visible_in_snapshot(b.xid, $3)', s.buffer)
            USING s.pgt_id, s.subscriber, s.snapshot, s.lsn, s.read_at, s.created_at;
        END IF;
    END LOOP;
END
$$;
COMMENT ON FUNCTION pgtrickle._subscriber_lags(text) IS
'Internal. Per pull consumer of stream tables that the caller may read: changes that it has not acknowledged, the LSN of the oldest, and where it is.';

CREATE OR REPLACE FUNCTION pgtrickle._holding_slots() RETURNS TABLE (slot_name name, lsn pg_lsn, active bool, since timestamptz)
LANGUAGE sql STABLE SET search_path = pg_catalog, pg_temp AS $$
    SELECT r.slot_name, r.confirmed_flush_lsn, r.active,
           -- inactive_since: PostgreSQL 17 on
           CASE WHEN r.active THEN a.backend_start ELSE (to_jsonb(r) ->> 'inactive_since')::timestamptz END
    FROM pg_replication_slots AS r
    LEFT JOIN pg_stat_replication AS a ON a.pid = r.active_pid
    WHERE r.slot_type = 'logical' AND r.plugin = 'pgoutput' AND r.database = current_database() AND r.wal_status IS DISTINCT FROM 'lost'
$$;
COMMENT ON FUNCTION pgtrickle._holding_slots() IS
'Internal. Logical replication slots of this database that can be of a publication, unless they are lost for good. PostgreSQL does not record which '
'publications a slot reads.';

CREATE OR REPLACE FUNCTION pgtrickle.subscribers()
RETURNS TABLE (kind text, stream_table text, subscriber text, lsn pg_lsn, lag_bytes bigint, pending_rows bigint, active bool, since timestamptz)
LANGUAGE sql STABLE SET search_path = pg_catalog, pg_temp AS $$
    WITH here AS (SELECT CASE WHEN pg_is_in_recovery() THEN pg_last_wal_replay_lsn() ELSE pg_current_wal_insert_lsn() END AS lsn)
    SELECT 'pull', format('%I.%I', st.pgt_schema, st.pgt_name), l.subscriber, l.lsn,
           greatest(coalesce(pg_wal_lsn_diff(h.lsn, l.oldest_lsn), 0), 0)::bigint, l.pending_rows,
           coalesce(l.read_at > clock_timestamp() - interval '5 minutes', false), coalesce(l.read_at, l.created_at)
    FROM here AS h
    CROSS JOIN pgtrickle._subscriber_lags() AS l
    JOIN pgtrickle.pgt_stream_tables AS st ON st.pgt_id = l.pgt_id
    UNION ALL
    SELECT 'slot', NULL, r.slot_name, r.lsn, greatest(pg_wal_lsn_diff(h.lsn, r.lsn), 0)::bigint, NULL, r.active, r.since
    FROM here AS h
    CROSS JOIN pgtrickle._holding_slots() AS r
    WHERE EXISTS (SELECT FROM pgtrickle.pgt_publications)
    ORDER BY 1, 2, 3
$$;
COMMENT ON FUNCTION pgtrickle.subscribers() IS
'Subscribers of stream tables. pull: consumers of change feeds, shown to roles that may read the stream table; lsn is what they have acknowledged, '
'lag_bytes the distance from the oldest change that they have not, since when they last read, active within five minutes. slot: while a stream table '
'is published, the logical replication slots of this database (pgoutput), each with what it has confirmed; PostgreSQL does not record which '
'publications a slot reads, so stream_table is NULL.';
