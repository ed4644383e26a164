"""From PostgreSQL's text of a query to plan nodes.

The input is what pg_get_viewdef prints with the path pg_catalog, pg_temp: names are qualified, stars expanded, set
operations and joins parenthesised. What these rules do not recognise raises NotDifferentiableError with a reason that a
person reads. `select` reads one SELECT, `from_clause` its FROM; this module reads what stands around them.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from pgtrickle.errors import NotDifferentiableError
from pgtrickle.model.catalog import Relation
from pgtrickle.model.identifiers import quote_ident
from pgtrickle.pipeline.parse import select as selects
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

MOST_PARTS = 500  # a WITH item is written out wherever it is named, which may multiply from one to the next


def parse(
    sql: str,
    find: FindRelation,
    used_columns: Mapping[int, frozenset[int]],
    functions: Functions,
    *,
    folded: bool = True,
) -> Plan:
    """`used_columns`: attribute numbers that the query needs of each relation, by PostgreSQL's own record of
    dependencies. `folded`: groups at the top become an Aggregate, with state beside the table."""
    return QueryReader(find, used_columns, functions).query(Cursor(sql.strip().rstrip(";")), {}, top=folded)


@dataclass(slots=True)
class QueryReader:
    """Reads one query: what it needs to know of the database, and how many numbers it has given out."""

    find: FindRelation
    used_columns: Mapping[int, frozenset[int]]
    functions: Functions
    numbers: list[int] = field(default_factory=lambda: [0])

    def number(self) -> int:
        self.numbers[0] += 1
        if self.numbers[0] > MOST_PARTS:
            raise NotDifferentiableError(
                f"the query has more than {MOST_PARTS} items in FROM once its views and WITH items are written out"
            )
        return self.numbers[0] - 1

    def query(self, cursor: Cursor, ctes: Ctes, *, top: bool = False, open_: bool = False) -> Plan:
        """`top`: nothing stands above but projections and filters, so that groups here can be folded.

        `open_`: the query may name columns of one around it, so what it reads must stay visible: no Select, a Block.
        """
        if cursor.take("WITH"):
            ctes = self._with(cursor, ctes)
        if not cursor.has_at_depth_0(cursor.at, cursor.stop, "UNION", "INTERSECT", "EXCEPT"):
            plan = self._branch(cursor, ctes, top=top, open_=open_)
        else:
            plan = self._set_operations(cursor, ctes, open_=open_)
            order = cursor.until("LIMIT", "OFFSET", "FETCH", "FOR") if cursor.take("ORDER BY") else None
            if cursor.peek() in ("LIMIT", "OFFSET", "FETCH"):
                plan = self._limited(cursor, ctes, plan, order)
            elif top and isinstance(plan, Distinct):
                plan = selects.distinct_aggregate(self, plan.node)
        if cursor.at != cursor.stop:
            raise NotDifferentiableError(f"unexpected {cursor.peek()} in the query's text")
        return plan

    def _set_operations(self, cursor: Cursor, ctes: Ctes, *, open_: bool) -> Node:
        """Left to right: PostgreSQL puts parentheses where another order is meant."""
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
        self, cursor: Cursor, ctes: Ctes, *, top: bool = False, open_: bool = False, is_member: bool = False
    ) -> Plan:
        """`is_member`: of a set operation, to which an ORDER BY and LIMIT after it belong."""
        if cursor.peek() == "(":
            closing = cursor.closing(cursor.at)
            inner = cursor.inside(cursor.at + 1, closing)
            cursor.at = closing + 1
            return self.query(inner, ctes, top=top, open_=open_)
        if cursor.peek() == "VALUES":
            return self._values(cursor, ctes)
        return selects.read(self, cursor, ctes, top=top, open_=open_, is_member=is_member)

    def _limited(self, cursor: Cursor, ctes: Ctes, plan: Node, order: tuple[int, int] | None) -> Block:
        """ORDER BY and LIMIT over a set operation; there PostgreSQL prints the order as numbers of columns."""
        passage = cursor.until("FOR")
        limit = self.text(cursor, ctes, *passage)
        columns = tuple(OutputColumn(n, (f'"u"."c{i}"',)) for i, n in enumerate(column_names(plan)))
        plan = with_positional_names(plan)
        is_total = order is not None and len(cursor.split(*order, ",")) >= len(columns)
        is_total = is_total or regions.keeps_ties(cursor, *passage)
        reason = None if is_total else regions.TIES_OF_LIMIT
        tail: Text = (*([f" ORDER BY {cursor.text(*order)}"] if order is not None else []), " ", *limit)
        ordered = [(cursor.without_direction(p), p) for p in cursor.split(*order, ",")] if order is not None else []
        numbers = [(int(cursor.text(*bare)) - 1, cursor.text(bare[1], p[1])) for bare, p in ordered]
        parts = limit_of(plan, numbers, cursor.text(*passage))
        return Block(columns, (FromItem(self.number(), plan, '"u"'),), None, (), tail, undetermined=reason, limit=parts)

    def _values(self, cursor: Cursor, ctes: Ctes) -> Values:
        start, stop = cursor.until("UNION", "INTERSECT", "EXCEPT", "ORDER BY", "LIMIT", "OFFSET", "FETCH")
        if subqueries(self.text(cursor, ctes, start, stop)):
            raise NotDifferentiableError("a subquery in VALUES is not maintained from changes")
        width = len(cursor.split(start + 2, cursor.closing(start + 1), ","))
        return Values(cursor.text(start, stop), tuple(f"column{i + 1}" for i in range(width)))

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
                raise NotDifferentiableError(f"{cursor.peek()} of WITH RECURSIVE is not maintained from changes yet")
            if not cursor.take(","):
                return known

    def cte(self, name: str, cte: Cte, *, top: bool) -> Plan:
        cursor = Cursor(cte.body.strip())
        if not cte.is_recursive:
            return self.query(cursor, cte.scope, top=top)
        scope = {**cte.scope, name: Cte("", None, {}, is_self=True)}
        first = _node(self._branch(cursor, scope, is_member=True))
        word, step = self._joined(cursor, scope)
        while cursor.at != cursor.stop:
            # Without parentheses all are of one kind, and only the last may name the query itself. A set stays one.
            first = union_all(first, step)
            word, step = self._joined(cursor, scope)
        columns = cte.columns or column_names(first)
        return Recursive(quote_ident(name), columns, columns, word, first, step)

    def _joined(self, cursor: Cursor, ctes: Ctes) -> tuple[str, Node]:
        """UNION or UNION ALL, and the branch behind it."""
        cursor.expect("UNION")
        word = "UNION ALL" if cursor.take("ALL") else "UNION"
        return word, _node(self._branch(cursor, ctes, is_member=True))

    def text(self, cursor: Cursor, ctes: Ctes, start: int, stop: int) -> Text:
        """An expression with its subqueries read."""
        found: list[str | Subquery] = []
        opened: list[int] = []
        begin = index = start
        while index < stop:
            key = cursor.tokens[index].key
            if key == "(" and cursor.is_query(index + 1, closing := cursor.closing(index)):
                found.append(cursor.text(begin, index + 1))
                kind, test = self._use(cursor, ctes, index, opened[-1] if opened else None)
                node = _node(self.query(cursor.inside(index + 1, closing), ctes, open_=True))
                found.append(Subquery(drop_output_columns(node) if kind == "exists" else node, kind, test))
                begin = index = closing
                opened.append(index)  # closed at once by the parenthesis that comes next
                continue
            if key == "(":
                opened.append(index)
            elif key == ")" and opened:
                opened.pop()
            index += 1
        if begin < stop:
            found.append(cursor.text(begin, stop))
        return tuple(found)

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
        exposed = tuple((c.attnum, n) for c, n in zip(relation.columns, column_names, strict=True) if c.attnum in used)
        if any(n == "__pgt_w" for _, n in exposed):
            raise NotDifferentiableError(
                f"{relation.name} has a column __pgt_w, a name that changes need for their weight"
            )
        return Scan(self.number(), relation, exposed)


def _node(plan: Plan) -> Node:
    if isinstance(plan, Aggregate):
        raise TypeError("only the outermost query is folded")
    return plan
