-- Which code a query can reach, and whether the role that keeps stream tables may run it with its own privileges.
--
-- What is trusted is named, everything else is not:
-- * functions of PostgreSQL itself that take no SQL, relation, type, file, setting or large object and do not depend on the current role or
--   session: the immutable ones, and a list of others;
-- * members of the extensions that the setting trusted_extensions names, if a superuser or the keeper owns them: the owner of an
--   extension may add own functions to it;
-- * functions of the keeper.
-- A query of the keeper itself runs as its author in any case: it may call what superusers and the roles own that it has the privileges of.
--
-- A check does not protect from objects that another role can change between the check and the statement, and types, casts and functions
-- cannot be locked. So an object of another role is judged by what its owner could change it to: owners can replace a function, drop an
-- operator and create another one of its name, add a CHECK to a domain, an attribute to a composite type and a cast to any of their types.
-- Enums and ranges of others are harmless unless they are cast: our own statements do not cast them; a query that does is not trusted.

CREATE OR REPLACE FUNCTION pgtrickle._keeper() RETURNS oid
LANGUAGE sql STABLE SET search_path = pg_catalog, pg_temp AS $$
    SELECT c.relowner FROM pg_class AS c WHERE c.oid = 'pgtrickle.pgt_stream_tables'::regclass
$$;
COMMENT ON FUNCTION pgtrickle._keeper() IS 'Internal. The role that installed pgtrickle and maintains stream tables.';

-- Not by options(), which includes settings of the session.
CREATE OR REPLACE FUNCTION pgtrickle._security_setting(setting text) RETURNS text
LANGUAGE sql STABLE SET search_path = pg_catalog, pg_temp AS $$
    SELECT said.value
    FROM (
        SELECT 0 AS rank, k.default_value AS value FROM pgtrickle.pgt_options AS k WHERE k.name = _security_setting.setting
        UNION ALL
        SELECT 1, o.value FROM pgtrickle.pgt_settings AS o WHERE o.name = _security_setting.setting
        UNION ALL
        SELECT 2 + (s.setdatabase <> 0)::int + 2 * (s.setrole <> 0)::int, substr(entry, strpos(entry, '=') + 1)
        FROM pg_db_role_setting AS s
        CROSS JOIN LATERAL unnest(s.setconfig) AS entry
        WHERE s.setdatabase IN (0, (SELECT d.oid FROM pg_database AS d WHERE d.datname = current_database()))
          AND s.setrole IN (0, pgtrickle._keeper()) AND starts_with(lower(entry), 'pg_trickle.' || _security_setting.setting || '=')
    ) AS said
    ORDER BY said.rank DESC
    LIMIT 1
$$;
COMMENT ON FUNCTION pgtrickle._security_setting(text) IS
'Internal. A setting of set_option(), ALTER DATABASE or ALTER ROLE of the keeper. Not of the session, which anybody may set.';

CREATE OR REPLACE FUNCTION pgtrickle._trusted_extensions() RETURNS name[]
LANGUAGE sql STABLE SET search_path = pg_catalog, pg_temp AS $$
    SELECT coalesce(ARRAY(SELECT lower(btrim(e))::name FROM regexp_split_to_table(pgtrickle._security_setting('trusted_extensions'), ',') AS e), '{}')
$$;
COMMENT ON FUNCTION pgtrickle._trusted_extensions() IS 'Internal. The extensions that the setting trusted_extensions names.';

