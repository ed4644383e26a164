"""Refreshes a stream table that reads tables of other databases from their replicas, on Spark, without mirrors.

Each origin is read at a snapshot of its own, the same for all of its tables. The frontier is the vector of their cuts,
and is committed with the rows. Nothing falls back to PostgreSQL: the reading database has no rows of these tables.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import TYPE_CHECKING

from pgtrickle.apply.commit import RefreshRecord
from pgtrickle.capture.fingerprint import fingerprints_for_others
from pgtrickle.db import catalog
from pgtrickle.define.compile import Compiled
from pgtrickle.errors import InvariantError, SparkUnsupportedError
from pgtrickle.model.catalog import RemoteSource, StreamTable
from pgtrickle.model.fingerprint import same_identity, unchanged
from pgtrickle.model.flow import Cut, Frontier, Pending, Position, Window
from pgtrickle.model.reasons import Reason, ReasonCode
from pgtrickle.origin.changes import Place as Reader
from pgtrickle.refresh.cost_history import CostHistoryCache
from pgtrickle.refresh.cost_model import Limits
from pgtrickle.refresh.decide import FULL, PREPARE
from pgtrickle.refresh.job import Outcome
from pgtrickle.refresh.observed import ObservedSources, WaveStart
from pgtrickle.refresh.pending import read_pending
from pgtrickle.refresh.spark_load import missing_replica
from pgtrickle.refresh.spark_query import Place, SparkInput, SparkQuery, located, spark_query
from pgtrickle.refresh.stages import PlannedRefresh
from pgtrickle.refresh.wave import WaveRefresher

if TYPE_CHECKING:
    from pgtrickle.db.connect import Connection
    from pgtrickle.pipeline.engine.spark import SparkEngine
    from pgtrickle.replica import ReplicaStore


@dataclass(frozen=True, slots=True)
class OriginAt:
    """An origin at one snapshot. `note` records there that this cut was read and returns the token of the reading."""

    conn: Connection
    moment: catalog.ReadPoint
    positions: Mapping[Reader, Position]
    readings: frozenset[str]  # earlier ones that the origin has recorded
    note: Callable[[], str]


class RemoteRefresher(WaveRefresher):
    """`reader` and `writer` are in the database of the stream table, `origins` (by key) in those of its sources."""

    def __init__(
        self,
        reader: Connection,
        writer: Connection,
        engine: SparkEngine,
        compiled: Callable[[StreamTable], Compiled | None],
        limits: Limits,
        origins: Mapping[str, OriginAt],
        reader_key: str,
        costs: CostHistoryCache,
        replicas: ReplicaStore,
    ) -> None:
        super().__init__(reader, writer, engine, compiled, limits, costs=costs, replicas=replicas)
        self._origins = origins
        self._reader_key = reader_key
        self._tokens: dict[str, str] = {}

    def _tables(self, ids: Sequence[int]) -> list[StreamTable]:
        return [self._adapted(table) for table in super()._tables(ids)]

    def _adapted(self, table: StreamTable) -> StreamTable:
        """If its cut of an origin is not usable there, it is loaded again."""
        if not table.is_populated or table.needs_reinit:
            return table
        reasons = (self._reload_reason(table, remote) for remote in table.remotes)
        reason = next((reason for reason in reasons if reason is not None), None)
        return table if reason is None else replace(table, needs_reinit=True, reinit_reason=reason)

    def _reload_reason(self, table: StreamTable, remote: RemoteSource) -> Reason | None:
        at, cut = self._origins[remote.key], Frontier.cut_at(table.frontier, remote.key)
        if cut is None:
            return Reason.of(ReasonCode.NO_FRONTIER)
        if Frontier.reading_at(table.frontier, remote.key) not in at.readings or not cut.precedes(at.moment.cut):
            return Reason.of(ReasonCode.ORIGIN_WENT_BACK)
        position = at.positions.get((self._reader_key, remote.mirror_id))
        if position is None:
            return Reason.of(ReasonCode.MIRROR_UNKNOWN)
        if position.cut is not None and not position.cut.precedes(cut):
            return Reason.of(ReasonCode.MIRROR_BEHIND)
        return None if position.allows(cut) else Reason.of(ReasonCode.MIRROR_NETTED)

    def _observe(self, tables: Sequence[StreamTable], moment: catalog.ReadPoint) -> ObservedSources:
        """Changes of remote sources are counted at their origins."""
        seen = super()._observe(tables, moment)
        pending = {pgt_id: dict(of_table) for pgt_id, of_table in seen.pending.items()}
        sizes = dict(seen.sizes)
        for table in tables:
            if table.pgt_id not in pending or table.needs_reinit:
                continue
            for remote in table.remotes:
                of_table, size = self._pending_of(table, remote)
                pending[table.pgt_id][remote.relid], sizes[remote.relid] = of_table, size
        return replace(seen, pending=pending, sizes=sizes)

    def _pending_of(self, table: StreamTable, remote: RemoteSource) -> tuple[Pending, float]:
        at, cut = self._origins[remote.key], Frontier.cut_at(table.frontier, remote.key)
        if cut is None or not self._is_as_prepared(remote):  # its buffer may not exist
            return Pending(0, truncated=False), 0.0
        compiled = self.compiled(table)
        columns: frozenset[int] | None = None
        if compiled is not None and self._has_delta(compiled) and table.effective_mode != "FULL":
            columns = next(remote.at_origin(s.columns) for s in table.sources if s.relid == remote.relid)
        window_read = (remote.mirror.relid, Window(cut, at.moment.cut), columns)
        counts, sizes = read_pending(at.conn, [window_read])
        return counts[window_read], sizes.get(remote.mirror.relid, 0.0)

    def _is_as_prepared(self, remote: RemoteSource) -> bool:
        mirror = remote.mirror
        fingerprint = fingerprints_for_others(self._origins[remote.key].conn, [mirror.relid]).get(mirror.relid)
        return unchanged(mirror.fingerprint, fingerprint, mirror.columns) and same_identity(
            mirror.fingerprint, fingerprint
        )

    def _planned(
        self, table: StreamTable, seen: ObservedSources, moment: catalog.ReadPoint, begun: WaveStart
    ) -> PlannedRefresh | Outcome:
        compiled = self.compiled(table)
        if table.lost_privilege is not None or not table.is_in_place or compiled is None:
            return super()._planned(table, seen, moment, begun)
        if (unready := self._unready(table)) is not None:
            return Outcome(table, PREPARE, unready if table.is_populated else None)
        query = compiled.on_spark.get(lambda: spark_query(self.reader, table, compiled))
        if isinstance(query, Reason):
            return Outcome(table, FULL, None, SparkUnsupportedError(str(query)))
        assert self.replicas is not None
        if missing_replica(partial(self._place, table), self.replicas, query) is not None:
            return Outcome(table, PREPARE)
        return super()._planned(table, seen, moment, begun)

    def _unready(self, table: StreamTable) -> Reason | None:
        """Why its sources have to be prepared at their origins."""
        for remote in table.remotes:
            if (self._reader_key, remote.mirror_id) not in self._origins[remote.key].positions:
                return Reason.of(ReasonCode.MIRROR_UNKNOWN)
            if not self._is_as_prepared(remote):
                return Reason.of(ReasonCode.SOURCE_CHANGED)
        return None

    def _has_delta(self, compiled: Compiled) -> bool:
        query = compiled.on_spark.known()
        return super()._has_delta(compiled) and isinstance(query, SparkQuery) and not isinstance(query.changes, Reason)

    def _place(self, table: StreamTable, source: SparkInput) -> tuple[Connection, SparkInput]:
        remote = next((r for r in table.remotes if r.relid == source.need.relid), None)
        if remote is None:
            return self.reader, source
        return self._origins[remote.key].conn, located(source, remote)

    def _places(self, planned: PlannedRefresh, moment: catalog.ReadPoint) -> tuple[Place, Callable[[SparkInput], Cut]]:
        table = planned.table

        def since(source: SparkInput) -> Cut:
            remote = next((r for r in table.remotes if r.relid == source.need.relid), None)
            if remote is None:
                return planned.window(moment.cut).since
            cut = Frontier.cut_at(table.frontier, remote.key)
            if cut is None:
                raise InvariantError(f"{table.full_name} has no cut of {remote.mirror.name}")
            return cut

        return partial(self._place, table), since

    def _refresh_record(self, planned: PlannedRefresh, moment: catalog.ReadPoint, initiated_by: str) -> RefreshRecord:
        record = super()._refresh_record(planned, moment, initiated_by)
        frontier = dict(record.frontier)
        for key in dict.fromkeys(remote.key for remote in planned.table.remotes):
            frontier[key] = {"snapshot": str(self._origins[key].moment.cut), "reading": self._token(key)}
        return replace(record, frontier=frontier)

    def _token(self, key: str) -> str:
        """Of this reading; it is recorded at the origin before the frontier that names it is committed."""
        if key not in self._tokens:
            self._tokens[key] = self._origins[key].note()
        return self._tokens[key]
