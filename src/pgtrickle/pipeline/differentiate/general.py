"""The change of any plan, as signed rows.

Three rules carry all of SQL. L stands for parts of FROM in which a SELECT is linear (inner joined, or on the preserved
side of an outer join), N for what it reads otherwise: the other side of an outer join, subqueries in expressions,
LATERAL items.

* Row by row: Q(L; N) is linear in L. Its change is that of L with N as it was, then, for each N in turn, what the rows
  of L that the change of N touches yield with the new N, minus what they yield with the old one.
* By region (groups, partitions, DISTINCT, set operations): the regions that changed rows belong to, evaluated as things
  are, minus as they were. Groups whose aggregates can be undone were what they are, less their change.
* Neither (LIMIT, no keys): all of it, as it is minus as it was.

Every rule is exact for any rows; a condition that says which rows are touched may let too many pass, never too few.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import combinations
from typing import assert_never

from pgtrickle.model.identifiers import quote_ident
from pgtrickle.pipeline.differentiate import linear
from pgtrickle.pipeline.differentiate.affected_rows import is_alone, touched_by_answer, touched_by_part, touched_by_sub
from pgtrickle.pipeline.differentiate.decorrelate import answers
from pgtrickle.pipeline.differentiate.full_join import parted, preserved
from pgtrickle.pipeline.differentiate.groups import by_subtraction
from pgtrickle.pipeline.differentiate.invertible import invertible_groups
from pgtrickle.pipeline.differentiate.key_filter import among
from pgtrickle.pipeline.differentiate.linear import MAX_TOGETHER, ChangedSource, W
from pgtrickle.pipeline.differentiate.semijoin_keys import asked_of_changes, keys_asked, keys_changed
from pgtrickle.pipeline.differentiate.states import ALL_NEW, ALL_OLD, BEFORE, DELTA, NEW, OLD, Statement, View
from pgtrickle.pipeline.plan.names import below, free
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
    Sub,
    UnionAll,
    Values,
    children,
    joins,
    leaves,
    names,
    parts,
    subs,
)
from pgtrickle.pipeline.plan.shapes import simplest


def statement(changed: Mapping[int, ChangedSource], *, is_plain: bool = False) -> Statement:
    """`is_plain`: old states are evaluated as they are, and not from new ones and changes."""
    return (
        Statement(changed, _shared_delta) if is_plain else Statement(changed, _shared_delta, asked_of_changes, answers)
    )


def delta(into: Statement, node: Node) -> list[str]:
    """Queries whose rows together are the change: the plan's columns in order, then the weight."""
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
            return _whole(into, node)
        case _:
            assert_never(node)


def _shared_delta(into: Statement, node: Node) -> str:
    if isinstance(node, Scan):
        change = into.changed[node.relation.relid]
        return into.share(f"{linear.window_rows(node, change, negate=False)} LIMIT {change.rows}", "d")
    listed = ", ".join(quote_ident(n) for n in (*names(node), "__pgt_w"))
    union = " UNION ALL ".join(f"({sql})" for sql in delta(into, node))
    return into.share(f"SELECT * FROM ({union}) AS q({listed})", "d")


def _linear(into: Statement, node: Scan | Select | UnionAll) -> list[str]:
    found = []
    for term in linear.deltas(node, into.changed):
        sql = linear.render(node, term).sql
        for name, rows in linear.shared(node, term).items():
            # Under a name that goes by the text: a query that stands in two places has the same changes in both.
            sql = sql.replace(name, into.share(rows, "d"))
        found.append(sql)
    return found


def _whole(into: Statement, node: Node) -> list[str]:
    return [
        f"SELECT q.*, 1 AS {W} FROM ({into.render(node, ALL_NEW)}) AS q",
        f"SELECT q.*, -1 AS {W} FROM ({into.render(node, ALL_OLD)}) AS q",
    ]


# -- row by row
# --------------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class NonlinearInput:
    """Something that a block reads and is not linear in: a part of FROM here, or one in a subquery of an expression.

    Of a subquery that takes nothing from the row, all parts are one unit: its answer is another one, or is not.
    """

    parts: tuple[FromItem, ...]
    condition: Sub | None  # the subquery that holds the parts
    in_where: bool = False

    def read(self, state: str) -> dict[int, str]:
        return {p.number: state for p in self.parts}


def _row_by_row(into: Statement, node: Block) -> list[str]:
    return [sql for block in parted(node) for sql in _row_by_row_of(into, block)]


def _row_by_row_of(into: Statement, node: Block) -> list[str]:
    straight, units = _split(into, node)
    old = _read(units, OLD)
    found = []
    for roles, sign in _terms(straight):
        view = View(NEW, {**old, **roles})
        found.append(into.block(node, view, sign=sign, asked=partial(keys_asked, into, node, view)).sql)
    for position, unit in enumerate(units):
        before = _read(units[:position], NEW) | _read(units[position + 1 :], OLD)
        conditions = _touched(into, node, unit, View(NEW, before))
        for state, sign in ((NEW, 1), (OLD, -1)):
            view = View(NEW, {**before, **unit.read(state)})
            asked = partial(_changed_groups, into, unit)
            found.append(into.block(node, view, conditions=conditions, sign=sign, asked=asked).sql)
    return found


