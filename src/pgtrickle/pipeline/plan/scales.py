"""The display scales that a numeric expression can have, if they do not depend on its values.

PostgreSQL's avg() and division derive their digits from the scale of their operands, so a sum in a state must have the
scale of PostgreSQL's sum: the largest of its values. numeric(p,s) columns, literals, + - * and casts determine it; CASE
and similar constructs have the scale of one of their branches; sum, min and max that of one of their values; integers
have scale 0. Anything else is unknown. Of keys, which no state adds up, some more are known: see _key_scales().
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from operator import add
from typing import assert_never

import sqlglot
from sqlglot import exp
from sqlglot.errors import SqlglotError

from pgtrickle.pipeline.codec import INTEGERS, NUMERIC, numeric_scale
from pgtrickle.pipeline.plan.nodes import (
    Block,
    Concat,
    Distinct,
    From,
    Node,
    Recursive,
    Scan,
    Select,
    SetOperation,
    Tree,
    UnionAll,
    Values,
    children,
    column_names,
    subqueries,
    tree_items,
)
from pgtrickle.pipeline.text.tokens import identifier

Source = From | tuple[Tree, ...] | None
Scales = frozenset[int]  # none: the value is always NULL
Types = Callable[[Node], Mapping[str, int]]  # types of a plan's output columns by name, as far as they are known

_SAME_SCALE = (exp.Paren, exp.Neg, exp.Sum, exp.Min, exp.Max, exp.Filter)
_SAME_SCALE_IN_KEYS = (exp.Abs, exp.Nullif, exp.Window)
_INTEGERS = (exp.Count, exp.Length, exp.Ceil, exp.Floor, exp.RowNumber)


def scales_of(sql: str, source: Source, types: Types | None = None) -> Scales | None:
    """`types`: for keys; without it only what a state can add up exactly has known scales."""
    try:
        tree = sqlglot.parse_one(sql, read="postgres")
    except SqlglotError:
        return None
    return _scales(tree, _Input(source, types))


def _no_types(_node: Node) -> Mapping[str, int]:
    return {}


@dataclass(frozen=True, slots=True)
class _Input:
    """What the columns of an expression mean."""

    source: Source
    types: Types | None


def _scales(tree: exp.Expr, source: _Input) -> Scales | None:
    match tree:
        case exp.Mul():
            return _pairs(add, tree, source)
        case exp.Add() | exp.Sub():
            return _pairs(max, tree, source)
        case exp.Literal() if not tree.is_string:
            text = tree.this
            return None if "e" in text.lower() else frozenset({len(text.partition(".")[2])})
        case exp.Null():
            return frozenset()
        case exp.Case():
            branches = [branch.args["true"] for branch in tree.args["ifs"]]
            default = tree.args.get("default")
            return _any_of([*branches, *([default] if default is not None else [])], source)
        case exp.Coalesce() | exp.Greatest() | exp.Least():
            return _any_of([tree.this, *tree.expressions], source)
        case exp.Cast():
            return _cast_scales(tree, source)
        case exp.Column():
            return _column_scales(tree, source)
    if isinstance(tree, _SAME_SCALE):
        return _scales(tree.this, source)
    return _key_scales(tree, source) if source.types is not None else None


def _key_scales(tree: exp.Expr, source: _Input) -> Scales | None:
    match tree:
        case exp.Distinct() if len(tree.expressions) == 1:
            return _scales(tree.expressions[0], source)
        case exp.Mod():
            return _pairs(max, tree, source)
        case exp.Round():
            return _rounded_scales(tree.args.get("decimals"))
    if isinstance(tree, _SAME_SCALE_IN_KEYS):
        return _scales(tree.this, source)
    return frozenset({0}) if isinstance(tree, _INTEGERS) else None


def _rounded_scales(digits: exp.Expr | None) -> Scales | None:
    if digits is None:
        return frozenset({0})
    is_known = isinstance(digits, exp.Literal) and not digits.is_string and digits.this.isdigit()
    return frozenset({int(digits.this)}) if is_known else None


def _pairs(together: Callable[[int, int], int], tree: exp.Expr, source: _Input) -> Scales | None:
    left, right = _scales(tree.this, source), _scales(tree.expression, source)
    if left is None or right is None:
        return None
    return frozenset(together(a, b) for a in left for b in right)


def _any_of(branches: Sequence[exp.Expr], source: _Input) -> Scales | None:
    per_branch = [_scales(branch, source) for branch in branches]
    known = [scales for scales in per_branch if scales is not None]
    return frozenset().union(*known) if len(known) == len(per_branch) else None


def _cast_scales(tree: exp.Cast, source: _Input) -> Scales | None:
    target = tree.to
    if target.this in (exp.DType.SMALLINT, exp.DType.INT, exp.DType.BIGINT):
        return frozenset({0})
    if target.this != exp.DType.DECIMAL:
        return None
    sizes = [p.this.this for p in target.expressions]
    if len(sizes) == 2 and str(sizes[1]).isdigit():
        return frozenset({int(sizes[1])})
    if not sizes:
        inner = tree.this
        if isinstance(inner, exp.Literal) and inner.is_string:
            is_plain = inner.this.replace(".", "", 1).lstrip("-").isdigit()
            return frozenset({len(inner.this.partition(".")[2])}) if is_plain else None
        return _scales(inner, source)
    return frozenset({0})


def _column_scales(column: exp.Column, source: _Input) -> Scales | None:
    name = _identifier(column.this)
    table = column.args.get("table")
    members = _members(source.source)
    for alias, node in members:
        if table is not None and identifier(alias) != _identifier(table):
            continue
        if table is None and len(members) > 1:
            return None
        return output_scales(node, name, source.types) if node is not None else None
    return None


def _members(source: Source) -> list[tuple[str, Node | None]]:
    if isinstance(source, From):
        return [(m.alias, m.node) for m in source.members]
    return [(p.alias, p.node) for tree in source or () for p in tree_items(tree)]


def _identifier(node: exp.Expr) -> str:
    return str(node.this) if node.args.get("quoted") else str(node.this).lower()


def output_scales(node: Node, name: str, types: Types | None = None) -> Scales | None:
    """The scales of a plan's output column, by its name."""
    scales = _output_scales(node, name, types)
    if scales is None and types is not None and types(node).get(name) in INTEGERS:
        return frozenset({0})
    return scales


