"""Aggregates as Spark columns, with PostgreSQL's results."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from pgtrickle.pipeline.expressions.failures import inexact
from pgtrickle.pipeline.expressions.nodes import Constant, Node, Reference
from pgtrickle.pipeline.expressions.translate import column, key, native
from pgtrickle.pipeline.expressions.types import TEXT, Column, Functions, spark_type
from pgtrickle.pipeline.relational import integer_sums
from pgtrickle.pipeline.relational.algebra import AggregateCall, SortKey
from pgtrickle.pipeline.relational.sort_columns import sort_value


def aggregate(f: Functions, target: Reference, call: AggregateCall) -> list[Column]:
    """The aggregate as the target column, and the column of its display scale if it has one."""
    names = [n for n in (target.name, target.scale_name) if n is not None]
    return [c.alias(n) for c, n in zip(parts(f, target, call), names, strict=True)]


def parts(
    f: Functions, target: Reference, call: AggregateCall, *, keep: Callable[[Column], Column] | None = None
) -> list[Column]:
    """`keep` is applied to each Spark function: OVER, for a window function."""
    wrap = keep if keep is not None else _same
    if call.name == "count":
        return [wrap(_count(f, call))]
    if call.name == "any_value":
        return [wrap(f.first(c)) for c in _columns(f, target, call.arguments[0])]
    if call.name in ("percentile_disc", "mode"):
        return _of_sorted(f, target, call)
    value, scale = native(call.arguments[0])
    if call.where is not None:
        value = f.when(column(call.where), value)
    if target.type.name == "numeric":
        if keep is None and target.scale_name is None and (total := integer_sums.total(f, call)) is not None:
            return [total.cast(target.type.decimal)]
        return _numeric(f, target, call, value, scale, wrap)
    match call.name:
        case "sum":
            made = f.sum_distinct(value) if call.is_distinct else f.sum(value)
        case "min":
            made = f.min(value)
        case "max":
            made = f.max(value)
        case "bool_and":
            made = f.bool_and(value)
        case "bool_or":
            made = f.bool_or(value)
        case "bit_and" | "bit_or" | "bit_xor":
            made = getattr(f, call.name)(value)
        case "string_agg":
            return [_string_agg(f, call, value)]
        case "jsonb_agg":
            return [_jsonb_agg(f, call, value)]
        case "array_to_string":
            return [_array_to_string(f, call, value)]
        case _:
            raise AssertionError(call.name)
    return [wrap(made).cast(spark_type(target.type))]


def _same(made: Column) -> Column:
    return made


def _columns(f: Functions, target: Reference, node: Node) -> list[Column]:
    """A value, unchanged, in the form of the target."""
    if not target.native:
        return [column(node)]
    value, scale = native(node)
    return [value] if target.scale_name is None else [value, scale if scale is not None else f.lit(node.type.scale)]


def _count(f: Functions, call: AggregateCall) -> Column:
    counted = f.lit(1) if not call.arguments else (key if call.is_distinct else _present)(call.arguments[0])
    if call.where is not None:
        counted = f.when(column(call.where), counted)
    return f.count_distinct(counted) if call.is_distinct else f.count(counted)


def _present(node: Node) -> Column:
    """A column that is NULL if the value is, and fails if the value fails."""
    return column(replace(node, type=TEXT)) if isinstance(node, Reference) else native(node)[0]


def _numeric(
    f: Functions,
    target: Reference,
    call: AggregateCall,
    value: Column,
    scale: Column | None,
    wrap: Callable[[Column], Column],
) -> list[Column]:
    decimal = target.type.decimal
    shown = scale if scale is not None else f.lit(call.arguments[0].type.scale)
    if call.name == "sum":
        # The largest display scale of the values.
        wide = (
            value.cast(call.arguments[0].type.decimal)
            if call.arguments[0].type.name == "numeric"
            else value.cast("decimal(19,0)")
        )
        made = [wrap(f.sum_distinct(wide) if call.is_distinct else f.sum(wide)).cast(decimal)]
        return made if target.scale_name is None else [*made, wrap(f.max(f.when(value.isNotNull(), shown)))]
    chosen = {"min": f.min, "max": f.max}[call.name]
    if target.scale_name is None:
        return [wrap(chosen(value)).cast(decimal)]
    # Of equal values PostgreSQL returns the last one it reads, in an undefined order.
    pair = wrap(chosen(f.when(value.isNotNull(), f.struct(value.alias("v"), shown.alias("s")))))
    return [pair.getField("v").cast(decimal), pair.getField("s")]


def _string_agg(f: Functions, call: AggregateCall, value: Column) -> Column:
    delimiter = call.arguments[1]
    assert isinstance(delimiter, Constant)
    rows = _sorted(f, call, [value.alias("f0")], value.isNotNull())
    texts = f.transform(rows, lambda row: row.getField("f0"))
    joined = f.array_join(texts, "" if delimiter.value is None else str(delimiter.value))
    return f.when(f.size(rows) > 0, joined)


def _array_to_string(f: Functions, call: AggregateCall, value: Column) -> Column:
    """NULLs are replaced by the third argument, or omitted."""
    delimiter, shown = call.parameters
    rows = _sorted(f, call, [value.alias("f0")], f.lit(True) if call.where is None else column(call.where))
    texts = f.transform(rows, lambda row: row.getField("f0"))
    joined = f.array_join(texts, str(delimiter)) if shown is None else f.array_join(texts, str(delimiter), str(shown))
    return f.when((f.size(rows) > 0) & f.lit(delimiter is not None), joined)


def _jsonb_agg(f: Functions, call: AggregateCall, value: Column) -> Column:
    """The text of the array. Both engines escape the same characters, but write control characters differently."""
    rows = _sorted(f, call, [value.alias("f0")], f.lit(True) if call.where is None else column(call.where))

    def member(row: Column) -> Column:
        text = row.getField("f0")
        if call.parameters == ("text",) or call.parameters == ("varchar",):
            quoted = f.to_json(f.array(text))
            unsupported = inexact(f, "a control character in JSON")
            text = f.when(text.rlike(r"[\x00-\x07\x0B\x0E-\x1F]"), unsupported).otherwise(
                f.substring(quoted, f.lit(2), f.length(quoted) - 2)
            )
        return f.coalesce(f.when(row.getField("f0").isNotNull(), text), f.lit("null"))

    joined = f.concat(f.lit("["), f.array_join(f.transform(rows, member), ", "), f.lit("]"))
    return f.when(f.size(rows) > 0, joined)


def _of_sorted(f: Functions, target: Reference, call: AggregateCall) -> list[Column]:
    """percentile_disc and mode: one of the sorted values."""
    value, scale = native(call.order[0].node)
    shown = scale if scale is not None else f.lit(call.order[0].node.type.scale)
    is_included = value.isNotNull() if call.where is None else value.isNotNull() & column(call.where)
    rows = _sorted(f, call, [value.alias("f0"), shown.alias("f1")], is_included)
    if call.name == "percentile_disc":
        (share,) = call.parameters
        place = f.greatest(f.ceil(f.lit(share) * f.size(rows).cast("double")), f.lit(1)).cast("int")
        chosen = f.element_at(rows, place)
    else:  # the first of the most frequent values
        values = f.transform(rows, lambda row: row.getField("f0"))
        counts = f.transform(values, lambda v: f.size(f.filter(values, lambda w: w == v)))
        chosen = f.element_at(rows, f.array_position(counts, f.array_max(counts)).cast("int"))
    result = f.when(f.size(rows) > 0, chosen)
    made = [result.getField("f0")]
    if target.type.name == "numeric":
        made[0] = made[0].cast(target.type.decimal)
    return made if target.scale_name is None else [*made, result.getField("f1")]


def _sorted(f: Functions, call: AggregateCall, fields: list[Column], is_included: Column) -> Column:
    """The input rows in the aggregate's order: an array of structs."""
    keys = [sort_value(f, sort.node).alias(f"k{i}") for i, sort in enumerate(call.order)]
    row = f.when(is_included, f.struct(*fields, *keys))
    collected = f.collect_set(row) if call.is_distinct else f.collect_list(row)
    return f.array_sort(collected, lambda a, b: _compared(f, call.order, a, b))


def _compared(f: Functions, order: tuple[SortKey, ...], a: Column, b: Column) -> Column:
    result = f.lit(0)
    for i, sort in reversed(list(enumerate(order))):
        x, y = a.getField(f"k{i}"), b.getField(f"k{i}")
        less, null = (1, -1) if sort.is_descending else (-1, 1), -1 if sort.has_nulls_first else 1
        result = (
            f.when(x.isNull() & y.isNull(), result)
            .when(x.isNull(), f.lit(null))
            .when(y.isNull(), f.lit(-null))
            .when(x < y, f.lit(less[0]))
            .when(x > y, f.lit(less[1]))
            .otherwise(result)
        )
    return result
