"""The statement that reads a change, made once for a template and about so many changed rows: what is new each time is
the window."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Protocol

from pgtrickle.errors import InvariantError
from pgtrickle.model.flow import Cut, Window
from pgtrickle.pipeline.rules.linear import Changed

MOST_ROWS = 256  # of a source; above, the exact number is worth more to the planner than the text is to us
MOST_TEXTS = 64  # of one template

# No transaction has such a number, so no window reads like this one.
_NUMBER = (1 << 64) - 1
_PLACE = Window(Cut(_NUMBER, _NUMBER, ()), Cut(_NUMBER, _NUMBER, ()))

Key = tuple[tuple[int, int], ...]  # changed sources and about how many rows


class Changeable(Protocol):
    def delta_statement(self, changed: Mapping[int, Changed]) -> str: ...


def delta_text(template: Changeable, texts: dict[Key, str], changed: Mapping[int, Changed]) -> str:
    """`texts` is what is kept of this template. All sources have one window, as a table has one frontier."""
    window, *others = {c.window for c in changed.values()}
    if others or not isinstance(window, Window) or any(c.rows > MOST_ROWS for c in changed.values()):
        return template.delta_statement(changed)
    key = tuple((relid, _rounded(changed[relid].rows)) for relid in sorted(changed))
    text = texts.get(key)
    if text is None:
        text = template.delta_statement({relid: Changed(relid, _PLACE, rows) for relid, rows in key})
        if len(texts) >= MOST_TEXTS:
            texts.clear()
        texts[key] = text
    bound = text.replace(_PLACE.predicate("c.xid"), window.predicate("c.xid"))
    if f"xid >= '{_NUMBER}'" in bound:
        raise InvariantError("a change statement names its window in a way that is not known")
    return bound


def _rounded(rows: int) -> int:
    """Up, to a power of two: a limit that is never reached, and tells the planner well enough."""
    return 1 << (rows - 1).bit_length()
