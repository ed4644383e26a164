"""Expressions that are computed by a LATERAL item for each row: subqueries and set-returning functions as keys of GROUP
BY, and set-returning functions in the select list of a subquery.

Groups have plain columns as keys then, and the changes of a subquery are those of a FROM item.

    in:  SELECT (SELECT c.region FROM c WHERE c.id = o.k) AS r, count(*) FROM o GROUP BY (SELECT c.region ...)
    out: SELECT g.k0 AS r, count(*) FROM o, LATERAL (SELECT (SELECT c.region ...) AS k0) AS g GROUP BY g.k0

    in:  SELECT unnest(o.a) AS u, count(*) FROM o GROUP BY unnest(o.a)
    out: SELECT g.k0 AS u, count(*) FROM o, LATERAL (SELECT unnest(o.a) AS k0) AS g GROUP BY g.k0

PostgreSQL evaluates set-returning functions in GROUP BY before it groups, several of them side by side, as a SELECT
does.
"""

from __future__ import annotations

from collections.abc import Sequence

from pgtrickle.model.identifiers import quote_ident
from pgtrickle.pipeline.plan.clauses import Clauses
from pgtrickle.pipeline.plan.names import replace_bare_names
from pgtrickle.pipeline.plan.nodes import Tree, tree_items
from pgtrickle.pipeline.plan.using import item_columns, merged_columns
from pgtrickle.pipeline.text.tokens import Cursor, identifier, strip_parentheses, token_keys

Range = tuple[int, int]


def with_lateral_columns(
    cursor: Cursor, clauses: Clauses, computed: Sequence[Range], trees: tuple[Tree, ...], alias: str, *, distinct: bool
) -> str:
    """The text of the SELECT with these expressions as columns of a LATERAL item."""
    keys = [strip_parentheses(cursor.tokens, *key) for key in computed]
    unique = {token_keys(cursor.tokens, *key): key for key in keys}
    shown = {tokens: f'("{alias}"."k{i}")' for i, tokens in enumerate(unique)}

    def text(passage: Range) -> str:
        return _replaced(cursor, passage, shown)

    defined = ", ".join(f"({_qualified(cursor, key, trees)}) AS k{i}" for i, key in enumerate(unique.values()))
    source = f"{cursor.text(*clauses.source)}, " if clauses.source is not None else ""
    first = "DISTINCT " if distinct else f"DISTINCT ON ({text(clauses.on)}) " if clauses.on is not None else ""
    pieces = [
        f"SELECT {first}" + ", ".join(f"{text((a, b))} AS {quote_ident(name)}" for name, a, b in clauses.items),
        f'FROM {source}LATERAL (SELECT {defined}) AS "{alias}"',
    ]
    if clauses.where is not None:
        pieces.append(f"WHERE {cursor.text(*clauses.where)}")
    if clauses.group:
        pieces.append(f"GROUP BY {', '.join(map(text, clauses.group))}")
    for word, passage in (("HAVING", clauses.having), ("WINDOW", clauses.window), ("ORDER BY", clauses.order)):
        if passage is not None:
            pieces.append(f"{word} {text(passage)}")
    if clauses.limit is not None:
        pieces.append(text(clauses.limit))
    return " ".join(pieces)


def _replaced(cursor: Cursor, passage: Range, shown: dict[tuple[str, ...], str]) -> str:
    start, stop = passage
    pieces, begin, index = [], start, start
    while index < stop:
        end = _end_of_key(cursor, index, passage, shown)
        if end == index:
            index += 1
            continue
        pieces += [cursor.text(begin, index), shown[token_keys(cursor.tokens, index, end)]]
        begin = index = end
    pieces.append(cursor.text(begin, stop))
    return " ".join(p for p in pieces if p)


def _end_of_key(cursor: Cursor, index: int, passage: Range, shown: dict[tuple[str, ...], str]) -> int:
    if index > passage[0] and cursor.tokens[index - 1].key == ".":
        return index  # of a qualified name
    for key in sorted(shown, key=len, reverse=True):
        end = index + len(key)
        if end <= passage[1] and token_keys(cursor.tokens, index, end) == key:
            return end
    return index


def _qualified(cursor: Cursor, key: Range, trees: tuple[Tree, ...]) -> str:
    """The key as the LATERAL item names it. PostgreSQL prints the columns of a single FROM item without its alias, and
    those that USING merges; in subqueries it prints aliases."""
    items = [p for tree in trees for p in tree_items(tree)]
    names = dict(merged_columns(trees))
    if len(items) == 1:
        names |= {n: f"{items[0].alias}.{quote_ident(n)}" for n in item_columns(items[0])}
    pieces, begin, index = [], key[0], key[0]
    while index <= key[1]:
        is_query = index < key[1] and _starts_query(cursor, index, key)
        if index == key[1] or is_query:
            outside = cursor.text(begin, index)
            pieces.append(replace_bare_names(outside, lambda name: names.get(identifier(name))) if outside else "")
        if is_query:
            closing = cursor.closing(index) if cursor.tokens[index].key == "(" else key[1] - 1
            pieces.append(cursor.text(index, closing + 1))
            begin = index = closing + 1
            if index == key[1]:
                break
            continue
        index += 1
    return " ".join(p for p in pieces if p)


def _starts_query(cursor: Cursor, index: int, key: Range) -> bool:
    if index == key[0] and cursor.is_query(index, key[1]):
        return True  # its parentheses were stripped
    return cursor.tokens[index].key == "(" and cursor.is_query(index + 1, cursor.closing(index))
