"""One text for equal values (1.0 and 1.00, 0 and -0, '1 day' and '24:00') where a query shows one of several.

DISTINCT, UNION, INTERSECT, EXCEPT and GROUP BY show one of several equal values, and PostgreSQL may choose another one
the next time. A plan that is evaluated twice, in its old and its new state, has to give the same texts. So these
operators show the row whose text is the least one: PostgreSQL could have chosen it, too, and it depends on nothing but
the rows. Where all equal values have one text, nothing changes.

    in:  SELECT DISTINCT x FROM t                                  (x is numeric)
    out: SELECT DISTINCT ON (w.c0) w.c0 AS x FROM (SELECT x AS c0 FROM t) AS w ORDER BY w.c0, ROW(w.c0)::text

    in:  SELECT x, max(y) FROM t GROUP BY x                        (x and y are intervals)
    out: SELECT min(x::text)::interval, (array_agg(y::text ORDER BY y DESC, y::text))[1]::interval FROM t GROUP BY x

What cannot be written so (mode(), array_agg(DISTINCT x), LIMIT by such a value) is refused below the top of a query. At
the top its result is computed anew and compared with the stored rows.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import fields, is_dataclass, replace
from itertools import count
from typing import Any, assert_never

from pgtrickle.errors import DefinitionError
from pgtrickle.model.identifiers import quote_ident
from pgtrickle.model.reasons import NotDifferentiableError, Reason, ReasonCode
from pgtrickle.model.texts import from_text, row_text
from pgtrickle.pipeline.codec import NUMERIC, SqlType, decoded, encoded, exact, is_comparable, numeric_scale
from pgtrickle.pipeline.plan.nodes import (
    Aggregate,
    AggregateCall,
    Block,
    Concat,
    Distinct,
    FromItem,
    Grouped,
    Input,
    Item,
    Join,
    Limit,
    Node,
    OutputColumn,
    Plan,
    Recursive,
    Scan,
    Select,
    SetOperation,
    Tree,
    UnionAll,
    Values,
    children,
    column_names,
    fill,
    from_items,
    subqueries,
)
from pgtrickle.pipeline.plan.scales import Scales, Types, output_scales, scales_of
from pgtrickle.pipeline.plan.shapes import with_positional_names
from pgtrickle.pipeline.render.delta_rows import current_rows

Describe = Callable[[str], Sequence[SqlType]]


def canonical(plan: Plan, describe: Describe) -> Plan:
    """The same plan, deterministic below its top."""
    writer = _Writer(describe, count(1 + max((v.number for v in _walk(plan) if isinstance(v, FromItem)), default=0)))
    return writer.fields(plan) if isinstance(plan, Aggregate) else writer.top(plan)


def determined(block: Block, describe: Describe) -> Block:
    """A block at the top of a canonical plan, made deterministic. Raises where it cannot be."""
    return _Writer(describe, count()).determined(block)


def loose_columns(
    node: Distinct | SetOperation, describe: Describe, outer: tuple[Tree, ...] = ()
) -> dict[int, SqlType] | None:
    """The columns with several texts for equal values, by position; None if PostgreSQL cannot describe the node.
    `outer`: FROM of the outer queries."""
    return _Writer(describe, count(), outer).several_texts(node)


def loose_expressions(
    source: Input, expressions: Sequence[str], describe: Describe, outer: tuple[Tree, ...] = ()
) -> dict[str, SqlType] | None:
    """Those of expressions over an input that have several texts for equal values; None as for loose_columns()."""
    return _Writer(describe, count(), outer).loose(source, expressions)


def core_of(plan: Node) -> Block | None:
    """The block with regions at the top of a plan, under projections and filters only."""
    if not isinstance(plan, Block):
        return None
    if plan.region is not None:
        return plan
    item = _only_item(plan)
    return core_of(item.node) if item is not None and item.node is not None else None


def has_several_texts(type_: SqlType) -> bool:
    """Whether equal values of a type can have different texts."""
    if type_.base == NUMERIC:
        return numeric_scale(type_.typmod) is None
    return not is_comparable(type_)


def _refuse_own_operators(types: Iterable[tuple[str, SqlType]]) -> None:
    """Refuses such types: our statements compare values, and would not resolve their operators."""
    for what, type_ in types:
        if type_.kind == "o":
            raise loose(what, type_)


def loose(what: str, type_: SqlType) -> NotDifferentiableError:
    return NotDifferentiableError(Reason.of(ReasonCode.LOOSE_TYPE, expression=what, type=type_.name))


def _only_item(block: Block) -> FromItem | None:
    """The only FROM item of a plain projection or filter."""
    own = from_items(block)
    if len(own) != 1 or own[0].is_lateral or any(subqueries(c.text) for c in block.columns):
        return None
    return None if block.where is not None and subqueries(block.where) else own[0]


def _walk(value: Any) -> Iterator[Any]:
    if isinstance(value, tuple):
        for item in value:
            yield from _walk(item)
    elif is_dataclass(value):
        yield value
        for each in fields(value):
            yield from _walk(getattr(value, each.name))


class _Writer:
    def __init__(self, describe: Describe, numbers: Iterator[int], outer: tuple[Tree, ...] = ()) -> None:
        self.describe = describe
        self.numbers = numbers
        self.outer = outer  # FROM of the outer queries, which a correlated subquery may use
        self._described: dict[int, tuple[Node, Sequence[SqlType] | None]] = {}

    # -- where a rule applies
    # ----------------------------------------------------------------------------------------------------------

    def top(self, plan: Node) -> Node:
        """A plan whose rows are stored: a block with regions there is not evaluated in its old state."""
        if isinstance(plan, Block) and plan.region is not None:
            return self._without_own_rule(plan)
        if isinstance(plan, Block) and core_of(plan) is not None:
            (item,) = from_items(plan)
            assert item.node is not None
            return replace(plan, trees=(replace(item, node=self.top(item.node)),))
        try:
            deterministic: Node = self.below(plan)
        except NotDifferentiableError:
            if not isinstance(plan, Distinct | SetOperation | Concat):
                raise
            # All rows are one region: it is computed as a whole and compared with the stored rows by their texts.
            return replace(self._over(self.fields(plan, is_whole=True)), region=())
        return deterministic

    def below(self, value: Any) -> Any:
        """The same plan, or a part of one, deterministic."""
        if isinstance(value, tuple):
            items = tuple(self.below(item) for item in value)
            return value if all(a is b for a, b in zip(items, value, strict=True)) else items
        if not is_dataclass(value) or isinstance(value, type | Scan):
            return value
        new = self.fields(value)
        match new:
            case Distinct():
                return self._distinct(new)
            case SetOperation():
                return self._set_operation(new)
            case Block() if new.region is not None:
                return self.determined(new)
        return new

    def fields(self, value: Any, *, is_whole: bool = False) -> Any:
        """A node with what is below it deterministic. `is_whole`: its own parts are not evaluated in an old state."""
        changed = {}
        outside = self.outer
        self.outer = (*outside, *_trees(value))
        for each in fields(value):
            before = getattr(value, each.name)
            if isinstance(before, Limit):
                after: Any = self._limit(before)
            elif is_whole and isinstance(before, Block) and before.region is not None:
                after = self._without_own_rule(before)
            elif is_whole and each.name == "branches":
                after = tuple(
                    self._without_own_rule(b) if isinstance(b, Block) and b.region is not None else self.below(b)
                    for b in before
                )
            elif isinstance(before, Grouped):
                after = before
            else:
                after = self.below(before)
            if after is not before:
                changed[each.name] = after
        self.outer = outside
        return replace(value, **changed) if changed else value

    def _without_own_rule(self, block: Block) -> Block:
        deterministic = self.fields(block)
        assert isinstance(deterministic, Block)
        return deterministic

    def _limit(self, limit: Limit) -> Limit | None:
        """The rows that LIMIT chooses from, which are maintained by changes; without them the result is compared."""
        try:
            return replace(limit, rows=self.below(limit.rows))
        except NotDifferentiableError:
            return None

    # -- DISTINCT and set operations
    # ----------------------------------------------------------------------------------------------------------

    def _loose_columns(self, node: Distinct | SetOperation) -> dict[int, SqlType]:
        types = self.described(node)
        _refuse_own_operators(zip(map(quote_ident, column_names(node)), types or (), strict=False))
        return self.several_texts(node) or {}

    def several_texts(self, node: Distinct | SetOperation) -> dict[int, SqlType] | None:
        types = self.described(node)
        if types is None:
            return None
        branches = [b for side in children(node) for b in _branches(side)]
        return {
            position: type_
            for position, type_ in enumerate(types)
            if has_several_texts(type_) and not _has_one_scale(type_, branches, position, self.types)
        }

    def described(self, node: Node) -> Sequence[SqlType] | None:
        """The types of a plan's columns; None if it cannot be described by itself."""
        known = self._described.get(id(node))
        if known is None:
            types = None
            for form in self._describable(node):
                try:
                    types = self.describe(current_rows(form))
                except NotDifferentiableError:
                    raise
                except DefinitionError:
                    continue
                break
            known = self._described[id(node)] = node, types
        return known[1]

    def _describable(self, node: Node) -> Iterator[Node]:
        """Forms of a plan with the same types: a correlated one needs the outer queries, at least in its conditions."""
        yield node
        yield _without_conditions(node)
        if self.outer:
            columns = tuple(OutputColumn(f"c{i}", (f"__pgt_w.c{i}",)) for i in range(len(column_names(node))))
            item = FromItem(next(self.numbers), with_positional_names(node), "__pgt_w", is_lateral=True)
            yield _without_conditions(Block(columns, (*self.outer, item), None))

    def _distinct(self, node: Distinct) -> Node:
        if not self._loose_columns(node):
            return node
        keys = tuple(f"w.c{i}" for i in range(len(column_names(node))))
        listed = ", ".join(keys)
        block = self._over(node.node)
        tail = f' ORDER BY {listed}, {row_text(keys)} COLLATE "C"'
        return replace(block, region=keys, tail=(tail,), distinct_on=(listed,))

    def _set_operation(self, node: SetOperation) -> Node:
        """The rows of both sides in one group for each row value; the least text of those on the left is shown."""
        types = self._loose_columns(node)
        if not types:
            return node
        width = len(column_names(node))
        marked = [
            replace(block, columns=(*block.columns, OutputColumn("l", (is_left,))))
            for block, is_left in (
                (self._over(with_positional_names(node.left)), "true"),
                (self._over(with_positional_names(node.right)), "false"),
            )
        ]
        rows = FromItem(next(self.numbers), Concat(tuple(marked)), "w")
        keys = tuple(f"w.c{i}" for i in range(width))
        least = _least_texts([(keys[i], t) for i, t in types.items()], "w.l")
        shown = [*keys]
        for key, (i, _) in zip(least, types.items(), strict=True):
            shown[i] = key
        left, right = "count(*) FILTER (WHERE w.l)", "count(*) FILTER (WHERE NOT w.l)"
        is_intersect, is_all = node.operator.startswith("INTERSECT"), node.operator.endswith("ALL")
        copies = f"least({left}, {right})" if is_intersect else f"({left} - {right})"
        if not is_all and not is_intersect:
            copies = f"(CASE WHEN {right} = 0 THEN {left} ELSE 0 END)"
        columns = [OutputColumn(f"c{i}", (sql,)) for i, sql in enumerate(shown)]
        tail = f" GROUP BY {', '.join(keys)} HAVING {copies} > 0"
        groups = Block((*columns, OutputColumn("n", (copies,))), (rows,), None, keys, (tail,))
        trees = [FromItem(next(self.numbers), groups, "g")]
        if is_all:
            trees.append(FromItem(next(self.numbers), None, "n", ("pg_catalog.generate_series(1, g.n) AS n",)))
        outputs = tuple(OutputColumn(name, (f"g.c{i}",)) for i, name in enumerate(column_names(node)))
        return Block(outputs, tuple(trees), None)

    def _over(self, node: Node) -> Block:
        """SELECT * over a plan."""
        columns = tuple(OutputColumn(name, (f"w.c{i}",)) for i, name in enumerate(column_names(node)))
        return Block(columns, (FromItem(next(self.numbers), with_positional_names(node), "w"),), None)

    # -- groups, windows, DISTINCT ON
    # ----------------------------------------------------------------------------------------------------------

    def determined(self, block: Block) -> Block:
        """A block with regions, with keys and extremes of groups in their least texts."""
        if block.undetermined is not None:
            raise NotDifferentiableError(Reason.of(ReasonCode.UNDETERMINED, what=block.undetermined))
        is_grouped = block.tail != () and isinstance(block.tail[0], str) and block.tail[0].startswith(" GROUP BY ")
        calls = block.grouped.calls if block.grouped is not None else ()
        regions = self._loose(block, block.region or ())
        _refuse_own_operators(regions.items())
        keys = regions if is_grouped else {}
        alike = self._loose(block, block.written_alike)
        extremes = {i: alike[c.argument or ""] for i, c in enumerate(calls) if _is_extreme(c) and c.argument in alike}
        others = [k for k in alike if k not in {c.argument for c in calls if _is_extreme(c)}]
        if others:
            raise loose(others[0], alike[others[0]])
        if not keys and not extremes:
            return block
        if block.grouped is None or block.grouped.columns != tuple(c.text for c in block.columns):
            what, type_ = next(iter((keys or alike).items()))
            raise loose(what, type_)
        return self._with_least_texts(block, block.grouped, keys, extremes)

    def _with_least_texts(
        self, block: Block, grouped: Grouped, keys: dict[str, SqlType], extremes: dict[int, SqlType]
    ) -> Block:
        region = block.region or ()
        least = dict(zip(keys, _least_texts([(f"({k})", t) for k, t in keys.items()]), strict=True))

        def key(i: int) -> str:
            return least.get(region[i], f"({region[i]})")

        def call(i: int) -> str:
            return _least_extreme(grouped.calls[i], extremes[i]) if i in extremes else grouped.calls[i].sql

        columns = tuple(
            replace(c, text=(fill(parts, key, call),)) for c, parts in zip(block.columns, grouped.outputs, strict=True)
        )
        tail = f" GROUP BY {', '.join(f'({k})' for k in region)}" if region else ""
        if grouped.having is not None:
            tail += f" HAVING {fill(grouped.having, key, call)}"
        return replace(block, columns=columns, tail=(tail,), grouped=None, written_alike=())

    def types(self, node: Node) -> dict[str, int]:
        """The types of a plan's output columns; none if it cannot be described by itself."""
        described = self.described(node) or ()
        return dict(zip(column_names(node), (t.base for t in described), strict=False))

    def _loose(self, block: Block, expressions: Sequence[str]) -> dict[str, SqlType]:
        return self.loose(Input(block.trees, block.where), expressions) or {}

    def loose(self, source: Input, expressions: Sequence[str]) -> dict[str, SqlType] | None:
        """Those of expressions over FROM that have several texts for equal values; None if they cannot be described."""
        if not expressions:
            return {}
        types = self.described(source.rows(tuple(Item(f"k{i}", k) for i, k in enumerate(expressions))))
        if types is None:
            return None
        return {
            key: type_
            for key, type_ in zip(expressions, types, strict=True)
            if has_several_texts(type_)
            and not (type_.base == NUMERIC and _is_one(scales_of(key, source.source, self.types)))
        }


