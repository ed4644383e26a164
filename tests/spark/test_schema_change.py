# ruff: noqa: E501 - a query is easier to read on one line
"""What happens to stream tables when what they rest on is changed: functions, columns, names, partitions, the query."""

from __future__ import annotations

import time

import psycopg

from pgtrickle.errors import TransientError
from pgtrickle.model.reasons import Reason, ReasonCode
from tests.line import Line

TABLES = """
CREATE TABLE item (id int PRIMARY KEY, price numeric(8, 2), kind text, unused int);
INSERT INTO item SELECT i, i * 1.5, 'k' || i % 3, i FROM generate_series(1, 20) AS i;
CREATE FUNCTION taxed(numeric) RETURNS numeric LANGUAGE sql IMMUTABLE AS 'SELECT $1 * 1.2';
"""


def test_replaced_function_is_noticed_and_the_content_computed_anew(line: Line) -> None:
    line.sql(TABLES)
    line.create("gross", "SELECT id, taxed(price) AS p FROM item")
    line.create("net", "SELECT id, price FROM item")
    line.sql("CREATE OR REPLACE FUNCTION taxed(numeric) RETURNS numeric LANGUAGE sql IMMUTABLE AS 'SELECT $1 * 1.19'")
    line.tick(include_unchanged=True)
    line.check("gross", "REINITIALIZE")
    assert line.reason("gross") == Reason.of(ReasonCode.FUNCTION_REPLACED)
    assert line.refreshes("net") == 1
    line.sql("UPDATE item SET price = price + 1 WHERE id = 3")
    line.tick()
    line.check("gross")


def test_function_that_became_volatile_stops_its_table_with_a_reason(line: Line) -> None:
    line.sql(TABLES)
    line.create("gross", "SELECT id, taxed(price) AS p FROM item")
    line.sql(
        "CREATE OR REPLACE FUNCTION taxed(numeric) RETURNS numeric LANGUAGE sql VOLATILE AS 'SELECT $1 * random()'"
    )
    line.tick(include_unchanged=True)
    ((status, message),) = line.sql("SELECT status, last_error_message FROM pgtrickle.pgt_stream_tables")
    assert status == "ERROR"
    assert "volatile" in message


def test_added_column_changes_nothing_and_a_dropped_one_stops_only_who_reads_it(line: Line) -> None:
    line.sql(TABLES)
    line.create("kinds", "SELECT kind, count(*) AS n FROM item GROUP BY kind")
    line.create("prices", "SELECT id, price FROM item")
    line.sql("ALTER TABLE item ADD COLUMN more int DEFAULT 7; UPDATE item SET kind = 'k9' WHERE id = 1")
    line.tick()
    for name in ("kinds", "prices"):
        line.equal(name)
    line.check("kinds")
    line.sql("ALTER TABLE item DROP COLUMN price; UPDATE item SET kind = 'k8' WHERE id = 2")
    line.tick()
    line.tick()
    line.equal("kinds")
    ((status, message),) = line.sql(
        "SELECT status, last_error_message FROM pgtrickle.pgt_stream_tables WHERE pgt_name = 'prices'"
    )
    assert status == "ERROR"
    assert "price" in message or "column" in message
    assert len(line.rows("prices")) == 20


