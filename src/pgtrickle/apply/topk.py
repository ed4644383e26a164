"""Top-k queries: the state contains the first rows and spare rows; the visible rows are selected from it (ADR 14).

The state has a row for each distinct stored row, with its number of copies, and one with the count 0: the boundary row,
up to which all rows are stored. Its text has one element more. Without a boundary row, the state has all rows.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from pgtrickle.apply import bags
from pgtrickle.apply.groups import GroupDelta, Groups, Touched, add_arrays, add_staged, drop_empty, replace_state
from pgtrickle.apply.indexes import index_rows
from pgtrickle.apply.partitions import add_partitions_now, key_of_output
from pgtrickle.apply.target import text_hash
from pgtrickle.db.roundtrip import ask
from pgtrickle.errors import InvariantError
from pgtrickle.model.texts import as_text

if TYPE_CHECKING:
    from pgtrickle.db.connect import Connection


@dataclass(frozen=True, slots=True)
class TopK:
    """`order`: of state rows, aliased s. `needed`: rows that decide the visible ones.

    `stored_rows`: the rows that a load stores.
    """

    groups: Groups
    order: str
    needed: int
    stored_rows: int

    @property
    def most(self) -> int:
        """The number of state rows above which those after the first `stored_rows` ones are deleted."""
        return 2 * self.stored_rows


def runs_out(conn: Connection, topk: TopK, change: int) -> bool:
    """Whether this change of the row count leaves too few stored rows while the query has others."""
    row = conn.execute(f"SELECT coalesce(sum(n), 0)::int8, bool_or(n = 0) FROM {topk.groups.target.state}").fetchone()
    return row is not None and bool(row[1]) and row[0] + change < topk.needed


def apply_arrays(conn: Connection, topk: TopK, delta: GroupDelta) -> tuple[int, int]:
    """Adds a small delta to the stored rows, as array parameters, then updates the visible ones."""
    return _settle(conn, topk, ask(conn, add_arrays(topk.groups, delta)))


def apply_staged(conn: Connection, topk: TopK, delta: GroupDelta) -> tuple[int, int]:
    """The same for a large delta, through a staging table."""
    return _settle(conn, topk, add_staged(conn, topk.groups, delta))


def replace_rows(conn: Connection, topk: TopK, content: str) -> tuple[int, int]:
    """Makes the state equal to a content (see `groups.replace_state`), and then the visible rows."""
    replace_state(conn, topk.groups, content)
    index_rows(conn, topk.groups.target)
    rows = _show(conn, topk)
    conn.execute(f"ANALYZE {topk.groups.target.table}")
    return rows


def _settle(conn: Connection, topk: TopK, touched: Touched) -> tuple[int, int]:
    state = topk.groups.target.state
    ask(conn, drop_empty(topk.groups, touched))
    if runs_out(conn, topk, 0):
        raise InvariantError(f"too few rows of {topk.groups.target.schema}.{topk.groups.target.name} are stored")
    row = conn.execute(f"SELECT count(*) > {topk.most} FROM {state}").fetchone()
    if row is not None and row[0]:
        _trim(conn, topk)
    return _show(conn, topk)


def _trim(conn: Connection, topk: TopK) -> None:
    """Deletes the rows after the first `stored_rows` ones; the last remaining row is the new boundary row."""
    state = topk.groups.target.state
    keys = "".join(f', "k{i}"' for i in range(len(topk.groups.key_types)))
    conn.execute(
        f"WITH first AS (SELECT s.* FROM {state} AS s WHERE s.n > 0 "
        f"ORDER BY {topk.order} FETCH FIRST {topk.stored_rows} ROWS WITH TIES), "
        f"placed AS MATERIALIZED (SELECT s.*, row_number() OVER (ORDER BY {topk.order}) AS place FROM first AS s), "
        f"gone AS (DELETE FROM {state} AS s WHERE NOT EXISTS (SELECT FROM placed AS p WHERE p.gid = s.gid)) "
        f'INSERT INTO {state} ("h", "k", "n"{keys}) SELECT {text_hash("e.k")}, e.k, 0{keys} FROM ('
        f"SELECT (p.k::text[] || 'edge'::text)::text AS k{keys} FROM placed AS p ORDER BY p.place DESC LIMIT 1) AS e"
    )


def _show(conn: Connection, topk: TopK) -> tuple[int, int]:
    """Makes the visible rows equal to those that the query selects from the state, by difference."""
    target = topk.groups.target
    chosen = topk.groups.output(f"(SELECT kept.* FROM {target.state} AS kept WHERE kept.n > 0) AS s")
    text = f"ARRAY[{', '.join(as_text(f'o.c{i}', c.base) for i, c in enumerate(target.columns))}]::text[]::text"
    values = [f"o.c{i}" for i in range(len(target.columns))]
    add_partitions_now(conn, target, f"({chosen}) AS o", key_of_output(target, "o"))
    return bags.apply_difference(
        conn,
        target,
        "SELECT b.h, sum(b.w)::int8 AS n, b.k FROM ("
        f'SELECT {target.identity(values, "o.k")}, o.k COLLATE "C", 1 '
        f"FROM (SELECT o.*, {text} AS k FROM ({chosen}) AS o) AS o "
        f"UNION ALL SELECT t.__pgt_row_id, {target.encoded('t')}, -1 FROM {target.table} AS t"
        ") AS b(h, k, w) GROUP BY b.h, b.k HAVING sum(b.w) <> 0",
    )
