"""What the page of a stream table makes of a stored plan and of the history."""

from __future__ import annotations

from typing import Any

from pgtrickle.observe.state import DatabaseState, Source
from pgtrickle.web.table_page import lag_points, measured_rows, plan_tree

SOURCES = (
    Source(1, "public", "orders", 0, 0, 1, 0, rate=2.5),
    Source(2, "pgtrickle_changes", "mirror_7", 0, 0, 1, 0),
)
DATABASE = DatabaseState("shop", "shop", "here", sources=SOURCES)
WORDS = [
    "Mode: DIFFERENTIAL",
    "Operators, and what a refresh does for each:",
    "  Having: evaluated by PostgreSQL in the apply",
    "  Aggregate by (k): folded into the state beside the table",
    "    sum(v): adds signed values and weights exactly (decimal)",
    "    Join of 2: one term per set of changed tables",
    "      Scan public.orders: its changes, or itself as of a cut",
    "      Scan crm.public.accounts (mirrored here as pgtrickle_changes.mirror_7): its changes, or itself as of a cut",
    "In Spark: net changes per group by key",
]


def refresh(**more: Any) -> dict[str, Any]:
    rows = {"changes": {"1": 3, "2": 0}, "read": 4, "netted": 2}
    return {
        "ended_at": 9.0, "status": "COMPLETED", "changes": 3, "inserted": 2, "deleted": 1,
        "operator_rows": rows, "timings": {"read": 1.0, "net": 0.1}, **more,
    }  # fmt: skip


def shown(plan: dict[str, Any], refreshes: list[dict[str, Any]]) -> list[tuple[str, Any, list[str]]]:
    lines = plan_tree(plan, DATABASE, "postgres", measured_rows(refreshes))
    return [(e["operator"], e["engine"], [f"{r['rows']} {r['kind']}" for r in e["rows"]]) for e in lines]


def test_rows_stand_at_the_operators_that_have_them() -> None:
    plan = {"words": WORDS, "boundaries": {"read": 3, "netted": 1}}
    assert shown(plan, [refresh()]) == [
        ("Having", "postgres", []),
        ("Aggregate by (k)", "postgres", ["2 after netting"]),
        ("sum(v)", None, []),
        ("Join of 2", "postgres", ["4 delta rows"]),
        ("Scan public.orders", "postgres", ["3 changes"]),
        ("Scan crm.public.accounts (mirrored here as pgtrickle_changes.mirror_7)", "postgres", ["0 changes"]),
    ]
    assert plan_tree(plan, DATABASE, "postgres", None)[4]["rate"] == 2.5


def test_a_plan_of_an_earlier_version_has_rows_at_its_scans_only() -> None:
    rows = [rows for _, _, rows in shown({"words": WORDS}, [refresh()])]
    assert rows == [[], [], [], [], ["3 changes"], ["0 changes"]]


def test_the_latest_refresh_with_numbers_is_shown() -> None:
    failed, full = refresh(status="FAILED"), refresh(operator_rows=None)
    on_spark = refresh(operator_rows={"changes": {}, "read": None, "netted": 7}, timings={"evaluate": 3.0})
    assert measured_rows([failed, full]) is None
    found = measured_rows([failed, full, on_spark, refresh()])
    assert found is not None
    assert (found["read"], found["netted"], found["netted_by"]) == (None, 7, "Spark")
    plan = {"words": WORDS, "boundaries": {"read": 3, "netted": 1}}
    assert shown(plan, [on_spark])[3] == ("Join of 2", "postgres", [])
    assert (measured_rows([refresh()]) or {})["netted_by"] == "the worker"


def committed(started: float, ended: float, data: float, **more: Any) -> dict[str, Any]:
    return {
        "started_at": started, "ended_at": ended, "data_at": data,
        "action": "DIFFERENTIAL", "status": "COMPLETED", **more,
    }  # fmt: skip


def test_lag_is_zero_while_nothing_is_pending() -> None:
    """An hour without changes is no lag: with a schedule of 2 s, a change is at most so old when its refresh begins."""
    refreshes = [committed(3600.0, 3600.5, 3600.25), committed(0.0, 0.5, 0.25)]  # newest first
    assert lag_points(refreshes, 2.0) == [(0.5, 0.0), (3598.0, 0.0), (3600.5, 2.5), (3600.5, 0.0)]


def test_lag_of_changes_that_come_at_all_times() -> None:
    """What a refresh did not see may be pending when it commits; it is no older than the snapshot of the refresh."""
    refreshes = [committed(4.0, 4.5, 4.25), committed(2.0, 2.5, 2.25), committed(0.0, 0.5, 0.25)]
    assert lag_points(refreshes, 2.0) == [(0.5, 0.25), (2.5, 2.25), (2.5, 0.25), (4.5, 2.25), (4.5, 0.0)]


def test_lag_grows_while_refreshes_fail_and_nothing_bounds_it_without_a_duration() -> None:
    failed = committed(100.0, 100.5, 0.0, status="FAILED", data_at=None)
    refreshes = [committed(160.0, 160.5, 160.25), failed, committed(0.0, 0.5, 0.25)]
    assert lag_points(refreshes, 2.0) == [(0.5, 0.0), (98.0, 0.0), (160.5, 62.5), (160.5, 0.0)]
    assert lag_points(refreshes, None) == [(0.5, 0.25), (160.5, 160.25), (160.5, 0.0)]


def test_refreshes_without_changes_show_no_lag() -> None:
    idle = committed(5.0, 5.25, 5.0, action="NO_DATA")
    refreshes = [committed(9.0, 9.5, 9.25), idle, committed(0.0, 0.5, 0.25)]
    assert lag_points(refreshes, None) == [(0.5, 0.0), (5.0, 0.0), (9.5, 4.5), (9.5, 0.0)]
    assert lag_points([], 1.0) == []
