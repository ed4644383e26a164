"""The board after single definitions came, went and changed equals one that was loaded with all of them."""

from __future__ import annotations

import random
from dataclasses import replace

import numpy as np
import pytest

from pgtrickle.model.work import SINGLETON, Unit
from pgtrickle.scheduler.state import Row, ScheduleState

pytestmark = pytest.mark.unit

NOW = 1_800_000_000.0


def row(pgt_id: int, schedule: str = "10s", **more: object) -> Row:
    base = Row(
        pgt_id=pgt_id,
        relid=1000 + pgt_id,
        sources=(7,),
        schedule=schedule,
        refresh_mode="AUTO",
        status="ACTIVE",
        is_populated=True,
        needs_reinit=False,
        is_requested=False,
        last_refresh=NOW,
        tier="hot",
        tier_pinned=False,
        diamond_consistency=None,
        diamond_schedule_policy=None,
        needs_no_changes=False,
        name=f"public.s{pgt_id}",
    )
    return replace(base, **more)  # type: ignore[arg-type]


def due(board: ScheduleState, now: float) -> list[int]:
    turn = board.tick_input(now, (), ())
    return sorted([*turn.due, *turn.asked]) if turn is not None else []


def test_single_definitions_end_up_as_a_load_of_all() -> None:
    rng = random.Random(4)
    board = ScheduleState(NOW)
    rows: dict[int, Row] = {}
    for number in range(300):
        pgt_id = rng.randrange(40)
        if pgt_id in rows and rng.random() < 0.3:
            del rows[pgt_id]
            assert board.load((), [pgt_id], NOW) == {pgt_id}
            continue
        schedule = rng.choice(["10s", "calculated", "*/5 * * * *", "1h"])
        status = rng.choice(["ACTIVE", "ERROR", "SUSPENDED"])
        new = row(pgt_id, schedule, status=status, sources=(rng.randrange(3),), last_refresh=NOW + number)
        is_other = pgt_id not in rows or rows[pgt_id].shape != new.shape
        rows[pgt_id] = new
        assert board.load([new], [pgt_id], NOW) == ({pgt_id} if is_other else set())
    whole = ScheduleState(NOW)
    whole.load(rows.values(), None, NOW)
    assert len(board) == len(whole)
    assert board.failed() == whole.failed()
    for moment in (NOW, NOW + 100, NOW + 400, NOW + 5000):
        board.changed(rows, NOW)
        whole.changed(rows, NOW)
        assert due(board, moment) == due(whole, moment)


def test_definition_leaves_the_others_as_they_were() -> None:
    board = ScheduleState(NOW)
    board.load([row(i) for i in range(1, 6)], None, NOW)
    board.queued([Unit(SINGLETON, ((i,),)) for i in (2, 4)])
    board.finished(4, "retry", NOW, NOW)
    board.changed([2], NOW)
    board.load([row(6)], [6], NOW)
    board.load((), [1], NOW)
    turn = board.tick_input(NOW + 20, (), ())
    assert turn is not None
    assert 2 in turn.busy
    assert 6 not in turn.busy
    assert due(board, NOW + 0.5) == []
    assert due(board, NOW + 20) == [3, 4, 5, 6]
    board.finished(2, "ok", NOW, NOW)
    assert due(board, NOW + 20) == [2, 3, 4, 5, 6]  # the change came while it was under way


def test_definition_that_changes_keeps_what_is_under_way() -> None:
    board = ScheduleState(NOW)
    board.load([row(1), row(2)], None, NOW)
    board.queued([Unit(SINGLETON, ((1,),))])
    assert board.load([row(1, "1h")], [1], NOW) == {1}
    turn = board.tick_input(NOW + 20, (), ())
    assert turn is not None
    assert 1 in turn.busy
    board.finished(1, "cancelled", 0, 0)
    assert due(board, NOW + 20) == [2]
    assert due(board, NOW + 3601) == [1, 2]


