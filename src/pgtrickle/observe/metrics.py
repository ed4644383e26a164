"""Metrics of the fleet in the formats of Prometheus and OpenMetrics.

Labels have few values: database, mode, engine, kind, code. Stream tables are labels up to the number in
metrics_max_tables; the metrics of databases include all of them.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import TypeVar

from prometheus_client import CollectorRegistry
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, HistogramMetricFamily, Metric
from prometheus_client.exposition import choose_encoder
from prometheus_client.registry import Collector

from pgtrickle.observe.alerts import alerts
from pgtrickle.observe.refresh_counts import Histogram, RefreshCounts
from pgtrickle.observe.state import FRESH, LAGGING, LOADING, STALE, STOPPED, FleetState, Table

Labels = Sequence[str]
Value = TypeVar("Value")
Rows = Iterable[tuple[Sequence[str], float | None]]

STATES = (FRESH, LAGGING, LOADING, STALE, STOPPED)


def exposition(
    fleet: FleetState, counts: Mapping[str, RefreshCounts], most_tables: int, accept: str
) -> tuple[bytes, str]:
    """The text and its content type, as `accept` prefers. `counts`: by database."""
    registry = CollectorRegistry()
    registry.register(_Collector(fleet, counts, most_tables))
    encode, content_type = choose_encoder(accept)
    return encode(registry), content_type


def families(fleet: FleetState) -> list[Metric]:
    """All metrics, with the samples that this fleet has."""
    return list(_Collector(fleet, {}, 0).collect())


class _Collector(Collector):
    def __init__(self, fleet: FleetState, counts: Mapping[str, RefreshCounts], most_tables: int) -> None:
        self._fleet = fleet
        self._counts = counts
        self._most_tables = most_tables

    def collect(self) -> Iterator[Metric]:
        yield from _fleet(self._fleet)
        yield from _processes(self._fleet)
        yield from _databases(self._fleet)
        yield from _refreshes(self._counts)
        yield from _units(self._counts, self._fleet)
        yield from _sources(self._fleet, self._most_tables)
        yield from _tables(self._fleet, self._most_tables)


def _gauge(name: str, text: str, labels: Labels, rows: Rows) -> Metric:
    family = GaugeMetricFamily(name, text, labels=labels)
    for values, value in rows:
        if value is not None:
            family.add_metric(values, value)
    return family


def _counter(name: str, text: str, labels: Labels, rows: Rows) -> Metric:
    family = CounterMetricFamily(name, text, labels=labels)
    for values, value in rows:
        if value is not None:
            family.add_metric(values, value)
    return family


def _histogram(name: str, text: str, labels: Labels, rows: Iterable[tuple[Sequence[str], Histogram]]) -> Metric:
    family = HistogramMetricFamily(name, text, labels=labels)
    for values, histogram in rows:
        family.add_metric(values, histogram.buckets(), histogram.total)
    return family


def _fleet(fleet: FleetState) -> Iterator[Metric]:
    pool = fleet.pool
    yield _gauge("pgtrickle_build_info", "Version of pgtrickle; always 1.", ["version"], [([fleet.version], 1)])
    yield _gauge(
        "pgtrickle_active",
        "1 while this launcher is the active one of a server.",
        [],
        [([], fleet.launcher == "ACTIVE")],
    )
    yield _gauge("pgtrickle_workers", "Refresh workers of the fleet.", [], [([], pool.most)])
    yield _gauge("pgtrickle_workers_busy", "Refresh workers that are busy.", [], [([], pool.active)])
    yield _counter("pgtrickle_spark_jobs", "Jobs that Spark has run.", [], [([], pool.spark_jobs)])
    yield _counter(
        "pgtrickle_waves", "Leases that workers have taken; each is read at one snapshot.", [], [([], pool.leases)]
    )
    yield _counter("pgtrickle_template_cache_hits", "Compiled templates that were found.", [], [([], pool.cache_hits)])
    yield _counter(
        "pgtrickle_template_cache_misses", "Compiled templates that had to be made.", [], [([], pool.cache_misses)]
    )
    yield _counter(
        "pgtrickle_template_cache_evictions", "Compiled templates that were evicted.", [], [([], pool.cache_evictions)]
    )
    yield _counter("pgtrickle_template_store_hits", "Stored templates that were found.", [], [([], pool.stored_hits)])
    yield _counter(
        "pgtrickle_template_store_misses", "Stored templates that were not found.", [], [([], pool.stored_misses)]
    )
    yield _counter(
        "pgtrickle_template_store_evictions", "Stored templates that were removed.", [], [([], pool.stored_evictions)]
    )
    yield _gauge("pgtrickle_template_cache_entries", "Compiled templates in memory.", [], [([], pool.cache_entries)])
    yield _gauge(
        "pgtrickle_workers_used",
        "Refresh workers that a database uses.",
        ["database"],
        [([share.database], share.used) for share in fleet.shares],
    )
    yield _gauge(
        "pgtrickle_units_queued",
        "Units of a database that wait for a worker.",
        ["database"],
        [([share.database], share.queued) for share in fleet.shares],
    )
    fleet_alerts = alerts(fleet)
    kinds = sorted({(a.severity, a.kind) for a in fleet_alerts})
    yield _gauge(
        "pgtrickle_alerts",
        "Alerts of the fleet.",
        ["severity", "kind"],
        [([s, k], sum((a.severity, a.kind) == (s, k) for a in fleet_alerts)) for s, k in kinds],
    )


def _processes(fleet: FleetState) -> Iterator[Metric]:
    labels = ["process", "database"]
    rows = [([p.kind, p.database or ""], p) for p in fleet.processes]
    yield _gauge(
        "pgtrickle_process_start_time_seconds", "Start of a process.", labels, [(names, p.since) for names, p in rows]
    )
    yield _gauge(
        "pgtrickle_process_resident_memory_bytes",
        "Resident memory of a process.",
        labels,
        [(names, p.memory) for names, p in rows],
    )
    yield _counter(
        "pgtrickle_process_cpu_seconds", "CPU time of a process.", labels, [(names, p.cpu) for names, p in rows]
    )
    yield _counter(
        "pgtrickle_scheduler_ticks",
        "Ticks of the scheduler of a database.",
        ["database"],
        [([s.database], s.ticks) for s in fleet.schedulers],
    )
    yield _gauge(
        "pgtrickle_scheduler_last_tick_timestamp_seconds",
        "Latest tick of the scheduler of a database.",
        ["database"],
        [([s.database], s.seen) for s in fleet.schedulers],
    )


def _databases(fleet: FleetState) -> Iterator[Metric]:
    databases = fleet.databases
    yield _gauge(
        "pgtrickle_database_up",
        "1 while the database can be read.",
        ["database"],
        [([d.label], d.problem is None) for d in databases],
    )
    yield _gauge(
        "pgtrickle_scheduler_up",
        "1 while the scheduler of the database works.",
        ["database"],
        [([d.label], d.scheduler == "ACTIVE") for d in databases if d.problem is None],
    )
    yield _gauge(
        "pgtrickle_stream_tables",
        "Stream tables by state: fresh, lagging (changes are pending within the schedule), loading, stale, stopped.",
        ["database", "state"],
        [
            ([d.label, state], sum(table.freshness == state for table in d.stream_tables))
            for d in databases
            for state in STATES
        ],
    )
    yield _gauge(
        "pgtrickle_lag_max_seconds",
        "Upper bound of the largest lag of a stream table behind its sources; 0: nothing is pending.",
        ["database"],
        [([d.label], d.lag) for d in databases],
    )
    yield _gauge(
        "pgtrickle_mirrors",
        "Mirrors of tables of other databases.",
        ["database"],
        [([d.label], len(d.tables) - len(d.stream_tables)) for d in databases],
    )
    yield _gauge(
        "pgtrickle_replicas",
        "Columnar replicas by state.",
        ["database", "state"],
        [
            ([d.label, state], sum(r.state == state for r in d.replicas))
            for d in databases
            for state in sorted({r.state for r in d.replicas})
        ],
    )
    yield _gauge(
        "pgtrickle_replica_bytes",
        "Size of the columnar replicas.",
        ["database"],
        [([d.label], sum(r.bytes or 0 for r in d.replicas)) for d in databases if d.replicas],
    )
    yield _gauge(
        "pgtrickle_replica_pending_changes",
        "Changes that replicas have not applied.",
        ["database"],
        [([d.label], sum(r.pending_rows or 0 for r in d.replicas)) for d in databases if d.replicas],
    )
    yield _counter(
        "pgtrickle_broker_scans",
        "Polls of origins by the broker, for the database.",
        ["database"],
        [([d.label], sum(b.scans_done for b in d.broker)) for d in databases if d.broker],
    )
    yield _counter(
        "pgtrickle_broker_scans_saved",
        "Polls of origins that the broker has saved.",
        ["database"],
        [([d.label], sum(b.scans_saved for b in d.broker)) for d in databases if d.broker],
    )


def _refreshes(counts: Mapping[str, RefreshCounts]) -> Iterator[Metric]:
    items = sorted(counts.items())
    yield _counter(
        "pgtrickle_refreshes",
        "Finished refreshes.",
        ["database", "mode", "engine", "status"],
        [([label, *key], number) for label, c in items for key, number in sorted(c.refreshes.items())],
    )
    yield _histogram(
        "pgtrickle_refresh_duration_seconds",
        "Duration of completed refreshes.",
        ["database", "mode", "engine"],
        [([label, *key], h) for label, c in items for key, h in sorted(c.durations.items())],
    )
    yield _histogram(
        "pgtrickle_refresh_window_changes",
        "Changes in the window of a completed refresh.",
        ["database", "mode"],
        [([label, mode], h) for label, c in items for mode, h in sorted(c.windows.items())],
    )
    yield _counter(
        "pgtrickle_refresh_stage_seconds",
        "Time that refreshes have spent in each stage.",
        ["database", "stage"],
        [([label, stage], seconds) for label, c in items for stage, seconds in sorted(c.stages.items())],
    )
    yield _counter(
        "pgtrickle_refresh_errors",
        "Failed refreshes by error code.",
        ["database", "code"],
        [([label, code], number) for label, c in items for code, number in sorted(c.errors.items())],
    )
    yield _counter(
        "pgtrickle_rows_inserted",
        "Rows that refreshes have inserted into stream tables.",
        ["database"],
        [([label], c.inserted) for label, c in items],
    )
    yield _counter(
        "pgtrickle_rows_deleted",
        "Rows that refreshes have deleted from stream tables.",
        ["database"],
        [([label], c.deleted) for label, c in items],
    )


def _units(counts: Mapping[str, RefreshCounts], fleet: FleetState) -> Iterator[Metric]:
    items = sorted(counts.items())
    yield _counter(
        "pgtrickle_units",
        "Finished units of stream tables that are refreshed together.",
        ["database", "kind", "status"],
        [([label, *key], number) for label, c in items for key, number in sorted(c.units.items())],
    )
    yield _histogram(
        "pgtrickle_unit_wait_seconds",
        "Time that units waited for a worker.",
        ["database"],
        [([label], c.waits) for label, c in items],
    )
    yield _histogram(
        "pgtrickle_unit_stream_tables",
        "Stream tables of a unit.",
        ["database"],
        [([label], c.members) for label, c in items],
    )
    yield _gauge(
        "pgtrickle_units_running",
        "Units that workers refresh now.",
        ["database"],
        [([d.label], sum(u.status == "RUNNING" for u in d.units)) for d in fleet.databases],
    )


def _sources(fleet: FleetState, most: int) -> Iterator[Metric]:
    databases = fleet.databases
    yield _counter(
        "pgtrickle_captured_changes",
        "Changes that triggers have written to change buffers, by the statistics of the server.",
        ["database"],
        [([d.label], sum(s.captured for s in d.sources)) for d in databases],
    )
    yield _gauge(
        "pgtrickle_change_buffers_bytes",
        "Size of all change buffers.",
        ["database"],
        [([d.label], sum(s.buffer_bytes for s in d.sources)) for d in databases],
    )
    named = _first(most, [((d.label, s.schema, s.name), s) for d in databases for s in d.sources])
    labels = ["database", "schema", "source"]
    yield _gauge(
        "pgtrickle_change_buffer_bytes",
        "Size of the change buffer of a source.",
        labels,
        [(names, s.buffer_bytes) for names, s in named],
    )
    yield _gauge(
        "pgtrickle_change_buffer_pending_changes",
        "Changes of a source that its slowest reader has not read.",
        labels,
        [(names, s.pending_rows) for names, s in named],
    )


def _tables(fleet: FleetState, most: int) -> Iterator[Metric]:
    every = [((d.label, t.schema, t.name), t) for d in fleet.databases for t in d.stream_tables]
    named: list[tuple[tuple[str, str, str], Table]] = _first(most, every)
    labels = ["database", "schema", "table"]
    yield _gauge(
        "pgtrickle_stream_table_lag_seconds",
        "Upper bound of the lag of a stream table behind its sources; 0: nothing is pending.",
        labels,
        [(names, table.lag) for names, table in named],
    )
    yield _gauge(
        "pgtrickle_stream_table_data_timestamp_seconds",
        "Time of the snapshot that the content of a stream table shows.",
        labels,
        [(names, table.data_at) for names, table in named],
    )
    yield _gauge(
        "pgtrickle_stream_table_up",
        "0 while a stream table is suspended or in error.",
        labels,
        [(names, table.freshness != STOPPED) for names, table in named],
    )
    yield _gauge(
        "pgtrickle_stream_table_consecutive_errors",
        "Refreshes of a stream table that failed since the last success.",
        labels,
        [(names, table.consecutive_errors) for names, table in named],
    )
    yield _gauge(
        "pgtrickle_stream_tables_without_metrics",
        "Stream tables beyond the setting metrics_max_tables, which have no metrics of their own.",
        [],
        [([], len(every) - len(named))],
    )


def _first(most: int, every: list[tuple[tuple[str, str, str], Value]]) -> list[tuple[tuple[str, str, str], Value]]:
    """The first items by their names, so that each scrape has the same ones."""
    return sorted(every, key=lambda item: item[0])[:most]
