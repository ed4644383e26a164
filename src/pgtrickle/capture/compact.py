"""Compacts buffers that a slow reader keeps long: an I and a D of one image cancel if no cut lies between them.

What a reader gets is a sum: the images of its window, from its cut to a later one, with their signs. Taking away an I
and a D of equal images leaves the sums of all windows that have both or neither of them. So it is exact when no cut
lies between the two, neither a current nor a future cut of a reader.

* Known cuts. A cut sees all transactions before its xmax but those that were open. Between two neighbouring xmax of
  known cuts, the open ones left out, every cut sees all or nothing: that is a region, and only rows of one region
  are netted.
* Future cuts. Rows are netted of transactions before a horizon, the xmin of a snapshot: all later cuts see all of them.
* Cuts of running refreshes. A running refresh has taken its cut and not committed it. It keeps the transaction with
  that snapshot open until it has (and asks it for a sign of life last of all, see Refresher._write). So we wait until
  the transactions that ran when the horizon was taken have ended; and then, because a session may break, until those
  have that ran at that moment. Whoever commits a cut now took it after the horizon.
* Mirrors in other databases may have committed a cut and not reported it. They are informed (pgt_readers.netted), and
  one whose cut is inside the compacted range is loaded again. To make this rare, nothing is netted past
  the position of those that have reported in the last minute.
* Subscribers may have any role, so we do not wait for them. They lock their row before they take a cut and store it
  there when they are offered it: our update of the row comes after that, and we know the cut, or before, and their cut
  is later than the horizon. Where they cut a long window short they must not do so before the horizon while we delete;
  afterwards they may: of what was netted there is nothing on either side.
* Refreshes that read meanwhile do so in one snapshot: it sees all of what a statement of ours deletes, or nothing.
* Changes that a replication slot of a publication has not confirmed are not netted.
* Trimming may take one row of a pair first: then every reader has seen both.

Images are compared as texts, as everywhere: json and point have no equality, and 1.0 is not 1.00. A column that
was added to the buffer later is NULL in older rows; whoever reads that column stands at a cut after them. Of the 'T'
rows of a region one is as good as all.

Rows are only deleted, those of one share of the images per transaction, so that no statement deletes without bound.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, nullcontext, suppress
from dataclasses import dataclass

from pgtrickle.db import Connection, statement, translated
from pgtrickle.errors import PgtrickleError, TransientError
from pgtrickle.model.flow import Cut
from pgtrickle.model.identifiers import buffer_name

PART_ROWS = 100_000  # images that one statement nets
MOST_PARTS = 32  # each reads the whole buffer
GROWTH = 1.25  # a buffer that could not be compacted is tried again when it has grown by this factor
_LOCK = 0x7067_636D << 32  # "pgcm": with the source's oid below it, one netting at a time
_WAIT = "SET LOCAL lock_timeout = '100ms'"  # for a subscriber that is reading, in its own transaction
_AMBIGUOUS = (24, 2203)  # regproc, regoper: the texts of two of them may be equal

Bounded = Callable[[], AbstractContextManager[object]]


@dataclass(frozen=True, slots=True)
class XidRegions:
    """Regions of transactions that no reader can distinguish. `edges` ascend; `left_out` belong to no region."""

    lowest: int
    horizon: int
    edges: tuple[int, ...]
    left_out: tuple[int, ...]

    @classmethod
    def between(cls, cuts: Sequence[Cut], horizon: int) -> XidRegions:
        """Below `lowest` all readers have read everything: that is left to trimming."""
        lowest = min((c.xmin for c in cuts), default=0)
        edges = sorted({c.xmax for c in cuts if c.xmax < horizon})
        left_out = sorted({x for c in cuts for x in c.open_xids if x < horizon})
        return cls(lowest, horizon, tuple(edges), tuple(left_out))


class SnapshotHorizon:
    """A horizon, and whether all transactions whose cut may be before it have ended."""

    def __init__(self, conn: Connection) -> None:
        self.horizon, self._running = _holders(conn)
        self._is_second = False

    def has_come(self, conn: Connection) -> bool:
        if _is_running(conn, self._running):
            return False
        if not self._is_second:
            _, self._running = _holders(conn)
            self._is_second = True
        return not _is_running(conn, self._running)


class Compactor:
    """Remembers between its rounds what it waits for, and the size of each buffer after compaction."""

    def __init__(self) -> None:
        self._quiet: SnapshotHorizon | None = None
        self._due: dict[int, int] = {}
        self._left: dict[int, int] = {}

    @property
    def is_waiting(self) -> bool:
        return self._quiet is not None

    def round(self, conn: Connection, threshold: int, *, bounded: Bounded = nullcontext) -> dict[int, int]:
        """Rows deleted per source whose buffer was compacted. `conn` is in autocommit mode.

        `bounded` cancels what runs too long inside it. A source that fails does not delay the others.
        """
        with translated():
            if self._quiet is None:
                counts = {relid: self._count(conn, relid) for relid in crowded(conn, threshold)}
                self._left = {relid: rows for relid, rows in self._left.items() if counts.get(relid, 0) > threshold}
                self._due = {r: n for r, n in counts.items() if n > max(threshold, GROWTH * self._left.get(r, 0))}
                if not self._due:
                    return {}
                self._quiet = SnapshotHorizon(conn)
            if not self._quiet.has_come(conn):
                return {}
        horizon, self._quiet = self._quiet.horizon, None
        deleted: dict[int, int] = {}
        failure: PgtrickleError | None = None
        for relid, rows in self._due.items():
            try:
                deleted[relid] = compact(conn, relid, horizon, rows, bounded=bounded)
            except TransientError:
                continue
            except PgtrickleError as error:
                failure = error
            self._left[relid] = rows - deleted.get(relid, 0)
        if failure is not None:
            raise failure
        return deleted

    def _count(self, conn: Connection, relid: int) -> int:
        """Rows that a reader has not read."""
        with conn.transaction():
            lowest = XidRegions.between(_cuts(conn, relid), 0).lowest
            row = conn.execute(
                f"SELECT count(*) FROM {buffer_name(relid)} AS b WHERE b.xid >= %s::text::xid8", [str(lowest)]
            ).fetchone()
        return 0 if row is None else int(row[0])


def crowded(conn: Connection, threshold: int) -> list[int]:
    """Sources whose buffers may hold more rows than that. 0: no threshold."""
    if not threshold:
        return []
    with translated():
        return [row[0] for row in conn.execute(statement("crowded_buffers"), {"rows": threshold}).fetchall()]


def compact(conn: Connection, relid: int, horizon: int, rows: int, *, bounded: Bounded = nullcontext) -> int:
    """Rows deleted. The caller has waited until all cuts before the horizon are known; `rows`: about how many."""
    with translated():
        with conn.transaction():
            conn.execute(_WAIT)
            row = conn.execute(statement("lively_readers"), {"relid": relid}).fetchone()
            if row is not None and row[0] is not None:
                horizon = min(horizon, int(row[0]))
            conn.execute(statement("fence_readers"), {"relid": relid, "horizon": str(horizon)})
            conn.execute(statement("fence_subscribers"), {"relid": relid, "horizon": str(horizon)})
            trimming = conn.execute(statement("trim_horizon"), {"relid": relid}).fetchone()
            regions = XidRegions.between(_cuts(conn, relid), horizon)
            columns = conn.execute(statement("buffer_columns"), {"relid": relid}).fetchall()
        parts = min(MOST_PARTS, -(-rows // PART_ROWS))
        text = _netting(relid, [_image(name, typid) for name, typid in columns], parts)
        params = {
            "horizon": str(regions.horizon),
            "lowest": str(regions.lowest),
            "edges": [str(x) for x in regions.edges],
            "left_out": [str(x) for x in regions.left_out],
            "confirmed": None if trimming is None else trimming[3],
        }
        deleted = 0
        for part in range(parts):
            with bounded(), translated(), conn.transaction():
                row = conn.execute("SELECT pg_try_advisory_xact_lock(%s)", [_LOCK | relid]).fetchone()
                if row is None or not row[0]:
                    break  # two concurrent compactions could each rely on a row that the other deletes
                deleted += conn.execute(text, {**params, "part": part}).rowcount
        with suppress(TransientError), translated(), conn.transaction():  # otherwise the next compaction does it
            conn.execute(_WAIT)
            conn.execute(statement("release_subscribers"), {"relid": relid})
    return deleted


def _netting(relid: int, image: Sequence[str], parts: int) -> str:
    """OFFSET 0: an image is made once. Pairs of a group are as many as its rarer sign."""
    buffer = buffer_name(relid)
    share = f"WHERE abs(hashtextextended(i.image, 0) %% {parts:d}) = %(part)s" if parts > 1 else ""
    places = ", ".join(f"array_agg(i.place) FILTER (WHERE i.action = '{a}') AS {a}" for a in "IDT")
    return f"""
