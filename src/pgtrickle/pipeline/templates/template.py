"""Templates: compiled stream tables, with everything that does not depend on cuts and keys.

The delta statements of all templates return rows of one layout: the weight, the row or group key as one text, then the
arguments of sums and extremes. PostgreSQL evaluates expressions and types, so one Spark plan serves every template.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace

from pgtrickle.model.catalog import REGION, REGION_COLUMN, Column
from pgtrickle.model.identifiers import quote_ident
from pgtrickle.model.reasons import NotDifferentiableError
from pgtrickle.model.texts import is_null
from pgtrickle.pipeline.codec import (
    SqlType,
    decoded,
    encoded,
    exact,
    key,
    key_value,
    texts,
)
from pgtrickle.pipeline.delta_layout import ROWS, DeltaLayout
from pgtrickle.pipeline.differentiate import general, linear
from pgtrickle.pipeline.differentiate.key_filter import filter_by_keys
from pgtrickle.pipeline.differentiate.linear import NOW, ChangedSource, W
from pgtrickle.pipeline.differentiate.states import ALL_NEW, Statement
from pgtrickle.pipeline.plan.measures import Measure, Measures, filtered_argument, plan_measures
from pgtrickle.pipeline.plan.nodes import (
    Aggregate,
    Block,
    Item,
    Node,
    OutputColumn,
    Piece,
    Plan,
    Select,
    column_names,
    fill,
    scans,
)
from pgtrickle.pipeline.plan.shapes import replace_core
from pgtrickle.pipeline.render.delta_rows import current_rows, delta_rows, no_delta
from pgtrickle.pipeline.templates.canonical import core_of, determined
from pgtrickle.pipeline.templates.load_query import EngineQuery, LoadQuery, cast, cast_rows, rows_query
from pgtrickle.pipeline.templates.recursive import RecursionTemplate, compile_recursion
from pgtrickle.pipeline.templates.topk import TopKTemplate, compile_topk

Describe = Callable[[str], Sequence[SqlType]]

# From this number of changes on, PostgreSQL aggregates the delta rows per group: 3,500 rows of 50 groups become 100.
# With fewer changes the planning takes longer than it saves.
ADDED_FROM = 200

# How groups to recompute are found: by comparison with each key, through a hash table of the keys, or all of them.
FEW_KEYS, MANY_KEYS, MOST_KEYS = "few", "many", "most"


@dataclass(frozen=True, slots=True)
class BagTemplate:
    """The table is a bag of rows: table' = table + delta. The key of a row is the whole row."""

    plan: Node
    columns: tuple[Column, ...]
    relids: frozenset[int]
    slots: DeltaLayout = ROWS

    @property
    def row(self) -> str:
        return texts("q", self.columns)

    def delta_statement(self, changed: Mapping[int, ChangedSource]) -> str:
        return delta_rows(changed, self.plan, self.row, len(self.columns))

    def load_statement(self) -> str:
        names = ", ".join(f"c{i}" for i in range(len(self.columns)))
        return f"SELECT {self.row} FROM ({current_rows(self.plan)}) AS q({names})"

    def load_query(self) -> LoadQuery:
        return rows_query(current_rows(self.plan), self.columns)


