"""The syntax of aggregates: names, arguments, DISTINCT, FILTER, ORDER BY, WITHIN GROUP. Pure."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

from sqlglot import exp

from pgtrickle.errors import SparkUnsupportedError

_CLASSES: dict[type[exp.Expr], str] = {
    exp.Count: "count",
    exp.Sum: "sum",
    exp.Avg: "avg",
    exp.Min: "min",
    exp.Max: "max",
    exp.LogicalAnd: "bool_and",
    exp.LogicalOr: "bool_or",
    exp.GroupConcat: "string_agg",
    exp.AnyValue: "any_value",
    exp.BitwiseAndAgg: "bit_and",
    exp.BitwiseOrAgg: "bit_or",
    exp.BitwiseXorAgg: "bit_xor",
    exp.Variance: "var_samp",
    exp.VariancePop: "var_pop",
    exp.Stddev: "stddev_samp",
    exp.StddevSamp: "stddev_samp",
    exp.StddevPop: "stddev_pop",
}
_NAMED = {"jsonb_agg": "jsonb_agg", "every": "bool_and", "bit_and": "bit_and", "bit_or": "bit_or", "bit_xor": "bit_xor"}
_OTHERS = {
    *("array_agg", "json_agg", "json_object_agg", "jsonb_object_agg", "xmlagg", "range_agg", "mode"),
    *("percentile_cont", "percentile_disc", "regr_count", "rank", "dense_rank", "cume_dist", "percent_rank"),
    *("corr", "covar_pop", "covar_samp", "regr_slope", "regr_intercept", "regr_r2", "regr_sxx", "regr_syy"),
}
_ONLY_WINDOWS = (exp.RowNumber, exp.Lag, exp.Lead, exp.FirstValue, exp.LastValue, exp.NthValue)


def is_aggregate(tree: exp.Expr) -> bool:
    if isinstance(tree, exp.Filter | exp.WithinGroup) or _array_of(tree) is not None:
        return True
    if isinstance(tree, exp.Anonymous):
        return str(tree.this).lower() in {*_NAMED, *_OTHERS}
    return isinstance(tree, exp.AggFunc) and not isinstance(tree, _ONLY_WINDOWS)


def aggregates_in(trees: Sequence[exp.Expr]) -> Iterator[exp.Expr]:
    """Aggregates of this SELECT: not of subqueries, and no window functions, but aggregates in their arguments."""
    for tree in trees:
        if isinstance(tree, exp.Query):
            continue
        if isinstance(tree, exp.Window):
            function = tree.this.this if isinstance(tree.this, exp.Filter) else tree.this
            below = list(function.iter_expressions())
            below += [e for e in tree.iter_expressions() if e is not tree.this]
            if isinstance(tree.this, exp.Filter):
                below.append(tree.this.expression)
            yield from aggregates_in(below)
        elif is_aggregate(tree):
            yield tree
        else:
            yield from aggregates_in(list(tree.iter_expressions()))


@dataclass(frozen=True, slots=True)
class Written:
    """The syntax of one aggregate."""

    name: str
    arguments: tuple[exp.Expr, ...]
    is_distinct: bool
    where: exp.Expr | None
    order: tuple[exp.Ordered, ...]
    parameters: tuple[object, ...] = ()
    is_window: bool = False  # its order is the one of OVER


def _array_of(tree: exp.Expr) -> exp.Expr | None:
    """The aggregate of cardinality(array_agg(...)), array_to_string(array_agg(...), ...) and jsonb_agg(...)::text."""
    inner: exp.Expr | None = None
    if isinstance(tree, exp.Cast) and tree.to.this == exp.DType.TEXT:
        inner = tree.this.unnest()
        of = inner.this if isinstance(inner, exp.Filter) else inner
        return inner if isinstance(of, exp.Anonymous) and str(of.this).lower() == "jsonb_agg" else None
    if isinstance(tree, exp.ArrayToString):
        inner = tree.this
    elif isinstance(tree, exp.Anonymous) and str(tree.this).lower() == "cardinality" and len(tree.expressions) == 1:
        inner = tree.expressions[0]
    function = inner.this if isinstance(inner, exp.Filter) else inner
    return inner if isinstance(function, exp.ArrayAgg) else None


def read(tree: exp.Expr) -> Written:
    array = _array_of(tree)
    if array is not None:
        inner = _read(array)
        if isinstance(tree, exp.ArrayToString):
            texts = tuple(_text(tree.args.get(name)) for name in ("expression", "null"))
            return replace(inner, name="array_to_string", parameters=texts)
        return inner if inner.name == "jsonb_agg" else replace(inner, name="cardinality")
    return _read(tree)


def _text(tree: exp.Expr | None) -> str | None:
    while isinstance(tree, exp.Cast | exp.Paren):
        tree = tree.this
    if tree is None or isinstance(tree, exp.Null):
        return None
    if not isinstance(tree, exp.Literal) or not tree.is_string:
        raise SparkUnsupportedError("array_to_string", "its delimiter is not constant")
    return str(tree.this)


def _read(tree: exp.Expr) -> Written:
    where = None
    if isinstance(tree, exp.Filter):
        where, tree = tree.expression.this, tree.this
    if isinstance(tree, exp.WithinGroup):
        return _within_group(tree, where)
    name = "array_agg" if isinstance(tree, exp.ArrayAgg) else _name(tree)
    if isinstance(tree, exp.Anonymous):
        argument_trees = list(tree.expressions)
    else:
        argument_trees = [tree.this] if tree.this is not None else []
        if isinstance(tree, exp.GroupConcat) and tree.args.get("separator") is not None:
            argument_trees.append(tree.args["separator"])
        argument_trees += list(tree.expressions)
    order: tuple[exp.Ordered, ...] = ()
    is_distinct = False
    arguments: list[exp.Expr] = []
    for argument in argument_trees:
        while isinstance(argument, exp.Order | exp.Distinct):
            if isinstance(argument, exp.Order):
                order, argument = tuple(argument.expressions), argument.this
            else:
                is_distinct, inner = True, argument.expressions
                if len(inner) != 1:
                    raise SparkUnsupportedError(f"{name}(DISTINCT) of several columns")
                argument = inner[0]
        if not isinstance(argument, exp.Star):
            arguments.append(argument)
    return Written(name, tuple(arguments), is_distinct, where, order)


def _within_group(tree: exp.WithinGroup, where: exp.Expr | None) -> Written:
    name, order = _shown(tree.this), tuple(tree.expression.expressions)
    if name not in ("percentile_disc", "mode", "rank") or len(order) != 1:
        raise SparkUnsupportedError(f"{name} WITHIN GROUP")
    if name == "mode":
        return Written(name, (), False, where, order)
    direct_argument = tree.this.this if name == "percentile_disc" else tree.this.expressions[0]
    if name == "rank":
        return Written("rank", (direct_argument,), False, where, order)
    while isinstance(direct_argument, exp.Cast | exp.Paren):
        direct_argument = direct_argument.this
    if not isinstance(direct_argument, exp.Literal) or not 0 <= float(direct_argument.this) <= 1:
        raise SparkUnsupportedError("percentile_disc", "its fraction is not a constant between 0 and 1")
    return Written(name, (), False, where, order, (float(direct_argument.this),))


def _shown(tree: exp.Expr) -> str:
    if isinstance(tree, exp.Anonymous):
        return str(tree.this).lower()
    return tree.sql_name().lower() if isinstance(tree, exp.Func) else tree.key


def _name(tree: exp.Expr) -> str:
    if isinstance(tree, exp.Anonymous) and str(tree.this).lower() in _NAMED:
        return _NAMED[str(tree.this).lower()]
    if type(tree) in _CLASSES:
        return _CLASSES[type(tree)]
    raise SparkUnsupportedError(f"aggregate {_shown(tree)}")
