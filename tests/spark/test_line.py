"""The first shapes through the whole line: real PostgreSQL, real Spark, content compared both ways after every step."""

from __future__ import annotations

from tests.line import Line

SHOP = """
CREATE TABLE customer (id int PRIMARY KEY, name text, region text);
CREATE TABLE product (id int PRIMARY KEY, title text, price numeric(10, 2));
CREATE TABLE sale (
    id int PRIMARY KEY, customer_id int, product_id int, qty int, at timestamptz DEFAULT '2026-01-01 00:00Z'
);
INSERT INTO customer SELECT i, 'c' || i, (ARRAY['north', 'south', NULL])[1 + i % 3] FROM generate_series(1, 30) AS i;
INSERT INTO product SELECT i, 'p' || i, i * 1.25 FROM generate_series(1, 10) AS i;
INSERT INTO sale SELECT i, 1 + i % 30, 1 + i % 10, nullif(i % 7, 0) FROM generate_series(1, 300) AS i;
CREATE INDEX ON sale (customer_id);
CREATE INDEX ON sale (product_id);
CREATE VIEW by_region AS
SELECT c.region, count(*) AS n FROM sale s JOIN customer c ON c.id = s.customer_id GROUP BY c.region;
"""
CHANGES = (
    "INSERT INTO sale SELECT i, 1 + i % 30, 1 + i % 10, i % 5 FROM generate_series(301, 330) AS i",
    "UPDATE sale SET qty = qty + 1 WHERE id % 11 = 0",
    "UPDATE customer SET region = 'west' WHERE id % 5 = 0",
    "DELETE FROM sale WHERE id % 13 = 0",
    "UPDATE product SET price = price * 2 WHERE id = 3",
    "DELETE FROM customer WHERE id = 7; UPDATE sale SET customer_id = 8 WHERE id < 20; "
    "DELETE FROM product WHERE id = 9",
    "UPDATE sale SET qty = NULL WHERE id % 3 = 0",
    "DELETE FROM sale",
    "INSERT INTO sale VALUES (1, 1, 1, 5), (2, 1, 1, NULL), (3, 99, 1, 2)",
)
QUERIES = {
    "filtered": "SELECT id, qty * 2 AS double, upper('x' || qty) AS t FROM sale WHERE qty > 2",
    "without_key": "SELECT qty, product_id FROM sale",
    "joined": """
        SELECT s.id, c.name, p.title, s.qty * p.price AS amount FROM sale s JOIN customer c ON c.id =
        s.customer_id JOIN product p ON p.id = s.product_id
    """,
    "self_joined": """
        SELECT a.id, b.id AS other FROM customer a JOIN customer b ON a.region = b.region AND a.id < b.id
    """,
    "theta": "SELECT p.id, c.id AS c FROM product p JOIN customer c ON p.price > c.id AND c.id BETWEEN 2 AND 9",
    "totals": """
        SELECT c.region, count(*) AS n, count(s.qty) AS nq, sum(s.qty) AS q, sum(s.qty * p.price) AS amount,
        avg(s.qty) AS aq, avg(s.qty * p.price) AS am FROM sale s JOIN customer c ON c.id = s.customer_id JOIN
        product p ON p.id = s.product_id GROUP BY c.region
    """,
    "extremes": """
        SELECT product_id, min(qty) AS lo, max(qty) AS hi, max(at) AS latest, min(qty::text) AS lo_text FROM sale
        GROUP BY product_id
    """,
    "having": """
        SELECT customer_id, sum(qty) AS q FROM sale GROUP BY customer_id HAVING sum(qty) > 20 AND count(*) > 2
    """,
    "global": "SELECT count(*) AS n, sum(qty) AS q, max(qty) AS m FROM sale",
    "expressions": """
        SELECT date_trunc('day', at) AS day, (qty % 3) + 1 AS k, round(sum(qty)::numeric / count(*), 3) AS r,
        count(*) FILTER (WHERE qty > 3) AS big, count(DISTINCT product_id) AS products FROM sale GROUP BY 1, (qty
        % 3) + 1
    """,
    "united": """
        SELECT id, name FROM customer WHERE region = 'north' UNION ALL SELECT id, title FROM product UNION ALL
        SELECT s.id, c.name FROM sale s JOIN customer c ON c.id = s.customer_id WHERE s.qty > 4
    """,
    "cte": """
        WITH big AS (SELECT * FROM sale WHERE qty > 2), named(i, n) AS (SELECT id, name FROM customer) SELECT
        n.n, b.qty FROM big b JOIN named n ON n.i = b.customer_id
    """,
    "over_groups": """
        WITH t AS (SELECT product_id, sum(qty) AS q FROM sale GROUP BY product_id) SELECT product_id, q + 1 AS q1
        FROM t WHERE q > 3
    """,
    "over_a_view_of_groups": "SELECT v.n * 2 AS n2, v.region FROM by_region AS v WHERE v.n > 2",
    "union_in_join": """
        SELECT u.k, count(*) AS n FROM (SELECT id, region AS k FROM customer UNION ALL SELECT id, title FROM
        product) u JOIN sale s ON s.customer_id = u.id GROUP BY u.k
    """,
}