def test_new_query_with_other_columns_leaves_the_old_content_until_it_is_ready(line: Line) -> None:
    line.sql(TABLES)
    line.create("st", "SELECT kind, count(*) AS n FROM item GROUP BY kind")
    line.sql("GRANT SELECT ON st TO PUBLIC")
    ((oid,),) = line.sql("SELECT 'st'::regclass::oid::int8")
    line.sql(
        "SELECT pgtrickle.alter_stream_table('st', query => 'SELECT id, kind, rank() OVER (PARTITION BY kind ORDER BY price) AS r FROM item')"
    )
    assert line.rows("st") == [("k0", 6), ("k1", 7), ("k2", 7)]
    line.tick()
    assert len(line.rows("st")) == 20
    line.check("st", "REINITIALIZE")
    line.sql("DELETE FROM item WHERE id = 4")
    line.tick()
    line.check("st")
    assert line.sql("SELECT 'st'::regclass::oid::int8, has_table_privilege('public', 'st', 'SELECT')") == [(oid, True)]
    line.sql("SELECT pgtrickle.alter_stream_table('st', query => 'SELECT count(*) AS n FROM item')")
    line.tick()
    line.check("st", "REINITIALIZE")
    assert line.rows("st") == [(19,)]
    line.sql("DELETE FROM item WHERE id = 5")
    line.tick()
    line.check("st")
    assert [
        c
        for (c,) in line.sql(
            "SELECT attname FROM pg_attribute WHERE attrelid = 'st'::regclass AND attnum > 0 AND NOT attisdropped ORDER BY attnum"
        )
    ] == ["n", "__pgt_row_id"]


def test_attached_partition_is_read_and_a_detached_one_is_not(line: Line) -> None:
    line.sql(
        "CREATE TABLE part (id int, v int) PARTITION BY RANGE (id); "
        "CREATE TABLE part_1 PARTITION OF part FOR VALUES FROM (0) TO (10); "
        "INSERT INTO part SELECT i, i FROM generate_series(0, 9) AS i; "
        "CREATE TABLE part_2 (id int, v int); INSERT INTO part_2 SELECT i, i FROM generate_series(10, 19) AS i"
    )
    line.create("st", "SELECT count(*) AS n, sum(p.v) AS s FROM part p LEFT JOIN part q ON q.id = p.v + 1")
    line.sql("ALTER TABLE part ATTACH PARTITION part_2 FOR VALUES FROM (10) TO (20)")
    line.tick(include_unchanged=True)
    line.tick(include_unchanged=True)
    line.equal("st")
    line.sql("UPDATE part SET v = v + 1 WHERE id = 12; ALTER TABLE part DETACH PARTITION part_1")
    line.tick(include_unchanged=True)
    line.tick(include_unchanged=True)
    line.equal("st")
    assert line.rows("st") == [(10, 146)]


def test_children_of_an_inherited_table_are_followed(line: Line) -> None:
    line.sql("CREATE TABLE parent (a int, b text); CREATE TABLE kid (extra int) INHERITS (parent)")
    line.sql("INSERT INTO parent VALUES (1, 'p'); INSERT INTO kid VALUES (2, 'k', 0), (2, 'k', 1)")
    line.create("st", "SELECT a, b, count(*) AS n FROM parent GROUP BY a, b")
    line.sql("INSERT INTO kid VALUES (3, 'l', 2); UPDATE parent SET a = a + 10; DELETE FROM kid WHERE extra = 1")
    line.tick()
    line.check("st")


def test_a_retyped_column_stops_only_who_shows_it(line: Line) -> None:
    """What computes something of the same type from it goes on over the new values."""
    line.sql(TABLES)
    line.create("prices", "SELECT id, price FROM item")
    line.create("counted", "SELECT kind, count(price) AS n FROM item GROUP BY kind")
    line.create("others", "SELECT id, kind FROM item")
    line.sql("ALTER TABLE item ALTER price TYPE text USING price; UPDATE item SET kind = 'k9' WHERE id = 1")
    line.tick()
    line.tick()
    for name in ("counted", "others"):
        line.equal(name)
    ((status, message),) = line.sql(
        "SELECT status, last_error_message FROM pgtrickle.pgt_stream_tables WHERE pgt_name = 'prices'"
    )
    assert status == "ERROR"
    assert "price" in message
    assert len(line.rows("prices")) == 20


WIDENED = """
    CREATE TABLE named (id int PRIMARY KEY, name varchar(5) NOT NULL, price numeric(6,2), at timestamp(0));
    INSERT INTO named SELECT i, 'n' || i, i, '2024-01-01' FROM generate_series(1, 50) AS i;
"""
WIDENED_QUERIES = {
    "rows": "SELECT id, name, price, at FROM named",
    "groups": "SELECT name, max(price) AS price, count(*) AS n FROM named GROUP BY name",
    "first": "SELECT id, name FROM named ORDER BY id DESC LIMIT 3",
    "whole": "SELECT id, name, now() IS NULL AS never FROM named",
}


