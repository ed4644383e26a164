# ruff: noqa: E501 - a query is easier to read on one line
"""Queries that are maintained from changes because an order is shown to be total, or because a construct is rewritten.
The oracle is what PostgreSQL answers to the text, as texts, after rounds of random changes."""

from __future__ import annotations

from random import Random

import pytest

from tests.line import Line
from tests.spark.test_equal_values import answers

TABLES = """
CREATE TABLE fx (cur varchar(3), day date, rate numeric, PRIMARY KEY (cur, day));
CREATE TABLE o (id int PRIMARY KEY, cur text, day date, until date, amount numeric(12,2), k int, q int, x text, j jsonb, a int[], at timestamp);
CREATE TABLE c (id int PRIMARY KEY, name text, region int);
CREATE TABLE it (oid bigint, line int, note text, PRIMARY KEY (oid, line));
CREATE TABLE b (a int, w int);
CREATE TABLE "Odd t" ("pk x" int PRIMARY KEY, "group" text);
"""
ORDERS = {
    # as-of joins: the equality with the outer row and the order have the primary key
    "asof": "SELECT o.id, r.rate FROM o, LATERAL (SELECT fx.rate FROM fx WHERE fx.cur = o.cur AND fx.day <= o.day ORDER BY fx.day DESC LIMIT 1) r",
    "asof_left": "SELECT o.id, r.* FROM o LEFT JOIN LATERAL (SELECT fx.rate, fx.day FROM fx WHERE fx.cur = o.cur AND fx.day <= o.day ORDER BY fx.day DESC LIMIT 1) r ON true",
    "asof_value": "SELECT id, amount * (SELECT fx.rate FROM fx WHERE fx.cur = o.cur AND fx.day <= o.day ORDER BY fx.day DESC LIMIT 1) AS eur FROM o",
    "asof_latest": "SELECT o.id, (SELECT fx.rate FROM fx WHERE fx.cur = o.cur ORDER BY fx.day DESC LIMIT 1) AS rate FROM o",
    "asof_sum": "SELECT o.k, sum(o.amount * r.rate) AS s FROM o, LATERAL (SELECT fx.rate FROM fx WHERE fx.cur = o.cur AND fx.day <= o.day ORDER BY fx.day DESC LIMIT 1) r GROUP BY o.k",
    "asof_derived": "SELECT o.id, (SELECT r.rate FROM (SELECT cur AS c, day AS d, rate FROM fx WHERE rate > 2) r WHERE r.c = o.cur ORDER BY r.d DESC LIMIT 1) AS rate FROM o",
    "first_line": "SELECT c.id, l.note FROM c, LATERAL (SELECT it.note FROM o JOIN it ON it.oid = o.id WHERE o.k = c.id ORDER BY o.day, o.id, it.line LIMIT 1) l",
    "first_line_left": "SELECT c.id, l.id AS o, l.note FROM c, LATERAL (SELECT o.id, it.note FROM o LEFT JOIN it ON it.oid = o.id AND it.line > 1 WHERE o.k = c.id ORDER BY o.id DESC, it.line LIMIT 2) l",
    # groups: their keys decide
    "top_groups": "SELECT t.id, t.total, c.name FROM (SELECT c.id, sum(o.amount) AS total FROM c JOIN o ON o.k = c.id GROUP BY c.id ORDER BY total DESC, c.id LIMIT 3) t JOIN c USING (id)",
    "top_groups_of_all": "SELECT c.id, c.name, avg(o.amount) AS mean FROM c JOIN o ON o.k = c.id GROUP BY c.id ORDER BY mean DESC, c.id LIMIT 3",
    "top_groups_of_each": "SELECT c.id, l.q, l.total FROM c, LATERAL (SELECT o.q, sum(o.amount) AS total FROM o WHERE o.k = c.id GROUP BY o.q ORDER BY total DESC, o.q LIMIT 2) l",
    "top_groups_equal": "SELECT s.id, s.n FROM (SELECT c.id, o.k, count(*) AS n FROM c JOIN o ON o.k = c.id GROUP BY c.id, o.k ORDER BY n DESC, o.k LIMIT 2) s JOIN c ON c.id = s.id",
    # ordered aggregates below another operator
    "texts": "SELECT s.names, count(*) AS n FROM (SELECT k, string_agg(x, ',' ORDER BY id) AS names FROM o GROUP BY k) s GROUP BY s.names",
    "texts_of_join": "SELECT c.id, s.notes FROM c LEFT JOIN (SELECT o.k, string_agg(it.note, ',' ORDER BY it.oid, it.line) AS notes FROM o JOIN it ON it.oid = o.id GROUP BY o.k) s ON s.k = c.id",
    "texts_of_group": "SELECT c.id, s.notes FROM c LEFT JOIN (SELECT oid, string_agg(note, ',' ORDER BY line) AS notes FROM it GROUP BY oid) s ON s.oid = c.id",
    "texts_of_row": "SELECT o.id, (SELECT jsonb_agg(jsonb_build_array(it.line, it.note) ORDER BY it.line DESC)::text FROM it WHERE it.oid = o.id) AS notes FROM o",
    "texts_of_numbered": "SELECT o.id, (SELECT string_agg(u.v::text, ',' ORDER BY u.n) FROM unnest(o.a) WITH ORDINALITY AS u(v, n)) AS t FROM o",
    "texts_of_groups": "SELECT c.id, (SELECT string_agg(g.n || 'x' || g.q, ',' ORDER BY g.q) FROM (SELECT o.q, count(*) AS n FROM o WHERE o.k = c.id GROUP BY o.q) g) AS t FROM c",
    "numbered": "SELECT s.k, s.n, c.name FROM (SELECT o.k, it.note, row_number() OVER (PARTITION BY o.k ORDER BY o.id, it.line) AS n FROM o JOIN it ON it.oid = o.id) s JOIN c ON c.id = s.k WHERE s.n <= 2",
    "odd_names": 'SELECT c.id, (SELECT string_agg(t."group", \',\' ORDER BY t."pk x" DESC) FROM "Odd t" t WHERE t."pk x" > c.id) AS s FROM c',
}
CONSTRUCTS = {
    "key_value": "SELECT (SELECT c.region FROM c WHERE c.id = o.k) AS region, sum(o.amount) AS s FROM o GROUP BY (SELECT c.region FROM c WHERE c.id = o.k)",
    "key_exists": "SELECT EXISTS (SELECT 1 FROM it WHERE it.oid = o.id) AS has, count(*) AS n FROM o GROUP BY 1",
    "key_mixed": "SELECT k, EXISTS (SELECT 1 FROM it WHERE it.oid = o.id) AS has, count(*) AS n, max(amount) AS m FROM o WHERE q > 0 GROUP BY k, 2 HAVING count(*) > 1",
    "key_below": "SELECT s.has, c.name FROM (SELECT CASE WHEN EXISTS (SELECT 1 FROM it WHERE it.oid = o.id) THEN o.k ELSE 0 END AS has, count(*) AS n FROM o GROUP BY 1) s JOIN c ON c.id = s.n",
    "key_of_merged": "SELECT (SELECT c.name FROM c WHERE c.id = a) AS name, count(*) AS n FROM b FULL JOIN (SELECT k AS a FROM o) r USING (a) GROUP BY 1",
    "join_alias": "SELECT z.amount, z.name FROM (o JOIN c ON o.k = c.id) z",
    "join_alias_list": "SELECT z.oid, z.name, it.note FROM (o LEFT JOIN c ON o.k = c.id) z (oid) LEFT JOIN it ON it.oid = z.oid",
    "join_alias_using": "SELECT z.a, z.w, z.region, z.name FROM (b FULL JOIN (SELECT id AS a, region, name FROM c) r USING (a)) AS z",
    "join_alias_groups": "SELECT z.name, sum(z.amount) AS s FROM (o RIGHT JOIN c ON o.k = c.id) z GROUP BY z.name",
    "rows_from": "SELECT o.id, f.a, f.b FROM o, ROWS FROM (generate_series(1, o.k), unnest(o.a)) AS f(a, b)",
    "rows_from_count": "SELECT f.b, count(*) AS n FROM o, ROWS FROM (generate_series(1, o.k), unnest(o.a)) WITH ORDINALITY AS f(a, b, n) GROUP BY f.b",
    "days": "SELECT g::date AS d, count(*) AS n FROM o, generate_series(o.day, o.until, '1 day') AS g GROUP BY 1",
    "calendar": "SELECT d::date AS d, count(o.id) AS n FROM generate_series('2024-01-01'::date, '2024-01-10'::date, interval '1 day') AS d LEFT JOIN o ON o.day = d::date GROUP BY 1",
    "recordset": "SELECT o.id, r.a, r.b FROM o LEFT JOIN LATERAL jsonb_to_recordset(o.j) AS r(a int, b text) ON true",
    "record": "SELECT r.a, count(*) AS n FROM o, jsonb_to_record(o.j -> 0) AS r(a numeric(6,2), b text) GROUP BY r.a",
    "grouping_in_having": "SELECT k, q, sum(amount) AS s FROM o GROUP BY ROLLUP (k, q) HAVING grouping(k) = 0 AND count(*) > 1",
    "grouping_of_groups": "SELECT k, grouping(k) AS g, sum(amount) AS s FROM o GROUP BY k HAVING grouping(k) = 0",
    "rollup_of_array": "SELECT a, sum(amount) AS s FROM o GROUP BY ROLLUP (a)",
    "rollup_of_new_array": "SELECT ARRAY[k, q] AS a, grouping(ARRAY[k, q]) AS g, count(*) AS n FROM o GROUP BY ROLLUP (ARRAY[k, q])",
    "cube_of_array": "SELECT a, k, count(*) AS n, max(amount) AS m FROM o GROUP BY CUBE (a, k)",
    "values": "SELECT v.a, v.b FROM (VALUES (1, (SELECT count(*) FROM o)), (2, (SELECT max(w) FROM b))) v(a, b)",
    "values_alone": "VALUES ('orders', (SELECT count(*) FROM o)), ('lines', (SELECT count(*) FROM it))",
    "values_lateral": "SELECT o.id, v.n, v.x FROM o, LATERAL (VALUES ('a', (SELECT count(*) FROM it WHERE it.oid = o.id)), ('b', o.k)) v(n, x)",
    "values_in": "SELECT id FROM o WHERE k IN (VALUES ((SELECT max(region) FROM c)), (2))",
    "sets_as_keys": "SELECT unnest(a) AS u, sum(amount) AS s FROM o GROUP BY unnest(a) HAVING count(*) > 1",
    "sets_side_by_side": "SELECT unnest(o.a) AS u, generate_series(1, o.k) AS g, count(*) AS n FROM o GROUP BY 1, 2",
    "sets_of_join": "SELECT c.name, unnest(o.a) + 1 AS u, count(*) AS n FROM o JOIN c ON c.id = o.k GROUP BY 1, 2 ORDER BY 3 DESC, 1, 2 LIMIT 4",
    "sets_in_condition": "SELECT id FROM o WHERE k IN (SELECT unnest(p.a) FROM o p WHERE p.q = o.q)",
    "sets_not_in": "SELECT id FROM c WHERE id NOT IN (SELECT unnest(p.a) FROM o p)",
    # PostgreSQL permits sets in CASE in subqueries and as what is expanded
    "case_of_set": "SELECT id, CASE WHEN k > 2 THEN (SELECT max(u) FROM unnest(a) AS u) ELSE q END AS m FROM o",
    "case_when_in_set": "SELECT id, CASE WHEN q IN (SELECT unnest(a)) THEN 'in' WHEN EXISTS (SELECT generate_series(2, o.k)) THEN 'some' ELSE 'none' END AS s FROM o",
    "case_of_set_as_key": "SELECT CASE WHEN k IS NULL THEN 0 ELSE (SELECT count(*) FROM (SELECT unnest(o.a)) u) END AS n, count(*) AS c FROM o GROUP BY 1",
    "case_of_set_in_sum": "SELECT k, sum(CASE WHEN q > 1 THEN (SELECT sum(g) FROM generate_series(1, q) AS g) ELSE 0 END) AS s FROM o GROUP BY k",
    "case_of_set_in_condition": "SELECT id FROM o WHERE CASE WHEN k > 1 THEN q = ANY (ARRAY(SELECT unnest(a))) ELSE EXISTS (SELECT 1 FROM it, generate_series(1, it.line) AS g WHERE it.oid = o.id AND g > 1) END",
    "case_of_sets_of_tables": "SELECT c.id, CASE c.region WHEN 2 THEN (SELECT sum(u) FROM o, unnest(o.a) AS u WHERE o.k = c.id) ELSE (SELECT count(*) FROM (SELECT generate_series(1, o.q) AS g FROM o WHERE o.k = c.id) s WHERE s.g > 1) END AS v FROM c",
    "set_of_case": "SELECT id, unnest(CASE WHEN k > 1 THEN a ELSE ARRAY[q] END) AS u FROM o",
    "set_up_to_case": "SELECT g, count(*) AS n FROM o, generate_series(1, CASE WHEN k > 2 THEN 2 ELSE k END) AS g GROUP BY g",
    "row_equal": "SELECT id FROM o WHERE ROW(k, q) = (SELECT c.id, c.region FROM c WHERE c.id = 2)",
    "row_equal_constants": "SELECT id, ROW(1, 2) = (SELECT 3, 4) AS e FROM o",
    "row_equal_correlated": "SELECT id FROM o WHERE (k, q) = (SELECT c.id, max(c.region) FROM c WHERE c.id = o.k GROUP BY c.id)",
    "row_less": "SELECT id, (k, q) < (SELECT max(c.id), max(c.region) FROM c) AS l FROM o",
}
ROUNDS = 8


