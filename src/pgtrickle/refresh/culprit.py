"""Finds what a refresh failed on: the expression, and the rows of its sources, for an error of a value (class 22).

PostgreSQL reports "division by zero" without either. So the query is evaluated again over parts of one source, half of
its rows each time, until one row is left that fails alone; then the same for the next source. The expression is the
smallest one that fails over these rows.

    in:  SELECT id, (100 / v) AS share FROM public.t
    1:   the same over (SELECT * FROM public.t ORDER BY id OFFSET 0 LIMIT 2), ... : the row id = 3
    2:   SELECT (100 / v) FROM that row: fails, so this is the expression

Only queries that the service role evaluates, within a time limit, in a transaction that writes nothing. An expression
is a piece of text that was cut out of the query, where it may mean something else: the service role evaluates it only
if the code that it calls is trusted, like that of a definition. Values are written by the output functions of their
types, never by casts, which owners of types can define. The texts of expressions are those of the query; keys of rows
are for roles that may read the sources.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from pgtrickle.capture.trigger import literal
from pgtrickle.db import catalog
from pgtrickle.db.connect import translated
from pgtrickle.db.statements import statement
from pgtrickle.define.renames import require_types
from pgtrickle.errors import PgtrickleError
from pgtrickle.model.catalog import Relation, StreamTable
from pgtrickle.model.identifiers import buffer_name, quote_ident
from pgtrickle.model.session import evaluated
from pgtrickle.pipeline.text.references import references_to
from pgtrickle.pipeline.text.tokens import CLAUSE_ENDS, Cursor, Token
from pgtrickle.telemetry import CULPRIT_UNKNOWN, event

if TYPE_CHECKING:
    from pgtrickle.db.connect import Connection

log = logging.getLogger(__name__)

SECONDS = 3.0  # for one failure
ATTEMPTS = 2  # somebody else may have canceled a statement of the first one, or hold a lock
MOST_SEARCHED_ROWS = 500_000  # of a source, or of those that were written lately: more are not searched
MOST_EXPRESSIONS = 100
_JUDGED = "pg_temp.__pgt_judged"
MOST_COLUMNS, MOST_CHARACTERS = 8, 40  # of a row without a key
_DATA_EXCEPTION, _QUERY_CANCELED = "22", "57014"
_BY_OTHERS = ("08", "40", "53", "55P03", "57", "58")  # says nothing about the query: locks, cancellations, resources


@dataclass(frozen=True, slots=True)
class Culprit:
    """`rows`: table and key of each row without which the refresh does not fail, as texts."""

    expression: str | None = None
    rows: tuple[str, ...] = ()


def is_of_a_value(error: PgtrickleError) -> bool:
    return error.sqlstate is not None and error.sqlstate.startswith(_DATA_EXCEPTION)


def find_culprit(conn: Connection, table: StreamTable, error: PgtrickleError) -> Culprit:
    """Empty if it cannot be found."""
    if not is_of_a_value(error) or table.runs_as_author or table.mirror is not None or table.remotes:
        return Culprit()
    until = time.monotonic() + SECONDS
    for _ in range(ATTEMPTS):
        try:
            with translated(), conn.transaction(force_rollback=True):
                conn.execute("SET TRANSACTION ISOLATION LEVEL REPEATABLE READ")
                for name, value in evaluated(table.session_settings).items():
                    conn.execute("SELECT pg_catalog.set_config(%s, %s, true)", (name, value))
                return _Search(conn, table, str(error.sqlstate), until).culprit()
        except PgtrickleError as why:
            # The error that is to be reported matters more than this search.
            log.info("What failed was not found", extra=event(CULPRIT_UNKNOWN, table=table.full_name, detail=str(why)))
    return Culprit()


class _OverError(Exception):
    """The time is over."""


@dataclass(frozen=True, slots=True)
class _Slice:
    """A part of the rows of a source that meet a condition, in the order of its key, or of their places."""

    relation: Relation
    condition: str
    offset: int
    rows: int

    @property
    def sql(self) -> str:
        return (
            f"(SELECT * FROM {_name(self.relation)} WHERE {self.condition} ORDER BY {', '.join(_order(self.relation))} "
            f"OFFSET {self.offset:d} LIMIT {self.rows:d})"
        )


class _Search:
    def __init__(self, conn: Connection, table: StreamTable, state: str, until: float) -> None:
        self.conn = conn
        self.table = table
        self.state = state
        self.until = until
        self.keywords = catalog.keywords(conn)

    def culprit(self) -> Culprit:
        query, rows, expression = self._without_views(self.table.query), [], None
        try:
            if not self._is_trusted(query):
                return Culprit()
            for relation in catalog.relations(self.conn, [s.relid for s in self.table.captured]):
                found = self._row(query, relation)
                if found is not None:
                    query = self._over(query, found)
                    rows.append(self._text(found))
            expression = self._expression(query)
        except _OverError:
            log.info(
                "The search for what failed took too long", extra=event(CULPRIT_UNKNOWN, table=self.table.full_name)
            )
        return Culprit(expression, tuple(rows))

    def _without_views(self, query: str) -> str:
        """The query over the tables of the views that it reads, also of views that they read."""
        views = catalog.relations(self.conn, [s.relid for s in self.table.sources if s.type == "VIEW"])
        for _ in views:
            for view in views:
                assert view.query is not None
                query = self._with(query, view, f"({view.query.rstrip().rstrip(';')})")
        return query

    def _row(self, query: str, relation: Relation) -> _Slice | None:
        """The only row of a source with which the query fails alone; None if there is none, as for an overflow of a
        sum, or if it was not found."""
        if not references_to(query, (relation.schema, relation.name), self.keywords):
            return None
        if relation.has_children and relation.kind != "p":
            return None
        for condition in self._conditions(relation):
            limited = f"SELECT FROM {_name(relation)} WHERE {condition} LIMIT {MOST_SEARCHED_ROWS + 1}"
            rows = int(self._value(f"SELECT count(*) FROM ({limited}) AS t"))
            part = _Slice(relation, condition, 0, rows)
            if 0 < rows <= MOST_SEARCHED_ROWS and self._fails(self._over(query, part)):
                return self._one_of(query, part)
        return None

    def _conditions(self, relation: Relation) -> Iterator[str]:
        """First the rows that were written lately, if the change buffer has their keys; then all."""
        buffer, columns = buffer_name(relation.relid), [f"c{attnum}" for attnum in relation.key]
        wanted = {"table": buffer, "columns": columns}
        if columns and self.conn.execute(statement("columns_present"), wanted).fetchone() == (len(columns),):
            keys = ", ".join(_key(relation))
            yield f"({keys}) IN (SELECT {', '.join(columns)} FROM {buffer} WHERE action = 'I')"
        yield "true"

    def _one_of(self, query: str, part: _Slice) -> _Slice | None:
        while part.rows > 1:
            half = part.rows // 2
            for smaller in (replace(part, rows=half), replace(part, offset=part.offset + half, rows=part.rows - half)):
                if self._fails(self._over(query, smaller)):
                    part = smaller
                    break
            else:
                return None  # several rows together
        return part

    def _over(self, query: str, part: _Slice) -> str:
        """The query over a part of a source."""
        return self._with(query, part.relation, part.sql)

    def _with(self, query: str, relation: Relation, item: str) -> str:
        """The query that reads `item`, a subquery, instead of a relation."""
        for place in references_to(query, (relation.schema, relation.name), self.keywords):
            alias = "" if place.has_alias else f" AS {quote_ident(relation.name)}"
            query = f"{query[: place.start]}{item}{alias}{query[place.end :]}"
        return query

    def _expression(self, query: str) -> str | None:
        """The smallest expression that fails alone, over the FROM of its SELECT, or of its groups."""
        cursor = Cursor(query)
        expressions: list[tuple[str, str]] = []
        for select in _selects(cursor):
            inside = [t for start, t in _expressions(cursor) if select.has_own(start)]
            if select.source and self._fails(f"SELECT 1 AS one {select.source}", is_cut_out=True):
                continue  # its FROM fails
            tails = dict.fromkeys([select.source, f"{select.source} {select.groups}"])
            expressions += [(text, tail) for text in dict.fromkeys(inside) for tail in tails]
        for text, tail in sorted(expressions, key=lambda pair: len(pair[0]))[:MOST_EXPRESSIONS]:
            if self._fails(f"SELECT ({text}) AS x {tail}", is_cut_out=True):
                return " ".join(text.split())
        return None

    def _fails(self, query: str, *, is_cut_out: bool = False) -> bool | None:
        """Whether it fails in the same way; None if in another, or if it may not be evaluated (`is_cut_out`)."""
        try:
            with self._limited():
                if is_cut_out:
                    # Judged and evaluated as the same parse tree.
                    self._judge(query)
                    query = f"SELECT * FROM {_JUDGED}"
                # The text of a row needs all its columns. OFFSET: they are evaluated even if nobody needs them.
                self._read(f"SELECT max(length(ROW(q.*)::text)) FROM (SELECT * FROM ({query}) AS q OFFSET 0) AS q")
        except PgtrickleError as error:
            if error.sqlstate is None or error.sqlstate.startswith(_BY_OTHERS):
                raise
            return True if error.sqlstate == self.state else None
        return False

    def _is_trusted(self, query: str) -> bool:
        """Not if the refresh has failed because it is not trusted any more."""
        try:
            with self._limited():
                require_types(self.conn, self.table)
                self._judge(query)
        except PgtrickleError as why:
            if why.sqlstate is not None and why.sqlstate.startswith(_BY_OTHERS):
                raise
            log.info(
                "What failed is not searched", extra=event(CULPRIT_UNKNOWN, table=self.table.full_name, detail=str(why))
            )
            return False
        return True

    def _judge(self, query: str) -> None:
        """Raises an error if the query calls code that the service role must not run; otherwise it is a temporary
        view."""
        # binary: uses the extended protocol, in which the server accepts only one statement.
        self.conn.execute(f"CREATE TEMPORARY VIEW {_JUDGED.rpartition('.')[2]} AS {query}", binary=True)
        self.conn.execute(statement("still_trusted"), {"probe": _JUDGED, "id": self.table.pgt_id})

    def _text(self, part: _Slice) -> str:
        relation = part.relation
        key = [c.name for a in relation.key for c in relation.columns if c.attnum == a]
        columns = key or [c.name for c in relation.columns[:MOST_COLUMNS]]
        most = 10_000 if key else MOST_CHARACTERS
        shown = ", ".join(f"pg_catalog.format('%I = %L', {literal(name)}, {_shown(name, most)})" for name in columns)
        table = f"{literal(relation.schema)}, {literal(relation.name)}"
        shown = f"pg_catalog.format('%I.%I (%s)', {table}, pg_catalog.concat_ws(', ', {shown}))"
        return str(self._value(f"SELECT {shown} FROM {part.sql} AS t"))

    def _value(self, sql: str) -> Any:
        """The only value of a query. Raises if the time is over."""
        with self._limited():
            return self._read(sql)

    def _read(self, sql: str) -> Any:
        self.conn.execute("SET LOCAL transaction_read_only = on")
        row = self.conn.execute(sql).fetchone()
        assert row is not None
        return row[0]

    @contextmanager
    def _limited(self) -> Iterator[None]:
        """A savepoint that is rolled back. Raises if the time is over."""
        left = self.until - time.monotonic()
        if left <= 0:
            raise _OverError
        try:
            with translated(), self.conn.transaction(force_rollback=True):
                self.conn.execute(f"SET LOCAL statement_timeout = {max(int(left * 1000), 1)}")
                yield
        except PgtrickleError as error:
            if error.sqlstate == _QUERY_CANCELED and time.monotonic() >= self.until:
                raise _OverError from None
            raise


def _name(relation: Relation) -> str:
    return f"{quote_ident(relation.schema)}.{quote_ident(relation.name)}"


def _key(relation: Relation) -> Sequence[str]:
    return [quote_ident(c.name) for a in relation.key for c in relation.columns if c.attnum == a]


def _shown(name: str, most: int) -> str:
    """A value as its type's output function writes it, cut off."""
    column = quote_ident(name)
    return f"CASE WHEN NOT ({column} IS NULL) THEN pg_catalog.left(pg_catalog.format('%s', {column}), {most:d}) END"


