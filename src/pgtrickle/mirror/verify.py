"""Compares a mirror with its table at the origin, at the mirror's cut.

Each side is read at its own snapshot; rows are compared by their texts, first by count and sums of hashes, and
row by row only if these differ.
"""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING

from pgtrickle.db import catalog
from pgtrickle.db.connect import begin
from pgtrickle.define.compile import parse_table
from pgtrickle.define.renames import is_renamed_there
from pgtrickle.model.catalog import StreamTable, as_at_origin
from pgtrickle.model.flow import Cut, Frontier, Window
from pgtrickle.model.identifiers import qualified, quote_ident
from pgtrickle.origin.changes import positions
from pgtrickle.origin.sessions import OriginSessions, render_alike
from pgtrickle.pipeline.codec import encoded, exact, texts
from pgtrickle.pipeline.differentiate.linear import ChangedSource
from pgtrickle.pipeline.render.whole import query_as_of
from pgtrickle.refresh.pending import read_pending

if TYPE_CHECKING:
    from pgtrickle.db.connect import Connection


def compare_mirror(
    conn: Connection, table: StreamTable, dsn: str, origins: OriginSessions
) -> tuple[int, int, Cut] | None:
    """Missing rows, extra rows, and the cut. None: the table cannot be read at that cut any more.

    `conn` is in a REPEATABLE READ transaction.
    """
    mirror = table.mirror
    assert mirror is not None
    cut = Frontier.cut_at(table.frontier, mirror.key)
    if cut is None or not table.is_populated or table.needs_reinit:
        return None
    render_alike(conn)
    key = catalog.read_moment(conn).instance.key
    have = ", ".join(exact(quote_ident(c.name), c.base) for c in table.columns)
    stored = f"SELECT {encoded([have])} FROM {qualified(table.schema, table.name)}"
    with origins.session(dsn, mirror) as origin:
        begin(origin, "ISOLATION LEVEL REPEATABLE READ READ ONLY")
        position = positions(origin).get((key, table.pgt_id))
        if position is None or position.cut is None or not position.cut.precedes(cut) or not position.allows(cut):
            return None  # changes since the cut may have been trimmed or compacted, or the mirror has advanced
        if is_renamed_there(origin, table):
            return None
        there = as_at_origin(table)
        window = Window(cut, catalog.read_moment(origin).cut)
        pending, _ = read_pending(origin, [(mirror.relid, window, None)])
        if any(p.truncated for p in pending.values()):
            return None
        rows = sum(p.rows for p in pending.values())
        changed = {mirror.relid: ChangedSource(mirror.relid, window, rows)} if rows else {}
        names = ", ".join(f"c{i}" for i in range(len(table.columns)))
        row = texts("q", table.columns)
        wanted = f"SELECT {row} FROM ({query_as_of(parse_table(origin, there), changed)}) AS q({names})"
        if _digest(conn, stored) == _digest(origin, wanted):
            return 0, 0, cut
        mine, theirs = _counted(conn, stored), _counted(origin, wanted)
    return (theirs - mine).total(), (mine - theirs).total(), cut


def _digest(conn: Connection, query: str) -> tuple[object, ...]:
    hashed = "pg_catalog.hashtextextended(q.r, {})::numeric"
    row = conn.execute(
        f"SELECT count(*), sum({hashed.format(0)}), sum({hashed.format(77)}) FROM ({query}) AS q(r)"
    ).fetchone()
    assert row is not None
    return tuple(row)


def _counted(conn: Connection, query: str) -> Counter[str]:
    rows = conn.execute(f"SELECT q.r, count(*) FROM ({query}) AS q(r) GROUP BY q.r").fetchall()
    return Counter(dict(rows))
