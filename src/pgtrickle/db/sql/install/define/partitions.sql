-- Partitioned stream tables (ADR 41): what partition_by says, and the partitions, which the apply creates before it inserts rows.
-- A range begins at a multiple of its step: months since year 0, days and hours since 2001-01-01 (a Monday, UTC), numbers since 0. Values outside
-- the years 1 to 9999, or outside the range of the type, belong to the first or last partition, which is unbounded.

CREATE OR REPLACE FUNCTION pgtrickle._partitioning(spec text, OUT strategy text, OUT column_name text, OUT step text)
LANGUAGE plpgsql IMMUTABLE SET search_path = pg_catalog, pg_temp AS $$
DECLARE
    column_pattern CONSTANT text := '("(?:[^"]|"")+"|[^\s"(),:]+)';
    m text[] := coalesce(regexp_match(spec, '^\s*(range|list|hash)\s*\(\s*' || column_pattern || '\s*(?:,\s*([^()]+))?\)\s*$', 'i'),
                         regexp_match(spec, '^\s*(range|list|hash)\s*:\s*' || column_pattern || '\s*(?::\s*([^()]+))?$', 'i'),
                         (SELECT ARRAY[NULL, c[1], NULL] FROM regexp_match(spec, '^\s*' || column_pattern || '\s*$') AS c));
    parts text[];
BEGIN
    BEGIN
        parts := parse_ident(m[2]);
    EXCEPTION WHEN invalid_parameter_value THEN
        parts := NULL;
    END;
    IF cardinality(parts) IS DISTINCT FROM 1 THEN
        RAISE EXCEPTION USING ERRCODE = 'invalid_parameter_value',
            MESSAGE = format('%s is not a partition_by', quote_literal(spec)),
            HINT = 'Write RANGE(day, 1 month), LIST(region), HASH(id, 8) or the name of a column.';
    END IF;
    strategy := upper(m[1]);
    column_name := parts[1];
    step := nullif(btrim(m[3], E' \t\n\r'''), '');
END
$$;
COMMENT ON FUNCTION pgtrickle._partitioning(text) IS
'Internal. The parts of partition_by; raises when it is not one. NULL strategy: the type of the column decides.';

CREATE OR REPLACE FUNCTION pgtrickle._interval_step(step text, OUT months int, OUT seconds bigint)
LANGUAGE plpgsql IMMUTABLE SET search_path = pg_catalog, pg_temp SET intervalstyle = 'postgres' AS $$
DECLARE
    i interval;
    rest interval;
BEGIN
    i := step::interval;
    months := extract(year FROM i) * 12 + extract(month FROM i);
    rest := i - make_interval(months => months);
    seconds := extract(epoch FROM rest);
    IF (months > 0) = (seconds > 0) OR months < 0 OR seconds < 0 OR extract(epoch FROM rest)::numeric <> seconds OR months > 12000 THEN
        months := NULL;
    END IF;
EXCEPTION WHEN data_exception OR invalid_text_representation THEN
    months := NULL;
END
$$;
COMMENT ON FUNCTION pgtrickle._interval_step(text) IS 'Internal. A step as months, or as seconds (of which one is 0); NULL months: it is not a step.';

CREATE OR REPLACE FUNCTION pgtrickle._partition_key(spec text, output_columns jsonb, OUT strategy text, OUT column_name text, OUT typid oid, OUT step text)
LANGUAGE plpgsql STABLE SET search_path = pg_catalog, pg_temp AS $$
DECLARE
    dates CONSTANT oid[] := '{1082,1114,1184}';  -- date, timestamp, timestamptz
    integers CONSTANT oid[] := '{20,21,23}';
    c jsonb;
    type text;
    message text;
    hint text;
