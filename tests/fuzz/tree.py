"""Random queries as immutable trees: rendered as SQL, and cut down by the minimiser.

Three things are filled in when a SELECT is rendered, so that they stay right while the tree shrinks: `<<all>>`, the
columns of its FROM (a total order: rows that tie in it are equal), `<<order>>`, the window of all functions that depend
on the order of rows (two such windows could put equal rows in two orders), and `<<k7>>`, the text of grouping key 7.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, fields, is_dataclass, replace
from typing import TypeAlias, TypeVar, cast

INT, NUM, TEXT, DATE, BOOL = "int", "numeric", "text", "date", "boolean"
TYPES = (INT, NUM, TEXT, DATE, BOOL)
CONSTANTS = {INT: "1", NUM: "1.50", TEXT: "'a'::text", DATE: "DATE '2024-01-02'", BOOL: "true"}
ALL, ORDER = "<<all>>", "<<order>>"

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Column:
    """What an expression may name. `solid`: not a constant in disguise, which FULL JOIN does not take."""

    sql: str
    type: str
    solid: bool = True


@dataclass(frozen=True, slots=True)
class Expr:
    """A text with a place `{}` for each argument."""

    template: str
    type: str
    args: tuple[Expr | Query, ...] = ()
    reads: bool = False  # itself a column

    def sql(self) -> str:
        first, *rest = self.template.split("{}")
        return first + "".join(arg.sql() + text for arg, text in zip(self.args, rest, strict=True))

    def solid(self) -> bool:
        return self.reads or any(isinstance(a, Expr) and a.solid() for a in self.args)


@dataclass(frozen=True, slots=True)
class Output:
    name: str
    expr: Expr


# -- FROM


@dataclass(frozen=True, slots=True)
class Named:
    """A table, a view or a CTE."""

    name: str
    alias: str
    shape: tuple[tuple[str, str], ...]
    rows: float = 8.0

    def sql(self) -> str:
        return f"{self.name} AS {self.alias}"

    def columns(self) -> tuple[Column, ...]:
        return tuple(Column(f"{self.alias}.{name}", type_) for name, type_ in self.shape)


@dataclass(frozen=True, slots=True)
class Derived:
    """A subquery in FROM."""

    query: Query
    alias: str
    lateral: bool = False
    rows: float = 8.0

    def sql(self) -> str:
        return f"{'LATERAL ' if self.lateral else ''}({self.query.sql()}) AS {self.alias}"

    def columns(self) -> tuple[Column, ...]:
        return tuple(Column(f"{self.alias}.{o.name}", o.expr.type, o.expr.solid()) for o in outputs(self.query))


@dataclass(frozen=True, slots=True)
class Rows:
    """VALUES."""

    rows_sql: tuple[tuple[str, ...], ...]
    alias: str
    shape: tuple[tuple[str, str], ...]
    rows: float = 3.0

    def sql(self) -> str:
        rows = ", ".join(f"({', '.join(row)})" for row in self.rows_sql)
        return f"(VALUES {rows}) AS {self.alias} ({', '.join(name for name, _ in self.shape)})"

    def columns(self) -> tuple[Column, ...]:
        return tuple(Column(f"{self.alias}.{name}", type_) for name, type_ in self.shape)


@dataclass(frozen=True, slots=True)
class Function:
    """A set-returning function."""

    call: Expr
    alias: str
    shape: tuple[tuple[str, str], ...]
    ordinality: bool = False
    rows: float = 3.0

    def sql(self) -> str:
        names = ", ".join(name for name, _ in self.shape)
        return f"{self.call.sql()}{' WITH ORDINALITY' if self.ordinality else ''} AS {self.alias} ({names})"

    def columns(self) -> tuple[Column, ...]:
        return tuple(Column(f"{self.alias}.{name}", type_) for name, type_ in self.shape)


@dataclass(frozen=True, slots=True)
class Join:
    kind: str
    left: Source
    right: Source
    on: Expr | None = None
    using: tuple[str, ...] = ()
    natural: bool = False
    rows: float = 8.0

    def sql(self) -> str:
        right = f"({self.right.sql()})" if isinstance(self.right, Join) else self.right.sql()
        words = f"{'NATURAL ' if self.natural else ''}{self.kind} JOIN {right}"
        if self.using:
            words += f" USING ({', '.join(self.using)})"
        elif self.on is not None:
            words += f" ON {self.on.sql()}"
        return f"{self.left.sql()} {words}"

    def columns(self) -> tuple[Column, ...]:
        return self.left.columns() + self.right.columns()


Source: TypeAlias = Named | Derived | Rows | Function | Join

# -- queries


@dataclass(frozen=True, slots=True)
class Limit:
    """`directions` has a word per output column, so the order is total; WITH TIES is exact with any order.

    `fixed`: its query would raise without it.
    """

    count: int
    offset: int
    directions: tuple[str, ...]
    ties: bool = False
    fixed: bool = False

    def sql(self, outputs: int) -> str:
        width = 1 if self.ties and not self.offset else outputs  # which rows OFFSET skips must be determined
        order = ", ".join(f"{i + 1}{self.directions[i % len(self.directions)]}" for i in range(width))
        offset = f" OFFSET {self.offset}" if self.offset else ""
        if self.ties:
            return f" ORDER BY {order}{offset} FETCH FIRST {self.count} ROWS WITH TIES"
        return f" ORDER BY {order} LIMIT {self.count}{offset}"


@dataclass(frozen=True, slots=True)
class Key:
    number: int
    expr: Expr

    @property
    def token(self) -> str:
        return f"<<k{self.number}>>"


@dataclass(frozen=True, slots=True)
class Select:
    outputs: tuple[Output, ...]
    source: Source | None
    where: Expr | None = None
    keys: tuple[Key, ...] = ()
    grouping: str = ""  # "", ROLLUP, CUBE or GROUPING SETS
    sets: tuple[tuple[int, ...], ...] = ()  # numbers of keys
    having: Expr | None = None
    distinct: bool = False
    distinct_on: int = 0  # how many leading outputs
    limit: Limit | None = None
    windows: tuple[tuple[str, Expr], ...] = ()
    order: Expr | None = None
    directions: tuple[str, ...] = ("",)
    rows: float = 8.0

    def sql(self) -> str:
        head = "SELECT "
        if self.distinct_on:
            head += f"DISTINCT ON ({', '.join(str(i + 1) for i in range(self.distinct_on))}) "
        elif self.distinct:
            head += "DISTINCT "
        text = head + ", ".join(f"{o.expr.sql()} AS {o.name}" for o in self.outputs)
        if self.source is not None:
            text += f" FROM {self.source.sql()}"
        if self.where is not None:
            text += f" WHERE {self.where.sql()}"
        if self.keys:
            text += f" GROUP BY {self._grouping()}"
        if self.having is not None:
            text += f" HAVING {self.having.sql()}"
        if self.windows:
            text += " WINDOW " + ", ".join(f"{name} AS ({e.sql()})" for name, e in self.windows)
        if self.limit is not None:
            text += self.limit.sql(len(self.outputs))
        elif self.distinct_on:
            ways = self.directions
            text += " ORDER BY " + ", ".join(f"{i + 1}{ways[i % len(ways)]}" for i in range(len(self.outputs)))
        return self._filled(text)

    def _filled(self, text: str) -> str:
        if self.order is not None:
            text = text.replace(ORDER, self.order.sql())
        if ALL in text:
            if self.keys:
                columns = [key.token for key in self.keys]
            else:
                columns = [c.sql for c in self.source.columns()] if self.source is not None else ["1"]
            text = text.replace(ALL, ", ".join(columns))
        for key in self.keys:
            text = text.replace(key.token, key.expr.sql())
        return text

    def _grouping(self) -> str:
        if self.grouping == "GROUPING SETS":
            of = {key.number: key.token for key in self.keys}
            sets = ", ".join(f"({', '.join(of.get(n, '<<gone>>') for n in numbers)})" for numbers in self.sets)
            return f"GROUPING SETS ({sets})"
        keys = ", ".join(key.token for key in self.keys)
        return f"{self.grouping} ({keys})" if self.grouping else keys


@dataclass(frozen=True, slots=True)
class SetOp:
    kind: str  # UNION, INTERSECT, EXCEPT
    all: bool
    left: Query
    right: Query
    limit: Limit | None = None
    rows: float = 8.0

    def sql(self) -> str:
        text = f"({self.left.sql()}) {self.kind}{' ALL' if self.all else ''} ({self.right.sql()})"
        return text + (self.limit.sql(len(outputs(self))) if self.limit is not None else "")


@dataclass(frozen=True, slots=True)
class Cte:
    name: str
    query: Query
    names: tuple[str, ...] = ()
    hint: str = ""  # MATERIALIZED, NOT MATERIALIZED

    def sql(self) -> str:
        names = f" ({', '.join(self.names)})" if self.names else ""
        return f"{self.name}{names} AS {self.hint + ' ' if self.hint else ''}({self.query.sql()})"


@dataclass(frozen=True, slots=True)
class With:
    ctes: tuple[Cte, ...]
    body: Query
    recursive: bool = False
    rows: float = 8.0

    def sql(self) -> str:
        word = "WITH RECURSIVE" if self.recursive else "WITH"
        return f"{word} {', '.join(c.sql() for c in self.ctes)} {self.body.sql()}"


Query: TypeAlias = Select | SetOp | With


def outputs(query: Query) -> tuple[Output, ...]:
    """The columns of the result; those of a set operation are named by its left side."""
    while not isinstance(query, Select):
        query = query.left if isinstance(query, SetOp) else query.body
    return query.outputs


def levels(query: Query) -> int:
    """How deeply SELECTs are nested."""
    match query:
        case SetOp():
            return max(levels(query.left), levels(query.right))
        case With():
            return max(levels(query.body), 1 + max(levels(c.query) for c in query.ctes))
    inner = [levels(q) for e in _expressions(query) for q in _subqueries(e)]
    inner += [levels(q) for q in _derived(query.source)]
    return 1 + max(inner, default=0)


def _expressions(select: Select) -> Iterator[Expr]:
    yield from (o.expr for o in select.outputs)
    yield from (k.expr for k in select.keys)
    yield from (e for e in (select.where, select.having) if e is not None)


def _subqueries(expr: Expr) -> Iterator[Query]:
    for arg in expr.args:
        if isinstance(arg, Expr):
            yield from _subqueries(arg)
        else:
            yield arg


def _derived(source: Source | None) -> Iterator[Query]:
    match source:
        case Derived():
            yield source.query
        case Join():
            yield from _derived(source.left)
            yield from _derived(source.right)
            if source.on is not None:
                yield from _subqueries(source.on)


# -- simpler trees
# ------------------------------------------------------------------------------------------------------------------


def simpler(query: Query) -> Iterator[Query]:
    """Every tree that is this one with one thing less. Some are not valid any more: PostgreSQL says which."""
    match query:
        case SetOp():
            yield from (query.left, query.right)
            if query.limit is not None:
                yield replace(query, limit=None)
            yield from (replace(query, left=q) for q in simpler(query.left))
            yield from (replace(query, right=q) for q in simpler(query.right))
            yield from _without_output(query)
        case With():
            yield query.body
            for i, cte in enumerate(query.ctes):
                yield cte.query
                if len(query.ctes) > 1:
                    yield replace(query, ctes=_without(query.ctes, i))
                for q in simpler(cte.query):
                    yield replace(query, ctes=_with(query.ctes, i, replace(cte, query=q)))
            yield from (replace(query, body=q) for q in simpler(query.body))
        case Select():
            yield from _simpler_select(query)


def _simpler_select(select: Select) -> Iterator[Query]:
    if select.source is not None:
        yield from _derived(select.source)
    if select.where is not None:
        yield replace(select, where=None)
    if select.having is not None:
        yield replace(select, having=None)
    if select.limit is not None and not select.limit.fixed:
        yield replace(select, limit=None)
    if select.distinct or select.distinct_on:
        yield replace(select, distinct=False, distinct_on=0)
    if select.limit is not None and select.limit.offset:
        yield replace(select, limit=replace(select.limit, offset=0))
    if select.limit is not None and any(select.limit.directions):
        yield replace(select, limit=replace(select.limit, directions=("",)))
    if select.grouping:
        yield replace(select, grouping="", sets=())
    for i in range(len(select.sets)):
        if len(select.sets) > 1:
            yield replace(select, sets=_without(select.sets, i))
    for i, key in enumerate(select.keys):
        yield replace(
            select,
            keys=_without(select.keys, i),
            sets=tuple(tuple(n for n in numbers if n != key.number) for numbers in select.sets),
        )
    if len(select.outputs) > 1:
        for i in range(len(select.outputs)):
            yield replace(select, outputs=_without(select.outputs, i), distinct_on=min(select.distinct_on, i or 1))
    if select.source is not None:
        yield from (replace(select, source=s) for s in _simpler_source(select.source))
    for i, output in enumerate(select.outputs):
        for e in _simpler_expr(output.expr):
            yield replace(select, outputs=_with(select.outputs, i, replace(output, expr=e)))
    for i, key in enumerate(select.keys):
        for e in _simpler_expr(key.expr):
            yield replace(select, keys=_with(select.keys, i, replace(key, expr=e)))
    if select.order is not None:
        yield from (replace(select, order=e) for e in _simpler_expr(select.order))
    if select.where is not None:
        yield from (replace(select, where=e) for e in _simpler_expr(select.where))
    if select.having is not None:
        yield from (replace(select, having=e) for e in _simpler_expr(select.having))


def _simpler_source(source: Source) -> Iterator[Source]:
    match source:
        case Derived():
            yield from (replace(source, query=q) for q in simpler(source.query))
        case Join():
            yield from (source.left, source.right)
            if source.kind not in ("INNER", "CROSS") and not source.natural:
                yield replace(source, kind="INNER")
            if source.on is not None:
                yield from (replace(source, on=e) for e in _simpler_expr(source.on))
            yield from (replace(source, left=s) for s in _simpler_source(source.left))
            yield from (replace(source, right=s) for s in _simpler_source(source.right))
        case Rows() if len(source.rows_sql) > 2:
            yield from (replace(source, rows_sql=_without(source.rows_sql, i)) for i in range(len(source.rows_sql)))
        case Function():
            if source.ordinality:
                yield replace(source, ordinality=False, shape=source.shape[:-1])
            yield from (replace(source, call=e) for e in _simpler_expr(source.call))


def _simpler_expr(expr: Expr) -> Iterator[Expr]:
    yield from (a for a in expr.args if isinstance(a, Expr) and a.type == expr.type)
    if expr.args and expr.type in CONSTANTS:
        yield Expr(CONSTANTS[expr.type], expr.type)
    for i, arg in enumerate(expr.args):
        if isinstance(arg, Expr):
            yield from (replace(expr, args=_with(expr.args, i, e)) for e in _simpler_expr(arg))
        else:
            yield from (replace(expr, args=_with(expr.args, i, q)) for q in simpler(arg))


def inlined(query: Query, views: Mapping[str, Query]) -> Query:
    """The query with its views as subqueries."""
    return cast("Query", _inlined(query, views))


def _inlined(node: object, views: Mapping[str, Query]) -> object:
    if isinstance(node, Named):
        return Derived(inlined(views[node.name], views), node.alias) if node.name in views else node
    if isinstance(node, tuple):
        return tuple(_inlined(item, views) for item in node)
    if is_dataclass(node) and not isinstance(node, type):
        return replace(node, **{f.name: _inlined(getattr(node, f.name), views) for f in fields(node)})
    return node


def _without_output(query: SetOp) -> Iterator[Query]:
    """The same column less on both sides."""
    for i in range(len(outputs(query))):
        try:
            yield _less(query, i)
        except ValueError:
            return


def _less(query: Query, i: int) -> Query:
    match query:
        case SetOp():
            return replace(query, left=_less(query.left, i), right=_less(query.right, i))
        case With():
            return replace(query, body=_less(query.body, i))
        case Select() if len(query.outputs) > 1:
            return replace(query, outputs=_without(query.outputs, i), distinct_on=min(query.distinct_on, i or 1))
    raise ValueError("the last column")


def _without(items: tuple[T, ...], i: int) -> tuple[T, ...]:
    return items[:i] + items[i + 1 :]


def _with(items: tuple[T, ...], i: int, item: T) -> tuple[T, ...]:
    return (*items[:i], item, *items[i + 1 :])