@dataclass(frozen=True, slots=True)
class RegionTemplate:
    """Rows of regions that are replaced as a whole: delta = new rows of affected regions - their stored rows.

    `core` is the block with regions, `plan` is `core` under projections and filters. A hidden last column of the table
    has the encoded region key; without keys there is one region and no such column.
    """

    plan: Node
    core: Block
    columns: tuple[Column, ...]
    relids: frozenset[int]
    stored: str
    key_types: tuple[SqlType, ...]
    slots: DeltaLayout = ROWS

    @property
    def has_column(self) -> bool:
        return bool(self.core.region)

    @property
    def stored_columns(self) -> tuple[Column, ...]:
        return (*self.columns, REGION_COLUMN) if self.has_column else self.columns

    @property
    def row(self) -> str:
        return texts("q", self.stored_columns)

    def load_statement(self) -> str:
        return f"SELECT {self.row} FROM ({self._rows(Statement({}, no_delta), [None])[0]}) AS q({self._names()})"

    def load_query(self) -> LoadQuery:
        return rows_query(self._rows(Statement({}, no_delta), [None])[0], self.stored_columns)

    def engine_query(self) -> EngineQuery:
        """The rows with the columns of their region key; PostgreSQL computes the text of the key."""
        keys = [f"__pgt_k{i}" for i in range(len(self.key_types))]
        extra = tuple(OutputColumn(name, (k,)) for name, k in zip(keys, self.core.region or (), strict=True))
        new = replace(self.core, columns=(*self.core.columns, *extra))
        plan = replace_core(self.plan, self.core, new, keys)
        names = tuple(f"c{i}" for i in range(len(self.columns)))
        shown = cast_rows(names, self.columns)
        if self.has_column:
            region = encoded([key(f"q.{name}", t) for name, t in zip(keys, self.key_types, strict=True)])
            shown += f", {region} AS c{len(names)}"
        return EngineQuery(Statement({}, no_delta).render(plan, ALL_NEW), (*names, *keys), shown)

    @property
    def is_determined(self) -> bool:
        """Whether another evaluation of the query returns the stored rows."""
        return self.core.undetermined is None

    def delta_statement(self, changed: Mapping[int, ChangedSource]) -> str:
        statement = general.new_statement(changed)
        keys = general.affected_region_keys(statement, self.core)
        listed = ", ".join(
            [*(quote_ident(c.name) for c in self.columns), *([quote_ident(REGION)] if self.has_column else [])]
        )
        old = f"SELECT {listed} FROM {self.stored}"
        conditions: Sequence[str | None] = [None]
        if keys is not None:
            region = encoded([key(f"k.__pgt_k{i}", t) for i, t in enumerate(self.key_types)])
            regions = statement.share(f"SELECT {region} AS r FROM {keys} AS k", "r")
            index = f"{region_hash(quote_ident(REGION))} IN (SELECT {region_hash('k.r')} FROM {regions} AS k)"
            old += f" WHERE {index} AND {quote_ident(REGION)} IN (SELECT k.r FROM {regions} AS k)"
            conditions = filter_by_keys(self.core, keys)
        new = self._rows(statement, conditions)
        terms = [f"SELECT q.*, 1 FROM ({sql}) AS q" for sql in new] + [f"SELECT q.*, -1 FROM ({old}) AS q"]
        union = " UNION ALL ".join(terms)
        rows = f"SELECT q.{W}, {self.row} FROM ({union}) AS q({self._names()}, {W})"
        # Most rows of a region are unchanged: consolidated here, they are not sent twice.
        net = f"SELECT sum(q.w)::int4, q.r FROM ({rows}) AS q(w, r) GROUP BY q.r HAVING sum(q.w) <> 0"
        return statement.with_clause() + net

    def _names(self) -> str:
        return ", ".join(f"c{i}" for i in range(len(self.columns) + self.has_column))

    def _rows(self, statement: Statement, conditions: Sequence[str | None]) -> list[str]:
        """The rows of these regions (of all regions without conditions), with the region key as last column."""
        return [statement.render(_with_region(self.plan, self.core, self.key_types, c), ALL_NEW) for c in conditions]


def region_hash(sql: str) -> str:
    """The expression of the index over region keys: their texts may be too long for an index."""
    return f"pg_catalog.hashtextextended({sql}, 0)"


def _with_region(plan: Node, core: Block, types: Sequence[SqlType], condition: str | None) -> Node:
    """The plan over its core with a condition, with the region key of each row as last column."""
    columns = core.columns
    if core.region:
        text = encoded([key(f"({k})", t) for k, t in zip(core.region, types, strict=True)])
        columns = (*columns, OutputColumn(REGION, (text,)))
    where = core.where
    if condition is not None:
        where = (*(("(", *where, ") AND ") if where is not None else ()), condition)
    new = replace(core, columns=columns, where=where)
    return replace_core(plan, core, new, [REGION] if core.region else ())


