"""How soon a scheduler ticks again."""

from __future__ import annotations

import pytest

from pgtrickle.process.tick_pace import (
    IN_FLIGHT_SECONDS,
    SHORTEST_SECONDS,
    deadline_after_results,
    debounce_left,
    debounce_time,
)

pytestmark = pytest.mark.unit

DEBOUNCE = 0.01


@pytest.mark.parametrize(("now", "left"), [(100.0, 0.01), (100.004, 0.006), (100.01, 0.0), (107.0, 0.0)])
def test_a_wake_up_waits_only_behind_a_recent_tick(now: float, left: float) -> None:
    assert debounce_left(100.0, now, DEBOUNCE) == pytest.approx(left)


@pytest.mark.parametrize(
    ("now", "is_due", "is_changed", "deadline"),
    [
        (100.2, True, True, 100.2),  # changes came while it was refreshed: at once
        (100.2, True, False, 100.2),
        (100.001, True, True, 100.01),
        (100.2, False, True, 100.2 + SHORTEST_SECONDS),
        (100.2, False, False, 101.0),
        (100.99, False, True, 101.0),
    ],
)
def test_a_tick_follows_a_refresh_at_once_if_tables_are_due(
    now: float, is_due: bool, is_changed: bool, deadline: float
) -> None:
    found = deadline_after_results(101.0, 100.0, now, DEBOUNCE, is_due=is_due, is_changed=is_changed)
    assert found == pytest.approx(deadline)


@pytest.mark.parametrize("is_due", [True, False])
def test_a_tick_after_a_refresh_is_not_sooner_than_the_debounce_time(is_due: bool) -> None:
    assert deadline_after_results(101.0, 100.0, 100.2, 0.5, is_due=is_due, is_changed=True) == pytest.approx(100.5)


def test_changes_are_gathered_while_units_are_in_progress() -> None:
    assert debounce_time(DEBOUNCE, in_flight=0) == DEBOUNCE
    assert debounce_time(DEBOUNCE, in_flight=3) == IN_FLIGHT_SECONDS > DEBOUNCE
    assert debounce_time(1.0, in_flight=3) == debounce_time(1.0, in_flight=0) == 1.0  # what the user has asked for
