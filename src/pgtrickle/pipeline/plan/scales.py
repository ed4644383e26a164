"""The display scales that a numeric expression can have, where they can be known without its values.

PostgreSQL's avg() and division choose their digits from the scale of their operands, so a sum that is kept as state
must have the scale that PostgreSQL's own sum would have: the largest of its values'. numeric(p,s) columns, literals,
+ - * and casts decide it; CASE and the like leave the choice between those of their branches to each row. Anything else
is unknown.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
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
    subqueries,
    tree_items,
)
from pgtrickle.pipeline.text.tokens import identifier

Source = From | tuple[Tree, ...] | None
Scales = frozenset[int]  # none: the value is always NULL


def scales_of(sql: str, source: Source) -> Scales | None:
    try:
        tree = sqlglot.parse_one(sql, read="postgres")
    except SqlglotError:
        return None
    return _scales(tree, source)


def _scales(tree: exp.Expr, source: Source) -> Scales | None:
    match tree:
        case exp.Paren() | exp.Neg():
            return _scales(tree.this, source)
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
    return None


def _pairs(together: Callable[[int, int], int], tree: exp.Expr, source: Source) -> Scales | None:
    left, right = _scales(tree.this, source), _scales(tree.expression, source)
    if left is None or right is None:
        return None
    return frozenset(together(a, b) for a in left for b in right)


def _any_of(branches: Sequence[exp.Expr], source: Source) -> Scales | None:
    found = [_scales(branch, source) for branch in branches]
    known = [scales for scales in found if scales is not None]
    return frozenset().union(*known) if len(known) == len(found) else None


def _cast_scales(tree: exp.Cast, source: Source) -> Scales | None:
    target = tree.to
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


def _column_scales(column: exp.Column, source: Source) -> Scales | None:
    name = _identifier(column.this)
    table = column.args.get("table")
    members = _members(source)
    for alias, node in members:
        if table is not None and identifier(alias) != _identifier(table):
            continue
        if table is None and len(members) > 1:
            return None
        return output_scales(node, name) if node is not None else None
    return None


def _members(source: Source) -> list[tuple[str, Node | None]]:
    if isinstance(source, From):
        return [(m.alias, m.node) for m in source.members]
    return [(p.alias, p.node) for tree in source or () for p in tree_items(tree)]


def _identifier(node: exp.Expr) -> str:
    return str(node.this) if node.args.get("quoted") else str(node.this).lower()


def output_scales(node: Node, name: str) -> Scales | None:
    """The scales of a plan's output column, by its name."""
    match node:
        case Scan():
            return _table_column_scales(node, name)
        case Select():
            item = next((i for i in node.items if i.name == name), None)
            return scales_of(item.sql, node.source) if item is not None else None
        case Block():
            output = next((c for c in node.columns if c.name == name), None)
            if output is None or subqueries(output.text):
                return None
            return scales_of("".join(str(p) for p in output.text), node.trees)
        case UnionAll() | Concat() | Distinct() | SetOperation() | Recursive() | Values():
            return None
        case _:
            assert_never(node)


def _table_column_scales(scan: Scan, name: str) -> Scales | None:
    attnum = next((a for a, n in scan.exposes if n == name), None)
    column = next((c for c in scan.relation.columns if c.attnum == attnum), None)
    if column is None:
        return None
    scale = 0 if column.typid in INTEGERS else numeric_scale(column.typmod) if column.typid == NUMERIC else None
    return None if scale is None else frozenset({scale})
