-- The dependency graph: diamonds, cycles and the tree.

CREATE OR REPLACE FUNCTION pgtrickle._upstream() RETURNS TABLE (pgt_id bigint, relid oid)
LANGUAGE sql STABLE SET search_path = pg_catalog, pg_temp AS $$
    WITH RECURSIVE reach(pgt_id, relid) AS (
        SELECT d.pgt_id, d.source_relid FROM pgtrickle.pgt_dependencies AS d WHERE d.source_type IN ('TABLE', 'STREAM_TABLE')
        UNION
        SELECT r.pgt_id, d.source_relid
        FROM reach AS r
        JOIN pgtrickle.pgt_stream_tables AS st ON st.pgt_relid = r.relid
        JOIN pgtrickle.pgt_dependencies AS d ON d.pgt_id = st.pgt_id AND d.source_type IN ('TABLE', 'STREAM_TABLE')
    )
    SELECT r.pgt_id, r.relid FROM reach AS r
$$;
COMMENT ON FUNCTION pgtrickle._upstream() IS 'Internal. Everything captured that a stream table reads, directly or through others.';

-- The same diamonds as the scheduler's. Readers first, each relation learns from its own readers which source of the tip they are behind
-- (their "top"). One that is told two different ones is behind none: paths to the tip begin there, and it is its own top.
CREATE OR REPLACE FUNCTION pgtrickle._diamonds() RETURNS TABLE (tip bigint, member bigint)
LANGUAGE plpgsql STABLE SET search_path = pg_catalog, pg_temp AS $$
DECLARE
    -- who reads what: the reader's id and relation, the source, its level
    ids bigint[];
    readers oid[];
    sources oid[];
    levels bigint[];
    -- what is known so far: for this tip this relation has this top, and was told several
    tips bigint[] := '{}';
    relids oid[] := '{}';
    tops oid[] := '{}';
    several bool[] := '{}';
    now_level bigint;
    told record;
    apart bigint[];
BEGIN
    -- those without upstream tables, or that form a unit alone
    SELECT array_agg(DISTINCT st.pgt_id) INTO apart
    FROM pgtrickle.pgt_stream_tables AS st
    LEFT JOIN pgtrickle._upstream() AS u ON u.pgt_id = st.pgt_id AND u.relid = st.pgt_relid
    WHERE st.refresh_mode = 'IMMEDIATE' OR u.relid IS NOT NULL;
    -- a level is how much is above: every reader has more of it than what it reads, except in circles
    WITH level AS MATERIALIZED (
        SELECT st.pgt_relid AS relid, count(*) AS n
        FROM pgtrickle.pgt_stream_tables AS st
        JOIN pgtrickle._upstream() AS u ON u.pgt_id = st.pgt_id
        GROUP BY st.pgt_relid
    )
    SELECT array_agg(st.pgt_id), array_agg(st.pgt_relid), array_agg(d.source_relid), array_agg(coalesce(l.n, 0))
    INTO ids, readers, sources, levels
    FROM pgtrickle.pgt_dependencies AS d
    JOIN pgtrickle.pgt_stream_tables AS st ON st.pgt_id = d.pgt_id
    LEFT JOIN level AS l ON l.relid = d.source_relid
    WHERE d.source_type IN ('TABLE', 'STREAM_TABLE');
    FOR now_level IN SELECT DISTINCT u.level FROM unnest(levels) AS u(level) ORDER BY u.level DESC LOOP
        WITH edge AS MATERIALIZED (
            SELECT e.id, e.reader, e.source
            FROM unnest(ids, readers, sources, levels) AS e(id, reader, source, level)
            WHERE e.level = now_level
        ), heard AS (
            SELECT e.id AS tip, e.source AS relid, e.source AS top FROM edge AS e WHERE e.id <> ALL (coalesce(apart, '{}'))
            UNION ALL
            SELECT k.tip, e.source, k.top FROM edge AS e JOIN unnest(tips, relids, tops) AS k(tip, relid, top) ON k.relid = e.reader
        ), learned AS (
            SELECT h.tip, h.relid, CASE WHEN count(DISTINCT h.top) = 1 THEN min(h.top) ELSE h.relid END AS top, count(DISTINCT h.top) > 1 AS several
            FROM heard AS h
            GROUP BY h.tip, h.relid
        )
        SELECT array_agg(l.tip) AS tips, array_agg(l.relid) AS relids, array_agg(l.top) AS tops, array_agg(l.several) AS several INTO told FROM learned AS l;
        tips := tips || told.tips;
        relids := relids || told.relids;
        tops := tops || told.tops;
        several := several || told.several;
    END LOOP;
    RETURN QUERY
    WITH known AS MATERIALIZED (
        SELECT k.tip, k.relid, k.several FROM unnest(tips, relids, several) AS k(tip, relid, several)
    ), below AS (
        SELECT DISTINCT k.tip, st.pgt_id AS member
        FROM known AS k
        JOIN pgtrickle.pgt_stream_tables AS st ON st.pgt_relid = k.relid
        JOIN pgtrickle._upstream() AS u ON u.pgt_id = st.pgt_id
        JOIN known AS o ON o.tip = k.tip AND o.relid = u.relid AND o.several
        WHERE st.pgt_id <> ALL (coalesce(apart, '{}'))
    )
    SELECT b.tip, b.member FROM below AS b
    UNION
    SELECT b.tip, b.tip FROM below AS b;
