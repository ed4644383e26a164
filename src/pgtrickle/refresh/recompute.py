"""Recomputes groups that cannot be folded: PostgreSQL evaluates them at the same snapshot.

If NaN or an infinity was added to a sum or removed from it, the old sum cannot be updated: the whole state of the group
is recomputed and replaced.

A deleted value of MIN or MAX matters only if it was the extreme. So the stored state is read first, and only groups
that lost their extreme are recomputed. A group without state, or without a value, is recomputed as well: the terms of a
join may insert and delete a value that was never in the group, and only their sum cancels.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from decimal import Decimal
from typing import Any

from pgtrickle.apply.groups import GroupDelta, Groups
from pgtrickle.apply.target import text_hash
from pgtrickle.db.connect import MOST_PLANNED_AHEAD
from pgtrickle.db.roundtrip import Query, Steps
from pgtrickle.errors import InvariantError
from pgtrickle.model.flow import Delta
from pgtrickle.pipeline.plan.measures import Measure
from pgtrickle.pipeline.render.statement_cache import StatementCache
from pgtrickle.pipeline.templates.template import FEW_KEYS, MANY_KEYS, MOST_KEYS, FoldTemplate

COMPARED_KEYS = 8  # above: compared through a hash table
MOST_SHARE = 2  # groups per key to read up to which all groups are read: in parallel and without a filter
_GROUPS = "SELECT c.reltuples FROM pg_catalog.pg_class AS c WHERE c.oid = $1::pg_catalog.regclass"


@dataclass(frozen=True, slots=True)
class _Recomputed:
    """Recomputed groups, by position, and their values; a deleted group has none."""

    groups: frozenset[int]
    values: Mapping[int, tuple[Any, ...]]

    def of(self, measure: int, count: int) -> list[Any]:
        return [self.values[g][measure] if g in self.values else None for g in range(count)]


def group_delta(template: FoldTemplate, groups: Groups, texts: StatementCache, netted: Delta) -> Steps[GroupDelta]:
    """The delta to fold into the state, after recomputation, without unchanged groups."""
    delta = netted.at(_changed_groups(template, netted))
    lost = [g for g, key in enumerate(delta.keys) if key in delta.lost]
    again = yield from _groups_to_recompute(template, groups, delta, sorted(set(range(len(delta))).difference(lost)))
    values: dict[int, tuple[Any, ...]] = {}
    if again:
        values = yield from _recomputed_values(template, groups, texts, delta.keys, sorted(again))
    reread = _Recomputed(frozenset(again), values)
    state = [
        column for measure in template.measures.measures for column in _state_columns(template, measure, delta, reread)
    ]
    fold = GroupDelta(delta.weights, delta.keys, tuple(state))
    if not lost:
        return fold
    whole_states = yield from _recomputed_values(template, groups, texts, delta.keys, lost, whole=True)
    return _with_whole_states(groups, fold, {g: whole_states.get(g, (0, *([None] * len(groups.state)))) for g in lost})


def _state_columns(template: FoldTemplate, measure: Measure, delta: Delta, reread: _Recomputed) -> list[Sequence[Any]]:
    """The values to fold into the state columns of one measure, by group."""
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
    inserted = delta.extremes[measure.slot].came
    return [[r if s else c for r, s, c in zip(values, is_set, inserted, strict=True)], is_set]


def _with_whole_states(groups: Groups, delta: GroupDelta, whole_states: Mapping[int, tuple[Any, ...]]) -> GroupDelta:
    """Replaces the netted values of these groups by their row count and whole state."""
    names = [name for name, _ in groups.delta_columns()]
    arrays = [list(column) for column in delta.columns()]
    for group, values in whole_states.items():
        for name, value in zip(("n", *(c.name for c in groups.state)), values, strict=True):
            arrays[names.index(name)][group] = value
    weights, keys, *state = arrays
    return GroupDelta(weights, keys, tuple(state), tuple(keys[g] for g in whole_states))


def _changed_groups(template: FoldTemplate, delta: Delta) -> list[int]:
    """Positions of the changed groups: their row count or a value differs."""
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


def _groups_to_recompute(template: FoldTemplate, groups: Groups, delta: Delta, among: Sequence[int]) -> Steps[set[int]]:
    """Positions of the groups to recompute."""
    if any(m.kind == "reread" for m in template.measures.measures):
        return set(among)
    deleted = [delta.extremes[m.slot].gone for m in template.extremes]
    suspects = [g for g in among if any(values[g] is not None for values in deleted)]
    if not suspects:
        return set()
    lists = (delta.keys, *deleted)
    text = groups.target.text("again", lambda: _lost_extremes_text(template, groups))
    rows = yield Query(text, [[values[g] for g in suspects] for values in lists])
    return {suspects[ord_ - 1] for (ord_,) in rows}


def _lost_extremes_text(template: FoldTemplate, groups: Groups) -> str:
    extremes = template.extremes
    names = ", ".join(["k", *(m.name("d") for m in extremes)])
    arrays = ", ".join(f"${i}::text[]" for i in range(1, 2 + len(extremes)))
    lost = " OR ".join(
        f"(d.{m.name('d')} IS NOT NULL AND "
        f"d.{m.name('d')}::{m.state[0][1]} {'<=' if m.kind == 'least' else '>='} s.{m.name('v')})"
        for m in extremes
    )
    return (
        f"SELECT d.ord FROM unnest({arrays}) WITH ORDINALITY AS d({names}, ord) LEFT JOIN {groups.target.state} AS s "
        f'ON s.h = {text_hash("d.k")} AND s.k = d.k COLLATE "C" WHERE ({lost}) IS NOT FALSE'
    )


def _recomputed_values(
    template: FoldTemplate,
    groups: Groups,
    texts: StatementCache,
    keys: Sequence[str],
    positions: Sequence[int],
    *,
    whole: bool = False,
) -> Steps[dict[int, tuple[Any, ...]]]:
    """Recomputed values (or the whole state) by position; a deleted group has none."""
    what = "state" if whole else "reread"
    if not template.key_types:
        text = groups.target.text(what, lambda: template.reread_all_statement(whole=whole))
        (row,) = yield Query(text, mark=texts.mark())
        return {positions[0]: row[1:]}
    keys_read = [keys[g] for g in positions]
    may_be_null = any("NULL" in k for k in keys_read)
    reads = yield from _read_method(groups, len(keys_read))
    name = f"{what} {reads} with NULL" if may_be_null else f"{what} {reads}"

    def make_text() -> str:
        return _numbered(template.reread_statement(may_be_null=may_be_null, whole=whole, reads=reads))

    text = groups.target.text(name, make_text)
    # A larger number gets its own plan.
    rows = yield Query(text, [keys_read], len(keys_read) <= MOST_PLANNED_AHEAD, texts.mark())
    return {positions[row[0] - 1]: row[1:] for row in rows}


def _read_method(groups: Groups, keys: int) -> Steps[str]:
    """PostgreSQL searches an array parameter linearly, so many keys are joined instead."""
    if keys <= COMPARED_KEYS:
        return FEW_KEYS
    ((known,),) = yield Query(_GROUPS, [groups.target.state])
    return MOST_KEYS if 0 <= known <= MOST_SHARE * keys else MANY_KEYS


def _numbered(text: str) -> str:
    """With $1 instead of the driver's %s."""
    return re.sub("%(.)", lambda match: "$1" if match[1] == "s" else match[1], text)


def _at_scale(total: Decimal | None, scale: int | None) -> str | None:
    """Reduces a sum, which has at least the scale of Spark's decimals, to PostgreSQL's scale: that of its operands."""
    if total is None:
        return None
    text = format(total, "f")
    if scale is None:
        return text
    integer, _, digits = text.partition(".")
    if digits[scale:].strip("0"):
        raise InvariantError(f"the sum {text} has more than {scale} digits after the point")
    return f"{integer}.{digits[:scale]}" if scale else integer