-- Built-in functions by what is known of them. part: called by PostgreSQL for a type, an operator class or an aggregate, not by the query.
CREATE OR REPLACE FUNCTION pgtrickle._builtin_is_trusted(proname name, volatility "char", argtypes oid[], is_part bool) RETURNS bool
LANGUAGE sql IMMUTABLE SET search_path = pg_catalog, pg_temp AS $$
    SELECT is_part
        OR (volatility = 'i'
            -- regclass, regproc, regprocedure, regoper, regoperator, regtype, regnamespace, regrole, regcollation; cstring, internal:
            -- functions that read any type from a text, by its number. Not regconfig and regdictionary, which run no code of users.
            AND NOT argtypes && '{2205,24,2202,2203,2204,2206,4089,4096,4191,2275,2281}'::oid[]
            AND proname <> 'satisfies_hash_partition')
        OR (volatility <> 'i' AND (pgtrickle._is_steady(proname, '{}') OR proname = ANY ('{now,transaction_timestamp,statement_timestamp,
            clock_timestamp,timeofday,age,timetz,interval,money,numeric,in_range,generate_series,isfinite,
            enum_first,enum_last,enum_range,random,random_normal,gen_random_uuid,uuidv4,uuidv7,
            json_agg,json_agg_strict,json_object_agg,json_object_agg_strict,json_object_agg_unique,json_object_agg_unique_strict,
            jsonb_agg,jsonb_agg_strict,jsonb_object_agg,jsonb_object_agg_strict,jsonb_object_agg_unique,jsonb_object_agg_unique_strict,
            json_populate_record,json_populate_recordset,json_to_record,json_to_recordset,
            jsonb_populate_record,jsonb_populate_recordset,jsonb_populate_record_valid,jsonb_to_record,jsonb_to_recordset,
            jsonb_path_exists_tz,jsonb_path_match_tz,jsonb_path_query_tz,jsonb_path_query_array_tz,jsonb_path_query_first_tz,
            json_to_tsvector,jsonb_to_tsvector,to_tsvector,to_tsquery,plainto_tsquery,phraseto_tsquery,websearch_to_tsquery,
            ts_headline,ts_match_tt,ts_match_tq,get_current_ts_config,
            xml,xml_is_well_formed,pg_typeof,pg_column_size,pg_collation_for,format_type,pg_get_userbyid,obj_description,col_description,
            shobj_description,current_database,version,getdatabaseencoding,pg_char_to_encoding,pg_encoding_to_char}'::name[])))
$$;
COMMENT ON FUNCTION pgtrickle._builtin_is_trusted(name, "char", oid[], bool) IS
'Internal. Whether a function of PostgreSQL itself gives every role the same result and reads only its arguments, the clock and catalogs that '
'all may read.';

CREATE OR REPLACE FUNCTION pgtrickle._is_ours(role oid, keeper oid, is_own bool) RETURNS bool
LANGUAGE sql STABLE SET search_path = pg_catalog, pg_temp AS $$
    SELECT role = keeper OR coalesce((SELECT r.rolsuper FROM pg_roles AS r WHERE r.oid = role), false) OR (is_own AND pg_has_role(keeper, role, 'USAGE'))
$$;
COMMENT ON FUNCTION pgtrickle._is_ours(oid, oid, bool) IS
'Internal. Whether what a role owns can be changed by the keeper or a superuser only; for queries of the keeper itself (is_own) also by roles that it '
'has the privileges of.';

CREATE OR REPLACE FUNCTION pgtrickle._is_loose(typid oid, keeper oid, is_own bool) RETURNS bool
LANGUAGE sql STABLE SET search_path = pg_catalog, pg_temp AS $$
    SELECT t.oid >= 16384 AND NOT pgtrickle._is_ours(t.typowner, keeper, is_own) FROM pg_type AS t WHERE t.oid = typid
$$;
COMMENT ON FUNCTION pgtrickle._is_loose(oid, oid, bool) IS 'Internal. Whether another role owns a type, which may create casts for it.';

-- What evaluating a query can call, directly or not: functions, operators, operator classes and types; of the latter two only those of users.
-- Types: the values of all fields of the tree that are named like a type. Values that are no oids (jointype) are below the oids of users' types.
CREATE OR REPLACE FUNCTION pgtrickle._reach(probe oid, keeper oid, is_own bool, types oid[] DEFAULT NULL) RETURNS TABLE (classid oid, objid oid, is_part bool)
LANGUAGE sql STABLE ROWS 50 SET search_path = pg_catalog, pg_temp AS $$
    WITH RECURSIVE rules AS MATERIALIZED (
        SELECT r.view_oid, r.node_tree FROM pgtrickle._rules(probe) AS r WHERE types IS NULL
    ), columns AS MATERIALIZED (
        -- what the result shows, and what captured changes carry
        SELECT a.atttypid AS typid FROM pg_attribute AS a WHERE a.attrelid = probe AND a.attnum > 0
        UNION
        SELECT a.atttypid
        FROM pgtrickle._columns_read(probe) AS x
        JOIN pg_attribute AS a ON a.attrelid = x.relid AND a.attnum = ANY (x.columns || coalesce(pgtrickle._key(x.relid), '{}'))
    ), reach(classid, objid, is_part) AS (
        SELECT s.classid::oid, s.objid, false
        FROM (
            SELECT 'pg_type'::regclass, c.typid FROM columns AS c WHERE types IS NULL
            UNION
            SELECT 'pg_type'::regclass, unnest(types)
            UNION
            SELECT CASE WHEN m[1] IS NOT NULL THEN 'pg_proc'::regclass WHEN m[2] IS NOT NULL THEN 'pg_operator'::regclass
                        ELSE 'pg_type'::regclass END,
                   coalesce(m[1], m[2], m[3])::oid
            FROM rules AS r
            CROSS JOIN LATERAL regexp_matches(r.node_tree,
                ':(?:(?:funcid|opfuncid|aggfnoid|winfnoid|elemfuncid|startInRangeFunc|endInRangeFunc|tsmhandler) (\d+)'
                '|(?:opno|eqop|sortop|cycle_mark_neop) (\d+)|[A-Za-z_]*[tT]yp(?:e|eid|eId|id) (\d{5,}))', 'g') AS m
            UNION
            SELECT CASE WHEN m[1] = 'opnos' THEN 'pg_operator'::regclass ELSE 'pg_type'::regclass END, n::oid
            FROM rules AS r
            CROSS JOIN LATERAL regexp_matches(r.node_tree, ':(opnos|[A-Za-z_]*[tT]ypes) \(o ([0-9 ]+)\)', 'g') AS m
            CROSS JOIN LATERAL regexp_split_to_table(m[2], ' ') AS n
            UNION
            -- whatever else PostgreSQL says that it depends on
            SELECT d.refclassid, d.refobjid
            FROM rules AS r
            JOIN pg_rewrite AS w ON w.ev_class = r.view_oid AND w.ev_type = '1'
            JOIN pg_depend AS d ON d.classid = 'pg_rewrite'::regclass AND d.objid = w.oid
            WHERE d.refclassid IN ('pg_proc'::regclass, 'pg_operator'::regclass, 'pg_type'::regclass, 'pg_opclass'::regclass)
        ) AS s(classid, objid)
        WHERE s.objid <> 0 AND (s.classid <> 'pg_type'::regclass OR s.objid >= 16384)
        UNION
        SELECT n.classid::oid, n.objid, n.is_part
        FROM reach AS r
        CROSS JOIN LATERAL (
            SELECT 'pg_proc'::regclass, o.oprcode::oid, r.is_part
            FROM pg_operator AS o
            WHERE r.classid = 'pg_operator'::regclass AND o.oid = r.objid
            UNION ALL
            SELECT x.classid, x.objid, x.classid <> 'pg_operator'::regclass
            FROM pg_aggregate AS a
            CROSS JOIN LATERAL (
                SELECT 'pg_proc'::regclass, unnest(ARRAY[a.aggtransfn, a.aggfinalfn, a.aggcombinefn, a.aggserialfn, a.aggdeserialfn,
                                                         a.aggmtransfn, a.aggminvtransfn, a.aggmfinalfn]::oid[])
                UNION ALL
                SELECT 'pg_type'::regclass, unnest(ARRAY[a.aggtranstype, a.aggmtranstype])
                UNION ALL
                SELECT 'pg_operator'::regclass, a.aggsortop
            ) AS x(classid, objid)
            WHERE r.classid = 'pg_proc'::regclass AND a.aggfnoid = r.objid
            UNION ALL
            SELECT x.classid, x.objid, true
            FROM pg_opclass AS k
            CROSS JOIN LATERAL (
                SELECT 'pg_proc'::regclass, p.amproc::oid
                FROM pg_amproc AS p
                WHERE p.amprocfamily = k.opcfamily AND k.opcintype IN (p.amproclefttype, p.amprocrighttype)
                UNION ALL
                SELECT 'pg_operator'::regclass, p.amopopr
                FROM pg_amop AS p
                WHERE p.amopfamily = k.opcfamily AND k.opcintype IN (p.amoplefttype, p.amoprighttype)
            ) AS x(classid, objid)
            WHERE r.classid = 'pg_opclass'::regclass AND k.oid = r.objid
            UNION ALL
            SELECT x.classid, x.objid, x.is_part
            FROM pg_type AS t
            -- rngmultitypid: since PostgreSQL 14
            LEFT JOIN pg_range AS g ON t.oid IN (g.rngtypid, (to_jsonb(g) ->> 'rngmultitypid')::oid)
            CROSS JOIN LATERAL (
                SELECT 'pg_proc'::regclass, unnest(ARRAY[t.typinput, t.typoutput, t.typreceive, t.typsend, t.typmodin, t.typmodout]::oid[]), true
                UNION ALL
                SELECT 'pg_proc'::regclass, unnest(ARRAY[g.rngcanonical, g.rngsubdiff]::oid[]), false
                UNION ALL
                SELECT 'pg_type'::regclass, unnest(ARRAY[t.typelem, t.typbasetype, g.rngsubtype, g.rngtypid]), true
                UNION ALL
                SELECT 'pg_type'::regclass, a.atttypid, true
                FROM pg_attribute AS a
                WHERE a.attrelid = t.typrelid AND t.typrelid <> 0 AND a.attnum > 0 AND NOT a.attisdropped
                UNION ALL
                -- by which it is sorted and grouped: btree, hash
                SELECT 'pg_opclass'::regclass, k.oid, true FROM pg_opclass AS k WHERE k.opcintype = t.oid AND k.opcmethod IN (403, 405)
                UNION ALL
                SELECT 'pg_opclass'::regclass, g.rngsubopc, true
                UNION ALL
                -- to_json() and || look for these when they run
                SELECT 'pg_proc'::regclass, c.castfunc, false
                FROM pg_cast AS c
                WHERE c.castsource = t.oid AND c.casttarget IN (25, 114) AND NOT pgtrickle._is_loose(t.oid, keeper, is_own)
                UNION ALL
                SELECT CASE WHEN m[1] IS NOT NULL THEN 'pg_proc'::regclass WHEN m[2] IS NOT NULL THEN 'pg_operator'::regclass
                            ELSE 'pg_type'::regclass END,
                       coalesce(m[1], m[2], m[3])::oid, false
                FROM pg_constraint AS c
                CROSS JOIN LATERAL regexp_matches(c.conbin::text,
                    ':(?:(?:funcid|opfuncid) (\d+)|opno (\d+)|[A-Za-z_]*[tT]yp(?:e|eid|eId|id) (\d{5,}))', 'g') AS m
                WHERE c.contypid = t.oid AND c.contypid <> 0
            ) AS x(classid, objid, is_part)
            WHERE r.classid = 'pg_type'::regclass AND t.oid = r.objid
        ) AS n(classid, objid, is_part)
        WHERE n.objid <> 0 AND (n.classid NOT IN ('pg_type'::regclass, 'pg_opclass'::regclass) OR n.objid >= 16384)
    )
    SELECT r.classid, r.objid, bool_and(r.is_part) FROM reach AS r GROUP BY r.classid, r.objid
$$;
COMMENT ON FUNCTION pgtrickle._reach(oid, oid, bool, oid[]) IS
'Internal. Functions, operators, operator classes and types that evaluating a query can reach; of the latter those of users. is_part: only PostgreSQL '
'itself calls it. types: what these reach, not the query.';

-- The first of these objects that is not trusted, in words.
CREATE OR REPLACE FUNCTION pgtrickle._untrusted_among(probe oid, keeper oid, is_own bool, types oid[] DEFAULT NULL) RETURNS text
LANGUAGE sql STABLE SET search_path = pg_catalog, pg_temp AS $$
    WITH reach AS MATERIALIZED (
        SELECT r.classid, r.objid, r.is_part FROM pgtrickle._reach(probe, keeper, is_own, types) AS r
    ), extensions AS MATERIALIZED (
        SELECT e.oid FROM pg_extension AS e WHERE e.extname = ANY (pgtrickle._trusted_extensions())
    ), functions AS (
        SELECT p.oid, format('%I.%I(%s)', n.nspname, p.proname, pg_get_function_identity_arguments(p.oid)) AS signature,
               p.oid < 16384 AS is_builtin, pg_get_userbyid(p.proowner) AS owner_name
        FROM reach AS r
        JOIN pg_proc AS p ON p.oid = r.objid
        JOIN pg_namespace AS n ON n.oid = p.pronamespace
        WHERE r.classid = 'pg_proc'::regclass
          AND NOT CASE
              WHEN is_own THEN p.oid < 16384 OR pgtrickle._is_ours(p.proowner, keeper, is_own)
              WHEN p.oid < 16384 THEN pgtrickle._builtin_is_trusted(p.proname, p.provolatile, p.proargtypes::oid[], r.is_part)
              -- functions of pgtrickle return what the calling role may see
              WHEN n.nspname IN ('pgtrickle', 'pgtrickle_changes', 'pgtrickle_run') THEN false
              ELSE p.proowner = keeper
                   OR (pgtrickle._is_ours(p.proowner, keeper, false)
                       AND EXISTS (SELECT
                                   FROM pg_depend AS d
                                   JOIN extensions AS e ON e.oid = d.refobjid
                                   WHERE d.classid = 'pg_proc'::regclass AND d.objid = p.oid AND d.deptype = 'e'
                                     AND d.refclassid = 'pg_extension'::regclass))
          END
    )
    SELECT f.problem
    FROM (
        SELECT 1 AS rank, CASE WHEN f.is_builtin
                               THEN format('function %s takes SQL, a relation, a type, a file or a setting, or depends on the role that calls it', f.signature)
                               ELSE format('function %s belongs to %I, whose code %I does not run', f.signature, f.owner_name, pg_get_userbyid(keeper))
                          END AS problem
        FROM functions AS f
        UNION ALL
        SELECT 2, format('operator %s belongs to %I, who may replace it by another one', o.oid::regoperator, pg_get_userbyid(o.oprowner))
        FROM reach AS r
        JOIN pg_operator AS o ON o.oid = r.objid
        WHERE r.classid = 'pg_operator'::regclass AND o.oid >= 16384 AND NOT pgtrickle._is_ours(o.oprowner, keeper, is_own)
        UNION ALL
        SELECT 3, format('%s %s belongs to %I, who may add %s to it at any time',
                         CASE t.typtype WHEN 'd' THEN 'domain' ELSE 'type' END, format_type(t.oid, NULL), pg_get_userbyid(t.typowner),
                         CASE t.typtype WHEN 'd' THEN 'checks' ELSE 'attributes' END)
        FROM reach AS r
        JOIN pg_type AS t ON t.oid = r.objid
        WHERE r.classid = 'pg_type'::regclass AND t.typtype IN ('d', 'c') AND pgtrickle._is_loose(t.oid, keeper, is_own)
    ) AS f
    ORDER BY f.rank, f.problem
    LIMIT 1
$$;
COMMENT ON FUNCTION pgtrickle._untrusted_among(oid, oid, bool, oid[]) IS
'Internal. The first function, operator or type that a query (or these types alone) reaches and that the keeper must not run or rely on; NULL when '
'there is none.';

-- Casts of types of other roles: the owner of a type may create another cast. It is found when a statement is parsed; by functions in SQL that
-- cast any value, when they are inlined; or by functions that make JSON of any value, when they run. A cast counts unless the tree shows that
-- its value is of another type.
CREATE OR REPLACE FUNCTION pgtrickle._converts(probe oid, types oid[]) RETURNS text
LANGUAGE sql STABLE SET search_path = pg_catalog, pg_temp AS $$
    WITH casts AS MATERIALIZED (
        SELECT m[1] AS form, m[2]::oid AS typid
        FROM pgtrickle._rules(probe) AS r
        CROSS JOIN LATERAL regexp_matches(r.node_tree,
            '\{(COERCEVIAIO|ARRAYCOERCEEXPR) :arg \{(?:(?:VAR :varno [\d-]+ :varattno [\d-]+ :vartype|CONST :consttype|CASETESTEXPR :typeId|'
                'CASEEXPR :casetype|CASE :casetype'
            '|COALESCEEXPR :coalescetype|COALESCE :coalescetype|FUNCEXPR :funcid \d+ :funcresulttype|OPEXPR :opno \d+ :opfuncid \d+ :opresulttype'
            '|AGGREF :aggfnoid \d+ :aggtype|WINDOWFUNC :winfnoid \d+ :wintype|MINMAXEXPR :minmaxtype|MINMAX :minmaxtype) (\d+))?', 'g') AS m
        UNION ALL
        SELECT 'RESULT', m[1]::oid
        FROM pgtrickle._rules(probe) AS r
        CROSS JOIN LATERAL regexp_matches(r.node_tree, ':resulttype (\d+)(?: :resulttypmod -?\d+)? :resultcollid \d+ :coerceformat', 'g') AS m
    )
    SELECT format('the query converts values of type %s, which belongs to %I, who may create a cast for it at any time',
                  format_type(t.oid, NULL), pg_get_userbyid(t.typowner))
    FROM pg_type AS t
    WHERE t.oid = ANY (types)
      AND (EXISTS (SELECT FROM casts AS c WHERE (c.typid IS NULL AND c.form <> 'RESULT') OR c.typid = t.oid)
       OR EXISTS (SELECT
                  FROM pgtrickle._functions_called(probe) AS f
                  WHERE f.is_system AND (f.proname ~ '^(?:to_jsonb?$|row_to_json|array_to_json|jsonb?_(?:agg|object_agg|build))'
                      OR f.proname IN ('textanycat', 'anytextcat', 'quote_literal', 'quote_nullable')))
       OR EXISTS (SELECT FROM pgtrickle._rules(probe) AS r WHERE r.node_tree ~ '\{JSONCONSTRUCTOREXPR '))
    ORDER BY 1
    LIMIT 1
$$;
COMMENT ON FUNCTION pgtrickle._converts(oid, oid[]) IS 'Internal. A type of these that a query casts, in words; NULL when there is none.';

-- To plan a statement PostgreSQL evaluates parts of what belongs to a table: constants in the expressions of indexes, statistics and checks.
CREATE OR REPLACE FUNCTION pgtrickle._untrusted_table(probe oid, keeper oid) RETURNS text
LANGUAGE sql STABLE SET search_path = pg_catalog, pg_temp AS $$
    WITH tables AS MATERIALIZED (
        SELECT DISTINCT f.relid
        FROM pgtrickle._reads(probe) AS x
        CROSS JOIN LATERAL pgtrickle._family(x.relid) AS f
        JOIN pg_class AS c ON c.oid = f.relid
        WHERE x.relkind IN ('r', 'p', 'm', 'f') AND NOT pgtrickle._is_ours(c.relowner, keeper, false)
    ), trees AS (
        SELECT t.relid, e.expression
        FROM tables AS t
        CROSS JOIN LATERAL (
            SELECT concat(i.indexprs, i.indpred) FROM pg_index AS i WHERE i.indrelid = t.relid
            UNION ALL
            SELECT to_jsonb(s) ->> 'stxexprs' FROM pg_statistic_ext AS s WHERE s.stxrelid = t.relid
            UNION ALL
            SELECT c.conbin::text FROM pg_constraint AS c WHERE c.conrelid = t.relid AND c.contype = 'c'
            UNION ALL
            SELECT p.partexprs::text FROM pg_partitioned_table AS p WHERE p.partrelid = t.relid
            UNION ALL
            SELECT d.adbin::text
            FROM pg_attrdef AS d
            JOIN pg_attribute AS a ON a.attrelid = d.adrelid AND a.attnum = d.adnum AND a.attgenerated = 'v'
            WHERE d.adrelid = t.relid
        ) AS e(expression)
    ), called AS (
        SELECT t.relid, m[1]::oid AS funcid
        FROM trees AS t
        CROSS JOIN LATERAL regexp_matches(t.expression, ':(?:funcid|opfuncid) (\d{5,})', 'g') AS m
    )
    SELECT format('an index, statistic or check of %s calls function %s, which belongs to %I', c.relid::regclass, p.oid::regprocedure,
                  pg_get_userbyid(p.proowner))
    FROM called AS c
    JOIN pg_proc AS p ON p.oid = c.funcid
    WHERE p.oid >= 16384 AND p.proowner <> keeper
      AND NOT EXISTS (SELECT
                      FROM pg_depend AS d
                      JOIN pg_extension AS e ON e.oid = d.refobjid
                      WHERE d.classid = 'pg_proc'::regclass AND d.objid = p.oid AND d.deptype = 'e' AND pgtrickle._is_ours(p.proowner, keeper, false)
                        AND e.extname = ANY (pgtrickle._trusted_extensions()))
    ORDER BY 1
    LIMIT 1
$$;
COMMENT ON FUNCTION pgtrickle._untrusted_table(oid, oid) IS
'Internal. Code that reading a table of another role runs, in words; NULL when there is none.';

CREATE OR REPLACE FUNCTION pgtrickle._may_create_in(schema oid, keeper oid) RETURNS oid
LANGUAGE sql STABLE SET search_path = pg_catalog, pg_temp AS $$
    SELECT a.grantee
    FROM pg_namespace AS n
    CROSS JOIN pg_database AS d
    CROSS JOIN LATERAL (SELECT n.nspowner
                        UNION ALL
                        SELECT x.grantee FROM aclexplode(n.nspacl) AS x WHERE x.privilege_type = 'CREATE') AS a(grantee)
    LEFT JOIN pg_roles AS r ON r.oid = a.grantee
    WHERE n.oid = schema AND d.datname = current_database() AND a.grantee NOT IN (keeper, d.datdba)
      AND coalesce(r.rolname <> 'pg_database_owner' AND NOT r.rolsuper, true)
    ORDER BY a.grantee = n.nspowner DESC, a.grantee
    LIMIT 1
$$;
COMMENT ON FUNCTION pgtrickle._may_create_in(oid, oid) IS
'Internal. A role, the owner first, that may create objects in a schema and is neither the keeper, a superuser nor the owner of the database; 0: everybody.';

-- Statements call functions by name. The owner of the schema can drop one and create another of that name; a role that may create
-- there can add one that fits better. That cannot be if the arguments are exactly of the declared types.
CREATE OR REPLACE FUNCTION pgtrickle._replaceable(probe oid, keeper oid, functions oid[], operators oid[]) RETURNS text
LANGUAGE sql STABLE SET search_path = pg_catalog, pg_temp AS $$
    WITH named AS MATERIALIZED (
        SELECT x.classid, x.objid, x.what, s.nspname, s.nspowner, pgtrickle._may_create_in(s.oid, keeper) AS stranger, x.is_fixed
        FROM (
            SELECT 'pg_proc'::regclass, p.oid, 'function ' || p.oid::regprocedure::text, p.pronamespace,
                   p.provariadic = 0 AND p.pronargdefaults = 0
                   AND NOT EXISTS (SELECT FROM pg_type AS t WHERE t.oid = ANY (p.proargtypes) AND t.typtype = 'p' AND t.typname <> 'internal')
            FROM pg_proc AS p
            WHERE p.oid = ANY (functions)
            UNION ALL
            SELECT 'pg_operator'::regclass, o.oid, 'operator ' || o.oid::regoperator::text, o.oprnamespace,
                   NOT EXISTS (SELECT FROM pg_type AS t WHERE t.oid IN (o.oprleft, o.oprright) AND t.typtype = 'p')
            FROM pg_operator AS o
            WHERE o.oid = ANY (operators)
        ) AS x(classid, objid, what, schema, is_fixed)
        JOIN pg_namespace AS s ON s.oid = x.schema
    ), open AS MATERIALIZED (
        SELECT * FROM named AS n WHERE n.stranger IS NOT NULL
    ), pieces AS MATERIALIZED (
        -- the tree in pieces between its braces, with their depth
        SELECT r.view_oid, p.i, p.piece,
               sum(CASE p.brace WHEN '{' THEN 1 WHEN '}' THEN -1 ELSE 0 END) OVER (PARTITION BY r.view_oid ORDER BY p.i) AS depth
        FROM pgtrickle._rules(probe) AS r
        CROSS JOIN LATERAL (
            SELECT t.i, t.m[1] AS brace, t.m[2] AS piece
            FROM regexp_matches(r.node_tree, '([{}])((?:[^{}\\]|\\.)*)', 'g') WITH ORDINALITY AS t(m, i)
        ) AS p
        WHERE EXISTS (SELECT FROM open)
    ), calls AS (
        SELECT o.classid, o.objid, c.view_oid, c.i, c.depth,
               (SELECT min(e.i) FROM pieces AS e WHERE e.view_oid = c.view_oid AND e.i > c.i AND e.depth < c.depth) AS until
        FROM open AS o
        JOIN pieces AS c ON c.piece ~ CASE WHEN o.classid = 'pg_proc'::regclass THEN format('^[A-Z]+ :(?:funcid|aggfnoid|winfnoid) %s ', o.objid)
                                           ELSE format('^[A-Z]+ :opno %s ', o.objid) END
    ), coerced AS (
        SELECT DISTINCT c.classid, c.objid
        FROM calls AS c
        JOIN pieces AS a ON a.view_oid = c.view_oid AND a.i > c.i AND a.i < c.until AND a.depth = c.depth + 1
        WHERE a.piece ~ ':(?:func|relabel|coerce|convert)format 2 '
    )
    SELECT format('%s is in schema %I, where %s may %s', o.what, o.nspname,
                  CASE WHEN o.stranger = 0 THEN 'everybody' ELSE quote_ident(pg_get_userbyid(o.stranger)) END,
                  CASE WHEN o.stranger = o.nspowner THEN 'replace it' ELSE 'create one that fits its arguments better' END)
    FROM open AS o
    WHERE o.stranger = o.nspowner OR NOT o.is_fixed
       OR EXISTS (SELECT FROM coerced AS c WHERE (c.classid, c.objid) = (o.classid, o.objid))
    ORDER BY 1
    LIMIT 1
$$;
COMMENT ON FUNCTION pgtrickle._replaceable(oid, oid, oid[], oid[]) IS
'Internal. A function or operator of these that a query names and that another role could replace by another one; NULL when there is none.';

CREATE OR REPLACE FUNCTION pgtrickle._untrusted(probe oid, keeper oid, is_own bool DEFAULT false) RETURNS text
LANGUAGE plpgsql STABLE SET search_path = pg_catalog, pg_temp AS $$
DECLARE
    found text;
    reached record;
BEGIN
    -- 9 to 12: CURRENT_ROLE, CURRENT_USER, USER, SESSION_USER; 14: CURRENT_SCHEMA
    IF NOT is_own AND EXISTS (SELECT FROM pgtrickle._rules(probe) AS r WHERE r.node_tree ~ '\{SQLVALUEFUNCTION :op (?:9|1[0124]) ') THEN
        RETURN 'the query uses CURRENT_USER or the like, which depends on the role that runs it';
    END IF;
    found := pgtrickle._untrusted_among(probe, keeper, is_own);
    IF found IS NOT NULL THEN
        RETURN found;
    END IF;
    SELECT array_agg(r.objid) FILTER (WHERE r.classid = 'pg_type'::regclass AND pgtrickle._is_loose(r.objid, keeper, is_own)) AS types,
           array_agg(r.objid) FILTER (WHERE r.classid = 'pg_proc'::regclass AND NOT r.is_part) AS functions,
           array_agg(r.objid) FILTER (WHERE r.classid = 'pg_operator'::regclass AND NOT r.is_part) AS operators
    INTO reached
    FROM pgtrickle._reach(probe, keeper, is_own) AS r
    WHERE r.objid >= 16384;
    IF reached.types IS NOT NULL THEN
        found := pgtrickle._converts(probe, reached.types);
    END IF;
    IF found IS NULL AND NOT is_own THEN
        found := pgtrickle._untrusted_table(probe, keeper);
    END IF;
    IF found IS NULL AND NOT is_own AND coalesce(reached.functions, reached.operators) IS NOT NULL THEN
        found := pgtrickle._replaceable(probe, keeper, reached.functions, reached.operators);
    END IF;
    RETURN found;
END
$$;
COMMENT ON FUNCTION pgtrickle._untrusted(oid, oid, bool) IS
'Internal. The first thing that a query can reach which is not trusted to run with the privileges of the keeper, in words with its name; NULL when all '
'of it is. is_own: of a query of the keeper itself, who may call what superusers and roles own that it has the privileges of.';

CREATE OR REPLACE FUNCTION pgtrickle._may_become(keeper oid, role oid) RETURNS bool
LANGUAGE sql STABLE SET search_path = pg_catalog, pg_temp AS $$
    SELECT keeper <> role
       AND pg_has_role(keeper, role, CASE WHEN current_setting('server_version_num')::int >= 160000 THEN 'SET' ELSE 'MEMBER' END)
$$;
COMMENT ON FUNCTION pgtrickle._may_become(oid, oid) IS 'Internal. Whether the keeper may SET ROLE to another role.';

-- The types of which the keeper itself makes values, even if the author evaluates the query: those of the result, of captured columns, and of
-- constants, which PostgreSQL reads when a statement is parsed.
CREATE OR REPLACE FUNCTION pgtrickle._types_handled(probe oid) RETURNS oid[]
LANGUAGE sql STABLE SET search_path = pg_catalog, pg_temp AS $$
    SELECT coalesce(array_agg(DISTINCT t.typid), '{}')
    FROM (
        SELECT a.atttypid FROM pg_attribute AS a WHERE a.attrelid = probe AND a.attnum > 0
        UNION ALL
        SELECT a.atttypid
        FROM pgtrickle._columns_read(probe) AS x
        JOIN pg_attribute AS a ON a.attrelid = x.relid AND a.attnum = ANY (x.columns || coalesce(pgtrickle._key(x.relid), '{}'))
        UNION ALL
        SELECT m[1]::oid
        FROM pgtrickle._rules(probe) AS r
        CROSS JOIN LATERAL regexp_matches(r.node_tree, ':consttype (\d{5,})', 'g') AS m
    ) AS t(typid)
    WHERE t.typid >= 16384
$$;
COMMENT ON FUNCTION pgtrickle._types_handled(oid) IS 'Internal. Types of users of which the keeper reads values from text.';

CREATE OR REPLACE FUNCTION pgtrickle._who_evaluates(probe oid, author oid, keeper oid) RETURNS text
LANGUAGE plpgsql STABLE SET search_path = pg_catalog, pg_temp AS $$
DECLARE
    -- Of no author: a mirror, whose author is in another database.
    problem text := pgtrickle._untrusted(probe, keeper, coalesce(author = keeper, false));
    types CONSTANT oid[] := pgtrickle._types_handled(probe);
BEGIN
    IF problem IS NULL
       AND (pgtrickle._security_setting('run_as_author') <> 'always' OR NOT coalesce(pgtrickle._may_become(keeper, author), false)) THEN
        RETURN 'service';
    END IF;
    IF pgtrickle._may_become(keeper, author) THEN
        problem := CASE WHEN types <> '{}' THEN pgtrickle._untrusted_among(probe, keeper, false, types) END;
        IF problem IS NULL THEN
            RETURN 'author';
        END IF;
        RAISE EXCEPTION USING ERRCODE = 'insufficient_privilege',
            MESSAGE = problem,
            HINT = format('%1$I stores values of this type: have it, and what it calls, owned by %1$I, or convert it in the query, for example to text.',
                          pg_get_userbyid(keeper));
    END IF;
    RAISE EXCEPTION USING ERRCODE = 'insufficient_privilege',
        MESSAGE = problem,
        HINT = CASE WHEN author <> keeper
                    THEN format('Refreshes would run it with the privileges of %2$I: GRANT %1$I TO %2$I, so that the query runs with yours; or have '
                        'it owned by %2$I, or in an extension that trusted_extensions names.',
                                pg_get_userbyid(author), pg_get_userbyid(keeper))
                    ELSE format('Have it owned by %1$I, or grant its owner to %1$I if it may run with the privileges of %1$I.', pg_get_userbyid(keeper)) END;
END
$$;
COMMENT ON FUNCTION pgtrickle._who_evaluates(oid, oid, oid) IS
'Internal. Whose privileges evaluate a query: service (the keeper''s, for trusted code) or author; raises when neither is possible.';

CREATE OR REPLACE FUNCTION pgtrickle._check_evaluation(probe oid, author oid, keeper oid, run_as text) RETURNS void
LANGUAGE plpgsql STABLE SET search_path = pg_catalog, pg_temp AS $$
DECLARE
    problem text;
BEGIN
    IF run_as = 'author' AND NOT coalesce(pgtrickle._may_become(keeper, author), false) THEN
        problem := format('%I may not SET ROLE %I, whose privileges the query needs', pg_get_userbyid(keeper), pg_get_userbyid(author));
    ELSIF run_as = 'author' THEN
        problem := pgtrickle._untrusted_among(probe, keeper, false, pgtrickle._types_handled(probe));
    ELSE
        problem := pgtrickle._untrusted(probe, keeper, coalesce(author = keeper, false));
    END IF;
    IF problem IS NOT NULL THEN
        RAISE EXCEPTION USING ERRCODE = 'insufficient_privilege', MESSAGE = problem || ', which was not so when it was defined',
            HINT = 'alter_stream_table with its query checks again which role evaluates it.';
    END IF;
END
$$;
COMMENT ON FUNCTION pgtrickle._check_evaluation(oid, oid, oid, text) IS
'Internal. Raises when a query reaches code that was not there, or not as it is, when it was decided who evaluates it. author NULL: it is in another database.';

CREATE OR REPLACE FUNCTION pgtrickle._code_version(functions oid[], types oid[], tables oid[]) RETURNS text
LANGUAGE plpgsql STABLE SET search_path = pg_catalog, pg_temp AS $$
BEGIN
    RETURN md5(concat_ws('/', pgtrickle._trusted_extensions(),
        (SELECT string_agg(p.oid || ':' || p.proowner || ':' || p.xmin, ',' ORDER BY p.oid) FROM pg_proc AS p WHERE p.oid = ANY (functions)),
        (SELECT string_agg(t.oid || ':' || t.typowner, ',' ORDER BY t.oid) FROM pg_type AS t WHERE t.oid = ANY (types)),
        CASE WHEN types <> '{}' THEN
            (SELECT string_agg(c.oid || ':' || c.xmin, ',' ORDER BY c.oid) FROM pg_cast AS c WHERE c.castsource = ANY (types)
                OR c.casttarget = ANY (types)) END,
        CASE WHEN types <> '{}' THEN
            (SELECT string_agg(c.oid || ':' || c.xmin, ',' ORDER BY c.oid) FROM pg_constraint AS c WHERE c.contypid = ANY (types)) END,
        CASE WHEN tables <> '{}' THEN concat_ws('/',
            (SELECT string_agg(c.oid || ':' || c.relowner, ',' ORDER BY c.oid) FROM pg_class AS c WHERE c.oid = ANY (tables)),
            (SELECT string_agg(i.indexrelid || ':' || i.xmin, ',' ORDER BY i.indexrelid)
             FROM pg_index AS i WHERE i.indrelid = ANY (tables) AND (i.indexprs IS NOT NULL OR i.indpred IS NOT NULL)),
            (SELECT string_agg(c.oid || ':' || c.xmin, ',' ORDER BY c.oid) FROM pg_constraint AS c WHERE c.conrelid = ANY (tables) AND c.contype = 'c'),
            (SELECT string_agg(s.oid || ':' || s.xmin, ',' ORDER BY s.oid) FROM pg_statistic_ext AS s WHERE s.stxrelid = ANY (tables))) END));
END
$$;
COMMENT ON FUNCTION pgtrickle._code_version(oid[], oid[], oid[]) IS
'Internal. Another text whenever something has changed of the functions, casts and checks that a query can reach, or of what comes along with tables '
'of others.';

CREATE OR REPLACE FUNCTION pgtrickle._lost_privilege(id bigint) RETURNS text
LANGUAGE plpgsql STABLE SET search_path = pg_catalog, pg_temp AS $$
DECLARE
    st pgtrickle.pgt_stream_tables;
    keeper CONSTANT oid := pgtrickle._keeper();
    author oid;
    lost text;
BEGIN
    SELECT * INTO st FROM pgtrickle.pgt_stream_tables AS t WHERE t.pgt_id = id;
    -- In a database restored from a dump other relations have these oids.
    IF st.defined_in IS DISTINCT FROM pgtrickle._place() THEN
        RETURN NULL;
    END IF;
    SELECT r.oid INTO author FROM pg_roles AS r WHERE r.rolname = pgtrickle._author(st.created_by, st.created_key);
    IF author IS NULL THEN
        RETURN format('role %I, who created it, was dropped', st.created_by);
    END IF;
    IF NOT st.is_judged THEN
        RETURN 'it was defined before it was checked what code a query reaches, and that check has refused it: define it again';
    END IF;
    IF st.run_as = 'author' AND NOT pgtrickle._may_become(keeper, author) THEN
        RETURN format('permission denied to set role %I: %I has lost it', st.created_by, pg_get_userbyid(keeper));
    END IF;
    SELECT CASE
               WHEN p.is_elsewhere THEN p.lost_elsewhere
               WHEN NOT missing.of_table AND NOT missing.of_schema
                   THEN format('row security of %s is active for %I now', p.relid::regclass, pg_get_userbyid(p.reader))
               WHEN missing.of_table THEN format('permission denied for %s: %I has lost SELECT on it', p.relid::regclass, pg_get_userbyid(p.reader))
               ELSE format('permission denied for schema %s: %I has lost USAGE on it', c.relnamespace::regnamespace, pg_get_userbyid(p.reader))
           END
    INTO lost
    FROM pgtrickle.pgt_privileges AS p
    JOIN pg_class AS c ON c.oid = p.relid
    CROSS JOIN LATERAL (
        SELECT NOT (has_table_privilege(p.reader, p.relid, 'SELECT')
                    OR (has_any_column_privilege(p.reader, p.relid, 'SELECT')
                        AND NOT EXISTS (SELECT FROM unnest(p.columns) AS a (attnum)
                                        WHERE NOT CASE a.attnum WHEN 0 THEN pgtrickle._may_read_all_columns(p.reader, p.relid)
                                                                ELSE has_column_privilege(p.reader, p.relid, a.attnum, 'SELECT') END))) AS of_table,
               p.is_named AND NOT has_schema_privilege(p.reader, c.relnamespace, 'USAGE') AS of_schema
    ) AS missing
    WHERE p.pgt_id = id
      AND CASE WHEN p.is_elsewhere THEN p.lost_elsewhere IS NOT NULL
               ELSE missing.of_table OR missing.of_schema
                    OR (c.relrowsecurity
                        AND EXISTS (SELECT
                                    FROM pg_roles AS w
                                    WHERE w.oid IN (p.reader, keeper) AND NOT w.rolsuper AND NOT w.rolbypassrls
                                      AND (c.relforcerowsecurity OR NOT pg_has_role(w.oid, c.relowner, 'USAGE')))) END
    LIMIT 1;
    RETURN coalesce(lost, (SELECT format('permission denied for function %s: %I has lost EXECUTE on it', f.funcid::regprocedure, st.created_by)
                           FROM unnest(st.functions_used) AS f (funcid)
                           WHERE NOT has_function_privilege(author, f.funcid, 'EXECUTE')
                           LIMIT 1));
END
$$;
COMMENT ON FUNCTION pgtrickle._lost_privilege(bigint) IS
'Internal. The first privilege that evaluating a stream table needs and that was there when it was defined, in words; NULL when none is missing.';
