"""Columns that USING merges, and what they are by the columns of single items.

COALESCE of both sides, the one that the join preserves first, is the same value of the same type.
"""

from __future__ import annotations

from collections.abc import Mapping

from pgtrickle.pipeline.nodes import Part, Tree, names
from pgtrickle.pipeline.sqltext import Cursor, identifier, quote

Merged = Mapping[str, str]  # by name


def merged(trees: tuple[Tree, ...]) -> Merged:
    found: dict[str, str] = {}
    for tree in trees:
        found |= _of_tree(tree)
    return found


def _of_tree(tree: Tree) -> Merged:
    if isinstance(tree, Part):
        return {}
    found = {**_of_tree(tree.left), **_of_tree(tree.right)}
    for name in Cursor(tree.using).names() if tree.using is not None else ():
        sides = [_column(tree.left, name), _column(tree.right, name)]
        found.pop(name, None)
        if sides[0] is not None and sides[1] is not None:
            if tree.kind == "RIGHT JOIN":
                sides.reverse()
            found[name] = f"COALESCE({sides[0]}, {sides[1]})"
    return found


def _column(tree: Tree, name: str) -> str | None:
    """What a tree shows under a name, which is one column of it; None where that is not known."""
    if isinstance(tree, Part):
        return f"{tree.alias}.{quote(name)}" if name in columns(tree) else None
    if tree.using is not None and name in Cursor(tree.using).names():
        return _of_tree(tree).get(name)
    return _column(tree.left, name) or _column(tree.right, name)


def columns(part: Part) -> frozenset[str]:
    """The names of an item's columns; more than these where it is a function that does not list them."""
    if part.node is not None:
        return frozenset(names(part.node))
    text = part.call[-1] if part.call else ""
    if not isinstance(text, str):
        return frozenset()
    tokens = Cursor(text).tokens
    return frozenset(identifier(text[t.start : t.end]) for t in tokens[listed_at(text) :] if t.is_name)


def listed_at(text: str) -> int:
    """Where the list of columns begins that PostgreSQL prints behind the alias of a function; 0 without one."""
    keys = [t.key for t in Cursor(text).tokens]
    depth, at = 0, len(keys)
    while at > 0 and (depth or at == len(keys)):
        at -= 1
        depth += {")": 1, "(": -1}.get(keys[at], 0)
    is_list = keys[-1:] == [")"] and at > 2 and keys[at - 2].endswith((")", "AS", "ORDINALITY"))
    return at if is_list else 0