def _order(relation: Relation) -> Sequence[str]:
    """An order that two reads at one snapshot agree on."""
    return _key(relation) or ["tableoid", "ctid"]


@dataclass(frozen=True, slots=True)
class _Select:
    """One SELECT of a text: its tokens, its FROM clause and what follows it up to the groups."""

    start: int
    stop: int
    inner: tuple[tuple[int, int], ...]  # the tokens of other SELECTs in it, and of its FROM
    source: str
    groups: str

    def has_own(self, index: int) -> bool:
        return self.start < index < self.stop and not any(a <= index < b for a, b in self.inner)


def _selects(cursor: Cursor) -> list[_Select]:
    selects = []
    for index, token in enumerate(cursor.tokens):
        if token.key != "SELECT":
            continue
        inner = cursor.inside(index + 1, cursor.stop)
        inner.until("FROM", "UNION", "INTERSECT", "EXCEPT")
        begin = inner.at
        if inner.take("FROM"):
            inner.until(*(word for word in CLAUSE_ENDS if word != "FROM"))
        source = (begin, inner.at)
        if inner.take("WHERE"):
            inner.until(*CLAUSE_ENDS)
        if inner.take("GROUP BY"):
            inner.until(*CLAUSE_ENDS)
        groups = (source[1], inner.at)
        inner.until("UNION", "INTERSECT", "EXCEPT")
        selects.append((index, inner.at, source, groups))
    return [
        _Select(
            start,
            stop,
            (source, *((a, b) for a, b, _, _ in selects if start < a < stop)),
            cursor.text(*source),
            cursor.text(*groups),
        )
        for start, stop, source, groups in selects
    ]


