"""Conditions `x IN (SELECT key ... GROUP BY key)` whose groups can be computed for given keys.

in:  a.k IN (SELECT b.g FROM b GROUP BY b.g HAVING count(*) > 1)
out: EXISTS (SELECT b.g FROM b WHERE b.g = a.k GROUP BY b.g HAVING count(*) > 1)
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from pgtrickle.pipeline.plan.nodes import Block, FromItem, Scan, Subquery, Text, from_items, subqueries
from pgtrickle.pipeline.text.tokens import identifier


def is_in_condition(condition: Text, sub: Subquery) -> bool:
    """Whether a condition is exactly `(test IN (subquery))`."""
    if len(condition) != 3 or condition[1] is not sub or sub.kind != "in" or sub.test is None:
        return False
    before, after = str(condition[0]).strip(" (").split(), str(condition[2])
    return not after.strip(" )") and before == [*sub.test.lstrip(" (").split(), "IN"]


@dataclass(frozen=True, slots=True)
class KeyedGroups:
    """Groups behind IN, and the group key that they return: the first column of an index of its table."""

    block: Block
    key: str
    part: FromItem
    attnum: int


def with_condition(groups: KeyedGroups, condition: str) -> Block:
    own = groups.block.where
    return replace(groups.block, where=("(", *own, f") AND {condition}") if own is not None else (condition,))


def keyed_groups(sub: Subquery) -> KeyedGroups | None:
    node = sub.node
    if not isinstance(node, Block) or node.region is None or len(node.columns) != 1 or subqueries(node.columns[0].text):
        return None
    key = "".join(str(p) for p in node.columns[0].text)
    if key not in node.region or node.distinct_on is not None:
        return None
    alias, _, column = key.rpartition(".")
    for part in from_items(node):
        if isinstance(part.node, Scan) and identifier(part.alias) == identifier(alias or part.alias):
            attnum = {name: a for a, name in part.node.exposes}.get(identifier(column))
            if attnum is not None and attnum in part.node.relation.indexed:
                return KeyedGroups(node, key, part, attnum)
            return None
    return None
