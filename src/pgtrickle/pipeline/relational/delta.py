"""The delta of a query as relational algebra: rows with weights, from the changes and both states of its inputs. Pure.

The rules of docs/explain/delta-rules.md, applied to operators instead of text. Correlated subqueries are joins here, so
each operator has one rule:

* row by row (filter, projection, functions, inner joins, UNION ALL): the changes pass through the operator. Of a join,
  d(A join B) = dA join B' + A join dB, with ' for the new state.
* outer joins, semijoins, antijoins: changes of the preserved side pass through; for changes of the other side, the
  rows of the preserved side that match one: new minus old.
* by key (groups, DISTINCT, partitions of windows and LIMIT, INTERSECT, EXCEPT): new minus old of the keys of changed
  rows.
* whole, where no key is known: new minus old.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from pgtrickle.pipeline.expressions.nodes import Constant, Node, Reference
from pgtrickle.pipeline.expressions.types import INT8
from pgtrickle.pipeline.relational.algebra import (
    Aggregate,
    AtMostOne,
    Distinct,
    Filter,
    Generate,
    Join,
    Output,
    Project,
    Relation,
    Scan,
    SetOperation,
    Top,
    UnionAll,
    Window,
    children,
    columns,
)
from pgtrickle.pipeline.relational.naming import Names
from pgtrickle.pipeline.relational.states import NEW, OLD, Source, States, reads_any

CHANGES = "changes"
WEIGHT = "__pgt_w"
MOST_OPERATORS = 200  # of a delta; Spark gets its plan as a tree, without shared subtrees


class Deltas:
    """`changed`: the relations that have changes. A delta has the columns of its relation, and `weight`."""

    def __init__(self, names: Names, changed: frozenset[Source]) -> None:
        self.names = names
        self.changed = changed
        self.weight = names.column(INT8)
        self.at = States().at
        self._made: dict[int, tuple[Relation, Relation]] = {}

    def smallest(self, relation: Relation) -> Relation | None:
        """The delta by the rules, or the whole new result minus the old one if that plan has too many operators: each
        correlated subquery repeats the outer rows, and each rule repeats its operands. None: no change."""
        delta = self.of(relation)
        if delta is None or operators(delta) <= MOST_OPERATORS:
            return delta
        return self._difference(relation, relation)

    def of(self, relation: Relation) -> Relation | None:
        """The delta by the rules; None if the relation does not change."""
        if not reads_any(relation, self.changed):
            return None
        if id(relation) not in self._made:
            self._made[id(relation)] = (relation, self._of(relation))
        return self._made[id(relation)][1]

    def _of(self, relation: Relation) -> Relation:
        match relation:
            case Scan():
                return replace(relation, columns=(*relation.columns, (WEIGHT, self.weight)), state=CHANGES)
            case Filter() | Generate():
                return replace(relation, child=self._child(relation.child))
            case Project():
                kept = Output(self.weight, self.weight)
                return replace(relation, child=self._child(relation.child), outputs=(*relation.outputs, kept))
            case Join():
                return self._join(relation)
            case UnionAll():
                return self._union(relation)
            case Aggregate():
                return self._by_key(relation, [k.node for k in relation.keys])
            case Distinct():
                return self._by_key(relation, list(columns(relation.child)))
            case Top() | AtMostOne():
                return self._by_key(relation, list(relation.partition))
            case Window():
                return self._by_key(relation, _common([w.partition for _, w in relation.calls]))
            case SetOperation():
                return self._set_operation(relation)
            case _:
                return self._difference(relation, relation)

    def _child(self, relation: Relation) -> Relation:
        delta = self.of(relation)
        assert delta is not None, "an operator changes only if what it reads does"
        return delta

    # -- joins

    def _join(self, join: Join) -> Relation:
        match join.kind:
            case "inner":
                parts = self._inner(join)
            case "right":
                parts = self._kept(join, left=join.right, right=join.left)
            case "full":
                parts = self._full(join)
            case _:
                parts = self._kept(join, left=join.left, right=join.right)
        return self._united(parts, columns(join))

    def _inner(self, join: Join) -> list[Relation]:
        """d(A join B) = dA join B' + A join dB"""
        left, right = self.of(join.left), self.of(join.right)
        parts: list[Relation] = []
        if left is not None:
            parts.append(replace(join, left=left, right=self.at(join.right, NEW)))
        if right is not None:
            parts.append(replace(join, left=self.at(join.left, OLD), right=right))
        return parts

    def _kept(self, join: Join, left: Relation, right: Relation) -> list[Relation]:
        """d(A op B) = dA op B' + (A semijoin dB) op B' - (A semijoin dB) op B

        `left`: A, the preserved side (left, right) or the tested one (semi, anti).
        """
        changes, others = self.of(left), self.of(right)
        parts: list[Relation] = []
        if changes is not None:
            parts.append(self._sided(join, changes, self.at(right, NEW)))
        if others is not None:
            affected = replace(join, kind="semi", left=self.at(left, OLD), right=others)
            parts += [
                self._weighed(self._sided(join, affected, self.at(right, NEW)), 1),
                self._weighed(self._sided(join, affected, self.at(right, OLD)), -1),
            ]
        return parts

    def _sided(self, join: Join, kept: Relation, other: Relation) -> Join:
        return replace(join, left=other, right=kept) if join.kind == "right" else replace(join, left=kept, right=other)

    def _full(self, join: Join) -> list[Relation]:
        """d(A full join B) = d(A left join B) + d(B antijoin A, with NULLs for the columns of A)"""
        left = self._kept(replace(join, kind="left"), join.left, join.right)
        anti = Join("anti", join.right, join.left, join.condition, join.same)
        nulls = [Output(c, Constant(None, c.type)) for c in columns(join.left)]
        alone = self.of(Project(anti, (*nulls, *(Output(c, c) for c in columns(join.right)))))
        assert alone is not None
        return [*left, alone]

    # -- unions and differences

    def _union(self, union: UnionAll) -> Relation:
        """d(A union all B) = dA + dB"""
        parts: list[Relation] = []
        for branch in union.branches:
            delta = self.of(branch)
            if delta is not None:
                shown = zip(union.columns, columns(branch), strict=True)
                outputs = (*(Output(c, n) for c, n in shown), Output(self.weight, self.weight))
                parts.append(Project(delta, outputs))
        return self._united(parts, union.columns)

    def _united(self, parts: Sequence[Relation], shown: tuple[Reference, ...]) -> Relation:
        """The parts with the same columns in the same order."""
        outputs = (*shown, self.weight)
        made = tuple(Project(part, tuple(Output(c, c) for c in outputs)) for part in parts)
        return made[0] if len(made) == 1 else UnionAll(made, outputs)

    def _weighed(self, relation: Relation, weight: int) -> Relation:
        outputs = tuple(Output(c, c) for c in columns(relation))
        return Project(relation, (*outputs, Output(self.weight, Constant(weight, INT8))))

    def _difference(self, new: Relation, old: Relation) -> Relation:
        """dQ = Q' - Q"""
        parts = [self._weighed(self.at(new, NEW), 1), self._weighed(self.at(old, OLD), -1)]
        return self._united(parts, columns(new))

    # -- by key

    def _by_key(self, relation: Aggregate | Distinct | Top | AtMostOne | Window, keys: Sequence[Node]) -> Relation:
        """dQ = Q'(rows with the keys of changed rows) - Q(rows with these keys)"""
        if not keys:
            return self._difference(relation, relation)
        changed_keys = self._keys(self._child(relation.child), keys)
        sides = [
            replace(relation, child=self._with_changed_keys(self.at(relation.child, state), keys, changed_keys))
            for state in (NEW, OLD)
        ]
        return self._united([self._weighed(sides[0], 1), self._weighed(sides[1], -1)], columns(relation))

    def _keys(self, delta: Relation, keys: Sequence[Node]) -> Project | Distinct:
        """The keys of changed rows, under new names."""
        return Distinct(Project(delta, tuple(self.names.output(k) for k in keys)))

    def _with_changed_keys(self, rows: Relation, keys: Sequence[Node], changed_keys: Relation) -> Relation:
        """The rows that have one of the changed keys; NULL equals NULL."""
        copied, _ = self.names.copy(changed_keys)
        return Join("semi", rows, copied, None, tuple(zip(keys, columns(copied), strict=True)))

    def _set_operation(self, relation: SetOperation) -> Relation:
        """d(A op B) = (A' op B') - (A op B), each over the rows that equal a row of dA or dB."""
        changed: list[Relation] = []
        for side in (relation.left, relation.right):
            delta = self.of(side)
            if delta is not None:
                shown = zip(relation.columns, columns(side), strict=True)
                changed.append(Project(delta, tuple(Output(c, n) for c, n in shown)))
        rows = changed[0] if len(changed) == 1 else UnionAll(tuple(changed), relation.columns)
        changed_keys = Distinct(rows)
        sides = []
        for state in (NEW, OLD):
            left, right = (
                self._with_changed_keys(self.at(side, state), columns(side), changed_keys)
                for side in (relation.left, relation.right)
            )
            sides.append(replace(relation, left=left, right=right))
        return self._united([self._weighed(sides[0], 1), self._weighed(sides[1], -1)], relation.columns)


def operators(relation: Relation) -> int:
    """The number of operators of the plan as a tree."""
    known: dict[int, int] = {}

    def count(part: Relation) -> int:
        if id(part) not in known:
            known[id(part)] = 1 + sum(count(child) for child in children(part))
        return known[id(part)]

    return count(relation)


def _common(partitions: Sequence[tuple[Node, ...]]) -> list[Node]:
    """Expressions that all PARTITION BY clauses contain."""
    first, *others = partitions
    return [n for n in first if all(n in other for other in others)]