def _trees(value: Any) -> tuple[Tree, ...]:
    match value:
        case Block():
            return value.trees
        case Input() if isinstance(value.source, tuple):
            return value.source
        case _:
            return ()


def _without_conditions(value: Any) -> Any:
    """A plan without WHERE and ON, which do not decide the types of its columns."""
    if isinstance(value, tuple):
        return tuple(map(_without_conditions, value))
    if not is_dataclass(value) or isinstance(value, type | Scan):
        return value
    changed = {each.name: _without_conditions(getattr(value, each.name)) for each in fields(value)}
    match value:
        case Block() | Select():
            changed["where"] = None
        case Join() if value.on is not None:
            changed["on"] = ("true",)
    return replace(value, **changed)


def _is_extreme(call: AggregateCall) -> bool:
    return call.function in ("min", "max")


def _least_texts(values: Sequence[tuple[str, SqlType]], condition: str | None = None) -> list[str]:
    """Of each group the values of the row in which the texts of all are the least, by aggregates over the group."""
    text = encoded([exact(sql, t.base) for sql, t in values])
    chosen = f" FILTER (WHERE {condition})" if condition is not None else ""
    array = f'(min(({text}) COLLATE "C"){chosen})::text[]'
    return [decoded(array, i, t.name, t.base) for i, (_, t) in enumerate(values)]


