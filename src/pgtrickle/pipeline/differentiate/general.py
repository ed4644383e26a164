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
from pgtrickle.model.texts import is_null
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


def delta(statement: Statement, node: Node) -> list[str]:
    """Queries whose UNION ALL is the delta: the plan's columns in order, then the weight.

    in:  SELECT a.x FROM a JOIN b USING (k)
    out: SELECT a.x, a.w FROM da AS a JOIN b ..., SELECT a.x, b.w FROM a JOIN db AS b ..., and the correction for both
    """
    if not statement.is_changed(node):
        return []
    match node:
        case Scan() | Select() | UnionAll():
            return _linear(statement, node)
        case Block():
            return _row_by_row(statement, node) if node.region is None else _by_region(statement, node)
        case Concat():
            return [sql for branch in node.branches for sql in delta(statement, branch)]
        case Distinct() | SetOperation():
            return _by_row_value(statement, node)
        case Recursive() | Values():
            return _recompute(statement, node)
        case _:
            assert_never(node)


def _shared_delta(statement: Statement, node: Node) -> str:
    if isinstance(node, Scan):
        change = statement.changed[node.relation.relid]
        return statement.share(f"{linear.window_rows(node, change, negate=False)} LIMIT {change.rows}", "d")
    listed = ", ".join(quote_ident(n) for n in (*column_names(node), "__pgt_w"))
    union = " UNION ALL ".join(f"({sql})" for sql in delta(statement, node))
    return statement.share(f"SELECT * FROM ({union}) AS q({listed})", "d")


def _linear(statement: Statement, node: Scan | Select | UnionAll) -> list[str]:
    terms = []
    for term in linear.delta_terms(node, statement.changed):
        sql = linear.render(node, term).sql
        for name, rows in linear.shared_delta_rows(node, term).items():
            # The name follows from the text: two occurrences of one query share their delta rows.
            sql = sql.replace(name, statement.share(rows, "d"))
        terms.append(sql)
    return terms