BEGIN
    SELECT p.strategy, p.column_name, p.step INTO strategy, column_name, step FROM pgtrickle._partitioning(spec) AS p;
    SELECT e.c INTO c FROM jsonb_array_elements(output_columns) AS e(c) WHERE e.c ->> 'name' = column_name;
    typid := (c ->> 'typid')::oid;
    type := c ->> 'type';
    IF c IS NULL THEN
        message := format('the query returns no column %I', column_name);
        hint := 'Its columns are ' || (SELECT string_agg(quote_ident(e.c ->> 'name'), ', ') FROM jsonb_array_elements(output_columns) AS e(c)) || '.';
    ELSIF typid >= 16384 AND NOT EXISTS (SELECT FROM pg_type AS t WHERE t.oid = typid AND t.typtype = 'e') THEN
        message := format('a stream table cannot be partitioned by %I, which has type %s', column_name, type);
        hint := 'Use a column of a built-in type or of an enum type; cast it in the query.';
    END IF;
    strategy := coalesce(strategy, CASE WHEN typid = ANY (dates) THEN 'RANGE' WHEN NOT typid = ANY (integers || 1700::oid) THEN 'LIST' END);
    IF message IS NOT NULL THEN
        NULL;
    ELSIF strategy IS NULL THEN
        message := format('how to partition by %I, which has type %s, is not said', column_name, type);
        hint := format('Write RANGE(%1$I, 1000000), LIST(%1$I) or HASH(%1$I, 8).', column_name);
    ELSIF strategy = 'RANGE' AND typid = ANY (dates) THEN
        step := coalesce(step, '1 month');
        IF (SELECT i.months IS NULL OR i.seconds % CASE WHEN typid = 1082 THEN 86400 ELSE 1 END <> 0 FROM pgtrickle._interval_step(step) AS i) THEN
            message := format('%s is not a step of a range over %s', quote_literal(step), type);
            hint := CASE WHEN typid = 1082 THEN 'Write a number of days, months or years: 1 month.'
                         ELSE 'Write a number of hours, days, months or years: 1 month.' END;
        END IF;
    ELSIF strategy = 'RANGE' AND typid = ANY (integers || 1700::oid) THEN
        IF step IS NULL OR step !~ '^[0-9]{1,18}$' OR step ~ '^0+$' THEN
            message := format('a range over %s needs the number of values of a partition', type);
            hint := format('Write RANGE(%I, 1000000).', column_name);
        END IF;
    ELSIF strategy = 'RANGE' THEN
        message := format('ranges of type %s are not supported', type);
        hint := format('Write LIST(%1$I) or HASH(%1$I, 8).', column_name);
    ELSIF strategy = 'LIST' AND step IS NOT NULL THEN
        message := 'LIST takes a column and nothing else';
        hint := format('Write LIST(%I).', column_name);
    ELSIF strategy = 'LIST' AND typid < 16384 AND NOT typid = ANY (dates || integers || '{16,19,25,1042,1043,1700,2950}'::oid[])
          OR strategy = 'LIST' AND EXISTS (SELECT FROM pg_collation AS l WHERE l.oid = (c ->> 'collation')::oid AND NOT l.collisdeterministic) THEN
        message := format('a partition for each value of %I, which has type %s, is not possible', column_name, type);
        hint := format('Write HASH(%I, 8).', column_name);
    ELSIF strategy = 'HASH' THEN
        step := coalesce(step, '8');
        IF step !~ '^[0-9]{1,4}$' OR step::int NOT BETWEEN 1 AND 1000 THEN
            message := format('%s is not a number of partitions', quote_literal(step));
            hint := 'It lies between 1 and 1000.';
        END IF;
    END IF;
    IF message IS NOT NULL THEN
        RAISE EXCEPTION USING ERRCODE = 'invalid_parameter_value', MESSAGE = 'partition_by: ' || message, HINT = hint;
    END IF;
END
$$;
COMMENT ON FUNCTION pgtrickle._partition_key(text, jsonb) IS
'Internal. How a table with these columns is partitioned: RANGE, LIST or HASH, column, its type, and the step or the number of partitions; raises when it '
'cannot be.';

CREATE OR REPLACE FUNCTION pgtrickle._time_range(typid oid, step text, key text, OUT lower text, OUT upper text, OUT suffix text)
LANGUAGE plpgsql IMMUTABLE STRICT SET search_path = pg_catalog, pg_temp SET datestyle = 'ISO, MDY' SET timezone = 'UTC' AS $$
DECLARE
    first CONSTANT timestamp := '0001-01-01';
    last CONSTANT timestamp := '10000-01-01';
    origin CONSTANT timestamp := '2001-01-01';
    pattern CONSTANT text := CASE typid WHEN 1082 THEN 'YYYY-MM-DD' WHEN 1114 THEN 'YYYY-MM-DD HH24:MI:SS' ELSE 'YYYY-MM-DD HH24:MI:SS"+00"' END;
    s record;
    at timestamp;
    n bigint;
    since timestamp;
    until timestamp;
