"""Change statements whose text is kept."""

from __future__ import annotations

from collections.abc import Mapping

import pytest

from pgtrickle.errors import InvariantError
from pgtrickle.model.flow import Cut, Window
from pgtrickle.pipeline.differentiate.linear import ChangedSource
from pgtrickle.pipeline.render.statement_cache import (
    MAX_CACHED_ROWS,
    MOST_TEXTS,
    ROWS_PLANNED_AHEAD,
    StatementCache,
    delta_text,
)

EARLY, LATE = Window(Cut(5, 7, (5,)), Cut(9, 9, ())), Window(Cut(9, 9, ()), Cut(12, 14, (12, 13)))


class Template:
    def __init__(self, xid: str = "c.xid") -> None:
        self.made = 0
        self.xid = xid

    def delta_statement(self, changed: Mapping[int, ChangedSource]) -> str:
        self.made += 1
        return " UNION ".join(f"{c.relid} {predicate(c, self.xid)} LIMIT {c.rows}" for c in changed.values())


def predicate(change: ChangedSource, xid: str) -> str:
    assert isinstance(change.window, Window)
    return change.window.predicate(xid)


def changed(window: Window, **rows: int) -> dict[int, ChangedSource]:
    return {int(name[1:]): ChangedSource(int(name[1:]), window, n) for name, n in rows.items()}


def test_the_window_is_a_parameter_and_the_limit_is_never_too_low() -> None:
    template, texts = Template(), StatementCache()
    for window, rows, limit in ((EARLY, 3, 4), (LATE, 4, 4), (EARLY, 1, 1), (LATE, 256, 256)):
        text, values = delta_text(template, texts, changed(window, r1=rows, r2=5))
        place = Window.parameterised("c.xid")
        assert text == f"1 {place} LIMIT {limit} UNION 2 {place} LIMIT 8"
        assert values == window.parameters()
    assert template.made == 3


def test_many_changes_have_their_exact_number() -> None:
    template, texts = Template(), StatementCache()
    text, values = delta_text(template, texts, changed(EARLY, r1=MAX_CACHED_ROWS + 1))
    assert text == f"1 {EARLY.predicate('c.xid')} LIMIT {MAX_CACHED_ROWS + 1}"
    assert values is None
    assert not texts.made


def test_few_texts_are_kept() -> None:
    texts = StatementCache()
    for number in range(3 * MOST_TEXTS):
        delta_text(Template(), texts, {number: ChangedSource(number, EARLY, 1)})
    assert len(texts.made) <= MOST_TEXTS


def test_a_plan_is_made_anew_when_its_tables_may_have_grown() -> None:
    texts = StatementCache()
    before = texts.mark()
    texts.moved += ROWS_PLANNED_AHEAD
    assert texts.mark() != before


def test_a_window_that_is_named_otherwise_is_refused() -> None:
    with pytest.raises(InvariantError):
        delta_text(Template("other.xid"), StatementCache(), changed(EARLY, r1=1))
