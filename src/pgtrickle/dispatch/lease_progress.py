"""Which unit of a lease its worker is at, as pgt_scheduler_jobs shows it.

A worker is at one unit at a time: that one is RUNNING, those that wait in its lease are QUEUED, with the worker's pid.
Units whose changes are applied in one wave count as one step, which its first unit stands for: they are done together.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from pgtrickle.db.connect import backend_pid, translated
from pgtrickle.db.statements import statement
from pgtrickle.model.work import QueuedUnit

if TYPE_CHECKING:
    from pgtrickle.db.connect import Connection


class LeaseProgress:
    """Writes when the worker turns to another unit, not with each table."""

    def __init__(self, conn: Connection, jobs: Sequence[QueuedUnit]) -> None:
        self._conn = conn
        self._jobs = {pgt_id: job.job_id for job in jobs for pgt_id in job.unit.members}
        self._left = {job.job_id: set(job.unit.members) for job in jobs}
        self._written: set[int] = set()  # jobs that are closed
        self._current = jobs[0].job_id
        taken = {"ids": list(self._left), "first": self._current, "worker_pid": backend_pid(conn)}
        with translated():
            conn.execute(statement("jobs_taken"), taken)

    def begun(self, pgt_id: int) -> None:
        job = self._jobs.get(pgt_id)
        if job is None or job == self._current or not self._left[job]:
            return
        done = [each for each, left in self._left.items() if not left and each not in self._written]
        waiting = [] if self._current in done or self._current in self._written else [self._current]
        moved = {"running": job, "done": done, "waiting": waiting}
        with translated():
            self._conn.execute(statement("jobs_moved"), moved)
        self._written.update(done)
        self._current = job

    def done(self, pgt_id: int) -> None:
        if pgt_id in self._jobs:
            self._left[self._jobs[pgt_id]].discard(pgt_id)
