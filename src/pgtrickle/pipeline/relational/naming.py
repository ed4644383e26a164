"""Unique names of the columns of a compiled query. Pure."""

from __future__ import annotations

from pgtrickle.pipeline.expressions.nodes import Node, Reference
from pgtrickle.pipeline.expressions.types import PgType
from pgtrickle.pipeline.relational.algebra import Output, Project, Relation, columns


class Names:
    def __init__(self) -> None:
        self._last = 0

    def column(self, type_: PgType, *, native: bool = False) -> Reference:
        self._last += 1
        return Reference(f"c{self._last}", type_, native and type_.name == "numeric")

    def output(self, node: Node) -> Output:
        """A new column for the expression: a numeric that is only passed on keeps its form."""
        native = node.native if isinstance(node, Reference) else True
        return Output(self.column(node.type, native=native), node)

    def copy(self, relation: Relation) -> tuple[Project, dict[str, Reference]]:
        """A copy of the relation with new names, and the new column of each old one."""
        outputs = tuple(self.output(c) for c in columns(relation))
        return Project(relation, outputs), {c.name: o.column for c, o in zip(columns(relation), outputs, strict=True)}
