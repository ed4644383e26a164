"""What an entry of the allow-list is."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from pgtrickle.pipeline.expressions.types import PgType
from pgtrickle.pipeline.expressions.values import Build, Scale

Shape = Callable[[Sequence[PgType]], PgType]


@dataclass(frozen=True, slots=True)
class Entry:
    """One function, operator, cast or construct over given types.

    `shape` gives the result's type from the arguments' where the name alone does not. `parameter`: a constant that is
    part of the entry (a field of EXTRACT, the digits of round), as it stands in SQL. `constants`: positions that must
    be constants. `repeats`: the builder names an argument more than once, so each is computed before. `may_fail`: some
    values are refused. `reads`: looks at the characters of a text, which takes a deterministic collation. `orders`: by
    their order, which takes collation C.
    """

    kind: str  # operator, function, cast, construct
    name: str
    arguments: tuple[str, ...]
    result: str
    build: Build | None = None  # None: a construct, which `translate` knows
    shape: Shape | None = None
    scale: Scale | None = None
    parameter: str | None = None
    constants: frozenset[int] = frozenset()
    repeats: bool = False
    may_fail: bool = False
    reads: bool = False
    orders: bool = False
    note: str = ""

    @property
    def key(self) -> tuple[str, str, tuple[str, ...], str | None]:
        return self.kind, self.name, self.arguments, self.parameter

    @property
    def label(self) -> str:
        """As it is named in messages and in the reference."""
        if self.kind == "cast":
            return f"cast from {self.arguments[0]} to {self.result}"
        return f"{self.name} ({', '.join(self.arguments)})"
