"""What the history says of the time and the rows of each refresh, although stream tables of a lease are refreshed
together."""

from __future__ import annotations

from tests.line import Line

SLOW = "SELECT id, (SELECT count(*) FROM generate_series(1, 1500000) AS g WHERE g > a) AS n FROM t"

# As the scaling guide asks, without its period.
LONGEST = """
SELECT st.pgt_name, AVG(EXTRACT(EPOCH FROM (h.end_time - h.start_time)))::float8 AS avg_sec
FROM pgtrickle.pgt_refresh_history h
JOIN pgtrickle.pgt_stream_tables st ON st.pgt_id = h.pgt_id
WHERE h.refresh_id > %s AND h.status = 'COMPLETED'
GROUP BY st.pgt_schema, st.pgt_name
ORDER BY avg_sec DESC
LIMIT 20
"""


def test_the_slow_table_of_a_lease_is_the_one_that_takes_the_longest(line: Line) -> None:
    line.sql("CREATE TABLE t (id int PRIMARY KEY, a int); INSERT INTO t VALUES (1, 1), (2, 2)")
    create = "SELECT pgtrickle.create_stream_table(%s, %s, refresh_mode => 'DIFFERENTIAL')"
    line.sql(create, "slow", SLOW)
    for i in range(9):
        line.sql(create, f"quick_{i}", f"SELECT id, a + {i} AS b FROM t")
    line.tick()
    before = 0
    for action in ("FULL", "DIFFERENTIAL"):
        rows = line.sql(LONGEST, before)
        assert len(rows) == 10
        slow, next_one = rows[0], rows[1]
        assert slow[0] == "slow"
        reading = line.sql(
            "SELECT (SELECT sum(ms::float8) FROM jsonb_each_text(h.timings) AS e (part, ms) "
            "WHERE part <> 'spark') / 1000 FROM pgtrickle.pgt_refresh_history AS h "
            "JOIN pgtrickle.pgt_stream_tables USING (pgt_id) WHERE pgt_name = 'slow' AND refresh_id > %s",
            before,
        )[0][0]
        assert slow[1] - next_one[1] > reading / 2  # whoever waited beside it, or after it, is not charged
        waves = line.sql(
            "SELECT sum(share_ms), extract(epoch FROM max(end_time) - min(wave_start_time)) * 1000, "
            "bool_and(start_time >= wave_start_time), array_agg(DISTINCT action) "
            "FROM pgtrickle.pgt_refresh_history WHERE refresh_id > %s",
            before,
        )
        shares, wave, are_inside, actions = waves[0]
        assert (are_inside, actions) == (True, [action])
        assert shares <= float(wave) * 1.01
        before = line.sql("SELECT max(refresh_id) FROM pgtrickle.pgt_refresh_history")[0][0]
        line.sql("INSERT INTO t VALUES (%s, 3)", 10 + before)
        line.tick()


def operator_rows(line: Line, name: str) -> list[tuple[str, object]]:
    """Of all refreshes, oldest first, with names instead of oids."""
    return line.sql(
        "SELECT h.action, CASE WHEN h.operator_rows IS NOT NULL THEN h.operator_rows || jsonb_build_object('changes', "
        "(SELECT jsonb_object_agg(e.relid::oid::regclass, e.n) FROM jsonb_each(h.operator_rows -> 'changes') "
        "AS e (relid, n))) END FROM pgtrickle.pgt_refresh_history AS h JOIN pgtrickle.pgt_stream_tables USING (pgt_id) "
        "WHERE pgt_name = %s ORDER BY h.refresh_id",
        name,
    )


def test_rows_are_counted_between_the_operators(line: Line) -> None:
    line.sql("CREATE TABLE orders (id int PRIMARY KEY, customer int, amount int)")
    line.sql(
        "CREATE TABLE customers (id int PRIMARY KEY, country text); INSERT INTO customers VALUES (1, 'A'), (2, 'B')"
    )
    join = "SELECT c.country, o.id, o.amount FROM orders AS o JOIN customers AS c ON c.id = o.customer"
    line.create("rows_of_orders", join, mode="DIFFERENTIAL")
    line.create("big", f"SELECT country, id FROM ({join}) AS j WHERE amount > 5", mode="DIFFERENTIAL")
    line.create("by_country", f"SELECT country, min(id) AS first FROM ({join}) AS j GROUP BY 1", mode="DIFFERENTIAL")
    line.sql("INSERT INTO orders VALUES (1, 1, 1), (2, 1, 9), (3, 1, 9), (4, 2, 9)")
    line.tick()
    line.sql("UPDATE orders SET amount = 7 WHERE id = 2")  # taken out and put in: nothing of `big` changes
    line.sql("INSERT INTO customers VALUES (3, 'C')")
    line.tick()
    first, second = {"orders": 4, "customers": 0}, {"orders": 2, "customers": 1}
    expected = {
        "rows_of_orders": [{"changes": first, "read": 4, "netted": 4}, {"changes": second, "read": 2, "netted": 2}],
        "big": [{"changes": first, "read": 3, "netted": 3}, {"changes": second, "read": 2, "netted": 0}],
    }
    for name, rows in expected.items():
        assert operator_rows(line, name) == [("FULL", None), *(("DIFFERENTIAL", each) for each in rows)]
    full, folded, _ = operator_rows(line, "by_country")
    assert full == ("FULL", None)
    assert folded == ("DIFFERENTIAL", {"changes": first, "read": 4, "netted": 2})  # two groups
