"""The state of a fleet as values: what pages, metrics and alerts are made of. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

# Freshness of a stream table, then health of a database; each from best to worst.
FRESH, LAGGING, LOADING, STALE, STOPPED = "fresh", "lagging", "loading", "stale", "stopped"
OK, WARNING, CRITICAL, UNKNOWN = "ok", "warning", "critical", "unknown"


@dataclass(frozen=True, slots=True)
class Table:
    """A stream table, or a mirror (then `origin_table` is set). Times are seconds since the epoch."""

    pgt_id: int
    relid: int
    schema: str
    name: str
    status: str
    refresh_mode: str
    mode: str
    mode_reason_code: str | None
    mode_reason: str | None
    schedule: str
    tier: str
    engine: str | None
    is_populated: bool
    needs_reinit: bool
    data_at: float | None
    refreshed_at: float | None
    pending: bool | None
    stale: bool | None
    lag: float | None  # upper bound of the seconds behind its sources; 0: nothing is pending
    consecutive_errors: int
    error_code: str | None
    error: str | None
    author: str
    origin_database: str | None
    origin_server: str | None
    origin_schema: str | None
    origin_table: str | None
    origin_key: str | None
    origin_relid: int | None
    row_estimate: float
    bytes: int
    last_action: str | None
    last_engine: str | None
    last_ms: float | None
    refreshes_minute: int
    changes_minute: int | None  # None, as other numbers of rows: hidden from the viewer
    written_minute: int | None

    @property
    def is_mirror(self) -> bool:
        return self.origin_table is not None

    @property
    def full_name(self) -> str:
        return f"{self.schema}.{self.name}"

    @property
    def freshness(self) -> str:
        if self.status in ("ERROR", "SUSPENDED"):
            return STOPPED
        if self.stale:
            return STALE
        if not self.is_populated or self.needs_reinit:
            return LOADING
        return LAGGING if self.lag else FRESH


@dataclass(frozen=True, slots=True)
class Edge:
    """A stream table reads a relation."""

    pgt_id: int
    relid: int
    kind: str
    schema: str
    name: str


@dataclass(frozen=True, slots=True)
class Reader:
    """Reads the changes of a captured table: a stream table, a mirror elsewhere, a subscriber or a replica."""

    relid: int  # of the captured table
    kind: str
    name: str
    pending_rows: int | None  # changes that it has not read


@dataclass(frozen=True, slots=True)
class Source:
    """A captured table. `rate`: changes per second, None until two samples exist."""

    relid: int
    schema: str
    name: str
    captured: int
    buffer_bytes: int
    readers: int
    remote_readers: int
    rate: float | None = None
    pending_rows: int | None = None
    alert: str | None = None
    read_by: tuple[Reader, ...] = ()  # the one that is most behind comes first

    @property
    def full_name(self) -> str:
        return f"{self.schema}.{self.name}"


@dataclass(frozen=True, slots=True)
class Check:
    """A health check of a database: severity OK, WARN or ERROR."""

    name: str
    severity: str
    detail: str


@dataclass(frozen=True, slots=True)
class BrokerSource:
    """The broker's count of a table that several databases read."""

    database: str
    source: str
    pending_rows: int | None
    consumers: int
    scans_done: int
    scans_saved: int
    tick: int
    relid: int
    database_oid: int


@dataclass(frozen=True, slots=True)
class Replica:
    """A columnar copy of a table."""

    source: str
    relid: int
    state: str
    rows: int | None
    bytes: int | None
    files: int | None
    pending_rows: int | None
    committed_at: float | None
    readers: tuple[str, ...]
    requested: bool
    error: str | None


@dataclass(frozen=True, slots=True)
class Unit:
    """Stream tables that one worker refreshes together: queued, running or finished."""

    job_id: int
    kind: str
    status: str
    tier: str
    attempt: int
    queued_at: float
    started_at: float | None
    finished_at: float | None
    members: tuple[int, ...]
    detail: str | None


@dataclass(frozen=True, slots=True)
class Refresh:
    """A finished refresh, as metrics count it."""

    refresh_id: int
    pgt_id: int
    action: str
    status: str
    engine: str | None
    seconds: float
    inserted: int | None
    deleted: int | None
    changes: int | None
    error_code: str | None
    timings: Mapping[str, float] | None


@dataclass(frozen=True, slots=True)
class FinishedUnit:
    """A finished unit, as metrics count it. `waited`: seconds in the queue; None: it never started."""

    job_id: int
    kind: str
    status: str
    members: int
    waited: float | None


