"""Semijoin keys: which keys a statement needs from a subquery, and which keys the delta of a subquery has.

    in:  ... WHERE (SELECT max(y) FROM b WHERE b.k = a.k) > 5      (b has changed)
    out: a.k IN (SELECT b.k FROM db AS b)                           only these rows of a are affected

The equalities in the conditions of a subquery connect its rows with the rows of the query around it.
"""

from __future__ import annotations

from functools import lru_cache

from pgtrickle.pipeline.differentiate.key_filter import column_of
from pgtrickle.pipeline.differentiate.states import DELTA, Statement, View
from pgtrickle.pipeline.plan.names import alias_of, conjuncts, outer_aliases
from pgtrickle.pipeline.plan.nodes import (
    Block,
    FromItem,
    Node,
    Subquery,
    Text,
    Tree,
    from_items,
    joins,
    plain_sql,
    subqueries,
    tree_items,
)
from pgtrickle.pipeline.text.tokens import Cursor, strip_parentheses


def correlates_with_changes(statement: Statement, node: Node, part: FromItem) -> str | None:
    """A condition on the outer row: its correlation keys are among the keys of the delta of a FROM item.

    Each row of the subquery that passes WHERE has these keys, so delta rows with other keys do not affect its value.
    None where the subquery is not correlated by equality.
    """
    if not isinstance(node, Block) or part not in from_items(node) or node.where is None:
        return None
    if part.is_lateral or part.node is None or outer_aliases(part.node):
        return None
    return semijoin_condition(statement, node.trees, part, conjuncts(node.where))


def semijoin_condition(
    statement: Statement, trees: tuple[Tree, ...], part: FromItem, conditions: list[Text]
) -> str | None:
    own_aliases = {alias_of(p) for t in trees for p in tree_items(t)}
    pairs = [p for c in conditions if (p := correlated_columns(c, part, own_aliases)) is not None]
    if not pairs:
        return None
    changes = statement.render_item(part, View(DELTA), [])
    return f"({', '.join(o for o, _ in pairs)}) IN (SELECT {', '.join(i for _, i in pairs)} FROM {changes})"


def correlated_columns(condition: Text, part: FromItem, own_aliases: set[str]) -> tuple[str, str] | None:
    """(column of the outer query, column of the FROM item) where a condition says that they are equal."""
    sides = () if subqueries(condition) else _equal_columns(plain_sql(condition))
    inner = [text for alias, text in sides if alias == alias_of(part)]
    outer = [text for alias, text in sides if alias not in own_aliases]
    return (outer[0], inner[0]) if len(inner) == len(outer) == 1 else None


@lru_cache(maxsize=4096)
def _equal_columns(sql: str) -> tuple[tuple[str, str], ...]:
    """(alias, column as written) of both sides of `alias.column = alias.column`; nothing for any other condition."""
    cursor = Cursor(sql)
    start, stop = strip_parentheses(cursor.tokens, 0, len(cursor.tokens))
    sides = cursor.split(start, stop, "=")
    if len(sides) != 2 or any(b - a != 3 or cursor.tokens[a + 1].key != "." for a, b in sides):
        return ()
    return tuple((cursor.name_at(a), cursor.text(a, b)) for a, b in sides)


def semijoin_keys(statement: Statement, node: Block, view: View, sub: Subquery) -> str | None:
    """A query of the values that the rows of a term compare with a subquery by IN.

    The left side of IN is a column of an item that the term reads as a delta, or is equal to such a column.
    None: the values are not known to be few.

    in:  SELECT ... FROM da AS a WHERE a.k IN (SELECT g FROM b GROUP BY g)
    out: SELECT a.k FROM da AS a
    """
    if sub.test is None:
        return None
    tested = _bare(sub.test)
    column = column_of(node, tested)
    if column is None:
        return None
    candidates = {tested: column}
    # A row of an inner join fulfils its condition, or has NULLs on both sides of it, which IN rejects.
    inner = [j.on for tree in node.trees for j in joins(tree) if j.kind == "JOIN" and j.on is not None]
    for text in [*inner, *([node.where] if node.where is not None else [])]:
        for condition in conjuncts(text):
            sides = [] if subqueries(condition) else [side for _, side in _equal_columns(plain_sql(condition))]
            if len(sides) == 2 and tested in sides:
                other = sides[1 - sides.index(tested)]
                item_column = column_of(node, other)
                # Both are of one type, so a value equal to the one is equal to the other.
                if item_column is not None and item_column[1].typid == column[1].typid in VALUE_EQUALITY_TYPES:
                    candidates[other] = item_column
    for name, (part, _) in candidates.items():
        if view.state_of(part) == DELTA:
            return f"SELECT {name} FROM {statement.render_item(part, View(DELTA), [])}"
    return None


def changed_group_keys(statement: Statement, sub: Subquery, part: FromItem) -> str | None:
    """A query of the group keys of a subquery behind IN that the delta of a FROM item has; other groups are unchanged.

    in:  a.k IN (SELECT b.g FROM b GROUP BY b.g HAVING ...)       (b has changed)
    out: SELECT b.g FROM db AS b
    """
    node = sub.node
    if not isinstance(node, Block) or part not in from_items(node) or len(node.columns) != 1:
        return None
    text = plain_sql(node.columns[0].text)
    item_column = column_of(node, _bare(text))
    if item_column is None or item_column[0] != part or len([p for p in from_items(node) if p.node is not None]) != 1:
        return None
    return f"SELECT {_bare(text)} FROM {statement.render_item(part, View(DELTA), [])}"


def _bare(text: str) -> str:
    return text.strip().strip("()")


# Types whose equality depends on the value alone and not on a collation: integers, numeric, dates and times, uuid.
VALUE_EQUALITY_TYPES = frozenset({20, 21, 23, 1700, 1082, 1114, 1184, 2950})
