"""Charts of the workers over the last half hour."""

from __future__ import annotations

from datetime import UTC, datetime

from pgtrickle.observe.state import FleetState
from pgtrickle.web.charts import Chart, Series, chart

MOST_POINTS = 300


def clock(at: float) -> str:
    return datetime.fromtimestamp(at, UTC).strftime("%H:%M:%S")


def worker_chart(fleet: FleetState, *, small: bool = False) -> Chart | None:
    """Busy workers, and how many there are."""
    samples = fleet.samples[-(100 if small else MOST_POINTS) :]
    if len(samples) < 2:
        return None
    busy = Series([(s.at, s.active) for s in samples], "c-accent", fill=True)
    most = Series([(s.at, s.most) for s in samples], "c-muted")
    return chart([most, busy], x_label=clock, y_label=lambda y: f"{y:g}")


def queue_chart(fleet: FleetState, *, small: bool = False) -> Chart | None:
    """Units that wait for a worker."""
    samples = fleet.samples[-(100 if small else MOST_POINTS) :]
    if len(samples) < 2:
        return None
    waiting = Series([(s.at, s.queued) for s in samples], "c-lagging", fill=True)
    return chart([waiting], x_label=clock, y_label=lambda y: f"{y:g}")
