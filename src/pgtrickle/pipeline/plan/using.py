"""Columns that USING merges, as expressions over the columns of single FROM items.

    in:  k in (a FULL JOIN b USING (k))
    out: COALESCE(a.k, b.k)

COALESCE of both sides, the preserved side first, has the value and the type of the merged column.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import assert_never

from pgtrickle.model.identifiers import quote_ident
from pgtrickle.pipeline.codec import INTEGERS
from pgtrickle.pipeline.plan.nodes import FromItem, Join, Scan, Tree, column_names, tree_items
from pgtrickle.pipeline.text.tokens import Cursor, identifier

MergedColumns = Mapping[str, str]  # by name
_UNKNOWN = (0, 0)  # of a column, its type and size


def merged_columns(trees: tuple[Tree, ...], *, compared: bool = False) -> MergedColumns:
    """`compared`: the expression is only compared. Then one side suffices, which an index can serve, where the join
    preserves it and both sides have one type or are integers."""
    merged: dict[str, str] = {}
    for tree in trees:
        merged |= _of_tree(tree, compared=compared)
    return merged


def _of_tree(tree: Tree, *, compared: bool) -> MergedColumns:
    match tree:
        case FromItem():
            return {}
        case Join():
            return _of_join(tree, compared=compared)
        case _:
            assert_never(tree)


def _of_join(tree: Join, *, compared: bool) -> MergedColumns:
    merged = {**_of_tree(tree.left, compared=compared), **_of_tree(tree.right, compared=compared)}
    for name in Cursor(tree.using).names() if tree.using is not None else ():
        sides = [_column(tree.left, name, compared=compared), _column(tree.right, name, compared=compared)]
        merged.pop(name, None)
        if sides[0] is not None and sides[1] is not None:
            if tree.kind == "RIGHT JOIN":
                sides.reverse()
            is_one = (
                compared
                and tree.kind != "FULL JOIN"
                and _are_alike([*_types(tree.left, name), *_types(tree.right, name)])
            )
            merged[name] = str(sides[0]) if is_one else f"COALESCE({sides[0]}, {sides[1]})"
    return merged


def _column(tree: Tree, name: str, *, compared: bool) -> str | None:
    """The column that a tree outputs under a name; None where it is not known."""
    match tree:
        case FromItem():
            return f"{tree.alias}.{quote_ident(name)}" if name in item_columns(tree) else None
        case Join():
            if tree.using is not None and name in Cursor(tree.using).names():
                return _of_tree(tree, compared=compared).get(name)
            return _column(tree.left, name, compared=compared) or _column(tree.right, name, compared=compared)
        case _:
            assert_never(tree)


def join_columns(tree: Tree) -> list[tuple[str, str | None]] | None:
    """All columns of a join in their order, merged ones first, with the expression of each; None as the expression of
    a column that the query does not read. None if the columns of an item are not known, as for a function."""
    match tree:
        case FromItem():
            if isinstance(tree.node, Scan):
                exposed = dict(tree.node.exposes)
                names = [exposed.get(c.attnum) for c in tree.node.relation.columns]
                return [(n or "", f"{tree.alias}.{quote_ident(n)}" if n is not None else None) for n in names]
            if tree.node is None:
                return None
            return [(n, f"{tree.alias}.{quote_ident(n)}") for n in column_names(tree.node)]
        case Join():
            left, right = join_columns(tree.left), join_columns(tree.right)
            if left is None or right is None:
                return None
            using = Cursor(tree.using).names() if tree.using is not None else ()
            merged = merged_columns((tree,))
            if any(name not in merged for name in using):
                return None
            rest = [(name, sql) for name, sql in (*left, *right) if name not in using]
            return [*((name, merged[name]) for name in using), *rest]
        case _:
            assert_never(tree)


def merged_sides(join: Join) -> list[tuple[str, str, str]]:
    """For each name of USING the merged column, and the column of either side, where all have one type and size."""
    both, triples = merged_columns((join,)), []
    for name in Cursor(join.using).names() if join.using is not None else ():
        left, right = _column(join.left, name, compared=False), _column(join.right, name, compared=False)
        types = {*_types(join.left, name), *_types(join.right, name)}
        if left is not None and right is not None and len(types) == 1 and _UNKNOWN not in types:
            triples.append((both[name], left, right))
    return triples


def _types(tree: Tree, name: str) -> list[tuple[int, int]]:
    """Type and size of all columns of this name."""
    types = []
    for part in tree_items(tree):
        if isinstance(part.node, Scan):
            attnums = {attnum for attnum, exposed in part.node.exposes if exposed == name}
            types += [(c.typid, c.typmod) for c in part.node.relation.columns if c.attnum in attnums]
        elif name in item_columns(part):
            types.append(_UNKNOWN)
    return types


def _are_alike(types: list[tuple[int, int]]) -> bool:
    typids = {typid for typid, _ in types}
    return _UNKNOWN not in types and (len(typids) == 1 or INTEGERS.issuperset(typids))


def item_columns(part: FromItem) -> frozenset[str]:
    """The names of an item's columns; incomplete for a function that does not list them."""
    if part.node is not None:
        return frozenset(column_names(part.node))
    text = part.call[-1] if part.call else ""
    if not isinstance(text, str):
        return frozenset()
    tokens = Cursor(text).tokens
    return frozenset(identifier(text[t.start : t.end]) for t in tokens[column_list_start(text) :] if t.is_name)


def column_list_start(text: str) -> int:
    """The token at which the column list after the alias of a function begins; 0 without one."""
    keys = [t.key for t in Cursor(text).tokens]
    depth, at = 0, len(keys)
    while at > 0 and (depth or at == len(keys)):
        at -= 1
        depth += {")": 1, "(": -1}.get(keys[at], 0)
    is_list = keys[-1:] == [")"] and at > 2 and keys[at - 2].endswith((")", "AS", "ORDINALITY"))
    return at if is_list else 0
