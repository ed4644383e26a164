"""The second read of a fold: groups whose value cannot be had by adding, evaluated by PostgreSQL in the same snapshot.

Sums to or from which NaN or an infinity has come or gone are no sums of what they were: such a group is read as if it
were loaded, and all of its state is written anew.

A deleted MIN or MAX matters only when it was the extreme, which the state tells; so the state is asked first, and
only the groups that lost their extreme are read. A group that the state does not know, or knows without a value, is
read as well: the terms of a join may bring and take a value that was never in the group, and only together they cancel.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from decimal import Decimal
from typing import Any

from pgtrickle.apply.groups import GroupDelta, Groups
from pgtrickle.db.connect import MOST_PLANNED_AHEAD
from pgtrickle.db.roundtrip import Query, Steps
from pgtrickle.errors import InvariantError
from pgtrickle.model.flow import Delta
from pgtrickle.pipeline.plan.measures import Measure
from pgtrickle.pipeline.render.statement_cache import StatementCache
from pgtrickle.pipeline.templates.template import FoldTemplate


@dataclass(frozen=True, slots=True)
class _Reread:
    """Groups that are read again, by position, and their values; one that is gone has none."""

    groups: frozenset[int]
    values: Mapping[int, tuple[Any, ...]]

    def of(self, measure: int, count: int) -> list[Any]:
        return [self.values[g][measure] if g in self.values else None for g in range(count)]


def group_delta(template: FoldTemplate, groups: Groups, texts: StatementCache, netted: Delta) -> Steps[GroupDelta]:
    """What is folded into the state, with rereads done and groups that did not change left out."""
    delta = netted.at(_mattering(template, netted))
    lost = [g for g, key in enumerate(delta.keys) if key in delta.lost]
    again = yield from _again(template, groups, delta, sorted(set(range(len(delta))).difference(lost)))
    values: dict[int, tuple[Any, ...]] = {}
    if again:
        values = yield from _values(template, groups, texts, delta.keys, sorted(again))
    reread = _Reread(frozenset(again), values)
    state = [column for measure in template.measures.measures for column in _state(template, measure, delta, reread)]
    found = GroupDelta(delta.identities, delta.weights, delta.keys, tuple(state))
    if not lost:
        return found
    whole = yield from _values(template, groups, texts, delta.keys, lost, whole=True)
    return _with_whole(groups, found, {g: whole.get(g, (0, *([None] * len(groups.state)))) for g in lost})


def _state(template: FoldTemplate, measure: Measure, delta: Delta, reread: _Reread) -> list[Sequence[Any]]:
    """What is folded into the state columns of one measure, by group."""
    if measure.kind == "add":
        change = delta.sums[measure.slot]
        columns: list[Sequence[Any]] = [[str(n) for n in change.rows]]
        if len(measure.state) > 1:
            columns.append([_at_scale(total, measure.scale) for total in change.totals])
        return columns
    values = reread.of(template.rereads.index(measure), len(delta))
    if measure.kind == "reread":
        return [values]
    is_set = [g in reread.groups for g in range(len(delta))]
    came = delta.extremes[measure.slot].came
    return [[r if s else c for r, s, c in zip(values, is_set, came, strict=True)], is_set]


def _with_whole(groups: Groups, delta: GroupDelta, whole: Mapping[int, tuple[Any, ...]]) -> GroupDelta:
    """With number of rows and state of these groups, which are added to nothing, in the place of what was netted."""
    names = [name for name, _ in groups.delta_columns()]
    arrays = [list(column) for column in delta.columns()]
    for group, values in whole.items():
        for name, value in zip(("n", *(c.name for c in groups.state)), values, strict=True):
            arrays[names.index(name)][group] = value
    identities, weights, keys, *state = arrays
    anew = tuple((identities[g], keys[g]) for g in whole)
    return GroupDelta(identities, weights, keys, tuple(state), anew)


def _mattering(template: FoldTemplate, delta: Delta) -> list[int]:
    """Positions of the groups that changed: rows came or went, or what they are worth is another."""
    if any(m.kind == "reread" for m in template.measures.measures):
        return list(range(len(delta)))
    of_sums = [delta.sums[m.slot] for m in template.sums]
    of_extremes = [delta.extremes[m.slot] for m in template.extremes]
    sums = [values for each in of_sums for values in (each.rows, each.totals)]
    extremes = [values for each in of_extremes for values in (each.came, each.gone)]
    return [
        i
        for i, weight in enumerate(delta.weights)
        if weight
        or any(values[i] for values in sums)
        or any(values[i] is not None for values in extremes)
        or delta.keys[i] in delta.lost
    ]


def _again(template: FoldTemplate, groups: Groups, delta: Delta, among: Sequence[int]) -> Steps[set[int]]:
    """Positions of the groups to read again."""
    if any(m.kind == "reread" for m in template.measures.measures):
        return set(among)
    gone = [delta.extremes[m.slot].gone for m in template.extremes]
    suspects = [g for g in among if any(values[g] is not None for values in gone)]
    if not suspects:
        return set()
    lists = (delta.identities, delta.keys, *gone)
    text = groups.target.text("again", lambda: _again_text(template, groups))
    rows = yield Query(text, [[values[g] for g in suspects] for values in lists])
    return {suspects[ord_ - 1] for (ord_,) in rows}


def _again_text(template: FoldTemplate, groups: Groups) -> str:
    gone = template.extremes
    names = ", ".join(["h", "k", *(m.name("d") for m in gone)])
    arrays = ", ".join(["$1::int8[]", "$2::text[]", *(f"${i}::text[]" for i in range(3, 3 + len(gone)))])
    lost = " OR ".join(
        f"(d.{m.name('d')} IS NOT NULL AND "
        f"d.{m.name('d')}::{m.state[0][1]} {'<=' if m.kind == 'least' else '>='} s.{m.name('v')})"
        for m in gone
    )
    return (
        f"SELECT d.ord FROM unnest({arrays}) WITH ORDINALITY AS d({names}, ord) LEFT JOIN {groups.target.state} AS s "
        f'ON s.h = d.h AND s.k = d.k COLLATE "C" WHERE ({lost}) IS NOT FALSE'
    )


def _values(
    template: FoldTemplate,
    groups: Groups,
    texts: StatementCache,
    keys: Sequence[str],
    positions: Sequence[int],
    *,
    whole: bool = False,
) -> Steps[dict[int, tuple[Any, ...]]]:
    """Reread values (or the whole state) by position; a group that is gone has none."""
    what = "state" if whole else "reread"
    if not template.key_types:
        text = groups.target.text(what, lambda: template.reread_all_statement(whole=whole))
        (row,) = yield Query(text, mark=texts.mark())
        return {positions[0]: row[1:]}
    wanted = [keys[g] for g in positions]
    may_be_null = any("NULL" in k for k in wanted)
    name = f"{what} with NULL" if may_be_null else what
    text = groups.target.text(name, lambda: _numbered(template.reread_statement(may_be_null=may_be_null, whole=whole)))
    # More are worth a plan of their own.
    rows = yield Query(text, [wanted], len(wanted) <= MOST_PLANNED_AHEAD, texts.mark())
    return {positions[row[0] - 1]: row[1:] for row in rows}


def _numbered(text: str) -> str:
    """With $1 in place of the driver's %s."""
    return re.sub("%(.)", lambda found: "$1" if found[1] == "s" else found[1], text)


def _at_scale(total: Decimal | None, scale: int | None) -> str | None:
    """A sum comes back with all digits that it could have had; PostgreSQL's own has as many as its operands."""
    if total is None:
        return None
    text = format(total, "f")
    if scale is None:
        return text
    whole, _, digits = text.partition(".")
    if digits[scale:].strip("0"):
        raise InvariantError(f"the sum {text} has more than {scale} digits after the point")
    return f"{whole}.{digits[:scale]}" if scale else whole
