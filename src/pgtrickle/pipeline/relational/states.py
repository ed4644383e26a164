"""Relations in the old or the new state. Pure."""

from __future__ import annotations

from dataclasses import replace
from functools import lru_cache

from pgtrickle.pipeline.relational.algebra import (
    Inline,
    Join,
    OneRow,
    Recursive,
    Relation,
    Scan,
    SetOperation,
    UnionAll,
    Working,
    children,
)

OLD, NEW = "old", "new"
Source = tuple[str, str]  # schema and name of a relation


class States:
    """A subtree that a relation shares is also shared in its states."""

    def __init__(self) -> None:
        # With the relation: the reference keeps its id() unique.
        self._made: dict[tuple[int, str], tuple[Relation, Relation]] = {}

    def at(self, relation: Relation, state: str) -> Relation:
        """The relation over inputs at `state`."""
        key = (id(relation), state)
        if key not in self._made:
            self._made[key] = (relation, self._at(relation, state))
        return self._made[key][1]

    def _at(self, relation: Relation, state: str) -> Relation:
        match relation:
            case Scan():
                return replace(relation, state=state)
            case OneRow() | Inline() | Working():
                return relation
            case Join() | SetOperation():
                return replace(relation, left=self.at(relation.left, state), right=self.at(relation.right, state))
            case UnionAll():
                return replace(relation, branches=tuple(self.at(branch, state) for branch in relation.branches))
            case Recursive():
                return replace(relation, first=self.at(relation.first, state), step=self.at(relation.step, state))
            case _:
                return replace(relation, child=self.at(relation.child, state))


@lru_cache(maxsize=8192)
def reads_any(relation: Relation, sources: frozenset[Source]) -> bool:
    if isinstance(relation, Scan):
        return (relation.schema, relation.name) in sources
    return any(reads_any(child, sources) for child in children(relation))
