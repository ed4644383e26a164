"""Differential refreshes that Spark evaluates from replicas: every template, compared with PostgreSQL's answer."""

from __future__ import annotations

import os
import shutil

import pytest

from pgtrickle.db.connect import connect
from pgtrickle.pipeline.engine.spark import SparkEngine
from pgtrickle.refresh import spark_delta
from pgtrickle.replica import ReplicaStore
from pgtrickle.replica.roots import root_of
from pgtrickle.settings import Settings
from tests.line import Line

TABLES = """
CREATE TABLE customer (id int PRIMARY KEY, region text COLLATE "C" NOT NULL, since date);
CREATE TABLE sale (id int PRIMARY KEY, customer_id int, amount numeric(10, 2), at timestamptz, note text COLLATE "C");
CREATE TABLE tag (sale_id int, name text COLLATE "C", n numeric);
CREATE TABLE edge (a int, b int);
INSERT INTO customer SELECT i, 'region ' || i % 5, DATE '2020-01-01' + i FROM generate_series(1, 40) AS i;
INSERT INTO sale SELECT i, 1 + i % 50, i * 1.25, TIMESTAMPTZ '2026-01-01 00:00:00+00' + i * INTERVAL '1 hour',
    'n' || i % 3 FROM generate_series(1, 300) AS i;
INSERT INTO tag SELECT i % 40, 't' || i % 4, (i % 3) FROM generate_series(1, 80) AS i;
INSERT INTO tag VALUES (1, NULL, NULL), (1, NULL, NULL), (NULL, 'x', 1.50);
INSERT INTO edge VALUES (1, 2), (2, 3), (3, 4), (2, 5);
"""
QUERIES = {
    "rows": "SELECT id, amount, at FROM sale WHERE amount > 100",
    "bag": "SELECT name, n FROM tag WHERE n IS NULL OR n < 2",
    "joined": "SELECT s.id, c.region, t.name FROM sale s JOIN customer c ON c.id = s.customer_id "
    "JOIN tag t ON t.sale_id = s.id",
    "outer_join": "SELECT c.id, c.since, s.amount FROM customer c "
    "LEFT JOIN sale s ON s.customer_id = c.id AND s.id < 100",
    "full_join": "SELECT c.id AS customer, t.sale_id, t.name FROM customer c FULL JOIN tag t ON t.sale_id = c.id",
    "unmatched": "SELECT id FROM customer c WHERE NOT EXISTS (SELECT FROM sale s WHERE s.customer_id = c.id)",
    "members": "SELECT id, note FROM sale WHERE customer_id IN (SELECT id FROM customer WHERE region <> 'region 1')",
    "scalar": "SELECT c.id, (SELECT max(s.amount) FROM sale s WHERE s.customer_id = c.id) AS most FROM customer c",
    "sums": "SELECT c.region, count(*) AS n, count(s.at) AS known, sum(s.amount) AS total, avg(s.amount) AS mean "
    "FROM sale s JOIN customer c ON c.id = s.customer_id GROUP BY c.region",
    "total": "SELECT count(*) AS n, sum(amount) AS total FROM sale WHERE note = 'n1'",
    "extremes": "SELECT customer_id, min(amount) AS least, max(at) AS latest, count(DISTINCT note) AS notes "
    "FROM sale GROUP BY customer_id",
    "extreme_of_all": "SELECT max(amount) AS most, min(at) AS first FROM sale",
    "having": "SELECT note, sum(amount) AS total FROM sale GROUP BY note HAVING count(*) > 95",
    "distinct_rows": "SELECT DISTINCT region, since > DATE '2020-01-20' AS late FROM customer",
    "latest": "SELECT DISTINCT ON (customer_id) customer_id, id, amount FROM sale "
    "ORDER BY customer_id, amount DESC, id",
    "ranked": "SELECT id, customer_id, rank() OVER (PARTITION BY customer_id ORDER BY amount DESC) AS place FROM sale",
    "numbered": "SELECT * FROM (SELECT id, note, row_number() OVER (PARTITION BY note ORDER BY amount DESC, id) AS r "
    "FROM sale) AS q WHERE r <= 3",
    "first_rows": "SELECT id, amount FROM sale ORDER BY amount DESC, id LIMIT 5",
    "first_ties": "SELECT name, n FROM tag ORDER BY n NULLS FIRST FETCH FIRST 4 ROWS WITH TIES",
    "joined_first": "SELECT s.id, c.region FROM sale s JOIN customer c ON c.id = s.customer_id "
    "ORDER BY s.at, s.id LIMIT 7",
    "either": "SELECT id FROM customer UNION SELECT sale_id FROM tag",
    "both": "SELECT id FROM customer INTERSECT ALL SELECT sale_id FROM tag",
    "only": "SELECT sale_id FROM tag EXCEPT SELECT id FROM customer",
    "grouped_below": "SELECT g.note, g.n FROM (SELECT note, count(*) AS n FROM sale GROUP BY note) AS g WHERE g.n > 10",
    "sets": "SELECT region, since IS NULL AS unknown, count(*) AS n FROM customer "
    "GROUP BY ROLLUP (region, since IS NULL)",
    "reached": "WITH RECURSIVE r(a, b) AS (SELECT a, b FROM edge "
    "UNION SELECT r.a, e.b FROM r JOIN edge e ON e.a = r.b) "
    "SELECT a, b FROM r",
}
CHANGES = (
    "INSERT INTO sale VALUES (1001, 3, 5000.5, NULL, 'n1'), (1002, NULL, NULL, 'infinity', NULL); "
    "INSERT INTO tag VALUES (1, NULL, NULL), (3, 't1', 0); INSERT INTO edge VALUES (5, 1); "
    "UPDATE sale SET amount = amount + 1 WHERE id % 7 = 0; DELETE FROM sale WHERE id BETWEEN 30 AND 60; "
    "UPDATE customer SET since = since - 1 WHERE id = 20",
    "DELETE FROM customer WHERE id = 5; INSERT INTO customer VALUES (90, 'new', NULL); "
    "DELETE FROM tag WHERE ctid IN (SELECT ctid FROM tag WHERE name IS NULL LIMIT 1); DELETE FROM edge WHERE a = 2; "
    "UPDATE sale SET customer_id = 7, note = 'n2' WHERE id IN (1001, 290, 291); DELETE FROM tag WHERE n = 1; "
    "UPDATE customer SET region = 'region 0' WHERE id < 4; DELETE FROM sale WHERE amount > 300",
)


