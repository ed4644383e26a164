"""A cache of delta statements, per template and rounded number of changed rows. The window is passed as parameters, so
that PostgreSQL can keep the prepared plan while the sizes of the tables are similar."""

from __future__ import annotations

import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Protocol

from pgtrickle.errors import InvariantError
from pgtrickle.model.flow import Cut, Window
from pgtrickle.pipeline.differentiate.linear import ChangedSource

MAX_CACHED_ROWS = 256  # of a source; above, the exact number for the planner is worth more than a cached statement
MOST_TEXTS = 64  # of one template
# PostgreSQL plans again after so many inserted or deleted rows. To scan them all, as a plan for an empty table does,
# takes a millisecond.
ROWS_PLANNED_AHEAD = 5_000
SECONDS_PLANNED_AHEAD = 300  # changes by other workers are not counted

# No transaction has this number, so no other window has the same text.
_NUMBER = (1 << 64) - 1
_PLACE = Window(Cut(_NUMBER, _NUMBER, ()), Cut(_NUMBER, _NUMBER, ()))

_PLACES = Window.parameterised("c.xid")

Key = tuple[tuple[int, int], ...]  # changed sources and about how many rows


class DeltaTemplate(Protocol):
    def delta_statement(self, changed: Mapping[int, ChangedSource]) -> str: ...


@dataclass(slots=True)
class StatementCache:
    """The statements of a template, and how many rows were inserted or deleted in the tables that it uses."""

    made: dict[Key, str] = field(default_factory=dict)
    moved: int = 0

    def mark(self) -> tuple[int, int]:
        """A value that changes when the tables may have grown: a prepared statement is not planned again by itself."""
        return self.moved // ROWS_PLANNED_AHEAD, int(time.monotonic()) // SECONDS_PLANNED_AHEAD


def delta_text(
    template: DeltaTemplate, texts: StatementCache, changed: Mapping[int, ChangedSource]
) -> tuple[str, list[str] | None]:
    """The statement and its parameters; None instead of parameters when the statement is not cached. All sources have
    one window, because a table has one frontier."""
    window, *others = {c.window for c in changed.values()}
    if others or not isinstance(window, Window) or any(c.rows > MAX_CACHED_ROWS for c in changed.values()):
        return template.delta_statement(changed), None
    key = tuple((relid, _rounded(changed[relid].rows)) for relid in sorted(changed))
    text = texts.made.get(key)
    if text is None:
        text = template.delta_statement({relid: ChangedSource(relid, _PLACE, rows) for relid, rows in key})
        text = text.replace(_PLACE.predicate("c.xid"), _PLACES)
        if f"'{_NUMBER}'" in text:
            raise InvariantError("a delta statement refers to its window in an unknown form")
        if len(texts.made) >= MOST_TEXTS:
            texts.made.clear()
        texts.made[key] = text
    return text, window.parameters() if _PLACES in text else []


def _rounded(rows: int) -> int:
    """Rounded up to a power of two: as LIMIT it is never reached, and precise enough for the planner."""
    return 1 << (rows - 1).bit_length()