BEGIN
    -- A date may be too late for a timestamp.
    at := CASE WHEN typid <> 1082 THEN key::timestamptz::timestamp WHEN key::date >= last::date THEN last WHEN key::date < first::date THEN '-infinity'
               ELSE key::date::timestamp END;
    SELECT * INTO s FROM pgtrickle._interval_step(step);
    IF at >= last THEN
        lower := '10000-01-01';
        suffix := 'above';
    ELSIF at < first THEN
        upper := '0001-01-01';
        suffix := 'below';
    ELSE
        IF s.months > 0 THEN
            n := extract(year FROM at) * 12 + extract(month FROM at) - 1;
            n := n - n % s.months;
            since := CASE WHEN n < 12 THEN first ELSE make_timestamp((n / 12)::int, (n % 12)::int + 1, 1, 0, 0, 0) END;
            n := n + s.months;
            until := CASE WHEN n >= 120000 THEN last ELSE make_timestamp((n / 12)::int, (n % 12)::int + 1, 1, 0, 0, 0) END;
        ELSE
            n := floor(extract(epoch FROM at - origin));
            n := n - ((n % s.seconds) + s.seconds) % s.seconds;
            since := greatest(origin + n * interval '1 second', first);
            until := least(origin + (n + s.seconds) * interval '1 second', last);
        END IF;
        lower := to_char(since, pattern);
        upper := to_char(until, pattern);
        suffix := to_char(since, CASE WHEN s.seconds % 86400 = 0 THEN 'YYYYMMDD' ELSE 'YYYYMMDD_HH24MISS' END);
    END IF;
END
$$;
COMMENT ON FUNCTION pgtrickle._time_range(oid, text, text) IS
'Internal. The partition of a date or time: its bounds (NULL: none), and what its name ends with.';

CREATE OR REPLACE FUNCTION pgtrickle._number_range(typid oid, step text, key text, OUT lower text, OUT upper text, OUT suffix text)
LANGUAGE plpgsql IMMUTABLE STRICT SET search_path = pg_catalog, pg_temp AS $$
DECLARE
    least_number CONSTANT numeric := CASE typid WHEN 21 THEN -32768 WHEN 23 THEN -2147483648 WHEN 20 THEN -9223372036854775808 ELSE -1e30 END;
    most CONSTANT numeric := CASE typid WHEN 21 THEN 32767 WHEN 23 THEN 2147483647 WHEN 20 THEN 9223372036854775807 ELSE 1e30 END;
    k CONSTANT numeric := key;
    since numeric;
BEGIN
    IF k > most THEN  -- NaN is greater than every number
        lower := most;
        suffix := 'above';
    ELSIF k < least_number THEN
        upper := least_number;
        suffix := 'below';
    ELSE
        since := k - mod(mod(k, step::numeric) + step::numeric, step::numeric);
        lower := CASE WHEN since > least_number THEN trunc(since) END;
        upper := CASE WHEN since + step::numeric <= most THEN trunc(since + step::numeric) END;
        -- Beyond the largest number there are NaN and infinity.
        IF typid = 1700 THEN
            lower := coalesce(lower, trunc(least_number)::text);
            upper := coalesce(upper, trunc(most)::text);
            IF k = most THEN
                lower := trunc(most);
                upper := NULL;
            END IF;
        END IF;
        suffix := CASE WHEN lower IS NULL THEN 'below' WHEN upper IS NULL AND typid = 1700 THEN 'above' ELSE replace(lower, '-', 'm') END;
    END IF;
END
$$;
COMMENT ON FUNCTION pgtrickle._number_range(oid, text, text) IS 'Internal. The partition of a number: its bounds (NULL: none), and what its name ends with.';

CREATE OR REPLACE FUNCTION pgtrickle._partition_named(
    parent oid, suffix text, label text, OUT schema_name name, OUT candidate text, OUT remark text, OUT is_there bool
)
LANGUAGE plpgsql STABLE SET search_path = pg_catalog, pg_temp AS $$
DECLARE
    base text;
    found oid;
    tries int := 0;
