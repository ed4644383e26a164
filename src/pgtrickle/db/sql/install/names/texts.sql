-- The text of a view, from which refreshes are compiled.
-- pg_get_viewdef() prints a key of GROUPING SETS as its expression. If the select list has this expression twice, the printed key means the first one:
--     SELECT k AS x, k AS y, sum(v) FROM t GROUP BY GROUPING SETS (1, 2)   is printed with   GROUPING SETS ((k), (k))
-- So these keys are written as the numbers of their columns, as the author wrote them or could have.

-- `depth` is that of the node that a word begins, belongs to or ends; `at` is the position of its first character.
CREATE OR REPLACE FUNCTION pgtrickle._tree_words(tree text) RETURNS TABLE (i bigint, word text, depth bigint, at bigint)
LANGUAGE sql IMMUTABLE SET search_path = pg_catalog, pg_temp AS $$
    SELECT t.i, t.m[1],
           sum(CASE WHEN t.m[1] ~ '^\{' THEN 1 WHEN lag_word = '}' THEN -1 ELSE 0 END) OVER w,
           1 + sum(length(t.m[1])) OVER w - length(t.m[1])
    FROM (SELECT x.i, x.m, lag(x.m[1]) OVER (ORDER BY x.i) AS lag_word
          FROM regexp_matches(tree, '(\\.|\{[A-Z]+|\}|:[a-zA-Z]+ (?:\(i [0-9 ]+\)|[\w-]+)?|[^\\{}:]+|.)', 'g') WITH ORDINALITY AS x(m, i)) AS t
    WINDOW w AS (ORDER BY t.i)
$$;
COMMENT ON FUNCTION pgtrickle._tree_words(text) IS 'Internal. The words of the text of a parse tree, which together are this text.';

-- Of each SELECT with grouping sets, which begins at word `query`: the columns that are equal to another one by which it groups or orders.
CREATE OR REPLACE FUNCTION pgtrickle._equal_columns(tree text) RETURNS TABLE (query bigint, ref text, number text)
LANGUAGE sql IMMUTABLE SET search_path = pg_catalog, pg_temp AS $$
    WITH words AS MATERIALIZED (
        SELECT w.*, lead(w.word) OVER (ORDER BY w.i) AS after, lead(w.word, 2) OVER (ORDER BY w.i) AS second FROM pgtrickle._tree_words(tree) AS w
    ), queries AS (
        SELECT (SELECT max(q.i) FROM words AS q WHERE q.word = '{QUERY' AND q.depth = w.depth AND q.i < w.i) AS query, w.i AS until, w.depth
        FROM words AS w
        WHERE w.word = ':groupingSets ' AND (w.after = '{GROUPINGSET' OR w.second = '{GROUPINGSET')
    ), columns AS (
        SELECT q.query, r.ref, r.number,
               regexp_replace(substr(tree, r.start::int, (r.stop - r.start)::int), ':location -?\d+', '', 'g') AS expression
        FROM queries AS q
        CROSS JOIN LATERAL (
            SELECT substr(w.word, 18) AS ref,
                   substr(lag(w.word) OVER o, 8) AS number,
                   lag(w.at, 2) OVER o AS start,
                   lag(w.at) OVER o AS stop
            FROM words AS w
            WHERE w.i BETWEEN q.query AND q.until AND w.depth = q.depth + 1 AND w.word ~ '^(?:\{TARGETENTRY$|:resno |:ressortgroupref )'
            WINDOW o AS (ORDER BY w.i)
        ) AS r
        WHERE r.ref ~ '^[1-9]'
    )
    SELECT c.query, c.ref, c.number
    FROM columns AS c
    WHERE EXISTS (SELECT FROM columns AS d WHERE d.query = c.query AND d.expression = c.expression AND d.ref <> c.ref)
$$;
COMMENT ON FUNCTION pgtrickle._equal_columns(text) IS 'Internal. The columns of GROUPING SETS that a printed expression does not identify.';

-- The end of an expression in a clause, before a comma, a closing parenthesis or the next clause.
CREATE OR REPLACE FUNCTION pgtrickle._expression_end(words text[], start int) RETURNS int
LANGUAGE plpgsql IMMUTABLE SET search_path = pg_catalog, pg_temp AS $$
DECLARE
    level int := 0;
BEGIN
    FOR i IN start .. cardinality(words) LOOP
        IF level = 0 AND (words[i] IN (',', ')') OR (words[i] ~ '^\s' AND words[i + 1] ~
                '^(?:HAVING|WINDOW|ORDER|LIMIT|OFFSET|FETCH|FOR|UNION|INTERSECT|EXCEPT|ASC|DESC|NULLS|USING)$')) THEN
            RETURN i;
        END IF;
        level := level + CASE words[i] WHEN '(' THEN 1 WHEN '[' THEN 1 WHEN ')' THEN -1 WHEN ']' THEN -1 ELSE 0 END;
    END LOOP;
    RETURN cardinality(words) + 1;
END
$$;
COMMENT ON FUNCTION pgtrickle._expression_end(text[], int) IS 'Internal. The first word after a key of GROUP BY or ORDER BY.';

