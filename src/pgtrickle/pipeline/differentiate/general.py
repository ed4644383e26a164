"""The delta of any plan, as signed rows.

Three rules cover all of SQL. L are the FROM items in which a SELECT is linear (inner joined, or on the preserved side
of an outer join). N are its other inputs: the nullable side of an outer join, subqueries in expressions, LATERAL items.
A prime marks the new state; affected(dN) are the rows of L that the delta of N can affect.

* Row by row:   dQ = Q(dL; N) + Q(affected(dN); N') - Q(affected(dN); N), with L' in the last two terms
* By region:    dQ = Q'(affected regions) - Q(affected regions), for groups, window partitions, DISTINCT, set operations
* Recompute:    dQ = Q' - Q, where there are no keys (LIMIT, a recursion that is not stored)

Invertible groups are a special case of the second rule: their old state = new state - delta.
Every rule is exact for any rows. A condition for affected rows may accept too many rows, never too few.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import combinations
from typing import assert_never

from pgtrickle.model.identifiers import quote_ident
from pgtrickle.pipeline.differentiate import linear
from pgtrickle.pipeline.differentiate.affected_rows import (
    affected_rows_of_item,
    affected_rows_of_subquery,
    affected_rows_of_value,
    is_uncorrelated,
)
from pgtrickle.pipeline.differentiate.decorrelate import decorrelate
from pgtrickle.pipeline.differentiate.full_join import preserved_items, split_full_joins
from pgtrickle.pipeline.differentiate.groups import invertible_delta
from pgtrickle.pipeline.differentiate.invertible import invertible_groups
from pgtrickle.pipeline.differentiate.key_filter import filter_by_keys
from pgtrickle.pipeline.differentiate.linear import MAX_EXPANDED, ChangedSource, W
from pgtrickle.pipeline.differentiate.semijoin_keys import changed_group_keys, correlates_with_changes, semijoin_keys
from pgtrickle.pipeline.differentiate.states import ALL_NEW, ALL_OLD, DELTA, NEW, OLD, OLD_WEIGHTED, Statement, View
from pgtrickle.pipeline.plan.names import nested_from_items, outer_aliases
from pgtrickle.pipeline.plan.nodes import (
    Block,
    Concat,
    Distinct,
    FromItem,
    Node,
    OutputColumn,
    Recursive,
    Scan,
    Select,
    SetOperation,
    Subquery,
    UnionAll,
    Values,
    children,
    column_names,
    from_items,
    joins,
    subqueries,
    tree_items,
)
from pgtrickle.pipeline.plan.shapes import simplify


def new_statement(changed: Mapping[int, ChangedSource], *, is_plain: bool = False) -> Statement:
    """`is_plain`: old states are evaluated from their tables, never computed from new states and deltas."""
    return (
        Statement(changed, _shared_delta)
        if is_plain
        else Statement(changed, _shared_delta, correlates_with_changes, decorrelate)
    )


def delta(into: Statement, node: Node) -> list[str]:
    """Queries whose UNION ALL is the delta: the plan's columns in order, then the weight.

    in:  SELECT a.x FROM a JOIN b USING (k)
    out: SELECT a.x, a.w FROM da AS a JOIN b ..., SELECT a.x, b.w FROM a JOIN db AS b ..., and the correction for both
    """
    if not into.is_changed(node):
        return []
    match node:
        case Scan() | Select() | UnionAll():
            return _linear(into, node)
        case Block():
            return _row_by_row(into, node) if node.region is None else _by_region(into, node)
        case Concat():
            return [sql for branch in node.branches for sql in delta(into, branch)]
        case Distinct() | SetOperation():
            return _by_row_value(into, node)
        case Recursive() | Values():
            return _recompute(into, node)
        case _:
            assert_never(node)


def _shared_delta(into: Statement, node: Node) -> str:
    if isinstance(node, Scan):
        change = into.changed[node.relation.relid]
        return into.share(f"{linear.window_rows(node, change, negate=False)} LIMIT {change.rows}", "d")
    listed = ", ".join(quote_ident(n) for n in (*column_names(node), "__pgt_w"))
    union = " UNION ALL ".join(f"({sql})" for sql in delta(into, node))
    return into.share(f"SELECT * FROM ({union}) AS q({listed})", "d")


def _linear(into: Statement, node: Scan | Select | UnionAll) -> list[str]:
    found = []
    for term in linear.delta_terms(node, into.changed):
        sql = linear.render(node, term).sql
        for name, rows in linear.shared_delta_rows(node, term).items():
            # Under a name that goes by the text: a query that stands in two places has the same changes in both.
            sql = sql.replace(name, into.share(rows, "d"))
        found.append(sql)
    return found


def _recompute(into: Statement, node: Node) -> list[str]:
    return [
        f"SELECT q.*, 1 AS {W} FROM ({into.render(node, ALL_NEW)}) AS q",
        f"SELECT q.*, -1 AS {W} FROM ({into.render(node, ALL_OLD)}) AS q",
    ]


# -- row by row
# --------------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class NonlinearInput:
    """An input in which a block is not linear: one of its FROM items, or a FROM item of a subquery in an expression.

    All items of an uncorrelated subquery are one input, because the subquery has one value for all rows.
    """

    parts: tuple[FromItem, ...]
    condition: Subquery | None  # the subquery that holds the parts
    in_where: bool = False

    def read(self, state: str) -> dict[int, str]:
        return {p.number: state for p in self.parts}


def _row_by_row(into: Statement, node: Block) -> list[str]:
    return [sql for block in split_full_joins(node) for sql in _row_by_row_of(into, block)]


def _row_by_row_of(into: Statement, node: Block) -> list[str]:
    straight, units = _split(into, node)
    old = _read(units, OLD)
    found = []
    for roles, sign in _terms(straight):
        view = View(NEW, {**old, **roles})
        found.append(into.render_block(node, view, sign=sign, asked=partial(semijoin_keys, into, node, view)).sql)
    for position, unit in enumerate(units):
        before = _read(units[:position], NEW) | _read(units[position + 1 :], OLD)
        conditions = _affected_rows(into, node, unit, View(NEW, before))
        for state, sign in ((NEW, 1), (OLD, -1)):
            view = View(NEW, {**before, **unit.read(state)})
            asked = partial(_changed_groups, into, unit)
            found.append(into.render_block(node, view, conditions=conditions, sign=sign, asked=asked).sql)
    return found


def _changed_groups(into: Statement, unit: NonlinearInput, sub: Subquery) -> str | None:
    """The group keys for which the new and the old value of the input's subquery can differ."""
    return changed_group_keys(into, sub, unit.parts[0]) if sub is unit.condition and len(unit.parts) == 1 else None


