"""Canonical texts: equal values with different texts (1 and 1.0, 0 and -0) where a query merges equal rows.

DISTINCT, UNION, INTERSECT and EXCEPT return one of several equal rows, and PostgreSQL may choose another one the next
time. A plan that is evaluated twice has to give the same texts, so such columns get a canonical text below these
operators: without trailing zeros, without the sign of zero. Where all rows have the same scale, nothing changes.

    in:  SELECT DISTINCT x FROM t                                  (x is numeric)
    out: SELECT DISTINCT q.* FROM (SELECT trim_scale(w.c0) AS x FROM (SELECT x AS c0 FROM t) AS w) AS q

Other types (interval, jsonb, citext, ranges and arrays of such) have no canonical text. At the top of a query the
result is recomputed as a whole; below the top they are refused, also as group keys.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import fields, is_dataclass, replace
from itertools import count
from typing import Any, assert_never

from pgtrickle.errors import DefinitionError, NotDifferentiableError
from pgtrickle.model.identifiers import quote_ident
from pgtrickle.pipeline.codec import FLOAT4, FLOAT8, NUMERIC, SqlType, is_comparable, numeric_scale
from pgtrickle.pipeline.plan.nodes import (
    Block,
    Concat,
    Distinct,
    FromItem,
    Node,
    OutputColumn,
    Plan,
    Recursive,
    Scan,
    Select,
    SetOperation,
    UnionAll,
    Values,
    children,
    column_names,
    from_items,
)
from pgtrickle.pipeline.plan.scales import output_scales
from pgtrickle.pipeline.plan.shapes import with_positional_names
from pgtrickle.pipeline.render.delta_rows import current_rows

Describe = Callable[[str], Sequence[SqlType]]


def canonical(plan: Plan, describe: Describe) -> Plan:
    """The same plan with canonical texts where equal rows are merged."""
    _refuse_ambiguous_groups(plan, describe)
    if not any(isinstance(value, Distinct | SetOperation) for value in _walk(plan)):
        return plan
    numbers = count(1 + max((v.number for v in _walk(plan) if isinstance(v, FromItem)), default=0))
    if isinstance(plan, Distinct | SetOperation) and _has_ambiguous_result(plan, describe):
        return _as_one_region(plan, numbers)
    found = _rewritten(plan, describe, numbers)
    assert isinstance(found, type(plan))
    return found


def _has_ambiguous_result(plan: Distinct | SetOperation, describe: Describe) -> bool:
    return any(map(has_several_texts, describe(current_rows(plan))))


def _as_one_region(plan: Node, numbers: Iterator[int]) -> Block:
    """At the top, such rows are recomputed as a whole and compared with the stored rows by their texts."""
    return replace(_written(plan, ["{}"] * len(column_names(plan)), numbers), region=())


def _refuse_ambiguous_groups(plan: Plan, describe: Describe) -> None:
    """Groups at the top are stored as they were computed. Groups below the top are also evaluated in the old state,
    where a group may have another one of its equal keys."""
    top: Any = plan
    while (
        isinstance(top, Block)
        and top.region is None
        and len(from_items(top)) == 1
        and from_items(top)[0].node is not None
    ):
        top = from_items(top)[0].node
    for block in _walk(plan):
        if not isinstance(block, Block) or not block.region or block is top:
            continue
        keys = tuple(OutputColumn(f"k{i}", (k,)) for i, k in enumerate(block.region))
        try:
            types = describe(current_rows(Block(keys, block.trees, block.where)))
        except NotDifferentiableError:
            raise
        except DefinitionError:
            continue  # it is correlated with an outer query: see _wraps
        for key, type_ in zip(block.region, types, strict=True):
            if has_several_texts(type_):
                raise loose(key, type_)


def has_several_texts(type_: SqlType) -> bool:
    """Whether equal values may have different texts, and the type has no canonical text."""
    return type_.base not in (FLOAT4, FLOAT8, NUMERIC) and not is_comparable(type_)


def loose(what: str, type_: SqlType) -> NotDifferentiableError:
    return NotDifferentiableError(
        f"{what} is of type {type_.name}, whose equal values may be written differently: which of them is shown is not "
        "maintained from changes"
    )


def _walk(value: Any) -> Iterator[Any]:
    if isinstance(value, tuple):
        for item in value:
            yield from _walk(item)
    elif is_dataclass(value):
        yield value
        for each in fields(value):
            yield from _walk(getattr(value, each.name))


def _rewritten(value: Any, describe: Describe, numbers: Iterator[int]) -> Any:
    if isinstance(value, tuple):
        items = tuple(_rewritten(item, describe, numbers) for item in value)
        return value if all(a is b for a, b in zip(items, value, strict=True)) else items
    if not is_dataclass(value) or isinstance(value, type):
        return value
    changed = {}
    for each in fields(value):
        before = getattr(value, each.name)
        after = _rewritten(before, describe, numbers)
        if after is not before:
            changed[each.name] = after
    new = replace(value, **changed) if changed else value
    return _wrapped(new, describe, numbers) if isinstance(new, Distinct | SetOperation) else new


def _wrapped(node: Distinct | SetOperation, describe: Describe, numbers: Iterator[int]) -> Distinct | SetOperation:
    wraps = _wraps(node, children(node), describe)
    if wraps is None:
        return node
    match node:
        case Distinct():
            return Distinct(_written(node.node, wraps, numbers))
        case SetOperation():
            return replace(node, left=_written(node.left, wraps, numbers), right=_written(node.right, wraps, numbers))
        case _:
            assert_never(node)


def _wraps(node: Node, sides: Sequence[Node], describe: Describe) -> list[str] | None:
    """The expression that gives each column its canonical text; None: all columns have one already."""
    try:
        types = describe(current_rows(node))
    except DefinitionError:
        return None  # it is correlated with an outer query, and cannot be described by itself
    branches = [b for side in sides for b in _branches(side)]
    wraps = ["{}"] * len(types)
    for position, type_ in enumerate(types):
        if has_several_texts(type_):
            raise loose(quote_ident(column_names(sides[0])[position]), type_)
        if type_.base in (FLOAT4, FLOAT8):
            wraps[position] = f"({{}} + 0::{'float4' if type_.base == FLOAT4 else 'float8'})"
        elif type_.base == NUMERIC and numeric_scale(type_.typmod) is None:
            scales = [output_scales(b, column_names(b)[position]) for b in branches]
            if None in scales or len(frozenset().union(*(s for s in scales if s is not None))) > 1:
                wraps[position] = "pg_catalog.trim_scale({})"
    return wraps if any(w != "{}" for w in wraps) else None


def _branches(node: Node) -> tuple[Node, ...]:
    """The plans whose rows a union, DISTINCT or set operation takes."""
    match node:
        case Concat() | UnionAll() | Distinct() | SetOperation():
            return tuple(b for child in children(node) for b in _branches(child))
        case Scan() | Select() | Block() | Recursive() | Values():
            return (node,)
        case _:
            assert_never(node)


def _written(node: Node, wraps: Sequence[str], numbers: Iterator[int]) -> Block:
    columns = tuple(
        OutputColumn(name, (wrap.format(f"w.{quote_ident(f'c{i}')}"),))
        for i, (name, wrap) in enumerate(zip(column_names(node), wraps, strict=True))
    )
    return Block(columns, (FromItem(next(numbers), with_positional_names(node), "w"),), None)
