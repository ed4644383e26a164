"""Compares a mirror with its table at the origin, at the mirror's cut; copies tables of origins at cuts.

Each side is read at its own snapshot; rows are compared by their texts, first by count and sums of hashes, and
row by row only if these differ.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from dataclasses import replace
from typing import TYPE_CHECKING

from pgtrickle.capture.fingerprint import fingerprints_for_others
from pgtrickle.db import catalog
from pgtrickle.db.connect import begin
from pgtrickle.define.compile import parse_table
from pgtrickle.define.renames import is_renamed_there
from pgtrickle.model.catalog import Mirror, StreamTable, as_at_origin
from pgtrickle.model.fingerprint import unchanged
from pgtrickle.model.flow import Cut, Frontier, Window
from pgtrickle.model.identifiers import qualified, quote_ident
from pgtrickle.origin.changes import Place, positions
from pgtrickle.origin.sessions import OriginSessions, render_alike
from pgtrickle.pipeline.codec import encoded, exact, texts
from pgtrickle.pipeline.differentiate.linear import ChangedSource
from pgtrickle.pipeline.render.whole import query_as_of
from pgtrickle.pipeline.text.references import references_to
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
        if is_renamed_there(origin, table):
            return None
        content = _content_at(origin, as_at_origin(table), mirror, (key, table.pgt_id), cut)
        if content is None:
            return None  # it was truncated, changes may have been trimmed or compacted, or the mirror has advanced
        names = ", ".join(f"c{i}" for i in range(len(table.columns)))
        wanted = f"SELECT {texts('q', table.columns)} FROM ({content}) AS q({names})"
        if _digest(conn, stored) == _digest(origin, wanted):
            return 0, 0, cut
        mine, theirs = _counted(conn, stored), _counted(origin, wanted)
    return (theirs - mine).total(), (mine - theirs).total(), cut


def _content_at(origin: Connection, there: StreamTable, mirror: Mirror, reader: Place, cut: Cut) -> str | None:
    """A query for the content of the mirror's table at the cut, which this reader has reached; None: it is gone."""
    position = positions(origin).get(reader)
    if position is None or position.cut is None or not position.cut.precedes(cut) or not position.allows(cut):
        return None
    window = Window(cut, catalog.read_moment(origin).cut)
    pending, _ = read_pending(origin, [(mirror.relid, window, None)])
    if any(p.truncated for p in pending.values()):
        return None
    rows = sum(p.rows for p in pending.values())
    changed = {mirror.relid: ChangedSource(mirror.relid, window, rows)} if rows else {}
    return query_as_of(parse_table(origin, there), changed)


def copy_at_cuts(
    conn: Connection, table: StreamTable, dsn: str, origins: OriginSessions
) -> Callable[[str], str] | None:
    """Temporary copies of the tables of other databases that a stream table reads, at its cuts, in the transaction of
    `conn`. Returns what replaces the mirrors without rows by them in a query; None: a table cannot be read at its cut.
    """
    render_alike(conn)
    key = catalog.read_moment(conn).instance.key
    mirrors = {t.pgt_id: t for t in catalog.load_stream_tables(conn, [r.mirror_id for r in table.remotes])}
    for remote in table.remotes:
        cut = Frontier.cut_at(table.frontier, remote.key)
        if cut is None:
            return None
        with origins.session(dsn, remote.mirror) as origin:
            begin(origin, "ISOLATION LEVEL REPEATABLE READ READ ONLY")
            there = _as_named_now(origin, mirrors[remote.mirror_id], remote.mirror)
            reader = (key, remote.mirror_id)
            content = None if there is None else _content_at(origin, there, remote.mirror, reader, cut)
            if content is None:
                return None
            _copy(origin, content, conn, mirrors[remote.mirror_id])
    keywords = catalog.keywords(conn)

    def copied(query: str) -> str:
        for mirror in mirrors.values():
            for place in references_to(query, (mirror.schema, mirror.name), keywords):
                query = place.replaced(query, "pg_temp", mirror.name)
        return query

    return copied


def _as_named_now(origin: Connection, table: StreamTable, mirror: Mirror) -> StreamTable | None:
    """A mirror without rows as its origin sees it, by the present names; None: the table was altered."""
    fingerprint = fingerprints_for_others(origin, [mirror.relid]).get(mirror.relid)
    relations = catalog.relations(origin, [mirror.relid])
    if not relations or not unchanged(mirror.fingerprint, fingerprint, mirror.columns):
        return None
    names = {column.attnum: quote_ident(column.name) for column in relations[0].columns}
    listed = ", ".join(f"m.{names[attnum]}" for attnum in mirror.columns)
    query = f"SELECT {listed} FROM {qualified(relations[0].schema, relations[0].name)} AS m"
    return as_at_origin(replace(table, query=query))


def _copy(origin: Connection, content: str, conn: Connection, mirror: StreamTable) -> None:
    """Into a temporary table with the name of the mirror."""
    listed = ", ".join(quote_ident(c.name) for c in mirror.columns)
    name = quote_ident(mirror.name)
    stored = qualified(mirror.schema, mirror.name)
    conn.execute(f"CREATE TEMPORARY TABLE {name} ON COMMIT DROP AS SELECT {listed} FROM {stored} WITH NO DATA")
    with (
        origin.cursor() as there,
        conn.cursor() as here,
        there.copy(f"COPY ({content}) TO STDOUT") as rows,
        here.copy(f"COPY pg_temp.{name} FROM STDIN") as copy,
    ):
        for data in rows:
            copy.write(data)


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
