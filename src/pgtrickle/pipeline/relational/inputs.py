"""The relations that a query reads, as input of the compiler. Pure."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from pgtrickle.pipeline.expressions.types import PgType


@dataclass(frozen=True, slots=True)
class InputColumn:
    """A column of a relation. `type` None: Spark cannot represent it, and `label` is its type in SQL.

    `native`: a numeric(p,s) that is stored as a decimal.
    """

    name: str
    type: PgType | None
    native: bool = False
    label: str = ""


# Looks up a relation by schema and name: its columns, or the text of its query if it is a view.
Catalog = Callable[[str, str], "Sequence[InputColumn] | str"]
