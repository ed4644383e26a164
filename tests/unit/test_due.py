"""Whose time has come."""

from __future__ import annotations

import time
from datetime import UTC, datetime
from typing import Any

import numpy as np
import pytest

from pgtrickle.errors import (
    ConfigError,
    DefinitionError,
    EngineLostError,
    FencedError,
    InvariantError,
    OriginAwayError,
    PgtrickleError,
    TransientError,
)
from pgtrickle.scheduler.due import (
    CLOCK,
    DIRTY,
    EMPTY,
    ERRED,
    FROZEN,
    IN_FLIGHT,
    INACTIVE,
    REINIT,
    REQUESTED,
    UNCAPTURED,
    Due,
    Members,
    positions_of,
    retry_after,
)

NEVER = -np.inf
NOON = datetime(2026, 3, 1, 12, 0, tzinfo=UTC).timestamp()


def at(*positions: int) -> np.ndarray[tuple[int], np.dtype[np.intp]]:
    return np.array(positions, dtype=np.intp)


def one(schedule: str = "10s", flags: int = 0, last: float = 0.0, immediate: bool = False) -> Due:
    return Due.of([schedule], [flags], [last], [immediate])


@pytest.mark.parametrize(
    ("flags", "now", "expected"),
    [
        (0, 100, False),  # nothing to do
        (DIRTY, 9.9, False),
        (DIRTY, 10, True),
        (CLOCK, 9.9, False),
        (CLOCK, 10, True),
        (UNCAPTURED, 10, True),
        (REQUESTED, 0, True),
        (EMPTY, 0, True),
        (REINIT, 0, True),
        (DIRTY | INACTIVE, 100, False),
        (REQUESTED | INACTIVE, 100, False),
        (DIRTY | IN_FLIGHT, 100, False),
        (REQUESTED | IN_FLIGHT, 100, False),
        (DIRTY | FROZEN, 100, False),
        (CLOCK | FROZEN, 100, False),
        (REQUESTED | FROZEN, 0, True),
        (EMPTY | FROZEN, 0, True),
        (DIRTY | REQUESTED, 0, True),
    ],
)
def test_reasons_and_obstacles(flags: int, now: float, expected: bool) -> None:
    assert (one(flags=flags).due(now).tolist() == [0]) == expected


@pytest.mark.parametrize(
    ("schedule", "immediate", "expected"),
    [
        ("10s", False, NOON + 10),
        ("1h30m", False, NOON + 5400),
        ("45", False, NOON + 45),
        ("calculated", False, NEVER),
        ("10s", True, NEVER),
        ("*/5 * * * *", False, NOON + 300),
        ("@daily", False, NOON + 43_200),
        ("*/5 * * * *", True, NEVER),
    ],
)
def test_time_is_counted_from_the_latest_refresh(schedule: str, immediate: bool, expected: float) -> None:
    assert one(schedule, last=NOON, immediate=immediate).next_due[0] == expected


@pytest.mark.parametrize("schedule", ["10s", "calculated", "@daily"])
def test_time_of_a_table_without_refresh_has_come(schedule: str) -> None:
    assert one(schedule, DIRTY, NEVER).due(0.0).tolist() == [0]


def test_tier_stretches_durations_only() -> None:
    due = Due.of(["10s", "*/5 * * * *", "calculated"], [DIRTY] * 3, [NOON] * 3, [False] * 3)
    due.set_multiplier(at(0, 1, 2), np.full(3, 10.0))
    assert due.next_due.tolist() == [NOON + 100, NOON + 300, NEVER]
    due.set_multiplier(at(0), np.ones(1))
    assert due.next_due[0] == NOON + 10


def test_table_under_way_is_due_again_only_for_what_came_since() -> None:
    due = one(flags=DIRTY | REQUESTED)
    due.queued(at(0))
    assert due.due(50.0).tolist() == []
    due.done(at(0), began=20.0)
    assert due.due(50.0).tolist() == []

    due.mark(at(0), DIRTY)
    assert due.due(29.0).tolist() == []
    assert due.due(30.0).tolist() == [0]
    due.queued(at(0))
    due.mark(at(0), REQUESTED)
    assert due.due(99.0).tolist() == []
    due.done(at(0), began=40.0)
    assert due.due(41.0).tolist() == [0]


def test_change_that_comes_while_under_way_waits_for_the_next_time() -> None:
    due = one(flags=DIRTY)
    due.queued(at(0))
    due.mark(at(0), DIRTY)
    due.done(at(0), began=10.0)
    assert due.due(19.0).tolist() == []
    assert due.due(20.0).tolist() == [0]


def test_clock_goes_on_after_a_refresh() -> None:
    due = one(flags=CLOCK)
    for began in (10.0, 20.0, 30.0):
        assert due.due(began).tolist() == [0]
        due.queued(at(0))
        due.done(at(0), began)
        assert due.due(began + 9).tolist() == []