def _least_extreme(call: AggregateCall, type_: SqlType) -> str:
    """min() or max() that shows the least text of equal extremes."""
    text = exact(call.argument or "", type_.base)
    direction = "" if call.function == "min" else " DESC"
    conditions = [f"pg_catalog.num_nonnulls({call.argument}) = 1", *([call.filter] if call.filter is not None else [])]
    ordered = f'ORDER BY ({call.argument}){direction}, ({text}) COLLATE "C"'
    texts = f"(array_agg({text} {ordered}) FILTER (WHERE {' AND '.join(f'({c})' for c in conditions)}))[1]"
    return f"({from_text(texts, type_.name, type_.base)})"


def _has_one_scale(type_: SqlType, branches: Sequence[Node], position: int, types: Types) -> bool:
    """Whether all plans whose rows are merged have one scale in a numeric column."""
    if type_.base != NUMERIC:
        return False
    scales = [output_scales(b, column_names(b)[position], types) for b in branches]
    known = [s for s in scales if s is not None]
    return len(known) == len(scales) and _is_one(frozenset[int]().union(*known))


def _is_one(scales: Scales | None) -> bool:
    return scales is not None and len(scales) <= 1


def _branches(node: Node) -> tuple[Node, ...]:
    """The plans whose rows a union, DISTINCT or set operation takes."""
    match node:
        case Concat() | UnionAll() | Distinct() | SetOperation():
            return tuple(b for child in children(node) for b in _branches(child))
        case Scan() | Select() | Block() | Recursive() | Values():
            return (node,)
        case _:
            assert_never(node)
