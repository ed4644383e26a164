"""A compiled stream table: everything that does not depend on cuts and keys, ready to be filled in.

Leaf statements of all templates have one layout, whatever the query: the weight, the row or key as one text, then slots
for sums and for extremes. Expressions and types are PostgreSQL's business, so one Spark plan serves every template.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

from pgtrickle.errors import NotDifferentiableError
from pgtrickle.model.catalog import Column
from pgtrickle.pipeline.carriers import FLOAT4, FLOAT8, NUMERIC, SqlType, decoded, encoded, exact, key, numeric_scale
from pgtrickle.pipeline.measures import Measure, Measures, argument, plan_measures, shows_scale
from pgtrickle.pipeline.nodes import Aggregate, CallPlace, Item, KeyPlace, Plan, Select, UnionAll, scans
from pgtrickle.pipeline.rules import linear
from pgtrickle.pipeline.rules.linear import NOW, Changed, Term, W
from pgtrickle.pipeline.sqltext import quote

Describe = Callable[[str], Sequence[SqlType]]


@dataclass(frozen=True, slots=True)
class Slots:
    """How many sums and extremes a leaf carries after weight and key: the shape of the Spark part."""

    sums: int = 0
    extremes: int = 0


@dataclass(frozen=True, slots=True)
class BagTemplate:
    """Select-project-join-union: the table is a bag of rows. The key of a row is all of it."""

    plan: Select | UnionAll
    columns: tuple[Column, ...]
    relids: frozenset[int]
    slots: Slots = Slots()

    @property
    def row(self) -> str:
        return encoded([exact(f"q.c{i}") for i in range(len(self.columns))])

    def delta_statements(self, changed: Mapping[int, Changed]) -> list[str]:
        statements = []
        for term in linear.deltas(self.plan, changed):
            inner = linear.render(self.plan, term, _positions(self.columns))
            clause = linear.with_clause(self.plan, term)
            statements.append(f"{clause}SELECT q.{W}, {self.row} FROM ({inner.sql}) AS q")
        return statements

    def load_statement(self) -> str:
        inner = linear.render(self.plan, NOW, _positions(self.columns))
        return f"SELECT {self.row} FROM ({inner.sql}) AS q"


@dataclass(frozen=True, slots=True)
class FoldTemplate:
    """GROUP BY: a state row per group, from which PostgreSQL computes the visible row."""

    plan: Aggregate
    columns: tuple[Column, ...]
    key_types: tuple[SqlType, ...]
    key: str
    measures: Measures
    relids: frozenset[int]
    rows: Select = field(repr=False)

    @property
    def sums(self) -> tuple[Measure, ...]:
        return tuple(m for m in self.measures.measures if m.kind == "add")

    @property
    def extremes(self) -> tuple[Measure, ...]:
        return tuple(m for m in self.measures.measures if m.kind in ("least", "greatest"))

    @property
    def rereads(self) -> tuple[Measure, ...]:
        return tuple(m for m in self.measures.measures if m.kind != "add")

    @property
    def slots(self) -> Slots:
        return Slots(len(self.sums), len(self.extremes))

    def delta_statements(self, changed: Mapping[int, Changed]) -> list[str]:
        statements = []
        values = [str(m.value) for m in self.sums]
        values += [sql for m in self.extremes for sql in (str(m.order), str(m.value))]
        leaf = ", ".join([f"q.{W}", self.key, *values])
        for term in linear.deltas(self.rows, changed):
            inner = linear.render(self.rows, term)
            sql = f"SELECT {leaf} FROM ({inner.sql}) AS q"
            # A change that only a reread measure sees is no change of the leaf: netted, its group would look untouched.
            if self.extremes and len(self.extremes) == len(self.rereads):
                sql = _netted(sql, 1 + len(values))
            statements.append(linear.with_clause(self.rows, term) + sql)
        return statements

    def load_statement(self) -> str:
        """The whole state, computed by the database: key, number of rows, then each measure's state columns as text."""
        items = [f"{k} AS {quote(f'k{i}')}" for i, k in enumerate(self.plan.keys)]
        items.append('count(*) AS "n"')
        outer = [self.key, 'q."n"::int8']
        for m in self.measures.measures:
            for suffix, _ in m.state:
                items.append(f'{self._state_sql(m, suffix)} AS "{m.name(suffix)}"')
                outer.append(f'q."{m.name(suffix)}"::text')
        return f"SELECT {', '.join(outer)} FROM ({self._grouped(items, NOW)}) AS q"

    def reread_statement(self, *, may_be_null: bool) -> str:
        """Values of the reread measures for given groups, from the tables as the snapshot sees them.

        One parameter: the keys of the groups, an array of encoded keys. The `= ANY` filters reach the tables' indexes;
        the join decides exactly. `may_be_null`: some key may hold a NULL, which `= ANY` alone would lose.
        """
        wanted = [f"{k} AS {quote(f'k{i}')}" for i, k in enumerate(self.plan.keys)]
        wanted += [f'{m.call.sql} AS "{m.name("v")}"' for m in self.rereads]
        filters = []
        for i, (sql, type_) in enumerate(zip(self.plan.keys, self.key_types, strict=True)):
            if type_.element:  # an array of arrays is one array of more dimensions, so no list of keys
                among = f'({sql}) IN (SELECT k.k{i} FROM "__pgt_k" AS k)'
            else:
                among = f'({sql}) = ANY ((SELECT array_agg(DISTINCT k.k{i}) FROM "__pgt_k" AS k)::{type_.name}[])'
            filters.append(f"({among} OR ({sql}) IS NULL)" if may_be_null else f"({among})")
        keys = ", ".join(f"{decoded('u.a', i, t.name)} AS k{i}" for i, t in enumerate(self.key_types))
        join = " AND ".join(f"q.k{i} IS NOT DISTINCT FROM k.k{i}" for i in range(len(self.key_types)))
        values = ", ".join(f'q."{m.name("v")}"::text' for m in self.rereads)
        sql = (
            f'WITH "__pgt_k" AS MATERIALIZED (SELECT u.ord, {keys} FROM (SELECT p.k::text[] AS a, p.ord '
            f"FROM unnest(\x00) WITH ORDINALITY AS p(k, ord)) AS u) "
            f'SELECT k.ord, {values} FROM "__pgt_k" AS k JOIN ({self._grouped(wanted, NOW, filters)}) AS q ON {join}'
        )
        return sql.replace("%", "%%").replace("\x00", "%s::text[]")

    def reread_all_statement(self) -> str:
        """The same for a query without GROUP BY: there is one group."""
        items = [f'{m.call.sql} AS "{m.name("v")}"' for m in self.rereads]
        values = ", ".join(f'q."{m.name("v")}"::text' for m in self.rereads)
        return f"SELECT 1, {values} FROM ({self._grouped(items, NOW)}) AS q"

    def output_statement(self, state: str) -> str:
        """The visible rows (c0.., then "gid") of the state rows in `state`, a table expression aliased s."""
        items = [f"{self._fill(o.parts)} AS {quote(o.name)}" for o in self.plan.outputs]
        where = f" WHERE {self._fill(self.plan.having)}" if self.plan.having is not None else ""
        sql = f"SELECT {', '.join([*items, 's.gid AS __pgt_gid'])} FROM {state}{where}"
        for layer in self.plan.layers:
            outer = [f"{i.sql} AS {quote(i.name)}" for i in layer.items]
            condition = f" WHERE {layer.where}" if layer.where is not None else ""
            sql = f"SELECT {', '.join([*outer, f'{layer.alias}.__pgt_gid'])} FROM ({sql}) AS {layer.alias}{condition}"
        names = ", ".join(f"c{i}" for i in range(len(self.columns)))
        casts = ", ".join(f"o.c{i}::{c.type} AS c{i}" for i, c in enumerate(self.columns))
        return f"SELECT {casts}, o.gid FROM ({sql}) AS o({names}, gid)"

    def _fill(self, parts: Sequence[str | KeyPlace | CallPlace]) -> str:
        texts = []
        for part in parts:
            if isinstance(part, KeyPlace):
                texts.append(f"s.k{part.index}")
            elif isinstance(part, CallPlace):
                texts.append(self.measures.values[part.index])
            else:
                texts.append(part)
        return "".join(texts)

    def _state_sql(self, measure: Measure, suffix: str) -> str:
        value = argument(measure.call)
        return {"n": f"count({value})", "s": f"sum({value})::numeric", "v": measure.call.sql}[suffix]

    def _grouped(self, items: Sequence[str], term: Term, filters: Sequence[str] = ()) -> str:
        conditions = [f"({self.plan.where})"] if self.plan.where is not None else []
        where = " AND ".join([*conditions, *filters]) or None
        group = f" GROUP BY {', '.join(f'({k})' for k in self.plan.keys)}" if self.plan.keys else ""
        return linear.select(items, self.plan.source, where, term).sql + group