def test_returned_table_is_as_if_it_had_never_gone() -> None:
    due = one(flags=EMPTY | DIRTY, last=NEVER)
    due.queued(at(0))
    due.returned(at(0))
    assert due.flags.tolist() == [EMPTY | DIRTY]
    assert due.due(0.0).tolist() == [0]


@pytest.mark.parametrize(
    ("error", "expected"),
    [
        (TransientError, [1, 2, 4, 8, 16, 32, 60, 60]),
        (InvariantError, [1, 2, 4, 8, 16, 32, 60, 60]),
        (OriginAwayError, [1, 2, 4, 5, 5, 5, 5, 5]),
        (EngineLostError, [1] * 8),
        (FencedError, [0] * 8),
        (DefinitionError, [1, 2, 4, 8, 16, 32, 60, 60]),
        (ConfigError, [1, 2, 4, 8, 16, 32, 60, 60]),
        (PgtrickleError, [1, 2, 4, 8, 16, 32, 60, 60]),
    ],
)
def test_retry_is_decided_by_branch(error: type[PgtrickleError], expected: list[float]) -> None:
    assert [retry_after(error, n) for n in range(1, 9)] == expected
    assert retry_after(error, 10_000) == expected[-1]


def test_failing_table_backs_off_also_when_asked_for_and_a_success_forgets() -> None:
    due = one(flags=REQUESTED)
    now, waits = 0.0, []
    for _ in range(4):
        due.queued(at(0))
        due.failed(0, TransientError, now)
        waits.append(due.next_due_time(now) - now)
        assert due.due(now + waits[-1] - 0.01).tolist() == []
        now += waits[-1]
        assert due.due(now).tolist() == [0]
    assert waits == [1, 2, 4, 8]
    due.queued(at(0))
    due.failed(0, EngineLostError, now)
    assert due.next_due_time(now) == now + 1
    assert due.failures[0] == 4
    due.queued(at(0))
    due.done(at(0), now)
    assert due.failures[0] == 0
    assert due.backoff_until[0] == NEVER


@pytest.mark.parametrize(
    ("flags", "expected"),
    [(DIRTY, False), (INACTIVE, True), (FROZEN | DIRTY, True), (FROZEN | REQUESTED, False), (IN_FLIGHT, False)],
)
def test_barred_tables_are_not_taken_along(flags: int, expected: bool) -> None:
    assert one(flags=flags).is_barred(0, 100.0) == expected


def test_error_of_the_query_is_tried_again_too() -> None:
    due = one(flags=DIRTY)
    due.queued(at(0))
    due.failed(0, DefinitionError, 10.0)
    assert due.flags[0] == DIRTY
    assert due.is_barred(0, 10.5)
    assert not due.is_barred(0, 11.0)


def test_cron_slot_without_changes_goes_by() -> None:
    due = one("0 * * * *", last=NOON)
    slot = NOON + 3600
    assert due.next_due[0] == slot
    due.pass_over(slot - 1)
    assert due.next_due[0] == slot
    due.pass_over(slot + 1)
    assert due.next_due[0] == slot + 3600
    due.mark(at(0), DIRTY)
    assert due.due(slot + 60).tolist() == []
    assert due.due(slot + 3600).tolist() == [0]
    due.pass_over(slot + 3600)  # it is due: its slot stays until it is done
    assert due.due(slot + 3601).tolist() == [0]


@pytest.mark.parametrize("obstacle", [IN_FLIGHT, INACTIVE])
def test_cron_slot_stays_for_a_table_that_is_kept_from_it(obstacle: int) -> None:
    due = one("0 * * * *", obstacle, last=NOON)
    due.pass_over(NOON + 3601)
    assert due.next_due[0] == NOON + 3600


def test_cron_slot_that_came_during_a_refresh_is_not_lost() -> None:
    due = one("0 * * * *", REQUESTED, last=NOON)
    due.queued(at(0))
    due.mark(at(0), DIRTY)
    due.done(at(0), began=NOON + 3590)
    assert due.due(NOON + 3610).tolist() == [0]


def test_next_moment_is_when_something_gets_due_by_itself() -> None:
    due = Due.of(["10s", "30s", "5s", "1s"], [DIRTY, DIRTY, 0, DIRTY | FROZEN], [0.0] * 4, [False] * 4)
    assert due.next_due_time(2.0) == 10
    assert due.next_due_time(15.0) == 15
    due.mark(at(1), REQUESTED)
    assert due.next_due_time(2.0) == 2
    assert one().next_due_time(0.0) == np.inf


