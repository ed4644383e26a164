"""Random queries over types with their own equality, each with an answer that is determined up to that equality.

Of a value that stands for a class of equal ones (GROUP BY, DISTINCT, UNION, min) PostgreSQL does not say which it is.
Such a column is not exact: nothing is asked of it that equal values answer differently. What depends on the order of
rows orders by the keys of all tables in FROM.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from random import Random

from tests.fuzz.equality.kinds import BY_KEY, NONE, OUTPUT, Kind
from tests.fuzz.equality.names import Names
from tests.fuzz.equality.tables import Table, literal
from tests.fuzz.tree import (
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
)

EXACT, POOL, LOOSE = "exact", "pool", "loose"
BOOL, INT, TEXT = "boolean", "int", "text"
OPAQUE = "?"
LIKE_TEXT = frozenset({"text", "nocase", "citext", "email", "email2"})
DIRECTIONS = ("", "", " DESC", " NULLS FIRST", " DESC NULLS LAST")


@dataclass(frozen=True, slots=True)
class Col:
    """`plain`: the type of the table's column that its values were taken from, unchanged."""

    sql: str
    type: str
    exact: bool = True
    plain: str = ""
    name: str = ""

    @property
    def kind(self) -> Kind | None:
        return BY_KEY.get(self.type)


@dataclass(frozen=True, slots=True)
class Shape:
    """A query with its columns; `keys`: names of columns that no two rows have alike."""

    query: Query
    columns: tuple[Col, ...]
    keys: tuple[str, ...] | None


@dataclass(frozen=True, slots=True)
class From:
    source: Source
    columns: tuple[Col, ...]
    keys: tuple[str, ...] | None


@dataclass(frozen=True, slots=True)
class Relation:
    """`columns`: name, type, exact, plain."""

    schema: str
    name: str
    columns: tuple[tuple[str, str, bool, str], ...]
    keyed: bool

    @classmethod
    def of(cls, table: Table) -> Relation:
        return cls(
            table.schema,
            table.name,
            (("id", INT, True, ""), *((name, type_, True, type_) for name, type_ in table.columns)),
            table.keyed,
        )


