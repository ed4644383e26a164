"""ORDER BY ... LIMIT at the top: the first rows and spare ones are kept beside the table.

Kept is exactly what sorts up to the *edge*, a row of the state that counts none; without an edge, everything. So of
the changes only those up to the edge matter, and added to what is kept they give what sorts up to it now. Ties are
told apart by the row's text, so that many of them are not all kept; not for WITH TIES, which shows them.

Every comparison is an ORDER BY of PostgreSQL, with the collations and operators that the query's own has.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import assert_never

from pgtrickle.model.catalog import Column
from pgtrickle.pipeline.codec import SqlType, texts
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
    parts,
)
from pgtrickle.pipeline.plan.shapes import lifted
from pgtrickle.pipeline.render.delta_rows import no_delta, now

# Rows kept beyond those that are needed are as many again, and at least these: as many of the needed rows may leave
# before the tables are read again, and that few cost a refresh nothing that could be measured.
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
        """Rows without which the visible ones are not known; one at least, as there is no edge behind none."""
        return max(self.limit.offset + self.limit.count, 1)

    @property
    def wanted(self) -> int:
        return self.needed + self.spare

    def order(self, alias: str, prefix: str) -> str:
        """Of rows with columns `prefix`0, ... and their text k."""
        own = self._own_order(alias, prefix)
        return own if self.limit.has_ties else f'{own}, {alias}.k COLLATE "C"'

    def delta_statement(self, changed: Mapping[int, ChangedSource]) -> str:
        """The changes up to the edge: ranked together with it."""
        into = general.statement(changed)
        union = " UNION ALL ".join(f"({sql})" for sql in general.delta(into, self.limit.rows))
        came = f"SELECT q.*, {self._row} FROM ({union}) AS q({self._names}, {W})"
        width = len(self.types)
        kept = "".join(f"s.k{i}, " for i in range(width))
        edge = f"SELECT {kept}NULL, (s.k::text[])[:{width}]::text FROM {self.state} AS s WHERE s.n = 0"
        ranked = into.share(
            f"SELECT q.{W} AS w, q.k, rank() OVER (ORDER BY {self.order('q', 'c')}) AS place "
            f"FROM ({came} UNION ALL {edge}) AS q({self._names}, {W}, k)",
            "r",
        )
        last = f"(SELECT e.place FROM {ranked} AS e WHERE e.w IS NULL)"
        return (
            f"{into.with_clause()}SELECT r.w, r.k FROM {ranked} AS r "
            f"WHERE r.w IS NOT NULL AND r.place <= coalesce({last}, r.place)"
        )

    def load_statement(self) -> str:
        """The kept rows with their numbers, and the edge unless that is all: what a load and a refill read.

        One more than wanted is read, in the query's order alone, so that an index can give it and a sort keep few
        rows. Where that cuts, the last tie is left out. When too few are left then, the tie is a large one
        ("is_tied"), and `_tied` takes it apart.
        """
        order = self._own_order("q", "c")
        rows = f"({now(self.limit.rows)}) AS q({self._names})"
        first = f"SELECT q.* FROM {rows} ORDER BY {order} LIMIT {self.wanted + 1}"
        return (
            f'WITH "__pgt_f" AS MATERIALIZED (SELECT {self._row} AS k, rank() OVER (ORDER BY {order}) AS place '
            f"FROM ({first}) AS q), "
            f'"__pgt_b" AS MATERIALIZED (SELECT count(*) > {self.wanted} AS is_cut, max(f.place) AS last, '
            f'count(*) > {self.wanted} AND max(f.place) <= {self.needed} AS is_tied FROM "__pgt_f" AS f), '
            '"__pgt_kept" AS MATERIALIZED ('
            'SELECT f.k, count(*) AS n, min(f.place) AS place FROM "__pgt_f" AS f, "__pgt_b" AS b '
            "WHERE NOT b.is_tied AND (NOT b.is_cut OR f.place < b.last) GROUP BY f.k "
            f'UNION ALL SELECT t.* FROM ({self._tied(rows, order)}) AS t WHERE (SELECT b.is_tied FROM "__pgt_b" AS b)) '
            'SELECT p.k, p.n::int8 FROM "__pgt_kept" AS p '
            "UNION ALL (SELECT (p.k::text[] || 'edge'::text)::text, 0::int8 FROM \"__pgt_kept\" AS p "
            'WHERE (SELECT b.is_cut FROM "__pgt_b" AS b) ORDER BY p.place DESC, p.k COLLATE "C" DESC LIMIT 1)'
        )

    def output_statement(self, state: str) -> str:
        """The visible rows (c0.., then "h") of the state rows in `state`, a table expression aliased s."""
        copies = "s.n" if self.limit.has_ties else f"least(s.n, {self.needed})"
        source = f"{state}, pg_catalog.generate_series(1, {copies})"
        columns = tuple(OutputColumn(c.name, (f"s.k{i}",)) for i, c in enumerate(self.core.columns))
        tail = f" ORDER BY {self.order('s', 'k')} {self.limit.clause}"
        part = FromItem(-1, None, "s", (source,))
        chosen = Block((*columns, OutputColumn(_ID, ("s.h",))), (part,), None, (), (tail,))
        sql = Statement({}, no_delta).render(lifted(self.plan, self.core, chosen, _ID), ALL_NEW)
        names = ", ".join(f"c{i}" for i in range(len(self.columns)))
        casts = "".join(f"o.c{i}::{c.type} AS c{i}, " for i, c in enumerate(self.columns))
        return f"SELECT {casts}o.h FROM ({sql}) AS o({names}, h)"

    def told_apart(self) -> Node:
        """The query with its ties decided as they are here, for comparison with the table."""
        source = FromItem(-1, self.limit.rows, "q")
        columns = tuple(OutputColumn(c.name, (f"q.c{i}",)) for i, c in enumerate(self.core.columns))
        ties = "" if self.limit.has_ties else f', {self._row} COLLATE "C"'
        tail = f" ORDER BY {self._own_order('q', 'c')}{ties} {self.limit.clause}"
        return lifted(self.plan, self.core, Block(columns, (source,), None, (), (tail,)))

    @property
    def _names(self) -> str:
        return ", ".join(f"c{i}" for i in range(len(self.types)))

    @property
    def _row(self) -> str:
        return texts("q", self.types)

    def _own_order(self, alias: str, prefix: str) -> str:
        """The query's, which may leave ties."""
        return ", ".join(f"{alias}.{prefix}{column} {direction}".rstrip() for column, direction in self.limit.order)

    def _tied(self, rows: str, order: str) -> str:
        """The same where one tie reaches from the needed rows to beyond the wanted: k, n, place."""
        if self.limit.has_ties:  # all of it is needed
            first = f"SELECT q.* FROM {rows} ORDER BY {order} FETCH FIRST {self.needed} ROWS WITH TIES"
            ranked = f"SELECT {self._row} AS k, rank() OVER (ORDER BY {order}) AS place FROM ({first}) AS q"
            return f"SELECT r.k, count(*) AS n, min(r.place) AS place FROM ({ranked}) AS r GROUP BY r.k"
        whole = f"SELECT q.*, {self._row} AS k FROM {rows}"
        ordered = self.order("q", "c")
        group = ", ".join(["q.k", *(f"q.c{column}" for column, _ in self.limit.order)])
        return (
            f"SELECT q.k, count(*) AS n, row_number() OVER (ORDER BY {ordered}) AS place FROM ({whole}) AS q "
            f"GROUP BY {group} ORDER BY {ordered} LIMIT {self.wanted}"
        )


