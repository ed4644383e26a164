"""Refreshes mirrors: the tables of one origin that are mirrored in one database, all to one cut of the origin.

They move together, in one transaction: whoever reads several of them in one snapshot sees the origin at one instant.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from typing import TYPE_CHECKING

from pgtrickle.apply.commit import RefreshRecord
from pgtrickle.capture.fingerprint import fingerprints_for_others
from pgtrickle.db import catalog
from pgtrickle.db.connect import translated
from pgtrickle.db.statements import statement
from pgtrickle.define.compile import Compiled
from pgtrickle.define.renames import is_renamed_there
from pgtrickle.errors import FencedError, InvariantError, OriginAwayError, PgtrickleError, TransientError
from pgtrickle.model.catalog import StreamTable, as_at_origin
from pgtrickle.model.flow import Cut, Frontier, Pending, Position, Timings
from pgtrickle.model.reasons import Reason, ReasonCode
from pgtrickle.origin.changes import MirrorRequest, OriginReading, Place, positions
from pgtrickle.origin.sessions import render_alike
from pgtrickle.pipeline.engine import frames
from pgtrickle.refresh.cost_model import Limits
from pgtrickle.refresh.decide import DIFFERENTIAL, FULL, NO_DATA, PREPARE, Decision
from pgtrickle.refresh.deltas import MIRROR_ROWS, net
from pgtrickle.refresh.job import Outcome, TableRefresh
from pgtrickle.refresh.pending import Wanted, read_pending
from pgtrickle.refresh.wave import WaveRefresher

if TYPE_CHECKING:
    from pgtrickle.db.connect import Connection
    from pgtrickle.pipeline.engine.spark import SparkEngine

_RENAMED = "a table of the origin was renamed while it was read"


class MirrorRefresher(WaveRefresher):
    """`reader` is a session in the origin, `writer` one in the database of the mirrors."""

    _known: dict[int, Position]

    def together(self, ids: Sequence[int], reader_key: str) -> tuple[list[Outcome], Cut | None]:
        """All mirrors of one origin, and where they are then. When one of them has to be prepared first, nothing is
        done."""
        with translated(), self._snapshot():
            moment = catalog.read_moment(self.reader)
            self._known = _of_reader(positions(self.reader), reader_key)
            jobs, outcomes = self._begin(catalog.load_stream_tables(self.writer, ids), moment)
            if not jobs:
                return outcomes, None
            self._compute(jobs, moment)
            return self._end(jobs, moment)

    def _begin(
        self, tables: Sequence[StreamTable], moment: catalog.ReadPoint
    ) -> tuple[list[TableRefresh], list[Outcome]]:
        """What is to be done; without jobs: why not. The epoch tells if another worker moves one of them meanwhile."""
        tables = [self._adapted(table) for table in tables]
        unready = [
            Outcome(t, PREPARE, Reason.of(ReasonCode.MIRROR_UNKNOWN)) for t in tables if t.pgt_id not in self._known
        ]
        if unready:
            return [], unready
        outcomes: list[Outcome] = []
        jobs = self._plan(tables, moment, outcomes)
        unready = [o for o in outcomes if o.error is not None or o.action == PREPARE]
        if unready:
            return [], unready
        if not jobs and len({str(t.frontier) for t in tables}) == 1:
            return [], outcomes
        started = datetime.now(UTC)
        return jobs + [self._follower(o.table, started) for o in outcomes], []

    def _end(self, jobs: Sequence[TableRefresh], moment: catalog.ReadPoint) -> tuple[list[Outcome], Cut | None]:
        failed = next((job for job in jobs if job.error is not None), None)
        if failed is not None and failed.error is not None:
            return _held_up(jobs, failed.table, failed.error), None
        written = self._commit(jobs, moment)
        return written, moment.cut if all(o.error is None for o in written) else None

    def _follower(self, table: StreamTable, started: datetime) -> TableRefresh:
        """A mirror without changes goes along: its content is the same at the new cut."""
        compiled = self.compiled(table)
        if compiled is None:
            raise InvariantError(f"{table.full_name} was not prepared")
        job = TableRefresh(table, compiled, Decision(NO_DATA), None, {}, table.fingerprints, started, Timings())
        job.is_silent = True
        return job

    def _commit(self, jobs: Sequence[TableRefresh], moment: catalog.ReadPoint) -> list[Outcome]:
        at_fault: StreamTable | None = None
        try:
            with translated(), self.writer.transaction():
                render_alike(self.writer)
                outcomes = self._write(jobs, moment, "SCHEDULER")
                for outcome in outcomes:
                    if outcome.error is not None:
                        at_fault = outcome.table
                        raise outcome.error
                if self._are_renamed(jobs):
                    raise FencedError(_RENAMED)
                self._keep_prints(jobs)
        except PgtrickleError as error:
            if not isinstance(error, TransientError) and self._are_renamed(jobs):
                error = FencedError(_RENAMED)
            return _held_up(jobs, at_fault, error)
        return outcomes

    def _are_renamed(self, jobs: Sequence[TableRefresh]) -> bool:
        """Loads read by the names of now, whatever the snapshot: it may have been another table, or none."""
        loaded = [job.table for job in jobs if job.is_load]
        if loaded and self.reader.info.transaction_status.name == "INERROR":
            self.reader.rollback()
        return any(is_renamed_there(self.reader, table) for table in loaded)

    def _keep_prints(self, jobs: Sequence[TableRefresh]) -> None:
        found = {job.table.pgt_id: next(iter(job.fingerprints.values())) for job in jobs}
        was = {job.table.pgt_id: job.table.mirror and job.table.mirror.fingerprint for job in jobs}
        if changed := {i: text for i, text in found.items() if text != was[i]}:
            self.writer.execute(
                statement("mirror_fingerprints"), {"ids": list(changed), "fingerprints": list(changed.values())}
            )

    def _record(self, job: TableRefresh, moment: catalog.ReadPoint, initiated_by: str) -> RefreshRecord:
        """Fingerprints are kept with the mirror: it depends on nothing in its database."""
        return replace(super()._record(job, moment, initiated_by), fingerprints={})

    def _adapted(self, table: StreamTable) -> StreamTable:
        """As its origin sees it. One whose position there does not fit its own is loaded anew."""
        table = as_at_origin(table)
        assert table.mirror is not None
        cut = Frontier.cut_at(table.frontier, table.mirror.key)
        if cut is None or table.needs_reinit:
            return table
        position = self._known.get(table.pgt_id)
        if position is not None and position.cut is not None and not position.cut.precedes(cut):
            return replace(table, needs_reinit=True, reinit_reason=Reason.of(ReasonCode.MIRROR_BEHIND))
        if position is not None and not position.allows(cut):
            return replace(table, needs_reinit=True, reinit_reason=Reason.of(ReasonCode.MIRROR_NETTED))
        return table

    def _plan(
        self, tables: Sequence[StreamTable], moment: catalog.ReadPoint, outcomes: list[Outcome]
    ) -> list[TableRefresh]:
        """The mode of a mirror is DIFFERENTIAL; one that is too far behind is loaded all the same."""
        jobs = super()._plan(tables, moment, outcomes)
        most = self.limits.max_buffer_rows
        for job in jobs:
            rows = sum(p.rows for p in job.pending.values())
            if job.decision.action == DIFFERENTIAL and most and rows > most:
                job.decision = Decision(FULL, Reason.of(ReasonCode.MAX_BUFFER_ROWS, rows=rows, limit=most))
        return jobs

    def _read(self, job: TableRefresh, cut: Cut) -> None:
        """Few rows go to the apply statement as they come, which nets and identifies them: nothing is left to Spark."""
        super()._read(job, cut)
        if job.leaf is not None and len(job.leaf) <= MIRROR_ROWS:
            job.arrays, job.leaf = [job.leaf[name].to_pylist() for name in ("w", "k")], None

    def _prints(self, relids: Sequence[int]) -> Mapping[int, str | None]:
        return fingerprints_for_others(self.reader, relids)

    def _pending(self, wanted: Sequence[Wanted]) -> tuple[dict[Wanted, Pending], dict[int, float]]:
        return read_pending(self.reader, wanted)


@dataclass(frozen=True, slots=True)
class _Share:
    """What a reading of an origin has for these mirrors."""

    reading: OriginReading
    jobs: Sequence[TableRefresh]


class SharedRefresher(MirrorRefresher):
    """The same from readings that were taken for several databases, of one origin or of several. It loads nothing."""

    def __init__(
        self,
        home: Connection,
        engine: SparkEngine,
        compiled: Callable[[StreamTable], Compiled | None],
        limits: Limits,
    ) -> None:
        super().__init__(home, home, engine, compiled, limits)
        self._reading: OriginReading
        self._wants: Mapping[int, MirrorRequest] = {}  # by mirror
        self._shares: dict[str, _Share] = {}  # by origin

    def begin(
        self, tables: Sequence[StreamTable], reading: OriginReading, wants: Mapping[int, MirrorRequest], reader_key: str
    ) -> list[Outcome] | None:
        """Takes the changes of one origin. None: one of the mirrors has to be loaded or prepared, which takes a session
        there. Outcomes: there is nothing to do."""
        self._reading, self._wants = reading, wants
        self._known = _of_reader(reading.positions, reader_key)
        jobs, outcomes = self._begin(tables, reading.moment)
        if any(o.action == PREPARE for o in outcomes):
            return None
        for job in jobs:
            self._read(job, reading.moment.cut)
        if jobs:
            self._shares[reading.moment.instance.key] = _Share(reading, jobs)
        return outcomes

    def end(self) -> Iterator[tuple[str, list[Outcome], Cut | None]]:
        """Origin, outcomes, where its mirrors are then. All origins in one transaction; when one fails, each in its
        own, so that it fails alone."""
        jobs = [job for share in self._shares.values() for job in share.jobs]
        if not jobs:
            return
        net(self.engine, jobs)
        self._arrange_all(jobs, self._reading.moment)
        outcomes: list[Outcome] = []
        if len(self._shares) > 1 and all(job.error is None for job in jobs):
            outcomes = self._commit(jobs, self._reading.moment)
        if outcomes and all(o.error is None for o in outcomes):
            for key, share in self._shares.items():
                own = {job.table.pgt_id for job in share.jobs}
                yield key, [o for o in outcomes if o.table.pgt_id in own], share.reading.moment.cut
        else:
            for key, share in self._shares.items():
                yield key, *self._end(share.jobs, share.reading.moment)

    def _record(self, job: TableRefresh, moment: catalog.ReadPoint, initiated_by: str) -> RefreshRecord:
        if job.table.mirror is not None:
            moment = self._shares[job.table.mirror.key].reading.moment
        return super()._record(job, moment, initiated_by)

    def _plan(
        self, tables: Sequence[StreamTable], moment: catalog.ReadPoint, outcomes: list[Outcome]
    ) -> list[TableRefresh]:
        jobs = super()._plan(tables, moment, outcomes)
        outcomes += [Outcome(job.table, PREPARE) for job in jobs if job.is_load]
        return jobs

    def _prints(self, relids: Sequence[int]) -> Mapping[int, str | None]:
        return {relid: self._reading.prints.get(relid) for relid in relids}

    def _pending(self, wanted: Sequence[Wanted]) -> tuple[dict[Wanted, Pending], dict[int, float]]:
        by_window = {(want.relid, want.since): want for want in self._wants.values()}
        return {w: self._reading.pending(by_window[w[0], w[1].since]) for w in wanted}, {}

    def _read(self, job: TableRefresh, _cut: Cut) -> None:
        if job.decision.action == DIFFERENTIAL:
            rows = self._reading.signed(self._wants[job.table.pgt_id])
            if len(rows) <= MIRROR_ROWS:
                job.arrays = [[weight for weight, _ in rows], [row for _, row in rows]]
            else:
                job.leaf = frames.DeltaRows(job.template.slots, rows)


def _held_up(jobs: Sequence[TableRefresh], at_fault: StreamTable | None, error: PgtrickleError) -> list[Outcome]:
    """All or none move. Of an error that will not go away the others only wait until its table has been stopped."""
    if at_fault is None or isinstance(error, TransientError):
        return [Outcome(job.table, job.decision.action, None, error) for job in jobs]
    waits = OriginAwayError(f"{at_fault.full_name}, of the same database, failed; it goes on without that one")
    errors = {job.table.pgt_id: error if job.table.pgt_id == at_fault.pgt_id else waits for job in jobs}
    return [Outcome(job.table, job.decision.action, None, errors[job.table.pgt_id]) for job in jobs]


def _of_reader(known: Mapping[Place, Position], reader_key: str) -> dict[int, Position]:
    return {mirror: position for (key, mirror), position in known.items() if key == reader_key}
