-- Definitions from before it was checked what code a query reaches: it is checked now, as create_stream_table would. What it would refuse stops.

-- Finds out what an earlier definition reaches and who evaluates it. Returns why it must not be evaluated, or NULL.
CREATE OR REPLACE FUNCTION pgtrickle._judge_earlier(id bigint) RETURNS text
LANGUAGE plpgsql VOLATILE SET search_path = pg_catalog, pg_temp AS $$
DECLARE
    keeper CONSTANT oid := pgtrickle._keeper();
    mirrors CONSTANT oid[] := ARRAY(SELECT t.pgt_relid FROM pgtrickle.pgt_mirrors AS m JOIN pgtrickle.pgt_stream_tables AS t ON t.pgt_id = m.pgt_id);
    fingerprints CONSTANT jsonb := (SELECT jsonb_object_agg(d.source_relid, d.fingerprint) FROM pgtrickle.pgt_dependencies AS d WHERE d.pgt_id = id);
    st pgtrickle.pgt_stream_tables;
    author oid;
    types oid[];
    problem text;
    hint text;
BEGIN
    SELECT * INTO STRICT st FROM pgtrickle.pgt_stream_tables AS t WHERE t.pgt_id = id FOR UPDATE;
    SELECT r.oid INTO author FROM pg_roles AS r WHERE r.rolname = pgtrickle._author(st.created_by, st.created_key);
    IF author IS NULL THEN
        RETURN format('role %I, who created it, was dropped', st.created_by);
    END IF;
    -- To parse the text reads constants of its types, which runs what is behind these: so they come first.
    SELECT coalesce(array_agg(n.objid), '{}') INTO types FROM pgtrickle.pgt_names AS n WHERE n.pgt_id = id AND n.classid = 'pg_type'::regclass;
    IF author <> keeper AND types <> '{}' THEN
        problem := pgtrickle._untrusted_among(NULL, keeper, false, types);
        IF problem IS NOT NULL THEN
            RETURN problem;
        END IF;
    END IF;
    EXECUTE 'CREATE TEMPORARY VIEW __pgt_earlier AS ' || st.defining_query;
    PERFORM pgtrickle._check_rights('pg_temp.__pgt_earlier'::regclass, keeper, author, mirrors);
    UPDATE pgtrickle.pgt_stream_tables AS t
    SET run_as = pgtrickle._who_evaluates('pg_temp.__pgt_earlier'::regclass, author, keeper)
    WHERE t.pgt_id = id;
    PERFORM pgtrickle._store_dependencies(id, 'pg_temp.__pgt_earlier'::regclass, author, mirrors);
    UPDATE pgtrickle.pgt_dependencies AS d SET fingerprint = fingerprints ->> d.source_relid::text WHERE d.pgt_id = id;
    EXECUTE 'DROP VIEW pg_temp.__pgt_earlier';
    RETURN NULL;
EXCEPTION WHEN OTHERS THEN
    GET STACKED DIAGNOSTICS problem = MESSAGE_TEXT, hint = PG_EXCEPTION_HINT;
    RETURN concat_ws('; ', problem, nullif(hint, ''));
END
$$;
DO $$
DECLARE
    earlier record;
    problem text;
BEGIN
    UPDATE pgtrickle.pgt_stream_tables AS st SET is_judged = true
    WHERE NOT st.is_judged AND st.pgt_id IN (SELECT m.pgt_id FROM pgtrickle.pgt_mirrors AS m);
    FOR earlier IN
        SELECT st.pgt_id
        FROM pgtrickle.pgt_stream_tables AS st
        WHERE NOT st.is_judged AND st.defined_in = pgtrickle._place()
        ORDER BY st.pgt_id
    LOOP
        problem := pgtrickle._judge_earlier(earlier.pgt_id);
        IF problem IS NOT NULL THEN
            UPDATE pgtrickle.pgt_stream_tables AS st
            SET status = 'ERROR', epoch = st.epoch + 1, updated_at = clock_timestamp(),
                last_error_code = NULL, last_error_message = 'it is not evaluated any more: ' || problem || '; create_or_replace_stream_table defines it again'
            WHERE st.pgt_id = earlier.pgt_id;
        END IF;
    END LOOP;
END
$$;
DROP FUNCTION pgtrickle._judge_earlier(bigint);