@dataclass(frozen=True, slots=True)
class FoldTemplate:
    """GROUP BY: a state row per group, from which PostgreSQL computes the visible row."""

    plan: Aggregate
    columns: tuple[Column, ...]
    key_types: tuple[SqlType, ...]
    key: str
    measures: Measures
    relids: frozenset[int]
    rows: Select | Block = field(repr=False)
    sums: tuple[Measure, ...] = field(init=False, repr=False)
    extremes: tuple[Measure, ...] = field(init=False, repr=False)
    rereads: tuple[Measure, ...] = field(init=False, repr=False)

    def __post_init__(self) -> None:
        measures = self.measures.measures
        object.__setattr__(self, "sums", tuple(m for m in measures if m.kind == "add"))
        object.__setattr__(self, "extremes", tuple(m for m in measures if m.kind in ("least", "greatest")))
        object.__setattr__(self, "rereads", tuple(m for m in measures if m.kind != "add"))

    @property
    def slots(self) -> DeltaLayout:
        return DeltaLayout(len(self.sums), len(self.extremes), any(m.kind == "reread" for m in self.measures.measures))

    def delta_statement(self, changed: Mapping[int, ChangedSource]) -> str:
        values = [str(m.value) for m in self.sums]
        values += [sql for m in self.extremes for sql in (str(m.order), str(m.value))]
        listed = ", ".join(quote_ident(n) for n in column_names(self.rows))
        if not self.extremes and sum(c.rows for c in changed.values()) >= ADDED_FROM:
            return self._summed_by_group(changed, listed or "none")
        shown = ", ".join([self.key, *values])
        # A change that only a recomputed measure depends on does not change the delta row: consolidated, its group
        # would look unchanged.
        if not self.extremes or len(self.extremes) != len(self.rereads):
            return delta_rows(changed, self.rows, shown, 0, listed or "none")
        statement = general.new_statement(changed)
        union = " UNION ALL ".join(f"({sql})" for sql in general.delta(statement, self.rows))
        sql = f"SELECT q.{W}, {shown} FROM ({union}) AS q({listed}, {W})"
        return statement.with_clause() + _netted(sql, 1 + len(values))

    def _summed_by_group(self, changed: Mapping[int, ChangedSource], listed: str) -> str:
        """Per group one row for the inserted rows and one for the deleted rows; more where some values are NULL,
        because the weight of a row is also the number of values of each sum.

        Exact, because PostgreSQL adds exactly; NaN and infinities, which cannot be subtracted, remain in the sum.
        """
        statement = general.new_statement(changed)
        union = " UNION ALL ".join(f"({sql})" for sql in general.delta(statement, self.rows))
        numbers = [f"({m.number}) AS s{i}" for i, m in enumerate(self.sums)]
        shown = ", ".join([f'q.{W} AS w, ({self.key}) COLLATE "C" AS k', *numbers])
        rows = f"SELECT {shown} FROM ({union}) AS q({listed}, {W})"
        sums = ", ".join(["sum(d.w)::int8", "d.k", *(f"sum(d.s{i})::text" for i in range(len(numbers)))])
        alike = ", ".join(["d.k", "d.w > 0", *(f"d.s{i} IS NULL" for i in range(len(numbers)))])
        return f"{statement.with_clause()}SELECT {sums} FROM ({rows}) AS d GROUP BY {alike}"

    def load_statement(self) -> str:
        """The state of all groups: key as text, number of rows, key, then each measure's state columns."""
        return f"SELECT {self._shown()} FROM ({self._grouped(self._load_items())}) AS q"

    def _load_items(self) -> list[str]:
        keys = [f"{k} AS {quote_ident(f'k{i}')}" for i, k in enumerate(self.plan.keys)]
        return [*keys, *self._state_items()]

    def _shown(self) -> str:
        """The columns of a load, over the groups."""
        keys = [cast(key_value(f"q.k{i}", t), t.declared, t.base) for i, t in enumerate(self.key_types)]
        state = [cast(f'q."{m.name(s)}"', type_, m.base) for m in self.measures.measures for s, type_ in m.state]
        values = [self.key, 'q."n"::int8', *keys, *state]
        return ", ".join(f'{sql} AS "{name}"' for sql, name in zip(values, self._load_names(), strict=True))

    def engine_query(self) -> EngineQuery:
        """The groups, their keys and states; PostgreSQL adds the texts of the keys."""
        state = (m.name(s) for m in self.measures.measures for s, _ in m.state)
        names = (*(f"k{i}" for i in range(len(self.key_types))), "n", *state)
        return EngineQuery(self._grouped(self._load_items()), names, self._shown())

    def load_query(self) -> LoadQuery:
        return LoadQuery(self.load_statement(), self._load_names())

    def _load_names(self) -> tuple[str, ...]:
        state = [m.name(s) for m in self.measures.measures for s, _ in m.state]
        return ("k", "n", *(f"k{i}" for i in range(len(self.key_types))), *state)

    def reread_statement(self, *, may_be_null: bool, whole: bool = False, reads: str = FEW_KEYS) -> str:
        """Recomputes measures of given groups from the tables in the snapshot, or with `whole` their whole state as a
        load does. The number of the group is the first column.

        One parameter: the array of encoded group keys. The filters use the tables' indexes; the join compares exactly.
        `may_be_null`: a key may be NULL, which `= ANY` alone would not find. `reads`: few keys are compared one by one,
        many are looked up in a hash table, and for most of them the rows of all groups are read without a filter.
        """
        items, values = self._recomputed_items(whole=whole)
        columns = [*(f"{k} AS {quote_ident(f'k{i}')}" for i, k in enumerate(self.plan.keys)), *items]
        filters = []
        for i, (sql, type_) in enumerate(zip(self.plan.keys, self.key_types, strict=True)):
            if reads == MANY_KEYS or type_.element:  # an array of arrays is one array of more dimensions: no list
                has_key = f'({sql}) IN (SELECT k.k{i} FROM "__pgt_k" AS k)'
            else:
                has_key = f'({sql}) = ANY ((SELECT array_agg(DISTINCT k.k{i}) FROM "__pgt_k" AS k)::{type_.name}[])'
            filters.append(f"({has_key} OR {is_null(sql)})" if may_be_null else f"({has_key})")
        keys = ", ".join(f"{decoded('u.a', i, t.name, t.base)} AS k{i}" for i, t in enumerate(self.key_types))
        grouped = self._grouped(columns, () if reads == MOST_KEYS else filters)
        sql = (
            f'WITH "__pgt_k" AS MATERIALIZED (SELECT u.ord, u.k, {keys} FROM (SELECT p.k::text[] AS a, p.ord, p.k '
            f"FROM unnest(\x00) WITH ORDINALITY AS p(k, ord)) AS u) "
            f'SELECT k.ord, {values} FROM "__pgt_k" AS k JOIN ({grouped}) AS q ON ({self.key}) = k.k COLLATE "C"'
        )
        return sql.replace("%", "%%").replace("\x00", "%s::text[]")

    def reread_all_statement(self, *, whole: bool = False) -> str:
        """The same for a query without GROUP BY: there is one group."""
        items, values = self._recomputed_items(whole=whole)
        return f"SELECT 1, {values} FROM ({self._grouped(items)}) AS q"

    def _recomputed_items(self, *, whole: bool) -> tuple[list[str], str]:
        """Expressions over a group, and the values that they have in q."""
        if whole:
            return self._state_items(), ", ".join(self._state_values())
        items = [f'{m.call.sql} AS "{m.name("v")}"' for m in self.rereads]
        return items, ", ".join(exact(f'q."{m.name("v")}"', m.base) for m in self.rereads)

    def _state_items(self) -> list[str]:
        own = [f'{self._state_sql(m, s)} AS "{m.name(s)}"' for m in self.measures.measures for s, _ in m.state]
        return ['count(*) AS "n"', *own]

    def _state_values(self) -> list[str]:
        own = [exact(f'q."{m.name(s)}"', m.base) for m in self.measures.measures for s, _ in m.state]
        return ['q."n"::int8', *own]

    def output_statement(self, state: str) -> str:
        """The visible rows (c0.., then "gid") of the state rows in `state`, a table expression aliased s."""
        items = [f"{self._fill(o.parts)} AS {quote_ident(o.name)}" for o in self.plan.outputs]
        where = f" WHERE {self._fill(self.plan.having)}" if self.plan.having is not None else ""
        sql = f"SELECT {', '.join([*items, 's.gid AS __pgt_gid'])} FROM {state}{where}{self._fill(self.plan.tail)}"
        for layer in self.plan.layers:
            outer = [f"{i.sql} AS {quote_ident(i.name)}" for i in layer.items]
            condition = f" WHERE {layer.where}" if layer.where is not None else ""
            shown = ", ".join([*outer, f"{layer.alias}.__pgt_gid"])
            sql = f"SELECT {shown} FROM ({sql}) AS {layer.alias}{condition}{layer.tail}"
        names = ", ".join(f"c{i}" for i in range(len(self.columns)))
        casts = ", ".join(f"o.c{i}::{c.type} AS c{i}" for i, c in enumerate(self.columns))
        return f"SELECT {casts}, o.gid FROM ({sql}) AS o({names}, gid)"

    def _fill(self, pieces: Sequence[Piece]) -> str:
        return fill(pieces, lambda i: self.measures.keys[i], lambda i: self.measures.values[i])

    def _state_sql(self, measure: Measure, suffix: str) -> str:
        value = filtered_argument(measure.call)
        if measure.derived is not None:
            value = measure.derived.sql(str(value))
        return {"n": f"count({value})", "s": f"sum({value})::numeric", "v": measure.call.sql}[suffix]

    def _grouped(self, items: Sequence[str], filters: Sequence[str] = ()) -> str:
        group = f" GROUP BY {', '.join(f'({k})' for k in self.plan.keys)}" if self.plan.keys else ""
        return selected(self.plan, items, filters) + group


