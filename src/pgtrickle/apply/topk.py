"""LIMIT: the first rows of a query and spare ones beside the stream table, and the visible rows chosen among them.

The state has a row for each kept row, with the number of its copies, and one that counts none: the edge, up to which
everything is kept. Its text has one element more than a row's. Without an edge, all rows of the query are kept.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from pgtrickle.apply import bags
from pgtrickle.apply.groups import GroupDelta, Groups, Touched, add_arrays, add_staged, drop_empty, replace_state
from pgtrickle.db.roundtrip import ask
from pgtrickle.errors import InvariantError
from pgtrickle.model.texts import as_text

if TYPE_CHECKING:
    from pgtrickle.db.connect import Connection

FEW_ROWS = 5_000  # above, visible rows that come and go are staged


@dataclass(frozen=True, slots=True)
class TopK:
    """`order` is that of state rows aliased s. `needed` rows decide what shows; `wanted` are kept after a reading."""

    groups: Groups
    order: str
    needed: int
    wanted: int

    @property
    def most(self) -> int:
        """State rows above which those after the wanted ones are let go: not each time, but before a copy of all."""
        return 2 * self.wanted


def runs_out(conn: Connection, kept: TopK, change: int) -> bool:
    """Whether, with this change of their number, too few rows would be kept and others not."""
    row = conn.execute(f"SELECT coalesce(sum(n), 0)::int8, bool_or(n = 0) FROM {kept.groups.target.state}").fetchone()
    return row is not None and bool(row[1]) and row[0] + change < kept.needed


def keep_arrays(conn: Connection, kept: TopK, delta: GroupDelta) -> tuple[int, int]:
    """Adds a small delta to the kept rows, as array parameters, then updates the visible ones."""
    return _settle(conn, kept, ask(conn, add_arrays(kept.groups, delta)))


def keep_staged(conn: Connection, kept: TopK, delta: GroupDelta) -> tuple[int, int]:
    """The same for a large delta, through a staging table."""
    return _settle(conn, kept, add_staged(conn, kept.groups, delta))


def replace_kept(conn: Connection, kept: TopK, stage: str) -> tuple[int, int]:
    """Makes the state equal to the staged one (see `Groups.load_columns`) and the visible rows with it."""
    replace_state(conn, kept.groups, stage)
    rows = _show(conn, kept)
    conn.execute(f"ANALYZE {kept.groups.target.table}")
    return rows


def _settle(conn: Connection, kept: TopK, touched: Touched) -> tuple[int, int]:
    state = kept.groups.target.state
    ask(conn, drop_empty(kept.groups, touched))
    if runs_out(conn, kept, 0):
        raise InvariantError(f"too few rows of {kept.groups.target.schema}.{kept.groups.target.name} are kept")
    row = conn.execute(f"SELECT count(*) > {kept.most} FROM {state}").fetchone()
    if row is not None and row[0]:
        _trim(conn, kept)
    return _show(conn, kept)


def _trim(conn: Connection, kept: TopK) -> None:
    """Lets go of what sorts after the wanted rows; the last of these is the new edge."""
    state = kept.groups.target.state
    keys = "".join(f', "k{i}"' for i in range(len(kept.groups.key_types)))
    conn.execute(
        f"WITH first AS (SELECT s.* FROM {state} AS s WHERE s.n > 0 "
        f"ORDER BY {kept.order} FETCH FIRST {kept.wanted} ROWS WITH TIES), "
        f"placed AS MATERIALIZED (SELECT s.*, row_number() OVER (ORDER BY {kept.order}) AS place FROM first AS s), "
        f"gone AS (DELETE FROM {state} AS s WHERE NOT EXISTS (SELECT FROM placed AS p WHERE p.gid = s.gid)) "
        f'INSERT INTO {state} ("h", "k", "n"{keys}) SELECT 0, (p.k::text[] || \'edge\'::text)::text, 0{keys} '
        "FROM placed AS p ORDER BY p.place DESC LIMIT 1"
    )


def _show(conn: Connection, kept: TopK) -> tuple[int, int]:
    """Makes the visible rows those that the query chooses among the kept ones, by difference."""
    target = kept.groups.target
    chosen = kept.groups.output(f"(SELECT kept.* FROM {target.state} AS kept WHERE kept.n > 0) AS s")
    texts = ", ".join(as_text(f"o.c{i}", c.base) for i, c in enumerate(target.columns))
    found = conn.execute(
        "SELECT b.h, sum(b.w)::int8, b.k FROM ("
        f'SELECT o.h, ARRAY[{texts}]::text[]::text COLLATE "C", 1 FROM ({chosen}) AS o '
        f"UNION ALL SELECT t.__pgt_row_id, {target.encoded('t')}, -1 FROM {target.table} AS t"
        ") AS b(h, k, w) GROUP BY b.h, b.k HAVING sum(b.w) <> 0"
    ).fetchall()
    if not found:
        return 0, 0
    delta = bags.BagDelta(*zip(*found, strict=True))
    if len(found) <= FEW_ROWS:
        return ask(conn, bags.apply_arrays(target, delta))
    return bags.apply_staged(conn, target, delta)
