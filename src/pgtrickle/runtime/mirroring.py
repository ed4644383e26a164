"""The mirrors of one database: prepared at their origins, loaded, kept at one cut of each origin."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

from pgtrickle.db import catalog
from pgtrickle.db.connect import translated
from pgtrickle.db.discover import server_label
from pgtrickle.db.statements import statement
from pgtrickle.errors import OriginAwayError, PgtrickleError, TransientError
from pgtrickle.model.catalog import StreamTable
from pgtrickle.pipeline.spark import SparkEngine
from pgtrickle.runtime.compile import Compiled
from pgtrickle.runtime.decide import FULL, PREPARE
from pgtrickle.runtime.mirrors import MirrorRefresher
from pgtrickle.runtime.origins import Origins
from pgtrickle.runtime.prepare import Reader, prepare_mirror
from pgtrickle.runtime.refresh import Outcome
from pgtrickle.runtime.templatecache import TemplateCache
from pgtrickle.scheduler.cost import Limits

if TYPE_CHECKING:
    from pgtrickle.db.connect import Connection

# A mirror has no other way: it is kept from its changes.
_LIMITS = Limits(max_change_ratio=1.0, max_buffer_rows=0)


class Mirroring:
    """Shared by the workers of a database."""

    def __init__(self, dsn: str, engine: SparkEngine, cache: TemplateCache, origins: Origins) -> None:
        self._dsn = dsn
        self._engine = engine
        self._cache = cache
        self._origins = origins
        self._reader: Reader | None = None

    def refresh(self, home: Connection, tables: Sequence[StreamTable]) -> list[Outcome]:
        """These mirrors of one origin, and all others of it: none may be at another cut.

        One that is not loaded yet is loaded by itself, so that the others do not wait for it, and then follows.
        """
        mirror = tables[0].mirror
        assert mirror is not None
        with translated():
            ids = [row[0] for row in home.execute(statement("mirrors_of"), {"key": mirror.key}).fetchall()]
            tables = [t for t in catalog.load_stream_tables(home, ids) if t.is_in_place]
        try:
            with self._origins.session(self._dsn, mirror) as conn:
                outcomes: list[Outcome] = []
                for table in tables:
                    if not table.is_populated or table.needs_reinit:
                        outcomes += self._move(home, conn, [table])
                if any(o.error is not None for o in outcomes):
                    return outcomes
                latest = {o.table.pgt_id: o for o in [*outcomes, *self._move(home, conn, tables)]}
                return list(latest.values())
        except TransientError as error:
            if home.closed or home.broken:
                raise
            away = error if isinstance(error, OriginAwayError) else OriginAwayError(error.message, hint=error.hint)
            return [Outcome(table, PREPARE, None, away) for table in tables]
        except PgtrickleError as error:
            return [Outcome(table, FULL, None, error) for table in tables]

    def _move(self, home: Connection, conn: Connection, tables: Sequence[StreamTable]) -> list[Outcome]:
        held: dict[int, Compiled] = {}
        for table in tables:
            held[table.pgt_id] = self._cache.get(table) or self._prepared(home, conn, table)
        refresher = MirrorRefresher(conn, home, self._engine, lambda t: held.get(t.pgt_id), _LIMITS)
        ids = [table.pgt_id for table in tables]
        outcomes = refresher.together(ids, self._as_reader(home).key)
        unready = [o for o in outcomes if o.action == PREPARE and o.error is None]
        if unready:
            for outcome in unready:
                self._cache.drop(outcome.table.pgt_id)
                held[outcome.table.pgt_id] = self._prepared(home, conn, outcome.table, reload=outcome.reason)
            outcomes = refresher.together(ids, self._as_reader(home).key)
        return outcomes

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
