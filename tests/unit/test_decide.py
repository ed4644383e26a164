"""What a refresh does, from what its read transaction sees."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from pgtrickle.model.catalog import Source, StreamTable
from pgtrickle.model.flow import Cut, Instance, Pending
from pgtrickle.model.reasons import Reason, ReasonCode
from pgtrickle.refresh.cost_model import CostHistory, Limits, Sample
from pgtrickle.refresh.decide import (
    DIFFERENTIAL,
    FULL,
    NO_DATA,
    PREPARE,
    REINITIALIZE,
    Decision,
    decide,
    reload_reason,
    since,
)

HERE = Instance("7001", 5)
NOW = Cut(100, 100, ())
LIMITS = Limits(max_change_ratio=0.1, max_buffer_rows=1000)
TODAY = datetime(2026, 1, 1, tzinfo=UTC)
XML, ALTERED = Reason.of(ReasonCode.XML_EXPRESSION, function="XMLROOT"), Reason.of(ReasonCode.QUERY_ALTERED)


def stream_table(number: int = 1, *, reads: tuple[int, ...] = (900,), **changes: Any) -> StreamTable:
    table = StreamTable(
        pgt_id=number,
        relid=100 + number,
        schema="public",
        name=f"t{number}",
        query="SELECT 1",
        columns=(),
        refresh_mode="AUTO",
        effective_mode="DIFFERENTIAL",
        mode_reason=None,
        schedule="1s",
        status="ACTIVE",
        is_populated=True,
        frontier={HERE.key: {"snapshot": "90:90:"}},
        epoch=1,
        needs_reinit=False,
        reinit_reason=None,
        definition_version=1,
        plan={"time_zone": "UTC"},
        refresh_requested_at=None,
        refresh_done_at=None,
        consecutive_errors=0,
        sources=tuple(Source(r, "TABLE", frozenset({1})) for r in reads),
        fingerprints=dict.fromkeys(reads, "s 1:int4"),
    )
    return replace(table, **changes)


def decided(table: StreamTable, **changes: Any) -> Decision:
    arguments: dict[str, Any] = {
        "differentiable": True,
        "reload": None,
        "fingerprints": dict(table.fingerprints),
        "pending": {s.relid: Pending(5, truncated=False) for s in table.sources},
        "source_rows": dict.fromkeys((s.relid for s in table.sources), 100.0),
        "limits": LIMITS,
        "past": CostHistory(),
        "now": TODAY,
    }
    return decide(table, **{**arguments, **changes})


def test_changes_are_applied() -> None:
    assert decided(stream_table(refresh_mode="DIFFERENTIAL")) == Decision(DIFFERENTIAL)
    why = Reason.of(ReasonCode.NO_PREDICTION, rows=5, why=Reason.of(ReasonCode.NO_FULL_KNOWN))
    assert decided(stream_table()) == Decision(DIFFERENTIAL, why)


def test_no_changes_mean_nothing_to_do() -> None:
    pending = {900: Pending(0, truncated=False)}
    assert decided(stream_table(), pending=pending) == Decision(NO_DATA)
    assert decided(stream_table(), pending=pending, differentiable=False) == Decision(NO_DATA)


def test_truncated_source_is_recomputed() -> None:
    decision = decided(stream_table(refresh_mode="DIFFERENTIAL"), pending={900: Pending(0, truncated=True)})
    assert decision == Decision(FULL, Reason.of(ReasonCode.SOURCE_TRUNCATED))


def test_truncated_source_of_a_full_table_is_recomputed() -> None:
    """TRUNCATE leaves a marker and no rows."""
    table = stream_table(mode_reason=XML)
    pending = {900: Pending(0, truncated=True)}
    assert decided(table, pending=pending, differentiable=False).action == FULL


def test_query_that_cannot_be_differentiated_is_recomputed_with_its_reason() -> None:
    table = stream_table(mode_reason=XML)
    assert decided(table, differentiable=False) == Decision(FULL, XML)


@pytest.mark.parametrize(("kind", "action"), [("FOREIGN_TABLE", FULL), ("MATVIEW", FULL), ("VIEW", NO_DATA)])
def test_source_whose_changes_are_unknown_is_read_every_time(kind: str, action: str) -> None:
    table = stream_table(sources=(Source(900, kind, frozenset()),))
    assert decided(table, differentiable=False, pending={}).action == action


@pytest.mark.parametrize(
    ("rows", "size", "action"),
    [
        (900, 100.0, DIFFERENTIAL),  # small tables: never mind the ratio
        (1001, 1e9, FULL),
        (1000, 9_999.0, DIFFERENTIAL),
        (1000, 10_000.0, DIFFERENTIAL),
        (1000, 9_000.0, DIFFERENTIAL),
    ],
)
def test_large_changes_are_recomputed_in_auto(rows: int, size: float, action: str) -> None:
    decision = decided(stream_table(), pending={900: Pending(rows, truncated=False)}, source_rows={900: size})
    assert decision.action == action


def test_large_share_of_a_large_table_is_recomputed_in_auto_only() -> None:
    limits = Limits(max_change_ratio=0.1, max_buffer_rows=0)
    pending, sizes = {900: Pending(2000, truncated=False)}, {900: 15_000.0}
    auto = decided(stream_table(), pending=pending, source_rows=sizes, limits=limits)
    assert auto.action == FULL
    assert auto.reason == Reason.of(ReasonCode.MAX_CHANGE_RATIO, rows=2000, source_rows=15_000, limit="0.1")
    declared = decided(stream_table(refresh_mode="DIFFERENTIAL"), pending=pending, source_rows=sizes, limits=limits)
    assert declared == Decision(DIFFERENTIAL)


def test_first_load_and_reloads_are_told_apart() -> None:
    first, restored = Reason.of(ReasonCode.FIRST_LOAD), Reason.of(ReasonCode.XIDS_WENT_BACK)
    assert decided(stream_table(), reload=first) == Decision(FULL, first)
    assert decided(stream_table(), reload=restored) == Decision(REINITIALIZE, restored)


def test_changed_source_is_prepared_again_first() -> None:
    assert decided(stream_table(), fingerprints={900: None}).action == PREPARE
    assert decided(stream_table(), fingerprints={900: "s 1:int8"}).action == PREPARE
    assert decided(stream_table(), fingerprints={900: "other 1:int4"}).action == PREPARE
    assert decided(stream_table(), fingerprints={900: "s 1:int4 2:text"}).action == DIFFERENTIAL


def test_full_refresh_is_prepared_again_if_a_column_that_it_reads_has_another_type() -> None:
    """It converts values to the types that it was prepared with."""
    assert decided(stream_table(), fingerprints={900: "s 1:int8"}, differentiable=False).action == PREPARE
    assert decided(stream_table(), fingerprints={900: "s 1:int4 2:text"}, differentiable=False).action == FULL
    # Earlier versions did not store them.
    earlier = stream_table(fingerprints={900: "s"})
    assert decided(earlier, fingerprints={900: "s 1:int8"}, differentiable=False).action == FULL


@pytest.mark.parametrize(
    ("changes", "reason"),
    [
        ({"is_populated": False}, Reason.of(ReasonCode.FIRST_LOAD)),
        ({"needs_reinit": True, "reinit_reason": ALTERED}, ALTERED),
        ({"needs_reinit": True}, Reason.of(ReasonCode.REINIT_REQUESTED)),
        ({"frontier": None}, Reason.of(ReasonCode.NO_FRONTIER)),
        ({"frontier": {"7001/6": {"snapshot": "90:90:"}}}, Reason.of(ReasonCode.OTHER_DATABASE)),
        ({"frontier": {HERE.key: {"snapshot": "190:190:"}}}, Reason.of(ReasonCode.XIDS_WENT_BACK)),
        (
            {"plan": {"time_zone": "Europe/Berlin"}},
            Reason.of(ReasonCode.TIME_ZONE_CHANGED, old="Europe/Berlin", new="UTC"),
        ),
    ],
)
def test_content_that_cannot_be_trusted_is_loaded_anew(changes: dict[str, Any], reason: Reason) -> None:
    assert reload_reason(stream_table(**changes), HERE, NOW, "UTC") == reason


def test_content_at_a_usable_cut_is_kept() -> None:
    assert reload_reason(stream_table(), HERE, NOW, "UTC") is None
    assert since(stream_table(), HERE, NOW) == Cut(90, 90, ())


def test_decide_recomputes_when_the_changes_are_predicted_to_take_longer() -> None:
    """10,000 changes at 0.01 ms are 100 ms: more than 1.5 x 50, less than 1.5 x 80."""
    limits = Limits(max_change_ratio=1.0, max_buffer_rows=0, prediction_ratio=1.5)
    pending = {900: Pending(10_000, truncated=False)}
    for last_full_ms, action in ((50.0, "FULL"), (80.0, "DIFFERENTIAL"), (None, "DIFFERENTIAL")):
        decision = decided(stream_table(last_full_ms=last_full_ms), pending=pending, limits=limits)
        assert decision.action == action, decision


def test_query_that_looks_at_the_clock_is_recomputed_by_its_schedule_though_no_source_changed() -> None:
    reason = Reason.of(ReasonCode.SESSION_VALUE, function="CURRENT_DATE")
    assert decided(stream_table(mode_reason=XML), differentiable=False, pending={}).action == NO_DATA
    for schedule, action in (("1h", "FULL"), ("calculated", "NO_DATA")):
        table = stream_table(schedule=schedule, mode_reason=reason, effective_mode="FULL")
        assert decided(table, differentiable=False, pending={}).action == action


def test_auto_chooses_by_what_refreshes_have_taken_once_the_table_is_a_minute_old() -> None:
    past = CostHistory.of([Sample(TODAY.timestamp() - 10, "DIFFERENTIAL", 5, 900.0) for _ in range(5)])
    for seconds, action in ((59, DIFFERENTIAL), (61, FULL)):
        table = stream_table(last_full_ms=300.0, created_at=TODAY - timedelta(seconds=seconds))
        assert decided(table, past=past).action == action
    declared = stream_table(refresh_mode="DIFFERENTIAL", last_full_ms=300.0, created_at=TODAY - timedelta(days=1))
    assert decided(declared, past=past) == Decision(DIFFERENTIAL)
