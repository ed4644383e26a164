"""jsonb as text: elements and order of arrays that contain no arrays or objects."""

from __future__ import annotations

from pgtrickle.pipeline.expressions.failures import inexact, refused
from pgtrickle.pipeline.expressions.numbers import parsed
from pgtrickle.pipeline.expressions.types import NUMERIC, Column, Functions

_STRING = r'"(?:[^"\\]++|\\.)*+"'
_FLAT = rf'\A\[(?:[^\[\]{{}}"]++|{_STRING})*+\]\z'
_MEMBER = rf'{_STRING}|[^,\[\]\s"]++'


def members(f: Functions, text: Column) -> Column:
    """The texts of an array's elements; NULL for NULL."""
    elements = f.regexp_extract_all(text, f.lit(_MEMBER), f.lit(0))
    nested = inexact(f, "a JSON array with arrays or objects in it")
    other = refused(f, "cannot extract elements from a value that is not a JSON array")
    return f.when(text.rlike(_FLAT), elements).when(text.startswith("["), nested).when(text.isNotNull(), other)


def plain(f: Functions, member: Column) -> Column:
    """An element as text: a string without quotes, null as NULL."""
    unquoted = f.from_json(f.concat(f.lit("["), member, f.lit("]")), f.lit("array<string>")).getItem(0)
    return f.when(member.startswith('"'), unquoted).when(member != "null", member)


def sort_key(f: Functions, text: Column) -> Column:
    """In PostgreSQL's order: the shorter first; then null, strings, numbers, booleans."""

    def key(member: Column) -> Column:
        is_string, is_bool = member.startswith('"'), member.isin("true", "false")
        rank = f.when(member == "null", f.lit(0)).when(is_string, f.lit(1)).when(is_bool, f.lit(3)).otherwise(f.lit(2))
        number = f.when(rank == 2, parsed(f, member, NUMERIC)[0])
        return f.struct(rank.alias("r"), number.alias("n"), f.when(rank != 2, plain(f, member)).alias("s"))

    checked = f.when(text.startswith("["), text).when(
        text.isNotNull(), inexact(f, "the order of JSON values that are not arrays")
    )
    elements = members(f, checked)
    return f.when(text.isNotNull(), f.struct(f.size(elements).alias("n"), f.transform(elements, key).alias("m")))
