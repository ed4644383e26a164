"""When a table is due: durations, cron, calculated."""

from __future__ import annotations

import math
from datetime import UTC, datetime, timedelta

import pytest

from pgtrickle.errors import DefinitionError
from pgtrickle.scheduler.due import DIRTY, Due
from pgtrickle.scheduler.schedule import interval_seconds, next_cron

NOON = datetime(2026, 3, 1, 12, 0, tzinfo=UTC)


def is_due(schedule: str, last: datetime | None, now: datetime) -> bool:
    """Of a table with changes."""
    seconds = -math.inf if last is None else last.timestamp()
    return bool(len(Due.of([schedule], [DIRTY], [seconds], [False]).due(now.timestamp())))


@pytest.mark.parametrize(
    ("schedule", "seconds"),
    [
        ("1s", 1),
        ("30s", 30),
        ("1h30m", 5400),
        ("1h 30m", 5400),
        ("500ms", 0.5),
        ("45", 45),
        ("0.5", 0.5),
        ("1.5M", 90),
        ("2d", 172800),
        ("1w", 604800),
        (" 5S ", 5),
    ],
)
def test_durations(schedule: str, seconds: float) -> None:
    assert interval_seconds(schedule) == pytest.approx(seconds)


@pytest.mark.parametrize("schedule", ["calculated", "CALCULATED", "@hourly", "*/5 * * * *", "0 0 1 1 *"])
def test_other_schedules_have_no_interval(schedule: str) -> None:
    assert interval_seconds(schedule) is None


@pytest.mark.parametrize("schedule", ["", "soon", "5x", "s", "1h nonsense", "-5s"])
def test_nonsense_is_refused_with_an_example(schedule: str) -> None:
    with pytest.raises(DefinitionError, match="is not a duration") as error:
        interval_seconds(schedule)
    assert "30s" in str(error.value.hint)


def test_duration_is_due_when_it_has_passed() -> None:
    assert not is_due("10s", NOON, NOON + timedelta(seconds=9.9))
    assert is_due("10s", NOON, NOON + timedelta(seconds=10))


def test_table_that_was_never_refreshed_is_due() -> None:
    assert is_due("1w", None, NOON)
    assert is_due("@yearly", None, NOON)


def test_calculated_is_always_due() -> None:
    assert is_due(" Calculated ", NOON, NOON)


@pytest.mark.parametrize(
    ("schedule", "following"),
    [
        ("*/5 * * * *", NOON + timedelta(minutes=5)),
        ("@hourly", NOON + timedelta(hours=1)),
        ("@daily", datetime(2026, 3, 2, tzinfo=UTC)),
        ("@midnight", datetime(2026, 3, 2, tzinfo=UTC)),
        ("@weekly", datetime(2026, 3, 8, tzinfo=UTC)),
        ("@monthly", datetime(2026, 4, 1, tzinfo=UTC)),
        ("@yearly", datetime(2027, 1, 1, tzinfo=UTC)),
        ("30 4 29 2 *", datetime(2028, 2, 29, 4, 30, tzinfo=UTC)),
    ],
)
def test_cron_follows_the_clock_in_utc(schedule: str, following: datetime) -> None:
    assert next_cron(schedule, NOON) == following
    assert not is_due(schedule, NOON, following - timedelta(seconds=1))
    assert is_due(schedule, NOON, following)


def test_cron_does_not_depend_on_the_zone_of_the_last_refresh() -> None:
    from zoneinfo import ZoneInfo

    assert next_cron("@hourly", NOON.astimezone(ZoneInfo("Asia/Kolkata"))) == NOON + timedelta(hours=1)