@dataclass
class Generator:
    random: Random
    path: tuple[str, ...]
    relations: tuple[Relation, ...]
    prefix: str
    role: str = ""
    used: set[str] = field(default_factory=set)
    texts: dict[str, str] = field(default_factory=dict)
    _number: int = 0
    _ctes: list[tuple[str, Shape]] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.names = Names(self.path, self.random)
        self._all_names = frozenset((r.schema, r.name) for r in self.relations)

    def case(self) -> Query:
        return self._query(self.random.choice((1, 2, 2, 3))).query

    def view(self) -> Shape:
        return self._select(1, forms=("plain", "plain", "distinct", "grouped"))

    def base(self) -> Shape:
        return self._query(1)

    # -- names

    def _alias(self, letter: str) -> str:
        self._number += 1
        return f"{letter}{self._number}"

    def _output(self, expr: Expr, exact: bool = True, plain: str = "") -> tuple[Output, Col]:
        self._number += 1
        bare = self.random.choice((f"{self.prefix}{self._number}", f"{self.prefix.upper()} {self._number}"))
        name = bare if bare.islower() and " " not in bare else f'"{bare}"'
        self.texts[bare] = EXACT if exact else f"{POOL}:{plain}" if plain else LOOSE
        return Output(name, expr), Col(name, expr.type, exact, plain, name)

    def _has(self, probability: float) -> bool:
        return self.random.random() < probability

    # -- queries

    def _query(self, depth: int) -> Shape:
        way = self.random.random()
        if way < 0.2:
            return self._set_operation(depth)
        if depth > 1 and way < 0.3:
            return self._with(depth)
        return self._select(depth)

    def _with(self, depth: int) -> Shape:
        self.used.add("CTE")
        inner = self._query(depth - 1)
        name = self._alias("w")
        self._ctes.append((name, inner))
        body = self._select(depth - 1, first=self._of_cte(name, inner))
        hint = self.random.choice(("", "", "MATERIALIZED", "NOT MATERIALIZED"))
        self._ctes.pop()
        return replace(body, query=With((Cte(name, inner.query, hint=hint),), body.query))

    def _of_cte(self, name: str, shape: Shape) -> From:
        alias = self._alias("t")
        columns = tuple(replace(c, sql=f"{alias}.{c.name}") for c in shape.columns)
        source = Named(name, alias, tuple((c.name, c.type) for c in columns))
        keys = None if shape.keys is None else tuple(f"{alias}.{k}" for k in shape.keys)
        return From(source, columns, keys)

    def _set_operation(self, depth: int) -> Shape:
        random = self.random
        kind, every = random.choice(("UNION", "INTERSECT", "EXCEPT")), self._has(0.4)
        self.used.add(kind + (" ALL" if every else ""))
        left = self._from(depth)
        columns = self._typed(left.columns)
        chosen = random.sample(columns, min(random.choice((1, 2, 2, 3)), len(columns)))
        types = [c.type for c in chosen]
        right, other = self._with_types(types, left, chosen)
        made: list[tuple[Output, Col]] = []
        for a, b in zip(chosen, other, strict=True):
            exact = a.exact and b.exact and (BY_KEY[a.type].strict or (every and kind == "UNION"))
            made.append(self._output(_column(a), exact, a.plain if a.plain == b.plain else ""))
        names = [self._output(_column(b), c.exact, c.plain)[0] for b, (_, c) in zip(other, made, strict=True)]
        query = SetOp(
            kind,
            every,
            Select(tuple(o for o, _ in made), left.source, self._where(left.columns, depth)),
            Select(tuple(names), right.source, self._where(right.columns, 0)),
        )
        return Shape(query, tuple(c for _, c in made), None)

    def _with_types(self, types: Sequence[str], left: From, chosen: Sequence[Col]) -> tuple[From, Sequence[Col]]:
        """Something that has columns of these types, too."""
        for _ in range(4):
            right = self._item(1)
            found = []
            for type_ in types:
                of = [c for c in right.columns if c.type == type_ and c not in found]
                if of:
                    found.append(self.random.choice(of))
            if len(found) == len(types):
                return right, found
        return left, chosen

    def _select(self, depth: int, *, forms: Sequence[str] = (), first: From | None = None) -> Shape:
        source = self._from(depth, first)
        forms = forms or ("plain",) * 4 + ("grouped",) * 4 + ("distinct",) * 2 + ("windowed",) * 2 + ("on", "limit")
        form = self.random.choice(forms)
        if source.keys is None and form in ("on", "limit"):
            form = "distinct"
        where = self._where(source.columns, depth)
        match form:
            case "grouped":
                return self._grouped(source, where, depth)
            case "windowed":
                return self._windowed(source, where)
            case "distinct":
                return self._distinct(source, where)
            case "on" | "limit":
                return self._first_rows(source, where, form)
        made = self._keys(source)
        made += [self._value(source, depth) for _ in range(self.random.randint(1, 3))]
        return self._shape(made, source, where)

    def _shape(self, made: list[tuple[Output, Col]], source: From, where: Expr | None) -> Shape:
        keys = None if source.keys is None else tuple(o.name for o, _ in made[: len(source.keys)])
        return Shape(Select(tuple(o for o, _ in made), source.source, where), tuple(c for _, c in made), keys)

    def _keys(self, source: From) -> list[tuple[Output, Col]]:
        types = {c.sql: c.type for c in source.columns}
        return [self._output(Expr(k, types.get(k, INT), reads=True)) for k in source.keys or ()]

    def _distinct(self, source: From, where: Expr | None) -> Shape:
        self.used.add("DISTINCT")
        columns = self._typed(source.columns)
        chosen = self.random.sample(columns, min(self.random.choice((1, 1, 2, 3)), len(columns)))
        made = []
        for c in chosen:
            if c.exact and self._has(0.15):
                expr, exact, plain = self._shown(c)
                strict = BY_KEY[expr.type].strict if expr.type in BY_KEY else True
                made.append(self._output(expr, exact and strict, plain))
            else:
                made.append(self._output(_column(c), c.exact and BY_KEY[c.type].strict, c.plain))
        query = Select(tuple(o for o, _ in made), source.source, where, distinct=True)
        return Shape(query, tuple(c for _, c in made), None)

    def _first_rows(self, source: From, where: Expr | None, form: str) -> Shape:
        """The order is total: by a value, then by the keys."""
        random = self.random
        columns = [c for c in self._typed(source.columns) if c.exact]
        leading = random.sample(columns, min(random.choice((1, 1, 2)), len(columns)))
        made = [self._output(_column(c), True, c.plain) for c in leading]
        keys = self._keys(source)
        rest = [self._output(_column(c), c.exact, c.plain) for c in random.sample(columns, min(1, len(columns)))]
        outputs = tuple(o for o, _ in (*made, *keys, *rest))
        directions = tuple(random.choice(DIRECTIONS) for _ in range(4))
        if form == "on":
            self.used.add("DISTINCT ON")
            query = Select(outputs, source.source, where, distinct_on=max(len(made), 1), directions=directions)
        else:
            ties = self._has(0.2)
            self.used.add("WITH TIES" if ties else "LIMIT")
            limit = Limit(random.randint(1, 5), random.choice((0, 0, 1)), directions, ties)
            query = Select(outputs, source.source, where, limit=limit)
        return Shape(query, tuple(c for _, c in (*made, *keys, *rest)), tuple(o.name for o, _ in keys))

    # -- groups

    def _grouped(self, source: From, where: Expr | None, depth: int) -> Shape:
        random = self.random
        columns = self._typed(source.columns)
        chosen = random.sample(columns, min(random.choice((1, 1, 2, 3)), len(columns)))
        keys: list[Key] = []
        made: list[tuple[Output, Col]] = []
        grouping = random.choice(("", "", "", "ROLLUP", "CUBE", "GROUPING SETS"))
        self.used.add(grouping or "GROUP BY")
        for number, c in enumerate(chosen):
            expr, exact, plain = _column(c), c.exact, c.plain
            if c.exact and self._has(0.25):
                expr, exact, plain = self._shown(c)
            strict = BY_KEY[expr.type].strict if expr.type in BY_KEY else True
            key = Key(number, expr)
            keys.append(key)
            if self._has(0.85) or not made:
                made.append(self._output(Expr(key.token, expr.type, reads=True), exact and strict, plain))
        sets: tuple[tuple[int, ...], ...] = ()
        if grouping == "GROUPING SETS":
            numbers = list(range(len(keys)))
            some = (tuple(random.sample(numbers, random.randint(0, len(numbers)))) for _ in range(2))
            sets = (*some, tuple(numbers))
        if grouping:
            made.append(self._output(Expr(f"GROUPING({keys[0].token})", INT)))
        made += [self._aggregate(source) for _ in range(random.randint(1, 3))]
        having = None
        if self._has(0.3):
            self.used.add("HAVING")
            having = self._having(source, chosen, keys)
        query = Select(
            tuple(o for o, _ in made), source.source, where, tuple(keys), grouping, sets, having if keys else None
        )
        return Shape(query, tuple(c for _, c in made), None)

    def _having(self, source: From, chosen: Sequence[Col], keys: Sequence[Key]) -> Expr:
        ways = ["count(*) > 1"]
        column = self.random.choice(self._typed(source.columns))
        ways.append(f"count(DISTINCT {column.sql}) > 1")
        for c, key in zip(chosen, keys, strict=True):
            kind = BY_KEY[c.type]
            if key.expr.type == c.type and self.names.sees(kind.home):
                # Which of the equal values a group is named by is open: only the type's own equality answers alike.
                ways.append(f"{key.token} = {self._literal(kind)}")
        return Expr(f"({self.random.choice(ways)})", BOOL)

    def _aggregate(self, source: From) -> tuple[Output, Col]:
        random = self.random
        column = random.choice(self._typed(source.columns))
        kind = BY_KEY[column.type]
        array = _is_array(kind)  # of which no arrays are made
        ways = ["count", "count", "distinct", "filter", *([] if array else ["agg"])]
        ways += ["extreme"] * 3 if kind.extremes is not None else []
        if source.keys is not None and column.exact:
            ways += ["string", *([] if array else ["ordered"])]
        ways += ["bool"] if self.names.compares(kind, exact=column.exact) else []
        ways += ["sum"] if kind.key in ("numeric", "interval", "money", "int") else []
        arg = (_column(column),)
        match random.choice(ways):
            case "count":
                return self._output(Expr("count({})", "bigint", arg) if self._has(0.6) else Expr("count(*)", "bigint"))
            case "distinct":
                self.used.add("count DISTINCT")
                return self._output(Expr("count(DISTINCT {})", "bigint", arg))
            case "agg":
                self.used.add("array_agg")
                way = random.choice(("{} ORDER BY {}", "DISTINCT {}", "{} ORDER BY {} DESC"))
                expr = Expr(f"array_agg({way})", OPAQUE, arg * way.count("{}"))
                return self._output(expr, column.exact and kind.strict)
            case "filter":
                return self._output(Expr("count(*) FILTER (WHERE {})", "bigint", (self._condition(source.columns, 0),)))
            case "extreme":
                return self._extreme(column, kind)
            case "ordered":
                self.used.add("array_agg")
                return self._output(Expr(f"array_agg({{}} ORDER BY {', '.join(source.keys or ())})", OPAQUE, arg))
            case "string":
                self.used.add("string_agg")
                shown = Expr("({}::text)", TEXT, arg)
                return self._output(
                    Expr(f"string_agg({{}}, ',' ORDER BY {', '.join(source.keys or ())})", TEXT, (shown,))
                )
            case "bool":
                test = Expr(f"({{}} = {self._literal(kind)})", BOOL, arg)
                return self._output(Expr("bool_or({})", BOOL, (test,)))
        type_ = "bigint" if kind.key == INT else kind.key
        return self._output(Expr("sum({})", type_, arg), column.exact)

    def _extreme(self, column: Col, kind: Kind) -> tuple[Output, Col]:
        word = self.random.choice(("min", "max"))
        self.used.add("min/max")
        result = kind.extremes or ""
        call = self.names.filled(f"@ext.{word}({{}})") if result == "citext" else f"{word}({{}})"
        return self._output(Expr(call, result, (_column(column),)), column.exact and kind.strict, column.plain)

    # -- windows

    def _windowed(self, source: From, where: Expr | None) -> Shape:
        made = self._keys(source) or [
            self._output(_column(self.random.choice(self._typed(source.columns))), exact=False)
        ]
        made += [self._window(source) for _ in range(self.random.randint(1, 3))]
        return self._shape(made, source, where)

    def _window(self, source: From) -> tuple[Output, Col]:
        random = self.random
        self.used.add("window")
        columns = self._typed(source.columns)
        by, order, value = (random.choice(columns) for _ in range(3))
        partition = Expr(random.choice(("PARTITION BY {}", "PARTITION BY {}", "")), "")
        part = replace(partition, args=(_column(by),) * partition.template.count("{}"))
        direction = random.choice(DIRECTIONS)
        ways = ["rank()", "dense_rank()", "count(*)", "sum", "extreme"]
        if source.keys is not None:
            ways += ["row_number()", "lag", "first_value"]
        way = random.choice(ways)
        keys = ", ".join(source.keys or ())
        kind = BY_KEY[value.type]
        if way == "extreme" and kind.extremes is None:
            way = "count(*)"
        if way in ("rank()", "dense_rank()", "count(*)"):
            expr = Expr(f"{way} OVER ({{}} ORDER BY {{}}{direction})", "bigint", (part, _column(order)))
            return self._output(expr)
        if way == "sum":
            ints = [c for c in columns if c.type == INT]
            summed = _column(random.choice(ints)) if ints else Expr("1", INT)
            return self._output(
                Expr(f"sum({{}}) OVER ({{}} ORDER BY {{}}{direction})", "bigint", (summed, part, _column(order)))
            )
        if way == "extreme":
            call = self.names.filled("@ext.max({})") if kind.extremes == "citext" else "max({})"
            expr = Expr(f"{call} OVER ({{}})", kind.extremes or "", (_column(value), part))
            return self._output(expr, value.exact and kind.strict, value.plain)
        if way == "row_number()":
            return self._output(
                Expr(f"row_number() OVER ({{}} ORDER BY {{}}{direction}, {keys})", "bigint", (part, _column(order)))
            )
        call = f"{way}({{}}) OVER ({{}} ORDER BY {{}}{direction}, {keys})"
        return self._output(Expr(call, value.type, (_column(value), part, _column(order))), value.exact, value.plain)

    # -- FROM

    def _typed(self, columns: Sequence[Col]) -> list[Col]:
        """Those of our types; numbers and texts, which need no care, now and then."""
        known = [c for c in columns if c.kind is not None and c.name != "id"]
        own = [c for c in known if c.type not in (INT, TEXT)]
        if own and self._has(0.85):
            return own
        return known or [c for c in columns if c.kind is not None] or [Col("1", INT)]

    def _from(self, depth: int, first: From | None = None) -> From:
        made = first or self._item(depth)
        joins = self.random.choice((0, 0, 1, 1, 1, 2) if depth > 1 else (0, 0, 1, 1))
        for number in range(joins):
            way = self.random.random()
            if way < 0.12:
                made = self._lateral(made)
            elif way < 0.24:
                made = self._elements(made)
            else:
                made = self._join(made, depth, alone=joins == 1 and number == 0)
        return made

    def _item(self, depth: int) -> From:
        way = self.random.random()
        if depth > 1 and way < 0.4:
            shape = self._query(depth - 1)
            self.used.add("subquery in FROM")
            return self._derived(shape)
        if self._ctes and way < 0.5:
            return self._of_cte(*self.random.choice(self._ctes))
        if way > 0.97:
            return self._values()
        if way > 0.94:
            return self._series()
        relation = self.random.choice(self.relations)
        if relation.name.startswith('"View') and self._has(0.5):
            relation = self.random.choice(self.relations)
        if relation.name.startswith('"View'):
            self.used.add("view")
        if relation.schema == OUTPUT:
            self.used.add("stream table")
        return self._named(relation)

    def _named(self, relation: Relation) -> From:
        alias = self._alias("t")
        name = self.names.table(relation.schema, relation.name, self._all_names)
        columns = tuple(Col(f"{alias}.{n}", t, e, p, n) for n, t, e, p in relation.columns)
        source = Named(name, alias, tuple((n, t) for n, t, _, _ in relation.columns))
        return From(source, columns, (f"{alias}.id",) if relation.keyed else None)

    def _derived(self, shape: Shape, *, lateral: bool = False) -> From:
        alias = self._alias("q")
        columns = tuple(replace(c, sql=f"{alias}.{c.name}") for c in shape.columns)
        keys = None if shape.keys is None else tuple(f"{alias}.{k}" for k in shape.keys)
        return From(Derived(shape.query, alias, lateral=lateral), columns, keys)

    def _values(self) -> From:
        self.used.add("VALUES")
        kinds = [BY_KEY[t] for t in {t: None for r in self.relations for _, t, _, _ in r.columns} if t in BY_KEY]
        kind = self.random.choice(kinds)
        alias = self._alias("v")
        rows = tuple((str(i), self._literal(kind)) for i in range(self.random.randint(2, 3)))
        shape = (("id", INT), (kind.column, kind.key))
        columns = (Col(f"{alias}.id", INT, name="id"), Col(f"{alias}.{kind.column}", kind.key, name=kind.column))
        return From(Rows(rows, alias, shape), columns, (f"{alias}.id",))

    def _series(self) -> From:
        self.used.add("generate_series")
        alias = self._alias("g")
        call = "generate_series(timestamptz '2024-03-30 00:00', timestamptz '2024-04-01 00:00', interval '1 day')"
        return From(
            Function(Expr(call, "timestamptz"), alias, (("x", "timestamptz"),)),
            (Col(f"{alias}.x", "timestamptz", name="x"),),
            (f"{alias}.x",),
        )

    def _elements(self, left: From) -> From:
        of = [c for c in left.columns if c.exact and c.kind is not None and c.kind.elements is not None]
        if not of:
            return left
        column = self.random.choice(of)
        kind = column.kind
        assert kind is not None
        assert kind.elements is not None
        call, type_ = kind.elements
        self.used.add("set-returning function")
        alias = self._alias("g")
        text = self.names.filled(call)
        function = Function(
            Expr(text, type_, (_column(column),) * text.count("{}")), alias, (("x", type_), ("o", INT)), ordinality=True
        )
        columns = (Col(f"{alias}.x", type_, name="x"), Col(f"{alias}.o", INT, name="o"))
        keys = None if left.keys is None else (*left.keys, f"{alias}.o")
        return From(Join("CROSS", left.source, function), (*left.columns, *columns), keys)

    def _lateral(self, left: From) -> From:
        right = self._named(self.random.choice(self.relations[:2]))
        pair = self._pair(left.columns, right.columns)
        if pair is None or right.keys is None:
            return left
        self.used.add("LATERAL")
        a, b = pair
        where = Expr("({} = {})", BOOL, (_column(b), _column(a)))
        if self._has(0.5):
            made = [self._output(Expr("count(*)", "bigint")), self._aggregate(right)]
            shape = Shape(Select(tuple(o for o, _ in made), right.source, where), tuple(c for _, c in made), None)
            inner = self._derived(shape, lateral=True)
            return From(Join("CROSS", left.source, inner.source), (*left.columns, *inner.columns), left.keys)
        shape = self._first_rows(right, where, "limit")
        inner = self._derived(shape, lateral=True)
        keys = None if left.keys is None or inner.keys is None else (*left.keys, *inner.keys)
        kind = self.random.choice(("INNER", "LEFT"))
        join = Join(kind, left.source, inner.source, Expr("true", BOOL))
        return From(join, (*left.columns, *inner.columns), keys)

    def _pair(self, left: Sequence[Col], right: Sequence[Col]) -> tuple[Col, Col] | None:
        pairs = [
            (a, b)
            for a in left
            for b in right
            if a.type == b.type and a.kind is not None and self.names.compares(a.kind, exact=a.exact and b.exact)
        ]
        good = [p for p in pairs if p[0].type not in (INT, TEXT)]
        return self.random.choice(good or pairs) if pairs else None

    def _join(self, left: From, depth: int, *, alone: bool) -> From:
        random = self.random
        right = self._item(depth - 1)
        pair = self._pair(left.columns, right.columns)
        if pair is None:
            self.used.add("CROSS JOIN")
            return From(Join("CROSS", left.source, right.source), (*left.columns, *right.columns), _both(left, right))
        kind = random.choice(("INNER", "INNER", "LEFT", "RIGHT", "FULL"))
        way = random.random()
        if alone and way < 0.4 and not isinstance(left.source, Join):
            merged = self._using(left, right, kind)
            if merged is not None:
                return merged
        if alone and way < 0.5:
            natural = self._natural(left, right, pair, kind)
            if natural is not None:
                return natural
        self.used.add(f"{kind} JOIN")
        a, b = pair
        assert a.kind is not None
        on = self._equal(a, b)
        if kind == "FULL" and not self._merges(a.kind):
            kind = "LEFT"
        if kind != "FULL":
            more = self._pair(left.columns, right.columns)
            way = random.random()
            if way < 0.15:
                self.used.add("IS NOT DISTINCT FROM")
                on = Expr("({} IS NOT DISTINCT FROM {})", BOOL, (_column(a), _column(b)))
            elif way < 0.3 and more is not None and self._in_rows(a, more[0]):
                self.used.add("row =")
                on = Expr("(({}, {}) = ({}, {}))", BOOL, (*map(_column, (a, more[0], b, more[1])),))
            elif way < 0.4:
                on = Expr("({} AND {})", BOOL, (on, self._condition((*left.columns, *right.columns), 0)))
        return From(Join(kind, left.source, right.source, on), (*left.columns, *right.columns), _both(left, right))

    def _merges(self, kind: Kind) -> bool:
        return kind.merges and not ("ops" in self.path and kind.key in LIKE_TEXT)

    def _in_rows(self, *columns: Col) -> bool:
        """Rows are compared by members of operator classes only."""
        return "ops" not in self.path or not any(c.type in LIKE_TEXT for c in columns)

    def _equal(self, a: Col, b: Col) -> Expr:
        home = BY_KEY[a.type].home
        if home and self._has(0.25):
            self.used.add("OPERATOR()")
            return Expr(self.names.filled(f"({{}} <{home}:=> {{}})"), BOOL, (_column(a), _column(b)))
        return Expr("({} = {})", BOOL, (_column(a), _column(b)))

    def _using(self, left: From, right: From, kind: str) -> From | None:
        common = []
        for a in left.columns:
            for b in right.columns:
                if a.name == b.name != "id" and a.type == b.type and a.kind is not None and a.name:
                    exact = a.exact and b.exact
                    if self.names.compares(a.kind, exact=exact) and (kind != "FULL" or self._merges(a.kind)):
                        common.append((a, b))
        if not common:
            return None
        self.used |= {"USING", f"USING {kind}"}
        ours = [p for p in common if p[0].type not in (INT, TEXT)] or common
        chosen = self.random.sample(ours, 1) + ([self.random.choice(common)] if self._has(0.25) else [])
        chosen = list(dict.fromkeys(chosen))
        merged = []
        for a, b in chosen:
            exact = {"RIGHT": b.exact, "FULL": a.exact and b.exact}.get(kind, a.exact)
            merged.append(Col(a.name, a.type, exact, a.plain if a.plain == b.plain else "", a.name))
        join = Join(kind, left.source, right.source, using=tuple(a.name for a, _ in chosen))
        return From(join, (*merged, *left.columns, *right.columns), _both(left, right))

    def _natural(self, left: From, right: From, pair: tuple[Col, Col], kind: str) -> From | None:
        """Sides that have one name in common."""
        a, b = pair
        assert a.kind is not None
        if left.keys is None or right.keys is None or (kind == "FULL" and not self._merges(a.kind)):
            return None
        self.used |= {"NATURAL", f"NATURAL {kind}"}
        sides = []
        for of, c in ((left, a), (right, b)):
            keys = self._keys(of)
            shared = Col("shared", c.type, c.exact, c.plain, "shared")
            self.texts["shared"] = EXACT if c.exact else LOOSE
            outputs = (*(o for o, _ in keys), Output("shared", _column(c)))
            shape = Shape(Select(outputs, of.source), (*(k for _, k in keys), shared), tuple(o.name for o, _ in keys))
            sides.append(self._derived(shape))
        exact = {"RIGHT": b.exact, "FULL": a.exact and b.exact}.get(kind, a.exact)
        merged = Col("shared", a.type, exact, a.plain if a.plain == b.plain else "", "shared")
        join = Join(kind, sides[0].source, sides[1].source, natural=True)
        return From(join, (merged, *sides[0].columns, *sides[1].columns), _both(*sides))

    # -- values

    def _literal(self, kind: Kind) -> str:
        text = self.random.choice(self.random.choice(kind.classes))
        return literal(text, kind, self.names)

    def _shown(self, column: Col) -> tuple[Expr, bool, str]:
        """A function of it that tells equal values apart, or depends on settings."""
        assert column.kind is not None
        if not column.kind.shows:
            return _column(column), column.exact, column.plain
        template, type_ = self.random.choice(column.kind.shows)
        if self.role == "fz_member" and type_ == TEXT and self._has(0.08):
            self.used.add("code of the author's own")
            template = f"@one.mine({template})"
        self.used.add("depends on the text or settings")
        text = self.names.filled(template)
        return Expr(text, type_, (_column(column),) * text.count("{}")), True, ""

    def _value(self, source: From, depth: int) -> tuple[Output, Col]:
        random = self.random
        columns = self._typed(source.columns)
        column = random.choice(columns)
        kind = BY_KEY[column.type]
        ways = ["column"] * 3 + ["coalesce", "test"]
        ways += ["shown"] * 3 if column.exact else []
        comparable = self.names.compares(kind, exact=column.exact)
        ways += ["case", "nullif", "equal", "distinct from", "in"] if comparable else []
        ways += ["greatest"] if len([c for c in columns if c.type == column.type]) > 1 else []
        ways += ["scalar"] if depth > 0 else []
        arg = (_column(column),)
        other = random.choice([c for c in columns if c.type == column.type])
        fits = self.names.compares(kind, exact=column.exact and other.exact)
        match random.choice(ways):
            case "shown":
                return self._output(*self._shown(column))
            case "coalesce":
                return self._output(Expr(f"coalesce({{}}, {self._literal(kind)})", column.type, arg), column.exact)
            case "test":
                return self._output(self._condition(source.columns, 1))
            case "case":
                self.used.add("CASE x WHEN")
                whens = f"WHEN {self._literal(kind)} THEN 'one' WHEN {self._literal(kind)} THEN 'two'"
                return self._output(Expr(f"CASE {{}} {whens} ELSE 'other' END", TEXT, arg))
            case "nullif" if fits:
                self.used.add("NULLIF")
                with_ = _column(other) if other != column else Expr(self._literal(kind), kind.key)
                seen = self.names.sees(kind.home) and kind.key in ("citext", "numeric", "float", "interval")
                expr = Expr("nullif({}, {})", column.type if seen else OPAQUE, (*arg, with_))
                return self._output(expr, column.exact, column.plain)
            case "equal" if fits:
                return self._output(self._equal(column, other))
            case "distinct from" if fits:
                self.used.add("IS DISTINCT FROM")
                with_ = _column(other) if other != column else Expr(self._literal(kind), kind.key)
                word = random.choice(("IS DISTINCT FROM", "IS NOT DISTINCT FROM"))
                return self._output(Expr(f"({{}} {word} {{}})", BOOL, (*arg, with_)))
            case "in":
                return self._output(self._listed(column, kind))
            case "greatest":
                self.used.add("greatest")
                word = random.choice(("greatest", "least"))
                plain = column.plain if column.plain == other.plain else ""
                expr = Expr(f"{word}({{}}, {{}})", column.type, (*arg, _column(other)))
                return self._output(expr, column.exact and other.exact, plain)
            case "scalar":
                query = self._correlated(source.columns, "count(*)")
                if query is not None:
                    return self._output(Expr("({})", "bigint", (query,)))
        return self._output(arg[0], column.exact, column.plain)

    def _correlated(self, columns: Sequence[Col], head: str) -> Select | None:
        inner = self._named(self.random.choice(self.relations))
        pair = self._pair(columns, inner.columns)
        if pair is None:
            return None
        self.used.add("correlated")
        return Select((Output("n", Expr(head, "bigint")),), inner.source, self._equal(*pair))

    # -- conditions

    def _where(self, columns: Sequence[Col], depth: int) -> Expr | None:
        return self._condition(columns, 1 if depth else 0) if self._has(0.4) else None

    def _condition(self, columns: Sequence[Col], depth: int) -> Expr:
        random = self.random
        if self._has(0.2):
            word = random.choice(("AND", "OR"))
            return Expr(f"({{}} {word} {{}})", BOOL, (self._condition(columns, 0), self._condition(columns, 0)))
        if self._has(0.06):
            return Expr("(NOT {})", BOOL, (self._condition(columns, depth),))
        column = random.choice(self._typed(columns))
        kind = BY_KEY[column.type]
        comparable = self.names.compares(kind, exact=column.exact)
        ways = ["null"] + ["own"] * (3 if kind.tests else 0)
        ways += ["=", "list", "between", "other"] if comparable else []
        ways += ["in", "row in", "exists", "not in"] if depth and comparable else []
        arrays = [c for c in columns if c.kind is not None and c.kind.elements == ("unnest({})", column.type)]
        ways += ["any"] * 2 if arrays and comparable and all(c.exact for c in arrays) else []
        arg = (_column(column),)
        match random.choice(ways):
            case "own":
                return self._own_test(column, kind)
            case "=":
                if kind.home and self._has(0.3):
                    self.used.add("OPERATOR()")
                    return Expr(self.names.filled(f"({{}} <{kind.home}:=> {self._literal(kind)})"), BOOL, arg)
                return Expr(f"({{}} = {self._literal(kind)})", BOOL, arg)
            case "list":
                return self._listed(column, kind)
            case "any":
                self.used.add("= ANY (column)")
                return Expr("({} = ANY ({}))", BOOL, (*arg, _column(random.choice(arrays))))
            case "between" if kind.key not in ("hstore",):
                self.used.add("BETWEEN")
                return Expr(f"({{}} BETWEEN {self._literal(kind)} AND {self._literal(kind)})", BOOL, arg)
            case "other":
                pair = self._pair((column,), [c for c in self._typed(columns) if c != column])
                if pair is not None:
                    return Expr("({} IS DISTINCT FROM {})", BOOL, (_column(pair[0]), _column(pair[1])))
            case "in" | "not in" | "row in" | "exists" as way:
                found = self._subquery(way, column, columns)
                if found is not None:
                    return found
        return Expr(f"({{}} IS {random.choice(('', 'NOT '))}NULL)", BOOL, arg)

    def _own_test(self, column: Col, kind: Kind) -> Expr:
        self.used.add(f"operators of {kind.key}")
        # Written with an operator that is not seen, it is another one, which texts answer.
        text = self.names.filled(
            self.random.choice(kind.tests), loose=column.exact and kind.without != NONE and not kind.strict
        )
        return Expr(text, BOOL, (_column(column),) * text.count("{}"))

    def _listed(self, column: Col, kind: Kind) -> Expr:
        values = f"{self._literal(kind)}, {self._literal(kind)}"
        ways = [f"IN ({values})", f"NOT IN ({values})"]
        if not _is_array(kind):
            ways += [f"= ANY (ARRAY[{values}])", f"<> ALL (ARRAY[{values}])"]
        way = self.random.choice(ways)
        self.used.add(way.split(" (")[0])
        return Expr(f"({{}} {way})", BOOL, (_column(column),))

    def _subquery(self, way: str, column: Col, columns: Sequence[Col]) -> Expr | None:
        inner = self._named(self.random.choice(self.relations))
        pair = self._pair((column,), inner.columns)
        if pair is None:
            return None
        a, b = pair
        where = self._condition(inner.columns, 0) if self._has(0.4) else None
        if way == "exists":
            self.used.add("EXISTS")
            word = self.random.choice(("EXISTS", "NOT EXISTS"))
            test = self._equal(b, a)
            return Expr(f"({word} ({{}}))", BOOL, (Select((Output("one", Expr("1", INT)),), inner.source, test),))
        if way == "row in":
            more = self._pair([c for c in columns if c != a], [c for c in inner.columns if c != b])
            if more is not None and self._in_rows(a, more[0]):
                self.used.add("row IN")
                outputs = (Output("x", _column(b)), Output("y", _column(more[1])))
                word = self.random.choice(("IN", "IN", "NOT IN"))
                query = Select(outputs, inner.source, where)
                return Expr(f"(({{}}, {{}}) {word} ({{}}))", BOOL, (_column(a), _column(more[0]), query))
        word = "NOT IN" if way == "not in" else "IN"
        self.used.add(f"{word} (SELECT)")
        return Expr(
            f"({{}} {word} ({{}}))", BOOL, (_column(a), Select((Output("x", _column(b)),), inner.source, where))
        )


def _is_array(kind: Kind) -> bool:
    return kind.elements is not None and kind.elements[0] == "unnest({})"


def _column(c: Col) -> Expr:
    return Expr(c.sql, c.type, reads=True)


def _both(left: From, right: From) -> tuple[str, ...] | None:
    return None if left.keys is None or right.keys is None else (*left.keys, *right.keys)
