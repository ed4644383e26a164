"""The mirrors of one database: prepared at their origins, loaded, and refreshed to one cut of each origin."""

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
from pgtrickle.define.renames import ANEW
from pgtrickle.define.template_cache import TemplateCache
from pgtrickle.errors import (
    EngineLostError,
    OriginAwayError,
    OriginReplacedError,
    PgtrickleError,
    SourceChangedError,
    TransientError,
)
from pgtrickle.mirror.refresh import MirrorRefresher, SharedRefresher
from pgtrickle.model.catalog import Mirror, StreamTable
from pgtrickle.model.flow import Cut, Frontier
from pgtrickle.model.reasons import Reason, ReasonCode, named
from pgtrickle.origin.changes import MirrorRequest, OriginReading, note_reading
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
    """All mirrors of an origin that can be refreshed from a shared read."""

    mirror: Mirror
    tables: Sequence[StreamTable]
    wants: Mapping[int, MirrorRequest]  # by mirror


@dataclass(frozen=True, slots=True)
class _PlannedOrigins:
    """`followed`: origins, by key, whose mirrors can be refreshed from a read that databases share, with their compiled
    mirrors. `alone`: the mirrors of each other origin, which need a session there."""

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
        """Refreshes all mirrors of these origins: all mirrors of an origin must be at the same cut.

        `changes_seen_at`: when a poll detected changes; a read that began later contains them. Origins are read
        concurrently, and finished reads are written while others are still running.
        """
        keys = list(dict.fromkeys(t.mirror.key for t in tables if t.mirror is not None))
        reader = self._as_reader(home)
        planned = self._planned(home, keys, reader, [t.pgt_id for t in tables])
        alone = list(planned.alone)
        outcomes: list[Outcome] = []
        changes_seen_at = changes_seen_at or time.monotonic()
        tasks = {key: partial(self._read_task, f, changes_seen_at) for key, f in planned.followed.items()}
        for some in run_concurrently(tasks):
            outcomes += self._follow(home, planned, some, reader, alone)
        for apart in alone:
            outcomes += self._guarded(home, apart, partial(self._alone, home, apart))
        self.recheck(home, keys)
        return outcomes

    def _planned(
        self, home: Connection, keys: Sequence[str], reader: MirrorReader, asked_ids: Iterable[int]
    ) -> _PlannedOrigins:
        """How the mirrors of each origin are refreshed. `asked`: those that are due."""
        with translated():
            stored = [t for t in catalog.load_mirrors(home, keys) if t.is_in_place and t.mirror and t.mirror.is_stored]
            broken = [
                t for t in catalog.load_stream_tables(home, list(asked_ids)) if t.status == "ERROR" and t.is_in_place
            ]
        followed: dict[str, _Followed] = {}
        held: dict[int, Compiled] = {}
        alone: list[Sequence[StreamTable]] = []
        for key in keys:
            own = [t for t in stored if t.mirror is not None and t.mirror.key == key]
            wants = {t.pgt_id: want for t in own if (want := _want(t, reader.key)) is not None}
            known = {t.pgt_id: compiled for t in own if (compiled := self._cache.get(t)) is not None}
            if own and own[0].mirror is not None and len(wants) == len(known) == len(own):
                followed[key] = _Followed(own[0].mirror, own, wants)
                held |= known
            elif own:
                alone.append(own)
        # A failed mirror is retried by itself, so that the others do not wait for it.
        return _PlannedOrigins(followed, held, (*alone, *([t] for t in broken)))

    def _follow(
        self,
        home: Connection,
        planned: _PlannedOrigins,
        some: Iterable[tuple[str, Future[OriginReading]]],
        reader: MirrorReader,
        alone: list[Sequence[StreamTable]],
    ) -> list[Outcome]:
        """Refreshes the mirrors of origins whose reads have finished, in one transaction if possible."""
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
        """Checks the privileges of authors of local stream tables at these origins (None: all)."""
        with translated():
            if keys is None:
                keys = [key for (key,) in home.execute(statement("origins_mirrored")).fetchall()]
            mirrors = [t.mirror for t in catalog.load_mirrors(home, keys) if t.mirror is not None]
        for key in dict.fromkeys(m.key for m in mirrors):
            with suppress(TransientError):  # unreachable, so nothing is read from it
                recheck(home, [m for m in mirrors if m.key == key], lambda m: self._origins.session(self._dsn, m))

    def _guarded(
        self, home: Connection, tables: Sequence[StreamTable], action: Callable[[], list[Outcome]]
    ) -> list[Outcome]:
        """An origin that is unreachable or has changed affects only its own mirrors."""
        try:
            return action()
        except EngineLostError as error:
            return [Outcome(table, FULL, None, error) for table in tables]
        except OriginReplacedError as error:
            return [Outcome(table, PREPARE, None, self.seek(home, table, error)) for table in tables]
        except TransientError as error:
            if home.closed or home.broken:
                raise
            away = error if isinstance(error, OriginAwayError) else OriginAwayError(error.message, hint=error.hint)
            return [Outcome(table, PREPARE, None, away) for table in tables]
        except PgtrickleError as error:
            return [Outcome(table, FULL, None, error) for table in tables]

    def seek(self, home: Connection, table: StreamTable, error: OriginReplacedError) -> PgtrickleError:
        """Another database has the name of its origin, or another table that of the mirrored one: the table is searched
        by name, and loaded from there next time. Returns a transient error, or the error that stops it."""
        mirror = table.mirror
        assert mirror is not None
        name = mirror.database if not mirror.server else f"{mirror.database}@{mirror.server}"
        try:
            with self._origins.visit(self._dsn, name) as (conn, place), translated():
                relation = catalog.find_relation(conn, mirror.schema, mirror.table)
            numbers = {column.name: column.attnum for column in relation.columns}
            missing = [column.name for column in table.columns if column.name not in numbers]
            if missing:
                replaced = "the table that replaced it" if error.relid else "the database that replaced its origin"
                return SourceChangedError(f"{mirror.name} has no column {missing[0]} in {replaced}", hint=ANEW)
            parameters = {"id": table.pgt_id, "key": place.key, "relid": relation.relid}
            parameters |= {"columns": [numbers[column.name] for column in table.columns]}
            reason = Reason.of(ReasonCode.ORIGIN_REPLACED)
            if error.relid is not None:
                reason = Reason.of(ReasonCode.SOURCE_CREATED_AGAIN, table=mirror.name)
            with translated(), home.transaction():
                home.execute(statement("origin_replaced"), {**parameters, **named(reason)})
                home.execute("SELECT pgtrickle._wake('alter', %s)", (table.pgt_id,))
        except TransientError as away:
            return away
        except PgtrickleError as lost:
            return SourceChangedError(f"{error.message}, and {lost.message}", hint=ANEW)
        return error

    def _read_task(self, followed: _Followed, changes_seen_at: float, deliver: Callable[[OriginReading], None]) -> None:
        """Reads the changes of an origin in its own thread; then reports the positions of readers to it."""
        key, wants = followed.mirror.key, list(followed.wants.values())
        readings = self._origins.readings(key)
        reading = readings.find(wants, changes_seen_at)
        if reading is not None:
            deliver(reading)
            return
        with self._origins.session(self._dsn, followed.mirror) as conn:
            deliver(readings.get(conn, wants, changes_seen_at))
            with suppress(PgtrickleError):  # reported next time
                self._origins.tell(conn, key)

    def _begun(
        self,
        followed: _Followed,
        coming: Future[OriginReading],
        refresher: SharedRefresher,
        reader: MirrorReader,
        alone: list[Sequence[StreamTable]],
    ) -> list[Outcome]:
        """Begins refreshes from shared reads; mirrors for which this is impossible are added to `alone`."""
        reading = coming.result()
        outcomes: list[Outcome] | None = None
        if all(map(reading.serves, followed.wants.values())):
            outcomes = refresher.begin(followed.tables, reading, followed.wants, reader.key)
        if outcomes is None:
            alone.append(followed.tables)
        return outcomes or []

    def _alone(self, home: Connection, tables: Sequence[StreamTable]) -> list[Outcome]:
        """Refreshes mirrors in a session at their origin. A mirror without content is loaded by itself, so that the
        others do not wait for it."""
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
            """A mirror whose table has changed at the origin stops, or moves to the one that has its name; the others
            continue."""
            held.pop(table.pgt_id, None)
            try:
                held[table.pgt_id] = self._prepared(home, conn, table, reload=reload)
            except OriginReplacedError as error:
                failed.append(Outcome(table, PREPARE, None, self.seek(home, table, error)))
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
        mirror = tables[0].mirror
        assert mirror is not None

        def note(cut: Cut) -> str:
            with self._origins.session(self._dsn, mirror) as beside:
                return note_reading(beside, cut)

        outcomes, cut = refresher.together(list(held), reader.key, note) if held else ([], None)
        unready = [o for o in outcomes if o.action == PREPARE and o.error is None]
        if unready:
            for outcome in unready:
                self._cache.drop(outcome.table.pgt_id)
                prepare(outcome.table, outcome.reason)
            outcomes, cut = refresher.together(list(held), reader.key, note) if held else ([], None)
        if cut is not None:
            self._origins.note(mirror.key, reader.key, list(held), cut)
            self._origins.tell(conn, mirror.key)
        return failed + outcomes

    def _limits(self) -> Limits:
        return Limits(max_change_ratio=1.0, max_buffer_rows=self.max_buffer_rows)

    def _prepared(
        self, home: Connection, conn: Connection, table: StreamTable, *, reload: Reason | None = None
    ) -> Compiled:
        table, compiled = prepare_mirror(conn, home, table, self._as_reader(home), reload=reload, store=self._cache)
        self._cache.put(table, compiled)
        return compiled

    def _as_reader(self, home: Connection) -> MirrorReader:
        if self._reader is None:
            with translated():
                instance = catalog.read_moment(home).instance
            self._reader = MirrorReader(instance.key, server_label(self._dsn), home.info.dbname)
        return self._reader

    def retire(self, home: Connection) -> int:
        """Drops mirrors without readers, after deregistering them: an unreachable origin keeps changes for them."""
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
                    reader = {"reader": self._as_reader(home).key, "mirror": table.pgt_id}
                    conn.execute(statement("reader_forget"), reader)
            except TransientError:
                continue
            except PgtrickleError:
                pass  # no longer managed, or another database: no changes are kept there; or its server left the fleet
            with translated():
                row = home.execute("SELECT pgtrickle._drop_mirror(%s)", (table.pgt_id,)).fetchone()
            dropped += bool(row and row[0])
        return dropped

    def unready(self, home: Connection, ids: Sequence[int]) -> Iterator[tuple[StreamTable, TransientError]]:
        """Those of these tables that cannot be refreshed now: a mirror that they read was never loaded, or two mirrors
        of one origin are at different cuts."""
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
    token = Frontier.reading_at(table.frontier, table.mirror.key)
    return MirrorRequest((reader_key, table.pgt_id), table.mirror.relid, table.mirror.columns, cut, token)
