"""The text of a subexpression of a query, as PostgreSQL printed it. Pure.

The parser's own rendering is not used: it may name other functions. A subexpression is found by the positions of its
names and constants; from there the range is extended, token by token, until the parser returns the same tree.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping

import sqlglot
from sqlglot import exp
from sqlglot.errors import SqlglotError

_LEFT, _RIGHT = 10, 14  # at most so many tokens before the first and after the last name or constant
_TEXT = "sql"


def remember(tree: exp.Expr, sql: str) -> exp.Expr:
    """Stores the text in the tree that was parsed from it."""
    tree.meta[_TEXT] = sql
    return tree


def text_over(tree: exp.Expr, names: Mapping[exp.Column, str]) -> str | None:
    """The text of the subexpression, with columns renamed by `names`; None if it is not found."""
    sql = tree.root().meta.get(_TEXT)
    places = [_place(node) for node in tree.walk() if "start" in node.meta]
    if sql is None or not places:
        return None
    first, last = min(start for start, _ in places), max(end for _, end in places)
    span = next(((start, end) for start, end in _ranges(sql, first, last) if _is_same(sql[start:end], tree)), None)
    if span is None:
        return None
    # The parser accepts "double" for "double precision": the longest text with the same tree is taken.
    start = span[0]
    end = max(e for s, e in _ranges(sql, first, last) if s == start and _is_same(sql[start:e], tree))
    return _replaced(sql[start:end], start, tree, names)


def _place(node: exp.Expr) -> tuple[int, int]:
    return int(node.meta["start"]), int(node.meta["end"]) + 1


def _ranges(sql: str, first: int, last: int) -> Iterator[tuple[int, int]]:
    """Ranges of tokens around first..last, the shortest first."""
    tokens = sqlglot.tokenize(sql, read="postgres")
    low = next(i for i, t in enumerate(tokens) if t.end >= first)
    high = next(i for i, t in enumerate(tokens) if t.end + 1 >= last)
    for more in range(_LEFT + _RIGHT + 1):
        for left in range(min(more, _LEFT, low) + 1):
            right = more - left
            if right <= _RIGHT and high + right < len(tokens):
                yield tokens[low - left].start, tokens[high + right].end + 1


def _is_same(text: str, tree: exp.Expr) -> bool:
    if text.upper().endswith(" AS"):
        return False  # which the parser ignores if no name follows
    if text.count("(") != text.count(")") and "'" not in text and '"' not in text:
        return False  # not worth parsing
    try:
        return sqlglot.parse_one(text, read="postgres").unnest() == tree.unnest()
    except SqlglotError:
        return False


def _replaced(text: str, start: int, tree: exp.Expr, names: Mapping[exp.Column, str]) -> str:
    places = []
    for column in tree.find_all(exp.Column):
        parts = [_place(part) for part in column.find_all(exp.Identifier)]
        places.append((min(s for s, _ in parts) - start, max(e for _, e in parts) - start, names[column]))
    for low, high, name in sorted(places, reverse=True):
        text = text[:low] + name + text[high:]
    return text