def _output_scales(node: Node, name: str, types: Types | None) -> Scales | None:
    match node:
        case Scan():
            return _table_column_scales(node, name)
        case Select():
            item = next((i for i in node.items if i.name == name), None)
            return scales_of(item.sql, node.source, types) if item is not None else None
        case Block():
            output = next((c for c in node.columns if c.name == name), None)
            if output is None or subqueries(output.text):
                return None
            return scales_of("".join(str(p) for p in output.text), node.trees, types)
        case UnionAll() | Concat() | Distinct() | SetOperation() | Values() if types is None:
            return None
        case UnionAll() | Concat() | Distinct() | SetOperation():
            return _scales_of_all(children(node), column_names(node).index(name), types)
        case Values():
            return _values_scales(node, node.names.index(name))
        case Recursive():
            return None
        case _:
            assert_never(node)


def _scales_of_all(nodes: Sequence[Node], position: int, types: Types | None) -> Scales | None:
    per_node = [output_scales(node, column_names(node)[position], types) for node in nodes]
    known = [scales for scales in per_node if scales is not None]
    return frozenset().union(*known) if len(known) == len(per_node) else None


def _values_scales(node: Values, position: int) -> Scales | None:
    try:
        tree = sqlglot.parse_one(node.sql, read="postgres")
    except SqlglotError:
        return None
    rows = tree.find(exp.Values)
    if rows is None or any(len(row.expressions) != len(node.names) for row in rows.expressions):
        return None
    return _any_of([row.expressions[position] for row in rows.expressions], _Input(None, _no_types))


def _table_column_scales(scan: Scan, name: str) -> Scales | None:
    attnum = next((a for a, n in scan.exposes if n == name), None)
    column = next((c for c in scan.relation.columns if c.attnum == attnum), None)
    if column is None:
        return None
    scale = 0 if column.typid in INTEGERS else numeric_scale(column.typmod) if column.typid == NUMERIC else None
    return None if scale is None else frozenset({scale})