@dataclass(frozen=True, slots=True)
class DatabaseState:
    """One database. `problem`: why it could not be read; the other fields are then the last known ones."""

    label: str
    name: str
    server: str
    read_at: float = 0.0
    problem: str | None = None
    key: str = ""
    version: str = ""
    running: bool = False
    ticking: bool = False
    enabled: bool = True
    in_recovery: bool = False
    tables: tuple[Table, ...] = ()
    edges: tuple[Edge, ...] = ()
    sources: tuple[Source, ...] = ()
    checks: tuple[Check, ...] = ()
    broker: tuple[BrokerSource, ...] = ()
    replicas: tuple[Replica, ...] = ()
    units: tuple[Unit, ...] = ()

    @property
    def stream_tables(self) -> tuple[Table, ...]:
        return tuple(table for table in self.tables if not table.is_mirror)

    @property
    def scheduler(self) -> str:
        if self.in_recovery:
            return "STANDBY"
        if not self.enabled:
            return "DISABLED"
        return "ACTIVE" if self.ticking else "INACTIVE" if self.running else "STOPPED"

    @property
    def health(self) -> str:
        if self.problem is not None:
            return UNKNOWN
        worst = {table.freshness for table in self.tables}
        if (
            STOPPED in worst
            or self.scheduler in ("STOPPED", "INACTIVE")
            or any(c.severity == "ERROR" for c in self.checks)
        ):
            return CRITICAL
        if STALE in worst or self.scheduler == "DISABLED" or any(c.severity == "WARN" for c in self.checks):
            return WARNING
        return OK

    @property
    def lag(self) -> float:
        """The largest of its stream tables; 0 when nothing is pending."""
        return max((table.lag or 0.0 for table in self.tables), default=0.0)

    def table(self, schema: str, name: str) -> Table | None:
        return next((t for t in self.tables if t.schema == schema and t.name == name), None)


@dataclass(frozen=True, slots=True)
class Process:
    """A process of the fleet. `cpu`: seconds that it has used."""

    kind: str
    database: str | None
    pid: int
    state: str
    since: float
    memory: int | None = None
    cpu: float | None = None


@dataclass(frozen=True, slots=True)
class Pool:
    """The workers of the fleet, and counters since the pipeline started."""

    active: int = 0
    most: int = 0
    queued: int = 0
    spark_jobs: int = 0
    leases: int = 0
    cache_hits: int = 0
    cache_misses: int = 0
    cache_entries: int = 0
    cache_evictions: int = 0
    stored_hits: int = 0
    stored_misses: int = 0
    stored_evictions: int = 0


@dataclass(frozen=True, slots=True)
class Share:
    """One database's part of the workers."""

    database: str
    used: int
    quota: int  # guaranteed; 0: none
    queued: int
    cap: int  # that it may use at present


@dataclass(frozen=True, slots=True)
class Scheduler:
    """The scheduler of a database: its latest tick, and how many it has made."""

    database: str
    state: str
    seen: float
    ticks: int
    tables: int


@dataclass(frozen=True, slots=True)
class Sample:
    """The workers at one moment."""

    at: float
    active: int
    most: int
    queued: int
    spark_jobs: int


@dataclass(frozen=True, slots=True)
class FleetState:
    """Everything that is known at `at`."""

    at: float
    launcher: str = "STARTING"
    version: str = ""
    databases: tuple[DatabaseState, ...] = ()
    pool: Pool = Pool()
    shares: tuple[Share, ...] = ()
    schedulers: tuple[Scheduler, ...] = ()
    processes: tuple[Process, ...] = ()
    samples: tuple[Sample, ...] = ()

    def database(self, label: str) -> DatabaseState | None:
        return next((d for d in self.databases if d.label == label), None)

    @property
    def health(self) -> str:
        states = {database.health for database in self.databases}
        return next((h for h in (CRITICAL, UNKNOWN, WARNING) if h in states), OK)


@dataclass(frozen=True, slots=True)
class TableDetail:
    """Details that are read only for the page of one stream table."""

    pgt_id: int
    query: str
    defining_query: str
    plan: Mapping[str, Any] | None
    columns: tuple[Mapping[str, Any], ...]
    reinit_reason: str | None
    frontier: Mapping[str, Any] | None
    created_at: float
    author: str
    run_as: str
    engine: str | None
    tier_pinned: bool
    full_when: tuple[str, ...]
    allowed_lag: float | None  # seconds that a change may be pending before a refresh begins; None: not known
    refreshes: tuple[Mapping[str, Any], ...] = field(default=())
    costs: tuple[Mapping[str, Any], ...] = field(default=())
    buffers: tuple[Mapping[str, Any], ...] = field(default=())
