"""FULL JOIN as two halves that each have a preserved side.

    L FULL JOIN R  =  L LEFT JOIN R  +  those rows of L RIGHT JOIN R that have no L

A half is linear in its preserved side, and what a change of the other side touches is found by the join's condition. A
row has no L when a column is NULL that is NULL in no row of L that matches: one of an equality, or a NOT NULL one.
"""

from __future__ import annotations

from dataclasses import replace
from typing import assert_never

from pgtrickle.model.identifiers import quote_ident
from pgtrickle.pipeline.parse.merged_columns import halved
from pgtrickle.pipeline.plan.names import conjuncts, own
from pgtrickle.pipeline.plan.nodes import Block, FromItem, Join, Scan, Text, Tree, joins, leaves, names, plain, subs
from pgtrickle.pipeline.text.tokens import Cursor, strip_parentheses


def parted(node: Block) -> tuple[Block, ...]:
    """Blocks whose sum a block is, with no FULL JOIN that can be taken apart."""
    found = _halves(node)
    return (node,) if found is None else tuple(b for half in found for b in parted(half))


def is_whole(node: Block) -> bool:
    """Whether a FULL JOIN is left that has to be evaluated as it is."""
    return any(j.kind == "FULL JOIN" for half in parted(node) for tree in half.trees for j in joins(tree))


def _halves(node: Block) -> tuple[Block, Block] | None:
    """A block that is the sum of two, for its outermost FULL JOIN; None where that has to be taken as it is."""
    for position, tree in enumerate(node.trees):
        found = _outermost(tree)
        if found is None:
            continue
        missing = _missing(found)
        if missing is None:
            return None
        left = replace(found, kind="LEFT JOIN")
        right = _side_by_side(found) or replace(found, kind="RIGHT JOIN")
        where: Text = (*(("(", *node.where, ") AND ") if node.where is not None else ()), missing)
        return (
            halved(replace(node, trees=_put(node.trees, position, found, left)), found, is_left=True),
            halved(replace(node, trees=_put(node.trees, position, found, right), where=where), found, is_left=False),
        )
    return None


def preserved(tree: Tree) -> tuple[FromItem, ...]:
    """The parts whose rows a join tree is linear in."""
    match tree:
        case FromItem():
            return (tree,)
        case Join(kind="FULL JOIN"):
            return ()
        case Join():
            left = preserved(tree.left) if tree.kind != "RIGHT JOIN" else ()
            right = preserved(tree.right) if tree.kind != "LEFT JOIN" else ()
            return (*left, *right)
        case _:
            assert_never(tree)


def _outermost(tree: Tree) -> Join | None:
    """A FULL JOIN whose rows the whole tree is linear in."""
    match tree:
        case FromItem():
            return None
        case Join(kind="FULL JOIN"):
            return tree
        case Join():
            left = _outermost(tree.left) if tree.kind != "RIGHT JOIN" else None
            return left or (_outermost(tree.right) if tree.kind != "LEFT JOIN" else None)
        case _:
            assert_never(tree)


def _put(trees: tuple[Tree, ...], position: int, old: Join, new: Join) -> tuple[Tree, ...]:
    return (*trees[:position], _replaced(trees[position], old, new), *trees[position + 1 :])


def _replaced(tree: Tree, old: Join, new: Join) -> Tree:
    if tree is old:
        return new
    if isinstance(tree, FromItem):
        return tree
    return replace(tree, left=_replaced(tree.left, old, new), right=_replaced(tree.right, old, new))


def _missing(join: Join) -> str | None:
    """A condition on rows of `L RIGHT JOIN R` that is true where they have no L."""
    if join.on is not None and subs(join.on):
        return None
    for part in preserved(join.left):
        if not isinstance(part.node, Scan):
            continue
        never_null = {c.attnum for c in part.node.relation.columns if c.not_null}
        for attnum, name in part.node.exposes:
            if attnum in never_null:
                return f"({part.alias}.{quote_ident(name)} IS NULL)"
    if join.using is not None:
        return _missing_by_using(join, join.using)
    return _missing_by_equality(join)


def _missing_by_using(join: Join, using: str) -> str | None:
    """The merged column of L is one of those that its items have under that name, so one of them is not NULL."""
    items = leaves(join.left)
    if any(p.node is None for p in items):
        return None
    name = Cursor(using).names()[0]
    found = [f"({p.alias}.{quote_ident(name)} IS NULL)" for p in items if p.node is not None and name in names(p.node)]
    return f"({' AND '.join(found)})" if found else None


def _missing_by_equality(join: Join) -> str | None:
    if join.on is None:
        return None
    left = {own(p) for p in leaves(join.left)}
    for condition in conjuncts(join.on):
        cursor = Cursor(plain(condition))
        start, stop = strip_parentheses(cursor.tokens, 0, len(cursor.tokens))
        sides = cursor.split(start, stop, "=")
        if len(sides) != 2 or cursor.has_at_depth_0(start, stop, "OR", "NOT", "IS"):
            continue
        for a, b in sides:  # PostgreSQL's own equality of a column: true for no NULL
            if b - a == 3 and cursor.tokens[a + 1].key == "." and cursor.name_at(a) in left:
                return f"({cursor.text(a, b)} IS NULL)"
    return None


def _side_by_side(join: Join) -> Join | None:
    """For `(A FULL JOIN B USING (k)) FULL JOIN C USING (k)`: the rows of C, with A and with B.

    Where there is neither it has no partner on the left. The columns of both stay in sight, each is found by key.
    """
    items = _united(join.left, join.using) if join.using is not None else None
    if items is None or len(items) < 2 or not isinstance(join.right, FromItem):
        return None
    found: Tree = join.right
    for item in items:
        found = Join("LEFT JOIN", found, item, None, join.using)
    assert isinstance(found, Join)
    return found


def _united(tree: Tree, using: str | None) -> list[FromItem] | None:
    match tree:
        case FromItem():
            return [tree] if tree.node is not None and not tree.is_lateral else None
        case Join():
            if tree.kind != "FULL JOIN" or tree.using != using:
                return None
            left, right = _united(tree.left, using), _united(tree.right, using)
            return [*left, *right] if left is not None and right is not None else None
        case _:
            assert_never(tree)
