"""The changes at an origin, read once for all databases that mirror its tables.

One snapshot, one statement per table: each change has its transaction id, so that every reader takes what its own
frontier does not contain. A reading serves every reader that was informed of changes before it began. If it exceeds
a limit of memory, each reader reads for itself.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Generator, Iterable, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, cast

from pgtrickle.db import catalog
from pgtrickle.db.connect import begin, chunk_size, translated
from pgtrickle.db.statements import statement
from pgtrickle.errors import SourceChangedError
from pgtrickle.model.fingerprint import of_history
from pgtrickle.model.flow import WEIGHTS, Cut, Pending, Position, Window
from pgtrickle.model.identifiers import buffer_name
from pgtrickle.pipeline.codec import encoded, exact

if TYPE_CHECKING:
    from pgtrickle.db.connect import Connection

MAX_ROWS_PER_READING = 20_000  # of one table in one reading
MOST_BYTES = 32 << 20  # of one reading
ASKED_SECONDS = 5.0  # a reader that has asked recently will ask again: its changes are read, too

KEEP_SECONDS = 60.0  # then the rows of a reading are released

Shape = tuple[int, ...]  # the columns that a reader needs, in its order
Place = tuple[str, int]  # database and mirror


@dataclass(frozen=True, slots=True)
class MirrorRequest:
    """One mirror: the table at the origin, its columns, its position."""

    place: Place
    relid: int
    shape: Shape
    since: Cut
    reading: str | None = None  # that brought it there; None: from before readings had tokens


@dataclass(frozen=True, slots=True)
class OriginRows:
    """Changes of one table since a cut: transaction id, action, the row in each of the shapes."""

    since: Cut
    shapes: Mapping[Shape, int]
    rows: Sequence[tuple[str, ...]]
    bytes: int

    def later(self, want: MirrorRequest) -> list[tuple[str, str]]:
        """Action and row of the changes that this reader has not read."""
        position = 2 + self.shapes[want.shape]
        return [(row[1], row[position]) for row in self.rows if not want.since.sees(int(row[0]))]


@dataclass(frozen=True, slots=True)
class OriginReading:
    """An origin at one cut. A table that is missing from `tables` had more changes than are kept."""

    begun: float  # by the monotonic clock
    moment: catalog.ReadPoint
    positions: Mapping[Place, Position]
    prints: Mapping[int, str | None]
    tables: Mapping[int, OriginRows]
    token: str = ""
    known: frozenset[str] = frozenset()  # earlier readings that the origin has noted, and this one

    def serves(self, want: MirrorRequest) -> bool:
        rows = self.tables.get(want.relid)
        return (
            rows is not None
            and (want.reading is None or want.reading in self.known)
            and want.shape in rows.shapes
            and rows.since.precedes(want.since)
            and want.since.precedes(self.moment.cut)
        )

    def pending(self, want: MirrorRequest) -> Pending:
        changes = self.tables[want.relid].later(want)
        rows = sum(action != "T" for action, _ in changes)
        return Pending(rows, any(action == "T" for action, _ in changes), not changes)

    def signed(self, want: MirrorRequest) -> list[tuple[int, str]]:
        """Weight and row."""
        changes = self.tables[want.relid].later(want)
        return [(WEIGHTS[action], row) for action, row in changes if action in WEIGHTS]


@dataclass(slots=True)
class _Asked:
    want: MirrorRequest
    at: float


@dataclass(slots=True)
class OriginReader:
    """Readings of one origin. A caller that arrives during a reading waits, and uses the result if it is suitable."""

    taken: int = 0
    _lock: threading.Lock = field(default_factory=threading.Lock)
    _latest: OriginReading | None = None
    _asked: dict[Place, _Asked] = field(default_factory=dict)

    def find(self, wants: Sequence[MirrorRequest], changes_seen_at: float) -> OriginReading | None:
        """A reading that began after these readers were informed of changes and contains all of them; None: read
        again."""
        latest = self._latest
        if latest is None or latest.begun < changes_seen_at or not all(map(latest.serves, wants)):
            return None
        return latest

    def get(self, conn: Connection, wants: Sequence[MirrorRequest], changes_seen_at: float) -> OriginReading:
        with self._lock:
            reading = self.find(wants, changes_seen_at)
            if reading is None:
                now = time.monotonic()
                self._asked |= {want.place: _Asked(want, now) for want in wants}
                self._asked = {p: a for p, a in self._asked.items() if now - a.at <= ASKED_SECONDS}
                try:
                    reading = self._latest = read(conn, [a.want for a in self._asked.values()])
                except SourceChangedError:  # a table of another reader may not exist any more: that reader handles it
                    reading = self._latest = read(conn, wants)
                self.taken += 1
            return reading

    def let_go(self, now: float) -> None:
        """Readers that were informed of changes before it began have had enough time to use it."""
        latest = self._latest
        if latest is not None and now - latest.begun > KEEP_SECONDS:
            self._latest = None

    def moved(self, wants: Iterable[MirrorRequest], cut: Cut) -> None:
        """These readers have reached the cut: the next reading need not begin earlier for them."""
        with self._lock:
            latest = self._latest
            token = latest.token if latest is not None and latest.moment.cut == cut else None
            for want in wants:
                moved = MirrorRequest(want.place, want.relid, want.shape, cut, token)
                self._asked[want.place] = _Asked(moved, time.monotonic())


def read(conn: Connection, wants: Sequence[MirrorRequest]) -> OriginReading:
    """All of these, in one snapshot."""
    begun = time.monotonic()
    with translated():
        begin(conn, "ISOLATION LEVEL REPEATABLE READ READ ONLY")
        try:
            relids = sorted({w.relid for w in wants})
            with conn.pipeline():  # in one round trip
                cursors = [conn.execute(statement(name)) for name in ("cut", "timeline")]
                cursors += [
                    conn.execute(statement("reader_positions")),
                    conn.execute(statement("fingerprints"), {"relids": relids}),
                ]
                cursors += [conn.execute(statement("buffer_types"), {"relids": relids})]
                tokens = sorted({w.reading for w in wants if w.reading is not None})
                cursors += [conn.execute(statement("readings_known"), {"tokens": tokens})]
            ((cut,), ((timeline,),), places, fingerprint_rows, types, seen) = (cursor.fetchall() for cursor in cursors)
            moment = catalog.moment_of(cut)
            known = _positions(places)
            prints: dict[int, str | None] = dict.fromkeys(relids) | dict(of_history(timeline, dict(fingerprint_rows)))
            typed: dict[int, dict[str, int]] = dict(types)
            tables: dict[int, OriginRows] = {}
            room = MOST_BYTES
            for relid in relids:
                own = [w for w in wants if w.relid == relid and w.since.precedes(moment.cut)]
                if (
                    own
                    and prints[relid] is not None
                    and (rows := _rows(conn, relid, own, moment.cut, room, typed.get(relid, {}))) is not None
                ):
                    room -= rows.bytes
                    if room < 0:
                        break
                    tables[relid] = rows
        finally:
            conn.rollback()
        token = note_reading(conn, moment.cut)
    return OriginReading(begun, moment, known, prints, tables, token, frozenset({token, *(row[0] for row in seen)}))


def note_reading(conn: Connection, cut: Cut) -> str:
    """Notes at the origin that this cut was read, in a transaction of its own; the token that mirrors keep with it."""
    with translated(), conn.transaction():
        row = conn.execute(statement("reading_noted"), {"cut": str(cut)}).fetchone()
    assert row is not None
    return str(row[0])


def known_readings(conn: Connection, tokens: Iterable[str | None]) -> frozenset[str]:
    """Those of these readings that the origin has noted."""
    known = sorted({token for token in tokens if token is not None})
    return frozenset(row[0] for row in conn.execute(statement("readings_known"), {"tokens": known}).fetchall())


def positions(conn: Connection) -> dict[Place, Position]:
    """The position of each mirror as the origin knows it."""
    return _positions(conn.execute(statement("reader_positions")).fetchall())


def _positions(rows: Sequence[tuple[Any, ...]]) -> dict[Place, Position]:
    return {
        (key, mirror): Position(
            None if snapshot is None else Cut.parse(snapshot), None if netted is None else int(netted)
        )
        for key, mirror, snapshot, netted in rows
    }


def _rows(
    conn: Connection, relid: int, wants: Sequence[MirrorRequest], cut: Cut, room: int, types: Mapping[str, int]
) -> OriginRows | None:
    """None: too many. Stops fetching above `room` bytes. `types`: of columns
    whose type is not PostgreSQL's own."""
    since = min((w.since for w in wants), key=lambda c: (c.xmax, c.xmin, -len(c.open_xids)))
    if not all(since.precedes(w.since) for w in wants):
        return None
    shapes = {shape: number for number, shape in enumerate(dict.fromkeys(w.shape for w in wants))}
    texts = "".join(f", {encoded([exact(f'b.c{a:d}', types.get(str(a), 0)) for a in shape])}" for shape in shapes)
    query = (
        f"SELECT b.xid::text, b.action::text{texts} FROM {buffer_name(relid)} AS b "
        f"WHERE {Window(since, cut).predicate('b.xid')} LIMIT {MAX_ROWS_PER_READING + 1}"
    )
    rows: list[tuple[str, ...]] = []
    taken = 0
    with conn.cursor() as cursor:
        stream = cast("Generator[tuple[Any, ...]]", cursor.stream(query, size=chunk_size()))
        with closing(stream):
            for row in stream:
                taken += sum(len(text or "") for text in row[2:])
                if taken > room:
                    break
                rows.append(row)
    return None if len(rows) > MAX_ROWS_PER_READING else OriginRows(since, shapes, rows, taken)