def test_all_first_shapes_stay_exact_through_changes(line: Line) -> None:
    line.sql(SHOP)
    for name, query in QUERIES.items():
        line.sql("SELECT pgtrickle.create_stream_table(%s, %s, '1s', 'DIFFERENTIAL')", name, query)
    line.tick()
    for name in QUERIES:
        line.check(name, "FULL")
    line.edit_catalog("UPDATE pgtrickle.pgt_stream_tables SET schedule = 'calculated'")
    for change in CHANGES:
        line.sql(change)
        outcomes = line.tick()
        assert all(o.error is None for o in outcomes), [o for o in outcomes if o.error]
        for name in QUERIES:
            line.equal(name)
            assert line.last(name)[0] in ("DIFFERENTIAL", "NO_DATA") or line.refreshes(name) == 1, line.last(name)
    for name in QUERIES:
        line.check(name)


def test_immediate_table_is_refreshed_in_the_next_turn_whatever_its_schedule(line: Line) -> None:
    line.sql(SHOP)
    line.create("slow", "SELECT id, qty FROM sale", schedule="1h", mode="DIFFERENTIAL")
    line.create("quick", "SELECT id, qty FROM sale", schedule="1h", mode="IMMEDIATE")
    line.sql("UPDATE sale SET qty = 77 WHERE id = 1")
    line.tick()
    line.check("quick")
    assert line.refreshes("slow") == 1
    assert line.sql("SELECT effective_refresh_mode FROM pgtrickle.pgt_stream_tables WHERE pgt_name = 'quick'") == [
        ("IMMEDIATE",)
    ]


def test_long_buffer_gets_its_index_while_the_loop_tidies_up(line: Line) -> None:
    line.sql(SHOP)
    line.create("st", "SELECT id, qty FROM sale")
    line.sql("INSERT INTO sale SELECT i, 1, 1, 1 FROM generate_series(1000, 400000) AS i")  # more than 16 MiB
    line.plane.tidy()
    line.plane.finish_tidying(30)
    buffer = line.sql("SELECT 'pgtrickle_changes.changes_' || 'sale'::regclass::oid")[0][0]
    assert line.sql("SELECT indisvalid FROM pg_index WHERE indrelid = %s::regclass", buffer) == [(True,)]
    line.tick()
    line.equal("st")


def test_unique_index_of_the_user_lets_rows_be_replaced(line: Line) -> None:
    line.sql("CREATE TABLE t (id int PRIMARY KEY, g int, v int); INSERT INTO t VALUES (1, 1, 1), (2, 1, 2), (3, 2, 3)")
    line.create("rows", "SELECT id, v FROM t", mode="DIFFERENTIAL")
    line.create("groups", "SELECT g, sum(v) AS s FROM t GROUP BY g", mode="DIFFERENTIAL")
    line.sql("CREATE UNIQUE INDEX ON rows (id); CREATE UNIQUE INDEX ON groups (g)")
    line.sql("UPDATE t SET v = v + 10")
    line.tick()
    for name in ("rows", "groups"):
        line.check(name)


def test_a_plan_is_told_in_words(line: Line) -> None:
    line.sql("CREATE TABLE t (a int, b int); INSERT INTO t VALUES (1, 2)")
    line.create("st", "SELECT a, sum(b) AS b FROM t GROUP BY a")
    line.create("whole", "SELECT a, now() AS at FROM t")
    told = dict(line.sql("SELECT * FROM pgtrickle.explain_st('st')"))
    assert told["plan"].splitlines() == [
        "Mode: DIFFERENTIAL",
        "Operators, and what a refresh does for each:",
        "  Aggregate by (a): folded into the state beside the table",
        "    sum(b): adds signed values and weights exactly (decimal)",
        "    Project",
        "      Scan public.t: its changes, or itself as of a cut",
        "In Spark: net changes per group by key, exact sums, for more than 5,000 delta rows (the worker nets fewer)",
        "In PostgreSQL: everything else, in the statements that read changes and in the apply",
        "FULL instead, when:",
        *(f"  {reason}" for reason in line.sql("SELECT pgtrickle._full_when()")[0][0]),
    ]
    assert "pgtrickle_changes.changes_" in told["statement for changes"]
    assert '"public"."t"' in told["statement for loads"]
    told = dict(line.sql("SELECT * FROM pgtrickle.explain_st('whole')"))
    mode, reason, what = told["plan"].splitlines()
    assert (mode, reason) == ("Mode: FULL", f"Reason: {told['mode_reason']}")
    assert "evaluates the whole query" in what
    assert told["statement for changes"] is None
    assert "now()" in told["statement for loads"]
