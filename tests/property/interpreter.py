"""What a plan means, written as plainly as possible: bags are Counters, a table is a bag of tuples, NULL is None.

Expressions are SQL text in a plan, so whoever makes a plan also gives the meaning of each text (`Meaning`). Weights may
be negative everywhere, which lets the same few lines evaluate content, changes and every mixture of them.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from fractions import Fraction
from typing import Any

from pgtrickle.pipeline.plan.measures import filtered_argument
from pgtrickle.pipeline.plan.nodes import (
    Aggregate,
    AggregateCall,
    CallPlace,
    From,
    Item,
    KeyPlace,
    Linear,
    Scan,
    Select,
    UnionAll,
)

Row = tuple[Any, ...]
Bag = Counter[Row]
Environment = Mapping[str, Any]
Meaning = Mapping[str, Callable[[Environment], Any]]
Content = Callable[[Scan], Bag]
Branches = Callable[[UnionAll], Iterable[Linear]]


def all_branches(node: UnionAll) -> Iterable[Linear]:
    return node.branches


def bag(node: Linear, content: Content, meaning: Meaning, branches: Branches = all_branches) -> Bag:
    """The rows of a linear plan; `content` gives those of each table occurrence."""
    result: Bag = Counter()
    if isinstance(node, UnionAll):
        for branch in branches(node):
            add(result, bag(branch, content, meaning, branches))
        return result
    if isinstance(node, Scan):
        places = [[c.attnum for c in node.relation.columns].index(attnum) for attnum, _ in node.exposes]
        for row, weight in content(node).items():
            result[tuple(row[p] for p in places)] += weight
        return net(result)
    for environment, weight in environments(node.source, node.where, content, meaning, branches):
        result[tuple(meaning[item.sql](environment) for item in node.items)] += weight
    return net(result)


def environments(
    source: From | None, where: str | None, content: Content, meaning: Meaning, branches: Branches
) -> Iterator[tuple[Environment, int]]:
    """Every combination of the members' rows that passes ON and WHERE, with the product of the weights."""
    conditions = [] if where is None else [where]
    combined: list[tuple[dict[str, Any], int]] = [({}, 1)]
    if source is not None:
        conditions += [p.removeprefix(" ON ") for p in source.parts if isinstance(p, str) and p.startswith(" ON ")]
        for member in source.members:
            names = [f"{member.alias}.{name}" for name in output_names(member.node)]
            rows = bag(member.node, content, meaning, branches)
            combined = [
                ({**left, **dict(zip(names, row, strict=True))}, weight * more)
                for left, weight in combined
                for row, more in rows.items()
            ]
    for environment, weight in combined:
        if all(meaning[c](environment) is True for c in conditions):
            yield environment, weight


def output_names(node: Linear) -> list[str]:
    if isinstance(node, UnionAll):
        return output_names(node.branches[0])
    if isinstance(node, Scan):
        return [name for _, name in node.exposes]
    return [item.name for item in node.items]


def aggregated(plan: Aggregate, content: Content, meaning: Meaning) -> Bag:
    """The visible rows of an aggregate, computed from nothing: groups are lists of rows."""
    groups: dict[Row, list[Environment]] = {} if plan.keys else {(): []}
    below = linear_rows(plan)
    for environment, weight in environments(below.source, below.where, content, meaning, all_branches):
        key = tuple(meaning[k](environment) for k in plan.keys)
        groups.setdefault(key, []).extend([environment] * weight)
    result: Bag = Counter()
    for key, rows in groups.items():
        add(result, shown(plan, key, [call_value(c, rows, meaning) for c in plan.calls], meaning))
    return result


def call_value(call: AggregateCall, rows: Sequence[Environment], meaning: Meaning) -> Any:
    if call.filter is not None:
        rows = [r for r in rows if meaning[call.filter](r) is True]
    if call.argument is None:
        return len(rows)
    values = [v for v in (meaning[call.argument](r) for r in rows) if v is not None]
    if call.distinct:
        values = list(dict.fromkeys(values))
    return fold(call.function, values)


def fold(function: str, values: Sequence[Any]) -> Any:
    if function == "count":
        return len(values)
    if not values:
        return None
    if function == "avg":
        return Fraction(sum(values)) / len(values)
    if function == "sum":
        return sum(values)
    return min(values) if function == "min" else max(values)


def shown(plan: Aggregate, key: Row, values: Sequence[Any], meaning: Meaning) -> Bag:
    """The visible row of one group, or nothing when HAVING or a filter above leaves it out."""
    places = {f"$k{i}": v for i, v in enumerate(key)} | {f"$c{i}": v for i, v in enumerate(values)}
    if plan.having is not None and meaning[place_text(plan.having)](places) is not True:
        return Counter()
    row = tuple(meaning[place_text(o.parts)](places) for o in plan.outputs)
    names = [o.name for o in plan.outputs]
    for layer in plan.layers:
        below = {f"{layer.alias}.{n}": v for n, v in zip(names, row, strict=True)}
        if layer.where is not None and meaning[layer.where](below) is not True:
            return Counter()
        row = tuple(meaning[item.sql](below) for item in layer.items)
        names = [item.name for item in layer.items]
    return Counter({row: 1})


def place_text(parts: Sequence[str | KeyPlace | CallPlace]) -> str:
    """An output over groups as the text under which its meaning is known."""
    texts = {KeyPlace: "$k", CallPlace: "$c"}
    return "".join(p if isinstance(p, str) else f"{texts[type(p)]}{p.index}" for p in parts)


def rows_below(plan: Aggregate) -> Select:
    """What an aggregate reads: its keys, then the argument of each call with the filter folded in."""
    arguments = [(f"a{i}", filtered_argument(c)) for i, c in enumerate(plan.calls)]
    items = [Item(f"k{i}", k) for i, k in enumerate(plan.keys)]
    return linear_rows(plan, (*items, *(Item(n, a) for n, a in arguments if a is not None)))


def linear_rows(plan: Aggregate, items: tuple[Item, ...] = ()) -> Select:
    rows = plan.input.rows(items)
    assert isinstance(rows, Select)
    return rows


def reader(tables: Mapping[int, Bag]) -> Content:
    """Every occurrence of a table reads the same content."""
    return lambda scan: tables[scan.relation.relid]


def add(into: Bag, more: Mapping[Row, int], times: int = 1) -> None:
    for row, weight in more.items():
        into[row] += times * weight
    net(into)


def net(rows: Bag) -> Bag:
    for row in [r for r, weight in rows.items() if weight == 0]:
        del rows[row]
    return rows


def minus(left: Mapping[Row, int], right: Mapping[Row, int]) -> Bag:
    result: Bag = Counter()
    add(result, left)
    add(result, right, -1)
    return result
