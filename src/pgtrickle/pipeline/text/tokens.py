"""Tokens of a query with their positions in its text.

Expressions are never printed from a syntax tree: the text of pg_get_viewdef is split at token boundaries and sent back
verbatim, so no printer can change the meaning of an expression.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

import sqlglot
from sqlglot.errors import TokenError

from pgtrickle.model.reasons import NotDifferentiableError, Reason, ReasonCode

CLAUSE_ENDS = (
    "FROM",
    "WHERE",
    "GROUP BY",
    "HAVING",
    "WINDOW",
    "UNION",
    "INTERSECT",
    "EXCEPT",
    "ORDER BY",
    "LIMIT",
    "OFFSET",
    "FETCH",
    "FOR",
)
JOIN_WORDS = ("JOIN", "INNER", "LEFT", "RIGHT", "FULL", "CROSS", "NATURAL")

_WORD = re.compile(r"[A-Za-z_\x80-\U0010ffff][\w$\x80-\U0010ffff]*\Z")


@dataclass(frozen=True, slots=True)
class Token:
    """`key` is what to compare: keywords and unquoted names in upper case, everything else as written."""

    key: str
    start: int
    end: int  # exclusive

    @property
    def is_name(self) -> bool:
        return self.key.startswith('"') or bool(_WORD.match(self.key))


def tokenize(sql: str) -> tuple[Token, ...]:
    try:
        raw = sqlglot.tokenize(sql, read="postgres")
    except TokenError as error:
        raise NotDifferentiableError(Reason.of(ReasonCode.NOT_TOKENS, error=str(error))) from error
    tokens = []
    for token in raw:
        text = sql[token.start : token.end + 1]
        if text[:1] in "\"'" or "'" in text:
            key = text
        else:
            key = " ".join(text.upper().split())
        tokens.append(Token(key, token.start, token.end + 1))
    return tuple(tokens)


def identifier(token_text: str) -> str:
    """The name that PostgreSQL stores for an identifier as written."""
    if token_text.startswith('"'):
        return token_text[1:-1].replace('""', '"')
    return token_text.lower()


class Cursor:
    """Walks over the tokens of one text."""

    def __init__(
        self, sql: str, tokens: tuple[Token, ...] | None = None, start: int = 0, stop: int | None = None
    ) -> None:
        self.sql = sql
        self.tokens = tokenize(sql) if tokens is None else tokens
        self.at = start
        self.stop = len(self.tokens) if stop is None else stop

    def peek(self, ahead: int = 0) -> str:
        index = self.at + ahead
        return self.tokens[index].key if index < self.stop else ""

    def next(self) -> Token:
        if self.at >= self.stop:
            raise NotDifferentiableError(Reason.of(ReasonCode.QUERY_ENDS))
        token = self.tokens[self.at]
        self.at += 1
        return token

    def name(self) -> str:
        """The next token as the name that PostgreSQL stores."""
        token = self.next()
        return identifier(self.sql[token.start : token.end])

    def last_name(self, start: int, stop: int) -> str:
        """The text of the last name outside parentheses, as the alias of an item of FROM is; empty without one."""
        name, at = "", start
        while at < stop:
            if self.tokens[at].key == "(":
                at = self.closing(at)
            elif self.tokens[at].is_name:
                name = self.text(at, at + 1)
            at += 1
        return name

    def names(self) -> tuple[str, ...]:
        """A parenthesised list of names."""
        closing = self.closing(self.at)
        listed = tuple(self.name_at(i) for i in range(self.at + 1, closing) if self.tokens[i].key != ",")
        self.at = closing + 1
        return listed

    def name_at(self, index: int) -> str:
        return identifier(self.sql[self.tokens[index].start : self.tokens[index].end])

    def inside(self, start: int, stop: int) -> Cursor:
        """Another cursor over a part of the same text."""
        return Cursor(self.sql, self.tokens, start, stop)

    def take(self, *keys: str) -> bool:
        if self.peek() in keys:
            self.at += 1
            return True
        return False

    def expect(self, key: str) -> None:
        if not self.take(key):
            raise NotDifferentiableError(Reason.of(ReasonCode.EXPECTED, expected=key, found=self.peek() or "the end"))

    def text(self, start: int, stop: int) -> str:
        """The text of tokens start (inclusive) to stop (exclusive)."""
        if start >= stop:
            return ""
        return self.sql[self.tokens[start].start : self.tokens[stop - 1].end]

    def closing(self, opening: int) -> int:
        """The index of the parenthesis that closes the one at `opening`."""
        depth = 0
        for index in range(opening, self.stop):
            key = self.tokens[index].key
            if key == "(":
                depth += 1
            elif key == ")":
                depth -= 1
                if depth == 0:
                    return index
        raise NotDifferentiableError(Reason.of(ReasonCode.UNBALANCED))

    def until(self, *keys: str) -> tuple[int, int]:
        """Moves to the next of `keys` at depth 0 (or to the end); returns the token range that was passed."""
        start = self.at
        depth = 0
        while self.at < self.stop:
            key = self.tokens[self.at].key
            if depth == 0 and key in keys:
                break
            if key in ("(", "["):
                depth += 1
            elif key in (")", "]"):
                if depth == 0:
                    break
                depth -= 1
            self.at += 1
        return start, self.at

    def has_at_depth_0(self, start: int, stop: int, *keys: str) -> bool:
        depth = 0
        for index in range(start, stop):
            key = self.tokens[index].key
            if key in ("(", "["):
                depth += 1
            elif key in (")", "]"):
                depth -= 1
            elif depth == 0 and key in keys:
                return True
        return False

    def split(self, start: int, stop: int, *separators: str) -> list[tuple[int, int]]:
        """The ranges between separators at depth 0."""
        ranges, depth, begin = [], 0, start
        for index in range(start, stop):
            key = self.tokens[index].key
            if key in ("(", "["):
                depth += 1
            elif key in (")", "]"):
                depth -= 1
            elif depth == 0 and key in separators:
                ranges.append((begin, index))
                begin = index + 1
        return [r for r in (*ranges, (begin, stop)) if r[0] < r[1]]

    def without_direction(self, passage: tuple[int, int]) -> tuple[int, int]:
        """An element of ORDER BY without ASC, DESC, NULLS FIRST and USING."""
        inner = self.inside(*passage)
        inner.until("ASC", "DESC", "NULLS", "NULLS FIRST", "NULLS LAST", "USING")
        return passage[0], inner.at

    def is_query(self, start: int, stop: int) -> bool:
        """Whether these parentheses contain a query, not an expression or a join."""
        if start >= stop:
            return False
        if self.tokens[start].key in ("SELECT", "WITH", "VALUES"):
            return True
        return (
            self.tokens[start].key == "("
            and not self.has_at_depth_0(start, stop, "JOIN")
            and self.has_at_depth_0(start, stop, "UNION", "INTERSECT", "EXCEPT")
        )


def strip_parentheses(tokens: tuple[Token, ...], start: int, stop: int) -> tuple[int, int]:
    """Drops parentheses that enclose the whole range: `((a + b))` and `a + b` are the same expression."""
    while stop - start >= 2 and tokens[start].key == "(" and tokens[stop - 1].key == ")":
        depth = 0
        for index in range(start, stop - 1):
            depth += {"(": 1, ")": -1}.get(tokens[index].key, 0)
            if depth == 0:
                return start, stop
        start, stop = start + 1, stop - 1
    return start, stop


def token_keys(tokens: tuple[Token, ...], start: int, stop: int) -> tuple[str, ...]:
    return tuple(t.key for t in tokens[start:stop])


def without_names(sql: str) -> str:
    """The text without the words that follow or precede a dot anywhere in it, as names of relations and columns do.

    Two texts that differ only in such names give the same result. A text that cannot be tokenized is unchanged.
    """
    try:
        tokens = tokenize(sql)
    except NotDifferentiableError:
        return sql
    dots = [i for i, t in enumerate(tokens) if t.key == "."]
    adjacent = [t for i in dots for t in tokens[max(i - 1, 0) : i + 2] if t.is_name]
    written = {sql[t.start : t.end].lower() for t in adjacent}
    names = {identifier(sql[t.start : t.end]) for t in adjacent}
    # A name that is a keyword is quoted; without quotes the word is the keyword.
    words = {t.start for t in sqlglot.tokenize(sql, read="postgres") if t.token_type == sqlglot.TokenType.VAR}

    def is_name(token: Token) -> bool:
        text = sql[token.start : token.end]
        return text.lower() in written or (
            (token.key.startswith('"') or token.start in words) and identifier(text) in names
        )

    return " ".join("#" if is_name(token) else token.key for token in tokens)


_DOLLARS = re.compile(r"\$(?:[^\W\d]\w*)?\$")
# Before a constant: types that the grammar knows, whatever the search_path is, and those that are looked up in it.
_KEYWORD_TYPES = frozenset({"TIME", "TIMESTAMP", "INTERVAL", "ZONE"})
_NAMED_TYPES = frozenset({"DATE", "TIMESTAMPTZ", "TIMETZ"})


def without_constants(sql: str) -> str:
    """Replaces each string constant by NULL, which is of unknown type, too: PostgreSQL reads constants when it parses
    them, which may run code of the owner of their type. Not after a type that is a keyword, which requires a constant;
    date '2020-01-01' becomes NULL::date."""
    tokens = tokenize(sql)
    pieces, at = [], 0
    for number, token in enumerate(tokens):
        if not (("'" in token.key and not token.key.startswith('"')) or _DOLLARS.match(token.key) is not None):
            continue
        is_qualified = number > 1 and tokens[number - 2].key == "."
        before = tokens[number - 1].key if number and not is_qualified else ""
        if before in _KEYWORD_TYPES:
            continue
        start, new = token.start, "NULL"
        if before in _NAMED_TYPES:
            start, new = tokens[number - 1].start, f"NULL::{before}"
        pieces += [sql[at:start], f" {new} "]
        at = token.end
    return "".join([*pieces, sql[at:]])
