"""How soon a scheduler ticks again. Pure: monotonic seconds.

A tick that is requested (by a notification, or by a refresh that ended while changes were pending) begins at once,
unless the previous one began less than the debounce time ago: a single change does not wait, and many cause one tick
per debounce time. While units are in progress the debounce time is longer: changes that arrive meanwhile are refreshed
in one wave when the units end. Otherwise each of many commits would cost a tick and a wave of its own.
"""

from __future__ import annotations

SHORTEST_SECONDS = 0.05  # minimum time between two ticks that were not requested
IN_FLIGHT_SECONDS = 0.03  # minimum time between two ticks that changes request while units are in flight


def debounce_time(debounce: float, *, in_flight: int) -> float:
    """The minimum time between two ticks that changes request. `in_flight`: units that wait or are refreshed."""
    return max(debounce, IN_FLIGHT_SECONDS) if in_flight else debounce


def debounce_left(began: float, now: float, debounce: float) -> float:
    """How long a requested tick has to wait. `began`: the start of the previous tick."""
    return max(0.0, began + debounce - now)


def deadline_after_results(
    deadline: float, began: float, now: float, debounce: float, *, is_due: bool, is_changed: bool
) -> float:
    """The latest start of the next tick after results of the pipeline have arrived.

    `is_due`: tables are known to be due. `is_changed`: stream tables have changed, so their readers may be due.
    Neither is sooner than the debounce time: such a tick would find the changes that were made meanwhile, too.
    """
    if is_due:
        return min(deadline, now + debounce_left(began, now, debounce))
    return min(deadline, max(began + debounce, now + SHORTEST_SECONDS)) if is_changed else deadline
