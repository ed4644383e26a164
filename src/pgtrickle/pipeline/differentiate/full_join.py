"""FULL JOIN as the sum of two outer joins that each have one preserved side.

    L FULL JOIN R  =  L LEFT JOIN R  +  (L RIGHT JOIN R WHERE L is missing)
    d(L FULL JOIN R) = d(L LEFT JOIN R) + d(L RIGHT JOIN R WHERE L is missing)

    in:  SELECT ... FROM l FULL JOIN r ON l.k = r.k
    out: SELECT ... FROM l LEFT JOIN r ON l.k = r.k  and  SELECT ... FROM l RIGHT JOIN r ON l.k = r.k WHERE l.k IS NULL

Each half is linear in its preserved side; the join condition finds the rows that a delta of the other side affects.
L is missing when a column is NULL that is not NULL in any matching row of L: a column of an equality, or a NOT NULL
column.
"""

from __future__ import annotations

from dataclasses import replace
from typing import assert_never

from pgtrickle.model.identifiers import quote_ident
from pgtrickle.pipeline.parse.merged_columns import with_side_columns
from pgtrickle.pipeline.plan.names import alias_of, conjuncts
from pgtrickle.pipeline.plan.nodes import (
    Block,
    FromItem,
    Join,
    Scan,
    Text,
    Tree,
    column_names,
    joins,
    plain_sql,
    subqueries,
    tree_items,
)
from pgtrickle.pipeline.text.tokens import Cursor, strip_parentheses


def split_full_joins(node: Block) -> tuple[Block, ...]:
    """The blocks whose UNION ALL equals a block; none of them has a FULL JOIN that can be split."""
    halves = _halves(node)
    return (node,) if halves is None else tuple(b for half in halves for b in split_full_joins(half))


def has_unsplit_full_join(node: Block) -> bool:
    """Whether a block has a FULL JOIN that cannot be split."""
    return any(j.kind == "FULL JOIN" for half in split_full_joins(node) for tree in half.trees for j in joins(tree))


def _halves(node: Block) -> tuple[Block, Block] | None:
    """The two blocks whose UNION ALL equals a block, by its outermost FULL JOIN; None where that cannot be split."""
    for position, tree in enumerate(node.trees):
        outermost = _outermost(tree)
        if outermost is None:
            continue
        missing = _missing(outermost)
        if missing is None:
            return None
        left = replace(outermost, kind="LEFT JOIN")
        right = _side_by_side(outermost) or replace(outermost, kind="RIGHT JOIN")
        where: Text = (*(("(", *node.where, ") AND ") if node.where is not None else ()), missing)
        return (
            with_side_columns(
                replace(node, trees=_put(node.trees, position, outermost, left)), outermost, is_left=True
            ),
            with_side_columns(
                replace(node, trees=_put(node.trees, position, outermost, right), where=where), outermost, is_left=False
            ),
        )
    return None


def preserved_items(tree: Tree) -> tuple[FromItem, ...]:
    """The FROM items in which a join tree is linear: inner joined, or on the preserved side of an outer join."""
    match tree:
        case FromItem():
            return (tree,)
        case Join(kind="FULL JOIN"):
            return ()
        case Join():
            left = preserved_items(tree.left) if tree.kind != "RIGHT JOIN" else ()
            right = preserved_items(tree.right) if tree.kind != "LEFT JOIN" else ()
            return (*left, *right)
        case _:
            assert_never(tree)


def _outermost(tree: Tree) -> Join | None:
    """A FULL JOIN in whose rows the tree is linear."""
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
    """A condition on the rows of `L RIGHT JOIN R` that is true where L is missing."""
    if join.on is not None and subqueries(join.on):
        return None
    for part in preserved_items(join.left):
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
    """The merged column of L is the column of one of its items, so one of them is not NULL where L is present."""
    items = tree_items(join.left)
    if any(p.node is None for p in items):
        return None
    name = Cursor(using).names()[0]
    null_tests = [
        f"({p.alias}.{quote_ident(name)} IS NULL)" for p in items if p.node is not None and name in column_names(p.node)
    ]
    return f"({' AND '.join(null_tests)})" if null_tests else None


def _missing_by_equality(join: Join) -> str | None:
    if join.on is None:
        return None
    left = {alias_of(p) for p in tree_items(join.left)}
    for condition in conjuncts(join.on):
        cursor = Cursor(plain_sql(condition))
        start, stop = strip_parentheses(cursor.tokens, 0, len(cursor.tokens))
        sides = cursor.split(start, stop, "=")
        if len(sides) != 2 or cursor.has_at_depth_0(start, stop, "OR", "NOT", "IS"):
            continue
        for a, b in sides:  # PostgreSQL's own equality of a column: true for no NULL
            if b - a == 3 and cursor.tokens[a + 1].key == "." and cursor.name_at(a) in left:
                return f"({cursor.text(a, b)} IS NULL)"
    return None


def _side_by_side(join: Join) -> Join | None:
    """For `(A FULL JOIN B USING (k)) FULL JOIN C USING (k)`: C LEFT JOIN A USING (k) LEFT JOIN B USING (k).

    A row of C without A and B has no partner on the left. The columns of A and B stay visible, and an index finds each
    by key.
    """
    items = _united(join.left, join.using) if join.using is not None else None
    if items is None or len(items) < 2 or not isinstance(join.right, FromItem):
        return None
    joined: Tree = join.right
    for item in items:
        joined = Join("LEFT JOIN", joined, item, None, join.using)
    assert isinstance(joined, Join)
    return joined


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