def history(line: Line, name: str) -> list[tuple[str, str, str]]:
    return line.sql(
        "SELECT action, engine, engine_reason FROM pgtrickle.get_refresh_history(%s) ORDER BY refresh_id", name
    )


def create(line: Line, queries: dict[str, str], mode: str = "DIFFERENTIAL") -> None:
    """Loaded by PostgreSQL, which takes less time; from then on Spark evaluates them."""
    text = "SELECT pgtrickle.create_stream_table(%s, %s, 'calculated', %s, engine => 'postgres')"
    for name, query in queries.items():
        line.sql(text, name, query, mode)
    line.tick()
    for name in queries:
        line.sql("SELECT pgtrickle.alter_stream_table(%s, engine => 'spark')", name)


def failing(line: Line) -> list[tuple[str, str, str]]:
    return line.sql("SELECT name, status, last_error_message FROM pgtrickle.pgt_status() WHERE status <> 'ACTIVE'")


def refreshed(line: Line, queries: dict[str, str], changes: str) -> dict[str, tuple[str, str, str]]:
    """Action, engine and its reason of the latest refresh of each table, which is what PostgreSQL answers."""
    line.sql(changes)
    line.tick()
    assert failing(line) == []
    for name in queries:
        line.equal(name)
    return {name: history(line, name)[-1] for name in queries}


def test_spark_evaluates_changes_of_every_template(line: Line) -> None:
    line.sql(TABLES)
    create(line, QUERIES)
    for changes in CHANGES:
        found = refreshed(line, QUERIES, changes)
        wanted = ("DIFFERENTIAL", "spark", "the option engine is spark")
        assert {name: how for name, how in found.items() if how != wanted} == {}