def selected(plan: Aggregate, items: Sequence[str], filters: Sequence[str] = ()) -> str:
    """These expressions over the rows that an aggregate groups, in the new state."""
    rows = plan.input.rows(())
    if isinstance(rows, Select):
        conditions = [f"({rows.where})"] if rows.where is not None else []
        return linear.select(items, rows.source, " AND ".join([*conditions, *filters]) or None, NOW).sql
    statement = Statement({}, no_delta)
    source = ", ".join(statement.render_tree(t, ALL_NEW, []) for t in rows.trees)
    conditions = [f"({statement.render_text(rows.where, ALL_NEW)})"] if rows.where is not None else []
    where = " AND ".join([*conditions, *filters])
    return f"SELECT {', '.join(items)} FROM {source}{f' WHERE {where}' if where else ''}"


Template = BagTemplate | FoldTemplate | TopKTemplate | RecursionTemplate | RegionTemplate


def template_of(plan: Plan, columns: Sequence[Column], describe: Describe, stored: str, state: str | None) -> Template:
    """Chooses the template of a canonical plan. `describe` asks PostgreSQL for the result types of a statement.

    `stored` names the stream table, `state` the table beside it; None: the stream table has no state beside it.
    """
    if isinstance(plan, Aggregate):
        return _compile_fold(plan, tuple(columns), describe)
    core = core_of(plan)
    if core is None:
        if (
            isinstance(plan, Block)
            and (recursion := compile_recursion(plan, columns, _relids(plan), stored)) is not None
        ):
            return recursion
        return BagTemplate(plan, tuple(columns), _relids(plan))
    if state is not None:
        limited = compile_topk(plan, core, tuple(columns), _relids(plan), describe, state)
        if limited is not None:
            return limited
    return _compile_region(plan, core, tuple(columns), describe, stored)


