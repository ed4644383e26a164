"""Top-k: ORDER BY ... LIMIT at the top of a query. The first rows and spare rows are stored as state beside the table.

The state has exactly the rows that sort up to the *boundary row*, a row of the state with count 0; without a boundary
row it has all rows. So only delta rows up to the boundary row matter:

    state' = state + delta rows that sort up to the boundary row        visible rows = first k rows of state'

    in:  SELECT a, b FROM t ORDER BY b DESC LIMIT 10
    out: SELECT w, row FROM (dt ranked together with the boundary row) WHERE rank <= rank of the boundary row

Ties are ordered by the row's text, so that not all rows of a large tie are stored; WITH TIES stores them all. Every
comparison is an ORDER BY of PostgreSQL, with the collations and operators of the query's own ORDER BY.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import assert_never

from pgtrickle.model.catalog import Column
from pgtrickle.pipeline.codec import SqlType, decoded, texts
from pgtrickle.pipeline.delta_layout import ROWS, DeltaLayout
from pgtrickle.pipeline.differentiate import full_join as full
from pgtrickle.pipeline.differentiate import general
from pgtrickle.pipeline.differentiate.linear import ChangedSource, W
from pgtrickle.pipeline.differentiate.states import ALL_NEW, Statement
from pgtrickle.pipeline.plan.nodes import (
    Block,
    Concat,
    Distinct,
    FromItem,
    Limit,
    Node,
    OutputColumn,
    Recursive,
    Scan,
    Select,
    SetOperation,
    UnionAll,
    Values,
    children,
    from_items,
)
from pgtrickle.pipeline.plan.shapes import replace_core
from pgtrickle.pipeline.render.delta_rows import current_rows, no_delta
from pgtrickle.pipeline.templates.load_query import EngineQuery, LoadQuery, cast

# The state has as many spare rows as needed rows, and at least these: so many needed rows can be deleted before the
# state is loaded again. So few rows cost a refresh nothing measurable.
SPARE_ROWS = 100
_ID = "__pgt_h"


@dataclass(frozen=True, slots=True)
class TopKTemplate:
    """`core` is the block with the LIMIT, `plan` it with any number of projections and filters above."""

    plan: Node
    core: Block
    limit: Limit
    columns: tuple[Column, ...]
    types: tuple[SqlType, ...]
    relids: frozenset[int]
    state: str
    spare: int
    slots: DeltaLayout = ROWS

    @property
    def needed(self) -> int:
        """The rows that decide the visible ones; at least one, because the boundary row follows a row."""
        return max(self.limit.offset + self.limit.count, 1)

    @property
    def stored_rows(self) -> int:
        """The rows that a load stores: the needed ones and the spare ones."""
        return self.needed + self.spare

    def order(self, alias: str, prefix: str) -> str:
        """Of rows with columns `prefix`0, ... and their text k."""
        own = self._own_order(alias, prefix)
        return own if self.limit.has_ties else f'{own}, {alias}.k COLLATE "C"'

    def delta_statement(self, changed: Mapping[int, ChangedSource]) -> str:
        """The delta rows up to the boundary row: ranked together with it."""
        statement = general.new_statement(changed)
        union = " UNION ALL ".join(f"({sql})" for sql in general.delta(statement, self.limit.rows))
        return self._up_to_boundary(statement, f"({union}) AS q({self._names}, {W})")

    def delta_of(self, relation: str) -> str:
        """The same for delta rows that another engine has computed: a relation with columns c0, c1, ... and w."""
        return self._up_to_boundary(Statement({}, no_delta), f"{relation} AS q({self._names}, {W})")

    def _up_to_boundary(self, statement: Statement, rows: str) -> str:
        changed_rows = f"SELECT q.*, {self._row} FROM {rows}"
        width = len(self.types)
        kept = "".join(f"s.k{i}, " for i in range(width))
        boundary = f"SELECT {kept}NULL, (s.k::text[])[:{width}]::text FROM {self.state} AS s WHERE s.n = 0"
        ranked = statement.share(
            f"SELECT q.{W} AS w, q.k, rank() OVER (ORDER BY {self.order('q', 'c')}) AS place "
            f"FROM ({changed_rows} UNION ALL {boundary}) AS q({self._names}, {W}, k)",
            "r",
        )
        last = f"(SELECT e.place FROM {ranked} AS e WHERE e.w IS NULL)"
        return (
            f"{statement.with_clause()}SELECT r.w, r.k FROM {ranked} AS r "
            f"WHERE r.w IS NOT NULL AND r.place <= coalesce({last}, r.place)"
        )

    def load_statement(self) -> str:
        """The state rows with their counts, and the boundary row unless all rows are in the state.

        One row more than `stored_rows` is read, in the query's order alone, so that an index or a top-N sort can
        provide the rows. If there are more rows than `stored_rows`, the last tie is left out, because it may be
        incomplete. If too few rows remain, the tie is a large one ("is_tied"), and `_tied` splits it.
        """
        return self._load_of(f"({current_rows(self.limit.rows)})")

    def _load_of(self, relation: str) -> str:
        """`relation`: the rows, or at least the first ones in the query's order, with all peers of the last."""
        order = self._own_order("q", "c")
        rows = f"{relation} AS q({self._names})"
        first = f"SELECT q.* FROM {rows} ORDER BY {order} LIMIT {self.stored_rows + 1}"
        return (
            f'WITH "__pgt_f" AS MATERIALIZED (SELECT {self._row} AS k, rank() OVER (ORDER BY {order}) AS place '
            f"FROM ({first}) AS q), "
            f'"__pgt_b" AS MATERIALIZED (SELECT count(*) > {self.stored_rows} AS is_cut, max(f.place) AS last, '
            f'count(*) > {self.stored_rows} AND max(f.place) <= {self.needed} AS is_tied FROM "__pgt_f" AS f), '
            '"__pgt_kept" AS MATERIALIZED ('
            'SELECT f.k, count(*) AS n, min(f.place) AS place FROM "__pgt_f" AS f, "__pgt_b" AS b '
            "WHERE NOT b.is_tied AND (NOT b.is_cut OR f.place < b.last) GROUP BY f.k "
            f'UNION ALL SELECT t.* FROM ({self._tied(rows, order)}) AS t WHERE (SELECT b.is_tied FROM "__pgt_b" AS b)) '
            'SELECT p.k, p.n::int8 FROM "__pgt_kept" AS p '
            "UNION ALL (SELECT (p.k::text[] || 'edge'::text)::text, 0::int8 FROM \"__pgt_kept\" AS p "
            'WHERE (SELECT b.is_cut FROM "__pgt_b" AS b) ORDER BY p.place DESC, p.k COLLATE "C" DESC LIMIT 1)'
        )

    def load_query(self) -> LoadQuery:
        """The same with the columns of the state."""
        return LoadQuery(self._state_of(f"({current_rows(self.limit.rows)})"), self._state_names)

    def engine_query(self) -> EngineQuery:
        """The first rows, with all peers of the last; PostgreSQL selects the stored rows from them."""
        rows = self.rows_query()
        listed = ", ".join(f"q.{name}" for name in rows.columns)
        first = (
            f"SELECT {listed} FROM ({rows.sql}) AS q({self._names}) "
            f"ORDER BY {self._own_order('q', 'c')} FETCH FIRST {self.stored_rows + 1} ROWS WITH TIES"
        )
        return EngineQuery(first, rows.columns, rows.shown, self._state_of)

    def rows_query(self) -> EngineQuery:
        """The input rows of the LIMIT, whose delta is applied to the stored rows."""
        names = tuple(f"c{i}" for i in range(len(self.types)))
        pairs = zip(names, self.types, strict=True)
        shown = ", ".join(f"{cast(f'q.{name}', t.declared, t.base)} AS {name}" for name, t in pairs)
        return EngineQuery(current_rows(self.limit.rows), names, shown)

    @property
    def _state_names(self) -> tuple[str, ...]:
        return ("k", "n", *(f"k{i}" for i in range(len(self.types))))

    def _state_of(self, relation: str) -> str:
        keys = [decoded("p.k::text[]", i, t.declared, t.base) for i, t in enumerate(self.types)]
        values = zip(("p.k", "p.n", *keys), self._state_names, strict=True)
        shown = ", ".join(f"{sql} AS {name}" for sql, name in values)
        return f"SELECT {shown} FROM ({self._load_of(relation)}) AS p(k, n)"

    def output_statement(self, state: str) -> str:
        """The visible rows (c0.., then "h") of the state rows in `state`, a table expression aliased s."""
        copies = "s.n" if self.limit.has_ties else f"least(s.n, {self.needed})"
        source = f"{state}, pg_catalog.generate_series(1, {copies})"
        columns = tuple(OutputColumn(c.name, (f"s.k{i}",)) for i, c in enumerate(self.core.columns))
        tail = f" ORDER BY {self.order('s', 'k')} {self.limit.clause}"
        part = FromItem(-1, None, "s", (source,))
        chosen = Block((*columns, OutputColumn(_ID, ("s.h",))), (part,), None, (), (tail,))
        sql = Statement({}, no_delta).render(replace_core(self.plan, self.core, chosen, [_ID]), ALL_NEW)
        names = ", ".join(f"c{i}" for i in range(len(self.columns)))
        casts = "".join(f"o.c{i}::{c.type} AS c{i}, " for i, c in enumerate(self.columns))
        return f"SELECT {casts}o.h FROM ({sql}) AS o({names}, h)"

    def with_ties_decided(self) -> Node:
        """The query with its ties ordered as in the state, for comparison with the table."""
        source = FromItem(-1, self.limit.rows, "q")
        columns = tuple(OutputColumn(c.name, (f"q.c{i}",)) for i, c in enumerate(self.core.columns))
        ties = "" if self.limit.has_ties else f', {self._row} COLLATE "C"'
        tail = f" ORDER BY {self._own_order('q', 'c')}{ties} {self.limit.clause}"
        return replace_core(self.plan, self.core, Block(columns, (source,), None, (), (tail,)))

    @property
    def _names(self) -> str:
        return ", ".join(f"c{i}" for i in range(len(self.types)))

    @property
    def _row(self) -> str:
        return texts("q", self.types)

    def _own_order(self, alias: str, prefix: str) -> str:
        """The query's own order, which may have ties."""
        return ", ".join(f"{alias}.{prefix}{column} {direction}".rstrip() for column, direction in self.limit.order)

    def _tied(self, rows: str, order: str) -> str:
        """The same where one tie extends from the `needed` rows beyond `stored_rows`: k, n, place."""
        if self.limit.has_ties:  # all of it is needed
            first = f"SELECT q.* FROM {rows} ORDER BY {order} FETCH FIRST {self.needed} ROWS WITH TIES"
            ranked = f"SELECT {self._row} AS k, rank() OVER (ORDER BY {order}) AS place FROM ({first}) AS q"
            return f"SELECT r.k, count(*) AS n, min(r.place) AS place FROM ({ranked}) AS r GROUP BY r.k"
        all_rows = f"SELECT q.*, {self._row} AS k FROM {rows}"
        ordered = self.order("q", "c")
        group = ", ".join(["q.k", *(f"q.c{column}" for column, _ in self.limit.order)])
        return (
            f"SELECT q.k, count(*) AS n, row_number() OVER (ORDER BY {ordered}) AS place FROM ({all_rows}) AS q "
            f"GROUP BY {group} ORDER BY {ordered} LIMIT {self.stored_rows}"
        )