def test_a_wider_column_is_followed_without_a_person(line: Line) -> None:
    line.sql(WIDENED)
    _create_widened(line)
    line.create("above", "SELECT id, name FROM rows WHERE id > 10")
    line.sql(
        "ALTER TABLE named ALTER name TYPE varchar(20), ALTER price TYPE numeric(12,2), ALTER at TYPE timestamp(6); "
        "INSERT INTO named VALUES (51, 'longer than five', 1234567890.12, '2024-01-01 00:00:00.123456')"
    )
    _check_widened(line, "above")
    line.sql("ALTER TABLE named ALTER name TYPE varchar, ALTER price TYPE numeric")
    line.sql("UPDATE named SET name = repeat('x', 100) WHERE id = 12; INSERT INTO named VALUES (99, 'n1', 1.234)")
    _check_widened(line, "above")
    assert line.sql("SELECT atttypmod FROM pg_attribute WHERE attrelid = 'above'::regclass AND attname = 'name'") == [
        (-1,)
    ]


def test_what_depends_on_a_column_keeps_it_from_becoming_wider(line: Line) -> None:
    line.sql(WIDENED)
    line.create("rows", WIDENED_QUERIES["rows"])
    line.sql("CREATE VIEW shown AS SELECT name FROM rows; ALTER TABLE named ALTER name TYPE varchar(20)")
    line.sql("INSERT INTO named VALUES (51, 'longer than five')")
    line.tick()
    ((status, message),) = line.sql(
        "SELECT status, last_error_message FROM pgtrickle.pgt_stream_tables WHERE pgt_name = 'rows'"
    )
    assert status == "ERROR"
    assert "view public.shown" in message
    line.sql("DROP VIEW shown; SELECT pgtrickle.resume_stream_table('rows')")
    line.tick()
    line.equal("rows")


def test_a_column_becomes_wider_after_readers_that_are_in_a_transaction(line: Line) -> None:
    """The statement does not wait for them, because all later readers would wait behind it."""
    line.sql(WIDENED)
    line.create("rows", WIDENED_QUERIES["rows"])
    line.plane.worker.writer.execute("SET lock_timeout = 0")
    with psycopg.connect(line.dsn) as reading:
        reading.execute("SELECT FROM rows LIMIT 1")
        line.sql("ALTER TABLE named ALTER name TYPE varchar(20)")
        line.sql("INSERT INTO named VALUES (51, 'longer than five')")
        (outcome,) = line.tick()
        assert isinstance(outcome.error, TransientError)
        assert line.sql("SELECT count(*) FROM rows") == [(50,)]
    while line.sql("SELECT count(*) FROM rows") != [(51,)]:  # it is tried again after a while
        line.tick()
        time.sleep(0.1)
    line.equal("rows")


def _create_widened(line: Line) -> None:
    for name, query in WIDENED_QUERIES.items():
        line.create(name, query, mode="FULL" if name == "whole" else "AUTO")


def _check_widened(line: Line, *others: str) -> None:
    """They are current after the change, and maintained from changes afterwards."""
    for _ in range(3):
        line.tick()
    for name in (*WIDENED_QUERIES, *others):
        assert _status(line, name) == "ACTIVE"
        line.equal(name)
    line.sql("INSERT INTO named SELECT max(id) + 1, 'n2', 3 FROM named")
    line.tick()
    for name in (*WIDENED_QUERIES, *others):
        line.check(name, "FULL" if name == "whole" else "DIFFERENTIAL")


def _status(line: Line, name: str) -> str:
    ((status,),) = line.sql("SELECT status FROM pgtrickle.pgt_stream_tables WHERE pgt_name = %s", name)
    return str(status)
