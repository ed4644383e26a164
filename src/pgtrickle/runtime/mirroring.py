"""The mirrors of one database: prepared at their origins, loaded, kept at one cut of each origin."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING

from pgtrickle.db import catalog
from pgtrickle.db.connect import translated
from pgtrickle.db.discover import origin_dsn, server_label
from pgtrickle.db.statements import statement
from pgtrickle.errors import OriginAwayError, PgtrickleError, TransientError
from pgtrickle.model.catalog import Mirror, StreamTable
from pgtrickle.model.flow import Frontier
from pgtrickle.pipeline.spark import SparkEngine
from pgtrickle.runtime.compile import Compiled
from pgtrickle.runtime.decide import FULL, PREPARE
from pgtrickle.runtime.job import Outcome
from pgtrickle.runtime.mirrors import MirrorRefresher, SharedRefresher, run_together
from pgtrickle.runtime.origins import Origins
from pgtrickle.runtime.prepare import Reader, prepare_mirror
from pgtrickle.runtime.readings import Reading, Want
from pgtrickle.runtime.templatecache import TemplateCache
from pgtrickle.scheduler.cost import Limits

if TYPE_CHECKING:
    from pgtrickle.db.connect import Connection


@dataclass(frozen=True, slots=True)
class _Move:
    """Mirrors of one origin, on their way through Spark together with those of others."""

    key: str
    tables: Sequence[StreamTable]
    wants: Mapping[int, Want]
    refresher: SharedRefresher


class Mirroring:
    """Shared by the workers of a database."""

    def __init__(
        self, dsn: str, engine: SparkEngine, cache: TemplateCache, origins: Origins, max_buffer_rows: int
    ) -> None:
        self._dsn = dsn
        self._engine = engine
        self._cache = cache
        self._origins = origins
        self._reader: Reader | None = None
        self.max_buffer_rows = max_buffer_rows  # of changes; a mirror has no other limit

    def refresh(self, home: Connection, tables: Sequence[StreamTable], noticed: float) -> list[Outcome]:
        """The mirrors of these origins, all of each: none may be at another cut than the others of its origin.

        `noticed`: when somebody looked and found changes; a reading that began later has them.
        """
        outcomes: list[Outcome] = []
        moves: list[_Move] = []
        for key in dict.fromkeys(t.mirror.key for t in tables if t.mirror is not None):
            with translated():
                ids = [row[0] for row in home.execute(statement("mirrors_of"), {"key": key}).fetchall()]
                own = [t for t in catalog.load_stream_tables(home, ids) if t.is_in_place]
            if own:
                outcomes += self._guarded(home, own, partial(self._begun, home, own, noticed, moves))
        run_together([move.refresher for move in moves])
        for move in moves:
            outcomes += self._guarded(home, move.tables, partial(self._ended, home, move))
        return outcomes

    def _guarded(
        self, home: Connection, tables: Sequence[StreamTable], action: Callable[[], list[Outcome]]
    ) -> list[Outcome]:
        """One origin that is away, or has changed, delays its mirrors alone."""
        try:
            return action()
        except TransientError as error:
            if home.closed or home.broken:
                raise
            away = error if isinstance(error, OriginAwayError) else OriginAwayError(error.message, hint=error.hint)
            return [Outcome(table, PREPARE, None, away) for table in tables]
        except PgtrickleError as error:
            return [Outcome(table, FULL, None, error) for table in tables]

    def _begun(
        self, home: Connection, tables: Sequence[StreamTable], noticed: float, moves: list[_Move]
    ) -> list[Outcome]:
        """From what is read for all databases, if that suits; then it is added to `moves`."""
        mirror = tables[0].mirror
        assert mirror is not None
        reader = self._as_reader(home)
        held = {table.pgt_id: self._cache.get(table) for table in tables}
        wants = {table.pgt_id: want for table in tables if (want := _want(table, reader.key)) is not None}
        if len(wants) == len(tables) and all(held.values()):
            reading = self._reading(mirror, list(wants.values()), noticed or time.monotonic())
            if all(map(reading.serves, wants.values())):
                refresher = SharedRefresher(
                    reading, wants, home, self._engine, lambda t: held[t.pgt_id], self._limits()
                )
                outcomes = refresher.begin([t.pgt_id for t in tables], reader.key)
                if outcomes is not None:
                    if refresher.jobs:
                        moves.append(_Move(mirror.key, tables, wants, refresher))
                    return outcomes
        return self._alone(home, mirror, tables)

    def _reading(self, mirror: Mirror, wants: Sequence[Want], noticed: float) -> Reading:
        readings = self._origins.readings(mirror.key)
        reading = readings.find(wants, noticed)
        if reading is None:
            with self._origins.session(self._dsn, mirror) as conn:
                self._origins.tell(conn, mirror.key)
                reading = readings.get(conn, wants, noticed)
        return reading

    def _ended(self, home: Connection, move: _Move) -> list[Outcome]:
        outcomes, cut = move.refresher.end()
        if cut is not None:
            self._origins.readings(move.key).moved(move.wants.values(), cut)
            self._origins.note(move.key, self._as_reader(home).key, [t.pgt_id for t in move.tables], cut)
        return outcomes

    def _alone(self, home: Connection, mirror: Mirror, tables: Sequence[StreamTable]) -> list[Outcome]:
        """In a session of their own. One that is not loaded yet is loaded by itself, so that the others do not wait
        for it, and then follows."""
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

        def prepare(table: StreamTable, reload: str | None = None) -> None:
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
        self, home: Connection, conn: Connection, table: StreamTable, *, reload: str | None = None
    ) -> Compiled:
        compiled = prepare_mirror(conn, home, table, self._as_reader(home), reload=reload)
        self._cache.put(table, compiled)
        return compiled

    def _as_reader(self, home: Connection) -> Reader:
        if self._reader is None:
            with translated():
                instance = catalog.read_moment(home).instance
            self._reader = Reader(instance.key, server_label(self._dsn), home.info.dbname)
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


def _want(table: StreamTable, reader_key: str) -> Want | None:
    """None: it has to be loaded."""
    assert table.mirror is not None
    cut = Frontier.cut_at(table.frontier, table.mirror.key)
    if cut is None or not table.is_populated or table.needs_reinit:
        return None
    return Want((reader_key, table.pgt_id), table.mirror.relid, table.mirror.columns, cut)
