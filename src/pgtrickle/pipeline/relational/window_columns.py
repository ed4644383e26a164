"""Window functions as Spark columns, with PostgreSQL's results."""

from __future__ import annotations

from typing import Any

from pgtrickle.pipeline.expressions.nodes import Constant, Node, Reference
from pgtrickle.pipeline.expressions.translate import column, key, native
from pgtrickle.pipeline.expressions.types import Column, Functions, spark_type
from pgtrickle.pipeline.relational.aggregate_columns import parts
from pgtrickle.pipeline.relational.algebra import WindowCall
from pgtrickle.pipeline.relational.sort_columns import ordering

_RANKS = ("row_number", "rank", "dense_rank", "percent_rank", "cume_dist")


def over(f: Functions, target: Reference, call: WindowCall) -> list[Column]:
    """The function as the target column, and the column of its display scale if it has one."""
    window = _window(f, call)
    names = [n for n in (target.name, target.scale_name) if n is not None]
    name = call.call.name
    if call.exclude or name == "string_agg":
        made = _of_collected(f, target, call, window)
    elif name in _RANKS:
        made = [getattr(f, name)().over(window).cast(spark_type(target.type))]
    elif name == "ntile":
        (count,) = call.call.arguments
        assert isinstance(count, Constant)
        made = [f.ntile(count.value).over(window).cast("int")]
    elif name in ("lag", "lead", "first_value", "last_value", "nth_value"):
        made = _of_another_row(f, target, call, window)
    else:
        made = parts(f, target, call.call, keep=lambda c: c.over(window))
    return [c.alias(n) for c, n in zip(made, names, strict=True)]


def _window(f: Functions, call: WindowCall) -> Any:
    from pyspark.sql import Window

    order = ordering(f, call.order)
    window = Window.partitionBy(*(key(n) for n in call.partition))
    if order:
        window = window.orderBy(*order)
    elif call.call.name not in ("first_value", "last_value", "nth_value") and not call.call.arguments:
        window = window.orderBy(f.lit(0)) if call.call.name != "count" else window
    elif call.call.name in ("lag", "lead", "ntile", "nth_value"):
        window = window.orderBy(f.lit(0))
    if call.frame is None:
        return window
    start = Window.unboundedPreceding if call.frame.start is None else call.frame.start
    end = Window.unboundedFollowing if call.frame.end is None else call.frame.end
    if call.frame.unit == "ROWS":
        return window.rowsBetween(start, end)
    return window.rangeBetween(start, end)


def _of_another_row(f: Functions, target: Reference, call: WindowCall, window: Any) -> list[Column]:
    """The value of another row, together with its display scale."""
    arguments = call.call.arguments
    fields = _fields(f, target, arguments[0])
    fields_of_row = f.struct(*fields)
    number = arguments[1].value if len(arguments) > 1 and isinstance(arguments[1], Constant) else 1
    match call.call.name:
        case "lag" | "lead":
            row = getattr(f, call.call.name)(fields_of_row, number).over(window)
            if len(arguments) == 3:
                row = f.coalesce(row, f.struct(*_fields(f, target, arguments[2])))
        case "nth_value":
            row = f.nth_value(fields_of_row, number).over(window)
        case name:
            row = getattr(f, name)(fields_of_row).over(window)
    return [row.getField(f"f{i}") for i in range(len(fields))]


def _fields(f: Functions, target: Reference, node: Node) -> list[Column]:
    if not target.native:
        return [column(node).alias("f0")]
    value, scale = native(node)
    made = [value.cast(target.type.decimal).alias("f0")]
    if target.scale_name is not None:
        shown = scale if scale is not None else f.lit(node.type.scale)
        made.append(shown.cast("int").alias("f1"))
    return made


def _of_collected(f: Functions, target: Reference, call: WindowCall, window: Any) -> list[Column]:
    """Over the rows of the frame as an array, from which EXCLUDE removes some."""
    inner = call.call
    argument = inner.arguments[0] if inner.arguments else None
    value, scale = (f.lit(1), None) if argument is None else native(argument)
    shown = f.lit(argument.type.scale if argument is not None else 0) if scale is None else scale
    is_included = f.lit(True) if inner.where is None else f.coalesce(column(inner.where), f.lit(False))
    fields = [value.alias("f0"), shown.cast("int").alias("f1"), is_included.alias("taken")]
    number, peers = (f.col(m.name) for m in call.marks) if call.marks else (f.lit(0), f.lit(0))
    rows = f.collect_list(f.struct(*fields, number.alias("number"), peers.alias("peers"))).over(window)
    if call.exclude:
        rows = f.filter(rows, lambda r: _is_kept(call.exclude, r, number, peers))
    if inner.name in ("first_value", "last_value", "nth_value"):
        return _chosen(f, target, call, rows)
    present = f.filter(rows, lambda r: r.getField("taken") & r.getField("f0").isNotNull())
    return _folded(f, target, call, present)


def _is_kept(exclude: str, row: Column, number: Column, peers: Column) -> Column:
    if exclude == "CURRENT ROW":
        return row.getField("number") != number
    others = row.getField("peers") != peers
    return others if exclude == "GROUP" else others | (row.getField("number") == number)


def _chosen(f: Functions, target: Reference, call: WindowCall, rows: Column) -> list[Column]:
    place = 1
    if call.call.name == "nth_value":
        constant = call.call.arguments[1]
        assert isinstance(constant, Constant)
        place = int(str(constant.value))
    at = f.size(rows) if call.call.name == "last_value" else f.lit(place)
    row = f.when(f.size(rows) >= f.greatest(at, f.lit(1)), f.element_at(rows, f.greatest(at, f.lit(1))))
    made = [row.getField("f0")]
    if target.type.name == "numeric" and target.native:
        made[0] = made[0].cast(target.type.decimal)
    return made if target.scale_name is None else [*made, row.getField("f1")]


def _folded(f: Functions, target: Reference, call: WindowCall, rows: Column) -> list[Column]:
    """`rows`: those with a value to aggregate."""
    values = f.transform(rows, lambda r: r.getField("f0"))
    some = f.size(rows) > 0
    match call.call.name:
        case "count":
            return [f.size(rows).cast("bigint")]
        case "bool_and":
            return [f.when(some, f.forall(values, lambda v: v))]
        case "bool_or":
            return [f.when(some, f.exists(values, lambda v: v))]
        case "string_agg":
            delimiter = call.call.arguments[1]
            assert isinstance(delimiter, Constant)
            return [f.when(some, f.array_join(values, str(delimiter.value or "")))]
        case "sum":
            type_ = target.type.decimal if target.type.name == "numeric" else spark_type(target.type)
            total = f.aggregate(values, f.lit(0).cast(type_), lambda a, v: (a + v.cast(type_)).cast(type_))
            made = [f.when(some, total)]
            scales = f.transform(rows, lambda r: r.getField("f1"))
            return made if target.scale_name is None else [*made, f.array_max(scales)]
    extreme = f.array_min if call.call.name == "min" else f.array_max
    if target.scale_name is None:
        result = extreme(values)
        return [result.cast(target.type.decimal) if target.type.name == "numeric" else result]
    best = extreme(f.transform(rows, lambda r: f.struct(r.getField("f0").alias("v"), r.getField("f1").alias("s"))))
    return [best.getField("v").cast(target.type.decimal), best.getField("s")]
