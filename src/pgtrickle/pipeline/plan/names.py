"""Which names a text uses: the FROM items that an expression reads, and the outer columns that a subquery reads."""

from __future__ import annotations

from collections.abc import Callable
from functools import lru_cache
from itertools import pairwise
from typing import assert_never

from pgtrickle.pipeline.plan.nodes import (
    Aggregate,
    Block,
    Concat,
    Distinct,
    From,
    FromItem,
    Node,
    Plan,
    Recursive,
    Scan,
    Select,
    SetOperation,
    Subquery,
    Text,
    UnionAll,
    Values,
    block_texts,
    children,
    column_names,
    from_items,
    subqueries,
)
from pgtrickle.pipeline.plan.using import merged_columns
from pgtrickle.pipeline.text.tokens import Cursor, Token, identifier, strip_parentheses, tokenize

_PLACE = "__pgt_sub_"


@lru_cache(maxsize=4096)
def aliases(sql: str) -> frozenset[str]:
    """The names before a dot: aliases of FROM items, without the schemas of functions and types."""
    tokens = tokenize(sql)
    names = set()
    for index, token in enumerate(tokens[:-2]):
        if not token.is_name or tokens[index + 1].key != "." or (index and tokens[index - 1].key in (".", "::")):
            continue
        if index + 3 < len(tokens) and tokens[index + 3].key == "(":
            continue
        if not tokens[index + 2].is_name and tokens[index + 2].key != "*":
            continue  # OPERATOR(schema.=)
        names.add(identifier(sql[token.start : token.end]))
    return frozenset(names)


def qualified(node: Block, sql: str) -> str | None:
    """An expression over a block with qualified names, so that it means the same inside a subquery of the block.

    PostgreSQL prints the columns of a single FROM item without its alias, and those that USING merges. None where the
    item of a name is not known, as for a function.
    """
    tokens = tokenize(sql)
    is_plain = all(t.is_name or t.key in ".,()" for t in tokens) and not _calls(tokens)
    items, both = from_items(node), merged_columns(node.trees, compared=is_plain)
    sql = replace_bare_names(sql, lambda name: both.get(identifier(name))) if both else sql
    if len(items) == 1 and items[0].node is not None:
        alias, columns = items[0].alias, frozenset(column_names(items[0].node))
        sql = replace_bare_names(sql, lambda name: f"{alias}.{name}" if identifier(name) in columns else None)
    return None if _bare(sql, tokenize(sql)) else sql


def _calls(tokens: tuple[Token, ...]) -> bool:
    return any(before.is_name and token.key == "(" for before, token in pairwise(tokens))


def has_bare_names(sql: str) -> bool:
    """Whether a text names columns without an alias, so that their FROM items are not known."""
    return bool(_bare(sql, tokenize(sql)))


def replace_bare_names(sql: str, other: Callable[[str], str | None]) -> str:
    """The text with bare names replaced; `other` returns the replacement of a name as written, or None."""
    replaced, begin = "", 0
    for token in _bare(sql, tokenize(sql)):
        words = other(sql[token.start : token.end])
        if words is not None:
            replaced += f"{sql[begin : token.start]}{words}"
            begin = token.end
    return replaced + sql[begin:]


def _bare(sql: str, tokens: tuple[Token, ...]) -> list[Token]:
    """The names of columns without an alias. PostgreSQL prints keywords in capitals, except the words of types, the
    fields of EXTRACT, true and false; `day` and `zone` may be columns. Windows have names, too."""
    bare = []
    is_type = False
    for index, token in enumerate(tokens):
        before = tokens[index - 1].key if index else ""
        after = tokens[index + 1].key if index + 1 < len(tokens) else ""
        is_type = before == "::" or (is_type and (before == "." or token.key in _OF_TYPES or token.key.isdigit()))
        if is_type or not token.is_name or before in (".", "COLLATE", "OVER", "WINDOW") or after in (".", "(", "AS"):
            continue
        is_field = index > 1 and tokens[index - 2].key == "EXTRACT"
        text = sql[token.start : token.end]
        if not is_field and text not in ("true", "false") and (text.startswith('"') or not text.isupper()):
            bare.append(token)
    return bare