END
$$;
COMMENT ON FUNCTION pgtrickle._diamonds() IS
'Internal. Each stream table that sees one relation by two ways (tip), with itself and the stream tables on these ways.';

CREATE OR REPLACE FUNCTION pgtrickle.diamond_groups()
RETURNS TABLE (group_id int, member_name text, member_schema text, is_convergence bool, epoch bigint, schedule_policy text, consistency text)
LANGUAGE sql STABLE SET search_path = pg_catalog, pg_temp AS $$
    WITH RECURSIVE part AS MATERIALIZED (
        SELECT d.tip, d.member FROM pgtrickle._diamonds() AS d
    ), beside AS MATERIALIZED (
        SELECT DISTINCT a.tip, b.tip AS other FROM part AS a JOIN part AS b ON b.member = a.member
    ), joined(root, tip) AS (
        -- diamonds that share a member are one group
        SELECT DISTINCT p.tip, p.tip FROM part AS p
        UNION
        SELECT j.root, b.other FROM joined AS j JOIN beside AS b ON b.tip = j.tip
    ), member AS (
        SELECT DISTINCT g.root, p.member
        FROM (SELECT j.tip, min(j.root) AS root FROM joined AS j GROUP BY j.tip) AS g
        JOIN part AS p ON p.tip = g.tip
    )
    SELECT (dense_rank() OVER (ORDER BY m.root))::int, st.pgt_name::text, st.pgt_schema::text,
           EXISTS (SELECT FROM part AS p WHERE p.tip = st.pgt_id), st.epoch,
           coalesce(st.diamond_schedule_policy, 'fastest'), coalesce(st.diamond_consistency, 'atomic')
    FROM member AS m
    JOIN pgtrickle.pgt_stream_tables AS st ON st.pgt_id = m.member
    ORDER BY 1, st.pgt_id
$$;
COMMENT ON FUNCTION pgtrickle.diamond_groups() IS
'Stream tables on several paths from one relation to the same reader, and that reader (is_convergence). They are refreshed at one snapshot, unless '
'every reader of a group has diamond_consistency none.';

CREATE OR REPLACE FUNCTION pgtrickle.pgt_scc_status()
RETURNS TABLE (scc_id int, member_count int, members text[], last_iterations int, last_converged_at timestamptz)
LANGUAGE sql STABLE SET search_path = pg_catalog, pg_temp AS $$
    WITH reads AS (
        SELECT DISTINCT u.pgt_id, st.pgt_id AS source
        FROM pgtrickle._upstream() AS u
        JOIN pgtrickle.pgt_stream_tables AS st ON st.pgt_relid = u.relid
    ), component AS (
        SELECT a.pgt_id, min(a.source) AS root
        FROM reads AS a
        JOIN reads AS b ON b.pgt_id = a.source AND b.source = a.pgt_id
        GROUP BY a.pgt_id
    ), ids AS (
        SELECT c.root, array_agg(c.pgt_id ORDER BY c.pgt_id) AS members FROM component AS c GROUP BY c.root
    )
    SELECT (row_number() OVER (ORDER BY i.root))::int, cardinality(i.members),
           (SELECT array_agg(format('%I.%I', st.pgt_schema, st.pgt_name) ORDER BY st.pgt_id)
            FROM pgtrickle.pgt_stream_tables AS st WHERE st.pgt_id = ANY (i.members)),
           l.iterations, l.finished_at
    FROM ids AS i
    LEFT JOIN LATERAL (SELECT j.iterations, j.finished_at FROM pgtrickle.pgt_scheduler_jobs AS j
                       WHERE j.unit_kind = 'cyclic_scc' AND j.status = 'SUCCEEDED' AND j.iterations IS NOT NULL AND j.members @> i.members
                           AND j.members <@ i.members
                       ORDER BY j.job_id DESC LIMIT 1) AS l ON true
    ORDER BY i.root
