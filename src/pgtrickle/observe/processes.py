"""Memory and CPU of the processes of the fleet, where there is a /proc."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from pathlib import Path

from pgtrickle.ipc.fleet_memory import ProcessState, SchedulerState
from pgtrickle.observe.state import Process
from pgtrickle.observe.status import resident_bytes

_TICKS = os.sysconf("SC_CLK_TCK")


def observed_processes(
    processes: Sequence[ProcessState], schedulers: Sequence[SchedulerState], labels: Mapping[str, str]
) -> tuple[Process, ...]:
    """Those that serve all databases, then the schedulers. `labels`: of databases, by key."""
    observed = [Process(p.kind, None, p.pid, p.state, p.since, *_used(p.pid)) for p in processes]
    observed += [
        Process("scheduler", labels.get(s.key, s.name), s.pid, s.state, s.since, *_used(s.pid)) for s in schedulers
    ]
    return tuple(observed)


def _used(pid: int) -> tuple[int | None, float | None]:
    return resident_bytes(pid), cpu_seconds(pid)


def cpu_seconds(pid: int) -> float | None:
    """User and system time. None where there is no /proc, or no such process."""
    try:
        fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
        return (int(fields[11]) + int(fields[12])) / _TICKS
    except (OSError, ValueError, IndexError):
        return None