CREATE OR REPLACE FUNCTION pgtrickle._with_number(words text[], start int, number text) RETURNS text[]
LANGUAGE sql IMMUTABLE SET search_path = pg_catalog, pg_temp AS $$
    SELECT CASE WHEN number IS NULL THEN words
                ELSE words[:start - 1] || number || array_fill(''::text, ARRAY[x.stop - start - 1]) || words[x.stop:] END
    FROM pgtrickle._expression_end(words, start) AS x(stop)
$$;
COMMENT ON FUNCTION pgtrickle._with_number(text[], int, text) IS 'Internal. A text in which the number of a column replaces an expression.';

CREATE OR REPLACE FUNCTION pgtrickle._query_text(view oid) RETURNS text
LANGUAGE plpgsql STABLE SET search_path = pg_catalog, pg_temp AS $$
DECLARE
    printed CONSTANT text := rtrim(btrim(pg_get_viewdef(view), E' \n'), ';');
    tree CONSTANT text := (SELECT r.ev_action::text FROM pg_rewrite AS r WHERE r.ev_class = view AND r.ev_type = '1');
    numbers jsonb; -- of equal columns, by their references in the tree
    words text[];
    element record;
    kinds text[] := '{}'; -- of the elements around one, by depth
    keys int; -- the first word after GROUP BY
    at int;
    is_listed bool;
    ref text;
    rest text; -- of the tree
BEGIN
    IF tree !~ '\{GROUPINGSET :kind [1-4]' THEN
        RETURN printed;
    END IF;
    SELECT jsonb_object_agg(c.ref, c.number) INTO numbers FROM pgtrickle._equal_columns(tree) AS c;
    IF numbers IS NULL THEN
        RETURN printed;
    END IF;
    words := ARRAY(SELECT t.m[1] FROM regexp_matches(printed, '(''(?:[^'']|'''')*''|"(?:[^"]|"")*"|\w+|\s+|.)', 'g') WITH ORDINALITY AS t(m, i)
                   ORDER BY t.i);
    -- The order of SELECTs in the tree is not that in the text.
    rest := split_part(tree, ':groupingSets ({', 2);
    IF (SELECT count(*) FROM regexp_matches(tree, ':groupClause \(', 'g')) > 1 OR tree ~ ':hasDistinctOn true'
       OR split_part(rest, ':sortClause ', 1) ~ '\{QUERY' THEN
        RETURN NULL;
    END IF;
    keys := (SELECT min(i) FROM generate_subscripts(words, 1) AS i WHERE words[i] = 'GROUP' AND words[i + 2] = 'BY') + 4;
    at := keys + CASE WHEN words[keys] = 'DISTINCT' THEN 2 ELSE 0 END;
    FOR element IN
        SELECT *
        FROM (SELECT w.i, w.word, w.depth, substr(lead(w.word) OVER o, 7) AS kind, lead(w.word, 2) OVER o AS content
              FROM pgtrickle._tree_words(tree) AS w
              WHERE w.word ~ '^(?:\{GROUPINGSET|:kind |:content )'
              WINDOW o AS (ORDER BY w.i)) AS e
        WHERE e.word = '{GROUPINGSET'
        ORDER BY e.i
    LOOP
        kinds[element.depth] := element.kind;
        WHILE words[at] ~ '^[\s,)]' LOOP
            at := at + 1;
        END LOOP;
        IF element.kind = '0' THEN -- ()
            at := at + 2;
        ELSIF element.kind = '1' THEN -- an expression, or several in parentheses; with parentheses in GROUPING SETS
            is_listed := element.content LIKE '% % % %' OR coalesce(kinds[element.depth - 1] = '4', false);
            at := at + is_listed::int;
            FOREACH ref IN ARRAY string_to_array(substr(element.content, 13, length(element.content) - 13), ' ') LOOP
                WHILE words[at] ~ '^[\s,]' LOOP
                    at := at + 1;
                END LOOP;
                words := pgtrickle._with_number(words, at, numbers ->> ref);
                at := pgtrickle._expression_end(words, at);
            END LOOP;
            at := at + is_listed::int;
        ELSE -- ROLLUP(, CUBE( or GROUPING SETS (
            at := at + CASE element.kind WHEN '4' THEN 5 ELSE 2 END;
        END IF;
    END LOOP;
    -- ORDER BY follows at once, or after HAVING and WINDOW.
    at := keys;
    LOOP
        at := pgtrickle._expression_end(words, at) + 1;
        EXIT WHEN at > cardinality(words) OR words[at - 1] = ')' OR words[at] = 'ORDER';
    END LOOP;
    IF words[at] = 'ORDER' THEN
        at := at + 4;
        rest := split_part(split_part(rest, ':sortClause ', 2), ' :limitOffset ', 1);
        FOR ref IN SELECT m[1] FROM regexp_matches(rest, ':tleSortGroupRef (\d+)', 'g') AS m LOOP
            words := pgtrickle._with_number(words, at, numbers ->> ref);
            LOOP
                at := pgtrickle._expression_end(words, at) + 1;
                EXIT WHEN at > cardinality(words) OR words[at - 1] IN (',', ')');
            END LOOP;
            at := at + 1;
        END LOOP;
    END IF;
    RETURN array_to_string(words, '');
END
$$;
COMMENT ON FUNCTION pgtrickle._query_text(oid) IS
'Internal. The text of a view, with the keys of GROUPING SETS as in its parse tree; NULL if these cannot be written.';
