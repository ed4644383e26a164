"""Replaces the relations that a query names and leaves every other character unchanged. Pure.

A relation without an alias gets its old name as alias, so that qualified columns remain valid.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass

from pgtrickle.errors import DefinitionError
from pgtrickle.model.identifiers import quote_ident
from pgtrickle.pipeline.text.tokens import Token, identifier, tokenize

_BEFORE = frozenset({"FROM", "JOIN", "ONLY", ",", "(", "LATERAL"})


@dataclass(frozen=True, slots=True)
class Reference:
    """A name of one to three parts in a text; `has_alias`: an alias follows it, or is impossible."""

    parts: tuple[str, ...]
    start: int
    end: int
    has_alias: bool

    def replaced(self, text: str, *parts: str, with_alias: bool = True) -> str:
        alias = f" AS {quote_ident(self.parts[-1])}" if with_alias and not self.has_alias else ""
        return f"{text[: self.start]}{'.'.join(map(quote_ident, parts))}{alias}{text[self.end :]}"


def reference_at(text: str, position: int, keywords: Collection[str]) -> Reference:
    """The name of three parts that begins at a character; `keywords`: those that cannot be an alias, in upper case."""
    tokens = tokenize(text)
    for number, token in enumerate(tokens):
        if token.start == position:
            reference = _reference(text, tokens, number, 3, keywords)
            if reference is not None:
                return reference
    raise DefinitionError(f"there is no name of the form database.schema.table at character {position + 1}")


def references_to(text: str, parts: tuple[str, ...], keywords: Collection[str]) -> list[Reference]:
    """Where a text that PostgreSQL has deparsed reads a relation, the last one first."""
    tokens = tokenize(text)
    references = []
    for number in range(1, len(tokens)):
        if tokens[number - 1].key not in _BEFORE:
            continue
        reference = _reference(text, tokens, number, len(parts), keywords)
        if reference is not None and reference.parts == parts:
            references.append(reference)
    return references[::-1]


def _reference(
    text: str, tokens: tuple[Token, ...], number: int, parts: int, keywords: Collection[str]
) -> Reference | None:
    """The name at a token, if it has exactly this number of parts and is not a function name."""
    last = number + 2 * (parts - 1)
    if last >= len(tokens):
        return None
    own = tokens[number : last + 1]
    if any(t.key != "." for t in own[1::2]) or not all(t.is_name for t in own[::2]):
        return None
    after = tokens[last + 1].key if last + 1 < len(tokens) else ""
    if after in (".", "("):
        return None
    before = tokens[number - 1].key if number else ""
    has_alias = before == "TABLE" or after == "AS" or (_is_word(tokens, last + 1) and after not in keywords)
    names = tuple(identifier(text[t.start : t.end]) for t in own[::2])
    return Reference(names, own[0].start, own[-1].end, has_alias)


def _is_word(tokens: tuple[Token, ...], number: int) -> bool:
    return number < len(tokens) and tokens[number].is_name