def _expressions(cursor: Cursor) -> Iterator[tuple[int, str]]:
    """What PostgreSQL prints in parentheses: operators with their operands, casts, calls; with their first tokens."""
    tokens = cursor.tokens
    for index, token in enumerate(tokens):
        if token.key != "(":
            continue
        closing = cursor.closing(index)
        if cursor.is_query(index + 1, closing) or closing == index + 1:
            continue
        before = tokens[index - 1] if index else None
        if before is not None and before.is_name and before.key not in _BEFORE_PARENTHESES:
            first = index - 3 if index > 2 and tokens[index - 2].key == "." else index - 1
            yield first, cursor.text(first, closing + 1)
        elif closing + 2 < len(tokens) and tokens[closing + 1].key == "::":
            yield index, cursor.text(index, _type_end(tokens, closing + 2) + 1)
        else:
            yield index, cursor.text(index + 1, closing)


def _type_end(tokens: Sequence[Token], index: int) -> int:
    """The last token of a type's name, with its modifier."""
    if index + 1 < len(tokens) and tokens[index + 1].key == "(":
        return next(i for i in range(index, len(tokens)) if tokens[i].key == ")")
    return index


_BEFORE_PARENTHESES = frozenset(
    {
        "SELECT",
        "WHERE",
        "AND",
        "OR",
        "NOT",
        "ON",
        "HAVING",
        "WHEN",
        "THEN",
        "ELSE",
        "BY",
        "GROUP BY",
        "ORDER BY",
        "CASE",
    }
    | {"IN", "AS", "IS", "LIKE", "BETWEEN", "DISTINCT", "FROM", "JOIN", "USING", "VALUES", "EXISTS", "LATERAL", "ANY"}
)
