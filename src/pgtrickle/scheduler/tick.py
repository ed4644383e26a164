"""The tick of one database: detects changes, finds due tables, sends units to the pipeline, handles results."""

from __future__ import annotations

import logging
import math
import time
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

from pgtrickle.capture.catalog_watch import CatalogWatch
from pgtrickle.capture.detect import DetectedChanges, Detector
from pgtrickle.capture.trigger import WAKE_CHANNEL
from pgtrickle.db import catalog
from pgtrickle.db.connect import TRANSACTION, connect, pooler_of, translated
from pgtrickle.db.database_settings import SettingsWatch
from pgtrickle.db.statements import statement
from pgtrickle.db.version import require_version
from pgtrickle.define.restored import adopt_restored
from pgtrickle.errors import SourceChangedError
from pgtrickle.ipc.channel import DatabaseSettings, Define, Finished
from pgtrickle.ipc.pipeline_link import PipelineLink
from pgtrickle.maintain.feeds import FeedMaintainer
from pgtrickle.model.flow import Cut
from pgtrickle.model.reason_codes import CHANGES_BY_ITSELF
from pgtrickle.model.reasons import Reason, ReasonCode
from pgtrickle.model.work import CANCELLED, RETRYABLE, QueuedUnit, RefreshGroup, Unit
from pgtrickle.origin.tracker import MirroredSource, OriginChanges, OriginChangeTracker
from pgtrickle.refresh.preparation import unprepared
from pgtrickle.scheduler.graph import held
from pgtrickle.scheduler.graph_builder import GraphBuilder
from pgtrickle.scheduler.job_log import JobLog
from pgtrickle.scheduler.state import Row, ScheduleState
from pgtrickle.scheduler.units import Deferred, plan
from pgtrickle.settings import Settings, Sources, set_outside
from pgtrickle.telemetry import DRY_RUN, event

if TYPE_CHECKING:
    from pgtrickle.db.connect import Connection

log = logging.getLogger(__name__)

DEFINE_SECONDS = 5.0
SHARED_SECONDS = 30.0  # between two checks whether the origin of a foreign table is managed
_BY_CLOCK = sorted(code.value for code in CHANGES_BY_ITSELF)
NOWHERE = Cut(0, 0, ())  # everything is later than this
MOST_CHECKED = 200  # stream tables per tick whose sources were redefined; the others wait for the next ticks


