"""The change of groups that can be undone: the touched ones as they are, and as they were by subtraction."""

from __future__ import annotations

from collections.abc import Sequence

from pgtrickle.pipeline.differentiate.invertible import GROUP, InvertibleGroups
from pgtrickle.pipeline.differentiate.key_filter import among, equal_keys, nullable
from pgtrickle.pipeline.differentiate.linear import W
from pgtrickle.pipeline.differentiate.states import ALL_NEW, ALL_OLD, Statement
from pgtrickle.pipeline.plan.nodes import Block, OutputColumn


def by_subtraction(into: Statement, groups: InvertibleGroups, changes: Sequence[str]) -> list[str]:
    """`changes` are those of the rows that are grouped."""
    both = into.share(_both(into, groups, _change(into, groups, changes)), "g")
    return [groups.shown("_1", both, f", 1 AS {W}"), groups.shown("_0", both, f", -1 AS {W}")]


def _change(into: Statement, groups: InvertibleGroups, changes: Sequence[str]) -> str:
    """Per key what the changes add to each number; only where there is something to add. Weights are 1 and -1."""
    keys = _keys(groups)
    listed = [*keys, *(f"a{i}" for i in range(len(groups.arguments)))]
    came, gone = "FILTER (WHERE q.w > 0)", "FILTER (WHERE q.w < 0)"
    numbers = {"n": f"count(*) {came} - count(*) {gone}"}
    odd = {}
    for i in range(len(groups.arguments)):
        numbers[f"c{i}"] = f"count(q.a{i}) {came} - count(q.a{i}) {gone}"
        if i in groups.summed:
            numbers[f"s{i}"] = f"coalesce(sum(q.a{i}) {came}, 0) - coalesce(sum(q.a{i}) {gone}, 0)"
            odd[f"odd{i}"] = f"coalesce(bool_or(q.a{i}::numeric = 'NaN'), false)"
    columns = ", ".join([*keys, *(f"{sql} AS {name}" for name, sql in (numbers | odd).items())])
    union = " UNION ALL ".join(f"({sql})" for sql in changes)
    some = " OR ".join(f"{sql} <> 0" for sql in numbers.values())
    return into.share(
        f"SELECT {columns} FROM ({union}) AS q({', '.join(listed)}, w) GROUP BY {', '.join(keys)} HAVING {some}", "k"
    )


def _both(into: Statement, groups: InvertibleGroups, change: str) -> str:
    """The numbers of each touched group as they are (n_1, c0_1, ...) and as they were (n_0, ...).

    What is not a number cannot be taken off again: then the sum is evaluated as it was.
    """
    keys = _keys(groups)
    numbers = ["n"]
    for i in range(len(groups.arguments)):
        numbers += [f"c{i}", *([f"s{i}"] if i in groups.summed else [])]
    odd = [f"odd{i}" for i in sorted(groups.summed)]
    now = _touched(into, groups, change)
    sides = (
        f"SELECT {', '.join([*keys, *numbers, *('NULL' for _ in numbers), *('NULL' for _ in odd)])} FROM {now} "
        f"UNION ALL SELECT {', '.join([*keys, *('NULL' for _ in numbers), *numbers, *odd])} FROM {change}"
    )
    named = [*keys, *numbers, *(f"d{n}" for n in numbers), *odd]
    merged = [f"max({n}) AS {n}" for n in (*numbers, *(f"d{n}" for n in numbers))]
    merged += [f"bool_or({n}) AS {n}" for n in odd]
    per_key = f"SELECT {', '.join([*keys, *merged])} FROM ({sides}) AS q({', '.join(named)}) GROUP BY {', '.join(keys)}"
    shown = [*keys, "coalesce(n, 0) AS n_1", "coalesce(n, 0) - dn AS n_0"]
    for i in range(len(groups.arguments)):
        shown += [f"coalesce(c{i}, 0) AS c{i}_1", f"coalesce(c{i}, 0) - dc{i} AS c{i}_0"]
        if i in groups.summed:
            was = f"CASE WHEN odd{i} THEN ({_was(into, groups, i)}) ELSE coalesce(s{i}, 0) - ds{i} END"
            shown += [f"s{i} AS s{i}_1", f"CASE WHEN coalesce(c{i}, 0) > dc{i} THEN {was} END AS s{i}_0"]
    return f"SELECT {', '.join(shown)} FROM ({per_key}) AS {GROUP}"


def _touched(into: Statement, groups: InvertibleGroups, change: str) -> str:
    """The name of the touched groups as they are: read by key, or taken from all of them where those are needed."""
    by_key = [into.block(groups.numbers, ALL_NEW, conditions=[c]).sql for c in among(groups.block, change)]
    conditions = equal_keys([f"g.{k}" for k in _keys(groups)], change, nullable(groups.block))
    return into.share_some(
        " UNION ALL ".join(by_key),
        into.block(groups.numbers, ALL_NEW).sql,
        lambda whole: " UNION ALL ".join(f"SELECT g.* FROM {whole} AS g WHERE {c}" for c in conditions),
    )


def _was(into: Statement, groups: InvertibleGroups, i: int) -> str:
    block = Block((OutputColumn("v", (f"sum({groups.arguments[i]})",)),), groups.block.trees, groups.block.where)
    same = [f"({k}) IS NOT DISTINCT FROM {GROUP}.__pgt_k{n}" for n, k in enumerate(groups.keys)]
    return into.block(block, ALL_OLD, conditions=same).sql


def _keys(groups: InvertibleGroups) -> list[str]:
    return [f"__pgt_k{i}" for i in range(len(groups.keys))]