def compile_topk(
    plan: Node,
    core: Block,
    columns: tuple[Column, ...],
    relids: frozenset[int],
    describe: Callable[[str], Sequence[SqlType]],
    state: str,
) -> TopKTemplate | None:
    """None where the delta of the rows below costs as much as the rows, or a column has a type that cannot be stored.

    Then the whole result is compared with the stored rows.
    """
    limit = core.limit
    if limit is None or not _goes_by_changes(limit.rows):
        return None
    types = tuple(describe(current_rows(limit.rows)))
    if any(t.kind == "p" for t in types):
        return None
    spare = max(limit.offset + limit.count, SPARE_ROWS)
    return TopKTemplate(plan, core, limit, columns, types, relids, state, spare)


def _goes_by_changes(node: Node) -> bool:
    """Whether the plan is deterministic, and no part of it is evaluated as a whole in the old and the new state."""
    match node:
        case Recursive():
            return False
        case Block():
            if node.region == () or node.undetermined is not None or full.has_unsplit_full_join(node):
                return False
            return all(_goes_by_changes(p.node) for p in from_items(node) if p.node is not None and not p.is_lateral)
        case Scan() | Select() | UnionAll() | Concat() | Distinct() | SetOperation() | Values():
            return all(_goes_by_changes(child) for child in children(node))
        case _:
            assert_never(node)