def _read(units: Sequence[NonlinearInput], state: str) -> dict[int, str]:
    return {number: state for unit in units for number in unit.read(state)}


def _split(into: Statement, node: Block) -> tuple[list[FromItem], list[NonlinearInput]]:
    """The changed FROM items in which the block is linear, and its other changed inputs."""
    linear_in = [p for tree in node.trees for p in preserved_items(tree)]
    straight, units = [], []
    for part in from_items(node):
        if part.node is None or not into.is_changed(part.node):
            continue
        if part in linear_in and not part.is_lateral and not outer_aliases(part.node):
            straight.append(part)
        else:
            units.append(NonlinearInput((part,), None))
    for text, in_where in _expressions(node):
        for sub in subqueries(text):
            changed = tuple(p for p in nested_from_items(sub.node) if p.node is not None and into.is_changed(p.node))
            if changed and is_uncorrelated(sub):
                units.append(NonlinearInput(changed, sub, in_where))
            else:
                units += [NonlinearInput((p,), sub, in_where) for p in changed]
    return straight, units


def _expressions(node: Block) -> list[tuple[tuple[str | Subquery, ...], bool]]:
    """Texts with subqueries; True where a condition on the rows of FROM can find the affected rows."""
    conditions = [
        (
            j.on,
            j.kind == "JOIN" and set(tree_items(j)) <= set(preserved_items(tree)),
        )  # else its rows may stand there as NULLs
        for tree in node.trees
        for j in joins(tree)
        if j.on is not None
    ]
    found = [*((c.text, True) for c in node.columns), *conditions]
    if node.where is not None:
        found.append((node.where, True))
    found += [(p.call, False) for p in from_items(node)]
    return found


def _terms(straight: Sequence[FromItem]) -> list[tuple[dict[int, str], int]]:
    """Which changed FROM items each term reads as deltas, and the sign of the term.

    Up to MAX_EXPANDED items: one term per non-empty set, d(A join B) = dA join B' + A' join dB - dA join dB.
    More items: telescoped, d(A join B) = dA join B' + A join dB.
    """
    numbers = [p.number for p in straight]
    if len(numbers) > MAX_EXPANDED:
        return [({**dict.fromkeys(numbers[:i], OLD_WEIGHTED), n: DELTA}, 1) for i, n in enumerate(numbers)]
    return [
        (dict.fromkeys(chosen, DELTA), 1 if size % 2 else -1)
        for size in range(1, len(numbers) + 1)
        for chosen in combinations(numbers, size)
    ]