Template = BagTemplate | FoldTemplate


def compile_plan(plan: Plan, columns: Sequence[Column], describe: Describe) -> Template:
    """`describe` asks PostgreSQL for the result types of a statement."""
    if isinstance(plan, Aggregate):
        return _compile_fold(plan, tuple(columns), describe)
    return BagTemplate(plan, tuple(columns), _relids(plan))


def _compile_fold(plan: Aggregate, columns: tuple[Column, ...], describe: Describe) -> FoldTemplate:
    arguments = [argument(c) for c in plan.calls]
    items = [Item(f"k{i}", k) for i, k in enumerate(plan.keys)]
    items += [Item(f"a{i}", a) for i, a in enumerate(arguments) if a is not None]
    rows = Select(tuple(items), plan.source, plan.where)
    types = list(describe(linear.render(rows, NOW).sql))
    key_types = tuple(types[: len(plan.keys)])
    rest = iter(types[len(plan.keys) :])
    argument_types = [next(rest) if a is not None else None for a in arguments]
    calls = ", ".join(c.sql for c in plan.calls)
    result_types = describe(linear.select([calls], plan.source, plan.where, NOW).sql) if plan.calls else ()
    _refuse_lossy_keys(plan, key_types)
    group_key = encoded([key(f"q.k{i}", t) for i, t in enumerate(key_types)])
    measures = plan_measures(plan, argument_types, result_types, lambda i: f"q.a{i}")
    return FoldTemplate(plan, columns, key_types, group_key, measures, _relids(plan), rows)


