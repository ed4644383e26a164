"""ON: the condition of a join, with its subqueries. Pure."""

from __future__ import annotations

from sqlglot import exp

from pgtrickle.errors import SparkUnsupportedError
from pgtrickle.pipeline.expressions.nodes import references
from pgtrickle.pipeline.relational.algebra import Distinct, Join, Output, Project, Relation, columns, free, reads
from pgtrickle.pipeline.relational.scalars import Scalars
from pgtrickle.pipeline.relational.scopes import Context, Scope
from pgtrickle.pipeline.relational.unnesting import dependent_join


class Conditions:
    def __init__(self, context: Context, scope: Scope) -> None:
        self.context = context
        self.scope = scope

    def join(self, kind: str, left: Relation, right: Relation, on: exp.Expr) -> Relation:
        names = self.context.names
        if kind == "inner":
            scalars = Scalars(self.context, self.scope, dependent_join(names, kind, left, right, None))
            if on.find(exp.Query) is None:
                return dependent_join(names, kind, left, right, scalars.condition(on))
            scalars.filter(on)
            return scalars.relation
        if on.find(exp.Query) is None:
            scalars = Scalars(self.context, self.scope, left)
            return dependent_join(names, kind, left, right, scalars.condition(on))
        return self._outer(kind, left, right, on)

    def _outer(self, kind: str, left: Relation, right: Relation, on: exp.Expr) -> Relation:
        """Joins a subquery to the side that it reads, which adds a column and changes no row."""
        of_left, of_right = ({c.name for c in columns(side)} for side in (left, right))
        if free(right) & of_left:
            raise SparkUnsupportedError("a subquery in ON of an outer join with LATERAL")
        candidate = Scalars(self.context, self.scope, right)
        condition = candidate.condition(on)
        if not free(candidate.relation) & of_left:
            return Join(kind, left, candidate.relation, condition)
        candidate = Scalars(self.context, self.scope, left)
        condition = candidate.condition(on)
        if not free(candidate.relation) & of_right:
            return Join(kind, candidate.relation, right, condition)
        if kind == "full":
            raise SparkUnsupportedError("a subquery in ON of a full join", "it reads both sides")
        return self._by_pairs(kind, left, right, on)

    def _by_pairs(self, kind: str, left: Relation, right: Relation, on: exp.Expr) -> Relation:
        """Evaluates the condition for each distinct pair of the values that it reads, and joins the pairs to the
        nullable side."""
        names = self.context.names
        pairs = Join("inner", left, right)
        candidate = Scalars(self.context, self.scope, pairs)
        read = references(candidate.condition(on)) | reads(candidate.relation)
        needed = tuple(c for c in columns(pairs) if c.name in read)
        distinct = Distinct(Project(pairs, tuple(Output(c, c) for c in needed)))
        scalars = Scalars(self.context, self.scope, distinct)
        scalars.filter(on)
        copied, new_columns = names.copy(Project(scalars.relation, tuple(Output(c, c) for c in needed)))
        inner = right if kind == "left" else left
        own = {c.name for c in columns(inner)}
        near = tuple((c, new_columns[c.name]) for c in needed if c.name in own)
        far = tuple((c, new_columns[c.name]) for c in needed if c.name not in own)
        chosen = Join("inner", inner, copied, None, near)
        return Join(kind, left, chosen, None, far) if kind == "left" else Join(kind, chosen, right, None, far)
