"""One SELECT: which node it is."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from pgtrickle.errors import NotDifferentiableError
from pgtrickle.pipeline.parse import grouping_sets as groupingsets
from pgtrickle.pipeline.parse import merged_columns as merged
from pgtrickle.pipeline.parse.from_clause import FromReader
from pgtrickle.pipeline.parse.limit_clause import limit_of
from pgtrickle.pipeline.plan import regions
from pgtrickle.pipeline.plan.clauses import Clauses
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
from pgtrickle.pipeline.text.tokens import CLAUSE_ENDS, Cursor, strip_parentheses

if TYPE_CHECKING:
    from pgtrickle.pipeline.parse.reader import Ctes, Reader


def read(reader: Reader, cursor: Cursor, ctes: Ctes, *, top: bool, open_: bool, is_member: bool) -> Plan:
    return _SelectReader(reader, cursor, ctes, open_=open_).read(top=top, is_member=is_member)


def distinct_aggregate(reader: Reader, node: Node) -> Aggregate:
    """DISTINCT at the top: groups of equal rows, of which only their number is kept."""
    columns = column_names(node)
    below = with_positional_names(node)
    keys = tuple(f'"u"."c{i}"' for i in range(len(columns)))
    outputs = tuple(Output(n, (KeyPlace(i),)) for i, n in enumerate(columns))
    return Aggregate(input_of((FromItem(reader.number(), below, '"u"'),), None), keys, (), outputs, None)


class _SelectReader:
    def __init__(self, reader: Reader, cursor: Cursor, ctes: Ctes, *, open_: bool) -> None:
        self.open = open_
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
        clauses.source = cursor.until(*CLAUSE_ENDS) if cursor.take("FROM") else None
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
            raise NotDifferentiableError("the query locks rows")
        clauses.is_grouped = is_aggregated(
            cursor, clauses.items, clauses.group, clauses.having, self.reader.functions.aggregates
        )
        clauses.windows = regions.window_calls(cursor, clauses)
        return self._plan(clauses, distinct=distinct, top=top)

    def _plan(self, clauses: Clauses, *, distinct: bool, top: bool) -> Plan:
        source, where = clauses.source, self._where(clauses)
        is_plain = not (clauses.is_grouped or clauses.windows or clauses.on or distinct)
        if top and is_plain and source is not None and (layered := self._layered(clauses, source, where)) is not None:
            return layered
        trees = self._trees(clauses)
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
        return distinct_aggregate(self.reader, plan) if top else Distinct(plan)

    def _builder(self, source: tuple[int, int], *, top: bool) -> FromReader:
        return FromReader(self.reader, self.cursor.inside(*source), self.ctes, top=top)

    def _trees(self, clauses: Clauses) -> tuple[Tree, ...]:
        trees = self._builder(clauses.source, top=False).trees() if clauses.source is not None else ()
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
        builder = self._builder(source, top=True)
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
            order = f" ORDER BY {plain_sql(self._order(clauses))}" if clauses.order is not None else ""
            tail = f"{order} {self.cursor.text(*clauses.limit)}"
        layer = Layer(items, alias, plain_sql(where) if where is not None else None, tail)
        return replace(aggregate, layers=(*aggregate.layers, layer))

    def _fold(self, clauses: Clauses, trees: tuple[Tree, ...], where: Text | None) -> Aggregate | None:
        """Groups with their state beside the table; None when an expression over them needs more than that."""
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
            return parse_aggregate(self.cursor, clauses, source, self.aggregates)
        except NotDifferentiableError:
            return None

    def _block(self, clauses: Clauses, trees: tuple[Tree, ...], where: Text | None, *, distinct: bool) -> Node:
        columns = tuple(OutputColumn(n, self._text((a, b))) for n, a, b in clauses.items)
        if not clauses.is_regional or (distinct and not (clauses.is_grouped or clauses.windows)):
            block = Block(columns, trees, where)
            return block if self.open else simplify(block)
        regional = self._regional(clauses, trees, where, distinct=distinct)
        if clauses.limit is None or distinct:
            return regional
        return replace(regional, limit=self._limit(clauses, trees, where))

    def _limit(self, clauses: Clauses, trees: tuple[Tree, ...], where: Text | None) -> Limit | None:
        """The same SELECT without its LIMIT, with columns for what only orders."""
        if clauses.order is None or clauses.limit is None:
            return None
        items = [(f"c{i}", a, b) for i, (_, a, b) in enumerate(clauses.items)]
        expressions = [_tokens(self.cursor, a, b) for _, a, b in items]
        order = []
        for start, stop in self.cursor.split(*clauses.order, ","):
            bare = self.cursor.without_direction((start, stop))
            wanted = _tokens(self.cursor, *bare)
            if wanted not in expressions:
                items.append((f"c{len(items)}", *bare))
                expressions.append(wanted)
            order.append((expressions.index(wanted), self.cursor.text(bare[1], stop)))
        ordered = clauses.order if clauses.on is not None else None
        rows = replace(clauses, items=items, limit=None, order=ordered)
        clause = self.cursor.text(*clauses.limit)
        return limit_of(self._block(rows, trees, where, distinct=False), order, clause)

    def _regional(self, clauses: Clauses, trees: tuple[Tree, ...], where: Text | None, *, distinct: bool) -> Block:
        columns = tuple(OutputColumn(n, self._text((a, b))) for n, a, b in clauses.items)
        region = regions.region_keys(self.cursor, clauses, self.aggregates)
        if any(subqueries(self._text(p)) for p in region):
            region = []
        reason = regions.undetermined(self.cursor, clauses, self.aggregates, trees)
        on = self._text(clauses.on) if clauses.on else None
        texts = tuple(self.cursor.text(a, b) for a, b in region)
        block = Block(columns, trees, where, texts, self._tail(clauses, limited=not distinct), on, reason)
        return replace(block, grouped=self._grouped(clauses, block))

    def _grouped(self, clauses: Clauses, block: Block) -> Grouped | None:
        if not clauses.group or clauses.limit is not None:
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
        if clauses.order is not None and (clauses.on or (clauses.limit is not None and limited)):
            tail += [" ORDER BY ", *self._order(clauses)]
        if clauses.limit is not None and limited:
            tail += [" ", *self._text(clauses.limit)]
        return tuple(tail)

    def _order(self, clauses: Clauses) -> Text:
        """ORDER BY, where a bare name means a column of FROM: read again as it stands, it may mean an output column.

        PostgreSQL prints a column that USING has merged bare, whatever the output columns are called.
        """
        assert clauses.order is not None
        outputs = {name: _tokens(self.cursor, a, b) for name, a, b in clauses.items}
        found: list[str | Subquery] = []
        for start, stop in self.cursor.split(*clauses.order, ","):
            bare = self.cursor.without_direction((start, stop))
            text, tokens = self._text(bare), _tokens(self.cursor, *bare)
            name = self.cursor.name_at(start)
            if len(tokens) == 1 and self.cursor.tokens[start].is_name and outputs.get(name, tokens) != tokens:
                text = ("COALESCE(", *text, ")")
            direction = self.cursor.text(bare[1], stop)
            found += [", ", *text, *([f" {direction}"] if direction else [])]
        return tuple(found[1:])

    def _limited(self, clauses: Clauses, plan: Node) -> Block:
        """LIMIT over SELECT DISTINCT, whose order can only name what it selects."""
        assert clauses.limit is not None
        cursor = self.cursor
        shown = column_names(plan)
        plan = with_positional_names(plan)
        columns = tuple(OutputColumn(n, (f'"u"."c{i}"',)) for i, n in enumerate(shown))
        expressions = [_tokens(cursor, a, b) for _, a, b in clauses.items]
        order = []
        for passage in cursor.split(*clauses.order, ",") if clauses.order is not None else []:
            bare = cursor.without_direction(passage)
            wanted = _tokens(cursor, *bare)
            if wanted not in expressions:
                raise NotDifferentiableError("LIMIT over DISTINCT with an order that could not be matched")
            order.append((expressions.index(wanted), cursor.text(bare[1], passage[1])))
        reason = None if len(order) >= len(columns) else regions.TIES_OF_LIMIT
        ordered = ", ".join(f'"u"."c{column}" {direction}' for column, direction in order)
        tail: list[str | Subquery] = [f" ORDER BY {ordered}"] if order else []
        tail += [" ", *self._text(clauses.limit)]
        part = FromItem(self.reader.number(), plan, '"u"')
        limit = limit_of(plan, order, cursor.text(*clauses.limit))
        return Block(columns, (part,), None, (), tuple(tail), undetermined=reason, limit=limit)

    def _grouping_sets(self, clauses: Clauses, trees: tuple[Tree, ...], where: Text | None, *, distinct: bool) -> Node:
        passages = [*((a, b) for _, a, b in clauses.items), *clauses.group]
        if clauses.having is not None:
            passages.append(clauses.having)
        is_more = clauses.windows or clauses.on or clauses.limit is not None
        if is_more or any(subqueries(self._text(p)) for p in passages):
            return replace(self._regional(clauses, trees, where, distinct=distinct), region=())
        reason = regions.undetermined(self.cursor, clauses, self.aggregates, trees)
        blocks: list[Node] = []
        for grouped in groupingsets.expand(self.cursor, clauses, self.aggregates):
            if blocks:  # read again, so that each has items of its own: what changes in one is told from the other
                trees, where = self._trees(clauses), self._where(clauses)
            below = trees
            if grouped.sets is not None:
                sets = Values(grouped.sets, grouped.names)
                below = (*trees, FromItem(self.reader.number(), sets, groupingsets.ALIAS))
            columns = tuple(OutputColumn(n, (t,)) for n, t in grouped.columns)
            blocks.append(Block(columns, below, where, grouped.keys, (grouped.tail,), None, reason))
        return blocks[0] if len(blocks) == 1 else Concat(tuple(blocks))

    def _returns_sets(self, clauses: Clauses) -> bool:
        return any(
            regions.is_call(self.cursor, i, self.reader.functions.sets)
            for _, start, stop in clauses.items
            for i in range(start, stop)
        )

    def _text(self, passage: tuple[int, int]) -> Text:
        return merged.expand_in_text(self.reader.text(self.cursor, self.ctes, *passage), self.trees)


def _items(cursor: Cursor) -> list[tuple[str, int, int]]:
    """(name, first token, end) of each output column."""
    found = []
    for start, stop in cursor.split(*cursor.until(*CLAUSE_ENDS), ","):
        if stop - start >= 3 and cursor.tokens[stop - 2].key == "AS" and cursor.tokens[stop - 1].is_name:
            found.append((cursor.name_at(stop - 1), start, stop - 2))
        elif cursor.tokens[stop - 1].is_name:
            found.append((cursor.name_at(stop - 1), start, stop))
        elif cursor.tokens[stop - 1].key == "*":
            raise NotDifferentiableError("whole-row references are not maintained from changes yet")
        else:
            found.append(("?column?", start, stop))
    return found


def _tokens(cursor: Cursor, start: int, stop: int) -> tuple[str, ...]:
    start, stop = strip_parentheses(cursor.tokens, start, stop)
    return tuple(t.key for t in cursor.tokens[start:stop])
