"""Refreshes that Spark evaluates from replicas."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from pgtrickle.model.reasons import ReasonCode
from pgtrickle.pipeline.engine import evaluate
from pgtrickle.pipeline.templates.explain import plan_lines
from pgtrickle.refresh import engine_choice, way_choice
from pgtrickle.refresh.plan_requests import plan_of_table
from pgtrickle.replica import build as building
from tests.line import Line

TABLES = """
CREATE TABLE customer (id int PRIMARY KEY, region text NOT NULL, since date);
CREATE TABLE sale (id int PRIMARY KEY, customer_id int, amount numeric(10, 2), at timestamptz);
INSERT INTO customer SELECT i, 'region ' || i % 5, DATE '2020-01-01' + i FROM generate_series(1, 40) AS i;
INSERT INTO sale SELECT i, 1 + i % 50, i * 1.25, TIMESTAMPTZ '2026-01-01 00:00:00+00' + i * INTERVAL '1 hour'
FROM generate_series(1, 500) AS i;
"""
QUERIES = {
    "rows": "SELECT id, amount, at FROM sale WHERE amount > 100",
    "groups": "SELECT c.region, count(*) AS n, sum(s.amount) AS total, max(s.at) AS last "
    "FROM sale s JOIN customer c ON c.id = s.customer_id GROUP BY c.region",
    # Numerics whose scale PostgreSQL does not know: states count the values of each.
    "scales": "SELECT EXTRACT(year FROM c.since) AS year, sum(CASE WHEN s.id % 2 = 0 THEN s.amount * 1.5 ELSE 0 END) "
    "AS n FROM sale s JOIN customer c ON c.id = s.customer_id GROUP BY EXTRACT(year FROM c.since)",
    "outer_join": "SELECT c.id, c.since, s.amount FROM customer c "
    "LEFT JOIN sale s ON s.customer_id = c.id AND s.id < 100",
    "unmatched": "SELECT id FROM customer c WHERE NOT EXISTS (SELECT FROM sale s WHERE s.customer_id = c.id)",
}
CHANGES = (
    "INSERT INTO sale VALUES (1001, 3, 5000.5, NULL), (1002, NULL, NULL, 'infinity')",
    "UPDATE sale SET amount = amount + 1 WHERE id % 7 = 0; DELETE FROM sale WHERE id BETWEEN 30 AND 60",
    "DELETE FROM customer WHERE id = 5; INSERT INTO customer VALUES (90, 'new', NULL)",
)


def engines(line: Line, name: str) -> list[tuple[str, str]]:
    return line.sql("SELECT action, engine FROM pgtrickle.get_refresh_history(%s) ORDER BY refresh_id", name)


@pytest.mark.parametrize("mode", ["FULL", "AUTO"])
def test_spark_evaluates_refreshes_in_either_mode(line: Line, mode: str) -> None:
    line.sql(TABLES)
    for name, query in QUERIES.items():
        line.sql("SELECT pgtrickle.create_stream_table(%s, %s, 'calculated', %s, engine => 'spark')", name, query, mode)
    line.tick()
    assert (
        line.sql("SELECT name, status, last_error_message FROM pgtrickle.pgt_status() WHERE status <> 'ACTIVE'") == []
    )
    for name in QUERIES:
        line.equal(name)
        assert engines(line, name) == [("FULL", "spark")]
    for change in CHANGES:
        line.sql(change)
        line.tick()
        for name in QUERIES:
            line.equal(name)
    for name in QUERIES:
        wanted = {("FULL", "spark")} if mode == "FULL" else {("FULL", "spark"), ("DIFFERENTIAL", "spark")}
        assert set(engines(line, name)) == wanted
        ((reason,),) = line.sql("SELECT engine_reason FROM pgtrickle.pgt_status() WHERE name = %s", f"public.{name}")
        assert reason == "the option engine is spark"
        shown = list(plan_lines(plan_of_table(line.dsn, name), statements=False))
        assert "Engine: spark" in shown
        assert "Latest refresh: evaluated by spark, because the option engine is spark" in shown


def test_a_load_on_spark_shows_its_progress(line: Line, monkeypatch: pytest.MonkeyPatch) -> None:
    """Before executors write, and when they have written, before the content replaces that of the table."""
    line.sql(TABLES)
    line.sql("INSERT INTO sale SELECT i, 7, i, now() FROM generate_series(1001, 20000) AS i; ANALYZE sale")
    seen, fill = [], evaluate.fill

    def look() -> None:
        (found,) = line.sql("SELECT name, phase, rows_done, rows_estimated FROM pgtrickle.load_progress()")
        seen.append(found)

    def watched(*args: Any, **kwargs: Any) -> None:
        look()
        fill(*args, **kwargs)
        look()

    monkeypatch.setattr(evaluate, "fill", watched)
    query = "SELECT id, customer_id, amount FROM sale WHERE id > 10"
    line.sql("SELECT pgtrickle.create_stream_table('big', %s, 'calculated', 'FULL', engine => 'spark')", query)
    line.tick()
    line.check("big", "FULL")
    assert engines(line, "big") == [("FULL", "spark")]
    (first, second), rows = seen, line.sql("SELECT count(*) FROM big")[0][0]
    assert first[:3] == ("public.big", "computing", 0)
    assert second[:2] == ("public.big", "writing")
    for number in (first[3], second[2], second[3]):
        assert rows / 2 < number < rows * 2
    assert line.sql("SELECT * FROM pgtrickle.load_progress()") == []
    assert line.sql("SELECT FROM pg_stat_activity WHERE application_name LIKE 'pgtrickle/writer#%'") == []


def test_a_source_is_read_once_for_all_that_load_together(line: Line, monkeypatch: pytest.MonkeyPatch) -> None:
    """Whichever columns each of them uses: the replica has all of them, and the loads read the replica."""
    line.sql(TABLES)
    built: list[int] = []
    build = building.build

    def counted(*args: Any) -> Any:
        built.append(args[-1].relid)
        return build(*args)

    monkeypatch.setattr(building, "build", counted)
    for name, query in QUERIES.items():
        line.sql("SELECT pgtrickle.create_stream_table(%s, %s, 'calculated', engine => 'spark')", name, query)
    line.tick()
    for name in QUERIES:
        line.equal(name)
        assert engines(line, name) == [("FULL", "spark")]
    relids = line.sql("SELECT 'customer'::regclass::oid::int8 UNION SELECT 'sale'::regclass::oid::int8 ORDER BY 1")
    assert sorted(built) == [relid for (relid,) in relids]


def test_query_that_spark_cannot_evaluate_is_refused_by_name(line: Line) -> None:
    line.sql(TABLES)
    line.sql("SELECT pgtrickle.create_stream_table('st', 'SELECT to_jsonb(c) AS j FROM customer c', engine => 'spark')")
    line.tick()
    ((status, message),) = line.sql("SELECT status, last_error_message FROM pgtrickle.pgt_status()")
    assert status == "ERROR"
    assert "Spark cannot evaluate the query" in message
    line.sql("SELECT pgtrickle.alter_stream_table('st', engine => 'postgres')")
    line.sql("SELECT pgtrickle.resume_stream_table('st')")
    line.tick()
    line.equal("st")


def test_value_that_spark_cannot_represent_is_evaluated_by_postgresql(line: Line) -> None:
    line.sql("CREATE TABLE t (id int PRIMARY KEY, n numeric(10, 2)); INSERT INTO t VALUES (1, 1), (2, 2)")
    query = "SELECT sum(n) AS s FROM t"
    line.sql("SELECT pgtrickle.create_stream_table('st', %s, refresh_mode => 'FULL', engine => 'spark')", query)
    line.tick()
    line.equal("st")
    line.sql("INSERT INTO t VALUES (3, 'NaN')")
    line.tick()
    line.equal("st")
    ((engine, reason),) = line.sql(
        "SELECT engine, engine_reason FROM pgtrickle.get_refresh_history('st') ORDER BY refresh_id DESC LIMIT 1"
    )
    assert engine == "postgres"
    assert reason.startswith("Spark cannot represent a value exactly")


def test_auto_tries_changes_on_spark(line: Line, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(way_choice, "SPARK_LEAST_MS", 0.0)  # so that few changes may be worth it
    line.sql(TABLES)
    line.sql("SELECT pgtrickle.create_stream_table('st', %s, refresh_mode => 'DIFFERENTIAL')", QUERIES["groups"])
    line.tick()
    for number in range(3):
        line.sql("INSERT INTO sale VALUES (%s, 1, 1, NULL)", 2000 + number)
        line.tick()
        line.equal("st")
    found = line.sql("SELECT action, engine, engine_reason_code FROM pgtrickle.pgt_refresh_history ORDER BY refresh_id")
    assert found[1:] == [
        ("DIFFERENTIAL", "postgres", ReasonCode.ENGINE_PUSHED_DOWN),
        ("DIFFERENTIAL", "postgres", ReasonCode.ENGINE_NO_REPLICA),
        ("DIFFERENTIAL", "spark", ReasonCode.ENGINE_TRIED),
    ]


def test_auto_builds_replicas_and_tries_spark(line: Line, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(engine_choice, "SPARK_LEAST_MS", 0.0)  # so that a small table may be worth it
    monkeypatch.setattr(engine_choice, "ENOUGH", 1)
    line.sql(TABLES)
    line.sql("SELECT pgtrickle.create_stream_table('st', %s, refresh_mode => 'FULL')", QUERIES["groups"])
    line.tick()
    line.equal("st")
    for number in range(3):
        line.sql("INSERT INTO sale VALUES (%s, 1, 1, NULL)", 2000 + number)
        line.tick()
        line.equal("st")
    assert line.sql("SELECT engine, engine_reason_code FROM pgtrickle.pgt_refresh_history ORDER BY refresh_id") == [
        ("postgres", ReasonCode.ENGINE_UNKNOWN_COST),
        ("postgres", ReasonCode.ENGINE_UNKNOWN_COST),
        ("postgres", ReasonCode.ENGINE_NO_REPLICA),
        ("spark", ReasonCode.ENGINE_TRIED),
    ]
    readers = line.sql("SELECT source_table, state, readers FROM pgtrickle.replicas() ORDER BY 1")
    assert [(table, names) for table, _, names in readers] == [
        ("public.customer", ["public.st"]),
        ("public.sale", ["public.st"]),
    ]


def test_small_result_is_written_here_and_a_larger_one_by_executors(
    line: Line, monkeypatch: pytest.MonkeyPatch
) -> None:
    from pgtrickle.pipeline.engine import bulk, evaluate

    written: list[str] = []

    def noted(name: str) -> Callable[..., None]:
        original = getattr(bulk, name)

        def write(*given: Any) -> None:
            written.append(name)
            original(*given)

        return write

    for name in ("write", "write_rows"):
        monkeypatch.setattr(bulk, name, noted(name))
    line.sql(TABLES)
    query = "SELECT id, amount, amount::float8 / 3 AS third, amount > 5 AS large, at FROM sale"
    line.sql("SELECT pgtrickle.create_stream_table('st', %s, refresh_mode => 'FULL', engine => 'spark')", query)
    line.tick()
    line.equal("st")
    assert written == ["write"]  # of a first load nothing is known
    line.sql(CHANGES[0])
    line.tick()
    line.equal("st")
    assert written == ["write", "write_rows"]
    monkeypatch.setattr(evaluate, "FEW_ROWS", 2)
    line.sql(CHANGES[1])
    line.tick()
    line.equal("st")
    assert written == ["write", "write_rows", "write"]