SUMMED = {name: QUERIES[name] for name in ("outer_join", "sums", "extremes")}
WANTED = ("DIFFERENTIAL", "spark", "the option engine is spark")


def relid(line: Line, table: str) -> int:
    ((found,),) = line.sql("SELECT %s::regclass::oid::int8", table)
    return int(found)


def test_replica_may_be_before_or_after_the_frontier(line: Line, engine: SparkEngine) -> None:
    """A replica that has advanced beyond a stream table gives its old state as well, and so does one that is behind."""
    line.sql(TABLES)
    create(line, SUMMED)
    assert set(refreshed(line, SUMMED, "UPDATE sale SET amount = 7 WHERE id < 9").values()) == {WANTED}
    store = ReplicaStore(root_of(Settings().replica_root, os.environ), engine)
    conn = connect(line.dsn, role="replica", autocommit=True)
    try:
        line.sql("DELETE FROM sale WHERE id < 5; INSERT INTO sale VALUES (2001, 1, -3, NULL, 'n0')")
        store.advance(conn, relid(line, "sale"))
    finally:
        conn.close()
    assert set(refreshed(line, SUMMED, "UPDATE sale SET customer_id = 2 WHERE id = 2001").values()) == {WANTED}
    found = refreshed(line, SUMMED, "UPDATE sale SET note = note")  # changes that cancel
    assert {action for action, _, _ in found.values()} == {"NO_DATA"}


def test_missing_replica_is_built_again_and_truncate_loads(line: Line, engine: SparkEngine) -> None:
    line.sql(TABLES)
    create(line, SUMMED)
    assert set(refreshed(line, SUMMED, "UPDATE sale SET amount = 7 WHERE id < 9").values()) == {WANTED}
    shutil.rmtree(f"{root_of(Settings().replica_root, os.environ)}/{_path(line, 'sale')}")
    found = refreshed(line, SUMMED, "DELETE FROM sale WHERE id = 20")
    if set(found.values()) != {WANTED}:  # each was told to prepare first
        line.tick()
        found = {name: history(line, name)[-1] for name in SUMMED}
    assert set(found.values()) == {WANTED}
    found = refreshed(line, SUMMED, "TRUNCATE tag; TRUNCATE sale; INSERT INTO sale VALUES (1, 1, 1, NULL, 'a')")
    assert {action for action, _, _ in found.values()} == {"FULL"}
    found = refreshed(line, SUMMED, "INSERT INTO sale VALUES (2, 1, 2, NULL, 'a'), (3, NULL, NULL, NULL, NULL)")
    assert set(found.values()) == {WANTED}


def _path(line: Line, table: str) -> str:
    ((identifier, database),) = line.sql(
        "SELECT (SELECT system_identifier::text FROM pg_control_system()), "
        "(SELECT oid::text FROM pg_database WHERE datname = current_database())"
    )
    return f"{identifier}/{database}/{relid(line, table)}"


def test_value_without_columnar_form_is_left_to_postgresql(line: Line) -> None:
    line.sql("CREATE TABLE t (id int PRIMARY KEY, k int, n numeric(10, 2)); INSERT INTO t VALUES (1, 1, 1), (2, 1, 2)")
    queries = {"st": "SELECT k, sum(n) AS s FROM t GROUP BY k"}
    create(line, queries)
    assert refreshed(line, queries, "INSERT INTO t VALUES (3, 2, 5)")["st"] == WANTED
    action, engine, reason = refreshed(line, queries, "INSERT INTO t VALUES (4, 2, 'NaN')")["st"]
    assert (action, engine) == ("DIFFERENTIAL", "postgres")
    assert reason.startswith("Spark cannot represent a value exactly")


