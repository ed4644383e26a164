"""The statement that reads a change, made once for a template and about so many changed rows: what is new each time is
the window, which is its parameters. So a server can keep its plan, as long as the tables are about as large."""

from __future__ import annotations

import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Protocol

from pgtrickle.errors import InvariantError
from pgtrickle.model.flow import Cut, Window
from pgtrickle.pipeline.differentiate.linear import ChangedSource

MAX_CACHED_ROWS = 256  # of a source; above, the exact number is worth more to the planner than the text is to us
MOST_TEXTS = 64  # of one template
# A plan is not kept for longer than so many rows have come or gone. To read them all, which a plan for an empty table
# does, takes a millisecond.
ROWS_PLANNED_AHEAD = 5_000
SECONDS_PLANNED_AHEAD = 300  # refreshes of others are not counted

# No transaction has such a number, so no window reads like this one.
_NUMBER = (1 << 64) - 1
_PLACE = Window(Cut(_NUMBER, _NUMBER, ()), Cut(_NUMBER, _NUMBER, ()))

_PLACES = Window.parameterised("c.xid")

Key = tuple[tuple[int, int], ...]  # changed sources and about how many rows


class DeltaTemplate(Protocol):
    def delta_statement(self, changed: Mapping[int, ChangedSource]) -> str: ...


@dataclass(slots=True)
class StatementCache:
    """What is kept of a template, and how much has moved in the tables that it reads and writes."""

    made: dict[Key, str] = field(default_factory=dict)
    moved: int = 0

    def mark(self) -> tuple[int, int]:
        """Another one when the tables may have grown a lot: a server does not know by itself that it is time to plan
        anew."""
        return self.moved // ROWS_PLANNED_AHEAD, int(time.monotonic()) // SECONDS_PLANNED_AHEAD


def delta_text(
    template: DeltaTemplate, texts: StatementCache, changed: Mapping[int, ChangedSource]
) -> tuple[str, list[str] | None]:
    """The statement and its parameters; without any, None, it is not worth keeping. All sources have one window, as a
    table has one frontier."""
    window, *others = {c.window for c in changed.values()}
    if others or not isinstance(window, Window) or any(c.rows > MAX_CACHED_ROWS for c in changed.values()):
        return template.delta_statement(changed), None
    key = tuple((relid, _rounded(changed[relid].rows)) for relid in sorted(changed))
    text = texts.made.get(key)
    if text is None:
        text = template.delta_statement({relid: ChangedSource(relid, _PLACE, rows) for relid, rows in key})
        text = text.replace(_PLACE.predicate("c.xid"), _PLACES)
        if f"'{_NUMBER}'" in text:
            raise InvariantError("a change statement names its window in a way that is not known")
        if len(texts.made) >= MOST_TEXTS:
            texts.made.clear()
        texts.made[key] = text
    return text, window.parameters() if _PLACES in text else []


def _rounded(rows: int) -> int:
    """Up, to a power of two: a limit that is never reached, and tells the planner well enough."""
    return 1 << (rows - 1).bit_length()
