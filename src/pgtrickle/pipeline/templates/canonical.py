"""Equal values that are written differently (1 and 1.0, 0 and -0), where a query counts equal rows as one.

DISTINCT, UNION, INTERSECT and EXCEPT show one of several equal rows, and PostgreSQL may take another one the next time.
What is evaluated twice has to give the same text, so such columns are written in one way below these operators: without
trailing zeros, without the sign of zero. Where all rows have the same digits anyhow, nothing is done.

Of other types (interval, jsonb, citext, ranges and arrays of such) there is no one way. At the top of a query the
result is evaluated anew as a whole; below it they are refused, also where groups are made by them.
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
    names,
    parts,
)
from pgtrickle.pipeline.plan.scales import output_scales
from pgtrickle.pipeline.plan.shapes import positional
from pgtrickle.pipeline.render.delta_rows import now

Describe = Callable[[str], Sequence[SqlType]]


def canonical(plan: Plan, describe: Describe) -> Plan:
    """The same plan, written in one way where equal rows become one."""
    _refuse_loose_groups(plan, describe)
    if not any(isinstance(value, Distinct | SetOperation) for value in _walk(plan)):
        return plan
    numbers = count(1 + max((v.number for v in _walk(plan) if isinstance(v, FromItem)), default=0))
    if isinstance(plan, Distinct | SetOperation) and _is_loose_result(plan, describe):
        return _as_one_region(plan, numbers)
    found = _rewritten(plan, describe, numbers)
    assert isinstance(found, type(plan))
    return found


def _is_loose_result(plan: Distinct | SetOperation, describe: Describe) -> bool:
    return any(map(is_loose, describe(now(plan))))


def _as_one_region(plan: Node, numbers: Iterator[int]) -> Block:
    """At the top, such rows are evaluated anew as a whole and compared with the stored ones, text by text."""
    return replace(_written(plan, ["{}"] * len(names(plan)), numbers), region=())


def _refuse_loose_groups(plan: Plan, describe: Describe) -> None:
    """Groups at the top are stored as they were found. Those below it are evaluated as they were, too, and a group may
    then be shown by another of its equal keys."""
    top: Any = plan
    while isinstance(top, Block) and top.region is None and len(parts(top)) == 1 and parts(top)[0].node is not None:
        top = parts(top)[0].node
    for block in _walk(plan):
        if not isinstance(block, Block) or not block.region or block is top:
            continue
        keys = tuple(OutputColumn(f"k{i}", (k,)) for i, k in enumerate(block.region))
        try:
            types = describe(now(Block(keys, block.trees, block.where)))
        except NotDifferentiableError:
            raise
        except DefinitionError:
            continue  # it takes something from a row outside: see _wraps
        for key, type_ in zip(block.region, types, strict=True):
            if is_loose(type_):
                raise loose(key, type_)


def is_loose(type_: SqlType) -> bool:
    """Whether equal values may be written differently, and there is no way to write them alike."""
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
    """How to write each column; None: as it is."""
    try:
        types = describe(now(node))
    except DefinitionError:
        return None  # it takes something from a row outside: nothing by itself
    branches = [b for side in sides for b in _branches(side)]
    wraps = ["{}"] * len(types)
    for position, type_ in enumerate(types):
        if is_loose(type_):
            raise loose(quote_ident(names(sides[0])[position]), type_)
        if type_.base in (FLOAT4, FLOAT8):
            wraps[position] = f"({{}} + 0::{'float4' if type_.base == FLOAT4 else 'float8'})"
        elif type_.base == NUMERIC and numeric_scale(type_.typmod) is None:
            scales = [output_scales(b, names(b)[position]) for b in branches]
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
        for i, (name, wrap) in enumerate(zip(names(node), wraps, strict=True))
    )
    return Block(columns, (FromItem(next(numbers), positional(node), "w"),), None)