def test_rows_by_region_and_first_rows_are_loaded_and_filled_up_on_spark(line: Line) -> None:
    line.sql(TABLES)
    queries = {name: QUERIES[name] for name in ("latest", "first_rows")}
    for name, query in queries.items():
        text = "SELECT pgtrickle.create_stream_table(%s, %s, 'calculated', 'DIFFERENTIAL', engine => 'spark')"
        line.sql(text, name, query)
    found = refreshed(line, queries, "SELECT 1")
    assert {how[:2] for how in found.values()} == {("FULL", "spark")}
    found = refreshed(line, queries, "DELETE FROM sale WHERE amount > 200")  # more than the spare rows of the LIMIT
    assert {how[1] for how in found.values()} == {"spark"}
    assert found["latest"] == WANTED
    assert found["first_rows"][0] == "FULL"


def test_large_delta_is_written_by_executors(line: Line, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(spark_delta, "SENT_ROWS", 0)
    line.sql(TABLES)
    queries = {name: QUERIES[name] for name in ("rows", "sums")}
    create(line, queries)
    changes = "UPDATE sale SET amount = amount + 1 WHERE id % 2 = 0; DELETE FROM sale WHERE id % 5 = 0"
    assert set(refreshed(line, queries, changes).values()) == {WANTED}
    left = (
        "SELECT count(*) FROM pg_class WHERE relnamespace = 'pgtrickle_changes'::regnamespace AND relname ~ '^stage_'"
    )
    assert line.sql(left) == [(0,)]


def test_one_job_per_refresh_and_none_without_changes(line: Line, engine: SparkEngine) -> None:
    line.sql(TABLES)
    queries = {"joined": QUERIES["joined"]}
    create(line, queries)
    refreshed(line, queries, "DELETE FROM sale WHERE id = 20")
    before = engine.jobs
    refreshed(line, queries, "UPDATE sale SET note = 'x' WHERE id < 3; DELETE FROM tag WHERE sale_id = 4")
    assert engine.jobs == before + 1
    line.tick()
    assert engine.jobs == before + 1


# Of the latest refresh: whether the worker and whether Spark netted the delta.
PARTS = (
    "SELECT h.timings ? 'net', h.timings ? 'spark' FROM pgtrickle.pgt_refresh_history AS h "
    "JOIN pgtrickle.pgt_stream_tables AS t USING (pgt_id) WHERE t.pgt_name = %s ORDER BY h.refresh_id DESC LIMIT 1"
)


def test_many_delta_rows_are_netted_by_one_job_of_the_wave(
    line: Line, engine: SparkEngine, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("pgtrickle.pipeline.engine.netting.NETTED_HERE_ROWS", 0)
    line.sql(TABLES)
    for name in ("rows", "sums", "joined"):
        text = "SELECT pgtrickle.create_stream_table(%s, %s, 'calculated', 'DIFFERENTIAL', engine => 'postgres')"
        line.sql(text, name, QUERIES[name])
    line.tick()
    jobs = engine.jobs
    line.sql("UPDATE sale SET amount = amount + 1, customer_id = customer_id % 40 + 1 WHERE id < 9 OR id > 290")
    line.tick()
    assert engine.jobs == jobs + 1
    for name in ("rows", "sums", "joined"):
        assert line.sql(PARTS, name) == [(False, True)]
        line.check(name)


def test_postgres_by_name_and_small_windows_use_no_spark(line: Line, engine: SparkEngine) -> None:
    line.sql(TABLES)
    for name, option in (("named", "postgres"), ("chosen", "auto")):
        text = "SELECT pgtrickle.create_stream_table(%s, %s, 'calculated', 'DIFFERENTIAL', engine => %s)"
        line.sql(text, name, QUERIES["sums"], option)
    line.tick()
    jobs = engine.jobs
    for amount in range(3):
        line.sql("UPDATE sale SET amount = %s WHERE id = 3", amount)
        line.tick()
    assert engine.jobs == jobs
    assert line.sql(PARTS, "named") == line.sql(PARTS, "chosen") == [(True, False)]
    assert history(line, "named")[-1] == ("DIFFERENTIAL", "postgres", "the option engine is postgres")
    assert history(line, "chosen")[-1] == ("DIFFERENTIAL", "postgres", "changes are evaluated by PostgreSQL")
    assert line.sql("SELECT count(*) FROM pgtrickle.replicas()") == [(0,)]