def test_table_that_is_gone_is_barred() -> None:
    board = ScheduleState(NOW)
    board.load([row(1, "calculated"), row(2, "calculated")], None, NOW)
    board.load((), [2], NOW)
    turn = board.tick_input(NOW, (), ())
    assert turn is not None
    assert 2 in turn.barred
    assert 1 not in turn.barred
    assert 2 not in turn.busy


def test_what_had_its_turn_and_did_not_go_wakes_nobody() -> None:
    board = ScheduleState(NOW)
    board.load([row(1, "calculated"), row(2, "10s")], None, NOW)
    assert board.next_due_time(NOW) == NOW
    board.passed(NOW)
    assert board.next_due_time(NOW) == NOW + 10
    board.passed(NOW + 20)
    assert board.next_due_time(NOW + 20) == np.inf


def test_moved_tiers_are_told_until_the_catalog_has_them() -> None:
    board = ScheduleState(NOW)
    board.load([row(1, "1s"), row(2, "1h")], None, NOW)
    later = NOW + 61
    assert board.demote(later) == {1: "warm"}
    assert board.demote(later + 61) == {1: "cold"}
    board.load([row(1, "1s", tier="cold")], [1], later)
    assert board.demote(later + 122) == {}


def test_dirty_is_a_reason() -> None:
    board = ScheduleState(NOW)
    board.load([row(1, "calculated")], None, NOW)
    board.queued([Unit(SINGLETON, ((1,),))])
    board.finished(1, "ok", NOW, NOW)
    assert due(board, NOW + 1) == []
    board.dirty([1, 99])
    assert due(board, NOW + 1) == [1]


def test_table_that_was_fenced_is_due_again_at_once_and_has_no_failure() -> None:
    board = ScheduleState(NOW)
    board.load([row(i) for i in (1, 2)], None, NOW)
    board.changed([1], NOW)
    was_due = due(board, NOW + 20)
    board.queued([Unit(SINGLETON, ((i,),)) for i in was_due])
    board.finished(2, "ok", NOW, NOW + 20)
    board.finished(1, "fenced", NOW, NOW + 20)
    assert due(board, NOW + 20) == [1]


def test_table_that_reads_something_redefined_does_not_wait_for_its_schedule() -> None:
    board = ScheduleState(NOW)
    board.load([row(1, "1h"), row(2, "1h"), row(3, "1h", tier="frozen", tier_pinned=True)], None, NOW)
    for pgt_id in (1, 2, 3):  # checked once after the start
        board.queued([Unit(SINGLETON, ((pgt_id,),))])
        board.finished(pgt_id, "ok", NOW, NOW)
    assert due(board, NOW + 1) == []
    board.redefined([1, 3, 99])
    assert due(board, NOW + 1) == [1]
    board.load([row(1, "1h")], [1], NOW)  # the catalog does not say so
    assert due(board, NOW + 1) == [1]
    board.load([row(1, "2h"), row(2, "1h")], [1, 2], NOW)
    assert due(board, NOW + 1) == [1]
    board.queued([Unit(SINGLETON, ((1,),))])
    board.redefined([1])  # once more, while it is refreshed
    board.finished(1, "ok", NOW + 1, NOW + 2)
    assert due(board, NOW + 2) == [1]
    board.queued([Unit(SINGLETON, ((1,),))])
    board.finished(1, "ok", NOW + 2, NOW + 3)
    assert due(board, NOW + 3) == []


def test_changes_that_come_during_a_refresh_make_it_due_when_it_ends() -> None:
    board = ScheduleState(NOW)
    board.load([row(1, "calculated"), row(2, "calculated")], None, NOW)
    units = [Unit(SINGLETON, ((i,),)) for i in (1, 2)]
    board.queued(units)
    board.passed(NOW)
    assert not board.has_due(NOW + 1)
    board.changed([1], NOW + 1)
    assert not board.has_due(NOW + 1)  # it is in progress
    for pgt_id in (1, 2):
        board.finished(pgt_id, "ok", NOW, NOW + 2)
    assert board.has_due(NOW + 2)
    board.hold([1])
    assert not board.has_due(NOW + 2)