class DatabaseScheduler:
    """Lives as long as its connection: all its state can be read again."""

    def __init__(
        self,
        conn: Connection,
        name: str,
        dsn: str,
        sources: Sources,
        link: PipelineLink,
        origin_changes: OriginChanges | None = None,
        *,
        is_home: bool = False,
    ) -> None:
        self._conn = conn
        self._is_home = is_home
        self._name = name
        self._dsn = dsn
        self._link = link
        self.origin_changes = origin_changes or OriginChangeTracker(dsn, (), sources)
        self._watch = SettingsWatch(name, sources, lambda: connect(dsn, role="settings", pooler=TRANSACTION))
        self.settings = Settings()
        self.state = "ACTIVE"
        self.ticks = 0
        self._tick_began = time.monotonic()
        self.has_found = False  # the latest tick: changes or events
        adopt_restored(conn)
        with translated():
            self.key = catalog.read_moment(conn).instance.key
        self._read_settings()
        with translated():
            if pooler_of(conn) != TRANSACTION:
                conn.execute("LISTEN pgtrickle_wake")
                conn.execute(f"LISTEN {WAKE_CHANNEL}")
        # Units of an earlier session, over a connection that is still open, are withdrawn and detected again.
        link.withdraw()
        self._job_log = JobLog(conn)
        self._job_log.abandoned("its scheduler or pipeline exited")
        # Changes after this cut are detected; earlier ones are part of the state that is loaded below.
        self._detector = Detector(())
        self._catalog_watch = CatalogWatch()
        self._unchecked: set[int] = set()  # stream tables that may read something that was redefined
        with translated():
            self._cut = self._detector.detect(conn, NOWHERE).cut
        self._schedule = ScheduleState(time.time(), tiered=self.settings.tiered_scheduling)
        self._deferred = Deferred()
        self._jobs: dict[int, Unit] = {}  # in flight
        self._began: dict[int, float] = {}
        self._losses = link.losses
        self._attempts: dict[str, int] = {}  # of units that failed and will be tried again
        self._graphs = GraphBuilder()
        self._held: dict[int, Reason] = {}
        self._define_at = 0.0  # when to check for pending definitions; initially at once
        self._mirrors: tuple[MirroredSource, ...] = ()
        self._mirrored: frozenset[int] = frozenset()
        self._feeds = FeedMaintainer(name, conn)
        self._feeds.maintain(self.settings, time.monotonic())
        self._reload(None)

    @property
    def in_flight(self) -> int:
        return len(self._jobs)

    @property
    def tables(self) -> int:
        """Stream tables, without mirrors."""
        return len(self._schedule) - len(self._mirrored)

    @property
    def given_settings(self) -> dict[str, dict[str, str]]:
        """What pgtrickle was started with: value and origin, by name."""
        return set_outside(self._watch.loaded) if self._watch.loaded is not None else {}

    @property
    def has_released(self) -> bool:
        """Whether tables wait for the next tick only: the upstream tables that they waited for have finished."""
        return bool(self._deferred.released)

    @property
    def has_due(self) -> bool:
        """Whether the next tick would find tables that are due, as far as changes are known."""
        return self.settings.enabled and (self.has_released or self._schedule.has_due(time.time()))

    @property
    def held(self) -> Mapping[int, Reason]:
        """Tables that wait for a failed one that they read, and why."""
        return self._held

    @property
    def seen(self) -> int:
        """Events of transactions before this one have been processed."""
        return self._cut.xmin

    def reload_settings(self) -> None:
        """ALTER DATABASE ... SET also affects a running scheduler."""
        self._read_settings()
        if self._schedule.tiered != self.settings.tiered_scheduling:
            self._schedule.tiered = self.settings.tiered_scheduling
            self._reload(None)  # all due times follow from it

    def _read_settings(self) -> None:
        with translated():
            settings = self._watch.read(self._conn).settings
        if settings == self.settings:
            return
        self.settings = settings
        self.state = "ACTIVE" if settings.enabled else "DISABLED"
        if self._link.is_open:
            self._link.send(self._hello())
            if not settings.enabled:
                self._link.withdraw()

    def tick(self) -> None:
        self.ticks += 1
        self._tick_began = time.monotonic()
        self.listen()
        self._detect()
        self._feeds.maintain(self.settings, time.monotonic())
        if (placed := self._graphs.take_built()) is not None:
            self._schedule.dirty(placed)
            self._hold()
        if not self.settings.enabled:
            return
        now = time.time()
        if not self._link.is_open:
            self.introduce()  # also a database without work is listed with its quota
        self._ask_for_definitions(now)
        if mirrors := self.origin_changes.poll(self.key, self.settings, now):
            self._changed([-pgt_id for pgt_id in mirrors])
        self._move_tiers(now)
        self._notice_loss()
        due = self._schedule.tick_input(now, self._deferred.waits.keys(), self._deferred.released)
        if due is None or not self.introduce():
            return
        planned = plan(self._graphs.graph, due)
        self._deferred.add(planned)
        if planned.units:
            self._submit(planned.units)
        self._schedule.passed(now)

    def introduce(self) -> bool:
        """Makes sure that the pipeline knows this database. False: not now."""
        return self._link.open(self._hello())

    def expedite(self, *, include_unchanged: bool = False) -> None:
        """The caller waits for this tick: failed tables are retried now, and definitions are processed before it.

        `include_unchanged`: tables whose schedule is due are refreshed even if no change was detected.
        """
        self._schedule.end_backoff()
        if include_unchanged:
            self._schedule.dirty(self._graphs.graph.nodes)
        self._define_at = 0.0
        self._ask_for_definitions(time.time())

    def maintain_feeds(self) -> None:
        """Immediately, whether or not an event has reported subscribers."""
        self._feeds.expect()
        self._feeds.maintain(self.settings, time.monotonic())

    def _ask_for_definitions(self, now: float) -> None:
        """Definitions that read other databases; retried if a database does not answer."""
        if now < self._define_at:
            return
        with translated():
            row = self._conn.execute(statement("definitions_wait")).fetchone()
        waits, is_shared = row or (False, False)
        self._define_at = now + (DEFINE_SECONDS if waits else SHARED_SECONDS if is_shared else math.inf)
        if (waits or is_shared) and self.introduce():
            self._link.send(Define())

    def next_due_time(self) -> float:
        """When a table may become due without an event, in seconds since the epoch."""
        if not self.settings.enabled:
            return math.inf
        poll = self.origin_changes.next_due_time(self.settings.scheduler_interval_ms / 1000)
        return min(poll, self._schedule.next_due_time(time.time()))

    def next_wake_time(self) -> float:
        """From when on a writer's commit makes a table due, in seconds since the epoch."""
        return self._schedule.next_wake_time() if self.settings.enabled else math.inf

    def _move_tiers(self, now: float) -> None:
        moved = self._schedule.demote(now) if self.settings.tiered_scheduling else {}
        if moved:
            with translated():
                self._conn.execute(statement("tiers_moved"), {"ids": list(moved), "tiers": list(moved.values())})
            self._reload(sorted(moved))

    # -- detection
    # ----------------------------------------------------------------------------------------------------

    def _detect(self) -> None:
        try:
            with translated():
                detected = self._detector.detect(self._conn, self._cut)
                if any(what == "capture" for _, what in detected.events):
                    # The buffers of new sources were not checked yet: they are, from the same cut.
                    self._reload_sources()
                    detected = self._detector.detect(self._conn, self._cut)
        except SourceChangedError:  # a buffer was dropped: a failing statement returns no events
            self._reload_sources()
            return
        self._cut = detected.cut
        self.has_found = bool(detected.changed or detected.events)
        is_redefined = detected.catalog_total not in (None, self._catalog_watch.total)
        self._changed(detected.changed)
        self._handle_events(detected)
        if is_redefined or self._unchecked:
            self._check_redefined()

    def _handle_events(self, detected: DetectedChanges) -> None:
        if not detected.events:
            return
        whats = {what for _, what in detected.events}
        if "install" in whats:
            require_version(self._conn)
        if "settings" in whats:
            self.reload_settings()
        if "clear_caches" in whats:
            self._link.clear_caches()
        if whats & {"define", "create", "alter"}:
            self._define_at = 0.0
        if whats & {"subscribe", "publish", "install"}:
            self._feeds.expect()
        if "install" in whats:
            self._reload(None)
        else:
            self._reload(sorted({i for i, _ in detected.events if i is not None}))
            if "group" in whats or self._read_mirrors() != self._mirrors:
                self._regraph(())

    def _check_redefined(self) -> None:
        """Stream tables that read something which was redefined or dropped are refreshed, whatever their schedule."""
        with translated():
            if objects := self._catalog_watch.changed(self._conn):
                rows = self._conn.execute(statement("readers_of_objects"), {"objects": list(objects)}).fetchall()
                readers = [row[0] for row in rows]
                self._unchecked.update(readers)
                if readers and self._catalog_watch.load(self._conn, readers):  # a partition was attached
                    self._reload_sources()
            some = sorted(self._unchecked)[:MOST_CHECKED]
            self._schedule.redefined(unprepared(self._conn, some))
            self._unchecked.difference_update(some)

    def _changed(self, relids: Iterable[int]) -> None:
        readers = {i for relid in relids for i in self._graphs.graph.readers.get(relid, ())}
        if not readers:
            return
        for name in self._schedule.changed(sorted(readers), time.time()):
            with translated():
                detail = "its tier is pinned to frozen, and changes are pending"
                self._conn.execute("SELECT pgtrickle._alert('frozen_with_changes', %s, %s)", (name, detail))

    def _reload_sources(self) -> None:
        with translated():
            rows = self._conn.execute(statement("captured_sources")).fetchall()
        self._detector = Detector(sorted(row[0] for row in rows), self._catalog_watch.query)

    def _reload(self, ids: Sequence[int] | None) -> None:
        """Reloads all stream tables, or these."""
        if ids is not None and not ids:
            return
        with translated():
            rows = self._conn.execute(statement("schedule_rows"), {"ids": ids, "by_clock": _BY_CLOCK}).fetchall()
            if self._catalog_watch.load(self._conn, ids) or ids is None:
                self._reload_sources()
        changed = self._schedule.load((Row(r[0], r[1], tuple(r[2]), *r[3:]) for r in rows), ids, time.time())
        if changed or ids is None:
            self._regraph(changed)
        self._hold()

    def _regraph(self, changed: Collection[int]) -> None:
        with translated():
            rows = self._conn.execute(statement("refresh_groups")).fetchall()
        self._mirrors = self._read_mirrors()
        self._mirrored = frozenset(m.pgt_id for m in self._mirrors)
        self.origin_changes.watch(self._mirrors)
        groups = [RefreshGroup(n, tuple(m), i) for n, m, i in rows]
        # All mirrors of one origin are at one snapshot of it (ADR 19).
        stored = [m for m in self._mirrors if m.is_stored]
        for key in dict.fromkeys(m.origin for m in stored):
            members = tuple(m.pgt_id for m in stored if m.origin == key)
            groups.append(RefreshGroup(f"origin {key}", members, "repeatable_read"))
        self._graphs.build(changed, self._schedule.rows(), groups)

    def _read_mirrors(self) -> tuple[MirroredSource, ...]:
        with translated():
            return tuple(MirroredSource(*row) for row in self._conn.execute(statement("mirrors")).fetchall())

    def _hold(self) -> None:
        """Readers of a failed table wait for it, with a reason. So do tables that the graph does not contain yet."""
        waiting = held(self._graphs.graph, self._schedule.failed())
        self._schedule.hold({*waiting, *self._graphs.unknown})
        if waiting == self._held:
            return
        with translated():
            self._conn.execute(
                statement("held"),
                {
                    "ids": list(waiting),
                    "reasons": [str(reason) for reason in waiting.values()],
                    "code": ReasonCode.WAITS_FOR_STREAM_TABLE.value,
                },
            )
        self._held = waiting

    # -- dispatch and results
    # ---------------------------------------------------------------------------------------

    def _submit(self, units: Sequence[Unit]) -> None:
        if self.settings.parallel_refresh_mode == "dry_run" and len(units) > 1:
            log.info(
                "dry_run: these units would run in parallel; they run one after the other",
                extra=event(DRY_RUN, database=self._name, units=", ".join(u.key for u in units)),
            )
        ids = self._job_log.queued(units, self._attempts, time.monotonic() - self._tick_began)
        jobs = [QueuedUnit(i, unit, self._changes_seen_at(unit)) for i, unit in zip(ids, units, strict=True)]
        for job in jobs:
            self._jobs[job.job_id] = job.unit
        self._schedule.queued(units)
        self._began |= dict.fromkeys((job.job_id for job in jobs), time.time())
        if not self._link.submit(jobs):
            self.abandon("the pipeline exited")

    def _changes_seen_at(self, unit: Unit) -> float | None:
        """Its mirrors must be read at or after this time. A requested refresh needs the current state."""
        if not self._mirrored or not (mirrors := self._mirrored.intersection(unit.members)):
            return None
        if any(self._schedule.is_asked(pgt_id) for pgt_id in unit.members):
            return time.monotonic()
        return max(self.origin_changes.changes_seen_at.get(pgt_id, 0.0) for pgt_id in mirrors)

    def listen(self) -> bool:
        """Handles messages of the pipeline. True: an early tick may find due tables."""
        messages = self._link.receive()
        for message in messages:
            self._finished(message)
        self._notice_loss()
        ended = [result for m in messages for result in m.results if result.branch == "ok"]
        if any(result.action != "NO_DATA" for result in ended):
            return True
        # One that was requested while it, or another table of its unit, was in progress does not wait for the tick.
        return bool(messages) and self._schedule.has_asked(time.time())

    def _notice_loss(self) -> None:
        """The connection was lost, even if it is open again: the pipeline does not know earlier messages."""
        if self._link.losses != self._losses:
            self._losses = self._link.losses
            self.abandon("the pipeline exited")

    def _finished(self, message: Finished) -> None:
        message = replace(message, jobs=tuple(job for job in message.jobs if job[0] in self._jobs))
        self._job_log.finished(message)
        results = {f.pgt_id: f for f in message.results}
        again: set[int] = set()
        now = time.time()
        for job_id, status, _, _ in message.jobs:
            unit, began = self._jobs.pop(job_id), self._began.pop(job_id)
            if status == RETRYABLE:
                self._attempts[unit.key] = self._attempts.get(unit.key, 0) + 1
            else:
                self._attempts.pop(unit.key, None)
            for pgt_id in unit.members:
                own = results.get(pgt_id)
                branch = own.branch if own is not None else ("cancelled" if status == CANCELLED else "ok")
                if self._schedule.finished(pgt_id, branch, began, now):
                    again.add(pgt_id)
                self._deferred.done(pgt_id)
        self._reload(sorted(again))

    def abandon(self, why: str) -> None:
        """No results of units in progress will arrive; committed refreshes stay committed."""
        if not self._jobs:
            return
        self._job_log.abandoned(why)
        members = [i for unit in self._jobs.values() for i in unit.members]
        self._jobs.clear()
        self._began.clear()
        for pgt_id in members:
            self._schedule.finished(pgt_id, "cancelled", 0.0, 0.0)
            self._deferred.done(pgt_id)
        self._reload(sorted(set(members)))

    def _hello(self) -> DatabaseSettings:
        return DatabaseSettings(self.key, self._name, self._dsn, self.settings, self._is_home)