BEGIN
    SELECT n.nspname, c.relname, format('Partition of stream table %I.%I: %s', n.nspname, c.relname, label) INTO STRICT schema_name, base, remark
    FROM pg_class AS c
    JOIN pg_namespace AS n ON n.oid = c.relnamespace
    WHERE c.oid = parent;
    WHILE octet_length(base) + length(suffix) > 56 LOOP
        base := left(base, -1);
    END LOOP;
    candidate := format('%s_p%s', base, suffix);
    is_there := false;
    LOOP
        found := to_regclass(format('%I.%I', schema_name, candidate));
        IF found IS NULL AND to_regtype(format('%I.%I', schema_name, candidate)) IS NULL THEN
            RETURN;
        END IF;
        IF obj_description(found, 'pg_class') = remark AND EXISTS (SELECT FROM pg_inherits AS i WHERE i.inhparent = parent AND i.inhrelid = found) THEN
            is_there := true;
            RETURN;
        END IF;
        tries := tries + 1;
        candidate := format('%s_p%s_%s', base, suffix, tries);
    END LOOP;
END
$$;
COMMENT ON FUNCTION pgtrickle._partition_named(oid, text, text) IS
'Internal. The name of a partition of a table, which its comment confirms, or a free one.';

CREATE OR REPLACE FUNCTION pgtrickle._create_partition(parent oid, suffix text, label text, bound text) RETURNS void
LANGUAGE plpgsql VOLATILE SET search_path = pg_catalog, pg_temp AS $$
DECLARE
    n record;
    qualified text;
    t record;
BEGIN
    SELECT * INTO n FROM pgtrickle._partition_named(parent, suffix, label);
    IF n.is_there THEN
        RETURN;
    END IF;
    qualified := format('%I.%I', n.schema_name, n.candidate);
    SELECT pg_get_userbyid(c.relowner) AS owner, s.spcname INTO STRICT t
    FROM pg_class AS c
    LEFT JOIN pg_tablespace AS s ON s.oid = c.reltablespace
    WHERE c.oid = parent;
    EXECUTE format('CREATE TABLE %s (LIKE %s INCLUDING DEFAULTS INCLUDING CONSTRAINTS INCLUDING STORAGE)%s', qualified, parent::regclass,
                   ' TABLESPACE ' || quote_ident(t.spcname));
    IF t.owner <> current_user THEN
        EXECUTE format('ALTER TABLE %s OWNER TO %I', qualified, t.owner);
    END IF;
    EXECUTE format('ALTER TABLE %s REPLICA IDENTITY FULL', qualified);
    EXECUTE format('COMMENT ON TABLE %s IS %L', qualified, n.remark);
    PERFORM pgtrickle._protect(qualified::regclass);
    EXECUTE format('ALTER TABLE %s ATTACH PARTITION %s %s', parent::regclass, qualified, bound);
END
$$;
COMMENT ON FUNCTION pgtrickle._create_partition(oid, text, text, text) IS
'Internal. Gives a table a partition, if it does not have it. Attached, not created in place, which would wait for every reader of the table.';

CREATE OR REPLACE FUNCTION pgtrickle._create_storage(qualified text, output_columns jsonb, partition_by text) RETURNS void
LANGUAGE plpgsql VOLATILE SET search_path = pg_catalog, pg_temp AS $$
DECLARE
    p record;
BEGIN
    IF partition_by IS NOT NULL THEN
        SELECT * INTO p FROM pgtrickle._partition_key(partition_by, output_columns);
        BEGIN
            EXECUTE format('CREATE TABLE %s (%s) PARTITION BY %s (%I)', qualified,
                           array_to_string(pgtrickle._column_definitions(output_columns), ', '), p.strategy, p.column_name);
        EXCEPTION WHEN undefined_object THEN
            RAISE EXCEPTION USING ERRCODE = 'invalid_parameter_value',
                MESSAGE = format('partition_by: values of type %s cannot be hashed', p.typid::regtype), HINT = 'Choose another column.';
        END;
        FOR i IN 0 .. CASE p.strategy WHEN 'HASH' THEN p.step::int - 1 ELSE -1 END LOOP
            PERFORM pgtrickle._create_partition(qualified::regclass, i::text, i::text, format('FOR VALUES WITH (MODULUS %s, REMAINDER %s)', p.step, i));
        END LOOP;
    ELSE
        EXECUTE format('CREATE TABLE %s (%s)', qualified, array_to_string(pgtrickle._column_definitions(output_columns), ', '));
    END IF;
    -- a publication FOR ALL TABLES would otherwise forbid our deletes
    EXECUTE format('ALTER TABLE %s REPLICA IDENTITY FULL', qualified);
    EXECUTE format('COMMENT ON TABLE %s IS %L', qualified, 'Stream table, maintained by pgtrickle: do not write to it.');
    PERFORM pgtrickle._protect(qualified::regclass);
