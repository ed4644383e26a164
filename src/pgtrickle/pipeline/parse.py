"""From PostgreSQL's text of a query to plan nodes.

The input is what pg_get_viewdef prints with an empty search path: names are qualified, stars expanded, set operations
and joins parenthesised. What these rules do not recognise raises NotDifferentiableError with a reason that a person
reads.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace

from pgtrickle.errors import NotDifferentiableError
from pgtrickle.model.catalog import Relation
from pgtrickle.pipeline.grouping import is_aggregated, parse_aggregate
from pgtrickle.pipeline.nodes import Aggregate, From, Item, Layer, Linear, Member, Plan, Scan, Select, UnionAll
from pgtrickle.pipeline.sqltext import Cursor, Token, identifier, quote

FindRelation = Callable[[str, str], Relation]

_CLAUSE_ENDS = (
    "FROM",
    "WHERE",
    "GROUP BY",
    "HAVING",
    "WINDOW",
    "UNION",
    "INTERSECT",
    "EXCEPT",
    "ORDER BY",
    "LIMIT",
    "OFFSET",
    "FETCH",
    "FOR",
)
_JOIN_WORDS = ("JOIN", "INNER", "LEFT", "RIGHT", "FULL", "CROSS", "NATURAL")


@dataclass(slots=True)
class _Context:
    find: FindRelation
    used_columns: Mapping[int, frozenset[int]]
    aggregates: frozenset[str]
    occurrences: list[int] = field(default_factory=list)


Ctes = Mapping[str, tuple[str, tuple[str, ...] | None, "Ctes"]]


def parse(sql: str, find: FindRelation, used_columns: Mapping[int, frozenset[int]], aggregates: frozenset[str]) -> Plan:
    """`used_columns`: attribute numbers that the query needs of each relation, by PostgreSQL's own record of
    dependencies.

    `aggregates`: the names of all aggregate functions of the database, so that none is taken for a scalar function.
    """
    context = _Context(find, used_columns, aggregates)
    return _query(Cursor(sql.strip().rstrip(";")), {}, context)


def _query(cursor: Cursor, ctes: Ctes, context: _Context) -> Plan:
    if cursor.take("WITH"):
        ctes = _with(cursor, ctes)
    branches = [_branch(cursor, ctes, context)]
    while cursor.peek() in ("UNION", "INTERSECT", "EXCEPT"):
        word = cursor.next().key
        if word != "UNION" or not cursor.take("ALL"):
            raise NotDifferentiableError(f"{word} without ALL is not maintained from changes yet")
        branches.append(_branch(cursor, ctes, context))
    if cursor.take("ORDER BY"):  # a bag has no order
        cursor.until("LIMIT", "OFFSET", "FETCH", "FOR")
    if cursor.peek() in ("LIMIT", "OFFSET", "FETCH", "FOR"):
        raise NotDifferentiableError(f"{cursor.peek()} is not maintained from changes yet")
    if cursor.at != cursor.stop:
        raise NotDifferentiableError(f"unexpected {cursor.peek()} in the query's text")
    if len(branches) == 1:
        return branches[0]
    linear = []
    for branch in branches:
        if isinstance(branch, Aggregate):
            raise NotDifferentiableError("UNION ALL over aggregates is not maintained from changes yet")
        linear.append(branch)
    return UnionAll(tuple(linear))


def _with(cursor: Cursor, ctes: Ctes) -> Ctes:
    if cursor.take("RECURSIVE"):
        raise NotDifferentiableError("WITH RECURSIVE is not maintained from changes yet")
    known = dict(ctes)
    while True:
        name = _name(cursor)
        columns = _name_list(cursor) if cursor.peek() == "(" else None
        cursor.expect("AS")
        if cursor.take("NOT"):
            pass
        cursor.take("MATERIALIZED")
        opening = cursor.at
        closing = cursor.closing(opening)
        known[name] = (cursor.text(opening + 1, closing), columns, dict(known))
        cursor.at = closing + 1
        if not cursor.take(","):
            return known


def _branch(cursor: Cursor, ctes: Ctes, context: _Context) -> Plan:
    if cursor.peek() == "(":
        closing = cursor.closing(cursor.at)
        inner = Cursor(cursor.sql, cursor.tokens, cursor.at + 1, closing)
        cursor.at = closing + 1
        return _query(inner, ctes, context)
    if cursor.peek() == "VALUES":
        raise NotDifferentiableError("VALUES is not maintained from changes yet")
    cursor.expect("SELECT")
    if cursor.peek() == "DISTINCT":
        raise NotDifferentiableError("SELECT DISTINCT is not maintained from changes yet")
    items = _items(cursor)
    source = _from(cursor, ctes, context) if cursor.take("FROM") else None
    where = cursor.text(*cursor.until(*_CLAUSE_ENDS)) if cursor.take("WHERE") else None
    group = _comma_list(cursor) if cursor.take("GROUP BY") else []
    having = cursor.until(*_CLAUSE_ENDS) if cursor.take("HAVING") else None
    if cursor.peek() == "WINDOW":
        raise NotDifferentiableError("window functions are not maintained from changes yet")
    if not is_aggregated(cursor, items, group, having, context.aggregates):
        select_items = tuple(Item(name, cursor.text(start, stop)) for name, start, stop in items)
        return _select(select_items, source, where)
    if source is not None and isinstance(source, _OverAggregate):
        raise NotDifferentiableError("an aggregate over an aggregate is not maintained from changes yet")
    return parse_aggregate(cursor, items, group, having, source, where, context.aggregates)


def _select(items: tuple[Item, ...], source: From | _OverAggregate | None, where: str | None) -> Plan:
    if isinstance(source, _OverAggregate):
        return replace(source.aggregate, layers=(*source.aggregate.layers, Layer(items, source.alias, where)))
    return Select(items, source, where)


def _items(cursor: Cursor) -> list[tuple[str, int, int]]:
    """(name, first token, end) of each output column."""
    found = []
    for start, stop in _comma_list(cursor):
        if stop - start >= 3 and cursor.tokens[stop - 2].key == "AS" and cursor.tokens[stop - 1].is_name:
            found.append((_identifier(cursor, stop - 1), start, stop - 2))
        elif cursor.tokens[stop - 1].is_name:
            found.append((_identifier(cursor, stop - 1), start, stop))
        elif cursor.tokens[stop - 1].key == "*":
            raise NotDifferentiableError("whole-row references are not maintained from changes yet")
        else:
            found.append(("?column?", start, stop))
    return found


def _comma_list(cursor: Cursor) -> list[tuple[int, int]]:
    ranges = []
    while True:
        start, stop = cursor.until(",", *_CLAUSE_ENDS)
        if start < stop:
            ranges.append((start, stop))
        if not cursor.take(","):
            return ranges


@dataclass(frozen=True, slots=True)
class _OverAggregate:
    """FROM with an aggregate as its only member: the outer query is a layer over the groups."""

    aggregate: Aggregate
    alias: str


def _from(cursor: Cursor, ctes: Ctes, context: _Context) -> From | _OverAggregate:
    builder = _FromBuilder(cursor, ctes, context)
    builder.list()
    return builder.finish()


class _FromBuilder:
    """Copies the FROM clause verbatim, but for the places where its members stand."""

    def __init__(self, cursor: Cursor, ctes: Ctes, context: _Context) -> None:
        self.cursor = cursor
        self.ctes = ctes
        self.context = context
        self.parts: list[str | int] = []
        self.members: list[tuple[Linear | Aggregate, str]] = []

    def finish(self) -> From | _OverAggregate:
        if len(self.members) == 1 and isinstance(self.members[0][0], Aggregate):
            return _OverAggregate(self.members[0][0], self.members[0][1])
        members = []
        for node, alias in self.members:
            if isinstance(node, Aggregate):
                raise NotDifferentiableError("a join with an aggregated subquery is not maintained from changes yet")
            members.append(Member(node, alias))
        return From(tuple(self.parts), tuple(members))

    def list(self) -> None:
        self.join_tree()
        while self.cursor.take(","):
            self.parts.append(", ")
            self.join_tree()

    def join_tree(self) -> None:
        cursor = self.cursor
        self.primary()
        while cursor.peek() in _JOIN_WORDS:
            word = cursor.peek()
            if word in ("LEFT", "RIGHT", "FULL"):
                raise NotDifferentiableError(f"{word} JOIN is not maintained from changes yet")
            if word == "NATURAL":
                raise NotDifferentiableError("NATURAL JOIN is not maintained from changes yet")
            cursor.next()
            if word != "JOIN":
                cursor.expect("JOIN")
            self.parts.append(" CROSS JOIN " if word == "CROSS" else " JOIN ")
            self.primary()
            if cursor.take("ON"):
                self.parts.append(" ON " + cursor.text(*cursor.until(",", *_JOIN_WORDS, *_CLAUSE_ENDS)))
            elif cursor.take("USING"):
                closing = cursor.closing(cursor.at)
                self.parts.append(" USING " + cursor.text(cursor.at, closing + 1))
                cursor.at = closing + 1
                if cursor.peek() == "AS":
                    raise NotDifferentiableError("an alias for USING columns is not maintained from changes yet")

    def primary(self) -> None:
        cursor = self.cursor
        if cursor.take("LATERAL"):
            raise NotDifferentiableError("LATERAL is not maintained from changes yet")
        only = cursor.take("ONLY")
        if cursor.peek() == "(":
            closing = cursor.closing(cursor.at)
            if self._is_query(cursor.at + 1, closing):
                text = cursor.text(cursor.at + 1, closing)
                cursor.at = closing + 1
                self._subquery(text, self.ctes)
                return
            cursor.next()
            self.parts.append("(")
            self.join_tree()
            cursor.expect(")")
            self.parts.append(")")
            if cursor.peek() == "AS" or self._alias_follows():
                raise NotDifferentiableError("an alias for a whole join is not maintained from changes yet")
            return
        self._relation(only)

    def _is_query(self, start: int, stop: int) -> bool:
        cursor = self.cursor
        if cursor.has_at_depth_0(start, stop, "JOIN"):
            return False
        first = cursor.tokens[start].key
        return first in ("SELECT", "WITH", "VALUES") or cursor.has_at_depth_0(
            start, stop, "UNION", "INTERSECT", "EXCEPT"
        )

    def _alias_follows(self) -> bool:
        if self.cursor.at >= self.cursor.stop:
            return False
        token = self.cursor.tokens[self.cursor.at]
        return token.is_name and token.key not in (*_JOIN_WORDS, *_CLAUSE_ENDS, "ON", "USING", "TABLESAMPLE")

    def _alias(self, default: str | None) -> tuple[str, tuple[str, ...] | None]:
        cursor = self.cursor
        cursor.take("AS")
        if self._alias_follows():
            token = cursor.next()
            alias = cursor.sql[token.start : token.end]
        elif default is None:
            raise NotDifferentiableError("a subquery in FROM has no alias")
        else:
            alias = default
        columns = _name_list(cursor) if cursor.peek() == "(" else None
        if cursor.peek() == "TABLESAMPLE":
            raise NotDifferentiableError("TABLESAMPLE is not maintained from changes yet")
        return alias, columns

    def _relation(self, only: bool) -> None:
        cursor = self.cursor
        names = [cursor.next()]
        while cursor.take("."):
            names.append(cursor.next())
        if any(not n.is_name for n in names) or cursor.peek() == "(":
            raise NotDifferentiableError("a function in FROM is not maintained from changes yet")
        texts = [cursor.sql[n.start : n.end] for n in names]
        if len(texts) == 1:
            name = identifier(texts[0])
            if name not in self.ctes:
                raise NotDifferentiableError(f"{texts[0]} in FROM is neither a table nor a common table expression")
            body, columns, scope = self.ctes[name]
            self._subquery(body, scope, columns, default=texts[0])
            return
        relation = self.context.find(identifier(texts[-2]), identifier(texts[-1]))
        if relation.kind == "v":
            if relation.query is None:
                raise NotDifferentiableError(f"the definition of view {relation.name} cannot be read")
            self._subquery(relation.query, {}, tuple(c.name for c in relation.columns), default=texts[-1])
            return
        if only and relation.has_children:
            raise NotDifferentiableError(
                f"ONLY {relation.name}: the table has children, whose changes share its buffer"
            )
        alias, renamed = self._alias(texts[-1])
        exposes = _exposed(relation, renamed, self.context.used_columns.get(relation.relid, frozenset()))
        occurrence = len(self.context.occurrences)
        self.context.occurrences.append(relation.relid)
        self._add(Scan(occurrence, relation, exposes), alias)

    def _subquery(
        self, body: str, scope: Ctes, columns: tuple[str, ...] | None = None, *, default: str | None = None
    ) -> None:
        plan = _query(Cursor(body.strip().rstrip(";")), scope, self.context)
        alias, renamed = self._alias(default)
        names = columns
        if renamed is not None:
            rest = (names or output_names(plan))[len(renamed) :]
            names = (*renamed, *rest)
        if names is not None:
            plan = _renamed(plan, names)
        self._add(plan, alias)

    def _add(self, node: Linear | Aggregate, alias: str) -> None:
        self.parts.append(len(self.members))
        self.members.append((node, alias))


def _exposed(relation: Relation, renamed: tuple[str, ...] | None, used: frozenset[int]) -> tuple[tuple[int, str], ...]:
    names = [c.name for c in relation.columns]
    if renamed is not None:
        names[: len(renamed)] = renamed
    exposed = tuple((c.attnum, n) for c, n in zip(relation.columns, names, strict=True) if c.attnum in used)
    if any(n == "__pgt_w" for _, n in exposed):
        raise NotDifferentiableError(f"{relation.name} has a column __pgt_w, a name that changes need for their weight")
    return exposed


def output_names(plan: Plan) -> tuple[str, ...]:
    if isinstance(plan, UnionAll):
        return output_names(plan.branches[0])
    if isinstance(plan, Select):
        return tuple(i.name for i in plan.items)
    if plan.layers:
        return tuple(i.name for i in plan.layers[-1].items)
    return tuple(o.name for o in plan.outputs)


def _renamed(plan: Plan, names: tuple[str, ...]) -> Plan:
    """The same plan with these output names (a view's or a CTE's own column names win over those of its query)."""
    if isinstance(plan, UnionAll):
        first = _renamed(plan.branches[0], names)
        if isinstance(first, Aggregate):
            raise ValueError("a union has linear branches")
        return UnionAll((first, *plan.branches[1:]))
    if isinstance(plan, Select):
        return replace(plan, items=tuple(replace(i, name=n) for i, n in zip(plan.items, names, strict=True)))
    if plan.layers:
        last = plan.layers[-1]
        items = tuple(replace(i, name=n) for i, n in zip(last.items, names, strict=True))
        return replace(plan, layers=(*plan.layers[:-1], replace(last, items=items)))
    return replace(plan, outputs=tuple(replace(o, name=n) for o, n in zip(plan.outputs, names, strict=True)))


def _name(cursor: Cursor) -> str:
    token = cursor.next()
    return identifier(cursor.sql[token.start : token.end])


def _identifier(cursor: Cursor, index: int) -> str:
    token: Token = cursor.tokens[index]
    return identifier(cursor.sql[token.start : token.end])


def _name_list(cursor: Cursor) -> tuple[str, ...]:
    closing = cursor.closing(cursor.at)
    names = tuple(_identifier(cursor, i) for i in range(cursor.at + 1, closing) if cursor.tokens[i].key != ",")
    cursor.at = closing + 1
    return names


__all__ = ["Item", "output_names", "parse", "quote"]
