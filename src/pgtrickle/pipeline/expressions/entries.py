"""An entry of the allow-list."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from pgtrickle.pipeline.expressions.types import PgType
from pgtrickle.pipeline.expressions.values import Build, Scale

Shape = Callable[[Sequence[PgType]], PgType]


@dataclass(frozen=True, slots=True)
class Entry:
    """One function, operator, cast or construct over given types.

    `shape` computes the result type from the argument types if the name alone does not determine it. `parameter`: a
    constant that is part of the entry (a field of EXTRACT, the digits of round), as written in SQL. `constants`:
    positions of arguments that must be constants. `repeats`: the builder uses an argument more than once, so arguments
    are bound first. `may_fail`: the entry fails for some values. `reads`: it depends on the characters of a text, which
    requires a deterministic collation. `orders`: it depends on the order of texts, which requires collation C. `iso`:
    requires DateStyle ISO. `utc`: requires TimeZone UTC.
    """

    kind: str  # operator, function, cast, construct
    name: str
    arguments: tuple[str, ...]
    result: str
    build: Build | None = None  # None: a construct, which `translate` builds
    shape: Shape | None = None
    scale: Scale | None = None
    parameter: str | None = None
    constants: frozenset[int] = frozenset()
    repeats: bool = False
    may_fail: bool = False
    reads: bool = False
    orders: bool = False
    iso: bool = False
    utc: bool = False
    note: str = ""

    @property
    def key(self) -> tuple[str, str, tuple[str, ...], str | None]:
        return self.kind, self.name, self.arguments, self.parameter

    @property
    def label(self) -> str:
        """The name of the entry in messages and in the reference."""
        if self.kind == "cast":
            return f"cast from {self.arguments[0]} to {self.result}"
        return f"{self.name} ({', '.join(self.arguments)})"
