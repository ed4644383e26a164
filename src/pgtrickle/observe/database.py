"""Reads the state of one database. One session, opened on demand and kept while there are viewers."""

from __future__ import annotations

import threading
import time
from collections import defaultdict
from collections.abc import Callable, Mapping
from dataclasses import dataclass, fields, replace
from typing import TYPE_CHECKING, Any, TypeVar

from pgtrickle.db.connect import connect, translated
from pgtrickle.db.database_settings import current_settings, find_pooler
from pgtrickle.db.statements import statement
from pgtrickle.errors import PgtrickleError
from pgtrickle.model.identifiers import qualified
from pgtrickle.observe.refresh_counts import RefreshCounts
from pgtrickle.observe.state import (
    BrokerSource,
    Check,
    DatabaseState,
    Edge,
    Reader,
    Replica,
    Source,
    Table,
    TableDetail,
    Unit,
)
from pgtrickle.settings import Loaded, Sources

if TYPE_CHECKING:
    from pgtrickle.db.connect import Connection

Value = TypeVar("Value")

# A longer statement is cancelled: pages must not disturb the server.
STATEMENT_MS = 10_000
CAPTURE_SECONDS = 10.0  # between two reads of statements that count the rows of change buffers
RATE_SECONDS = 2.0  # between two samples of the same counter
MOST_UNITS = 50
MOST_REFRESHES = 200
# Actions of viewers with the token, with their statements.
ACTIONS = {
    "refresh": "observed_refresh",
    "suspend": "observed_suspend",
    "resume": "observed_resume",
    "schedule": "observed_schedule",
}


@dataclass(frozen=True, slots=True)
class DatabaseAddress:
    """A database of the fleet as the launcher found it. `label` is unique in the fleet and stands in links."""

    label: str
    name: str
    server: str
    dsn: str


