"""GROUP BY: its grouping sets as lists of keys. Pure."""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Sequence

from sqlglot import exp

from pgtrickle.errors import SparkUnsupportedError

Set = tuple[exp.Expr, ...]


def sets(group: exp.Group) -> list[Set]:
    """Each grouping set with its keys; a plain GROUP BY is one set."""
    for name, elements in group.args.items():
        if name not in ("expressions", "all") and elements:
            raise SparkUnsupportedError(f"GROUP BY {name}")
    parts = [list(_sets_of(element)) for element in group.expressions]
    return [_merged(chosen) for chosen in itertools.product(*parts)]


def _merged(chosen: Sequence[Set]) -> Set:
    merged: dict[exp.Expr, None] = {}
    for keys in chosen:
        merged.update(dict.fromkeys(keys))
    return tuple(merged)


def _sets_of(tree: exp.Expr) -> Iterator[Set]:
    match tree:
        case exp.GroupingSets():
            for element in tree.expressions:
                yield from _sets_of(element)
        case exp.Rollup():
            members = [_keys(e) for e in tree.expressions]
            for count in range(len(members), -1, -1):
                yield tuple(key for member in members[:count] for key in member)
        case exp.Cube():
            members = [_keys(e) for e in tree.expressions]
            for chosen in itertools.product((True, False), repeat=len(members)):
                yield tuple(
                    key for member, is_included in zip(members, chosen, strict=True) if is_included for key in member
                )
        case _:
            yield _keys(tree)


def _keys(tree: exp.Expr) -> Set:
    if isinstance(tree, exp.Tuple):
        return tuple(_key(e) for e in tree.expressions)
    return (_key(tree),)


def _key(tree: exp.Expr) -> exp.Expr:
    key = tree.unnest()
    if isinstance(key, exp.Literal) and not key.is_string:  # the number of a column (install/names/texts.sql)
        raise SparkUnsupportedError("grouping sets with two equal columns")
    return key
