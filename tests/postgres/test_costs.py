"""Reports from the history: statistics, efficiency, which mode it speaks for."""

from __future__ import annotations

from typing import Any

import psycopg
import pytest

from tests.conftest import Database
from tests.postgres.rows import create, loaded, refreshed


@pytest.fixture
def db(installed: Database) -> Database:
    installed.sql("CREATE TABLE t (a int, b int)")
    return installed


def test_statistics_are_those_of_the_history(db: Database) -> None:
    pgt_id, idle = create(db), create(db, '"Idle One"', refresh_mode="FULL")
    loaded(db, pgt_id)
    for ms in (10, 20, 90):
        # the wave took longer than its own part
        refreshed(db, pgt_id, "DIFFERENTIAL", ms, timings=f'{{"delta": {ms / 4}, "apply": {ms / 4}}}')
    refreshed(db, pgt_id, "FULL", 200, rows_inserted=100, rows_deleted=50)
    refreshed(db, pgt_id, "DIFFERENTIAL", 7, "FAILED", error_message="no", rows_inserted=None, rows_deleted=None)
    found = db.sql("SELECT * FROM pgtrickle.st_refresh_stats()")
    assert found[0][:14] == ("Idle One", "public", "INITIALIZING", "FULL", False, 0, 0, 0, 0, 0, None, None, None, None)
    assert found[0][14:] == (None, False, None, None, idle)
    assert found[1][:10] == ("s", "public", "ACTIVE", "AUTO", True, 5, 4, 1, 106, 53)
    assert found[1][10:13] == (pytest.approx(80), "DIFFERENTIAL", "FAILED")
    assert 0 <= found[1][14] < 60
    assert found[1][15:] == (False, pytest.approx(55), pytest.approx(200), pgt_id)
    columns = "pgt_id, pgt_schema, pgt_name, total_refreshes, avg_duration_ms, last_error, last_refresh_status"
    assert db.sql(f"SELECT {columns} FROM pgtrickle.pg_stat_stream_tables ORDER BY pgt_id") == [
        (pgt_id, "public", "s", 5, pytest.approx(80), None, "FAILED"),
        (idle, "public", "Idle One", 0, None, None, None),
    ]
    assert db.sql("SELECT * FROM pgtrickle.refresh_efficiency()") == [
        ("public", "Idle One", "FULL", 0, 0, 0, None, None, None, None, None, None, None),
        ("public", "s", "DIFFERENTIAL", 4, 3, 1, pytest.approx(20), pytest.approx(200), pytest.approx(20), found[1][13],
         pytest.approx(10), pytest.approx(200), 3.0),
    ]  # fmt: skip
    timeline = db.sql("SELECT * FROM pgtrickle.refresh_timeline(2)")
    assert [r[1:8] for r in timeline] == [
        ("public.s", "DIFFERENTIAL", "FAILED", None, None, pytest.approx(7), "no"),
        ("public.s", "FULL", "COMPLETED", 100, 50, pytest.approx(200), None),
    ]
    assert len(db.sql("SELECT * FROM pgtrickle.refresh_timeline()")) == 5


def recommended(db: Database, name: str | None = "s") -> tuple[Any, ...]:
    ((*_, mode, confidence, reason, signals),) = db.sql("SELECT * FROM pgtrickle.recommend_refresh_mode(%s)", name)
    return mode, confidence, reason, signals


def test_recommendation_needs_samples_and_says_its_numbers(db: Database) -> None:
    pgt_id = create(db)
    assert recommended(db)[:3] == (
        "AUTO", "low",
        "too few refreshes to tell, 5 differential and 1 full are needed "
        "(differential: 0, median - ms; full: 0, median - ms)",
    )  # fmt: skip
    refreshed(db, pgt_id, "FULL", 100)
    # one that took very long is not what the others take
    for ms in (10, 10, 10, 10, 60_000):
        assert recommended(db)[1] == "low"
        refreshed(db, pgt_id, "DIFFERENTIAL", ms)
    assert recommended(db) == (
        "AUTO", "medium",
        "a differential refresh takes 0.100 of a full one "
        "(differential: 5, median 10.000 ms; full: 1, median 100.000 ms)",
        {"diff_samples": 5, "full_samples": 1, "median_diff_ms": 10.0, "median_full_ms": 100.0, "median_changes": 3,
         "ratio": 0.1, "prediction_ratio": 1.5, "min_samples": 5},
    )  # fmt: skip
    db.sql("UPDATE pgtrickle.pgt_stream_tables SET refresh_mode = 'FULL', effective_refresh_mode = 'FULL'")
    assert recommended(db, None)[0] == "DIFFERENTIAL"
    for _ in range(4):
        refreshed(db, pgt_id, "FULL", 100)
    assert recommended(db)[:2] == ("DIFFERENTIAL", "high")


def test_recommendation_follows_the_ratio(db: Database) -> None:
    pgt_id = create(db, refresh_mode="DIFFERENTIAL")
    for _ in range(5):
        refreshed(db, pgt_id, "FULL", 100)
        refreshed(db, pgt_id, "DIFFERENTIAL", 120)
    assert recommended(db)[:2] == ("AUTO", "medium")
    db.superuser_sql(f"ALTER DATABASE {db.name} SET pg_trickle.prediction_ratio = '1.1'")
    mode, confidence, reason, _ = recommended(db)
    assert (mode, confidence) == ("FULL", "high")
    assert reason.startswith(
        "a differential refresh takes 1.200 times as long as a full one, more than prediction_ratio 1.1 ("
    )


def test_recommendation_respects_what_is_impossible_or_meant(db: Database) -> None:
    create(db, "s", "SELECT a, now() AS at FROM t")
    mode, confidence, reason, _ = recommended(db)
    assert (mode, confidence) == ("FULL", "high")
    assert reason.startswith("it cannot be maintained from changes: ")
    create(db, '"I m"', refresh_mode="IMMEDIATE")
    assert recommended(db, '"I m"')[:2] == ("IMMEDIATE", "high")
    with pytest.raises(psycopg.errors.UndefinedTable):
        recommended(db, "missing")


def test_explanations_of_one_stream_table(db: Database) -> None:
    create(db, "s", "SELECT a, now() AS at FROM t")
    ((configured, effective, reason),) = db.sql("SELECT * FROM pgtrickle.explain_refresh_mode('s')")
    assert (configured, effective) == ("AUTO", "FULL")
    assert "now" in reason
    explained = dict(db.sql("SELECT * FROM pgtrickle.explain_st('s')"))
    assert explained["mode_reason"] == reason
    assert explained["sources"] == "t (TABLE)"
