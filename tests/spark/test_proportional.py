# ruff: noqa: E501 - a query is easier to read on one line
"""A differential refresh reads what the changes touch, not the tables: counted by PostgreSQL itself, row by row."""

from __future__ import annotations

import pytest

from pgtrickle.db.connect import Connection
from tests.line import Line

FACTS = 300_000
SCHEMA = f"""
CREATE TABLE customer (id int PRIMARY KEY, name text, region int);
CREATE TABLE product (id int PRIMARY KEY, title text, price numeric(10, 2));
CREATE TABLE fact (id int PRIMARY KEY, customer_id int, product_id int, qty int);
INSERT INTO customer SELECT i, 'c' || i, i % 50 FROM generate_series(1, 50000) AS i;
INSERT INTO product SELECT i, 'p' || i, i % 90 FROM generate_series(1, 30000) AS i;
INSERT INTO fact SELECT i, 1 + i % 50000, 1 + i % 30000, i % 1000 FROM generate_series(1, {FACTS}) AS i;
CREATE INDEX ON fact (customer_id);
CREATE INDEX ON fact (product_id);
ANALYZE customer;
ANALYZE product;
ANALYZE fact;
"""
JOIN = "FROM fact AS f JOIN customer AS c ON c.id = f.customer_id JOIN product AS p ON p.id = f.product_id"
TABLES = ("fact", "customer", "product")
CHANGES = {
    "fact": "UPDATE fact SET qty = qty + 1 WHERE id BETWEEN 1000 AND 1009",
    "customer": "UPDATE customer SET region = region + 1 WHERE id IN (17, 4711)",
    "product": "UPDATE product SET price = price + 1 WHERE id IN (5, 29000)",
}
TWO = f"{CHANGES['fact']}; {CHANGES['customer']}"
ALL = "; ".join(CHANGES.values())


def create(line: Line, name: str, query: str) -> None:
    line.sql("SELECT pgtrickle.create_stream_table(%s, %s, 'calculated', 'DIFFERENTIAL')", name, query)


def counters(line: Line) -> dict[str, tuple[int, int]]:
    """Per table: rows read by sequential scans, rows fetched through indexes, since the beginning."""
    for connection in (line.plane.worker.reader, line.plane.worker.writer, line.plane.control):
        connection.execute("SELECT pg_stat_force_next_flush()")
    line.sql("SELECT pg_stat_clear_snapshot()")
    rows = line.sql(
        "SELECT relname, seq_tup_read, coalesce(idx_tup_fetch, 0) FROM pg_stat_user_tables WHERE relname = ANY (%s)",
        list(TABLES),
    )
    return {name: (int(scanned), int(fetched)) for name, scanned, fetched in rows}


def cost(line: Line, change: str) -> dict[str, tuple[int, int]]:
    """What one refresh after `change` reads of each table."""
    line.sql(change)
    line.sql("SELECT pg_stat_force_next_flush()")
    before = counters(line)
    outcomes = line.tick()
    assert [o.error for o in outcomes if o.error] == []
    assert "DIFFERENTIAL" in {o.action for o in outcomes}
    after = counters(line)
    return {t: (after[t][0] - before[t][0], after[t][1] - before[t][1]) for t in TABLES}


def settle(line: Line) -> None:
    """First refreshes plan statements anew; counts from here on are those of a refresh and nothing else."""
    line.tick()
    line.sql(CHANGES["fact"])
    line.tick()


@pytest.mark.slow
@pytest.mark.parametrize("changed", ["fact", "customer"])
def test_groups_behind_in_are_computed_for_what_changes_ask_for(line: Line, changed: str) -> None:
    """Some thousand at once: neither all groups, nor each by itself, which takes the square of the changes."""
    line.sql(SCHEMA)
    busy = "SELECT customer_id FROM fact GROUP BY customer_id HAVING sum(qty) > 3000"
    create(
        line,
        "busy",
        f"SELECT f.id, c.name, f.qty FROM fact AS f JOIN customer AS c ON c.id = f.customer_id WHERE c.id IN ({busy})",
    )
    settle(line)
    change = {
        "fact": "UPDATE fact SET qty = qty + 400 WHERE id BETWEEN 1001 AND 3000",
        "customer": "UPDATE customer SET name = name || '!' WHERE id BETWEEN 1001 AND 3000",
    }[changed]
    read = cost(line, change)
    assert read["fact"][0] == 0
    assert read["fact"][1] < FACTS / 2
    line.check("busy")


