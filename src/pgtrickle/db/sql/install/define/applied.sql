-- Definitions that are kept in files: functions of `pgtrickle apply` and `pgtrickle export`.

CREATE OR REPLACE FUNCTION pgtrickle._options_of(id bigint) RETURNS jsonb
LANGUAGE sql STABLE SET search_path = pg_catalog, pg_temp AS $$
    SELECT jsonb_strip_nulls(jsonb_build_object(
               'schedule', nullif(st.schedule, 'calculated'), 'refresh_mode', nullif(st.refresh_mode, 'AUTO'),
               'diamond_consistency', st.diamond_consistency, 'diamond_schedule_policy', st.diamond_schedule_policy, 'cdc_mode', st.cdc_mode,
               'append_only', nullif(st.append_only, false), 'pooler_compatibility_mode', nullif(st.pooler_compatibility_mode, false),
               'tier', CASE WHEN st.tier_pinned THEN st.refresh_tier END, 'partition_by', st.partition_by,
               'max_differential_joins', st.max_differential_joins, 'max_delta_fraction', st.max_delta_fraction, 'engine', st.engine))
    FROM pgtrickle.pgt_stream_tables AS st
    WHERE st.pgt_id = id
$$;
COMMENT ON FUNCTION pgtrickle._options_of(bigint) IS 'Internal. The options of a stream table that are not the default.';

-- No SET search_path: names in the query are resolved along the caller's.
CREATE OR REPLACE FUNCTION pgtrickle._normalised(query text) RETURNS text
LANGUAGE plpgsql VOLATILE AS $$
DECLARE
    -- a statement of its own: what describes the view must see it
    probe CONSTANT oid := pgtrickle._probe(query);
    found text;
BEGIN
    SELECT d.defining_query INTO STRICT found FROM pgtrickle._describe(probe) AS d;
    PERFORM pgtrickle._drop_probe();
    RETURN found;
END
$$;
COMMENT ON FUNCTION pgtrickle._normalised(text) IS 'Internal. A query as it would be stored in defining_query; raises when PostgreSQL refuses it.';

CREATE OR REPLACE FUNCTION pgtrickle._note_applied(id bigint, set_name text, unset text[], me text DEFAULT pgtrickle._me()) RETURNS void
LANGUAGE plpgsql VOLATILE SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
BEGIN
    PERFORM pgtrickle._authorize(id, me);
    IF 'partition_by' = ANY (unset) THEN
        RAISE EXCEPTION USING ERRCODE = 'wrong_object_type',
            MESSAGE = 'partition_by cannot be changed', HINT = 'Drop the stream table and create it again.';
    END IF;
    UPDATE pgtrickle.pgt_stream_tables AS st
    SET applied_from = coalesce(set_name, st.applied_from),
        diamond_consistency = CASE WHEN 'diamond_consistency' <> ALL (unset) THEN st.diamond_consistency END,
        diamond_schedule_policy = CASE WHEN 'diamond_schedule_policy' <> ALL (unset) THEN st.diamond_schedule_policy END,
        cdc_mode = CASE WHEN 'cdc_mode' <> ALL (unset) THEN st.cdc_mode END,
        max_differential_joins = CASE WHEN 'max_differential_joins' <> ALL (unset) THEN st.max_differential_joins END,
        max_delta_fraction = CASE WHEN 'max_delta_fraction' <> ALL (unset) THEN st.max_delta_fraction END,
        engine = CASE WHEN 'engine' <> ALL (unset) THEN st.engine END,
        epoch = st.epoch + least(cardinality(unset), 1)
    WHERE st.pgt_id = id;
    IF unset <> '{}' THEN
        PERFORM pgtrickle._wake('alter', id);
    END IF;
END
$$;
COMMENT ON FUNCTION pgtrickle._note_applied(bigint, text, text[], text) IS
'Internal. Notes the set that a stream table comes from (NULL leaves it), and takes options back to "not set", which alter_stream_table cannot.';

CREATE OR REPLACE FUNCTION pgtrickle._note_group_applied(group_name text, set_name text, me text DEFAULT pgtrickle._me()) RETURNS void
LANGUAGE sql VOLATILE SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
    UPDATE pgtrickle.pgt_refresh_groups AS g
    SET applied_from = set_name
    WHERE g.group_name = _note_group_applied.group_name
      AND (pg_has_role(pgtrickle._caller(me), current_user, 'USAGE')
           OR pg_has_role(pgtrickle._caller(me), (SELECT r.oid FROM pg_roles AS r WHERE r.rolname = pgtrickle._author(g.created_by, g.created_key)), 'USAGE'))
$$;
COMMENT ON FUNCTION pgtrickle._note_group_applied(text, text, text) IS 'Internal. Notes the set that a refresh group of the caller comes from.';

CREATE OR REPLACE FUNCTION pgtrickle._asked(me text DEFAULT pgtrickle._me())
RETURNS TABLE (schema_name name, table_name name, label text, query text, options jsonb, refusal text)
LANGUAGE sql STABLE SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
    SELECT d.pgt_schema, d.pgt_name, format('%I.%I', d.pgt_schema, d.pgt_name), d.query, d.options - 'session_settings', CASE WHEN d.is_final
        THEN d.error_message END
    FROM pgtrickle.pgt_definitions AS d
    WHERE pg_has_role(pgtrickle._caller(me), current_user, 'USAGE')
       OR coalesce((SELECT pg_has_role(pgtrickle._caller(me), r.oid, 'USAGE') FROM pg_roles AS r
           WHERE r.rolname = pgtrickle._author(d.created_by, d.created_key)), false)
$$;
COMMENT ON FUNCTION pgtrickle._asked(text) IS
'Internal. Definitions over other databases that the caller, or a role of the caller, has asked for and that are not there.';

CREATE OR REPLACE FUNCTION pgtrickle._note_asked(schema_name name, table_name name, options jsonb, me text DEFAULT pgtrickle._me()) RETURNS void
LANGUAGE sql VOLATILE SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
    UPDATE pgtrickle.pgt_definitions AS d
    SET options = d.options || pgtrickle._check_options(_note_asked.options)
    WHERE d.pgt_schema = schema_name AND d.pgt_name = table_name
      AND EXISTS (SELECT FROM pgtrickle._asked(me) AS a WHERE a.schema_name = d.pgt_schema AND a.table_name = d.pgt_name)
$$;
COMMENT ON FUNCTION pgtrickle._note_asked(name, name, jsonb, text) IS 'Internal. Adds tier and applied_from to a definition over other databases that waits.';

CREATE OR REPLACE FUNCTION pgtrickle._forget_asked(schema_name name, table_name name, me text DEFAULT pgtrickle._me()) RETURNS void
LANGUAGE sql VOLATILE SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
    DELETE FROM pgtrickle.pgt_definitions AS d
    WHERE d.pgt_schema = schema_name AND d.pgt_name = table_name
      AND EXISTS (SELECT FROM pgtrickle._asked(me) AS a WHERE a.schema_name = d.pgt_schema AND a.table_name = d.pgt_name)
$$;
COMMENT ON FUNCTION pgtrickle._forget_asked(name, name, text) IS 'Internal. Takes back a definition over other databases that the caller has asked for.';
