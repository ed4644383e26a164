"""EXISTS depends only on the existence of rows: the select list of its subquery is removed."""

from __future__ import annotations

from dataclasses import replace
from typing import assert_never

from pgtrickle.pipeline.plan.nodes import (
    Block,
    Concat,
    Distinct,
    FromItem,
    Join,
    Node,
    OutputColumn,
    Recursive,
    Scan,
    Select,
    SetOperation,
    Text,
    Tree,
    UnionAll,
    Values,
    block_texts,
    children,
    from_items,
    joins,
    subqueries,
)
from pgtrickle.pipeline.text.tokens import identifier, tokenize


def drop_output_columns(node: Node) -> Node:
    """Replaces the select list by 1. Unchanged if a column is not a plain name or literal: it may return a set.

    in:  SELECT b.x FROM b WHERE b.k = a.k
    out: SELECT 1 FROM b WHERE b.k = a.k
    """
    if not isinstance(node, Block) or node.region is not None or node.tail or node.distinct_on is not None:
        return node
    if not all(_is_single(c.text) for c in node.columns):
        return node
    bare = replace(node, columns=(OutputColumn("one", ("1",)),))
    used = _names(bare)
    return replace(bare, trees=tuple(_pruned(t, used) for t in bare.trees))


def _is_single(text: Text) -> bool:
    """A column or a literal."""
    if subqueries(text):
        return False
    tokens = tokenize("".join(str(p) for p in text))
    return len(tokens) == 1 or (len(tokens) == 3 and tokens[1].key == ".")


def _pruned(tree: Tree, used: frozenset[str]) -> Tree:
    match tree:
        case Join():
            return replace(tree, left=_pruned(tree.left, used), right=_pruned(tree.right, used))
        case FromItem(node=Scan() as scan) if scan.key:  # without a key, all columns identify a row
            exposes = tuple((a, n) for a, n in scan.exposes if n in used or a in scan.key)
            return replace(tree, node=replace(scan, exposes=exposes))
        case FromItem():
            return tree
        case _:
            assert_never(tree)


def _names(node: Node) -> frozenset[str]:
    """Every name in a query's texts, whatever its meaning; possibly too many, never too few."""
    names = {identifier(piece[t.start : t.end]) for piece in _pieces(node) for t in tokenize(piece) if t.is_name}
    return frozenset(names).union(*(_names(child) for child in children(node)))


def _pieces(node: Node) -> list[str]:
    """The SQL texts of a plan node, without those of the plans below it."""
    match node:
        case Block():
            all_texts = (*block_texts(node), *(p.call for p in from_items(node)))
            using = [j.using for tree in node.trees for j in joins(tree) if j.using is not None]
            return [piece for text in all_texts for piece in text if isinstance(piece, str)] + using
        case Select():
            source = [p for p in node.source.parts if isinstance(p, str)] if node.source is not None else []
            return [*(i.sql for i in node.items), *source, *([node.where] if node.where is not None else [])]
        case Values():
            return [node.sql]
        case Scan() | UnionAll() | Concat() | Distinct() | SetOperation() | Recursive():
            return []
        case _:
            assert_never(node)
