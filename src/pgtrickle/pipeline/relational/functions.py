"""Functions in FROM: generate_series of integers, unnest of arrays of integers, elements of jsonb arrays. Pure."""

from __future__ import annotations

from sqlglot import exp

from pgtrickle.errors import SparkUnsupportedError
from pgtrickle.pipeline.expressions.coercion import alternatives, coerce
from pgtrickle.pipeline.expressions.nodes import Node
from pgtrickle.pipeline.expressions.resolve import construct
from pgtrickle.pipeline.expressions.types import INT4, INT8, INTEGERS, TEXT, PgType
from pgtrickle.pipeline.relational.algebra import Generate, OneRow
from pgtrickle.pipeline.relational.naming import Names
from pgtrickle.pipeline.relational.scalars import Scalars

_OF_JSON = {"jsonb_array_elements": PgType("jsonb"), "jsonb_array_elements_text": TEXT}
_ELEMENTS = {"smallint[]": PgType("int2"), "integer[]": INT4, "bigint[]": INT8}


def generated(tree: exp.Expr, scalars: Scalars, names: Names) -> tuple[Generate, str]:
    """The function over one row, and its name."""
    if isinstance(tree, exp.GenerateSeries | exp.ExplodingGenerateSeries):
        bounds = [tree.args[name] for name in ("start", "end", "step") if tree.args.get(name) is not None]
        return _series([scalars.node(t) for t in bounds], names), "generate_series"
    if isinstance(tree, exp.Unnest) and len(tree.expressions) == 1:
        members = _members(tree.expressions[0])
        if members is not None:
            values = alternatives([scalars.open(m) for m in members], "ARRAY")
            column = names.column(construct("COALESCE", *values).type if len(values) > 1 else values[0].type)
            return Generate(OneRow(), "members", tuple(values), column), "unnest"
        array = scalars.node(tree.expressions[0])
        element = _ELEMENTS.get(array.type.label)
        if element is None:
            raise SparkUnsupportedError(f"unnest ({array.type.sql_name})")
        return Generate(OneRow(), "unnest", (array,), names.column(element)), "unnest"
    name = str(tree.this) if isinstance(tree, exp.Anonymous) else tree.key
    if name in _OF_JSON and len(tree.expressions) == 1:
        array = scalars.node(tree.expressions[0])
        if array.type.name == "jsonb":
            return Generate(OneRow(), name, (array,), names.column(_OF_JSON[name])), name
    raise SparkUnsupportedError("a function in FROM", name)


def _members(tree: exp.Expr) -> list[exp.Expr] | None:
    """The elements of ARRAY[...]."""
    tree = tree.unnest()
    return list(tree.expressions) if isinstance(tree, exp.Array) and tree.expressions else None


def _series(arguments: list[Node], names: Names) -> Generate:
    types = {a.type.name for a in arguments}
    if not types <= set(INTEGERS):
        raise SparkUnsupportedError("generate_series", "of anything but integers")
    type_ = INT8 if "int8" in types else INT4
    return Generate(OneRow(), "generate_series", tuple(coerce(a, type_) for a in arguments), names.column(type_))
