"""Whether a row asks a subquery for keys that a change has, told by the equalities that connect both."""

from __future__ import annotations

from functools import lru_cache

from pgtrickle.pipeline.differentiate.key_filter import column_of
from pgtrickle.pipeline.differentiate.states import DELTA, Statement, View
from pgtrickle.pipeline.plan.names import conjuncts, free, own
from pgtrickle.pipeline.plan.nodes import Block, FromItem, Node, Sub, Text, Tree, joins, leaves, parts, plain, subs
from pgtrickle.pipeline.text.tokens import Cursor, strip_parentheses


def asked_of_changes(into: Statement, node: Node, part: FromItem) -> str | None:
    """Whether a row asks a subquery for keys that a change of its part has; None where it does not ask by equality.

    Each row that passes WHERE has the part's row with these keys in it, so that changes with others mean nothing to it.
    """
    if not isinstance(node, Block) or part not in parts(node) or node.where is None:
        return None
    if part.is_lateral or part.node is None or free(part.node):
        return None
    return keys_among_changes(into, node.trees, part, conjuncts(node.where))


def keys_among_changes(into: Statement, trees: tuple[Tree, ...], part: FromItem, conditions: list[Text]) -> str | None:
    here = {own(p) for t in trees for p in leaves(t)}
    pairs = [p for c in conditions if (p := equality(c, part, here)) is not None]
    if not pairs:
        return None
    changes = into.part(part, View(DELTA), [])
    return f"({', '.join(o for o, _ in pairs)}) IN (SELECT {', '.join(i for _, i in pairs)} FROM {changes})"


def equality(condition: Text, part: FromItem, here: set[str]) -> tuple[str, str] | None:
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


def keys_asked(into: Statement, node: Block, view: View, sub: Sub) -> str | None:
    """A query of what the rows of a term ask a subquery behind IN for: a column of a part that the term reads as its
    changes, or one that must be equal to such a column. None: it may be anything."""
    if sub.test is None:
        return None
    asking = _bare(sub.test)
    column = column_of(node, asking)
    if column is None:
        return None
    candidates = {asking: column}
    # A row of an inner join fulfils its condition, or has NULLs on both sides of it, which IN does not let pass.
    inner = [j.on for tree in node.trees for j in joins(tree) if j.kind == "JOIN" and j.on is not None]
    for text in [*inner, *([node.where] if node.where is not None else [])]:
        for condition in conjuncts(text):
            sides = [] if subs(condition) else [side for _, side in _equal_columns(plain(condition))]
            if len(sides) == 2 and asking in sides:
                other = sides[1 - sides.index(asking)]
                found = column_of(node, other)
                # Of one type: then who is equal to the one is equal to the other.
                if found is not None and found[1].typid == column[1].typid in PLAIN:
                    candidates[other] = found
    for name, (part, _) in candidates.items():
        if view.of(part) == DELTA:
            return f"SELECT {name} FROM {into.part(part, View(DELTA), [])}"
    return None


def keys_changed(into: Statement, sub: Sub, part: FromItem) -> str | None:
    """A query of the groups behind IN that the changes of a part belong to. To any other the answer is what it was."""
    node = sub.node
    if not isinstance(node, Block) or part not in parts(node) or len(node.columns) != 1:
        return None
    text = plain(node.columns[0].text)
    found = column_of(node, _bare(text))
    if found is None or found[0] != part or len([p for p in parts(node) if p.node is not None]) != 1:
        return None
    return f"SELECT {_bare(text)} FROM {into.part(part, View(DELTA), [])}"


def _bare(text: str) -> str:
    return text.strip().strip("()")


# Types whose equality is one of values, with no collation in it: integers, numeric, dates and times, uuid.
PLAIN = frozenset({20, 21, 23, 1700, 1082, 1114, 1184, 2950})
