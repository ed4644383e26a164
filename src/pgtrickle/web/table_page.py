"""The content of the page of one stream table."""

from __future__ import annotations

import re
import shlex
from collections.abc import Mapping, Sequence
from typing import Any

from pgtrickle import errors
from pgtrickle.model.identifiers import qualified
from pgtrickle.observe.state import DatabaseState, Table, TableDetail
from pgtrickle.web.charts import Bar, Chart, Series, chart
from pgtrickle.web.render import milliseconds, since
from pgtrickle.web.worker_charts import clock

MOST_BARS = 100
_COLOURS = {"DIFFERENTIAL": "c-accent", "FULL": "c-loading", "REINITIALIZE": "c-loading"}
_IN_SPARK = "In Spark: "
_SCAN = re.compile(r"^Scan (?:[^:]+ \(mirrored here as )?([^:]+?)\)?:")


def table_values(database: DatabaseState, table: Table, detail: TableDetail) -> tuple[dict[str, Any], dict[str, Any]]:
    """The JSON values, and the drawings."""
    sources = {source.relid: source for source in database.sources}
    reads = [edge for edge in database.edges if edge.pgt_id == table.pgt_id]
    tables = {t.relid: t for t in database.tables}
    readers = [e.pgt_id for e in database.edges if e.relid == table.relid]
    plan = detail.plan or {}
    measured = measured_rows(detail.refreshes)
    data = {
        "database": database.label,
        "table": table,
        "hint": error_hint(table.error_code),
        "query": detail.query,
        "defining_query": detail.defining_query,
        "columns": detail.columns,
        "created_at": detail.created_at,
        "author": detail.author,
        "run_as": detail.run_as,
        "reinit_reason": detail.reinit_reason,
        "plan": {
            "mode": plan.get("mode"),
            "tree": plan_tree(plan, database, table.last_engine or "postgres", measured),
            "measured": measured,
            "spark": spark_part(plan),
            "statements": plan.get("leaves", []),
            "load": plan.get("load"),
            "analyze": f"pgtrickle plan {shlex.quote(qualified(table.schema, table.name))} --analyze",
            "full_when": detail.full_when if plan.get("mode") == "DIFFERENTIAL" else (),
        },
        "reads": [
            {
                "edge": e,
                "source": sources.get(e.relid),
                "mirror": m if (m := tables.get(e.relid)) and m.is_mirror else None,
            }
            for e in reads
        ],
        "read_by": [t for t in database.stream_tables if t.pgt_id in readers],
        "buffers": detail.buffers,
        "replicas": [r for r in database.replicas if r.relid in {e.relid for e in reads}],
        "costs": detail.costs,
        "refreshes": detail.refreshes,
        "lag_points": lag_points(detail.refreshes, detail.allowed_lag),
    }
    drawing = {
        "duration_chart": duration_chart(detail.refreshes),
        "lag_chart": lag_chart(detail.refreshes, detail.allowed_lag),
        "stages": stages(detail.refreshes),
    }
    return data, drawing


def error_hint(code: str | None) -> str | None:
    """What an error code means and who has to act. The text contains no data."""
    if code is None:
        return None
    kinds: list[type[errors.PgtrickleError]] = [errors.PgtrickleError]
    while kinds:
        kind = kinds.pop()
        if kind.code == code:
            return " ".join((kind.__doc__ or "").split())
        kinds += kind.__subclasses__()
    return None


def operators(plan: Mapping[str, Any]) -> list[str]:
    """The lines of the tree of operators. A stored plan has them as the indented lines of its description, `words`."""
    if plan.get("tree"):
        return list(plan["tree"])
    return [line[2:] for line in plan.get("words") or () if line.startswith("  ")]


def spark_part(plan: Mapping[str, Any]) -> str | None:
    """The description of the part that Spark executes."""
    lines = [line for line in plan.get("words") or () if line.startswith(_IN_SPARK)]
    return lines[0].removeprefix(_IN_SPARK) if lines else plan.get("spark")


def measured_rows(refreshes: Sequence[Mapping[str, Any]]) -> dict[str, Any] | None:
    """The numbers of rows in the latest differential refresh that has them, from the changes to what was written."""
    for row in refreshes:
        rows = row["operator_rows"]
        if rows is not None and row["status"] == "COMPLETED":
            return {
                "ended_at": row["ended_at"],
                "changes": row["changes"],
                "by_source": rows["changes"],
                "read": rows["read"],
                "netted": rows["netted"],
                "inserted": row["inserted"],
                "deleted": row["deleted"],
                "netted_by": "Spark" if {"spark", "evaluate"} & (row["timings"] or {}).keys() else "the worker",
            }
    return None


