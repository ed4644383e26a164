"""The delta of invertible groups: old group state = new state - delta of the state.

d(GROUP BY k) = new rows of affected groups - old rows of affected groups
old count = new count - d(count), old sum = new sum - d(sum)

in:  SELECT g, sum(x) FROM t GROUP BY g
out: s AS (SELECT g, sum(x), count(x), d.sum, d.count FROM t WHERE g IN (keys of dt) ... GROUP BY g),
     SELECT g, sum, 1 FROM s  and  SELECT g, sum - d.sum, -1 FROM s
"""

from __future__ import annotations

from collections.abc import Sequence

from pgtrickle.pipeline.differentiate.invertible import GROUP, InvertibleGroups
from pgtrickle.pipeline.differentiate.key_filter import filter_by_keys, key_conditions, nullable_keys
from pgtrickle.pipeline.differentiate.linear import W
from pgtrickle.pipeline.differentiate.states import ALL_NEW, ALL_OLD, Statement
from pgtrickle.pipeline.plan.nodes import Block, OutputColumn


def invertible_delta(statement: Statement, groups: InvertibleGroups, changes: Sequence[str]) -> list[str]:
    """`changes`: the delta of the rows that are grouped."""
    states = statement.share(_old_and_new_states(statement, groups, _state_delta(statement, groups, changes)), "g")
    return [groups.render_rows("_1", states, f", 1 AS {W}"), groups.render_rows("_0", states, f", -1 AS {W}")]


def _state_delta(statement: Statement, groups: InvertibleGroups, changes: Sequence[str]) -> str:
    """The delta of each group's state, for groups where it is not zero. Weights are 1 and -1."""
    keys = _keys(groups)
    listed = [*keys, *(f"a{i}" for i in range(len(groups.arguments)))]
    of_inserted, of_deleted = "FILTER (WHERE q.w > 0)", "FILTER (WHERE q.w < 0)"
    numbers = {"n": f"count(*) {of_inserted} - count(*) {of_deleted}"}
    has_nan = {}
    for i in range(len(groups.arguments)):
        numbers[f"c{i}"] = f"count(q.a{i}) {of_inserted} - count(q.a{i}) {of_deleted}"
        if i in groups.summed:
            numbers[f"s{i}"] = f"coalesce(sum(q.a{i}) {of_inserted}, 0) - coalesce(sum(q.a{i}) {of_deleted}, 0)"
            has_nan[f"odd{i}"] = f"coalesce(bool_or(q.a{i}::numeric = 'NaN'), false)"
    columns = ", ".join([*keys, *(f"{sql} AS {name}" for name, sql in (numbers | has_nan).items())])
    union = " UNION ALL ".join(f"({sql})" for sql in changes)
    some = " OR ".join(f"{sql} <> 0" for sql in numbers.values())
    return statement.share(
        f"SELECT {columns} FROM ({union}) AS q({', '.join(listed)}, w) GROUP BY {', '.join(keys)} HAVING {some}", "k"
    )


def _old_and_new_states(statement: Statement, groups: InvertibleGroups, change: str) -> str:
    """The state of each affected group: new (n_1, c0_1, ...) and old (n_0, c0_0, ...).

    NaN cannot be subtracted: then the old sum is evaluated from the old rows.
    """
    keys = _keys(groups)
    numbers = ["n"]
    for i in range(len(groups.arguments)):
        numbers += [f"c{i}", *([f"s{i}"] if i in groups.summed else [])]
    has_nan = [f"odd{i}" for i in sorted(groups.summed)]
    new_states = _new_states(statement, groups, change)
    sides = (
        f"SELECT {', '.join([*keys, *numbers, *('NULL' for _ in (*numbers, *has_nan))])} FROM {new_states} "
        f"UNION ALL SELECT {', '.join([*keys, *('NULL' for _ in numbers), *numbers, *has_nan])} FROM {change}"
    )
    named = [*keys, *numbers, *(f"d{n}" for n in numbers), *has_nan]
    merged = [f"max({n}) AS {n}" for n in (*numbers, *(f"d{n}" for n in numbers))]
    merged += [f"bool_or({n}) AS {n}" for n in has_nan]
    per_key = f"SELECT {', '.join([*keys, *merged])} FROM ({sides}) AS q({', '.join(named)}) GROUP BY {', '.join(keys)}"
    shown = [*keys, "coalesce(n, 0) AS n_1", "coalesce(n, 0) - dn AS n_0"]
    for i in range(len(groups.arguments)):
        shown += [f"coalesce(c{i}, 0) AS c{i}_1", f"coalesce(c{i}, 0) - dc{i} AS c{i}_0"]
        if i in groups.summed:
            old_sum = f"CASE WHEN odd{i} THEN ({_old_sum(statement, groups, i)}) ELSE coalesce(s{i}, 0) - ds{i} END"
            shown += [f"s{i} AS s{i}_1", f"CASE WHEN coalesce(c{i}, 0) > dc{i} THEN {old_sum} END AS s{i}_0"]
    return f"SELECT {', '.join(shown)} FROM ({per_key}) AS {GROUP}"


def _new_states(statement: Statement, groups: InvertibleGroups, change: str) -> str:
    """The name of the new state of the affected groups: read by key, or selected from all groups where those are
    evaluated anyway."""
    by_key = [
        statement.render_block(groups.state_block, ALL_NEW, conditions=[c]).sql
        for c in filter_by_keys(groups.block, change)
    ]
    conditions = key_conditions([f"g.{k}" for k in _keys(groups)], change, nullable_keys(groups.block))
    return statement.share_selected_rows(
        " UNION ALL ".join(by_key),
        statement.render_block(groups.state_block, ALL_NEW).sql,
        lambda all_groups: " UNION ALL ".join(f"SELECT g.* FROM {all_groups} AS g WHERE {c}" for c in conditions),
    )


def _old_sum(statement: Statement, groups: InvertibleGroups, i: int) -> str:
    block = Block((OutputColumn("v", (f"sum({groups.arguments[i]})",)),), groups.block.trees, groups.block.where)
    same = [f"({k}) IS NOT DISTINCT FROM {GROUP}.__pgt_k{n}" for n, k in enumerate(groups.keys)]
    return statement.render_block(block, ALL_OLD, conditions=same).sql


def _keys(groups: InvertibleGroups) -> list[str]:
    return [f"__pgt_k{i}" for i in range(len(groups.keys))]
