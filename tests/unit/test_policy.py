"""Tiers by how often a table's sources change."""

from __future__ import annotations

import time
from collections.abc import Iterable
from itertools import pairwise
from random import Random

import numpy as np
import pytest

from pgtrickle.scheduler.policy import COLD, FROZEN, HOT, WARM, Tiers

PERIOD = 10.0
NAMES = ["hot", "warm", "cold", "frozen"]


def tiers(count: int = 1, tier: int = HOT, *, period: float = PERIOD, **flags: bool) -> Tiers:
    def column(name: str, default: bool) -> np.ndarray[tuple[int], np.dtype[np.bool_]]:
        return np.full(count, flags.get(name, default), dtype=np.bool_)

    return Tiers.of(
        np.full(count, period),
        np.full(count, tier, dtype=np.int8),
        column("pinned", False),
        column("exempt", False),
        column("measured", True),
        now=0.0,
    )


def at(*positions: int) -> np.ndarray[tuple[int], np.dtype[np.intp]]:
    return np.array(positions, dtype=np.intp)


def lived(table: Tiers, gaps: Iterable[float]) -> list[int]:
    """Changes after each of these gaps (in periods), demotions every minute: all tiers that it had, in order."""
    seen = [int(table.tier[0])]
    now, minute = 0.0, 60.0
    for gap in gaps:
        now += gap * PERIOD
        while minute <= now:
            table.demote(minute)
            seen.append(int(table.tier[0]))
            minute += 60.0
        table.changed(at(0), now)
        seen.append(int(table.tier[0]))
    return seen


def flips(seen: list[int]) -> int:
    return sum(a != b for a, b in pairwise(seen))


@pytest.mark.parametrize(
    ("gap", "expected"),
    [(0.01, HOT), (0.5, HOT), (1, HOT), (1.9, HOT), (5, WARM), (9, WARM), (15, COLD), (50, COLD), (200, COLD)],
)
@pytest.mark.parametrize("start", [HOT, COLD])
def test_steady_changes_lead_to_their_tier(gap: float, expected: int, start: int) -> None:
    if start == HOT and gap == 15:
        expected = WARM  # between the bounds for entering and leaving it stays as it is
    seen = lived(tiers(tier=start), [gap] * 400)
    assert NAMES[seen[-1]] == NAMES[expected]
    assert flips(seen) <= 2


def test_promotion_comes_with_the_second_change_in_a_row() -> None:
    table = tiers(tier=FROZEN)
    assert table.changed(at(0), 100_000.0).promoted.tolist() == [0]
    assert table.tier[0] == COLD
    assert table.changed(at(0), 100_015.0).promoted.tolist() == [0]
    assert table.tier[0] == HOT
    assert table.changed(at(0), 100_016.0).promoted.tolist() == []


def test_demotion_is_slow_and_goes_step_by_step() -> None:
    table = tiers()
    table.changed(at(0), PERIOD)
    became: dict[int, float] = {}
    for minute in range(1, 400):
        table.demote(60.0 * minute)
        became.setdefault(int(table.tier[0]), 60.0 * minute / PERIOD)
    assert list(became) == [HOT, WARM, COLD, FROZEN]
    assert 10 < became[WARM] < 30 < became[COLD] < 200
    assert became[FROZEN] > 1000


def test_table_that_changes_in_most_of_its_periods_is_hot_whatever_the_period() -> None:
    random = Random(2)
    for period in (0.2, 1.0, 60.0, 86_400.0):
        table = tiers(tier=COLD, period=period)
        now = 0.0
        for tick in range(1, 500):
            now = tick * period
            if random.random() < 0.6:
                table.changed(at(0), now)
            if tick % max(1, int(60 / period)) == 0:
                table.demote(now)
            assert tick < 30 or table.tier[0] == HOT


@pytest.mark.parametrize("around", [2.0, 4.0, 10.0, 20.0])
@pytest.mark.parametrize("spread", [0.05, 0.5])
def test_oscillation_at_a_threshold_does_not_flap(around: float, spread: float) -> None:
    random = Random(int(around))
    gaps = [around * (1 + random.uniform(-spread, spread)) for _ in range(3000)]
    assert flips(lived(tiers(), gaps)) <= 8
    alternating = [around * (1 + spread * (-1) ** k) for k in range(3000)]
    assert flips(lived(tiers(), alternating)) <= 8