def test_reload_keeps_what_only_the_scheduler_knows() -> None:
    old = Due.of(["10s"] * 3, [DIRTY | REQUESTED, DIRTY, DIRTY], [0.0] * 3, [False] * 3)
    old.queued(at(0))
    old.mark(at(0), DIRTY)
    old.failed(1, TransientError, 100.0)
    old.failed(2, DefinitionError, 100.0)
    old.mark(at(2), ERRED)  # and somebody has resumed it
    new = Due.of(["10s"] * 4, [0, 0, EMPTY, 0], [0.0] * 4, [False] * 4)
    new.keep(old, at(2, 1, -1, 0))
    assert new.flags.tolist() == [DIRTY, DIRTY, EMPTY, DIRTY | IN_FLIGHT]
    assert new.backoff_until.tolist() == [NEVER, 101.0, NEVER, NEVER]
    assert new.due(100.5).tolist() == [0, 2]
    new.returned(at(3))
    assert new.flags[3] == DIRTY | REQUESTED


def test_reload_does_not_take_what_is_under_way_for_a_new_reason() -> None:
    old = one(flags=EMPTY)
    old.queued(at(0))
    new = one(flags=EMPTY | REINIT)  # it is still empty, and somebody has altered it
    new.keep(old, at(0))
    assert new.flags[0] == REINIT | IN_FLIGHT
    old.mark(at(0), EMPTY)
    new.keep(old, at(0))
    new.done(at(0), 5.0)
    assert new.flags[0] == REINIT | EMPTY


def test_members_answer_by_pgt_id() -> None:
    due = Due.of(["10s", "calculated"], [0, IN_FLIGHT], [0.0] * 2, [False] * 2)
    index = {71: 0, 72: 1}
    scheduled = Members(index, lambda p: due.time_has_come(p, 20.0))
    assert [i in scheduled for i in (71, 72, 73)] == [True, False, False]
    assert positions_of([72, 99, 71], index).tolist() == [1, 0]


def test_asked_are_those_that_do_not_wait() -> None:
    due = Due.of(["10s"] * 3, [DIRTY, REQUESTED, EMPTY | DIRTY], [0.0] * 3, [False] * 3)
    assert due.asked(due.due(10.0)).tolist() == [1, 2]


def naive(due: Due, now: float) -> list[int]:
    found = []
    for p in range(len(due.flags)):
        f = int(due.flags[p])
        if f & (INACTIVE | IN_FLIGHT) or due.backoff_until[p] > now:
            continue
        timely = f & (DIRTY | CLOCK | UNCAPTURED) and due.next_due[p] <= now and not f & FROZEN
        if timely or f & (REQUESTED | EMPTY | REINIT):
            found.append(p)
    return found


def test_columns_say_what_each_row_would() -> None:
    random = np.random.default_rng(4)
    schedules = random.choice(["1s", "5s", "calculated", "1m"], 2_000).tolist()
    for _ in range(20):
        due = Due.of(schedules, random.integers(0, 512, 2_000), random.uniform(0, 60, 2_000), [False] * 2_000)
        due.backoff_until[:] = random.uniform(0, 100, 2_000)
        now: Any = random.uniform(0, 100)
        assert due.due(now).tolist() == naive(due, now)


def test_quiet_look_at_100000_tables_is_far_cheaper_than_a_pass_in_python() -> None:
    count = 100_000
    due = Due.of(["1s"] * count, np.zeros(count), np.zeros(count), np.zeros(count))
    due.mark(np.arange(0, count, 1_000), DIRTY)
    best = 1e9
    for _ in range(20):
        began = time.perf_counter()
        assert len(due.due(5.0)) == 100
        best = min(best, time.perf_counter() - began)
    began = time.perf_counter()
    assert sum(1 for f in due.flags.tolist() if f & DIRTY) == 100
    assert best < (time.perf_counter() - began) / 3


@pytest.mark.parametrize(
    ("schedule", "flags", "immediate", "expected"),
    [
        ("10s", 0, False, 10.0),
        ("calculated", 0, False, NEVER),
        ("1h", 0, True, NEVER),
        ("10s", ERRED, False, 10.0),
        ("0 3 * * *", 0, False, np.inf),  # waits for its slot
        *(("10s", flag, False, np.inf) for flag in (DIRTY, CLOCK, UNCAPTURED, REQUESTED, INACTIVE, IN_FLIGHT, FROZEN)),
    ],
)
def test_from_when_on_a_change_makes_it_due(schedule: str, flags: int, immediate: bool, expected: float) -> None:
    due = one(schedule, flags, immediate=immediate)
    assert due.next_wake_time() == expected


def test_from_when_on_a_change_makes_one_of_several_due() -> None:
    due = Due.of(["10s", "5s", "1s"], [0, 0, DIRTY], [0.0, 0.0, 0.0], [False] * 3)
    assert due.next_wake_time() == 5.0
    due.backoff_until[1] = 30.0
    assert due.next_wake_time() == 10.0
    assert Due.of((), (), (), ()).next_wake_time() == np.inf