def plan_tree(
    plan: Mapping[str, Any], database: DatabaseState, engine: str, measured: Mapping[str, Any] | None
) -> list[dict[str, Any]]:
    """The operators with their depth, what a refresh does for each, the engine of the last refresh, and the rows that
    the last differential refresh has counted there: at the leaves, where rows leave the statement, after netting."""
    lines = []
    sources = {source.full_name: source for source in database.sources}
    boundaries = plan.get("boundaries") or {}
    read, netted = boundaries.get("read", -1), boundaries.get("netted", -1)
    for number, line in enumerate(operators(plan)):
        text = line.lstrip()
        operator, _, how = text.partition(": ")
        scan = _SCAN.match(text)
        source = sources.get(scan[1]) if scan is not None else None
        is_measure = 0 <= netted < number < read
        rows: list[dict[str, Any]] = []
        if measured is not None:
            if source is not None:
                rows.append({"kind": "changes", "rows": measured["by_source"].get(str(source.relid), 0)})
            if number == read and measured["read"] is not None:
                rows.append({"kind": "delta rows", "rows": measured["read"]})
            if number == netted:
                rows.append({"kind": "after netting", "rows": measured["netted"]})
        lines.append(
            {
                "depth": (len(line) - len(text)) // 2,
                "operator": operator,
                "how": how,
                "engine": None if is_measure else engine,
                "rate": source.rate if source is not None else None,
                "pending": source.pending_rows if source is not None else None,
                "rows": rows,
            }
        )
    return lines


def duration_chart(refreshes: Sequence[Mapping[str, Any]]) -> Chart | None:
    """A bar per refresh, newest on the right."""
    done = [r for r in refreshes if r["ended_at"] is not None and r["action"] != "NO_DATA"][:MOST_BARS]
    bars = [
        Bar(
            -float(position),
            (r["ended_at"] - r["started_at"]) * 1000,
            "c-stopped" if r["status"] == "FAILED" else _COLOURS.get(r["action"], "c-muted"),
            f"{clock(r['started_at'])} {r['action'].lower()} {milliseconds((r['ended_at'] - r['started_at']) * 1000)}",
        )
        for position, r in enumerate(done)
    ]
    starts = {-float(position): r["started_at"] for position, r in enumerate(done)}

    def label(x: float) -> str:
        return clock(starts[min(starts, key=lambda known: abs(known - x))])

    return chart([], bars, x_label=label, y_label=milliseconds)


def lag_chart(refreshes: Sequence[Mapping[str, Any]], allowed_lag: float | None) -> Chart | None:
    points = lag_points(refreshes, allowed_lag)
    if len(points) < 2:
        return None
    return chart([Series(points, "c-fresh", fill=True)], x_label=clock, y_label=since)


def lag_points(refreshes: Sequence[Mapping[str, Any]], allowed_lag: float | None) -> list[tuple[float, float]]:
    """Upper bounds of the lag behind the sources, from the history (newest first), as (time, seconds).

    Times of changes are not recorded. The oldest change that a refresh applies is younger than the snapshot of the
    refresh before, and, by the schedule, no older than `allowed_lag` when the first attempt to refresh begins. Before
    that change nothing is pending, and the lag is 0.
    """
    points: list[tuple[float, float]] = []
    cut = ended = first_attempt = None
    for row in reversed(refreshes[:MOST_BARS]):
        if first_attempt is None:
            first_attempt = row["started_at"]
        if row["status"] != "COMPLETED" or row["data_at"] is None or row["ended_at"] is None:
            continue
        if row["action"] != "NO_DATA":
            if cut is not None and ended is not None:
                oldest = cut if allowed_lag is None else max(cut, first_attempt - allowed_lag)
                points.append((ended, max(0.0, ended - oldest)))
                if oldest > ended:
                    points.append((oldest, 0.0))
                points.append((row["ended_at"], max(0.0, row["ended_at"] - oldest)))
            ended = row["ended_at"]
        cut, first_attempt = row["data_at"], None
    return [*points, (ended, 0.0)] if ended is not None else []


def stages(refreshes: Sequence[Mapping[str, Any]]) -> list[dict[str, Any]]:
    """Where the time of the latest completed refreshes went."""
    total: dict[str, float] = {}
    for row in [r for r in refreshes if r["status"] == "COMPLETED" and r["action"] != "NO_DATA"][:20]:
        for stage, ms in (row["timings"] or {}).items():
            total[stage] = total.get(stage, 0.0) + float(ms)
    whole = sum(total.values())
    by_time = sorted(total.items(), key=lambda item: -item[1])
    left, shares = 0.0, []
    for position, (stage, ms) in enumerate(by_time):
        width = ms / whole * 100 if whole else 0.0
        shares.append({"stage": stage, "ms": ms, "share": width, "left": left, "colour": f"s{position % 6}"})
        left += width
    return shares
