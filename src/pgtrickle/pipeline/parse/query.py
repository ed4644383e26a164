"""From PostgreSQL's text of a query to plan nodes.

The input is what pg_get_viewdef prints with the path pg_catalog, pg_temp: names are qualified, stars expanded, set
operations and joins parenthesised. Unknown constructs raise NotDifferentiableError with a
reason. `select` parses one SELECT, `from_clause` its FROM; this module parses set operations, WITH and VALUES.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from pgtrickle.model.catalog import Relation
from pgtrickle.model.identifiers import quote_ident
from pgtrickle.model.reasons import NotDifferentiableError, Reason, ReasonCode
from pgtrickle.pipeline.parse import select as selects
from pgtrickle.pipeline.parse import virtual_columns
from pgtrickle.pipeline.parse.exists import drop_output_columns
from pgtrickle.pipeline.parse.limit_clause import limit_of
from pgtrickle.pipeline.parse.reader import Cte, Ctes, FindRelation, Functions
from pgtrickle.pipeline.plan import regions
from pgtrickle.pipeline.plan.nodes import (
    Aggregate,
    Block,
    Distinct,
    FromItem,
    Node,
    OutputColumn,
    Plan,
    Recursive,
    Scan,
    SetOperation,
    Subquery,
    Text,
    Values,
    column_names,
    subqueries,
)
from pgtrickle.pipeline.plan.shapes import union_all, with_positional_names
from pgtrickle.pipeline.text.tokens import Cursor

MOST_PARTS = 500  # CTEs are inlined at each use, which may grow exponentially


def parse(
    sql: str,
    find: FindRelation,
    used_columns: Mapping[int, frozenset[int]],
    functions: Functions,
    *,
    folded: bool = True,
) -> Plan:
    """`used_columns`: attribute numbers that the query needs of each relation, from PostgreSQL's dependencies.
    `folded`: groups at the top become an Aggregate, with a state table."""
    return QueryReader(find, used_columns, functions).query(Cursor(sql.strip().rstrip(";")), {}, top=folded)


@dataclass(slots=True)
class QueryReader:
    """Parses one query, with the required information about the database."""

    find: FindRelation
    used_columns: Mapping[int, frozenset[int]]
    functions: Functions
    numbers: list[int] = field(default_factory=lambda: [0])
    inside: set[int] = field(default_factory=set)  # tables whose virtual columns are being computed

    def number(self) -> int:
        self.numbers[0] += 1
        if self.numbers[0] > MOST_PARTS:
            raise NotDifferentiableError(Reason.of(ReasonCode.TOO_MANY_ITEMS, limit=MOST_PARTS))
        return self.numbers[0] - 1

    def query(
        self, cursor: Cursor, ctes: Ctes, *, top: bool = False, open_: bool = False, keeps_order: bool = False
    ) -> Plan:
        """`top`: there are only projections and filters above, so that groups here can be folded.

        `open_`: the query may name columns of an outer query, so it becomes a Block and not a Select. `keeps_order`:
        the outer query depends on the order of its rows.
        """
        if cursor.take("WITH"):
            ctes = self._with(cursor, ctes)
        if not cursor.has_at_depth_0(cursor.at, cursor.stop, "UNION", "INTERSECT", "EXCEPT"):
            plan = self._branch(cursor, ctes, top=top, open_=open_, keeps_order=keeps_order)
        else:
            plan = self._set_operations(cursor, ctes, open_=open_)
            order = cursor.until("LIMIT", "OFFSET", "FETCH", "FOR") if cursor.take("ORDER BY") else None
            if cursor.peek() in ("LIMIT", "OFFSET", "FETCH"):
                plan = self._limited(cursor, ctes, plan, order)
            elif keeps_order and order is not None:
                plan = selects.ordered(self, plan, self._numbers(cursor, order))
            elif top and isinstance(plan, Distinct):
                plan = selects.distinct_aggregate(self, plan.node)
        if cursor.at != cursor.stop:
            raise NotDifferentiableError(Reason.of(ReasonCode.UNEXPECTED, found=str(cursor.peek())))
        return plan

    def _set_operations(self, cursor: Cursor, ctes: Ctes, *, open_: bool) -> Node:
        """Left to right: PostgreSQL prints parentheses for any other order."""
        left = _node(self._branch(cursor, ctes, open_=open_, is_member=True))
        while cursor.peek() in ("UNION", "INTERSECT", "EXCEPT"):
            word = cursor.next().key
            every = cursor.take("ALL")
            right = _node(self._branch(cursor, ctes, open_=open_, is_member=True))
            if word == "UNION":
                left = union_all(left, right) if every else Distinct(union_all(left, right))
            else:
                left = SetOperation(f"{word} ALL" if every else word, left, right)
        return left

    def _branch(
        self,
        cursor: Cursor,
        ctes: Ctes,
        *,
        top: bool = False,
        open_: bool = False,
        is_member: bool = False,
        keeps_order: bool = False,
    ) -> Plan:
        """`is_member`: of a set operation, which a following ORDER BY and LIMIT belong to."""
        if cursor.peek() == "(":
            closing = cursor.closing(cursor.at)
            inner = cursor.inside(cursor.at + 1, closing)
            cursor.at = closing + 1
            return self.query(inner, ctes, top=top, open_=open_, keeps_order=keeps_order)
        if cursor.peek() == "VALUES":
            return self._values(cursor, ctes)
        return selects.read(self, cursor, ctes, top=top, open_=open_, is_member=is_member, keeps_order=keeps_order)

    def _limited(self, cursor: Cursor, ctes: Ctes, plan: Node, order: tuple[int, int] | None) -> Block:
        """ORDER BY and LIMIT over a set operation; PostgreSQL prints column numbers there."""
        passage = cursor.until("FOR")
        limit = self.text(cursor, ctes, *passage)
        columns = tuple(OutputColumn(n, (f'"u"."c{i}"',)) for i, n in enumerate(column_names(plan)))
        plan = with_positional_names(plan)
        is_total = order is not None and len(cursor.split(*order, ",")) >= len(columns)
        is_total = is_total or regions.keeps_ties(cursor, *passage)
        reason = None if is_total else regions.LIMIT_TIES
        tail: Text = (*([f" ORDER BY {cursor.text(*order)}"] if order is not None else []), " ", *limit)
        numbers = self._numbers(cursor, order) if order is not None else []
        parts = limit_of(plan, numbers, cursor.text(*passage))
        return Block(columns, (FromItem(self.number(), plan, '"u"'),), None, (), tail, undetermined=reason, limit=parts)

    def _numbers(self, cursor: Cursor, order: tuple[int, int]) -> list[tuple[int, str]]:
        """The columns that a set operation is ordered by, and their directions."""
        ordered = [(cursor.without_direction(p), p) for p in cursor.split(*order, ",")]
        return [(int(cursor.text(*bare)) - 1, cursor.text(bare[1], p[1])) for bare, p in ordered]

    def _values(self, cursor: Cursor, ctes: Ctes) -> Node:
        start, stop = cursor.until("UNION", "INTERSECT", "EXCEPT", "ORDER BY", "LIMIT", "OFFSET", "FETCH")
        rows = [cursor.split(a + 1, b - 1, ",") for a, b in cursor.split(start + 1, stop, ",")]
        names = tuple(f"column{i + 1}" for i in range(len(rows[0])))
        if not subqueries(self.text(cursor, ctes, start, stop)):
            return Values(cursor.text(start, stop), names)
        # With subqueries, each row is a SELECT without FROM.
        union: Node | None = None
        for row in rows:
            columns = [OutputColumn(n, self.text(cursor, ctes, *p)) for n, p in zip(names, row, strict=True)]
            block = Block(tuple(columns), (), None)
            union = block if union is None else union_all(union, block)
        assert union is not None
        return union

    def _with(self, cursor: Cursor, ctes: Ctes) -> Ctes:
        is_recursive = cursor.take("RECURSIVE")
        known = dict(ctes)
        while True:
            name = cursor.name()
            columns = cursor.names() if cursor.peek() == "(" else None
            cursor.expect("AS")
            cursor.take("NOT")
            cursor.take("MATERIALIZED")
            opening, closing = cursor.at, cursor.closing(cursor.at)
            names_itself = is_recursive and any(
                cursor.tokens[i].is_name
                and cursor.name_at(i) == name
                and cursor.tokens[i - 1].key in ("FROM", ",", "JOIN", "(")
                for i in range(opening + 1, closing)
            )
            known[name] = Cte(cursor.text(opening + 1, closing), columns, dict(known), names_itself)
            cursor.at = closing + 1
            if cursor.peek() in ("SEARCH", "CYCLE"):
                raise NotDifferentiableError(Reason.of(ReasonCode.RECURSIVE_CLAUSE, clause=str(cursor.peek())))
            if not cursor.take(","):
                return known

    def cte(self, name: str, cte: Cte, *, top: bool, keeps_order: bool = False) -> Plan:
        cursor = Cursor(cte.body.strip())
        if not cte.is_recursive:
            return self.query(cursor, cte.scope, top=top, keeps_order=keeps_order)
        scope = {**cte.scope, name: Cte("", None, {}, is_self=True)}
        first = _node(self._branch(cursor, scope, is_member=True))
        word, step = self._joined(cursor, scope)
        while cursor.at != cursor.stop:
            # Without parentheses all operators are equal, and only the last branch may name the query itself.
            first = union_all(first, step)
            word, step = self._joined(cursor, scope)
        columns = cte.columns or column_names(first)
        return Recursive(quote_ident(name), columns, columns, word, first, step)

    def _joined(self, cursor: Cursor, ctes: Ctes) -> tuple[str, Node]:
        """UNION or UNION ALL, and the following branch."""
        cursor.expect("UNION")
        word = "UNION ALL" if cursor.take("ALL") else "UNION"
        return word, _node(self._branch(cursor, ctes, is_member=True))

    def text(self, cursor: Cursor, ctes: Ctes, start: int, stop: int) -> Text:
        """An expression with its subqueries parsed."""
        pieces: list[str | Subquery] = []
        opened: list[int] = []
        begin = index = start
        while index < stop:
            key = cursor.tokens[index].key
            if key == "(" and cursor.is_query(index + 1, closing := cursor.closing(index)):
                pieces.append(cursor.text(begin, index + 1))
                kind, test = self._use(cursor, ctes, index, opened[-1] if opened else None)
                inner = cursor.inside(index + 1, closing)
                node = _node(self.query(inner, ctes, open_=True, keeps_order=kind == "array"))
                if kind == "scalar" and len(column_names(node)) > 1:
                    kind = "row"  # ROW(a, b) = (SELECT x, y)
                pieces.append(Subquery(drop_output_columns(node) if kind == "exists" else node, kind, test))
                begin = index = closing
                opened.append(index)  # closed by the next parenthesis
                continue
            if key == "(":
                opened.append(index)
            elif key == ")" and opened:
                opened.pop()
            index += 1
        if begin < stop:
            pieces.append(cursor.text(begin, stop))
        return tuple(pieces)

    def _use(self, cursor: Cursor, ctes: Ctes, opening: int, outer: int | None) -> tuple[str, str | None]:
        """How a subquery is used. PostgreSQL prints `(test IN (query))` with both pairs of parentheses."""
        word = cursor.tokens[opening - 1].key if opening > 0 else ""
        kind = {"EXISTS": "exists", "IN": "in", "ANY": "any", "ALL": "all", "ARRAY": "array"}.get(word, "scalar")
        if kind != "in" or outer is None:
            return kind, None
        test = self.text(cursor, ctes, outer + 1, opening - 1)
        return kind, None if subqueries(test) else cursor.text(outer + 1, opening - 1)

    def scan(self, relation: Relation, renamed: tuple[str, ...] | None) -> Scan:
        column_names = [c.name for c in relation.columns]
        if renamed is not None:
            column_names[: len(renamed)] = renamed
        used = self.used_columns.get(relation.relid, frozenset())
        shown = zip(relation.columns, column_names, strict=True)
        exposed = tuple((c.attnum, n) for c, n in shown if c.attnum in used and c.virtual is None)
        if any(n == "__pgt_w" for _, n in exposed):
            raise NotDifferentiableError(Reason.of(ReasonCode.RESERVED_COLUMN, relation=relation.name))
        return Scan(self.number(), relation, exposed)

    def computed(self, relation: Relation) -> tuple[Plan, tuple[int, ...]] | None:
        """The columns that the query needs of a table with virtual columns, as a subquery that computes these, and
        their positions in the table. None if it needs no virtual column."""
        used = self.used_columns.get(relation.relid, frozenset())
        positions = tuple(i for i, c in enumerate(relation.columns) if c.attnum in used)
        columns = [relation.columns[i] for i in positions]
        if relation.relid in self.inside or all(c.virtual is None for c in columns):
            return None
        self.inside.add(relation.relid)
        try:
            return self.query(Cursor(virtual_columns.subquery(relation, columns)), {}), positions
        finally:
            self.inside.remove(relation.relid)


def _node(plan: Plan) -> Node:
    if isinstance(plan, Aggregate):
        raise TypeError("only the outermost query is folded")
    return plan
