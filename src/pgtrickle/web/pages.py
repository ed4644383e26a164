"""The pages of the UI: each is a function from the state of the fleet to a template and its values.

The values are also the JSON version of the page, so a page shows nothing that a program cannot read.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

from pgtrickle.observe.alerts import alerts
from pgtrickle.observe.fleet import FleetObserver
from pgtrickle.observe.state import FRESH, LAGGING, LOADING, STALE, STOPPED, FleetState, Table, Unit
from pgtrickle.settings import Loaded, describe, shown_value
from pgtrickle.web.auth import Viewer
from pgtrickle.web.graph import SOURCE, curve, graph_of, layout_of, stroke
from pgtrickle.web.layout import HEIGHT, WIDTH, Layout
from pgtrickle.web.table_page import table_values
from pgtrickle.web.visible import visible_detail, visible_fleet
from pgtrickle.web.worker_charts import queue_chart, worker_chart

STATES = (FRESH, LAGGING, LOADING, STALE, STOPPED)
MOST_UNITS = 50
ORDER = {state: position for position, state in enumerate((STOPPED, STALE, LOADING, LAGGING, FRESH))}


@dataclass(frozen=True, slots=True)
class Page:
    """`data`: the JSON version; `drawing`: what only the template needs."""

    template: str
    title: str
    section: str
    data: Mapping[str, Any]
    drawing: Mapping[str, Any] = field(default_factory=dict)
    status: int = 200


@dataclass(frozen=True, slots=True)
class PageRequest:
    """A request for a page: the parts of its path after the first, its parameters, and its viewer."""

    parts: tuple[str, ...]
    query: Mapping[str, str]
    viewer: Viewer


PageMaker = Callable[[FleetObserver, PageRequest], Page]


def not_found(what: str) -> Page:
    return Page("missing.html", "Not found", "", {"missing": what}, status=404)


def fleet_page(observer: FleetObserver, request: PageRequest) -> Page:
    fleet = visible_fleet(observer.read(), trusted=request.viewer.trusted)
    tables = [(d, t) for d in fleet.databases for t in d.stream_tables]
    data = {
        "fleet": _summary(fleet),
        "databases": [
            {
                "label": d.label,
                "server": d.server,
                "health": d.health,
                "problem": d.problem,
                "scheduler": d.scheduler,
                "stream_tables": len(d.stream_tables),
                "states": {state: sum(t.freshness == state for t in d.stream_tables) for state in STATES},
                "lag": d.lag,
                "refreshes_per_minute": sum(t.refreshes_minute for t in d.tables),
                "rows_per_minute": _sum(t.written_minute for t in d.tables),
                "changes_per_second": sum(s.rate or 0.0 for s in d.sources),
                "buffer_bytes": sum(s.buffer_bytes for s in d.sources),
                "share": next((s for s in fleet.shares if s.database == d.label), None),
            }
            for d in fleet.databases
        ],
        "attention": alerts(fleet)[:8],
        "busiest": [
            {"database": d.label, "table": t}
            for d, t in sorted(tables, key=lambda item: (-_activity(item[1]), item[0].label, item[1].full_name))[:8]
        ],
    }
    return Page(
        "fleet.html",
        "Fleet",
        "fleet",
        data,
        {"worker_chart": worker_chart(fleet, small=True), "queue_chart": queue_chart(fleet, small=True)},
    )


def _activity(table: Table) -> int:
    """Changes of the last minute; refreshes for viewers who may not know the number of changes."""
    return table.refreshes_minute if table.changes_minute is None else table.changes_minute


def _sum(numbers: Iterable[int | None]) -> int | None:
    """None if numbers are hidden from the viewer."""
    known = list(numbers)
    return None if None in known else sum(number or 0 for number in known)


def _summary(fleet: FleetState) -> dict[str, Any]:
    tables = [t for d in fleet.databases for t in d.stream_tables]
    return {
        "health": fleet.health,
        "launcher": fleet.launcher,
        "version": fleet.version,
        "databases": len(fleet.databases),
        "stream_tables": len(tables),
        "states": {state: sum(t.freshness == state for t in tables) for state in STATES},
        "lag": max((d.lag for d in fleet.databases), default=0.0),
        "refreshes_per_minute": sum(t.refreshes_minute for t in tables),
        "rows_per_minute": _sum(t.written_minute for t in tables),
        "changes_per_second": sum(s.rate or 0.0 for d in fleet.databases for s in d.sources),
        "pool": fleet.pool,
        "alerts": len(alerts(fleet)),
    }


def tables_page(observer: FleetObserver, request: PageRequest) -> Page:
    fleet = visible_fleet(observer.read(), trusted=request.viewer.trusted)
    pattern, state, database = (request.query.get(name, "") for name in ("q", "state", "database"))
    rows = [
        (d.label, t)
        for d in fleet.databases
        for t in d.stream_tables
        if (not pattern or pattern.lower() in f"{d.label}.{t.full_name}".lower())
        and (not state or t.freshness == state)
        and (not database or d.label == database)
    ]
    rows.sort(key=lambda row: (ORDER[row[1].freshness], row[0], row[1].full_name))
    data = {
        "total": sum(len(d.stream_tables) for d in fleet.databases),
        "filter": {"q": pattern, "state": state, "database": database},
        "databases": [d.label for d in fleet.databases],
        "stream_tables": [{"database": label, "table": table} for label, table in rows],
    }
    return Page("tables.html", "Stream tables", "tables", data, {"states": STATES})


class GraphPage:
    """Remembers the layout: it changes only when the nodes and links do."""

    def __init__(self) -> None:
        self._cached: tuple[object, Layout] | None = None

    def __call__(self, observer: FleetObserver, request: PageRequest) -> Page:  # noqa: ARG002  -- the same for all viewers
        graph = graph_of(visible_fleet(observer.read(), trusted=False))
        shape = tuple((n.id, n.database) for n in graph.nodes), tuple((e.source, e.target) for e in graph.links)
        if self._cached is None or self._cached[0] != shape:
            self._cached = shape, layout_of(graph)
        layout = self._cached[1]
        positions = {n.id: position for position, n in enumerate(graph.nodes, 1)}
        data = {
            "states": {s: sum(n.state == s for n in graph.nodes) for s in (*STATES, SOURCE)},
            "nodes": [{"node": n, "x": layout.positions[n.id][0], "y": layout.positions[n.id][1]} for n in graph.nodes],
            "links": graph.links,
        }
        drawing = {
            "layout": layout,
            "node_width": WIDTH,
            "node_height": HEIGHT,
            "curves": [
                {
                    "path": curve(layout, link),
                    "width": stroke(link.rate),
                    "link": link,
                    "source": positions[link.source],
                    "target": positions[link.target],
                }
                for link in graph.links
            ],
        }
        return Page("graph.html", "Graph", "graph", data, drawing)


def table_page(observer: FleetObserver, request: PageRequest) -> Page:
    label, schema, name = request.parts
    fleet = observer.read()
    database, database_observer = fleet.database(label), observer.observer(label)
    detail = database_observer.detail(schema, name) if database_observer is not None else None
    table = database.table(schema, name) if database is not None else None
    if database is None or table is None or detail is None:
        return not_found("There is no such stream table. It may have been dropped or renamed.")
    trusted = request.viewer.trusted
    (visible,) = [d for d in visible_fleet(fleet, trusted=trusted).databases if d.label == label]
    shown = visible.table(schema, name)
    assert shown is not None
    data, drawing = table_values(visible, shown, visible_detail(detail, trusted=trusted))
    return Page("table.html", f"{schema}.{name}", "tables", data, drawing)


def workers_page(observer: FleetObserver, request: PageRequest) -> Page:
    fleet = visible_fleet(observer.read(), trusted=request.viewer.trusted)
    names = {(d.label, t.pgt_id): t for d in fleet.databases for t in d.tables}
    units = [(d.label, unit) for d in fleet.databases for unit in d.units]
    ended = [(label, unit) for label, unit in units if unit.finished_at is not None]
    ended.sort(key=lambda item: -(item[1].finished_at or 0.0))

    def row(label: str, unit: Unit) -> dict[str, Any]:
        members = [names[label, pgt_id] for pgt_id in unit.members if (label, pgt_id) in names]
        shown = [{"schema": t.schema, "name": t.name, "is_mirror": t.is_mirror} for t in members]
        return {"database": label, "unit": unit, "members": shown}

    data = {
        "pool": fleet.pool,
        "shares": fleet.shares,
        "schedulers": fleet.schedulers,
        "processes": fleet.processes,
        "current": [row(*item) for item in units if item[1].finished_at is None][:MOST_UNITS],
        "finished": [row(*item) for item in ended[:MOST_UNITS]],
        "samples": fleet.samples[-300:],
        "at": fleet.at,
    }
    drawing = {"worker_chart": worker_chart(fleet), "queue_chart": queue_chart(fleet)}
    return Page("workers.html", "Workers", "workers", data, drawing)


def sources_page(observer: FleetObserver, request: PageRequest) -> Page:
    fleet = visible_fleet(observer.read(), trusted=request.viewer.trusted)
    by_relid = {(d.label, t.relid): t for d in fleet.databases for t in d.tables}
    sources = [
        {
            "database": d.label,
            "source": s,
            "is_stream_table": (table := by_relid.get((d.label, s.relid))) is not None and not table.is_mirror,
            "mirror": table if table is not None and table.is_mirror else None,
        }
        for d in fleet.databases
        for s in d.sources
    ]
    data = {
        "sources": sources,
        "broker": [{"database": d.label, "count": b} for d in fleet.databases for b in d.broker],
        "mirrors": [{"database": d.label, "table": t} for d in fleet.databases for t in d.tables if t.is_mirror],
        "replicas": [{"database": d.label, "replica": r} for d in fleet.databases for r in d.replicas],
    }
    return Page("sources.html", "Sources", "sources", data)


def alerts_page(observer: FleetObserver, request: PageRequest) -> Page:
    fleet = visible_fleet(observer.read(), trusted=request.viewer.trusted)
    checks = [{"database": d.label, "check": c} for d in fleet.databases for c in d.checks if c.severity == "OK"]
    return Page("alerts.html", "Alerts", "alerts", {"alerts": alerts(fleet), "passed": checks, "at": fleet.at})


def settings_page(observer: FleetObserver, request: PageRequest) -> Page:
    observers = observer.observers()
    label = request.query.get("database", "")
    database_observer = next((s for s in observers if s.address.label == label), None)
    if label and database_observer is None:
        return not_found("There is no such database in this fleet.")
    loaded = observer.sources.load() if database_observer is None else database_observer.settings()
    data = {
        "database": label,
        "databases": [s.address.label for s in observers],
        "settings": _settings(loaded),
        "problems": [{"name": p.name, "origin": p.origin, "message": p.message} for p in loaded.problems],
    }
    return Page("settings.html", "Settings", "settings", data)


def _settings(loaded: Loaded) -> list[dict[str, Any]]:
    return [
        {
            "name": row["name"],
            "value": shown_value(row["name"], getattr(loaded.settings, row["name"])),
            "default": shown_value(row["name"], row["default"]),
            "origin": loaded.origins[row["name"]],
            "range": row["range"],
            "scope": row["scope"],
            "doc": row["doc"],
        }
        for row in describe()
    ]
