"""Whether a row asks a subquery for keys that a change has, told by the equalities that connect both."""

from __future__ import annotations

from functools import lru_cache

from pgtrickle.pipeline.nodes import Block, Node, Part, Text, Tree, leaves, parts, plain, subs
from pgtrickle.pipeline.rules.names import conjuncts, free, own
from pgtrickle.pipeline.rules.states import DELTA, Statement, View
from pgtrickle.pipeline.sqltext import Cursor, strip_parentheses


def asked_of_changes(into: Statement, node: Node, part: Part) -> str | None:
    """Whether a row asks a subquery for keys that a change of its part has; None where it does not ask by equality.

    Each row that passes WHERE has the part's row with these keys in it, so that changes with others mean nothing to it.
    """
    if not isinstance(node, Block) or part not in parts(node) or node.where is None:
        return None
    if part.is_lateral or part.node is None or free(part.node):
        return None
    return keys_among_changes(into, node.trees, part, conjuncts(node.where))


def keys_among_changes(into: Statement, trees: tuple[Tree, ...], part: Part, conditions: list[Text]) -> str | None:
    here = {own(p) for t in trees for p in leaves(t)}
    pairs = [p for c in conditions if (p := equality(c, part, here)) is not None]
    if not pairs:
        return None
    changes = into.part(part, View(DELTA), [])
    return f"({', '.join(o for o, _ in pairs)}) IN (SELECT {', '.join(i for _, i in pairs)} FROM {changes})"


def equality(condition: Text, part: Part, here: set[str]) -> tuple[str, str] | None:
    """(column from around, column of the part) where a condition says that they are equal."""
    sides = () if subs(condition) else _equal_columns(plain(condition))
    inner = [text for alias, text in sides if alias == own(part)]
    outer = [text for alias, text in sides if alias not in here]
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
