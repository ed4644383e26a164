"""Loads that are running in a database, as `pgtrickle.load_progress()` shows them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from pgtrickle.db.connect import translated
from pgtrickle.db.statements import statement

if TYPE_CHECKING:
    from pgtrickle.db.connect import Connection


@dataclass(frozen=True, slots=True)
class LoadProgress:
    """None: unknown, or not for this role."""

    name: str
    phase: str
    rows_done: int | None
    rows_estimated: int | None
    rows_per_second: float | None
    remaining_seconds: float | None
    elapsed_seconds: float

    def bar(self, width: int = 20) -> str:
        """A progress bar; empty while the number of rows is unknown. By the estimate it never reaches the end."""
        if not self.rows_done or not self.rows_estimated:
            return ""
        share = min(self.rows_done / self.rows_estimated, 0.99)
        full = int(share * width)
        return f"[{'#' * full}{'-' * (width - full)}] {100 * share:.0f} %"

    def text(self) -> str:
        """For people: `writing, 750,000 of about 1,500,000 rows, 38,461/s, about 20 s left`."""
        parts = [self.phase]
        if self.rows_done:
            total = f" of about {self.rows_estimated:,}" if self.rows_estimated is not None else ""
            parts.append(f"{self.rows_done:,}{total} rows")
        elif self.rows_estimated is not None:
            parts.append(f"about {self.rows_estimated:,} rows")
        if self.rows_done and self.rows_per_second:
            parts.append(f"{self.rows_per_second:,.0f}/s")
        if self.remaining_seconds is not None:
            parts.append(f"about {_duration(self.remaining_seconds)} left")
        else:
            parts.append(f"for {_duration(self.elapsed_seconds)}")
        return ", ".join(parts)


def read_loads(conn: Connection) -> list[LoadProgress]:
    with translated():
        return [LoadProgress(*row) for row in conn.execute(statement("loads_running")).fetchall()]


def _duration(seconds: float) -> str:
    if seconds < 120:
        return f"{seconds:.0f} s"
    return f"{seconds / 60:.0f} min" if seconds < 7200 else f"{seconds / 3600:.1f} h"
