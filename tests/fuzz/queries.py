"""Random queries, at least three levels deep, each with one determined answer.

Rows are bounded by an estimate that each node carries, so that nested joins of small tables stay small. What makes the
answers determined: LIMIT and DISTINCT ON order by all output columns, windows that depend on the order of rows by all
columns of FROM, ordered aggregates by their argument; no floating point.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from random import Random

from tests.fuzz.aggregates import Aggregates
from tests.fuzz.expressions import Expressions, Scope, column
from tests.fuzz.schema import ARRAY, EMPTY_AT_FIRST, JSON, Table, literal
from tests.fuzz.tree import (
    BOOL,
    DATE,
    INT,
    NUM,
    ORDER,
    TEXT,
    TYPES,
    Column,
    Cte,
    Derived,
    Expr,
    Function,
    Join,
    Key,
    Limit,
    Named,
    Output,
    Query,
    Rows,
    Select,
    SetOp,
    Source,
    With,
    levels,
    outputs,
)
from tests.fuzz.windows import Windows

MOST_ESTIMATED_ROWS = 300.0
NO_SCOPE = Scope(())
DIRECTIONS = ("", "", " DESC", " NULLS FIRST", " DESC NULLS LAST")


@dataclass(frozen=True, slots=True)
class Relation:
    """What FROM may name."""

    name: str
    shape: tuple[tuple[str, str], ...]
    rows: float = 8.0


@dataclass(frozen=True, slots=True)
class Generated:
    query: Query
    used: frozenset[str]


@dataclass
class Generator:
    random: Random
    relations: list[Relation]
    used: set[str] = field(default_factory=set)
    filters: float = 0.35  # how often a SELECT has a WHERE
    _number: int = 0

    def __post_init__(self) -> None:
        self.expressions = Expressions(self.random, self, self.used)
        self.aggregates = Aggregates(self.random, self.expressions, self.used)
        self.windows = Windows(self.random, self.expressions, self.used)

    def case(self, depth: int = 3) -> Generated:
        """A query of at least `depth` levels."""
        while True:
            self.used.clear()
            self._number = 0
            is_walk = self.random.random() < 0.06
            query = self._walk(depth) if is_walk else self.query(depth, self._types(), NO_SCOPE)
            if levels(query) >= depth:
                return Generated(query, frozenset(self.used))

    def view(self) -> Query:
        self.filters /= 3
        return self.query(self.random.choice((1, 2)), self._types(), NO_SCOPE)

    def _types(self) -> list[str]:
        return [self.random.choice((INT, INT, NUM, TEXT, DATE, BOOL)) for _ in range(self.random.randint(2, 4))]

    def _alias(self, letter: str) -> str:
        self._number += 1
        return f"{letter}{self._number}"

    # -- what expressions ask for

    def rows_of(self, types: Sequence[str], scope: Scope, depth: int) -> Query:
        inner = Scope((), scope.visible(), ctes=scope.ctes)
        if depth > 0 and self.random.random() < 0.3:
            return self.query(depth, types, inner)
        return self._select(depth, types, inner, forms=("plain", "plain", "plain", "grouped", "distinct"))

    def one_value(self, type_: str, scope: Scope, depth: int) -> Query:
        inner = Scope((), scope.visible(), ctes=scope.ctes)
        if self.random.random() < 0.65:
            return self._aggregated(depth, type_, inner)
        query = self._select(depth, [type_], inner, forms=("plain",))
        return replace(query, limit=Limit(1, self.random.choice((0, 0, 1)), self._directions(), fixed=True))

    def _aggregated(self, depth: int, type_: str, scope: Scope) -> Select:
        """One row, whatever there is."""
        source, inner = self._from(depth, scope)
        value = self.aggregates.any(type_, inner)
        return Select((Output("c1", value),), source, self._where(inner, depth), rows=1.0)

    # -- queries

    def query(self, depth: int, types: Sequence[str], scope: Scope) -> Query:
        random = self.random
        way = random.random()
        if depth > 1 and way < 0.14:
            return self._set_operation(depth, types, scope)
        if depth > 1 and way < 0.26:
            return self._with(depth, types, scope)
        if depth > 1 and way < 0.30:
            return self._recursive(depth, types, scope)
        return self._select(depth, types, scope)

    def _set_operation(self, depth: int, types: Sequence[str], scope: Scope) -> SetOp:
        random = self.random
        kind, every = random.choice(("UNION", "INTERSECT", "EXCEPT")), random.random() < 0.5
        self.used.add(kind + (" ALL" if every else ""))
        inner = depth - random.choice((0, 1, 1))
        left = self._select(inner, types, scope)
        right: Query
        if random.random() < 0.6:
            # The same rows under another condition, so that the sides have something in common.
            right = replace(left, where=self._where(self._inside(left, scope), depth - 1))
        elif random.random() < 0.3:
            right = self._set_operation(depth - 1, types, scope)
        else:
            right = self._select(depth - 1, types, scope)
        limit = None
        if random.random() < 0.1:
            limit = self._limit()
        return SetOp(kind, every, left, right, limit, rows=left.rows + right.rows)

    def _inside(self, select: Select, scope: Scope) -> Scope:
        return Scope(select.source.columns() if select.source is not None else (), scope.outer, ctes=scope.ctes)

    def _with(self, depth: int, types: Sequence[str], scope: Scope) -> With:
        random = self.random
        self.used.add("CTE")
        ctes: list[Cte] = []
        known = scope.ctes
        for _ in range(random.choice((1, 1, 2))):
            name = self._alias("w")
            query = self.query(depth - 1, self._types(), Scope((), ctes=known))
            ctes.append(Cte(name, query, hint=random.choice(("", "", "", "MATERIALIZED", "NOT MATERIALIZED"))))
            known = (*known, (name, tuple((o.name, o.expr.type) for o in outputs(query))))
        return self._around(tuple(ctes), known, depth, types, scope, recursive=False)

    def _around(
        self,
        ctes: tuple[Cte, ...],
        known: tuple[tuple[str, tuple[tuple[str, str], ...]], ...],
        depth: int,
        types: Sequence[str],
        scope: Scope,
        *,
        recursive: bool,
    ) -> With:
        inner = replace(scope, ctes=known)
        if self.random.random() < 0.25:
            body: Query = self._set_operation(depth - 1, types, inner)
        else:
            body = self._select(depth - 1, types, inner, cte=known[-1])
        return With(ctes, body, recursive, rows=body.rows)

    def _recursive(self, depth: int, types: Sequence[str], scope: Scope) -> With:
        random = self.random
        self.used.add("RECURSIVE")
        name, edge, start, step = (self._alias(letter) for letter in "resz")
        shape = (("x", INT), ("y", INT))
        edges = Named("edge", edge, (("src", INT), ("dst", INT)))
        way = random.random()
        if way < 0.6:
            first = Select(
                (Output("x", Expr(f"{edge}.src", INT, reads=True)), Output("y", Expr(f"{edge}.dst", INT, reads=True))),
                edges,
            )
        else:
            source = random.choice([("t1", "a", "b"), ("t2", "a", "b"), ("t1", "id", "a")])
            of = Named(source[0], start, ())
            first = Select(
                tuple(Output(n, Expr(f"{start}.{c}", INT, reads=True)) for n, c in zip("xy", source[1:], strict=True)),
                of,
            )
        if random.random() < 0.5:
            inner = Scope(first.source.columns() if first.source is not None and first.source.columns() else ())
            first = replace(first, where=self.expressions.condition(inner, 1)) if inner.own else first
        recursive = Named(name, step, shape)
        next_edge = self._alias("e")
        join = Join(
            "INNER",
            recursive,
            Named("edge", next_edge, (("src", INT), ("dst", INT))),
            Expr(f"({next_edge}.src = {step}.y)", BOOL),
        )
        if random.random() < 0.25:
            # A walk with a counter, which UNION ALL also ends.
            again = Select(
                (
                    Output("x", Expr(f"({step}.x + 1)", INT, reads=True)),
                    Output("y", Expr(f"{next_edge}.dst", INT, reads=True)),
                ),
                join,
                Expr(f"({step}.x < 3)", BOOL),
            )
            every = random.random() < 0.5
            first = replace(first, outputs=(Output("x", Expr("0", INT)), first.outputs[1]))
        else:
            again = Select(
                (
                    Output("x", Expr(f"{step}.x", INT, reads=True)),
                    Output("y", Expr(f"{next_edge}.dst", INT, reads=True)),
                ),
                join,
            )
            every = False
        ctes = (Cte(name, SetOp("UNION", every, first, again), ("x", "y")),)
        return self._around(ctes, (*scope.ctes, (name, shape)), depth, types, scope, recursive=True)

    def _walk(self, depth: int) -> With:
        """A recursion with nothing around it, whose rows are all there is in its table."""
        random = self.random
        self.used.add("walk")
        name, step, start = (self._alias(letter) for letter in "rzq")
        below = self._select(depth - 1, [INT, INT], NO_SCOPE, forms=("plain", "grouped", "distinct"))
        y = Output("y", Expr(f"{start}.{outputs(below)[1].name}", INT, reads=True))
        shape, tables = (("x", INT), ("y", INT)), (("src", INT), ("dst", INT))
        near, far = self._alias("e"), self._alias("e")
        ends = (f"{near}.src", f"{near}.dst") if random.random() < 0.7 else (f"{near}.dst", f"{near}.src")
        on = Expr(f"({ends[0]} = {step}.y)", BOOL)
        source = Join("INNER", Named(name, step, shape), Named("edge", near, tables), on)
        end = ends[1]
        if random.random() < 0.35:
            other = random.choice((("edge", tables, "src", "dst"), ("t1", (("id", INT), ("a", INT)), "id", "a")))
            meets = Expr(f"({far}.{other[2]} = {end})", BOOL)
            source, end = Join("INNER", source, Named(other[0], far, other[1]), meets), f"{far}.{other[3]}"
        reached = Output("y", Expr(end, INT, reads=True))
        if random.random() < 0.5:  # a walk with a counter, which UNION ALL also ends
            every, x = random.random() < 0.7, Output("x", Expr("0", INT))
            counted = Output("x", Expr(f"({step}.x + 1)", INT, reads=True))
            again = Select((counted, reached), source, Expr(f"({step}.x < 3)", BOOL))
        else:
            every, x = False, Output("x", Expr(f"{start}.{outputs(below)[0].name}", INT, reads=True))
            again = Select((Output("x", Expr(f"{step}.x", INT, reads=True)), reached), source)
        first = Select((x, y), Derived(below, start, rows=below.rows))
        self.used.add("walk UNION ALL" if every else "walk UNION")
        body = Select(
            tuple(Output(n, Expr(f"{name}.{n}", INT, reads=True)) for n in random.choice(("xy", "yx"))),
            Named(name, name, shape),
        )
        return With((Cte(name, SetOp("UNION", every, first, again), ("x", "y")),), body, recursive=True)

    def _select(
        self,
        depth: int,
        types: Sequence[str],
        scope: Scope,
        *,
        forms: Sequence[str] = ("plain",) * 5
        + ("grouped",) * 4
        + ("windowed",) * 2
        + ("distinct", "distinct on", "limit"),
        cte: tuple[str, tuple[tuple[str, str], ...]] | None = None,
    ) -> Select:
        source, inner = self._from(depth, scope, cte)
        where = self._where(inner, depth)
        form = self.random.choice(forms)
        rows = source.rows * (0.6 if where is not None else 1.0)
        match form:
            case "grouped":
                select = self._grouped(depth, types, source, where, inner)
            case "windowed":
                select = self._windowed(types, source, where, inner)
            case _:
                queries = depth - 1 if self.random.random() < 0.3 else 0
                exprs = [self.expressions.any(t, inner, 2, queries=queries) for t in types]
                select = Select(_named(exprs), source, where)
        match form:
            case "distinct":
                self.used.add("DISTINCT")
                select = replace(select, distinct=True)
            case "distinct on":
                self.used.add("DISTINCT ON")
                count = self.random.randint(1, len(types))
                select = replace(select, distinct_on=count, directions=self._directions())
            case "limit":
                select = replace(select, limit=self._limit())
        return replace(select, rows=min(rows, select.rows) if form == "grouped" else rows)

    def _limit(self) -> Limit:
        random = self.random
        ties = random.random() < 0.15
        self.used.add("WITH TIES" if ties else "LIMIT")
        return Limit(random.randint(1, 6), random.choice((0, 0, 0, 1, 3)), self._directions(), ties)

    def _directions(self) -> tuple[str, ...]:
        return tuple(self.random.choice(DIRECTIONS) for _ in range(4))

    def _where(self, scope: Scope, depth: int) -> Expr | None:
        random = self.random
        if scope.outer and random.random() < 0.7:
            pairs = [(o, c) for o in scope.outer for c in scope.own if o.type == c.type and c.type in TYPES]
            if pairs:
                self.used.add("correlated")
                around, own = random.choice(pairs)
                operator = random.choice(("=", "=", "=", "=", "<", "<>"))
                test = Expr(f"({{}} {operator} {{}})", BOOL, (column(own), column(around)))
                if random.random() < 0.6:
                    return test
                return Expr("({} AND {})", BOOL, (test, self.expressions.condition(scope, 1)))
        if random.random() < self.filters:
            return self.expressions.condition(scope, 2, queries=max(depth - 1, 0))
        return None

    # -- FROM

    def _from(
        self, depth: int, scope: Scope, cte: tuple[str, tuple[tuple[str, str], ...]] | None = None
    ) -> tuple[Source, Scope]:
        random = self.random
        source: Source = (
            self._item(depth, scope, inside=True) if cte is None else Named(cte[0], self._alias("t"), cte[1])
        )
        merged: tuple[Column, ...] = ()
        joins = random.choice((0, 0, 1, 1, 1, 2)) if depth > 1 else random.choice((0, 0, 0, 1, 1))
        for i in range(joins):
            if source.rows > MOST_ESTIMATED_ROWS / 4:
                break
            way = random.random()
            if way < 0.1:
                source = self._lateral(source, scope, depth)
            elif way < 0.16:
                source = self._unnested(source)
            else:
                source = self._join(source, depth, scope)
                if source.using and joins == 1 and i == 0:
                    types = {c.sql.partition(".")[2]: c.type for c in source.left.columns()}
                    merged = tuple(Column(name, types[name]) for name in source.using)
        return source, Scope(source.columns() + merged, scope.outer, ctes=scope.ctes)

    def _item(self, depth: int, scope: Scope, *, inside: bool = False) -> Source:
        random = self.random
        way = random.random()
        if depth > 1 and way < (0.6 if inside else 0.3):
            self.used.add("subquery in FROM")
            query = self.query(depth - 1, self._types(), Scope((), ctes=scope.ctes))
            return Derived(query, self._alias("q"), rows=query.rows)
        if scope.ctes and way > 0.7:
            name, shape = random.choice(scope.ctes)
            return Named(name, self._alias("t"), shape)
        if way > 0.96:
            return self._values()
        if way > 0.93:
            self.used.add("generate_series")
            return Function(
                Expr(f"generate_series({random.randint(0, 2)}, {random.randint(2, 4)})", INT),
                self._alias("g"),
                (("x", INT),),
            )
        relation = random.choice(self.relations)
        if relation.name == EMPTY_AT_FIRST:
            relation = random.choice(self.relations)
        if relation.name.startswith("v"):
            self.used.add("view")
        elif relation.name.startswith("s"):
            self.used.add("stream table")
        return Named(relation.name, self._alias("t"), relation.shape, rows=relation.rows)

    def _values(self) -> Rows:
        self.used.add("VALUES")
        random = self.random
        types = [random.choice(TYPES) for _ in range(2)]
        rows = tuple(tuple(literal(random, t, null=i > 0) for t in types) for i in range(random.randint(2, 4)))
        return Rows(rows, self._alias("v"), tuple(zip(("x", "y"), types, strict=True)))

    def _join(self, left: Source, depth: int, scope: Scope) -> Join:
        random = self.random
        right = self._item(depth, scope)
        if depth > 1 and random.random() < 0.2 and left.rows * right.rows < MOST_ESTIMATED_ROWS / 4:
            self.used.add("join in parentheses")
            right = self._lateral(right, scope, depth) if random.random() < 0.3 else self._join(right, depth - 1, scope)
        product = left.rows * right.rows
        kinds = ["INNER", "INNER", "LEFT", "LEFT", "RIGHT", "FULL"] + (
            ["CROSS"] if product < MOST_ESTIMATED_ROWS else []
        )
        kind = random.choice(kinds)
        self.used.add(f"{kind} JOIN")
        if kind == "CROSS":
            return Join(kind, left, right, rows=product)
        rows = max(product / 5, left.rows, right.rows)
        if not isinstance(left, Join) and not isinstance(right, Join) and random.random() < 0.25:
            shared = self._shared(left, right, only_solid=kind == "FULL")
            if shared and random.random() < 0.6:
                self.used.add("USING")
                names = tuple(random.sample(shared, random.randint(1, min(2, len(shared)))))
                return Join(kind, left, right, using=names, rows=rows)
            if shared and len(shared) == len(_names(left) & _names(right)):
                self.used.add("NATURAL")
                return Join(kind, left, right, natural=True, rows=rows)
        condition = self._join_condition(left, right, kind, product, scope)
        if condition is None:
            return Join(
                "CROSS" if product < MOST_ESTIMATED_ROWS else "INNER",
                left,
                right,
                None if product < MOST_ESTIMATED_ROWS else FALSE,
                rows=product,
            )
        return Join(kind, left, right, condition, rows=rows)

    def _shared(self, left: Source, right: Source, *, only_solid: bool) -> list[str]:
        """Names on both sides, of the same type."""
        of = {_name(c): c for c in right.columns()}
        return [
            _name(c)
            for c in left.columns()
            if _name(c) in of
            and of[_name(c)].type == c.type
            and c.type in TYPES
            and (not only_solid or (c.solid and of[_name(c)].solid))
        ]

    def _join_condition(self, left: Source, right: Source, kind: str, product: float, scope: Scope) -> Expr | None:
        random = self.random
        pairs = [
            (a, b)
            for a in left.columns()
            for b in right.columns()
            if a.type == b.type and a.type in TYPES and (kind != "FULL" or (a.solid and b.solid))
        ]
        if not pairs:
            return None
        if kind != "FULL" and product < MOST_ESTIMATED_ROWS and random.random() < 0.15:
            self.used.add("theta")
            return self.expressions.condition(Scope(left.columns() + right.columns(), scope.outer), 1)
        ints = [p for p in pairs if p[0].type == INT] or pairs
        a, b = random.choice(ints if random.random() < 0.7 else pairs)
        test = Expr("({} = {})", BOOL, (column(a), column(b)))
        if random.random() < 0.25:
            queries = int(kind != "FULL" and random.random() < 0.8)
            extra = self.expressions.condition(Scope(left.columns() + right.columns()), queries, queries=queries)
            if "SELECT" in extra.sql():
                self.used.add("subquery in ON")
            return Expr("({} AND {})", BOOL, (test, extra))
        return test

    def _lateral(self, left: Source, scope: Scope, depth: int) -> Join:
        random = self.random
        self.used.add("LATERAL")
        inner = Scope((), left.columns() + scope.outer, ctes=scope.ctes)
        select = self._select(max(depth - 1, 0), self._types()[:2], inner, forms=("plain", "plain", "grouped", "limit"))
        kind = random.choice(("CROSS", "LEFT"))
        right = Derived(select, self._alias("q"), lateral=True, rows=select.rows)
        return Join(
            kind, left, right, None if kind == "CROSS" else TRUE, rows=max(left.rows * select.rows / 3, left.rows)
        )

    def _unnested(self, left: Source) -> Join:
        random = self.random
        arrays = [c for c in left.columns() if c.type == ARRAY]
        documents = [c for c in left.columns() if c.type == JSON]
        ints = [c for c in left.columns() if c.type == INT]
        alias, ordinality = self._alias("u"), random.random() < 0.5
        shape: tuple[tuple[str, str], ...] = (("x", INT),)
        if arrays and not (documents and random.random() < 0.5):
            call = Expr("unnest({})", INT, (column(random.choice(arrays)),))
            self.used.add("unnest")
        elif documents:
            call = Expr("jsonb_array_elements_text({})", TEXT, (column(random.choice(documents)),))
            shape = (("x", TEXT),)
            self.used.add("jsonb_array_elements")
        elif ints:
            call = Expr("generate_series(1, {} % 4)", INT, (column(random.choice(ints)),))
            self.used.add("generate_series")
        else:
            call = Expr("unnest(ARRAY[1, 2, NULL])", INT)
        if ordinality:
            self.used.add("WITH ORDINALITY")
            shape = (*shape, ("ord", INT))
        kind = random.choice(("CROSS", "LEFT"))
        right = Function(call, alias, shape, ordinality)
        return Join(kind, left, right, None if kind == "CROSS" else TRUE, rows=left.rows * 2)

    # -- aggregation

    def _grouped(self, depth: int, types: Sequence[str], source: Source, where: Expr | None, scope: Scope) -> Select:
        random = self.random
        self.used.add("GROUP BY")
        keys = tuple(self._key(scope) for _ in range(random.choice((0, 1, 1, 1, 2, 2, 3))))
        grouping, sets = self._grouping(keys)
        decided: tuple[Column, ...] = ()
        if not grouping and random.random() < 0.25:
            key, decided = self._decided(source)
            keys += key
        atoms = [Expr(k.token, k.expr.type, reads=True) for k in keys]
        atoms += [column(c) for c in decided]
        atoms += [self.aggregates.any(t, scope) for t in types for _ in range(random.choice((1, 1, 2)))]
        if grouping:
            some = random.sample(keys, random.randint(1, len(keys)))
            atoms.append(Expr(f"GROUPING({', '.join(k.token for k in some)})", INT))
        # A subquery may see the keys that are columns.
        outer = tuple(Column(k.token, k.expr.type) for k in keys if k.expr.reads) if not grouping else ()
        outer += decided
        inside = Scope(tuple(replace(c, sql=c.sql) for c in outer), scope.outer, tuple(atoms), scope.ctes)
        queries = depth - 1 if random.random() < 0.15 and not grouping else 0
        exprs = [self.expressions.any(t, inside, random.choice((0, 0, 1)), queries=queries) for t in types]
        if not grouping and keys and random.random() < 0.12:
            exprs = self._over_groups(exprs, types, keys, scope)
        having = None
        if random.random() < 0.25:
            self.used.add("HAVING")
            having = self.expressions.condition(inside, 1, queries=queries)
        select = Select(_named(exprs), source, where, keys, grouping, sets, having, rows=8.0 if keys else 1.0)
        if random.random() < 0.08:
            select = replace(select, limit=self._limit())
        elif random.random() < 0.06:
            self.used.add("DISTINCT")
            select = replace(select, distinct=True)
        return select

    def _decided(self, source: Source) -> tuple[tuple[Key, ...], tuple[Column, ...]]:
        """The primary key of a table in FROM, and its other columns, which need not be grouped by then."""
        keyed = [s for s in _leaves(source) if isinstance(s, Named) and s.name == "t1"]
        if not keyed:
            return (), ()
        self.used.add("GROUP BY primary key")
        self._number += 1
        first, *others = self.random.choice(keyed).columns()
        return (Key(self._number, column(first)),), tuple(c for c in others if c.type in TYPES)

    def _key(self, scope: Scope) -> Key:
        self._number += 1
        own = [c for c in scope.own if c.type in TYPES]
        if own and self.random.random() < 0.8:
            return Key(self._number, column(self.random.choice(own)))
        ints = [c for c in own if c.type == INT]
        if ints:
            template = self.random.choice(("({} % 2)", "coalesce({}, -1)", "({} IS NULL)"))
            return Key(
                self._number, Expr(template, BOOL if "NULL" in template else INT, (column(self.random.choice(ints)),))
            )
        return Key(self._number, column(self.random.choice(own)) if own else Expr("1 + 0", INT))

    def _grouping(self, keys: tuple[Key, ...]) -> tuple[str, tuple[tuple[int, ...], ...]]:
        random = self.random
        if len(keys) < 1 or random.random() > 0.25:
            return "", ()
        kind = random.choice(("ROLLUP", "CUBE", "GROUPING SETS"))
        self.used.add(kind)
        if kind != "GROUPING SETS":
            return kind, ()
        numbers = [k.number for k in keys]
        sets = [tuple(numbers)]
        sets += [tuple(random.sample(numbers, random.randint(0, len(numbers)))) for _ in range(random.randint(1, 2))]
        return kind, tuple(sets)

    def _over_groups(self, exprs: list[Expr], types: Sequence[str], keys: tuple[Key, ...], scope: Scope) -> list[Expr]:
        """Windows over the groups."""
        random = self.random
        self.used.add("window over groups")
        made = []
        for expr, type_ in zip(exprs, types, strict=True):
            if type_ == INT and random.random() < 0.7:
                over = self.aggregates.any(INT, scope)
                template = random.choice(
                    ("rank() OVER (ORDER BY {})", "sum({}) OVER (PARTITION BY " + keys[0].token + ")::bigint")
                )
                made.append(Expr(template, INT, (over,)))
            else:
                made.append(expr)
        return made

    def _windowed(self, types: Sequence[str], source: Source, where: Expr | None, scope: Scope) -> Select:
        random = self.random
        self.used.add("window")
        order = self.windows.order(scope)
        named = self._alias("win") if random.random() < 0.25 else None
        exprs = []
        for i, type_ in enumerate(types):
            if i == 0 or random.random() < 0.5:
                expr = self.windows.any(type_, scope, named)
                if random.random() < 0.3 and type_ in (INT, TEXT):
                    self.used.add("window in expression")
                    other = self.expressions.leaf(type_, scope)
                    expr = Expr(
                        random.choice(("coalesce({}, {})", "CASE WHEN {} IS NULL THEN {} END")), type_, (expr, other)
                    )
                exprs.append(expr)
            else:
                exprs.append(self.expressions.any(type_, scope, 1))
        if named is not None:
            self.used.add("WINDOW clause")
        windows = ((named, Expr(ORDER, "")),) if named is not None else ()
        return Select(_named(exprs), source, where, windows=windows, order=order)


TRUE, FALSE = Expr("true", BOOL), Expr("false", BOOL)


def base_relations(made: dict[str, Table]) -> list[Relation]:
    return [Relation(t.name, t.shape) for t in made.values()]


def _named(exprs: Sequence[Expr]) -> tuple[Output, ...]:
    return tuple(Output(f"c{i + 1}", e) for i, e in enumerate(exprs))


def _name(found: Column) -> str:
    return found.sql.partition(".")[2]


def _names(source: Source) -> set[str]:
    return {_name(c) for c in source.columns()}


def _leaves(source: Source) -> list[Source]:
    return [*_leaves(source.left), *_leaves(source.right)] if isinstance(source, Join) else [source]
