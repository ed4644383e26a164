"""The steps of a least fixpoint: each takes what came since its own last one, and the rounds end when nothing comes."""

from __future__ import annotations

from pgtrickle.model.catalog import Column, Relation
from pgtrickle.model.flow import Cut, Window
from pgtrickle.pipeline.differentiate.linear import ChangedSource
from pgtrickle.pipeline.plan.nodes import Scan
from pgtrickle.pipeline.templates.fixpoint import CycleMember, FixpointProgress

A = Column(1, "a", "integer", 23, -1)
BASE = 900


def member(number: int, reads: int) -> CycleMember:
    relation = Relation(reads, "public", f"r{reads}", "r", (A,))
    return CycleMember(number, 100 + number, f'"public"."t{number}"', (A,), (1,), Scan(0, relation, ((1, "a"),)))


def rounds(progress: FixpointProgress, came: list[list[int]], windows: dict[int, ChangedSource]) -> list[list[bool]]:
    """Whether each step of these rounds had a statement; `came`: the rows that it brings."""
    found = []
    for rows in came:
        statements = []
        for each, count in zip(progress.members, rows, strict=True):
            step = progress.next_step(each, windows)
            statements.append(step.sql is not None)
            progress = progress.after(step, count if step.sql is not None else 0)
        found.append(statements)
    assert progress.is_ended == (not any(came[-1]))
    return found


def test_from_nothing_all_members_are_evaluated_once_and_then_what_came() -> None:
    first, second = member(1, 102), member(2, 101)
    progress = FixpointProgress((first, second), from_empty=True)
    # The second has seen what the first brought in the first round, and the first gets nothing from it.
    assert rounds(progress, [[3, 0], [0, 0]], {}) == [[True, True], [False, False]]
    assert rounds(progress, [[3, 2], [1, 0], [0, 0]], {}) == [[True, True], [True, True], [False, False]]


def test_from_stored_rows_only_changes_are_followed() -> None:
    outside, inside = member(1, BASE), member(2, 101)
    progress = FixpointProgress((outside, inside), from_empty=False)
    windows = {BASE: ChangedSource(BASE, Window(Cut(1, 1, ()), Cut(2, 2, ())), 5)}
    assert rounds(progress, [[5, 4], [0, 0]], windows) == [[True, True], [False, False]]
    assert rounds(progress, [[0, 0]], {}) == [[False, False]]


def test_rows_of_the_first_round_do_not_count_as_further_ones() -> None:
    first = member(1, 101)
    progress = FixpointProgress((first,), from_empty=True)
    for count in (7, 5):
        progress = progress.after(progress.next_step(first, {}), count)
    assert progress.rows_after_first_round == 5
