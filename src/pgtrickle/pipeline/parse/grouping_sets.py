"""GROUPING SETS, CUBE and ROLLUP as one GROUP BY over the rows crossed with the sets.

Each row of the input counts once for each set; a key that is not in a set is NULL there, and GROUPING() follows from
the number of the set. The empty set has a row even without input, so it becomes a SELECT without GROUP BY.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence, Set
from dataclasses import dataclass
from itertools import product

from pgtrickle.model.reasons import NotDifferentiableError, Reason, ReasonCode
from pgtrickle.pipeline.plan.clauses import Clauses
from pgtrickle.pipeline.plan.grouping import aggregate_at
from pgtrickle.pipeline.plan.names import replace_bare_names
from pgtrickle.pipeline.text.tokens import Cursor, identifier, strip_parentheses, token_keys, tokenize

ALIAS, _SET = '"__pgt_sets"', "__pgt_set"
_WORDS = ("GROUPING SETS", "CUBE", "ROLLUP")

Key = tuple[str, ...]  # the tokens of a grouping expression


@dataclass(frozen=True, slots=True)
class ExpandedGroupingSets:
    """One SELECT of the union. `sets`: a VALUES list to cross the input with, and the names of its columns."""

    sets: str | None
    names: tuple[str, ...]
    columns: tuple[tuple[str, str], ...]
    keys: tuple[str, ...]
    tail: str


def has_grouping_sets(cursor: Cursor, group: list[tuple[int, int]]) -> bool:
    return any(cursor.tokens[start].key in _WORDS or _is_empty(cursor, start, stop) for start, stop in group)


def expand(
    cursor: Cursor, clauses: Clauses, aggregates: Set[str], merged: Mapping[str, str], is_scalar: Callable[[Key], bool]
) -> list[ExpandedGroupingSets]:
    """`merged`: the columns that USING merges, by name. `is_scalar`: whether a key is certainly not an array."""
    texts: dict[Key, str] = {}
    per_item = [_sets(cursor, start, stop, texts) for start, stop in clauses.group]
    sets = [tuple(dict.fromkeys(k for part in choice for k in part)) for choice in product(*per_item)]
    every = list(texts)
    selects = []
    filled = [s for s in sets if s]
    if filled:
        rows = [[str(n), *("true" if k in s else "false" for k in every)] for n, s in enumerate(filled)]
        names = (_SET, *(f"__pgt_g{i}" for i in range(len(every))))
        values = ", ".join(f"({', '.join(row)})" for row in rows)
        shown = {k: f"CASE WHEN {ALIAS}.__pgt_g{i} THEN {texts[k]} END" for i, k in enumerate(every)}
        selects.append(
            _grouped(_Sets(cursor, aggregates, shown, filled, merged, texts), clauses, f"VALUES {values}", names)
        )
    for _ in range(len(sets) - len(filled)):
        absent = {k: _absent(texts[k], is_scalar=is_scalar(k)) for k in every}
        selects.append(_grouped(_Sets(cursor, aggregates, absent, [()], merged, texts), clauses, None, ()))
    return selects


def _absent(text: str, *, is_scalar: bool) -> str:
    """NULL of the type of a key. array_agg() of arrays adds a dimension instead; mode() needs an order."""
    if is_scalar:
        return f"(array_agg({text}) FILTER (WHERE false))[1]"
    return f"(mode() WITHIN GROUP (ORDER BY ({text})) FILTER (WHERE false))"


def _grouped(sets: _Sets, clauses: Clauses, values: str | None, names: tuple[str, ...]) -> ExpandedGroupingSets:
    columns = tuple((name, sets.text(start, stop)) for name, start, stop in clauses.items)
    region = (f"{ALIAS}.{_SET}", *sets.shown.values()) if values is not None else ()
    tail = f" GROUP BY {', '.join(f'({k})' for k in region)}" if region else " GROUP BY ()"
    if clauses.having is not None:
        tail += f" HAVING {sets.text(*clauses.having)}"
    return ExpandedGroupingSets(values, names, columns, region, tail)


@dataclass(frozen=True, slots=True)
class _Sets:
    """Expressions over groups, for some of the sets. `shown`: what replaces each key; `texts`: keys as written."""

    cursor: Cursor
    aggregates: Set[str]
    shown: Mapping[Key, str]
    sets: Sequence[tuple[Key, ...]]
    merged: Mapping[str, str]
    texts: Mapping[Key, str]

    def text(self, start: int, stop: int) -> str:
        """The expression with keys and GROUPING() replaced, except in arguments of aggregates."""
        cursor = self.cursor
        constants = {key[:1]: text for key, text in self.shown.items() if _is_constant(key)}
        if (constant_key := _key(cursor, start, stop)) in constants:
            return f"({constants[constant_key]})"
        pieces, begin, index = [], start, start
        while index < stop:
            if aggregate_at(cursor, index, self.aggregates):
                index = self._call_end(index, stop)
                continue
            end, replacement = self._replaced(index, start, stop)
            if end == index:
                if (cursor.tokens[index].key,) in constants:
                    # Versions of PostgreSQL differ in whether this constant is the grouping key.
                    raise NotDifferentiableError(Reason.of(ReasonCode.GROUPING_SETS))
                index += 1
                continue
            pieces += [cursor.text(begin, index), replacement]
            begin = index = end
        pieces.append(cursor.text(begin, stop))
        return " ".join(p for p in pieces if p)

    def _call_end(self, index: int, stop: int) -> int:
        cursor = self.cursor
        end = cursor.closing(index + 1) + 1
        while end < stop and cursor.tokens[end].key in ("FILTER", "WITHIN", "GROUP"):
            end = cursor.closing(end + 1) + 1 if cursor.tokens[end + 1].key == "(" else end + 1
        return end

    def _replaced(self, index: int, start: int, stop: int) -> tuple[int, str]:
        """The end of a key or of GROUPING() at this token and its replacement; otherwise the token itself."""
        cursor = self.cursor
        if cursor.tokens[index].key == "GROUPING" and cursor.tokens[index + 1].key == "(":
            end = cursor.closing(index + 1) + 1
            return end, self._grouping(index + 2, end - 1)
        if index == start or cursor.tokens[index - 1].key != ".":
            for key, text in sorted(self.shown.items(), key=lambda pair: -len(pair[0])):
                if token_keys(cursor.tokens, index, index + len(key)) == key and index + len(key) <= stop:
                    return index + len(key), f"({text})"
        return index, ""

    def _grouping(self, start: int, stop: int) -> str:
        arguments = [self._argument(a, b) for a, b in self.cursor.split(start, stop, ",")]
        masks = [sum(1 << (len(arguments) - 1 - i) for i, a in enumerate(arguments) if a not in s) for s in self.sets]
        if list(self.sets) == [()]:
            return str(masks[0])
        return f"(CASE {ALIAS}.{_SET} {' '.join(f'WHEN {n} THEN {m}' for n, m in enumerate(masks))} END)"

    def _argument(self, start: int, stop: int) -> Key:
        """The key of an argument of GROUPING(). There PostgreSQL prints a merged column by its two sides, but without
        an alias in GROUP BY, and a constant without its type."""
        written = _key(self.cursor, start, stop)
        for key in self.shown:
            if (
                written == key
                or (_is_constant(key) and written == key[:1])
                or _unquoted(written) == self._by_sides(key)
            ):
                return key
        raise NotDifferentiableError(Reason.of(ReasonCode.NOT_GROUPED, expression=self.cursor.text(start, stop)))

    def _by_sides(self, key: Key) -> Key:
        text = replace_bare_names(self.texts[key], lambda name: self.merged.get(identifier(name)))
        tokens = tokenize(text)
        return _unquoted(token_keys(tokens, *strip_parentheses(tokens, 0, len(tokens))))


def _unquoted(key: Key) -> Key:
    """Removes unnecessary quotes of names."""
    return tuple(
        k[1:-1].upper() if k.startswith('"') and k[1:-1].islower() and k[1:-1].isidentifier() else k for k in key
    )


def _sets(cursor: Cursor, start: int, stop: int, texts: dict[Key, str]) -> list[tuple[Key, ...]]:
    """The sets of one item of GROUP BY."""
    word = cursor.tokens[start].key
    if word not in _WORDS:
        return [_listed(cursor, start, stop, texts)]
    elements = cursor.split(start + 2, cursor.closing(start + 1), ",")
    if word == "GROUPING SETS":
        return [s for a, b in elements for s in _sets(cursor, a, b, texts)]
    parts = [_listed(cursor, a, b, texts) for a, b in elements]
    if word == "ROLLUP":
        return [tuple(k for part in parts[:n] for k in part) for n in range(len(parts), -1, -1)]
    key_sets = []
    for mask in range((1 << len(parts)) - 1, -1, -1):
        chosen = [part for i, part in enumerate(parts) if mask & (1 << (len(parts) - 1 - i))]
        key_sets.append(tuple(k for part in chosen for k in part))
    return key_sets


def _listed(cursor: Cursor, start: int, stop: int, texts: dict[Key, str]) -> tuple[Key, ...]:
    """A single key, or several in parentheses, or none."""
    if _is_empty(cursor, start, stop):
        return ()
    if cursor.tokens[start].key == "(" and cursor.closing(start) == stop - 1:
        inner = cursor.split(start + 1, stop - 1, ",")
        if len(inner) > 1:
            return tuple(_known(cursor, a, b, texts) for a, b in inner)
    return (_known(cursor, start, stop, texts),)


def _known(cursor: Cursor, start: int, stop: int, texts: dict[Key, str]) -> Key:
    key = _key(cursor, start, stop)
    if not key:
        raise NotDifferentiableError(Reason.of(ReasonCode.EMPTY_GROUPING_KEY))
    if len(key) == 1 and key[0].isdigit():  # the number of a column (install/names/texts.sql)
        raise NotDifferentiableError(Reason.of(ReasonCode.EQUAL_GROUPING_KEYS))
    texts.setdefault(key, cursor.text(*strip_parentheses(cursor.tokens, start, stop)))
    return key


def _key(cursor: Cursor, start: int, stop: int) -> Key:
    return token_keys(cursor.tokens, *strip_parentheses(cursor.tokens, start, stop))


def _is_empty(cursor: Cursor, start: int, stop: int) -> bool:
    start, stop = strip_parentheses(cursor.tokens, start, stop)
    return start >= stop


def _is_constant(key: Key) -> bool:
    """A number, true or false as a key: only there PostgreSQL prints its type."""
    return len(key) > 2 and key[1] == "::" and (key[0] in ("TRUE", "FALSE") or key[0][:1].isdigit())
