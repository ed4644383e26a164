"""Which units the next free worker gets."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Mapping
from random import Random

import pytest

from pgtrickle.dispatch.queue import (
    FEWEST_MEMBERS,
    LONG_MS,
    MOST_MEMBERS,
    MOST_SKIPPED,
    OLDEST_EVERY,
    Lease,
    Queue,
)
from pgtrickle.dispatch.quota import SERIAL, WorkerLimit
from pgtrickle.model.work import CHAIN, CYCLIC, IMMEDIATE, SINGLETON, QueuedUnit, Unit

ANY = WorkerLimit(quota=0, max_concurrent=32)


def job(number: int, kind: str = SINGLETON, *, tier: int = 0, order: int | None = None, size: int = 1) -> QueuedUnit:
    levels = tuple((1000 * number + k,) for k in range(size))
    return QueuedUnit(number, Unit(kind, levels, tier, number if order is None else order))


def ids(lease: Lease | None) -> list[int]:
    assert lease is not None
    return [each.job_id for each in lease.jobs]


def filled(waiting: Mapping[str, int], kind: str = SINGLETON) -> Queue:
    queue = Queue()
    for database, count in waiting.items():
        for number in range(count):
            queue.put(database, job(number, kind))
    return queue


def test_nothing_waits_nothing_is_taken() -> None:
    assert Queue().take({}, {}, 4) is None


def test_lease_is_all_units_of_one_band() -> None:
    queue = Queue()
    for number, kind in enumerate([SINGLETON, CHAIN, SINGLETON, CHAIN, CYCLIC, IMMEDIATE]):
        queue.put("a", job(number, kind))
    leases = [ids(queue.take({}, {"a": ANY}, 4)) for _ in range(4)]
    assert leases == [[5], [1, 3], [0, 2], [4]]
    assert queue.take({}, {"a": ANY}, 4) is None
    assert len(queue) == 0


def test_units_of_a_band_go_by_tier_then_order_then_age() -> None:
    queue = Queue()
    for number, (tier, order) in enumerate([(2, 0), (0, 9), (1, 5), (0, 3), (1, 5)]):
        queue.put("a", job(number, tier=tier, order=order))
    assert ids(queue.take({}, {"a": SERIAL}, 1)) == [3, 1, 2, 4, 0]


def test_units_that_take_long_have_leases_of_their_own() -> None:
    queue = filled({"a": 6, "b": 2})
    queue.note_durations("a", [(1000, LONG_MS + 1), (2000, LONG_MS), (3000, 60_000.0)])  # units 1 and 3
    queue.note_durations("b", [])
    leases = [ids(queue.take({"b": 9}, {"a": SERIAL, "b": SERIAL}, 99)) for _ in range(2)]
    assert leases == [[0, 2, 4, 5], [1, 3]]
    assert ids(queue.take({}, {"a": SERIAL, "b": SERIAL}, 1)) == [0, 1]  # the tables of another database


def test_a_unit_whose_refreshes_have_become_short_shares_leases_again() -> None:
    queue = Queue()
    queue.note_durations("a", [(1000, 5_000.0)])
    queue.note_durations("a", [(1000, 5.0)])
    for number in range(3):
        queue.put("a", job(number))
    assert ids(queue.take({}, {"a": SERIAL}, 1)) == [0, 1, 2]
    queue.note_durations("a", [(1000, 5_000.0)])
    queue.forget_durations("a")
    for number in range(3):
        queue.put("a", job(number))
    assert ids(queue.take({}, {"a": SERIAL}, 1)) == [0, 1, 2]


def test_filling_a_lease_passes_over_a_bounded_number_of_units() -> None:
    queue = filled({"a": 2 * MOST_SKIPPED})
    queue.note_durations("a", [(1000 * i, 5_000.0) for i in range(1, MOST_SKIPPED + 10)])
    assert ids(queue.take({}, {"a": SERIAL}, 1)) == [0]
    taken: list[int] = []
    while (lease := queue.take({}, {"a": SERIAL}, 1)) is not None:
        taken += ids(lease)
    assert sorted(taken) == list(range(1, 2 * MOST_SKIPPED))  # none is lost or taken twice


def test_lease_is_bounded_in_tables() -> None:
    queue = filled({"a": 120})
    assert [len(ids(queue.take({}, {"a": SERIAL}, 1))) for _ in range(3)] == [MOST_MEMBERS, MOST_MEMBERS, 20]


def test_large_units_are_not_split_and_not_skipped() -> None:
    queue = Queue()
    for number, size in enumerate([30, 30, 80, 5]):
        queue.put("a", job(number, CHAIN, size=size))
    assert [ids(queue.take({}, {"a": SERIAL}, 1)) for _ in range(4)] == [[0], [1], [2], [3]]


def test_free_workers_of_a_database_share_its_long_queue() -> None:
    queue = filled({"a": 100})
    running, sizes = 0, []
    while (lease := queue.take({"a": running}, {"a": WorkerLimit(max_concurrent=4)}, 8)) is not None:
        sizes.append(len(lease.jobs))
        running += 1
    assert sizes == [25, 25, 25, 25]


def test_share_is_never_tiny() -> None:
    queue = filled({"a": 25})
    sizes = [len(ids(queue.take({"a": used}, {"a": ANY}, 16))) for used in range(3)]
    assert sizes == [FEWEST_MEMBERS, FEWEST_MEMBERS, 5]


def test_share_leaves_workers_to_the_others_that_wait() -> None:
    queue = filled({"a": 40, "b": 1, "c": 1, "d": 1})
    assert len(ids(queue.take({}, dict.fromkeys("abcd", ANY), 4))) == 40


@pytest.mark.parametrize(
    ("limit", "running", "max_workers", "given"),
    [
        (SERIAL, {"a": 1}, 8, False),
        (SERIAL, {"b": 3}, 8, True),
        (WorkerLimit(max_concurrent=2), {"a": 1}, 8, True),
        (WorkerLimit(max_concurrent=2), {"a": 2}, 8, False),
        (WorkerLimit(quota=2), {"a": 2}, 10, True),  # burst to 3
        (WorkerLimit(quota=2), {"a": 3}, 10, False),
        (WorkerLimit(quota=2), {"a": 2, "b": 6}, 10, False),  # 80 %
        (WorkerLimit(quota=2), {"a": 1, "b": 8}, 10, True),
        (WorkerLimit(quota=9), {"a": 1, "b": 9}, 10, False),  # no worker is free
    ],
)
def test_cap_decides_whether_a_database_gets_one_more(
    limit: WorkerLimit, running: dict[str, int], max_workers: int, given: bool
) -> None:
    assert (filled({"a": 3}).take(running, {"a": limit}, max_workers) is not None) == given


def test_immediate_of_any_database_goes_ahead_of_all_others() -> None:
    queue = filled({"a": 5, "b": 5}, CHAIN)
    queue.put("c", job(99, IMMEDIATE))
    lease = queue.take({"c": 2}, {"a": WorkerLimit(4), "b": WorkerLimit(4), "c": WorkerLimit(2)}, 10)
    assert lease is not None
    assert lease.database == "c"


def test_database_below_its_guarantee_goes_ahead_of_a_better_band() -> None:
    queue = filled({"a": 5}, CHAIN)
    queue.put("b", job(99))
    limits = {"a": WorkerLimit(quota=2), "b": WorkerLimit(quota=2)}
    assert ids(queue.take({"a": 2, "b": 1}, limits, 10)) == [99]


def test_band_decides_between_databases_that_have_their_guarantee() -> None:
    queue = filled({"a": 5})
    queue.put("b", job(99, CHAIN))
    limits = {"a": ANY, "b": ANY}
    assert ids(queue.take({"a": 1, "b": 3}, limits, 10)) == [99]


@pytest.mark.parametrize(
    ("running", "quotas", "expected"),
    [
        ({"a": 1, "b": 2}, {"a": 2, "b": 8}, "b"),  # 1/2 against 2/8
        ({"a": 1, "b": 2}, {"a": 4, "b": 4}, "a"),
        ({"a": 3, "b": 1}, {"a": 4, "b": 0}, "a"),  # a is below its guarantee, b has its one
        ({"a": 1, "b": 1}, {"a": 4, "b": 4}, "a"),  # a's oldest waits longer
        ({"b": 1}, {"a": 0, "b": 8}, "a"),
    ],
)
def test_lowest_share_in_use_goes_first(running: dict[str, int], quotas: dict[str, int], expected: str) -> None:
    lease = filled({"a": 5, "b": 5}).take(running, {d: WorkerLimit(q, 8) for d, q in quotas.items()}, 20)
    assert lease is not None
    assert lease.database == expected


def test_flood_of_one_database_delays_no_other() -> None:
    others = [f"d{n}" for n in range(9)]
    queue = filled({"flood": 10_000})
    limits = dict.fromkeys(["flood", *others], WorkerLimit(quota=0, max_concurrent=4))
    running: Counter[str] = Counter()
    for _ in range(4):
        lease = queue.take(running, limits, 4)
        assert lease is not None
        running[lease.database] += 1
    for number, database in enumerate(others):
        queue.put(database, job(number))
    taken = []
    for _ in others:
        running["flood"] -= 1  # a worker gets free
        lease = queue.take(running, limits, 4)
        assert lease is not None
        taken.append(lease.database)
        running["flood"] += 1  # and is given back by the other at once
    assert taken == others


def test_stream_of_better_units_does_not_starve_the_oldest() -> None:
    queue = Queue()
    queue.put("a", job(1, CYCLIC, tier=2))
    queue.put("b", job(2, tier=2, order=9))
    found: dict[int, int] = {}
    for turn in range(4 * OLDEST_EVERY):
        queue.put("c", job(10 + turn, IMMEDIATE))
        lease = queue.take({}, {"a": SERIAL, "b": SERIAL, "c": SERIAL}, 1)
        assert lease is not None
        found |= {each: turn for each in ids(lease) if each < 10}
    assert sorted(found) == [1, 2]
    assert found[1] < found[2] < 3 * OLDEST_EVERY


def test_stream_of_hot_units_does_not_starve_a_cold_one_of_the_same_band() -> None:
    queue = Queue()
    queue.put("a", job(0, tier=2))
    numbers = iter(range(1, 10_000))
    for turn in range(3 * OLDEST_EVERY):
        for _ in range(60):
            queue.put("a", job(next(numbers)))
        taken = ids(queue.take({}, {"a": SERIAL}, 1))
        if 0 in taken:
            assert turn >= OLDEST_EVERY - 1
            assert len(taken) == MOST_MEMBERS  # it leads the lease, the others are the best
            return
    raise AssertionError("the cold unit was never taken")


def test_cancelled_unit_is_not_taken() -> None:
    queue = filled({"a": 3, "b": 1})
    assert queue.cancel("a", 1) == job(1)
    assert queue.cancel("a", 1) is None
    assert queue.cancel("nobody", 1) is None
    assert queue.cancel("b", 0) == job(0)
    assert (queue.waiting("a"), queue.waiting("b"), len(queue)) == (2, 0, 2)
    assert ids(queue.take({}, {"a": ANY}, 1)) == [0, 2]


def test_dropped_database_waits_no_more_and_may_come_back() -> None:
    queue = filled({"a": 3, "b": 1})
    queue.put("a", job(7, IMMEDIATE))
    assert [each.job_id for each in queue.drop("a")] == [0, 1, 2, 7]
    assert queue.drop("a") == ()
    assert ids(queue.take({}, {"b": ANY}, 1)) == [0]
    queue.put("a", job(0))
    assert ids(queue.take({}, {"a": ANY}, 1)) == [0]


def test_job_waits_once() -> None:
    queue = filled({"a": 1})
    with pytest.raises(ValueError, match="waits already"):
        queue.put("a", job(0, CHAIN))
    queue.put("b", job(0))  # numbers are those of the database


def test_bookkeeping_does_not_grow_with_what_has_gone() -> None:
    queue = Queue()
    for number in range(20_000):
        queue.put("a", job(number, tier=number % 3))
        if number >= 10:
            queue.cancel("a", number - 10)
    line = queue._lines["a"][2]
    assert len(line.heap) < 200
    assert sum(map(len, queue._ages.values())) < 200


def seconds_per_operation(units: int, databases: int) -> float:
    random = Random(3)
    queue = Queue()
    limits = {f"d{n}": WorkerLimit(quota=n % 3, max_concurrent=4) for n in range(databases)}
    names = list(limits)
    kinds = [IMMEDIATE, CHAIN, SINGLETON, SINGLETON, CYCLIC]
    for number in range(units):
        queue.put(names[number % databases], job(number, random.choice(kinds), tier=random.randrange(3)))
    running: Counter[str] = Counter()
    operations = 0
    began = time.perf_counter()
    for _ in range(300):
        if sum(running.values()) >= 16:
            running[next(iter(running))] -= 1
            running = +running
        lease = queue.take(running, limits, 16)
        assert lease is not None
        running[lease.database] += 1
        for again in lease.jobs:
            queue.put(lease.database, again)
            queue.cancel(lease.database, again.job_id)
            queue.put(lease.database, again)
        operations += 1 + 3 * len(lease.jobs)
    return (time.perf_counter() - began) / operations


@pytest.mark.slow
def test_operations_cost_hardly_more_with_100000_units_and_500_databases() -> None:
    small = min(seconds_per_operation(5_000, 25) for _ in range(3))
    large = min(seconds_per_operation(100_000, 500) for _ in range(2))
    assert large < 8 * small
