"""Refreshes mirrors: the tables of one origin that are mirrored in one database, all to one cut of the origin.

They commit in one transaction, so that a query over several of them sees the origin at one snapshot.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from typing import TYPE_CHECKING

from pgtrickle.apply.bags import BagDelta
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
from pgtrickle.origin.changes import MirrorRequest, OriginReading, Place, known_readings, positions
from pgtrickle.origin.sessions import render_alike
from pgtrickle.pipeline.engine import frames
from pgtrickle.refresh.cost_model import Limits
from pgtrickle.refresh.decide import FULL, NO_DATA, PREPARE, Decision
from pgtrickle.refresh.deltas import MIRROR_ROWS
from pgtrickle.refresh.job import Outcome
from pgtrickle.refresh.observed import ObservedSources, WaveStart
from pgtrickle.refresh.pending import WindowQuery, read_pending
from pgtrickle.refresh.stages import (
    Computed,
    ComputedRefresh,
    FailedRefresh,
    PlannedRefresh,
    PlannedWave,
    ReadRefresh,
)
from pgtrickle.refresh.wave import Read, WaveRefresher

if TYPE_CHECKING:
    from pgtrickle.db.connect import Connection
    from pgtrickle.pipeline.engine.spark import SparkEngine

_RENAMED = "a table of the origin was renamed while it was read"


class MirrorRefresher(WaveRefresher):
    """`reader` is a session in the origin, `writer` one in the database of the mirrors."""

    loads_inside = False

    _known: dict[int, Position]
    _readings: frozenset[str] = frozenset()  # reads that the origin has recorded
    _token = ""  # of the current read

    def together(
        self, ids: Sequence[int], reader_key: str, note: Callable[[Cut], str]
    ) -> tuple[list[Outcome], Cut | None]:
        """Refreshes all mirrors of one origin; returns their positions. Does nothing if one has to be prepared first.
        `note` records at the origin, over another session, that a cut was read."""
        with translated(), self._snapshot():
            moment = catalog.read_moment(self.reader)
            self._known = _of_reader(positions(self.reader), reader_key)
            tables = catalog.load_stream_tables(self.writer, ids)
            self._readings = known_readings(self.reader, map(_reading, tables))
            wave = self._begin(tables, moment)
            if not wave.refreshes:
                return list(wave.outcomes), None
            self._token = note(moment.cut)
            return self._end(self._compute(wave.refreshes, moment), moment)

    def _begin(self, tables: Sequence[StreamTable], moment: catalog.ReadPoint) -> PlannedWave:
        """The plan for all of them; or none, and why. The epoch detects that another worker refreshes one of them
        meanwhile."""
        tables = [self._adapted(table) for table in tables]
        unknown = Reason.of(ReasonCode.MIRROR_UNKNOWN)
        unready = tuple(Outcome(t, PREPARE, unknown) for t in tables if t.pgt_id not in self._known)
        if unready:
            return PlannedWave((), unready)
        wave = self._plan(tables, moment)
        unready = tuple(o for o in wave.outcomes if o.error is not None or o.action == PREPARE)
        if unready:
            return PlannedWave((), unready)
        if not wave.refreshes and len({str(t.frontier) for t in tables}) == 1:
            return wave
        started = datetime.now(UTC)
        return PlannedWave((*wave.refreshes, *(self._follower(o.table, started) for o in wave.outcomes)), ())

    def _end(self, computed: Sequence[Computed], moment: catalog.ReadPoint) -> tuple[list[Outcome], Cut | None]:
        failed = next((each for each in computed if isinstance(each, FailedRefresh)), None)
        if failed is not None:
            return _held_up([each.planned for each in computed], failed.planned.table, failed.error), None
        written = self._commit([each for each in computed if isinstance(each, ComputedRefresh)], moment)
        return written, moment.cut if all(o.error is None for o in written) else None

    def _follower(self, table: StreamTable, started: datetime) -> PlannedRefresh:
        """A mirror without changes advances, too: its content is the same at the new cut."""
        compiled = self.compiled(table)
        if compiled is None:
            raise InvariantError(f"{table.full_name} was not prepared")
        silent = Decision(NO_DATA)
        return PlannedRefresh(table, compiled, silent, None, {}, table.fingerprints, started, Timings(), is_silent=True)

    def _commit(self, computed: Sequence[ComputedRefresh], moment: catalog.ReadPoint) -> list[Outcome]:
        refreshes = [each.planned for each in computed]
        at_fault: StreamTable | None = None
        try:
            with translated(), self.writer.transaction():
                render_alike(self.writer)
                written = self._write(computed, moment, "SCHEDULER")
                for each in written:
                    if isinstance(each, FailedRefresh):
                        at_fault = each.planned.table
                        raise each.error
                if self._are_renamed(refreshes):
                    raise FencedError(_RENAMED)
                self._keep_fingerprints(refreshes)
        except PgtrickleError as error:
            if not isinstance(error, TransientError) and self._are_renamed(refreshes):
                error = FencedError(_RENAMED)
            return _held_up(refreshes, at_fault, error)
        return [each.outcome() for each in written]

    def _are_renamed(self, refreshes: Sequence[PlannedRefresh]) -> bool:
        """Whether a source was renamed: names resolve in the current catalog, not in the snapshot."""
        loaded = [planned.table for planned in refreshes if planned.is_load]
        if loaded and self.reader.info.transaction_status.name == "INERROR":
            self.reader.rollback()
        return any(is_renamed_there(self.reader, table) for table in loaded)

    def _keep_fingerprints(self, refreshes: Sequence[PlannedRefresh]) -> None:
        prints = {planned.table.pgt_id: next(iter(planned.fingerprints.values())) for planned in refreshes}
        was = {t.pgt_id: t.mirror and t.mirror.fingerprint for t in (planned.table for planned in refreshes)}
        if changed := {i: text for i, text in prints.items() if text != was[i]}:
            self.writer.execute(
                statement("mirror_fingerprints"), {"ids": list(changed), "fingerprints": list(changed.values())}
            )

    def _refresh_record(self, planned: PlannedRefresh, moment: catalog.ReadPoint, initiated_by: str) -> RefreshRecord:
        """Stores no fingerprints here: they are stored with the mirror, which depends on nothing in its database."""
        record = super()._refresh_record(planned, moment, initiated_by)
        key = moment.instance.key
        frontier = {**record.frontier, key: {**record.frontier[key], "reading": self._token_of(key)}}
        return replace(record, fingerprints={}, frontier=frontier)

    def _token_of(self, _key: str) -> str:
        return self._token

    def _adapted(self, table: StreamTable) -> StreamTable:
        """The mirror with its position at the origin. If that does not match its own, it is loaded again."""
        table = as_at_origin(table)
        assert table.mirror is not None
        cut = Frontier.cut_at(table.frontier, table.mirror.key)
        if cut is None or table.needs_reinit:
            return table
        if (token := _reading(table)) is not None and token not in self._readings:
            return replace(table, needs_reinit=True, reinit_reason=Reason.of(ReasonCode.ORIGIN_WENT_BACK))
        position = self._known.get(table.pgt_id)
        if position is not None and position.cut is not None and not position.cut.precedes(cut):
            return replace(table, needs_reinit=True, reinit_reason=Reason.of(ReasonCode.MIRROR_BEHIND))
        if position is not None and not position.allows(cut):
            return replace(table, needs_reinit=True, reinit_reason=Reason.of(ReasonCode.MIRROR_NETTED))
        return table

    def _planned(
        self, table: StreamTable, seen: ObservedSources, moment: catalog.ReadPoint, begun: WaveStart
    ) -> PlannedRefresh | Outcome:
        """The mode of a mirror is DIFFERENTIAL; one with too many pending changes is loaded."""
        planned, most = super()._planned(table, seen, moment, begun), self.limits.max_buffer_rows
        if isinstance(planned, Outcome) or not planned.is_differential or not most or planned.changes <= most:
            return planned
        decision = Decision(FULL, Reason.of(ReasonCode.MAX_BUFFER_ROWS, rows=planned.changes, limit=most))
        return replace(planned, decision=decision)

    def _read(self, planned: PlannedRefresh, cut: Cut) -> Read:
        """Few rows are passed to the apply statement as read, which nets and identifies them without Spark."""
        read = super()._read(planned, cut)
        if isinstance(read, ReadRefresh) and len(read.rows) <= MIRROR_ROWS:
            return ComputedRefresh(planned, BagDelta(*frames.signed_keys(read.rows)))
        return read

    def _fingerprints(self, relids: Sequence[int]) -> Mapping[int, str | None]:
        return fingerprints_for_others(self.reader, relids)

    def _pending(self, windows: Sequence[WindowQuery]) -> tuple[dict[WindowQuery, Pending], dict[int, float]]:
        return read_pending(self.reader, windows)


@dataclass(frozen=True, slots=True)
class _Share:
    """The part of a shared read for these mirrors."""

    reading: OriginReading
    refreshes: Sequence[PlannedRefresh]
    read: Sequence[Read]


class SharedRefresher(MirrorRefresher):
    """The same from reads that databases share, of one origin or of several. It loads nothing."""

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
        """Takes the changes of one origin. None: one of the mirrors has to be loaded or prepared, which needs a session
        there. Outcomes: nothing to do."""
        self._reading, self._wants = reading, wants
        self._known = _of_reader(reading.positions, reader_key)
        self._readings = reading.known
        wave = self._begin(tables, reading.moment)
        if any(o.action == PREPARE for o in wave.outcomes):
            return None
        if wave.refreshes:
            read = [self._read(p, reading.moment.cut) for p in wave.refreshes if p.is_differential]
            self._shares[reading.moment.instance.key] = _Share(reading, wave.refreshes, read)
        return list(wave.outcomes)

    def end(self) -> Iterator[tuple[str, list[Outcome], Cut | None]]:
        """Yields origin, outcomes and new positions. Commits all origins in one transaction; if it fails, each in its
        own, so that only the failing one fails."""
        if not self._shares:
            return
        shares = self._shares.values()
        refreshes = [planned for share in shares for planned in share.refreshes]
        read = [each for share in shares for each in share.read]
        by_table = {each.planned.table.pgt_id: each for each in self._computed(refreshes, read, self._reading.moment)}
        outcomes = self._commit_all(list(by_table.values())) if len(self._shares) > 1 else []
        for key, share in self._shares.items():
            own = [planned.table.pgt_id for planned in share.refreshes]
            if outcomes:
                yield key, [o for o in outcomes if o.table.pgt_id in own], share.reading.moment.cut
            else:
                yield key, *self._end([by_table[pgt_id] for pgt_id in own], share.reading.moment)

    def _commit_all(self, all_computed: Sequence[Computed]) -> list[Outcome]:
        """Returns nothing if one of them fails."""
        computed = [each for each in all_computed if isinstance(each, ComputedRefresh)]
        if len(computed) < len(all_computed):
            return []
        outcomes = self._commit(computed, self._reading.moment)
        return outcomes if all(o.error is None for o in outcomes) else []

    def _token_of(self, key: str) -> str:
        return self._shares[key].reading.token

    def _refresh_record(self, planned: PlannedRefresh, moment: catalog.ReadPoint, initiated_by: str) -> RefreshRecord:
        if planned.table.mirror is not None:
            moment = self._shares[planned.table.mirror.key].reading.moment
        return super()._refresh_record(planned, moment, initiated_by)

    def _planned(
        self, table: StreamTable, seen: ObservedSources, moment: catalog.ReadPoint, begun: WaveStart
    ) -> PlannedRefresh | Outcome:
        planned = super()._planned(table, seen, moment, begun)
        return Outcome(table, PREPARE) if isinstance(planned, PlannedRefresh) and planned.is_load else planned

    def _fingerprints(self, relids: Sequence[int]) -> Mapping[int, str | None]:
        return {relid: self._reading.prints.get(relid) for relid in relids}

    def _pending(self, windows: Sequence[WindowQuery]) -> tuple[dict[WindowQuery, Pending], dict[int, float]]:
        by_window = {(want.relid, want.since): want for want in self._wants.values()}
        return {w: self._reading.pending(by_window[w[0], w[1].since]) for w in windows}, {}

    def _read(self, planned: PlannedRefresh, _cut: Cut) -> Read:
        rows = frames.DeltaRows(planned.stages.net.layout, self._reading.signed(self._wants[planned.table.pgt_id]))
        if len(rows) <= MIRROR_ROWS:
            return ComputedRefresh(planned, BagDelta(*frames.signed_keys(rows)))
        return ReadRefresh(planned, rows)


def _held_up(refreshes: Sequence[PlannedRefresh], at_fault: StreamTable | None, error: PgtrickleError) -> list[Outcome]:
    """All mirrors commit or none. After a permanent error the others only wait until the failing table is stopped."""
    if at_fault is None or isinstance(error, TransientError):
        return [Outcome(planned.table, planned.decision.action, None, error) for planned in refreshes]
    waits = OriginAwayError(f"{at_fault.full_name} of the same origin failed; the next refresh continues without it")
    errors = {p.table.pgt_id: error if p.table.pgt_id == at_fault.pgt_id else waits for p in refreshes}
    return [Outcome(p.table, p.decision.action, None, errors[p.table.pgt_id]) for p in refreshes]


def _reading(table: StreamTable) -> str | None:
    return None if table.mirror is None else Frontier.reading_at(table.frontier, table.mirror.key)


def _of_reader(known: Mapping[Place, Position], reader_key: str) -> dict[int, Position]:
    return {mirror: position for (key, mirror), position in known.items() if key == reader_key}