class DatabaseObserver:
    """One database. Reads are serialized: a second caller waits and gets the result of the first one."""

    def __init__(self, address: DatabaseAddress, sources: Sources, clock: Callable[[], float] = time.time) -> None:
        self.address = address
        self._sources = sources
        self._clock = clock
        self._lock = threading.Lock()
        self._conn: Connection | None = None
        self.counts = RefreshCounts()
        self.state = DatabaseState(address.label, address.name, address.server, problem="not read yet")
        self._samples: dict[int, tuple[float, int, float | None]] = {}  # by source: time, captured, rate
        self._capture_read_at = 0.0
        self._capture: dict[int, tuple[str | None, int | None]] = {}
        self._readers: dict[int, list[Reader]] = {}
        self._checks: tuple[Check, ...] = ()

    def read(self, max_age: float) -> DatabaseState:
        """The state, at most `max_age` seconds old; or the last known one with the problem that prevents a new read."""
        with self._lock:
            now = self._clock()
            if now - self.state.read_at >= max_age:
                self.state = self._read_again(now)
            return self.state

    def detail(self, schema: str, name: str) -> TableDetail | None:
        with self._lock:
            return self._attempt(lambda conn: _detail(conn, schema, name))

    def settings(self) -> Loaded:
        """Of this database, as its scheduler would load them."""
        pooler = find_pooler(self.address.dsn, self._sources)
        with connect(self.address.dsn, role="observe", autocommit=True, pooler=pooler) as conn, translated():
            return self._sources.load(current_settings(conn))

    def act(self, action: str, schema: str, name: str, schedule: str | None = None) -> None:
        """Raises the error of the SQL function."""
        text = statement(ACTIONS[action])
        values = {"name": qualified(schema, name), "schedule": schedule}
        with self._lock:
            self._attempt(lambda conn: conn.execute(text, values))
            self.state = replace(self.state, read_at=0.0)

    def close(self) -> None:
        with self._lock:
            if self._conn is not None:
                self._conn.close()
            self._conn = None

    def _read_again(self, now: float) -> DatabaseState:
        try:
            return self._attempt(lambda conn: self._read(conn, now))
        except PgtrickleError as error:
            return replace(self.state, read_at=now, problem=error.one_line(), running=False, ticking=False)

    def _attempt(self, what: Callable[[Connection], Value]) -> Value:
        """Retries once with a new session if the existing one was lost."""
        had_session = self._conn is not None
        try:
            return self._with_session(what)
        except PgtrickleError:
            if not had_session or (self._conn is not None and not self._conn.closed):
                raise
        return self._with_session(what)

    def _with_session(self, what: Callable[[Connection], Value]) -> Value:
        if self._conn is None:
            pooler = find_pooler(self.address.dsn, self._sources)
            pins = {"statement_timeout": str(STATEMENT_MS), "lock_timeout": str(STATEMENT_MS)}
            self._conn = connect(self.address.dsn, role="observe", autocommit=True, pooler=pooler, pins=pins)
        try:
            with translated():
                return what(self._conn)
        finally:
            if self._conn.closed or self._conn.broken:
                self._conn = None

    def _read(self, conn: Connection, now: float) -> DatabaseState:
        ((running, ticking, enabled, in_recovery, key, version),) = conn.execute(statement("observed_state")).fetchall()
        self.counts.read(conn)
        if now - self._capture_read_at >= CAPTURE_SECONDS:
            rows = conn.execute(statement("observed_capture")).fetchall()
            self._capture = {relid: (alert, pending) for relid, alert, pending in rows}
            self._readers = defaultdict(list)
            for reader in read_as(Reader, conn, "observed_readers"):
                self._readers[reader.relid].append(reader)
            self._checks = tuple(read_as(Check, conn, "observed_checks"))
            self._capture_read_at = now
        return DatabaseState(
            self.address.label,
            self.address.name,
            self.address.server,
            read_at=now,
            key=key,
            version=version,
            running=running,
            ticking=ticking,
            enabled=enabled,
            in_recovery=in_recovery,
            tables=tuple(read_as(Table, conn, "observed_tables")),
            edges=tuple(read_as(Edge, conn, "observed_edges")),
            sources=tuple(self._source(source, now) for source in read_as(Source, conn, "observed_sources")),
            checks=self._checks,
            broker=tuple(read_as(BrokerSource, conn, "observed_broker")),
            replicas=tuple(read_as(Replica, conn, "observed_replicas")),
            units=tuple(read_as(Unit, conn, "observed_units", {"most": MOST_UNITS})),
        )

    def _source(self, source: Source, now: float) -> Source:
        at, captured, rate = self._samples.get(source.relid, (0.0, 0, None))
        if source.captured < captured or not at:  # statistics were reset, or the first sample
            self._samples[source.relid] = now, source.captured, None
            rate = None
        elif now - at >= RATE_SECONDS:
            rate = (source.captured - captured) / (now - at)
            self._samples[source.relid] = now, source.captured, rate
        alert, pending = self._capture.get(source.relid, (None, None))
        readers = tuple(self._readers.get(source.relid, ()))
        return replace(source, rate=rate, alert=alert, pending_rows=pending, read_by=readers)


def read_as(kind: type[Value], conn: Connection, name: str, values: Mapping[str, object] | None = None) -> list[Value]:
    """The rows of a statement whose columns are named as the fields of a value."""
    cursor = conn.execute(statement(name), values)
    columns = [column.name for column in cursor.description or ()]
    known = {f.name for f in fields(kind)}  # type: ignore[arg-type]  # they are dataclasses
    assert known.issuperset(columns), f"{name}: {set(columns) - known}"
    return [kind(**dict(zip(columns, map(_frozen, row), strict=True))) for row in cursor.fetchall()]


def _frozen(value: Any) -> Any:
    return tuple(value) if isinstance(value, list) else value


def _detail(conn: Connection, schema: str, name: str) -> TableDetail | None:
    tables = read_as(TableDetail, conn, "observed_table", {"schema": schema, "name": name})
    if not tables:
        return None
    values = {"pgt_id": tables[0].pgt_id, "most": MOST_REFRESHES}
    return replace(
        tables[0],
        refreshes=tuple(_rows(conn, "observed_table_refreshes", values)),
        costs=tuple(_rows(conn, "observed_table_costs", values)),
        buffers=tuple(_rows(conn, "observed_table_buffers", values)),
    )


def _rows(conn: Connection, name: str, values: Mapping[str, object]) -> list[dict[str, Any]]:
    cursor = conn.execute(statement(name), values)
    columns = [column.name for column in cursor.description or ()]
    return [dict(zip(columns, row, strict=True)) for row in cursor.fetchall()]
