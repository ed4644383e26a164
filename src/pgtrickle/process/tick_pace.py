"""How soon a scheduler ticks again. Pure: monotonic seconds.

A tick that something asks for (a notification, a refresh that ended while changes were pending) follows at once, unless
the previous one began less than the debounce time ago: a single change does not wait, and many cause one tick per
debounce time. While units are in progress the debounce time is longer: what changes meanwhile is refreshed in one wave
when they end. Otherwise each of many commits would cost a tick and a wave of its own.
"""

from __future__ import annotations

SHORTEST_SECONDS = 0.05  # minimum time between two ticks that nothing asks for
GATHERED_SECONDS = 0.03  # between two ticks that changes ask for while units are in progress


def debounce_time(debounce: float, *, in_flight: int) -> float:
    """The least time between two ticks that changes ask for. `in_flight`: units that wait or are refreshed."""
    return max(debounce, GATHERED_SECONDS) if in_flight else debounce


def debounce_left(begun: float, now: float, debounce: float) -> float:
    """How long a tick that is asked for has to wait. `begun`: the previous one."""
    return max(0.0, begun + debounce - now)


def deadline_after_results(
    deadline: float, begun: float, now: float, debounce: float, *, is_due: bool, is_changed: bool
) -> float:
    """When the next tick begins after results of the pipeline have arrived, at the latest.

    `is_due`: tables are known to be due. `is_changed`: stream tables have changed, so their readers may be due.
    """
    if is_due:
        return min(deadline, now + debounce_left(begun, now, debounce))
    return min(deadline, max(begun, now) + SHORTEST_SECONDS) if is_changed else deadline