def compile_limit(
    plan: Node,
    core: Block,
    columns: tuple[Column, ...],
    relids: frozenset[int],
    describe: Callable[[str], Sequence[SqlType]],
    state: str,
) -> TopKTemplate | None:
    """None where changes of the rows below are not to be had for less than the rows, or an order has no storable type.

    Then the whole answer is compared with what is stored.
    """
    limit = core.limit
    if limit is None or not _goes_by_changes(limit.rows):
        return None
    types = tuple(describe(now(limit.rows)))
    if any(t.kind == "p" for t in types):
        return None
    spare = max(limit.offset + limit.count, SPARE_ROWS)
    return TopKTemplate(plan, core, limit, columns, types, relids, state, spare)


def _goes_by_changes(node: Node) -> bool:
    """Whether nothing in it is evaluated whole, before and after, and it gives one answer only."""
    match node:
        case Recursive():
            return False
        case Block():
            if node.region == () or node.undetermined is not None or full.is_whole(node):
                return False
            return all(_goes_by_changes(p.node) for p in parts(node) if p.node is not None and not p.is_lateral)
        case Scan() | Select() | UnionAll() | Concat() | Distinct() | SetOperation() | Values():
            return all(_goes_by_changes(child) for child in children(node))
        case _:
            assert_never(node)