@pytest.mark.slow
def test_some_hundred_changes_look_their_rows_up(line: Line) -> None:
    """Where the planner's usual costs of a page would have it read and hash the whole table."""
    line.sql(SCHEMA)
    create(line, "named", "SELECT f.id, c.name, f.qty FROM fact AS f JOIN customer AS c ON c.id = f.customer_id")
    settle(line)
    read = cost(line, "UPDATE fact SET qty = qty + 1 WHERE id BETWEEN 1000 AND 1299")
    assert read["customer"] == (0, 600)
    line.check("named")


@pytest.mark.slow
def test_joins_read_only_what_the_changes_touch(line: Line) -> None:
    line.sql(SCHEMA)
    create(line, "sums", f"SELECT c.region, count(*) AS n, sum(f.qty * p.price) AS amount {JOIN} GROUP BY c.region")
    create(line, "joined", f"SELECT f.id, c.name, p.title, f.qty {JOIN} WHERE f.qty > 900")
    settle(line)
    for step, change in (*CHANGES.items(), ("two at once", TWO), ("all", ALL)):
        for table, (scanned, fetched) in cost(line, change).items():
            if table == "fact" or step in TABLES:
                assert scanned == 0, f"{step}: {scanned} rows of {table} by sequential scan"
                assert fetched < 2000, f"{step}: {fetched} rows of {table} through indexes"
    for name in ("sums", "joined"):
        line.check(name)


@pytest.mark.slow
def test_several_changed_tables_read_little_of_the_small_ones(line: Line) -> None:
    line.sql(SCHEMA)
    create(line, "sums", f"SELECT c.region, count(*) AS n, sum(f.qty * p.price) AS amount {JOIN} GROUP BY c.region")
    settle(line)
    for change in (TWO, ALL):
        for table, read in cost(line, change).items():
            assert sum(read) < 2000, f"{read} rows of {table}"


@pytest.mark.slow
def test_lost_extremes_are_found_through_the_index_of_their_group(line: Line) -> None:
    line.sql(SCHEMA)
    create(line, "extremes", "SELECT customer_id, min(qty) AS lo, max(qty) AS hi FROM fact GROUP BY customer_id")
    create(
        line,
        "of_join",
        "SELECT c.name, max(f.qty) AS hi FROM fact AS f JOIN customer AS c ON c.id = f.customer_id "
        "WHERE f.customer_id % 2 = 0 GROUP BY f.customer_id, c.name",
    )
    settle(line)
    read = cost(line, "DELETE FROM fact WHERE customer_id IN (18, 4712) AND qty > 400")
    assert read["fact"][0] == 0, read
    assert read["fact"][1] < 500, read
    assert read["customer"][0] == 0, read
    for name in ("extremes", "of_join"):
        line.check(name)


@pytest.mark.slow
def test_full_joins_read_the_keys_of_the_changes(line: Line) -> None:
    line.sql(SCHEMA)
    line.sql("UPDATE fact SET customer_id = NULL WHERE id % 10 = 0; ANALYZE fact")
    queries = {
        "full_on": "SELECT f.id, c.id AS c, c.name, f.qty FROM fact AS f FULL JOIN customer AS c ON c.id = f.customer_id",
        "full_using": "SELECT id, c.name, p.title FROM customer AS c FULL JOIN product AS p USING (id)",
        "full_three": "SELECT id, c.name, p.title, f.qty FROM customer c FULL JOIN product p USING (id) FULL JOIN fact f USING (id)",
        "full_grouped": "SELECT c.region, count(f.id) AS n, sum(f.qty) AS q FROM fact AS f FULL JOIN customer AS c "
        "ON c.id = f.customer_id AND f.qty > 10 GROUP BY c.region",
    }
    for name, query in queries.items():
        create(line, name, query)
    settle(line)
    changes = {
        **{t: CHANGES[t] for t in ("fact", "customer")},
        "product": "UPDATE product SET title = title || '!' WHERE id IN (5, 29000)",
        "NULL keys": "UPDATE fact SET customer_id = NULL WHERE id BETWEEN 500 AND 504; UPDATE fact SET customer_id = 9 WHERE id IN (510, 520)",
        "both sides": "DELETE FROM customer WHERE id IN (77, 78); UPDATE fact SET customer_id = 77 WHERE id BETWEEN 701 AND 704",
        "unmatched": "INSERT INTO product SELECT i, 'new', 1 FROM generate_series(60001, 60005) AS i; DELETE FROM fact WHERE id > 299990",
    }
    for step, change in changes.items():
        for table, (scanned, fetched) in cost(line, change).items():
            assert scanned == 0, f"{step}: {scanned} rows of {table} by sequential scan"
            assert fetched < 2000, f"{step}: {fetched} rows of {table} through indexes"
    for name in queries:
        line.check(name)