END
$$;
COMMENT ON FUNCTION pgtrickle._create_storage(text, jsonb, text) IS
'Internal. Creates the storage table of a stream table, with the partitions that do not depend on rows.';

CREATE OR REPLACE FUNCTION pgtrickle._value_suffix(value text) RETURNS text
LANGUAGE sql IMMUTABLE SET search_path = pg_catalog, pg_temp AS $$
    SELECT CASE WHEN value IS NULL THEN 'null'
                WHEN value ~ '^[0-9]{1,18}$' THEN value
                ELSE coalesce(nullif(lower(left(btrim(regexp_replace(value, '[^a-zA-Z0-9]+', '_', 'g'), '_'), 16)), '') || '_', '') || left(md5(value), 8) END
$$;
COMMENT ON FUNCTION pgtrickle._value_suffix(text) IS 'Internal. What the name of the partition of a value ends with.';

-- If there is a default partition, ATTACH PARTITION locks it against readers. If the lock is not available at once, the rows stay in the default
-- partition: no refresh waits for a reader. A partition cannot be attached if the default partition already has rows that belong to it.
CREATE OR REPLACE FUNCTION pgtrickle._add_partitions(id bigint, keys anyarray, most int DEFAULT 1000) RETURNS void
LANGUAGE plpgsql VOLATILE SET search_path = pg_catalog, pg_temp SET datestyle = 'ISO, MDY' SET timezone = 'UTC' SET lock_timeout = '100ms' AS $$
DECLARE
    st record;
    p record;
    rest oid;
    part record;
    suffix text;
    label text;
    is_there bool;
BEGIN
    SELECT t.pgt_relid, t.partition_by, t.output_columns INTO STRICT st FROM pgtrickle.pgt_stream_tables AS t WHERE t.pgt_id = id;
    SELECT * INTO p FROM pgtrickle._partition_key(st.partition_by, st.output_columns);
    IF p.strategy = 'HASH' THEN
        RETURN;
    END IF;
    FOR part IN
        SELECT DISTINCT u.key IS NULL AS is_null,
               CASE WHEN p.strategy = 'LIST' THEN u.value END AS value,
               coalesce(t.lower, n.lower) AS lower, coalesce(t.upper, n.upper) AS upper, coalesce(t.suffix, n.suffix) AS suffix
        FROM (SELECT k.key, CASE WHEN p.typid = 1700 THEN trim_scale(k.key::numeric)::text ELSE k.key END AS value
              FROM unnest(keys::text[]) AS k(key)) AS u
        -- of NULL: nothing
        CROSS JOIN LATERAL pgtrickle._time_range(p.typid, p.step, CASE WHEN p.strategy = 'RANGE' AND p.typid IN (1082, 1114, 1184) THEN u.key END) AS t
        CROSS JOIN LATERAL pgtrickle._number_range(p.typid, p.step, CASE WHEN p.strategy = 'RANGE' AND p.typid IN (20, 21, 23, 1700) THEN u.key END) AS n
        ORDER BY lower, value
    LOOP
        suffix := CASE WHEN part.is_null THEN 'null' WHEN p.strategy = 'RANGE' THEN part.suffix ELSE pgtrickle._value_suffix(part.value) END;
        label := CASE WHEN part.is_null THEN 'NULL' WHEN p.strategy = 'LIST' THEN quote_literal(part.value)
                      ELSE format('from %s to %s', coalesce(part.lower, 'the first'), coalesce(part.upper, 'the last')) END;
        IF (SELECT n.is_there FROM pgtrickle._partition_named(st.pgt_relid, suffix, label) AS n) THEN
            CONTINUE;
        END IF;
        SELECT nullif(g.partdefid, 0) INTO rest FROM pg_partitioned_table AS g WHERE g.partrelid = st.pgt_relid;
        IF (SELECT count(*) FROM pg_inherits AS i WHERE i.inhparent = st.pgt_relid) >= most THEN
            IF rest IS NULL THEN
                PERFORM pgtrickle._create_partition(st.pgt_relid, 'others', 'all others', 'DEFAULT');
            END IF;
            CONTINUE;
        END IF;
        IF part.is_null AND p.strategy = 'RANGE' THEN
            IF rest IS NULL THEN
                PERFORM pgtrickle._create_partition(st.pgt_relid, suffix, label, 'DEFAULT');
            END IF;
            CONTINUE;
        END IF;
        IF rest IS NOT NULL THEN
            EXECUTE format('SELECT EXISTS (SELECT FROM %s WHERE %s)', rest::regclass, CASE
                WHEN part.is_null THEN format('%I IS NULL', p.column_name)
                WHEN p.strategy = 'LIST' THEN format('%I = %L', p.column_name, part.value)
                ELSE concat_ws(' AND ', format('%I >= ', p.column_name) || quote_literal(part.lower),
                               format('%I < ', p.column_name) || quote_literal(part.upper))
            END) INTO is_there;
            IF is_there THEN
                CONTINUE;
            END IF;
        END IF;
        BEGIN
            PERFORM pgtrickle._create_partition(
                st.pgt_relid, suffix, label,
                CASE WHEN p.strategy = 'LIST' THEN format('FOR VALUES IN (%L)', part.value)
                     ELSE format('FOR VALUES FROM (%s) TO (%s)', coalesce(quote_literal(part.lower), 'MINVALUE'),
                                 coalesce(quote_literal(part.upper), 'MAXVALUE')) END);
        EXCEPTION
            WHEN invalid_object_definition THEN
                NULL;  -- a partition with another name has these keys
            WHEN lock_not_available THEN
                IF rest IS NULL THEN
                    RAISE;
                END IF;
        END;
    END LOOP;