def test_table_that_comes_back_is_left_longer() -> None:
    table = tiers()
    lived(table, [1, 30] * 20)
    assert table.patience[0] > 1
    assert table.patience[0] <= 8
    for minute in range(2_000, 4_000):
        table.demote(60.0 * minute)
    assert table.tier[0] == FROZEN
    assert table.patience[0] < 8


def test_pin_wins_until_it_is_taken_away() -> None:
    table = tiers(3)
    for position, tier in enumerate((WARM, COLD, HOT)):
        table.pin(position, tier)
    for tick in range(100):
        table.changed(at(0, 1), tick * 1.0)
    for minute in range(100):
        table.demote(1e6 + 60.0 * minute)
    assert table.tier.tolist() == [WARM, COLD, HOT]
    table.pin(0, None)
    table.changed(at(0), 2e6)
    table.changed(at(0), 2e6 + 1)
    assert table.tier.tolist() == [HOT, COLD, HOT]


def test_multiplier_follows_the_tier_unless_exempt() -> None:
    table = tiers(4)
    table.tier[:] = [HOT, WARM, COLD, FROZEN]
    assert table.multiplier.tolist() == [1, 2, 10, 10]
    exempt = tiers(4, exempt=True)
    exempt.tier[:] = table.tier
    assert exempt.multiplier.tolist() == [1, 1, 1, 1]


@pytest.mark.parametrize("flag", ["exempt", "measured"])
def test_tables_without_a_measure_are_left_alone(flag: str) -> None:
    table = tiers(tier=WARM, **{flag: flag == "exempt"})
    table.period[:] = np.nan
    for minute in range(1, 5_000):
        table.demote(60.0 * minute)
    table.changed(at(0), 300_001.0)
    table.changed(at(0), 300_002.0)
    assert table.tier[0] == WARM


def test_frozen_by_itself_is_not_skipped_frozen_by_pin_is() -> None:
    table = tiers(3, FROZEN)
    table.pin(1, FROZEN)
    table.pin(2, FROZEN)
    table.exempt[2] = True
    assert table.skipped.tolist() == [False, True, False]


def test_pinned_frozen_with_changes_is_told_once_per_episode() -> None:
    table = tiers(2)
    table.pin(0, FROZEN)
    assert table.changed(at(0, 1), 1.0).alerts.tolist() == [0]
    assert table.changed(at(0, 1), 2.0).alerts.tolist() == []
    assert table.tier[0] == FROZEN
    table.settled(at(0))
    assert table.changed(at(0), 3.0).alerts.tolist() == [0]
    table.pin(0, HOT)
    assert table.changed(at(0), 4.0).alerts.tolist() == []
    table.pin(0, FROZEN)
    assert table.changed(at(0), 5.0).alerts.tolist() == [0]


def test_what_was_measured_outlives_a_reload() -> None:
    old = tiers(3)
    old.pin(1, FROZEN)
    old.changed(at(1), 5.0)
    for minute in range(1, 200):
        old.demote(60.0 * minute)
    assert old.tier.tolist() == [FROZEN, FROZEN, FROZEN]
    new = tiers(4)
    new.pin(0, FROZEN)
    new.pin(3, WARM)
    new.keep(old, at(1, -1, 2, 0))
    assert new.tier.tolist() == [FROZEN, HOT, FROZEN, WARM]
    assert new.alerted.tolist() == [True, False, False, False]
    assert new.last_change.tolist() == [5.0, 0.0, 0.0, 0.0]


def test_changes_cost_what_has_changed() -> None:
    def seconds(count: int) -> float:
        table = tiers(count)
        best = 1e9
        for repeat in range(50):
            began = time.perf_counter()
            table.changed(at(1, 5, 9), 1.0 + repeat)
            best = min(best, time.perf_counter() - began)
        return best

    assert seconds(100_000) < 5 * seconds(100)