def _compile_region(
    plan: Node, core: Block, columns: tuple[Column, ...], describe: Describe, stored: str
) -> RegionTemplate | BagTemplate:
    """A stored row has its region key as text, so equal keys need equal texts. Otherwise the old rows of a region are
    computed; where they are not deterministic, all rows are one region."""
    rows = Block(tuple(OutputColumn(f"k{i}", (k,)) for i, k in enumerate(core.region or ())), core.trees, core.where)
    types = tuple(describe(current_rows(rows))) if core.region else ()
    try:
        for type_ in types:
            key("", type_)
    except NotDifferentiableError:
        try:
            plan = replace_core(plan, core, determined(core, describe))
            return BagTemplate(plan, columns, _relids(plan))
        except NotDifferentiableError:
            types, one_region = (), replace(core, region=())
            plan, core = replace_core(plan, core, one_region), one_region
    return RegionTemplate(plan, core, columns, _relids(plan), stored, types)


def _compile_fold(plan: Aggregate, columns: tuple[Column, ...], describe: Describe) -> FoldTemplate:
    arguments = [filtered_argument(c) for c in plan.calls]
    items = [Item(f"k{i}", k) for i, k in enumerate(plan.keys)]
    items += [Item(f"a{i}", a) for i, a in enumerate(arguments) if a is not None]
    # A SELECT of nothing cannot be given names: count(*) without keys.
    rows = plan.input.rows(tuple(items) or (Item("none", "1"),))
    types = list(describe(current_rows(rows)))
    key_types = tuple(types[: len(plan.keys)])
    rest = iter(types[len(plan.keys) :])
    argument_types = [next(rest) if a is not None else None for a in arguments]
    result_types = describe(selected(plan, [c.sql for c in plan.calls])) if plan.calls else ()
    group_key = encoded([key(f"q.k{i}", t) for i, t in enumerate(key_types)])
    measures = plan_measures(plan, key_types, argument_types, result_types, lambda i: f"q.a{i}")
    return FoldTemplate(plan, columns, key_types, group_key, measures, _relids(plan), rows)


def _relids(plan: Plan) -> frozenset[int]:
    return frozenset(s.relation.relid for s in scans(plan))


def _netted(sql: str, columns: int) -> str:
    """Consolidates rows that were deleted and inserted unchanged, so that an unchanged extreme is not recomputed.

    Weights stay +1 and -1.
    """
    names = ", ".join(["w", *(f"c{i}" for i in range(columns))])
    group = ", ".join(f"d.c{i}" for i in range(columns))
    return (
        f"SELECT CASE WHEN n.w > 0 THEN 1 ELSE -1 END, {', '.join(f'n.c{i}' for i in range(columns))} "
        f"FROM (SELECT sum(d.w) AS w, {group} FROM ({sql}) AS d({names}) GROUP BY {group} HAVING sum(d.w) <> 0) AS n, "
        f"generate_series(1, abs(n.w)) AS g"
    )
