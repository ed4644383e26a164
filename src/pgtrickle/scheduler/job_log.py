"""The units that a scheduler has sent to the pipeline, as shown in pgt_scheduler_jobs."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from pgtrickle.db.connect import backend_pid, translated
from pgtrickle.db.statements import statement
from pgtrickle.ipc.channel import Finished
from pgtrickle.model.work import TIERS, Unit

if TYPE_CHECKING:
    from pgtrickle.db.connect import Connection


class JobLog:
    def __init__(self, conn: Connection) -> None:
        self._conn = conn
        self._pid = backend_pid(conn)

    def queued(self, units: Sequence[Unit], attempts: Mapping[str, int], tick_seconds: float) -> list[int]:
        """Their job ids. `attempts`: of units that failed, by their key. `tick_seconds`: since the tick began."""
        with translated():
            rows = self._conn.execute(
                statement("jobs_queue"),
                {
                    "keys": [u.key for u in units],
                    "kinds": [u.kind for u in units],
                    "members": ["{" + ",".join(map(str, u.members)) + "}" for u in units],
                    "tiers": [TIERS[u.tier] for u in units],
                    "attempts": [attempts.get(u.key, 0) + 1 for u in units],
                    "scheduler_pid": self._pid,
                    "tick_seconds": tick_seconds,
                },
            ).fetchall()
        return [row[0] for row in rows]

    def finished(self, message: Finished) -> None:
        jobs = message.jobs
        with translated():
            self._conn.execute(
                statement("jobs_finished"),
                {
                    "ids": [job_id for job_id, _, _, _ in jobs],
                    "statuses": [status for _, status, _, _ in jobs],
                    "details": [why for _, _, why, _ in jobs],
                    "rounds": [rounds for _, _, _, rounds in jobs],
                    "times": [message.at] * len(jobs),
                },
            )

    def abandoned(self, why: str) -> None:
        """Closes all unfinished units, whose results will not arrive."""
        with translated():
            self._conn.execute(statement("jobs_abandoned"), {"detail": why})
