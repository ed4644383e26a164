-- The settings of a session that can affect what a query returns. They are kept with a definition and applied wherever it is evaluated.

CREATE OR REPLACE FUNCTION pgtrickle._kept_settings() RETURNS text[]
LANGUAGE sql IMMUTABLE SET search_path = pg_catalog, pg_temp AS $$
    SELECT '{search_path,TimeZone,timezone_abbreviations,DateStyle,IntervalStyle,extra_float_digits,bytea_output,lc_monetary,lc_numeric,lc_time,'
        'default_text_search_config,xmlbinary,xmloption,array_nulls,quote_all_identifiers}'::text[]
$$;
COMMENT ON FUNCTION pgtrickle._kept_settings() IS 'Internal. The settings that are kept with a definition.';

-- No SET: those of the caller.
CREATE OR REPLACE FUNCTION pgtrickle._session_settings(path text DEFAULT pgtrickle._search_path()) RETURNS jsonb
LANGUAGE sql STABLE AS $$
    SELECT pg_catalog.jsonb_object_agg(n.name, CASE n.name WHEN 'search_path' THEN path ELSE pg_catalog.current_setting(n.name) END)
    FROM pg_catalog.unnest(pgtrickle._kept_settings()) AS n(name)
$$;
COMMENT ON FUNCTION pgtrickle._session_settings(text) IS 'Internal. What the caller''s session has for the settings that are kept with a definition.';

-- Anybody may call _register, with any settings: only those that are known, with values that PostgreSQL takes.
CREATE OR REPLACE FUNCTION pgtrickle._check_settings(settings jsonb) RETURNS jsonb
LANGUAGE plpgsql VOLATILE SET search_path = pg_catalog, pg_temp AS $$
DECLARE
    one record;
BEGIN
    IF jsonb_typeof(settings) IS DISTINCT FROM 'object' THEN
        RAISE EXCEPTION USING ERRCODE = 'invalid_parameter_value', MESSAGE = 'session settings are names with values';
    END IF;
    BEGIN
        FOR one IN SELECT s.key, s.value FROM jsonb_each_text(settings) AS s LOOP
            IF one.value IS NULL OR NOT one.key = ANY (pgtrickle._kept_settings()) THEN
                RAISE EXCEPTION USING ERRCODE = 'invalid_parameter_value',
                    MESSAGE = format('%s is not a setting that is kept with a definition', quote_literal(one.key));
            END IF;
            PERFORM set_config(one.key, one.value, true);
        END LOOP;
        -- what was set goes with it
        RAISE EXCEPTION USING ERRCODE = 'PGT01';
    EXCEPTION WHEN SQLSTATE 'PGT01' THEN
        NULL;
    END;
    RETURN settings;
END
$$;
COMMENT ON FUNCTION pgtrickle._check_settings(jsonb) IS 'Internal. The settings, if all of them can be kept; raises for the first that cannot.';

CREATE OR REPLACE FUNCTION pgtrickle._in_our_format(value anyelement) RETURNS text
LANGUAGE sql STABLE
SET search_path = pg_catalog, pg_temp SET datestyle = 'ISO, MDY' SET intervalstyle = 'postgres' SET extra_float_digits = 1
SET bytea_output = 'hex' AS $$
    SELECT CASE WHEN num_nulls(value) = 0 THEN format('%s', value) END
$$;
COMMENT ON FUNCTION pgtrickle._in_our_format(anyelement) IS
'Internal. A value as text, as loads carry it, whatever the formats of the session: for queries that are evaluated in their author''s.';
