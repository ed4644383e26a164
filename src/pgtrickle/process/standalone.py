"""One database without a control plane: every stream table that is due, in the calling thread. `pgtrickle refresh`, and
wherever turns have to happen one by one."""

from __future__ import annotations

import time
from collections.abc import Iterable
from datetime import UTC, datetime

from pgtrickle.db import catalog
from pgtrickle.db.connect import connect, translated
from pgtrickle.dispatch.managed_database import ManagedDatabase
from pgtrickle.maintain.feeds import FeedMaintainer
from pgtrickle.maintain.tidy import Cleaner
from pgtrickle.model.catalog import StreamTable
from pgtrickle.model.work import Node
from pgtrickle.origin.sessions import OriginSessions
from pgtrickle.pipeline.engine.spark import SparkEngine
from pgtrickle.refresh.job import Outcome
from pgtrickle.refresh.wave import WaveRefresher
from pgtrickle.scheduler.graph import Graph
from pgtrickle.scheduler.schedule import is_due
from pgtrickle.scheduler.units import TickInput, plan
from pgtrickle.settings import Settings

REFRESHED = ("INITIALIZING", "ACTIVE")


class StandaloneRunner:
    """Holds its connections until it is closed."""

    def __init__(
        self, name: str, dsn: str, engine: SparkEngine, settings: Settings, origins: OriginSessions | None = None
    ) -> None:
        self._origins = origins or OriginSessions()
        self.site = ManagedDatabase(name, dsn, settings, engine, self._origins)
        self.control = connect(dsn, role="control", autocommit=True, pooler=settings.connection_pooler_mode)
        try:
            self.worker = self.site.take()
        except BaseException:
            self.control.close()
            raise
        self._settings = settings
        self._tidier = Cleaner(name, dsn, self.control)
        self._feeds = FeedMaintainer(name, self.control)

    def close(self) -> None:
        self.worker.close()
        self.control.close()
        self._origins.close()

    @property
    def refresher(self) -> WaveRefresher:
        return self.worker.refresher

    def tick(self, changes_seen_at: float = 0.0) -> list[Outcome]:
        """Every table that is due. Those that read one another move at one instant, the others in a wave."""
        self.site.define_with(self.control)
        with translated():
            tables = {t.pgt_id: t for t in catalog.load_stream_tables(self.control)}
        now = datetime.now(UTC)
        cycles = _graph(tables.values()).cycles
        # Of a cycle all go, or none does.
        wanted = {i for t in tables.values() if _wants_refresh(t, now) for i in cycles.get(t.pgt_id, (t.pgt_id,))}
        free = {i for i in wanted if all(tables[j].status in REFRESHED for j in cycles.get(i, (i,)))}
        graph = _graph(tables[i] for i in sorted(free))
        return self.worker.run(plan(graph, TickInput(due=(), asked=sorted(free))).units, changes_seen_at)

    def tidy(self) -> None:
        self._feeds.expect()  # nobody has listened for events
        self._feeds.turn(self._settings, time.monotonic())
        self._tidier.tidy(self._settings)

    def finish_tidying(self, seconds: float) -> None:
        """Buffers are indexed and netted out beside the turns."""
        if self._tidier.beside is not None:
            self._tidier.beside.join(seconds)


def _graph(tables: Iterable[StreamTable]) -> Graph:
    return Graph.of(
        Node(t.pgt_id, t.relid, tuple(s.relid for s in t.captured), t.schedule, t.refresh_mode) for t in tables
    )


def _wants_refresh(table: StreamTable, now: datetime) -> bool:
    if table.refresh_requested:
        return True
    if not table.is_populated:  # created with initialize => false, and nobody has asked for it yet
        return False
    # IMMEDIATE looks at every turn, whatever its schedule.
    is_now = table.needs_reinit or table.refresh_mode == "IMMEDIATE"
    return is_now or is_due(table.schedule, table.last_refresh_at, now)