def _changed_groups(into: Statement, unit: NonlinearInput, sub: Sub) -> str | None:
    """What the new and the old answer of the unit's subquery differ in. Rows that ask for others come and go."""
    return keys_changed(into, sub, unit.parts[0]) if sub is unit.condition and len(unit.parts) == 1 else None


def _read(units: Sequence[NonlinearInput], state: str) -> dict[int, str]:
    return {number: state for unit in units for number in unit.read(state)}


def _split(into: Statement, node: Block) -> tuple[list[FromItem], list[NonlinearInput]]:
    """The changed parts in which the block is linear, and what else it reads that has changed."""
    linear_in = [p for tree in node.trees for p in preserved(tree)]
    straight, units = [], []
    for part in parts(node):
        if part.node is None or not into.is_changed(part.node):
            continue
        if part in linear_in and not part.is_lateral and not free(part.node):
            straight.append(part)
        else:
            units.append(NonlinearInput((part,), None))
    for text, in_where in _expressions(node):
        for sub in subs(text):
            changed = tuple(p for p in below(sub.node) if p.node is not None and into.is_changed(p.node))
            if changed and is_alone(sub):
                units.append(NonlinearInput(changed, sub, in_where))
            else:
                units += [NonlinearInput((p,), sub, in_where) for p in changed]
    return straight, units


def _expressions(node: Block) -> list[tuple[tuple[str | Sub, ...], bool]]:
    """Texts with subqueries; True where a condition on the rows of FROM can stand for them."""
    conditions = [
        (j.on, j.kind == "JOIN" and set(leaves(j)) <= set(preserved(tree)))  # else its rows may stand there as NULLs
        for tree in node.trees
        for j in joins(tree)
        if j.on is not None
    ]
    found = [*((c.text, True) for c in node.columns), *conditions]
    if node.where is not None:
        found.append((node.where, True))
    found += [(p.call, False) for p in parts(node)]
    return found


def _terms(straight: Sequence[FromItem]) -> list[tuple[dict[int, str], int]]:
    """Which of the changed parts a term reads as their changes, and its sign: each set of them, or one by one."""
    numbers = [p.number for p in straight]
    if len(numbers) > MAX_TOGETHER:
        return [({**dict.fromkeys(numbers[:i], BEFORE), n: DELTA}, 1) for i, n in enumerate(numbers)]
    return [
        (dict.fromkeys(chosen, DELTA), 1 if size % 2 else -1)
        for size in range(1, len(numbers) + 1)
        for chosen in combinations(numbers, size)
    ]


def _touched(into: Statement, node: Block, unit: NonlinearInput, view: View) -> list[str]:
    if unit.condition is None:
        condition = touched_by_part(into, node, unit.parts[0], view)
    elif unit.in_where and is_alone(unit.condition):
        states = [View(view.default, {**view.special, **unit.read(state)}) for state in (NEW, OLD)]
        condition = touched_by_answer(into, node, unit.condition, states[0], states[1])
    elif unit.in_where:
        condition = touched_by_sub(into, node, unit.condition, unit.parts[0], view)
    else:
        condition = None
    return [condition] if condition is not None else []


# -- by region
# --------------------------------------------------------------------------------------------------------------


def _by_region(into: Statement, node: Block) -> list[str]:
    if (undone := invertible_groups(node)) is not None and not _reads_beside(into, node):
        return by_subtraction(into, undone, delta(into, undone.rows))
    keys = region_keys(into, node)
    if keys is None:
        return _whole(into, node)
    found = []
    for view, sign in ((ALL_NEW, 1), (ALL_OLD, -1)):
        for condition in among(node, keys):
            inner = into.block(node, view, conditions=[condition]).sql
            found.append(f"SELECT q.*, {sign} AS {W} FROM ({inner}) AS q")
    return found


def region_keys(into: Statement, node: Block) -> str | None:
    """The name of the regions' keys (__pgt_k0, ...) that changed rows belong to; None when it may be any."""
    assert node.region is not None
    if not node.region or _reads_beside(into, node):
        return None
    columns = tuple(OutputColumn(f"__pgt_k{i}", (k,)) for i, k in enumerate(node.region))
    rows = simplest(Block(columns, node.trees, node.where))
    listed = ", ".join(c.name for c in columns)
    union = " UNION ALL ".join(f"({sql})" for sql in delta(into, rows))
    return into.share(f"SELECT DISTINCT {listed} FROM ({union}) AS q({listed}, w)", "k")


def _reads_beside(into: Statement, node: Block) -> bool:
    """Whether a subquery over the regions (in the select list, HAVING, LIMIT) has changed."""
    over = [*(c.text for c in node.columns), node.tail, node.distinct_on or ()]
    return any(into.is_changed(s.node) for text in over for s in subs(text))


def _by_row_value(into: Statement, node: Distinct | SetOperation) -> list[str]:
    """DISTINCT, INTERSECT, EXCEPT: what becomes of a row depends on the rows that are equal to it."""
    width = len(names(node))
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