def changes(random: Random) -> str:
    """Inserts, updates and deletes of a few rows."""

    def some(*texts: object) -> str:
        return str(random.choice(texts))

    def number(upto: int) -> int:
        return random.randint(1, upto)

    def one() -> str:
        day, until = f"'2024-01-{number(9):02d}'", f"'2024-01-{number(12):02d}'"
        k, q, x = some("NULL", 1, 2, 3, 4), some("NULL", 1, 2, 3), some("NULL", "'a'", "'b'", "'a,b'")
        cur, a = some("'EUR'", "'USD'", "NULL"), some("NULL", "'{}'", "'{1,2}'", "'{1,NULL,3}'", "'{2,2}'")
        j = some("NULL", "'[]'", """'[{"a": 1, "b": "x"}, {"a": 2}]'""", """'[{"b": "y"}]'""")
        rows = {
            "o": f"({number(9)}, {cur}, {day}, {until}, {number(50)}, {k}, {q}, {x}, {j}, {a})",
            "fx": f"({some(chr(39) + 'EUR' + chr(39), chr(39) + 'USD' + chr(39))}, {day}, {some('1.0', '1.00', '2.5', '3')})",
            "c": f"({number(4)}, {x}, {q})",
            "it": f"({number(9)}, {number(3)}, {x})",
            "b": f"({k}, {q})",
            '"Odd t"': f"({number(6)}, {x})",
        }
        table = some("o", "o", *rows)
        key = {"o": "id", "fx": "extract(day FROM day)", "c": "id", "it": "oid", "b": "a", '"Odd t"': '"pk x"'}[table]
        updates = {
            "o": f"k = {k}, q = {q}, a = {a}, day = {day}, cur = {cur}, x = {x}, j = {j}, amount = amount + 1",
            "fx": "rate = rate + 1",
            "c": f"region = {q}, name = {x}",
            "it": f"note = {x}",
            "b": f"w = {q}",
            '"Odd t"': f'"group" = {x}',
        }
        return some(
            f"INSERT INTO {table} VALUES {rows[table]} ON CONFLICT DO NOTHING",
            f"INSERT INTO {table} VALUES {rows[table]} ON CONFLICT DO NOTHING",
            f"UPDATE {table} SET {updates[table]} WHERE {key} <= {number(6)}",
            f"DELETE FROM {table} WHERE {key} = {number(6)}",
        )

    return "; ".join(one() for _ in range(random.randint(2, 7)))