END
$$;
COMMENT ON FUNCTION pgtrickle._add_partitions(bigint, anyarray, int) IS
'Internal. Creates missing partitions of a stream table for these keys, before rows with them are inserted. Keys beyond so many partitions share one.';

CREATE OR REPLACE FUNCTION pgtrickle._stored_size(relid oid) RETURNS bigint
LANGUAGE sql STABLE SET search_path = pg_catalog, pg_temp AS $$
    SELECT coalesce((SELECT sum(pg_relation_size(t.relid))::int8 FROM pg_partition_tree(_stored_size.relid) AS t), pg_relation_size(_stored_size.relid))
$$;
COMMENT ON FUNCTION pgtrickle._stored_size(oid) IS 'Internal. The size of a storage table with its partitions; NULL if it does not exist.';

CREATE OR REPLACE FUNCTION pgtrickle._check_repartition(st pgtrickle.pgt_stream_tables, spec text, new_columns jsonb) RETURNS void
LANGUAGE plpgsql STABLE SET search_path = pg_catalog, pg_temp AS $$
BEGIN
    IF st.partition_by IS NOT NULL AND new_columns IS NOT NULL AND NOT pgtrickle._is_longer(st.output_columns, new_columns) THEN
        RAISE EXCEPTION USING ERRCODE = 'wrong_object_type',
            MESSAGE = format('the new query changes columns of %I.%I, which is partitioned', st.pgt_schema, st.pgt_name),
            HINT = 'Keep the columns and add new ones behind them, or drop the stream table and create it again.';
    END IF;
    -- spec is NULL where it is not mentioned
    IF (SELECT p FROM pgtrickle._partition_key(spec, st.output_columns) AS p WHERE spec IS NOT NULL)
       IS DISTINCT FROM (SELECT p FROM pgtrickle._partition_key(st.partition_by, st.output_columns) AS p
                         WHERE spec IS NOT NULL AND st.partition_by IS NOT NULL) THEN
        RAISE EXCEPTION USING ERRCODE = 'wrong_object_type',
            MESSAGE = format('partition_by of %I.%I cannot be changed', st.pgt_schema, st.pgt_name),
            HINT = 'Drop the stream table and create it again.';
    END IF;
END
$$;
COMMENT ON FUNCTION pgtrickle._check_repartition(pgtrickle.pgt_stream_tables, text, jsonb) IS
'Internal. Raises when a stream table would have to be partitioned in another way.';
