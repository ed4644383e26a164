"""The display scale of a numeric expression, where it can be known without its values.

PostgreSQL's avg() and division choose their digits from the scale of their operands, so a sum that is kept as state
must have the scale that PostgreSQL's own sum would have. numeric(p,s) columns, literals, + - * and casts decide it;
anything else is unknown.
"""

from __future__ import annotations

import sqlglot
from sqlglot import exp
from sqlglot.errors import SqlglotError

from pgtrickle.pipeline.carriers import INTEGERS, NUMERIC, numeric_scale
from pgtrickle.pipeline.nodes import Block, From, Node, Scan, Select, Tree, leaves, subs
from pgtrickle.pipeline.sqltext import identifier

Source = From | tuple[Tree, ...] | None


def scale_of(sql: str, source: Source) -> int | None:
    try:
        tree = sqlglot.parse_one(sql, read="postgres")
    except SqlglotError:
        return None
    return _scale(tree, source)


def _scale(tree: exp.Expr, source: Source) -> int | None:
    match tree:
        case exp.Paren() | exp.Neg():
            return _scale(tree.this, source)
        case exp.Mul():
            left, right = _scale(tree.this, source), _scale(tree.expression, source)
            return None if left is None or right is None else left + right
        case exp.Add() | exp.Sub():
            left, right = _scale(tree.this, source), _scale(tree.expression, source)
            return None if left is None or right is None else max(left, right)
        case exp.Literal() if not tree.is_string:
            text = tree.this
            return None if "e" in text.lower() else len(text.partition(".")[2])
        case exp.Cast():
            return _cast_scale(tree, source)
        case exp.Column():
            return _column_scale(tree, source)
    return None


def _cast_scale(tree: exp.Cast, source: Source) -> int | None:
    target = tree.to
    if target.this != exp.DType.DECIMAL:
        return None
    sizes = [p.this.this for p in target.expressions]
    if len(sizes) == 2 and str(sizes[1]).isdigit():
        return int(sizes[1])
    if not sizes:
        inner = tree.this
        if isinstance(inner, exp.Literal) and inner.is_string:
            return len(inner.this.partition(".")[2]) if inner.this.replace(".", "", 1).lstrip("-").isdigit() else None
        return _scale(inner, source)
    return 0


def _column_scale(column: exp.Column, source: Source) -> int | None:
    name = _identifier(column.this)
    table = column.args.get("table")
    members = _members(source)
    for alias, node in members:
        if table is not None and identifier(alias) != _identifier(table):
            continue
        if table is None and len(members) > 1:
            return None
        return _output_scale(node, name) if node is not None else None
    return None


def _members(source: Source) -> list[tuple[str, Node | None]]:
    if isinstance(source, From):
        return [(m.alias, m.node) for m in source.members]
    return [(p.alias, p.node) for tree in source or () for p in leaves(tree)]


def _identifier(node: exp.Expr) -> str:
    return str(node.this) if node.args.get("quoted") else str(node.this).lower()


def _output_scale(node: Node, name: str) -> int | None:
    if isinstance(node, Scan):
        attnum = next((a for a, n in node.exposes if n == name), None)
        column = next((c for c in node.relation.columns if c.attnum == attnum), None)
        if column is None:
            return None
        if column.typid in INTEGERS:
            return 0
        return numeric_scale(column.typmod) if column.typid == NUMERIC else None
    if isinstance(node, Select):
        item = next((i for i in node.items if i.name == name), None)
        return scale_of(item.sql, node.source) if item is not None else None
    if isinstance(node, Block):
        shown = next((c for c in node.columns if c.name == name), None)
        if shown is None or subs(shown.text):
            return None
        return scale_of("".join(str(p) for p in shown.text), node.trees)
    return None