@pytest.mark.parametrize(("queries", "seed"), [(ORDERS, 11), (CONSTRUCTS, 12)], ids=["orders", "constructs"])
def test_queries_are_maintained_from_changes(line: Line, queries: dict[str, str], seed: int) -> None:
    random = Random(seed)
    line.sql(TABLES)
    for _ in range(6):
        line.sql(changes(random))
    for name, query in queries.items():
        line.sql("SELECT pgtrickle.create_stream_table(%s, %s, 'calculated', 'DIFFERENTIAL')", name, query)
    line.tick()
    seen: dict[str, set[str]] = {name: set() for name in queries}
    for number in range(ROUNDS + 1):
        change = "DELETE FROM o; DELETE FROM fx; DELETE FROM c" if number == ROUNDS - 2 else changes(random)
        if number:
            line.sql(change)
            line.tick()
        for name, query in queries.items():
            action, status, why = line.last(name)
            assert status == "COMPLETED", (name, change, why)
            assert action in ("DIFFERENTIAL", "NO_DATA") or why == "first load", (name, change, action, why)
            wanted, found = answers(line, query, name)
            assert found == wanted, (name, change, wanted - found, found - wanted)
            seen[name].add(action)
    assert {name for name, actions in seen.items() if "DIFFERENTIAL" not in actions} == set()