_OF_TYPES = frozenset({".", "(", ")", "VARYING", "PRECISION", "WITH", "WITHOUT", "TIME", "ZONE"})


def aliases_in_text(text: Text) -> frozenset[str]:
    """The aliases that a text with subqueries uses; of subqueries only the outer aliases count."""
    names: set[str] = set()
    for part in text:
        names |= outer_aliases(part.node) if isinstance(part, Subquery) else aliases(part)
    return frozenset(names)


def alias_of(part: FromItem) -> str:
    return identifier(part.alias)


def outer_aliases(node: Plan) -> frozenset[str]:
    """The aliases of the outer query that a plan uses; not empty for a correlated subquery."""
    match node:
        case Scan() | Aggregate():
            return frozenset()
        case Values():
            return aliases(node.sql)
        case Block():
            return _free_of_block(node)
        case Select():
            return frozenset(_of_select(node))
        case UnionAll() | Concat() | Distinct() | SetOperation() | Recursive():
            return frozenset().union(*(outer_aliases(c) for c in children(node)))
        case _:
            assert_never(node)


def _free_of_block(node: Block) -> frozenset[str]:
    used: set[str] = set()
    for text in (*block_texts(node), *(p.call for p in from_items(node))):
        used |= aliases_in_text(text)
    for part in from_items(node):
        if part.node is not None:
            used |= outer_aliases(part.node)
    return frozenset(used - {alias_of(p) for p in from_items(node)})


def _of_select(node: Select) -> set[str]:
    used: set[str] = set()
    for text in (*(i.sql for i in node.items), node.where or ""):
        used |= aliases(text)
    if isinstance(node.source, From):
        for piece in node.source.parts:
            used |= aliases(piece) if isinstance(piece, str) else set()
        for member in node.source.members:
            used |= outer_aliases(member.node)
        used -= {identifier(m.alias) for m in node.source.members}
    return used


def conjuncts(text: Text) -> list[Text]:
    """The conjuncts of a condition. PostgreSQL prints BETWEEN as two comparisons, so each AND is a conjunction."""
    holders = list(subqueries(text))
    sql, number = "", 0
    for piece in text:
        if isinstance(piece, Subquery):
            sql += f" {_PLACE}{number} "
            number += 1
        else:
            sql += piece
    return [_filled(condition, holders) for condition in _split(sql)]


@lru_cache(maxsize=4096)
def _split(sql: str) -> tuple[str, ...]:
    cursor = Cursor(sql)
    start, stop = strip_parentheses(cursor.tokens, 0, len(cursor.tokens))
    return tuple(cursor.text(a, b) for a, b in cursor.split(start, stop, "AND"))


def _filled(sql: str, holders: list[Subquery]) -> Text:
    pieces: list[str | Subquery] = []
    while _PLACE in sql:
        before, _, rest = sql.partition(_PLACE)
        digits = rest[: len(rest) - len(rest.lstrip("0123456789"))]
        pieces += [before, holders[int(digits)]]
        sql = rest[len(digits) :]
    return (*pieces, sql)


def nested_from_items(node: Node) -> tuple[FromItem, ...]:
    """The FROM items of a query and of the subqueries in its expressions: what a View can read in another state."""
    match node:
        case Scan() | Select() | Values():
            return ()
        case Block():
            own_parts = from_items(node)
            inner = tuple(
                p
                for text in (*block_texts(node), *(p.call for p in own_parts))
                for s in subqueries(text)
                for p in nested_from_items(s.node)
            )
            lateral = tuple(
                q for p in own_parts if p.is_lateral and p.node is not None for q in nested_from_items(p.node)
            )
            return (*own_parts, *lateral, *inner)
        case UnionAll() | Concat() | Distinct() | SetOperation() | Recursive():
            return tuple(p for c in children(node) for p in nested_from_items(c))
        case _:
            assert_never(node)
