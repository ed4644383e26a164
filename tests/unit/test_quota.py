"""How many workers a database may have."""

from __future__ import annotations

from math import ceil

import pytest

from pgtrickle.dispatch.quota import SERIAL, WorkerLimit, cap, may_burst


@pytest.mark.parametrize(
    ("quota", "active", "max_workers", "expected"),
    [
        (1, 0, 4, 2),  # base + 1 where half of the base is nothing
        (2, 0, 4, 3),
        (3, 0, 10, 4),
        (4, 7, 10, 6),
        (4, 8, 10, 4),  # 80 %: strict
        (4, 10, 10, 4),
        (8, 12, 16, 12),
        (8, 13, 16, 8),  # ceil(12.8) = 13
        (1, 0, 1, 2),
        (1, 1, 1, 1),
        (64, 0, 64, 96),  # more than there are: the fleet's number of workers bounds it
    ],
)
def test_cap_follows_quota_and_load(quota: int, active: int, max_workers: int, expected: int) -> None:
    assert cap(WorkerLimit(quota=quota), active, max_workers) == expected


@pytest.mark.parametrize("active", [0, 3, 4])
def test_cap_without_quota_is_max_concurrent_whatever_the_load(active: int) -> None:
    assert cap(WorkerLimit(quota=0, max_concurrent=7), active, 4) == 7


def test_quota_wins_over_max_concurrent() -> None:
    assert cap(WorkerLimit(quota=8, max_concurrent=2), 10, 10) == 8


def test_serial_is_one_lease_at_any_load() -> None:
    assert {cap(SERIAL, active, 10) for active in range(11)} == {1}


def test_burst_ends_where_the_formula_says() -> None:
    for max_workers in range(1, 65):
        for active in range(max_workers + 1):
            assert may_burst(active, max_workers) == (active < ceil(8 * max_workers / 10))


@pytest.mark.parametrize(("quota", "max_concurrent"), [(-1, 4), (0, 0)])
def test_impossible_limit_is_refused(quota: int, max_concurrent: int) -> None:
    with pytest.raises(ValueError, match="no such limit"):
        WorkerLimit(quota, max_concurrent)


def test_every_database_is_guaranteed_one() -> None:
    assert [WorkerLimit(q).guaranteed for q in (0, 1, 5)] == [1, 1, 5]
