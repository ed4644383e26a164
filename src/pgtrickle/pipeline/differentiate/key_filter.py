"""Key filters: conditions that select the rows of regions that are given by their keys.

in:  SELECT g, max(x) FROM t GROUP BY g, keys of affected regions in k
out: SELECT g, max(x) FROM t WHERE (g) IN (SELECT k0 FROM k) GROUP BY g
"""

from __future__ import annotations

from collections.abc import Sequence

from pgtrickle.model.catalog import Column
from pgtrickle.model.texts import is_null
from pgtrickle.pipeline.differentiate.full_join import preserved_items
from pgtrickle.pipeline.plan.nodes import Block, FromItem, Scan, from_items
from pgtrickle.pipeline.text.tokens import identifier


def filter_by_keys(node: Block, keys: str) -> list[str]:
    """Conditions that together select exactly the rows of these regions, each row once.

    A region with a NULL in its key needs a condition that no index serves. PostgreSQL evaluates first whether such a
    key exists, and reads nothing otherwise.
    """
    assert node.region is not None
    return key_conditions([f"({k})" for k in node.region], keys, nullable_keys(node))


def nullable_keys(node: Block) -> list[int]:
    """The positions of keys that may be NULL."""
    return [i for i, k in enumerate(node.region or ()) if not _is_not_null(node, k)]


def key_conditions(texts: Sequence[str], keys: str, may_be_null: Sequence[int]) -> list[str]:
    """The same for any expressions that have the keys' values."""
    # Only these names are visible inside EXISTS beside the query's own: `keys` may have other columns, such as n.
    listed = ", ".join(f'"__pgt_k".__pgt_k{i}' for i in range(len(texts)))
    source = f'{keys} AS "__pgt_k"'
    conditions = [f"({', '.join(texts)}) IN (SELECT {listed} FROM {source})"]
    if may_be_null:
        missing = " OR ".join(is_null(texts[i]) for i in may_be_null)
        some = " OR ".join(is_null(f'"__pgt_k".__pgt_k{i}') for i in may_be_null)
        same = " AND ".join(f'"__pgt_k".__pgt_k{i} IS NOT DISTINCT FROM {t}' for i, t in enumerate(texts))
        exists = f'EXISTS (SELECT FROM (SELECT {listed} FROM {source}) AS "__pgt_k" WHERE {same})'
        conditions.append(f"(SELECT bool_or({some}) FROM {source}) AND ({missing}) AND {exists}")
    return conditions


def _is_not_null(node: Block, key: str) -> bool:
    """Whether a key is a NOT NULL column of a table that is not on the nullable side of an outer join."""
    place = column_of(node, key)
    if place is None or not place[1].not_null:
        return False
    return place[0] in [p for tree in node.trees for p in preserved_items(tree)]


def column_of(node: Block, key: str) -> tuple[FromItem, Column] | None:
    """The column that an expression names, with its FROM item; None where the expression is anything else."""
    alias, _, column = key.rpartition(".")
    for part in from_items(node):
        if not isinstance(part.node, Scan):
            continue
        if (alias and identifier(alias) != identifier(part.alias)) or (not alias and len(from_items(node)) > 1):
            continue
        exposed = {name: attnum for attnum, name in part.node.exposes}
        attnum = exposed.get(identifier(column))
        table_column = next((c for c in part.node.relation.columns if c.attnum == attnum), None)
        if table_column is not None:
            return part, table_column
    return None