def test_turn_that_finds_nothing_reads_no_table(line: Line) -> None:
    line.sql(SCHEMA)
    create(line, "sums", "SELECT customer_id, sum(qty) AS q FROM fact GROUP BY customer_id")
    line.tick()
    before = counters(line)
    for _ in range(5):
        assert {o.action for o in line.tick(include_unchanged=True)} == {"NO_DATA"}
    assert counters(line) == before


def test_first_rows_are_kept_without_reading_the_table_until_the_spare_ones_are_used_up(line: Line) -> None:
    """No index on what it orders by: whoever looked for the first rows would read them all."""
    line.sql(SCHEMA)
    create(line, "top", "SELECT id, qty FROM fact ORDER BY qty DESC, id LIMIT 10")
    create(line, "ties", "SELECT id, product_id FROM fact ORDER BY product_id DESC FETCH FIRST 5 ROWS WITH TIES")
    query = "SELECT f.id, c.name, f.qty FROM fact AS f JOIN customer AS c ON c.id = f.customer_id WHERE f.qty < 990 "
    create(line, "joined", query + "ORDER BY f.qty DESC, c.name, f.id LIMIT 10 OFFSET 5")
    settle(line)
    first = "SELECT id FROM fact ORDER BY qty DESC, id"
    for change in (
        "INSERT INTO fact VALUES (0, 1, 30000, 2000), (-1, 2, 30000, -5)",
        f"UPDATE fact SET qty = 0 WHERE id IN ({first} LIMIT 20)",
        f"UPDATE fact SET qty = qty + 1 WHERE id IN ({first} LIMIT 15 OFFSET 1000)",
        f"DELETE FROM fact WHERE id IN ({first} LIMIT 30)",
    ):
        read = cost(line, change)
        assert read["fact"] == (0, 0), (change, read)
        assert sum(read["customer"]) < 200, (change, read)
        for name in ("top", "ties", "joined"):
            line.equal(name)
    read = cost(line, f"DELETE FROM fact WHERE id IN ({first} LIMIT 80)")
    assert FACTS - 200 < read["fact"][0] <= FACTS, read  # one of them, once
    line.check("top")


def test_statements_of_a_wave_are_planned_once(line: Line) -> None:
    line.sql("CREATE TABLE t (id int PRIMARY KEY, g int, v int)")
    line.sql("INSERT INTO t SELECT i, i % 9, i FROM generate_series(1, 2000) AS i")
    create(line, "lows", "SELECT g, min(v) AS lo FROM t GROUP BY g")
    create(line, "some", "SELECT id, v FROM t WHERE v % 2 = 0")
    line.tick()
    reader, writer = line.plane.worker.reader, line.plane.worker.writer
    seen = []
    for number in range(6):
        line.sql(f"UPDATE t SET v = v + 1 WHERE id % 100 = {number}")
        assert {o.action for o in line.tick()} == {"DIFFERENTIAL"}
        seen.append(plans(reader) | plans(writer))
    assert {text: custom for text, (_, custom) in seen[-1].items()} == {t: c for t, (_, c) in seen[2].items()}
    for name in (
        "The fingerprint of each source",
        "Reads stream tables with",
        "pgtrickle_changes.changes_",
        '"state_',
        'DELETE FROM "public"."some"',
    ):
        kept = [text for text in seen[2] if name in text]
        assert any(seen[-1][text][0] == seen[2][text][0] + 3 for text in kept), name

    line.sql("UPDATE t SET v = v + 2")
    line.tick()  # 4,000 rows are worth one
    assert any(custom > seen[-1].get(text, (0, 0))[1] for text, (_, custom) in plans(writer).items())
    line.check("lows")
    line.check("some")


def plans(connection: Connection) -> dict[str, tuple[int, int]]:
    """Of the statements that the session has prepared: runs with the kept plan, and with one for the values at hand."""
    rows = connection.execute("SELECT statement, generic_plans, custom_plans FROM pg_prepared_statements").fetchall()
    return {text: (generic, custom) for text, generic, custom in rows}