DELETE FROM {buffer}
WHERE ctid = ANY (ARRAY(
    SELECT unnest(g.I[:p.pairs] || g.D[:p.pairs] || g.T[2:])
    FROM (
        SELECT {places}
        FROM (
            SELECT b.ctid AS place, b.action, b.xid, ROW({", ".join(image)})::text COLLATE "C" AS image
            FROM {buffer} AS b
            WHERE b.xid >= %(lowest)s::text::xid8
              AND b.xid < %(horizon)s::text::xid8
              AND (%(confirmed)s::pg_lsn IS NULL OR b.lsn <= %(confirmed)s::pg_lsn)
              AND NOT EXISTS (SELECT FROM unnest(%(left_out)s::text[]::xid8[]) AS o (xid) WHERE o.xid = b.xid)
            OFFSET 0
        ) AS i
        {share}
        GROUP BY width_bucket(i.xid, %(edges)s::text[]::xid8[]), i.image
        HAVING count(*) > 1
    ) AS g
    CROSS JOIN LATERAL (SELECT least(coalesce(cardinality(g.I), 0), coalesce(cardinality(g.D), 0))) AS p (pairs)
))
"""


def _image(column: str, typid: int) -> str:
    return f"b.{column}::oid" if typid in _AMBIGUOUS else f"b.{column}"


def _cuts(conn: Connection, relid: int) -> list[Cut]:
    return [Cut.parse(row[0]) for row in conn.execute(statement("reader_cuts"), {"relid": relid}).fetchall()]


def _holders(conn: Connection) -> tuple[int, list[str]]:
    row = conn.execute(statement("cut_holders")).fetchone()
    assert row is not None
    return int(row[0]), row[1]


def _is_running(conn: Connection, transactions: list[str]) -> bool:
    if not transactions:
        return False
    row = conn.execute(statement("still_running"), {"transactions": transactions}).fetchone()
    return row is None or bool(row[0])