$$;
COMMENT ON FUNCTION pgtrickle.pgt_scc_status() IS
'Stream tables that read one another in a cycle, with the number of rounds of their last refresh with changes, and its time. NULL if there was none '
'within a day.';

CREATE OR REPLACE FUNCTION pgtrickle.dependency_tree()
RETURNS TABLE (tree_line text, node text, node_type text, depth int, status text, refresh_mode text)
LANGUAGE plpgsql STABLE SET search_path = pg_catalog, pg_temp AS $$
DECLARE
    -- what is still to be shown, the next one last
    stack oid[];
    depths int[];
    indents text[];
    lasts bool[];
    shown oid[] := '{}';
    this oid;
    indent text;
    is_last bool;
    below oid[];
    n int;
BEGIN
    -- from tables without readers; what remains after them are cycles
    SELECT array_agg(st.pgt_relid ORDER BY r.is_read DESC, st.pgt_schema DESC, st.pgt_name DESC) INTO stack
    FROM pgtrickle.pgt_stream_tables AS st
    CROSS JOIN LATERAL (SELECT EXISTS (SELECT FROM pgtrickle.pgt_dependencies AS d WHERE d.source_relid = st.pgt_relid)) AS r(is_read);
    n := coalesce(cardinality(stack), 0);
    depths := array_fill(0, ARRAY[n]);
    indents := array_fill(''::text, ARRAY[n]);
    lasts := array_fill(true, ARRAY[n]);
    WHILE n > 0 LOOP
        this := stack[n];
        depth := depths[n];
        indent := indents[n];
        is_last := lasts[n];
        n := n - 1;
        CONTINUE WHEN depth = 0 AND this = ANY (shown);
        SELECT coalesce(pgtrickle._origin_of(k.relid), quote_ident(ns.nspname) || '.' || quote_ident(c.relname),
            quote_ident(st.pgt_schema) || '.' || quote_ident(st.pgt_name), k.relid::text),
               CASE WHEN pgtrickle._origin_of(k.relid) IS NOT NULL THEN 'remote'
                    WHEN st.pgt_id IS NOT NULL THEN 'stream_table'
                    ELSE coalesce((SELECT lower(d.source_type) FROM pgtrickle.pgt_dependencies AS d WHERE d.source_relid = k.relid LIMIT 1), 'table') END,
               st.status, st.effective_refresh_mode
        INTO node, node_type, status, refresh_mode
        FROM (SELECT this) AS k(relid)
        LEFT JOIN pgtrickle.pgt_stream_tables AS st ON st.pgt_relid = k.relid
        LEFT JOIN pg_class AS c ON c.oid = k.relid
        LEFT JOIN pg_namespace AS ns ON ns.oid = c.relnamespace;
        SELECT array_agg(d.source_relid ORDER BY c.relname DESC, d.source_relid) INTO below
        FROM pgtrickle.pgt_stream_tables AS st
        JOIN pgtrickle.pgt_dependencies AS d ON d.pgt_id = st.pgt_id AND d.source_type <> 'VIEW'
        LEFT JOIN pg_class AS c ON c.oid = d.source_relid
        WHERE st.pgt_relid = this;
        tree_line := indent || CASE WHEN depth = 0 THEN '' WHEN is_last THEN '└── ' ELSE '├── ' END || node;
        IF below IS NOT NULL AND this = ANY (shown) THEN
            -- its sources are above already; showing them wherever it is read would double with every level
            tree_line := tree_line || ' (see above)';
            below := NULL;
        END IF;
        IF node_type = 'stream_table' THEN
            shown := shown || this;
        END IF;
        RETURN NEXT;
        FOR i IN 1 .. coalesce(cardinality(below), 0) LOOP
            n := n + 1;
            stack[n] := below[i];
            depths[n] := depth + 1;
            indents[n] := indent || CASE WHEN depth = 0 THEN '' WHEN is_last THEN '    ' ELSE '│   ' END;
            lasts[n] := i = 1;
        END LOOP;
    END LOOP;
END
$$;
COMMENT ON FUNCTION pgtrickle.dependency_tree() IS
'Dependencies as a tree: each stream table without readers, and below it what it reads. Sources of a stream table are shown where it first appears.';