@pytest.mark.parametrize(
    ("query", "code"),
    [
        # another column decides nothing
        ("SELECT o.id, (SELECT fx.day FROM fx WHERE fx.cur = o.cur ORDER BY fx.rate LIMIT 1) AS r FROM o", "limit_ties"),
        ("SELECT o.id, (SELECT fx.rate FROM fx WHERE fx.day <= o.day ORDER BY fx.day DESC LIMIT 1) AS r FROM o", "limit_ties"),
        # only one side of OR holds
        ("SELECT o.id, (SELECT fx.rate FROM fx WHERE fx.cur = o.cur OR fx.cur = 'EUR' ORDER BY fx.day LIMIT 1) AS r FROM o", "limit_ties"),
        # a missing time of the session's time zone equals the same instant as another time
        ("SELECT o.id, (SELECT t.v FROM times t WHERE t.at = o.at::timestamptz LIMIT 1) AS r FROM o", "limit_ties"),
        # a primary key does not cover children
        ("SELECT c.id, (SELECT p.v FROM parent p WHERE p.id = c.id LIMIT 1) AS r FROM c", "limit_ties"),
        # a row of the preserved side with several matches
        ("SELECT c.id, (SELECT it.note FROM o LEFT JOIN it ON it.oid = o.id WHERE o.k = c.id ORDER BY o.id LIMIT 1) AS r FROM c", "limit_ties"),
        # the constant holds for matches only
        ("SELECT c.id, (SELECT string_agg(o.x, ',' ORDER BY it.oid) FROM o LEFT JOIN it ON it.oid = o.id AND it.line = 1 WHERE o.k = c.id) AS r FROM c", "aggregate_ties"),
        ("SELECT s.n FROM (SELECT q, count(*) AS n FROM o GROUP BY q, k ORDER BY q LIMIT 2) s JOIN c ON c.id = s.n", "limit_ties"),
        ("SELECT c.id, (SELECT string_agg(s.u::text, ',' ORDER BY s.id) FROM (SELECT id, unnest(a) AS u FROM o) s) AS r FROM c", "aggregate_ties"),
    ],
)  # fmt: skip
def test_an_order_with_ties_is_computed_as_a_whole(line: Line, query: str, code: str) -> None:
    line.sql(TABLES)
    line.sql("CREATE TABLE times (at timestamp PRIMARY KEY, v int)")
    line.sql("CREATE TABLE parent (id int PRIMARY KEY, v int); CREATE TABLE child () INHERITS (parent)")
    line.create("t", query)
    ((mode, reason),) = line.sql(
        "SELECT effective_refresh_mode, mode_reason_params #>> '{what,code}' FROM pgtrickle.pgt_stream_tables"
    )
    assert (mode, reason) == ("FULL", code)


