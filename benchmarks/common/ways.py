"""The four ways to refresh a stream table, (FULL, DIFFERENTIAL) x (PostgreSQL, Spark), and what each takes.

That is elapsed time, and CPU time of the source's server.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from statistics import median
from typing import TypeVar

import psycopg

from common.fleet import family_cpu_seconds
from common.harness import Bench, note
from pgtrickle.db.connect import connect
from pgtrickle.errors import ReplicaUnavailableError
from pgtrickle.refresh.job import Outcome
from pgtrickle.replica import ReplicaNeed, ReplicaStore

FULL, DIFFERENTIAL, POSTGRES, SPARK = "FULL", "DIFFERENTIAL", "postgres", "spark"
LOADED_S = 900.0
UNLOADED = "SELECT FROM pgtrickle.pgt_stream_tables WHERE NOT is_populated AND status NOT IN ('ERROR', 'SUSPENDED')"
MOST_TICKS = 5
T = TypeVar("T")
SETTLED = 3  # of the last rounds, in which AUTO has learned


@dataclass(frozen=True, slots=True)
class Way:
    """What a stream table is pinned to."""

    mode: str
    engine: str

    @property
    def name(self) -> str:
        return f"{self.mode.lower()} {self.engine}"

    @property
    def suffix(self) -> str:
        return f"{self.mode[0]}{self.engine[0]}".lower()


WAYS = tuple(Way(mode, engine) for engine in (POSTGRES, SPARK) for mode in (DIFFERENTIAL, FULL))
FULL_WAYS = tuple(way for way in WAYS if way.mode == FULL)


@dataclass(frozen=True, slots=True)
class Refreshed:
    """One refresh of a table alone. `way`: how it was done, whatever it was pinned to."""

    ms: float
    cpu_s: float
    way: str = ""
    is_try: bool = False
    error: str | None = None
    reason: str = ""


@dataclass(slots=True)
class Measured:
    """The refreshes of a table."""

    done: list[Refreshed] = field(default_factory=list)
    refused: str | None = None

    def of(self, way: str) -> list[Refreshed]:
        return [d for d in self.done if d.way == way and d.error is None]

    def figures(self, way: str) -> dict[str, float] | None:
        """Medians of what was done in this way."""
        found = self.of(way)
        if not found:
            return None
        return {
            "ms": round(median(d.ms for d in found), 1),
            "cpu_s": round(median(d.cpu_s for d in found), 3),
            "rounds": len(found),
        }

    def settled(self) -> list[Refreshed]:
        """What AUTO did in the last rounds; a try of what is not known yet is no choice."""
        good = [d for d in self.done if d.error is None]
        return [d for d in good[-SETTLED:] if not d.is_try] or [d for d in good if not d.is_try][-1:]

    def choice(self) -> str | None:
        """What was taken most, the latest of those."""
        chosen = [d.way for d in self.settled()]
        return max(reversed(chosen), key=chosen.count, default=None)


class Source:
    """The server of the sources, by the process that started all of its processes."""

    def __init__(self, line: Bench) -> None:
        ((pid,),) = line.sql("SELECT pg_backend_pid()")
        self._pid = int(Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[1])

    def cpu_s(self) -> float:
        """Of all processes so far, parallel workers that have ended included."""
        return family_cpu_seconds(self._pid)


def refreshed(line: Bench, source: Source, name: str) -> Refreshed:
    line.sql("SELECT pgtrickle.refresh_stream_table(%s)", name)
    for _ in range(MOST_TICKS):  # the tick that refreshes it counts: one before it may have had other work
        begun, used = time.perf_counter(), source.cpu_s()
        outcomes = [o for o in line.plane.tick() if o.table.name == name]
        took, used = (time.perf_counter() - begun) * 1000, source.cpu_s() - used
        if outcomes:
            return _refreshed(outcomes[-1], took, used)
    return Refreshed(took, used, error=f"was not refreshed within {MOST_TICKS} ticks")


def _refreshed(outcome: Outcome, ms: float, cpu_s: float) -> Refreshed:
    if outcome.error is not None:
        return Refreshed(ms, cpu_s, error=outcome.error.one_line())
    engine = outcome.engine
    reasons = [r for r in (outcome.reason, engine.reason if engine is not None else None) if r is not None]
    is_try = any("TRIED" in reason.code.name for reason in reasons)
    way = f"{outcome.action.lower()} {engine.engine if engine is not None else POSTGRES}"
    return Refreshed(ms, cpu_s, way, is_try, reason="; ".join(map(str, reasons)))


def created(line: Bench, name: str, query: str, mode: str, engine: str) -> str | None:
    """A table that is refreshed on request only, loaded. Returns why it cannot be maintained in this way."""
    try:
        line.sql("SELECT pgtrickle.create_stream_table(%s, %s, '24h', %s, engine => %s)", name, query, mode, engine)
    except psycopg.Error as error:
        return error.diag.message_primary
    until = time.monotonic() + LOADED_S
    line.plane.tick()
    while time.monotonic() < until and line.sql(UNLOADED):
        time.sleep(0.5)
        line.plane.tick()
    ((status, message),) = line.sql(
        "SELECT status, last_error_message FROM pgtrickle.pgt_stream_tables WHERE pgt_name = %s", name
    )
    if status != "ACTIVE":
        dropped(line, name)
        return str(message)
    # AUTO does not learn in the first minute.
    line.sql("UPDATE pgtrickle.pgt_stream_tables SET created_at = created_at - interval '1 min'")
    return None


def dropped(line: Bench, name: str) -> None:
    line.sql("SELECT pgtrickle.drop_stream_table(%s)", name)


def build_replicas(line: Bench, tables: Sequence[str]) -> None:
    """Of all columns, so that no query makes another one necessary."""
    store = line.plane.worker.replicas
    assert store is not None
    with connect(line.dsn, role="replica", autocommit=True) as conn:
        for table in tables:
            begun = time.perf_counter()
            ((relid,),) = line.sql("SELECT %s::regclass::oid::int8", table)
            version = store.ensure(conn, ReplicaNeed(relid, None))
            note(f"replica of {table}: {version.bytes / 1e6:.0f} MB in {time.perf_counter() - begun:.1f} s")


def advance_replicas(line: Bench, store: ReplicaStore | None = None) -> None:
    """What is due, now: not beside a refresh that is measured. `store`: that of another database, which reads them."""
    store = store or line.plane.worker.replicas
    assert store is not None
    until = time.monotonic() + LOADED_S
    with connect(line.dsn, role="replica", autocommit=True) as conn:
        while (due := store.due(conn)) and time.monotonic() < until:
            try:
                store.advance(conn, due[0])
            except ReplicaUnavailableError:  # the control plane does it at this moment
                time.sleep(0.2)


def weigh(line: Bench, weight: float) -> None:
    """How much AUTO counts the time of the source from now on: source_cost_weight."""
    refresher = line.plane.worker.refresher
    refresher.limits = replace(refresher.limits, source_cost_weight=weight)


def rotated(items: Sequence[T], number: int) -> list[T]:
    """Nobody is always the first to read what has changed."""
    first = number % len(items) if items else 0
    return [*items[first:], *items[:first]]
