"""The mirrors of one database: prepared at their origins, loaded, kept at one cut of each origin."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import Future
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING

from pgtrickle.db import catalog
from pgtrickle.db.connect import translated
from pgtrickle.db.discover import origin_dsn, server_label
from pgtrickle.db.run_concurrently import run_concurrently
from pgtrickle.db.statements import statement
from pgtrickle.define.compile import Compiled
from pgtrickle.define.prepare import MirrorReader, prepare_mirror
from pgtrickle.define.template_cache import TemplateCache
from pgtrickle.errors import EngineLostError, OriginAwayError, PgtrickleError, TransientError
from pgtrickle.mirror.refresh import MirrorRefresher, SharedRefresher
from pgtrickle.model.catalog import Mirror, StreamTable
from pgtrickle.model.flow import Frontier
from pgtrickle.model.reasons import Reason
from pgtrickle.origin.changes import MirrorRequest, OriginReading
from pgtrickle.origin.privileges import recheck
from pgtrickle.origin.sessions import OriginSessions
from pgtrickle.pipeline.engine.spark import SparkEngine
from pgtrickle.refresh.cost_model import Limits
from pgtrickle.refresh.decide import FULL, PREPARE
from pgtrickle.refresh.job import Outcome

if TYPE_CHECKING:
    from pgtrickle.db.connect import Connection


@dataclass(frozen=True, slots=True)
class _Followed:
    """All mirrors of an origin, where they can follow from a reading."""

    mirror: Mirror
    tables: Sequence[StreamTable]
    wants: Mapping[int, MirrorRequest]  # by mirror


@dataclass(frozen=True, slots=True)
class _PlannedOrigins:
    """`followed`: origins, by key, whose mirrors can follow from a reading that databases share, with what is compiled
    of them. `alone`: the mirrors of each other origin, which take a session there."""

    followed: Mapping[str, _Followed]
    compiled: Mapping[int, Compiled]
    alone: tuple[Sequence[StreamTable], ...]


class MirrorManager:
    """Shared by the workers of a database."""

    def __init__(
        self, dsn: str, engine: SparkEngine, cache: TemplateCache, origins: OriginSessions, max_buffer_rows: int
    ) -> None:
        self._dsn = dsn
        self._engine = engine
        self._cache = cache
        self._origins = origins
        self._reader: MirrorReader | None = None
        self.max_buffer_rows = max_buffer_rows  # of changes; a mirror has no other limit

    def refresh(self, home: Connection, tables: Sequence[StreamTable], changes_seen_at: float) -> list[Outcome]:
        """The mirrors of these origins, all of each: none may be at another cut than the others of its origin.

        `changes_seen_at`: when a poll found changes; a reading that began later has them. Origins are read
        concurrently, and what is there is written while others are waited for.
        """
        keys = list(dict.fromkeys(t.mirror.key for t in tables if t.mirror is not None))
        reader = self._as_reader(home)
        planned = self._planned(home, keys, reader)
        alone = list(planned.alone)
        outcomes: list[Outcome] = []
        changes_seen_at = changes_seen_at or time.monotonic()
        tasks = {key: partial(self._errand, f, changes_seen_at) for key, f in planned.followed.items()}
        for some in run_concurrently(tasks):
            outcomes += self._follow(home, planned, some, reader, alone)
        for apart in alone:
            outcomes += self._guarded(home, apart, partial(self._alone, home, apart))
        self.recheck(home, keys)
        return outcomes

    def _planned(self, home: Connection, keys: Sequence[str], reader: MirrorReader) -> _PlannedOrigins:
        """How the mirrors of each origin are refreshed."""
        with translated():
            found = [t for t in catalog.load_mirrors(home, keys) if t.is_in_place]
        followed: dict[str, _Followed] = {}
        held: dict[int, Compiled] = {}
        alone: list[Sequence[StreamTable]] = []
        for key in keys:
            own = [t for t in found if t.mirror is not None and t.mirror.key == key]
            wants = {t.pgt_id: want for t in own if (want := _want(t, reader.key)) is not None}
            known = {t.pgt_id: compiled for t in own if (compiled := self._cache.get(t)) is not None}
            if own and own[0].mirror is not None and len(wants) == len(known) == len(own):
                followed[key] = _Followed(own[0].mirror, own, wants)
                held |= known
            elif own:
                alone.append(own)
        return _PlannedOrigins(followed, held, tuple(alone))

    def _follow(
        self,
        home: Connection,
        planned: _PlannedOrigins,
        some: Iterable[tuple[str, Future[OriginReading]]],
        reader: MirrorReader,
        alone: list[Sequence[StreamTable]],
    ) -> list[Outcome]:
        """The mirrors of origins whose readings are there, in one transaction if possible."""
        followed = planned.followed
        refresher = SharedRefresher(home, self._engine, lambda t: planned.compiled.get(t.pgt_id), self._limits())
        outcomes: list[Outcome] = []
        for key, reading in some:
            begin = partial(self._begun, followed[key], reading, refresher, reader, alone)
            outcomes += self._guarded(home, followed[key].tables, begin)
        for key, ended, cut in refresher.end():
            outcomes += ended
            if cut is not None:
                self._origins.readings(key).moved(followed[key].wants.values(), cut)
                self._origins.note(key, reader.key, list(followed[key].wants), cut)
        return outcomes

    def recheck(self, home: Connection, keys: Sequence[str] | None = None) -> None:
        """What the authors of stream tables here may still read at these origins (None: all)."""
        with translated():
            if keys is None:
                found = home.execute("SELECT DISTINCT origin_key FROM pgtrickle.pgt_mirrors").fetchall()
                keys = [key for (key,) in found]
            mirrors = [t.mirror for t in catalog.load_mirrors(home, keys) if t.mirror is not None]
        for key in dict.fromkeys(m.key for m in mirrors):
            with suppress(TransientError):  # it is away, and nothing comes from it
                recheck(home, [m for m in mirrors if m.key == key], lambda m: self._origins.session(self._dsn, m))

    def _guarded(
        self, home: Connection, tables: Sequence[StreamTable], action: Callable[[], list[Outcome]]
    ) -> list[Outcome]:
        """One origin that is away, or has changed, delays its mirrors alone."""
        try:
            return action()
        except EngineLostError as error:
            return [Outcome(table, FULL, None, error) for table in tables]
        except TransientError as error:
            if home.closed or home.broken:
                raise
            away = error if isinstance(error, OriginAwayError) else OriginAwayError(error.message, hint=error.hint)
            return [Outcome(table, PREPARE, None, away) for table in tables]
        except PgtrickleError as error:
            return [Outcome(table, FULL, None, error) for table in tables]

    def _errand(self, followed: _Followed, changes_seen_at: float, deliver: Callable[[OriginReading], None]) -> None:
        """In a thread of its own: what has changed there. Where its readers are it is told when nobody waits for it."""
        key, wants = followed.mirror.key, list(followed.wants.values())
        readings = self._origins.readings(key)
        reading = readings.find(wants, changes_seen_at)
        if reading is not None:
            deliver(reading)
            return
        with self._origins.session(self._dsn, followed.mirror) as conn:
            deliver(readings.get(conn, wants, changes_seen_at))
            with suppress(PgtrickleError):  # it is told the next time
                self._origins.tell(conn, key)

    def _begun(
        self,
        followed: _Followed,
        coming: Future[OriginReading],
        refresher: SharedRefresher,
        reader: MirrorReader,
        alone: list[Sequence[StreamTable]],
    ) -> list[Outcome]:
        """From what is read for all databases, if that suits; otherwise they are added to `alone`."""
        reading = coming.result()
        outcomes: list[Outcome] | None = None
        if all(map(reading.serves, followed.wants.values())):
            outcomes = refresher.begin(followed.tables, reading, followed.wants, reader.key)
        if outcomes is None:
            alone.append(followed.tables)
        return outcomes or []

    def _alone(self, home: Connection, tables: Sequence[StreamTable]) -> list[Outcome]:
        """In a session of their own. One that is not loaded yet is loaded by itself, so that the others do not wait
        for it, and then follows."""
        mirror = tables[0].mirror
        assert mirror is not None
        with self._origins.session(self._dsn, mirror) as conn:
            latest: dict[int, Outcome] = {}
            for table in tables:
                if not table.is_populated or table.needs_reinit:
                    latest |= {o.table.pgt_id: o for o in self._move(home, conn, [table])}
            failed = {i for i, outcome in latest.items() if outcome.error is not None}
            if rest := [t for t in tables if t.pgt_id not in failed]:
                latest |= {o.table.pgt_id: o for o in self._move(home, conn, rest)}
            return list(latest.values())

    def _move(self, home: Connection, conn: Connection, tables: Sequence[StreamTable]) -> list[Outcome]:
        held: dict[int, Compiled] = {}
        failed: list[Outcome] = []

        def prepare(table: StreamTable, reload: Reason | None = None) -> None:
            """One whose table has changed there stops, and not the others."""
            held.pop(table.pgt_id, None)
            try:
                held[table.pgt_id] = self._prepared(home, conn, table, reload=reload)
            except TransientError:
                raise
            except PgtrickleError as error:
                failed.append(Outcome(table, FULL, None, error))

        for table in tables:
            if (compiled := self._cache.get(table)) is not None:
                held[table.pgt_id] = compiled
            else:
                prepare(table)
        reader = self._as_reader(home)
        refresher = MirrorRefresher(conn, home, self._engine, lambda t: held.get(t.pgt_id), self._limits())
        outcomes, cut = refresher.together(list(held), reader.key) if held else ([], None)
        unready = [o for o in outcomes if o.action == PREPARE and o.error is None]
        if unready:
            for outcome in unready:
                self._cache.drop(outcome.table.pgt_id)
                prepare(outcome.table, outcome.reason)
            outcomes, cut = refresher.together(list(held), reader.key) if held else ([], None)
        if cut is not None:
            assert tables[0].mirror is not None
            key = tables[0].mirror.key
            self._origins.note(key, reader.key, list(held), cut)
            self._origins.tell(conn, key)
        return failed + outcomes

    def _limits(self) -> Limits:
        return Limits(max_change_ratio=1.0, max_buffer_rows=self.max_buffer_rows)

    def _prepared(
        self, home: Connection, conn: Connection, table: StreamTable, *, reload: Reason | None = None
    ) -> Compiled:
        table, compiled = prepare_mirror(conn, home, table, self._as_reader(home), reload=reload)
        self._cache.put(table, compiled)
        return compiled

    def _as_reader(self, home: Connection) -> MirrorReader:
        if self._reader is None:
            with translated():
                instance = catalog.read_moment(home).instance
            self._reader = MirrorReader(instance.key, server_label(self._dsn), home.info.dbname)
        return self._reader

    def retire(self, home: Connection) -> int:
        """Drops mirrors that nobody reads. First their origins are told: one that is away keeps changes for them."""
        with translated():
            unused = [row[0] for row in home.execute("SELECT pgtrickle._unused_mirrors()").fetchall()]
            tables = catalog.load_stream_tables(home, unused) if unused else []
        dropped = 0
        for table in tables:
            mirror = table.mirror
            assert mirror is not None
            try:
                origin_dsn(self._dsn, self._origins.servers, mirror.server, mirror.database)
                with self._origins.session(self._dsn, mirror) as conn, translated():
                    conn.execute(
                        "DELETE FROM pgtrickle.pgt_readers WHERE reader_key = %s AND mirror_id = %s",
                        (self._as_reader(home).key, table.pgt_id),
                    )
            except TransientError:
                continue
            except PgtrickleError:
                pass  # no longer managed, or another database: nothing is kept there; or its server has left the fleet
            with translated():
                row = home.execute("SELECT pgtrickle._drop_mirror(%s)", (table.pgt_id,)).fetchone()
            dropped += bool(row and row[0])
        return dropped

    def unready(self, home: Connection, ids: Sequence[int]) -> Iterator[tuple[StreamTable, TransientError]]:
        """Of these tables those that cannot be refreshed now: a mirror that they read was never loaded, or two of one
        origin are at different cuts of it."""
        with translated():
            rows = home.execute(statement("mirrors_unready"), {"ids": list(ids)}).fetchall()
        if not rows:
            return
        why: dict[int, str] = dict(rows)
        for table in catalog.load_stream_tables(home, list(why)):
            yield table, OriginAwayError(why[table.pgt_id])


def _want(table: StreamTable, reader_key: str) -> MirrorRequest | None:
    """None: it has to be loaded."""
    assert table.mirror is not None
    cut = Frontier.cut_at(table.frontier, table.mirror.key)
    if cut is None or not table.is_populated or table.needs_reinit:
        return None
    return MirrorRequest((reader_key, table.pgt_id), table.mirror.relid, table.mirror.columns, cut)