@pytest.mark.parametrize(
    ("query", "code"),
    [
        ("SELECT id, v FROM ONLY parent", "from_only"),
        ("SELECT o.id, r.d FROM o, jsonb_to_recordset(o.j) AS r(d date)", "json_reads_clock"),
        ("SELECT o.id, r.d FROM o, jsonb_to_recordset(o.j) AS r(d timestamp[])", "json_reads_clock"),
    ],
)
def test_what_cannot_be_exact_says_why(line: Line, query: str, code: str) -> None:
    line.sql(TABLES)
    line.sql("CREATE TABLE parent (id int PRIMARY KEY, v int); CREATE TABLE child () INHERITS (parent)")
    line.create("t", query)
    assert line.sql("SELECT effective_refresh_mode, mode_reason_code FROM pgtrickle.pgt_stream_tables") == [
        ("FULL", code)
    ]


def test_key_that_is_dropped_decides_nothing_any_more(line: Line) -> None:
    line.sql(TABLES)
    line.sql("INSERT INTO fx VALUES ('EUR', '2024-01-01', 1), ('EUR', '2024-01-02', 2)")
    line.sql("INSERT INTO o (id, cur, day) SELECT n, 'EUR', '2024-01-02' FROM generate_series(1, 4) AS n")
    query = ORDERS["asof"]
    line.create("t", query)
    line.sql("UPDATE fx SET rate = 3 WHERE rate = 2")
    line.tick()
    line.check("t")
    line.sql("ALTER TABLE fx DROP CONSTRAINT fx_pkey; INSERT INTO fx VALUES ('EUR', '2024-01-02', 9)")
    line.tick()
    assert line.sql("SELECT effective_refresh_mode FROM pgtrickle.pgt_stream_tables") == [("FULL",)]
    line.sql("DELETE FROM fx WHERE rate = 3")
    line.tick()
    wanted, found = answers(line, query, "t")
    assert found == wanted