def _refuse_lossy_keys(plan: Aggregate, key_types: Sequence[SqlType]) -> None:
    """A key is kept without trailing zeros and without the sign of zero: equal, but not where somebody looks closer."""
    lossy = {
        KeyPlace(i)
        for i, t in enumerate(key_types)
        if t.base in (FLOAT4, FLOAT8) or (t.base == NUMERIC and numeric_scale(t.typmod) is None)
    }
    shown = [*(o.parts for o in plan.outputs), plan.having or ()]
    around = [" ".join(p for p in parts if isinstance(p, str)) for parts in shown if lossy.intersection(parts)]
    if lossy and plan.layers:
        around += [text for layer in plan.layers for text in (*(i.sql for i in layer.items), layer.where or "")]
    if any(shows_scale(text) for text in around):
        raise NotDifferentiableError(
            "an expression over a grouping key that is a float, or a numeric without declared scale, is not maintained "
            "from changes: it may show digits that equal keys do not share"
        )


def _relids(plan: Plan) -> frozenset[int]:
    return frozenset(s.relation.relid for s in scans(plan))


def _positions(columns: Sequence[Column]) -> list[str]:
    return [f"c{i}" for i in range(len(columns))]


def _netted(sql: str, columns: int) -> str:
    """Cancels rows that left and came back unchanged, so that an untouched extreme is not read again.

    Weights stay +1 and -1.
    """
    names = ", ".join(["w", *(f"c{i}" for i in range(columns))])
    group = ", ".join(f"d.c{i}" for i in range(columns))
    return (
        f"SELECT CASE WHEN n.w > 0 THEN 1 ELSE -1 END, {', '.join(f'n.c{i}' for i in range(columns))} "
        f"FROM (SELECT sum(d.w) AS w, {group} FROM ({sql}) AS d({names}) GROUP BY {group} HAVING sum(d.w) <> 0) AS n, "
        f"generate_series(1, abs(n.w)) AS g"
    )
