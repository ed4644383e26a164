"""ORDER BY: sort keys with PostgreSQL's position of NULLs. Pure."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from sqlglot import exp

from pgtrickle.errors import SparkUnsupportedError
from pgtrickle.pipeline.expressions.nodes import Node
from pgtrickle.pipeline.expressions.types import BY_CODE_POINT, default_collation
from pgtrickle.pipeline.relational.aggregates import ordered
from pgtrickle.pipeline.relational.algebra import SortKey

ARRAYS = ("smallint[]", "integer[]", "bigint[]")  # ordered by their elements


def sort_keys(trees: Sequence[exp.Expr], node: Callable[[exp.Expr], Node]) -> tuple[SortKey, ...]:
    keys = []
    for tree in trees:
        if not isinstance(tree, exp.Ordered) or tree.args.get("with_fill"):
            raise SparkUnsupportedError("ORDER BY", tree.sql("postgres")[:80])
        value = node(tree.this)
        if value.type.name == "jsonb" and default_collation.get() not in BY_CODE_POINT:
            raise SparkUnsupportedError("ORDER BY (jsonb)", f"under collation {default_collation.get() or 'default'}")
        if value.type.name != "jsonb" and value.type.label not in ARRAYS:
            ordered(value.type, "ORDER BY")
        is_descending = bool(tree.args.get("desc"))
        keys.append(SortKey(value, is_descending, _nulls_first(tree, is_descending=is_descending)))
    return tuple(keys)


def _nulls_first(tree: exp.Ordered, *, is_descending: bool) -> bool:
    """The parser adds PostgreSQL's defaults: first for DESC, last otherwise."""
    written = tree.args.get("nulls_first")
    return is_descending if written is None else bool(written)
