"""AUTO's choice in the line: what it learns from, what it says, what it forgets."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import replace
from pkgutil import resolve_name
from typing import Any

import pytest

from pgtrickle.define import compile as compiling
from pgtrickle.model.reasons import Reason, ReasonCode
from pgtrickle.pipeline.engine.spark import BATCH_ROWS, SparkEngine
from pgtrickle.settings import Settings
from tests.conftest import Database
from tests.line import Line


@pytest.fixture
def auto(line: Line) -> Line:
    """A table that AUTO keeps, past its first minute."""
    line.sql(
        "CREATE TABLE t (id int PRIMARY KEY, a int); INSERT INTO t SELECT i, i % 5 FROM generate_series(1, 500) AS i"
    )
    line.create("st", "SELECT a, count(*) AS n FROM t GROUP BY a")
    line.sql("UPDATE pgtrickle.pgt_stream_tables SET created_at = created_at - interval '1 h'")
    return line


def remembered(line: Line, ms: float, times: int = 5, *, action: str = "DIFFERENTIAL", age: str = "0") -> None:
    """Refreshes of some changes that another process has done."""
    line.sql(
        "INSERT INTO pgtrickle.pgt_refresh_history "
        "(pgt_id, start_time, end_time, action, delta_row_count, status, timings) "
        "SELECT pgt_id, now() - %s::interval, now() - %s::interval, %s, 2, 'COMPLETED', "
        "jsonb_build_object('read', %s::float8, 'apply', 1) "
        "FROM pgtrickle.pgt_stream_tables, generate_series(1, %s)",
        age,
        age,
        action,
        ms,
        times,
    )


def test_auto_says_why_it_has_no_prediction(auto: Line) -> None:
    auto.sql("INSERT INTO t VALUES (1000, 1)")
    auto.tick()
    auto.check("st")
    assert auto.last("st")[2] == "1 changes, no prediction: 1 of 5 refreshes are known"


def test_auto_decides_by_the_history_of_another_process_and_tells_the_numbers(auto: Line) -> None:
    remembered(auto, 60_000.0)
    auto.sql("INSERT INTO t VALUES (1000, 1)")
    auto.tick()
    auto.check("st", "FULL")
    assert str(auto.last("st")[2]).startswith(
        "1 changes: differential about 60001 ms (median of 5 like it), full about "
    )
    auto.sql("INSERT INTO t VALUES (1001, 1)")
    auto.tick()
    auto.check("st", "FULL")
    assert "(by one)" in str(auto.reason("st"))  # its own full refresh, and no longer the first load


def test_auto_stays_differential_where_that_is_quicker(auto: Line) -> None:
    remembered(auto, 0.1)
    for number in range(8):
        auto.sql("INSERT INTO t VALUES (%s, 1)", 1000 + number)
        auto.tick()
        assert auto.last("st")[0] in ("DIFFERENTIAL", "FULL")
        assert "differential about" in str(auto.last("st")[2])
    auto.equal("st")


def test_a_table_leaves_its_chain_when_full_has_not_been_tried_for_long(auto: Line) -> None:
    auto.create("above", "SELECT max(n) AS most, sum(n) AS everything FROM st", mode="DIFFERENTIAL")
    remembered(auto, 300.0, 1, action="FULL", age="2 h")
    remembered(auto, 150.0, 40)
    frontiers = "SELECT count(DISTINCT frontier::text) FROM pgtrickle.pgt_stream_tables"

    def refresh(number: int) -> None:
        auto.sql("INSERT INTO t VALUES (%s, 1)", 1000 + number)
        auto.tick()
        auto.check("above")

    refresh(0)
    auto.check("st")
    assert auto.sql(frontiers) == [(1,)]  # as a chain
    remembered(auto, 150.0, 20)
    ((pgt_id,),) = auto.sql("SELECT pgt_id FROM pgtrickle.pgt_stream_tables WHERE pgt_name = 'st'")
    auto.plane.worker.refresher.costs.forget(pgt_id)  # and read again
    refresh(1)
    auto.check("st", "FULL")
    reason = auto.reason("st")
    assert reason is not None
    assert reason.code is ReasonCode.TRIED_FULL
    assert auto.rows("above") == [(102, 502)]
    refresh(2)  # quicker than it was, and taken again
    auto.check("st", "FULL")


def test_another_query_starts_with_nothing_learned(auto: Line) -> None:
    remembered(auto, 60_000.0)
    auto.sql("INSERT INTO t VALUES (1000, 1)")
    auto.tick()
    auto.check("st", "FULL")
    auto.sql("SELECT pgtrickle.alter_stream_table('st', query => 'SELECT a, sum(id) AS n FROM t GROUP BY a')")
    auto.tick()
    auto.check("st", "REINITIALIZE")
    auto.sql("INSERT INTO t VALUES (1001, 1)")
    auto.tick()
    auto.check("st")
    few = Reason.of(ReasonCode.TOO_FEW_SAMPLES, known=1, needed=5)
    assert auto.reason("st") == Reason.of(ReasonCode.NO_PREDICTION, rows=1, why=few)


@pytest.mark.parametrize(("rows", "width"), [(30, 100_000), (6_000, 500)], ids=["row by row", "by COPY"])
def test_delta_that_takes_more_memory_than_the_cap_is_refreshed_in_full(
    installed: Database, make_line: Callable[..., Line], rows: int, width: int
) -> None:
    # A first load of these rows takes next to nothing: by its time alone 6,000 changes would be refreshed in full.
    limits = Settings(differential_max_change_ratio=1.0, prediction_ratio=100)
    capped = make_line(installed, replace(limits, delta_work_mem_cap_mb=2))
    capped.sql("CREATE TABLE t (id int PRIMARY KEY, a text); INSERT INTO t SELECT i, i FROM generate_series(1, 9000) i")
    for name, mode in (("st", "AUTO"), ("pinned", "DIFFERENTIAL")):
        capped.create(name, "SELECT id, a FROM t", mode=mode)
    insert = "INSERT INTO t SELECT i, repeat('x', %s) FROM generate_series(%s::int, %s) AS i"
    capped.sql(insert, width, 10_000, 9_999 + rows)
    capped.tick()
    capped.check("st", "FULL")
    assert capped.last("st")[2] == "the delta has more than 2 MB (delta_work_mem_cap_mb)"
    capped.check("pinned")  # whoever says DIFFERENTIAL means it
    capped.sql(insert, width, 50_000, 50_001)
    capped.tick()
    capped.check("st")
    free = make_line(installed, limits)
    free.sql(insert, width, 60_000, 59_999 + rows)
    free.tick()
    free.check("st")


def test_cap_is_the_most_that_work_mem_can_be(installed: Database, make_line: Callable[..., Line]) -> None:
    for settings, expected in (
        (Settings(), "64MB"),
        (Settings(delta_work_mem_cap_mb=8), "8MB"),
        (Settings(delta_work_mem_cap_mb=256, merge_work_mem_mb=32), "32MB"),
    ):
        worker = make_line(installed, settings).plane.worker
        for conn in (worker.reader, worker.writer):
            assert conn.execute("SHOW work_mem").fetchone() == (expected,)


# -- what is learned
# --------------------------------------------------------------------------------------------------------------

SLOW_S = 0.3


def made_slow(monkeypatch: pytest.MonkeyPatch, name: str) -> None:
    whole = resolve_name(name)

    def slow(*args: Any, **named: Any) -> Any:
        time.sleep(SLOW_S)
        return whole(*args, **named)

    monkeypatch.setattr(name, slow)


@pytest.mark.parametrize(
    ("action", "slow"),
    [
        ("FULL", "pgtrickle.refresh.loads.create_stage"),  # the content
        ("FULL", "pgtrickle.refresh.wave.write_load"),  # the difference
        ("DIFFERENTIAL", "pgtrickle.refresh.deltas.delta_text"),
        ("DIFFERENTIAL", "pgtrickle.pipeline.engine.netting.consolidate"),
        ("DIFFERENTIAL", "pgtrickle.refresh.wave.arrange"),
        ("DIFFERENTIAL", "pgtrickle.refresh.wave.apply_deltas"),
    ],
)
def test_all_that_a_way_takes_is_learned(auto: Line, monkeypatch: pytest.MonkeyPatch, action: str, slow: str) -> None:
    if action == "FULL":
        remembered(auto, 60_000.0)
    made_slow(monkeypatch, slow)
    auto.sql("INSERT INTO t VALUES (1000, 1)")
    (outcome,) = auto.tick()
    auto.check("st", action)
    past = auto.plane.worker.refresher.costs.past(outcome.table)
    sample = (past.full if action == "FULL" else past.differential)[-1]
    assert sample.ms >= 1000 * SLOW_S
    assert sum(outcome.timings.values()) == pytest.approx(sample.ms, abs=0.1)


def test_what_is_given_up_is_learned_with_the_full_refresh_that_follows_which_is_learned_alone(
    line: Line, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("pgtrickle.refresh.deltas.MAX_DELTA_ROWS", 100)
    line.sql("CREATE TABLE t (id int PRIMARY KEY, v int); INSERT INTO t SELECT i, i FROM generate_series(1, 300) AS i")
    line.create("st", "SELECT id, v - (SELECT avg(v) FROM t) AS off FROM t")
    made_slow(monkeypatch, "pgtrickle.refresh.deltas.run_queries")
    line.sql("UPDATE t SET v = 10000 WHERE id = 7")
    begun = time.perf_counter()
    (outcome,) = line.tick()
    wall_ms = (time.perf_counter() - begun) * 1000
    assert line.last("st")[2] == "the changes touch more than 100 rows"
    past = line.plane.worker.refresher.costs.past(outcome.table)
    (given_up,) = past.differential
    assert outcome.table.last_full_ms
    assert given_up.ms >= 1000 * SLOW_S + outcome.table.last_full_ms
    assert past.full[-1].ms <= wall_ms - 1000 * SLOW_S


def test_a_change_statement_that_is_too_long_means_full_for_auto_alone(
    line: Line, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(compiling, "MOST_CHARACTERS", 800)
    line.sql(
        "CREATE TABLE t (a int PRIMARY KEY, b int); INSERT INTO t SELECT i, i % 7 FROM generate_series(1, 50) AS i"
    )
    deep = "SELECT x.a, x.b FROM t AS x WHERE NOT EXISTS (SELECT FROM t AS y WHERE y.b = x.b AND y.a > x.a)"
    for name, query, mode in (
        ("short", "SELECT a FROM t", "AUTO"),
        ("long", deep, "AUTO"),
        ("told", deep, "DIFFERENTIAL"),
    ):
        line.sql("SELECT pgtrickle.create_stream_table(%s, %s, 'calculated', %s)", name, query, mode)
    line.tick()
    line.sql("UPDATE t SET b = b + 1 WHERE a % 5 = 0; DELETE FROM t WHERE a = 50")
    assert {o.table.name: o.action for o in line.tick()} == {
        "short": "DIFFERENTIAL",
        "long": "FULL",
        "told": "DIFFERENTIAL",
    }
    for name in ("short", "long", "told"):
        line.equal(name)
    modes = line.sql(
        "SELECT effective_refresh_mode, mode_reason_code FROM pgtrickle.pgt_stream_tables WHERE pgt_name = 'long'"
    )
    assert modes == [("FULL", ReasonCode.STATEMENT_TOO_LONG)]


def test_max_delta_fraction_of_a_table_decides_whatever_the_size_of_its_source(auto: Line) -> None:
    auto.sql("ANALYZE t")
    auto.sql("SELECT pgtrickle.alter_stream_table('st', max_delta_fraction => 0.1)")
    auto.sql("INSERT INTO t SELECT i, 1 FROM generate_series(1001, 1040) AS i")
    auto.tick()
    auto.check("st")
    auto.sql("INSERT INTO t SELECT i, 1 FROM generate_series(1101, 1180) AS i")
    auto.tick()
    auto.check("st", "FULL")
    reason = auto.reason("st")
    assert reason is not None
    assert reason.code is ReasonCode.MAX_DELTA_FRACTION
    auto.sql("SELECT pgtrickle.alter_stream_table('st', max_delta_fraction => 1)")
    auto.sql("INSERT INTO t SELECT i, 1 FROM generate_series(1201, 1280) AS i")
    auto.tick()
    auto.check("st")


def test_more_joins_than_max_differential_joins_are_refreshed_in_full(auto: Line) -> None:
    three = "SELECT x.id FROM t AS x JOIN t AS y ON y.id = x.id JOIN (SELECT id FROM t) AS z ON z.id = x.id"
    states = "SELECT effective_refresh_mode, mode_reason_code FROM pgtrickle.pgt_stream_tables WHERE pgt_name = 'j'"
    auto.sql(f"SELECT pgtrickle.create_stream_table('j', '{three}', max_differential_joins => 1)")
    auto.tick()
    assert auto.sql(states) == [("FULL", "max_differential_joins")]
    auto.sql("INSERT INTO t VALUES (2000, 1)")
    auto.tick()
    auto.check("j", "FULL")
    assert auto.last("j")[2] == "the query has 2 joins, which exceeds max_differential_joins (1)"
    auto.sql("SELECT pgtrickle.alter_stream_table('j', max_differential_joins => 2)")
    auto.sql("INSERT INTO t VALUES (2002, 1)")
    auto.tick()
    assert auto.sql(states) == [("DIFFERENTIAL", None)]
    auto.sql("INSERT INTO t VALUES (2001, 1)")
    auto.tick()
    auto.check("j")
    auto.sql(
        "SELECT pgtrickle.create_stream_table('d', %s, refresh_mode => 'DIFFERENTIAL', max_differential_joins => 1)",
        three,
    )
    auto.tick()
    assert auto.sql(
        "SELECT status, last_error_message ~ '2 joins' FROM pgtrickle.pgt_stream_tables WHERE pgt_name = 'd'"
    ) == [("ERROR", True)]


@pytest.mark.parametrize("size", [6_000, 30_000], ids=["small", "bulk"])
def test_refresh_that_opens_a_session_on_spark_is_no_sample(installed: Database, spark_url: str, size: int) -> None:
    """Its duration says nothing about later ones. The next process, which reads the history, leaves it out as well."""
    engine = SparkEngine(lambda: spark_url)
    if size > BATCH_ROWS:  # the other session does not count, nor does a session that has had no job
        assert list(engine.warm_up(1)) == [1]
        engine.parallelism()
        assert (engine.is_warm(bulk=False), engine.is_warm(bulk=True)) == (True, False)
    limits = Settings(differential_max_change_ratio=1.0, prediction_ratio=100)
    line = Line(installed.dsn, engine, limits)
    try:
        line.sql("CREATE TABLE t (id int PRIMARY KEY, a int)")
        line.create("st", "SELECT id, a FROM t WHERE a < 100")
        line.sql("UPDATE pgtrickle.pgt_stream_tables SET created_at = created_at - interval '1 h'")
        known = []
        for number in range(4):
            line.sql(  # more rows than a worker nets itself
                "INSERT INTO t SELECT i, mod(i, 90) FROM generate_series(%s::int, %s::int) AS i",
                number * size + 1,
                (number + 1) * size,
            )
            if number == 2:
                line.close()
                line = Line(installed.dsn, engine, limits)
            line.tick()
            line.check("st")
            known.append(line.last("st")[2])
        cold = line.sql(
            "SELECT is_cold FROM pgtrickle.pgt_refresh_history WHERE action = 'DIFFERENTIAL' ORDER BY refresh_id"
        )
    finally:
        line.close()
        engine.close()
    assert cold == [(True,), (False,), (False,), (False,)]
    assert [str(reason).split(": ")[-1] for reason in known] == [
        f"{n} of 5 refreshes are known" for n in (1, 1, 2, 3)
    ]  # the first load is one