def _recompute(statement: Statement, node: Node) -> list[str]:
    return [
        f"SELECT q.*, 1 AS {W} FROM ({statement.render(node, ALL_NEW)}) AS q",
        f"SELECT q.*, -1 AS {W} FROM ({statement.render(node, ALL_OLD)}) AS q",
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


def _row_by_row(statement: Statement, node: Block) -> list[str]:
    return [sql for block in split_full_joins(node) for sql in _row_by_row_of(statement, block)]


def _row_by_row_of(statement: Statement, node: Block) -> list[str]:
    linear_items, inputs = _split(statement, node)
    old = _read(inputs, OLD)
    terms = []
    for roles, sign in _terms(linear_items):
        view = View(NEW, {**old, **roles})
        terms.append(
            statement.render_block(node, view, sign=sign, needed_keys=partial(semijoin_keys, statement, node, view)).sql
        )
    for position, input_ in enumerate(inputs):
        before = _read(inputs[:position], NEW) | _read(inputs[position + 1 :], OLD)
        conditions = _affected_rows(statement, node, input_, View(NEW, before))
        for state, sign in ((NEW, 1), (OLD, -1)):
            view = View(NEW, {**before, **input_.read(state)})
            needed_keys = partial(_changed_groups, statement, input_)
            terms.append(
                statement.render_block(node, view, conditions=conditions, sign=sign, needed_keys=needed_keys).sql
            )
    return terms


def _changed_groups(statement: Statement, input_: NonlinearInput, sub: Subquery) -> str | None:
    """The group keys for which the new and the old value of the input's subquery can differ."""
    return (
        changed_group_keys(statement, sub, input_.parts[0])
        if sub is input_.condition and len(input_.parts) == 1
        else None
    )


def _read(inputs: Sequence[NonlinearInput], state: str) -> dict[int, str]:
    return {number: state for input_ in inputs for number in input_.read(state)}


def _split(statement: Statement, node: Block) -> tuple[list[FromItem], list[NonlinearInput]]:
    """The changed FROM items in which the block is linear, and its other changed inputs."""
    linear_in = [p for tree in node.trees for p in preserved_items(tree)]
    linear_items, inputs = [], []
    for part in from_items(node):
        if part.node is None or not statement.is_changed(part.node):
            continue
        if part in linear_in and not part.is_lateral and not outer_aliases(part.node):
            linear_items.append(part)
        else:
            inputs.append(NonlinearInput((part,), None))
    for text, in_where in _expressions(node):
        for sub in subqueries(text):
            changed = tuple(
                p for p in nested_from_items(sub.node) if p.node is not None and statement.is_changed(p.node)
            )
            if changed and is_uncorrelated(sub):
                inputs.append(NonlinearInput(changed, sub, in_where))
            else:
                inputs += [NonlinearInput((p,), sub, in_where) for p in changed]
    return linear_items, inputs


def _expressions(node: Block) -> list[tuple[tuple[str | Subquery, ...], bool]]:
    """Texts with subqueries; True where a condition on the rows of FROM can find the affected rows."""
    conditions = [
        (
            j.on,
            j.kind == "JOIN" and set(tree_items(j)) <= set(preserved_items(tree)),
        )  # elsewhere the result may have NULLs in the place of a row
        for tree in node.trees
        for j in joins(tree)
        if j.on is not None
    ]
    expressions = [*((c.text, True) for c in node.columns), *conditions]
    if node.where is not None:
        expressions.append((node.where, True))
    expressions += [(p.call, False) for p in from_items(node)]
    return expressions


def _terms(linear_items: Sequence[FromItem]) -> list[tuple[dict[int, str], int]]:
    """Which changed FROM items each term reads as deltas, and the sign of the term.

    Up to MAX_EXPANDED items: one term per non-empty set, d(A join B) = dA join B' + A' join dB - dA join dB.
    More items: telescoped, d(A join B) = dA join B' + A join dB.
    """
    numbers = [p.number for p in linear_items]
    if len(numbers) > MAX_EXPANDED:
        return [({**dict.fromkeys(numbers[:i], OLD_WEIGHTED), n: DELTA}, 1) for i, n in enumerate(numbers)]
    return [
        (dict.fromkeys(chosen, DELTA), 1 if size % 2 else -1)
        for size in range(1, len(numbers) + 1)
        for chosen in combinations(numbers, size)
    ]


def _affected_rows(statement: Statement, node: Block, input_: NonlinearInput, view: View) -> list[str]:
    if input_.condition is None:
        condition = affected_rows_of_item(statement, node, input_.parts[0], view)
    elif input_.in_where and is_uncorrelated(input_.condition):
        states = [View(view.default, {**view.overrides, **input_.read(state)}) for state in (NEW, OLD)]
        condition = affected_rows_of_value(statement, node, input_.condition, states[0], states[1])
    elif input_.in_where:
        condition = affected_rows_of_subquery(statement, node, input_.condition, input_.parts[0], view)
    else:
        condition = None
    return [condition] if condition is not None else []


# -- by region
# --------------------------------------------------------------------------------------------------------------


def _by_region(statement: Statement, node: Block) -> list[str]:
    if (undone := invertible_groups(node)) is not None and not _has_changed_subquery(statement, node):
        return invertible_delta(statement, undone, delta(statement, undone.rows))
    keys = affected_region_keys(statement, node)
    if keys is None:
        return _recompute(statement, node)
    terms = []
    for view, sign in ((ALL_NEW, 1), (ALL_OLD, -1)):
        for condition in filter_by_keys(node, keys):
            inner = statement.render_block(node, view, conditions=[condition]).sql
            terms.append(f"SELECT q.*, {sign} AS {W} FROM ({inner}) AS q")
    return terms


def affected_region_keys(statement: Statement, node: Block) -> str | None:
    """The name of a relation with the keys (__pgt_k0, ...) of all affected regions; None when any may be affected.

    keys = SELECT DISTINCT key FROM d(rows of FROM that pass WHERE)

    in:  SELECT g, max(x) FROM t GROUP BY g
    out: SELECT DISTINCT __pgt_k0 FROM (SELECT g AS __pgt_k0, w FROM dt) AS q
    """
    assert node.region is not None
    if not node.region or _has_changed_subquery(statement, node):
        return None
    columns = tuple(OutputColumn(f"__pgt_k{i}", (k,)) for i, k in enumerate(node.region))
    rows = simplify(Block(columns, node.trees, node.where))
    listed = ", ".join(c.name for c in columns)
    union = " UNION ALL ".join(f"({sql})" for sql in delta(statement, rows))
    return statement.share(f"SELECT DISTINCT {listed} FROM ({union}) AS q({listed}, w)", "k")


def _has_changed_subquery(statement: Statement, node: Block) -> bool:
    """Whether a subquery over the regions (in the select list, HAVING or LIMIT) has changed: it affects any region."""
    over = [*(c.text for c in node.columns), node.tail, node.distinct_on or ()]
    return any(statement.is_changed(s.node) for text in over for s in subqueries(text))


def _by_row_value(statement: Statement, node: Distinct | SetOperation) -> list[str]:
    """DISTINCT, INTERSECT, EXCEPT: the region of a row is the row value itself.

    d(A op B) = (A' op B') - (A op B), each over rows that equal a row of dA or dB.

    in:  SELECT x FROM a INTERSECT SELECT x FROM b
    out: the same over a and b WHERE x IN (SELECT x FROM da UNION ALL SELECT x FROM db), new with +1, old with -1
    """
    width = len(column_names(node))
    listed = ", ".join(f"c{i}" for i in range(width))
    changes = [sql for child in children(node) for sql in delta(statement, child)]
    union = " UNION ALL ".join(f"({sql})" for sql in changes)
    keys = statement.share(f"SELECT DISTINCT {listed} FROM ({union}) AS q({listed}, w)", "k")
    columns = [f"q.c{i}" for i in range(width)]
    some = " OR ".join(is_null(f"k.c{i}") for i in range(width))
    missing = " OR ".join(is_null(c) for c in columns)
    same = " AND ".join(f"k.c{i} IS NOT DISTINCT FROM {c}" for i, c in enumerate(columns))
    conditions = (
        f"({', '.join(columns)}) IN (SELECT {', '.join(f'k.c{i}' for i in range(width))} FROM {keys} AS k)",
        f"(SELECT bool_or({some}) FROM {keys} AS k) AND ({missing}) AND EXISTS (SELECT FROM {keys} AS k WHERE {same})",
    )
    terms = []
    for view, sign in ((ALL_NEW, 1), (ALL_OLD, -1)):
        for condition in conditions:
            sides = [
                f"SELECT q.* FROM ({statement.render(c, view)}) AS q({listed}) WHERE {condition}"
                for c in children(node)
            ]
            terms.append(f"SELECT q.*, {sign} AS {W} FROM ({_combined(node, sides)}) AS q")
    return terms


def _combined(node: Distinct | SetOperation, sides: Sequence[str]) -> str:
    match node:
        case Distinct():
            return f"SELECT DISTINCT q.* FROM ({sides[0]}) AS q"
        case SetOperation():
            return f"({sides[0]}) {node.operator} ({sides[1]})"
        case _:
            assert_never(node)
