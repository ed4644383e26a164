"""When a stream table is due: durations, cron, calculated. Pure; the time comes in as an argument.

The database has checked the syntax when the table was created. A schedule says how often to check; a check that finds
no changes writes nothing.
"""

from __future__ import annotations

import re
from datetime import UTC, datetime
from functools import lru_cache

from cronsim import CronSim

from pgtrickle.errors import DefinitionError

_UNITS = {"ms": 0.001, "s": 1.0, "m": 60.0, "h": 3600.0, "d": 86400.0, "w": 604800.0}
# the words that the SQL function _check_schedule lets through
_PART = re.compile(
    r"(\d+(?:\.\d+)?)\s*(ms|s|secs?|seconds?|m|mins?|minutes?|h|hrs?|hours?|d|days?|w|weeks?)(?![a-z])\s*",
    re.IGNORECASE,
)
_ALIASES = {
    "@yearly": "0 0 1 1 *",
    "@annually": "0 0 1 1 *",
    "@monthly": "0 0 1 * *",
    "@weekly": "0 0 * * 0",
    "@daily": "0 0 * * *",
    "@midnight": "0 0 * * *",
    "@hourly": "0 * * * *",
}
CALCULATED = "calculated"


@lru_cache(maxsize=4096)
def interval_seconds(schedule: str) -> float | None:
    """The seconds of a duration (`30s`, `1h30m`, `45`), None for cron and calculated."""
    text = schedule.strip()
    if re.fullmatch(r"\d+(\.\d+)?", text):
        return float(text)
    parts = _PART.findall(text)
    if parts and not _PART.sub("", text):
        words = ((float(number), unit.lower()) for number, unit in parts)
        return sum(number * _UNITS[unit if unit == "ms" else unit[0]] for number, unit in words)
    if text.lower() == CALCULATED or text.startswith("@") or len(text.split()) >= 5:
        return None
    raise DefinitionError(
        f"schedule {schedule!r} is not a duration", hint="examples: 30s, 1h30m, */5 * * * *, calculated"
    )


def next_cron(schedule: str, after: datetime) -> datetime:
    text = schedule.strip()
    return next(CronSim(_ALIASES.get(text.lower(), text), after.astimezone(UTC)))
