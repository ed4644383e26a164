"""Parses one SELECT and chooses its plan node."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

from pgtrickle.model.reasons import NotDifferentiableError, Reason, ReasonCode
from pgtrickle.pipeline.parse import grouping_sets as groupingsets
from pgtrickle.pipeline.parse import merged_columns as merged
from pgtrickle.pipeline.parse.from_clause import FromReader
from pgtrickle.pipeline.parse.lateral_columns import with_lateral_columns
from pgtrickle.pipeline.parse.limit_clause import limit_of
from pgtrickle.pipeline.plan import regions
from pgtrickle.pipeline.plan.clauses import Clauses
from pgtrickle.pipeline.plan.determined import Rows
from pgtrickle.pipeline.plan.functional_dependency import add_dependent_columns
from pgtrickle.pipeline.plan.grouping import is_aggregated, parse_aggregate
from pgtrickle.pipeline.plan.nodes import (
    Aggregate,
    Block,
    Concat,
    Distinct,
    FromItem,
    Grouped,
    Item,
    KeyPlace,
    Layer,
    Limit,
    Node,
    Output,
    OutputColumn,
    Plan,
    Subquery,
    Text,
    Tree,
    Values,
    column_names,
    plain_sql,
    subqueries,
)
from pgtrickle.pipeline.plan.shapes import input_of, simplify, with_positional_names
from pgtrickle.pipeline.plan.using import merged_columns
from pgtrickle.pipeline.text.tokens import CLAUSE_ENDS, Cursor, strip_parentheses

if TYPE_CHECKING:
    from pgtrickle.pipeline.parse.reader import Ctes, Reader


def read(
    reader: Reader, cursor: Cursor, ctes: Ctes, *, top: bool, open_: bool, is_member: bool, keeps_order: bool = False
) -> Plan:
    return _SelectReader(reader, cursor, ctes, open_=open_, keeps_order=keeps_order).read(top=top, is_member=is_member)


def ordered(reader: Reader, node: Node, order: Sequence[tuple[int, str]]) -> Block:
    """A plan with an order of its rows: columns by position, with their directions."""
    columns = tuple(OutputColumn(n, (f'"u"."c{i}"',)) for i, n in enumerate(column_names(node)))
    part = FromItem(reader.number(), with_positional_names(node), '"u"')
    by = ", ".join(f'"u"."c{column}" {direction}'.rstrip() for column, direction in order)
    return Block(columns, (part,), None, order=(by,))


def distinct_aggregate(reader: Reader, node: Node) -> Aggregate:
    """DISTINCT at the top: groups of equal rows, with only their count as state."""
    columns = column_names(node)
    below = with_positional_names(node)
    keys = tuple(f'"u"."c{i}"' for i in range(len(columns)))
    outputs = tuple(Output(n, (KeyPlace(i),)) for i, n in enumerate(columns))
    return Aggregate(input_of((FromItem(reader.number(), below, '"u"'),), None), keys, (), outputs, None)


class _SelectReader:
    def __init__(self, reader: Reader, cursor: Cursor, ctes: Ctes, *, open_: bool, keeps_order: bool) -> None:
        self.open = open_
        self.keeps_order = keeps_order
        self.reader = reader
        self.cursor = cursor
        self.ctes = ctes
        self.aggregates = reader.functions.aggregates
        self.trees: tuple[Tree, ...] = ()

    def read(self, *, top: bool, is_member: bool) -> Plan:
        cursor = self.cursor
        cursor.expect("SELECT")
        distinct, on = cursor.take("DISTINCT"), None
        if distinct and cursor.take("ON"):
            closing = cursor.closing(cursor.at)
            on = (cursor.at + 1, closing)
            cursor.at = closing + 1
            distinct = False
        clauses = Clauses(_items(cursor), on=on)
        clauses.source = _source(cursor) if cursor.take("FROM") else None
        clauses.where = cursor.until(*CLAUSE_ENDS) if cursor.take("WHERE") else None
        if cursor.take("GROUP BY"):
            clauses.group = cursor.split(*cursor.until(*CLAUSE_ENDS), ",")
        if cursor.take("HAVING"):
            clauses.having = cursor.until(*CLAUSE_ENDS)
        if cursor.take("WINDOW"):
            clauses.window = cursor.until(*CLAUSE_ENDS)
        if not is_member and cursor.take("ORDER BY"):
            clauses.order = cursor.until("LIMIT", "OFFSET", "FETCH", "FOR", "UNION", "INTERSECT", "EXCEPT")
        if not is_member and cursor.peek() in ("LIMIT", "OFFSET", "FETCH"):
            clauses.limit = cursor.until("FOR", "UNION", "INTERSECT", "EXCEPT")
        if cursor.peek() == "FOR":
            raise NotDifferentiableError(Reason.of(ReasonCode.LOCKS_ROWS))
        clauses.is_grouped = is_aggregated(
            cursor, clauses.items, clauses.group, clauses.having, self.reader.functions.aggregates
        )
        clauses.windows = regions.window_calls(cursor, clauses)
        self._without_input(clauses)
        if clauses.order is not None and not distinct and clauses.limit is None and self._is_set(clauses.order):
            return self._with_sets_of_order(clauses)
        return self._plan(clauses, distinct=distinct, top=top)

    def _without_input(self, clauses: Clauses) -> None:
        """HAVING without groups and aggregates is a condition on one row, for which PostgreSQL does not read FROM."""
        if clauses.having is None or clauses.group:
            return
        if not is_aggregated(self.cursor, self._passages(clauses), [], None, self.aggregates):
            clauses.source, clauses.where, clauses.having = None, clauses.having, None
            clauses.is_grouped = False

    def _passages(self, clauses: Clauses) -> list[tuple[str, int, int]]:
        """All clauses that may contain an aggregate."""
        more = [p for p in (clauses.having, clauses.order, clauses.on) if p is not None]
        return [*clauses.items, *(("", start, stop) for start, stop in more)]

    def _with_sets_of_order(self, clauses: Clauses) -> Node:
        """ORDER BY calls a set-returning function, which produces rows: it is selected, and then projected away."""
        assert clauses.order is not None
        if clauses.on is not None:
            raise NotDifferentiableError(Reason.of(ReasonCode.SET_IN_DISTINCT_ON))
        items = [(f"c{i}", a, b) for i, (_, a, b) in enumerate(clauses.items)]
        known = {_tokens(self.cursor, a, b) for _, a, b in items}
        for passage in self.cursor.split(*clauses.order, ","):
            bare = self.cursor.without_direction(passage)
            if self._is_set(bare) and _tokens(self.cursor, *bare) not in known:
                items.append((f"c{len(items)}", *bare))
        plan = self._plan(replace(clauses, items=items, order=None), distinct=False, top=False)
        assert not isinstance(plan, Aggregate)
        columns = tuple(OutputColumn(n, (f'"u"."c{i}"',)) for i, (n, _, _) in enumerate(clauses.items))
        return Block(columns, (FromItem(self.reader.number(), plan, '"u"'),), None)

    def _plan(self, clauses: Clauses, *, distinct: bool, top: bool) -> Plan:
        source, where = clauses.source, self._where(clauses)
        is_plain = not (clauses.is_grouped or clauses.windows or clauses.on or distinct)
        if top and is_plain and source is not None and (layered := self._layered(clauses, source, where)) is not None:
            return layered
        trees = self._trees(clauses)
        if computed := self._computed(clauses, distinct=distinct):
            alias = f"__pgt_g{self.reader.number()}"
            text = with_lateral_columns(self.cursor, clauses, computed, trees, alias, distinct=distinct)
            reader = _SelectReader(self.reader, Cursor(text), self.ctes, open_=self.open, keeps_order=self.keeps_order)
            return reader.read(top=top, is_member=False)
        where = merged.expand_in_text(where, trees) if where is not None else None
        if groupingsets.has_grouping_sets(self.cursor, clauses.group):
            plan = self._grouping_sets(clauses, trees, where, distinct=distinct)
        else:
            if clauses.group:
                add_dependent_columns(self.cursor, clauses, trees, self.aggregates)
            is_foldable = top and clauses.is_grouped and not distinct
            if is_foldable and (folded := self._fold(clauses, trees, where)) is not None:
                return folded
            plan = self._block(clauses, trees, where, distinct=distinct)
        if not distinct:
            return plan
        if clauses.limit is not None:
            return self._limited(clauses, Distinct(plan))
        if self.keeps_order and clauses.order is not None:
            return ordered(self.reader, Distinct(plan), self._order_columns(clauses))
        return distinct_aggregate(self.reader, plan) if top else Distinct(plan)

    def _builder(self, clauses: Clauses, *, top: bool) -> FromReader:
        assert clauses.source is not None
        keeps = regions.depends_on_input_order(self.cursor, clauses, self.aggregates)
        keeps = keeps or (self.keeps_order and clauses.order is None and not clauses.is_grouped)
        return FromReader(self.reader, self.cursor.inside(*clauses.source), self.ctes, top=top, keeps_order=keeps)

    def _trees(self, clauses: Clauses) -> tuple[Tree, ...]:
        trees = self._builder(clauses, top=False).trees() if clauses.source is not None else ()
        self.trees = merged.expand_in_from(trees)
        return self.trees

    def _where(self, clauses: Clauses) -> Text | None:
        return self._text(clauses.where) if clauses.where is not None else None

    def _layered(self, clauses: Clauses, source: tuple[int, int], where: Text | None) -> Aggregate | None:
        """Projections and filters over groups that are folded."""
        if self.cursor.has_at_depth_0(*source, ",", "JOIN", "LATERAL"):
            return None
        texts = [self._text((a, b)) for _, a, b in clauses.items]
        if (
            any(subqueries(t) for t in texts)
            or (where is not None and subqueries(where))
            or self._returns_sets(clauses)
        ):
            return None
        builder = self._builder(clauses, top=True)
        builder.trees()
        if builder.folded is None:
            return None
        aggregate, alias = builder.folded
        items = tuple(Item(n, plain_sql(t)) for (n, _, _), t in zip(clauses.items, texts, strict=True))
        tail = ""
        if clauses.limit is not None:
            ordered = [clauses.limit, *([clauses.order] if clauses.order is not None else [])]
            if any(subqueries(self._text(p)) for p in ordered):
                return None
            tail = f" {self.cursor.text(*clauses.limit)}"
        if clauses.order is not None and (clauses.limit is not None or self.keeps_order):
            if subqueries(self._order(clauses)):
                return None
            tail = f" ORDER BY {plain_sql(self._order(clauses))}{tail}"
        layer = Layer(items, alias, plain_sql(where) if where is not None else None, tail)
        return replace(aggregate, layers=(*aggregate.layers, layer))

    def _fold(self, clauses: Clauses, trees: tuple[Tree, ...], where: Text | None) -> Aggregate | None:
        """Groups with a state table; None if an expression over them needs more than the state."""
        passages = [*((a, b) for _, a, b in clauses.items), *clauses.group]
        if clauses.having is not None:
            passages.append(clauses.having)
        if clauses.windows or clauses.on or clauses.dependent or self._returns_sets(clauses):
            return None
        passages += [p for p in (clauses.order, clauses.limit) if p is not None]
        if any(subqueries(self._text(p)) for p in passages):
            return None
        try:
            source = input_of(trees, where)
            return parse_aggregate(self.cursor, clauses, source, self.aggregates, keeps_order=self.keeps_order)
        except NotDifferentiableError:
            return None

    def _block(self, clauses: Clauses, trees: tuple[Tree, ...], where: Text | None, *, distinct: bool) -> Node:
        columns = tuple(OutputColumn(n, self._text((a, b))) for n, a, b in clauses.items)
        if not clauses.is_regional or (distinct and not (clauses.is_grouped or clauses.windows)):
            order = self._order(clauses) if self.keeps_order and clauses.order is not None and not distinct else ()
            block = Block(columns, trees, where, order=order)
            return block if self.open else simplify(block)
        regional = self._regional(clauses, trees, where, distinct=distinct)
        if clauses.limit is None or distinct:
            return regional
        return replace(regional, limit=self._limit(clauses, trees, where))

    def _limit(self, clauses: Clauses, trees: tuple[Tree, ...], where: Text | None) -> Limit | None:
        """The same SELECT without its LIMIT, with additional columns for sort keys."""
        if clauses.order is None or clauses.limit is None or self._returns_sets(clauses):
            return None  # the set-returning function decides the order of its rows
        items = [(f"c{i}", a, b) for i, (_, a, b) in enumerate(clauses.items)]
        expressions = [_tokens(self.cursor, a, b) for _, a, b in items]
        order = []
        for start, stop in self.cursor.split(*clauses.order, ","):
            bare = self.cursor.without_direction((start, stop))
            key = _tokens(self.cursor, *bare)
            if key not in expressions:
                items.append((f"c{len(items)}", *bare))
                expressions.append(key)
            order.append((expressions.index(key), self.cursor.text(bare[1], stop)))
        ordered = clauses.order if clauses.on is not None else None
        rows = replace(clauses, items=items, limit=None, order=ordered)
        clause = self.cursor.text(*clauses.limit)
        return limit_of(self._block(rows, trees, where, distinct=False), order, clause)

    def _regional(self, clauses: Clauses, trees: tuple[Tree, ...], where: Text | None, *, distinct: bool) -> Block:
        columns = tuple(OutputColumn(n, self._text((a, b))) for n, a, b in clauses.items)
        region = regions.region_keys(self.cursor, clauses, self.aggregates)
        if any(subqueries(self._text(p)) for p in region):
            region = []
        rows = self._rows(trees, where)
        reason = regions.undetermined(self.cursor, clauses, self.aggregates, rows)
        on = self._text(clauses.on) if clauses.on else None
        texts = tuple(self.cursor.text(a, b) for a, b in region)
        block = Block(columns, trees, where, texts, self._tail(clauses, limited=not distinct), on, reason)
        alike = regions.written_alike(self.cursor, clauses, self.aggregates, rows)
        return replace(block, grouped=self._grouped(clauses, block), written_alike=alike)

    def _grouped(self, clauses: Clauses, block: Block) -> Grouped | None:
        if not clauses.is_grouped or clauses.limit is not None or (self.keeps_order and clauses.order is not None):
            return None
        folded = self._fold(clauses, block.trees, block.where)
        if folded is None or folded.keys != block.region:
            return None
        columns = tuple(c.text for c in block.columns)
        return Grouped(columns, folded.calls, tuple(o.parts for o in folded.outputs), folded.having)

    def _tail(self, clauses: Clauses, *, limited: bool) -> Text:
        tail: list[str | Subquery] = []
        if clauses.group:
            grouped = [self.cursor.text(a, b) for a, b in (*clauses.group, *clauses.dependent)]
            tail.append(f" GROUP BY {', '.join(grouped)}")
        for word, passage in (("HAVING", clauses.having), ("WINDOW", clauses.window)):
            if passage is not None:
                tail += [f" {word} ", *self._text(passage)]
        is_kept = limited and (clauses.limit is not None or self.keeps_order)
        if clauses.order is not None and (clauses.on or is_kept):
            tail += [" ORDER BY ", *self._order(clauses)]
        if clauses.limit is not None and limited:
            tail += [" ", *self._text(clauses.limit)]
        return tuple(tail)

    def _order(self, clauses: Clauses) -> Text:
        """ORDER BY, in which an unqualified name is a column of FROM: parsed again, it could be an output column.

        PostgreSQL prints a column that USING has merged without an alias, even if an output column has the same name.
        """
        assert clauses.order is not None
        outputs = {name: _tokens(self.cursor, a, b) for name, a, b in clauses.items}
        pieces: list[str | Subquery] = []
        for start, stop in self.cursor.split(*clauses.order, ","):
            bare = self.cursor.without_direction((start, stop))
            text, tokens = self._text(bare), _tokens(self.cursor, *bare)
            name = self.cursor.name_at(start)
            if len(tokens) == 1 and self.cursor.tokens[start].is_name and outputs.get(name, tokens) != tokens:
                text = ("COALESCE(", *text, ")")
            direction = self.cursor.text(bare[1], stop)
            pieces += [", ", *text, *([f" {direction}"] if direction else [])]
        return tuple(pieces[1:])

    def _limited(self, clauses: Clauses, plan: Node) -> Block:
        """LIMIT over SELECT DISTINCT, whose ORDER BY can only use output columns."""
        assert clauses.limit is not None
        cursor = self.cursor
        shown = column_names(plan)
        plan = with_positional_names(plan)
        columns = tuple(OutputColumn(n, (f'"u"."c{i}"',)) for i, n in enumerate(shown))
        order = self._order_columns(clauses)
        reason = None if len(order) >= len(columns) else regions.LIMIT_TIES
        ordered = ", ".join(f'"u"."c{column}" {direction}' for column, direction in order)
        tail: list[str | Subquery] = [f" ORDER BY {ordered}"] if order else []
        tail += [" ", *self._text(clauses.limit)]
        part = FromItem(self.reader.number(), plan, '"u"')
        limit = limit_of(plan, order, cursor.text(*clauses.limit))
        return Block(columns, (part,), None, (), tuple(tail), undetermined=reason, limit=limit)

    def _order_columns(self, clauses: Clauses) -> list[tuple[int, str]]:
        """The order of SELECT DISTINCT, by positions of selected columns, with directions."""
        cursor = self.cursor
        expressions = [_tokens(cursor, a, b) for _, a, b in clauses.items]
        order = []
        for passage in cursor.split(*clauses.order, ",") if clauses.order is not None else []:
            bare = cursor.without_direction(passage)
            key = _tokens(cursor, *bare)
            if key not in expressions:
                raise NotDifferentiableError(Reason.of(ReasonCode.LIMIT_OVER_DISTINCT))
            order.append((expressions.index(key), cursor.text(bare[1], passage[1])))
        return order

    def _grouping_sets(self, clauses: Clauses, trees: tuple[Tree, ...], where: Text | None, *, distinct: bool) -> Node:
        passages = [*((a, b) for _, a, b in clauses.items), *clauses.group]
        if clauses.having is not None:
            passages.append(clauses.having)
        is_more = clauses.windows or clauses.on or clauses.limit is not None
        if is_more or any(subqueries(self._text(p)) for p in passages):
            return replace(self._regional(clauses, trees, where, distinct=distinct), region=())
        rows = self._rows(trees, where)
        reason = regions.undetermined(self.cursor, clauses, self.aggregates, rows)
        alike = regions.written_alike(self.cursor, clauses, self.aggregates, rows)
        blocks: list[Node] = []
        for grouped in groupingsets.expand(
            self.cursor, clauses, self.aggregates, merged_columns(trees), rows.is_scalar
        ):
            if blocks:  # parsed again, so that the FROM items of both are distinct
                trees, where = self._trees(clauses), self._where(clauses)
            below = trees
            if grouped.sets is not None:
                sets = Values(grouped.sets, grouped.names)
                below = (*trees, FromItem(self.reader.number(), sets, groupingsets.ALIAS))
            columns = tuple(OutputColumn(n, (t,)) for n, t in grouped.columns)
            block = Block(columns, below, where, grouped.keys, (grouped.tail,), None, reason)
            blocks.append(replace(block, written_alike=alike))
        return blocks[0] if len(blocks) == 1 else Concat(tuple(blocks))

    def _rows(self, trees: tuple[Tree, ...], where: Text | None) -> Rows:
        return Rows(trees, where, self.reader.functions.sets, is_open=self.open)

    def _computed(self, clauses: Clauses, *, distinct: bool) -> list[tuple[int, int]]:
        """What a LATERAL item computes: keys of groups with subqueries or sets; sets that a subquery selects, which the
        outer query may compare."""
        if clauses.group:
            has_sets = groupingsets.has_grouping_sets(self.cursor, clauses.group)
            return [k for k in clauses.group if not has_sets and (subqueries(self._text(k)) or self._is_set(k))]
        if not self.open or clauses.source is None or clauses.is_regional or distinct:
            return []
        return [(start, stop) for _, start, stop in clauses.items if self._is_set((start, stop))]

    def _returns_sets(self, clauses: Clauses) -> bool:
        return any(self._is_set((start, stop)) for _, start, stop in clauses.items)

    def _is_set(self, passage: tuple[int, int]) -> bool:
        """Whether an expression calls a set-returning function, outside its subqueries."""
        cursor, (index, stop) = self.cursor, passage
        while index < stop:
            if cursor.tokens[index].key == "(" and cursor.is_query(index + 1, cursor.closing(index)):
                index = cursor.closing(index)
            elif regions.is_call(cursor, index, self.reader.functions.sets):
                return True
            index += 1
        return False

    def _text(self, passage: tuple[int, int]) -> Text:
        return merged.expand_in_text(self.reader.text(self.cursor, self.ctes, *passage), self.trees)


def _source(cursor: Cursor) -> tuple[int, int]:
    start, stop = cursor.until(*CLAUSE_ENDS)
    while cursor.peek() == "FROM" and cursor.tokens[cursor.at - 1].key == "ROWS":  # ROWS FROM (...)
        cursor.next()
        _, stop = cursor.until(*CLAUSE_ENDS)
    return start, stop


def _items(cursor: Cursor) -> list[tuple[str, int, int]]:
    """(name, first token, end) of each output column."""
    items = []
    for start, stop in cursor.split(*cursor.until(*CLAUSE_ENDS), ","):
        if stop - start >= 3 and cursor.tokens[stop - 2].key == "AS" and cursor.tokens[stop - 1].is_name:
            items.append((cursor.name_at(stop - 1), start, stop - 2))
        elif cursor.tokens[stop - 1].is_name:
            items.append((cursor.name_at(stop - 1), start, stop))
        elif cursor.tokens[stop - 1].key == "*":
            relation = cursor.text(start, stop).removesuffix(".*")
            raise NotDifferentiableError(Reason.of(ReasonCode.WHOLE_ROW, relation=relation))
        else:
            items.append(("?column?", start, stop))
    return items


def _tokens(cursor: Cursor, start: int, stop: int) -> tuple[str, ...]:
    start, stop = strip_parentheses(cursor.tokens, start, stop)
    return tuple(t.key for t in cursor.tokens[start:stop])
