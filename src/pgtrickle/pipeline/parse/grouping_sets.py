"""GROUPING SETS, CUBE and ROLLUP as one GROUP BY over the rows crossed with the sets.

Each row of the input counts once for each set; a key that a set leaves out is NULL there, and GROUPING() follows from
the number of the set. The empty set has a row even where there is no input, so it becomes a SELECT without GROUP BY.
"""

from __future__ import annotations

from collections.abc import Sequence, Set
from dataclasses import dataclass
from itertools import product

from pgtrickle.errors import NotDifferentiableError
from pgtrickle.pipeline.plan.clauses import Clauses
from pgtrickle.pipeline.plan.grouping import aggregate_at
from pgtrickle.pipeline.text.tokens import Cursor, strip_parentheses, token_keys

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


def expand(cursor: Cursor, clauses: Clauses, aggregates: Set[str]) -> list[ExpandedGroupingSets]:
    texts: dict[Key, str] = {}
    per_item = [_sets(cursor, start, stop, texts) for start, stop in clauses.group]
    sets = [tuple(dict.fromkeys(k for part in choice for k in part)) for choice in product(*per_item)]
    every = list(texts)
    found = []
    filled = [s for s in sets if s]
    if filled:
        rows = [[str(n), *("true" if k in s else "false" for k in every)] for n, s in enumerate(filled)]
        names = (_SET, *(f"__pgt_g{i}" for i in range(len(every))))
        values = ", ".join(f"({', '.join(row)})" for row in rows)
        shown = {k: f"CASE WHEN {ALIAS}.__pgt_g{i} THEN {texts[k]} END" for i, k in enumerate(every)}
        found.append(_grouped(cursor, clauses, aggregates, f"VALUES {values}", names, shown, filled))
    for _ in range(len(sets) - len(filled)):
        absent = {k: f"(array_agg({texts[k]}) FILTER (WHERE false))[1]" for k in every}
        found.append(_grouped(cursor, clauses, aggregates, None, (), absent, [()]))
    return found


def _grouped(
    cursor: Cursor,
    clauses: Clauses,
    aggregates: Set[str],
    values: str | None,
    names: tuple[str, ...],
    shown: dict[Key, str],
    sets: Sequence[tuple[Key, ...]],
) -> ExpandedGroupingSets:
    def text(start: int, stop: int) -> str:
        return _replaced(cursor, start, stop, shown, sets, aggregates)

    columns = tuple((name, text(start, stop)) for name, start, stop in clauses.items)
    region = (f"{ALIAS}.{_SET}", *shown.values()) if values is not None else ()
    tail = f" GROUP BY {', '.join(f'({k})' for k in region)}" if region else " GROUP BY ()"
    if clauses.having is not None:
        tail += f" HAVING {text(*clauses.having)}"
    return ExpandedGroupingSets(values, names, columns, region, tail)


def _replaced(
    cursor: Cursor, start: int, stop: int, shown: dict[Key, str], sets: Sequence[tuple[Key, ...]], aggregates: Set[str]
) -> str:
    """The expression with keys and GROUPING() replaced; arguments of aggregates see the rows as they are."""
    pieces, begin, index = [], start, start
    while index < stop:
        end, replacement = index, ""
        if aggregate_at(cursor, index, aggregates):
            end = cursor.closing(index + 1) + 1
            while end < stop and cursor.tokens[end].key in ("FILTER", "WITHIN", "GROUP"):
                end = cursor.closing(end + 1) + 1 if cursor.tokens[end + 1].key == "(" else end + 1
            index = end
            continue
        if cursor.tokens[index].key == "GROUPING" and cursor.tokens[index + 1].key == "(":
            end = cursor.closing(index + 1) + 1
            replacement = _grouping(cursor, index + 2, end - 1, sets)
        elif index == start or cursor.tokens[index - 1].key != ".":
            for key, text in sorted(shown.items(), key=lambda pair: -len(pair[0])):
                if token_keys(cursor.tokens, index, index + len(key)) == key and index + len(key) <= stop:
                    end, replacement = index + len(key), f"({text})"
                    break
        if end == index:
            index += 1
            continue
        pieces += [cursor.text(begin, index), replacement]
        begin = index = end
    pieces.append(cursor.text(begin, stop))
    return " ".join(p for p in pieces if p)


def _grouping(cursor: Cursor, start: int, stop: int, sets: Sequence[tuple[Key, ...]]) -> str:
    arguments = [_key(cursor, a, b) for a, b in cursor.split(start, stop, ",")]
    masks = [sum(1 << (len(arguments) - 1 - i) for i, a in enumerate(arguments) if a not in s) for s in sets]
    if list(sets) == [()]:
        return str(masks[0])
    return f"(CASE {ALIAS}.{_SET} {' '.join(f'WHEN {n} THEN {m}' for n, m in enumerate(masks))} END)"


def _sets(cursor: Cursor, start: int, stop: int, texts: dict[Key, str]) -> list[tuple[Key, ...]]:
    """The sets that one item of GROUP BY stands for."""
    word = cursor.tokens[start].key
    if word not in _WORDS:
        return [_listed(cursor, start, stop, texts)]
    elements = cursor.split(start + 2, cursor.closing(start + 1), ",")
    if word == "GROUPING SETS":
        return [s for a, b in elements for s in _sets(cursor, a, b, texts)]
    parts = [_listed(cursor, a, b, texts) for a, b in elements]
    if word == "ROLLUP":
        return [tuple(k for part in parts[:n] for k in part) for n in range(len(parts), -1, -1)]
    found = []
    for mask in range((1 << len(parts)) - 1, -1, -1):
        chosen = [part for i, part in enumerate(parts) if mask & (1 << (len(parts) - 1 - i))]
        found.append(tuple(k for part in chosen for k in part))
    return found


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
        raise NotDifferentiableError("an empty grouping key could not be read")
    texts.setdefault(key, cursor.text(*strip_parentheses(cursor.tokens, start, stop)))
    return key


def _key(cursor: Cursor, start: int, stop: int) -> Key:
    return token_keys(cursor.tokens, *strip_parentheses(cursor.tokens, start, stop))


def _is_empty(cursor: Cursor, start: int, stop: int) -> bool:
    start, stop = strip_parentheses(cursor.tokens, start, stop)
    return start >= stop