def _affected_rows(into: Statement, node: Block, unit: NonlinearInput, view: View) -> list[str]:
    if unit.condition is None:
        condition = affected_rows_of_item(into, node, unit.parts[0], view)
    elif unit.in_where and is_uncorrelated(unit.condition):
        states = [View(view.default, {**view.overrides, **unit.read(state)}) for state in (NEW, OLD)]
        condition = affected_rows_of_value(into, node, unit.condition, states[0], states[1])
    elif unit.in_where:
        condition = affected_rows_of_subquery(into, node, unit.condition, unit.parts[0], view)
    else:
        condition = None
    return [condition] if condition is not None else []


# -- by region
# --------------------------------------------------------------------------------------------------------------


def _by_region(into: Statement, node: Block) -> list[str]:
    if (undone := invertible_groups(node)) is not None and not _has_changed_subquery(into, node):
        return invertible_delta(into, undone, delta(into, undone.rows))
    keys = affected_region_keys(into, node)
    if keys is None:
        return _recompute(into, node)
    found = []
    for view, sign in ((ALL_NEW, 1), (ALL_OLD, -1)):
        for condition in filter_by_keys(node, keys):
            inner = into.render_block(node, view, conditions=[condition]).sql
            found.append(f"SELECT q.*, {sign} AS {W} FROM ({inner}) AS q")
    return found


def affected_region_keys(into: Statement, node: Block) -> str | None:
    """The name of a relation with the keys (__pgt_k0, ...) of all affected regions; None when any may be affected.

    keys = SELECT DISTINCT key FROM d(rows of FROM that pass WHERE)

    in:  SELECT g, max(x) FROM t GROUP BY g
    out: SELECT DISTINCT __pgt_k0 FROM (SELECT g AS __pgt_k0, w FROM dt) AS q
    """
    assert node.region is not None
    if not node.region or _has_changed_subquery(into, node):
        return None
    columns = tuple(OutputColumn(f"__pgt_k{i}", (k,)) for i, k in enumerate(node.region))
    rows = simplify(Block(columns, node.trees, node.where))
    listed = ", ".join(c.name for c in columns)
    union = " UNION ALL ".join(f"({sql})" for sql in delta(into, rows))
    return into.share(f"SELECT DISTINCT {listed} FROM ({union}) AS q({listed}, w)", "k")


def _has_changed_subquery(into: Statement, node: Block) -> bool:
    """Whether a subquery over the regions (in the select list, HAVING or LIMIT) has changed: it affects any region."""
    over = [*(c.text for c in node.columns), node.tail, node.distinct_on or ()]
    return any(into.is_changed(s.node) for text in over for s in subqueries(text))


def _by_row_value(into: Statement, node: Distinct | SetOperation) -> list[str]:
    """DISTINCT, INTERSECT, EXCEPT: the region of a row is the row value itself.

    d(A op B) = (A' op B') - (A op B), each over rows that equal a row of dA or dB.

    in:  SELECT x FROM a INTERSECT SELECT x FROM b
    out: the same over a and b WHERE x IN (SELECT x FROM da UNION ALL SELECT x FROM db), new with +1, old with -1
    """
    width = len(column_names(node))
    listed = ", ".join(f"c{i}" for i in range(width))
    changes = [sql for child in children(node) for sql in delta(into, child)]
    union = " UNION ALL ".join(f"({sql})" for sql in changes)
    keys = into.share(f"SELECT DISTINCT {listed} FROM ({union}) AS q({listed}, w)", "k")
    columns = [f"q.c{i}" for i in range(width)]
    some = " OR ".join(f"k.c{i} IS NULL" for i in range(width))
    missing = " OR ".join(f"{c} IS NULL" for c in columns)
    same = " AND ".join(f"k.c{i} IS NOT DISTINCT FROM {c}" for i, c in enumerate(columns))
    conditions = (
        f"({', '.join(columns)}) IN (SELECT {', '.join(f'k.c{i}' for i in range(width))} FROM {keys} AS k)",
        f"(SELECT bool_or({some}) FROM {keys} AS k) AND ({missing}) AND EXISTS (SELECT FROM {keys} AS k WHERE {same})",
    )
    found = []
    for view, sign in ((ALL_NEW, 1), (ALL_OLD, -1)):
        for condition in conditions:
            sides = [
                f"SELECT q.* FROM ({into.render(c, view)}) AS q({listed}) WHERE {condition}" for c in children(node)
            ]
            found.append(f"SELECT q.*, {sign} AS {W} FROM ({_combined(node, sides)}) AS q")
    return found


def _combined(node: Distinct | SetOperation, sides: Sequence[str]) -> str:
    match node:
        case Distinct():
            return f"SELECT DISTINCT q.* FROM ({sides[0]}) AS q"
        case SetOperation():
            return f"({sides[0]}) {node.word} ({sides[1]})"
        case _:
            assert_never(node)
