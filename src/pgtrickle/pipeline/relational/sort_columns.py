"""Sort keys as Spark columns, in PostgreSQL's order."""

from __future__ import annotations

from collections.abc import Sequence

from pgtrickle.pipeline.expressions import json
from pgtrickle.pipeline.expressions.failures import inexact
from pgtrickle.pipeline.expressions.nodes import Node
from pgtrickle.pipeline.expressions.translate import column, native
from pgtrickle.pipeline.expressions.types import Column, Functions
from pgtrickle.pipeline.relational.algebra import SortKey


def sort_value(f: Functions, node: Node) -> Column:
    if node.type.name == "jsonb":
        return json.sort_key(f, column(node))
    if node.type.name != "opaque":
        return native(node)[0]
    # An array of integers: by its elements, NULL last, then by its length.
    text = column(node)
    plain = text.rlike(r"\A\{[^{}]*\}\z")
    inner = f.substring(text, f.lit(2), f.length(text) - 2)
    members = f.when(inner == "", f.array().cast("array<string>")).otherwise(f.split(inner, ","))
    keys = f.transform(
        members, lambda m: f.struct((m == "NULL").alias("n"), f.when(m != "NULL", m).cast("bigint").alias("v"))
    )
    return f.when(plain, keys).when(text.isNotNull(), inexact(f, "an array that is ordered has several dimensions"))


def ordering(f: Functions, order: Sequence[SortKey]) -> list[Column]:
    made = []
    for sort in order:
        value = sort_value(f, sort.node)
        if sort.is_descending:
            made.append(value.desc_nulls_first() if sort.has_nulls_first else value.desc_nulls_last())
        else:
            made.append(value.asc_nulls_first() if sort.has_nulls_first else value.asc_nulls_last())
    return made
