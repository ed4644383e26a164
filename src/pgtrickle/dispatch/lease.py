"""What a worker's thread does with a lease, and what is said of it afterwards."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from datetime import UTC, datetime
from typing import Protocol

from pgtrickle.db.connect import translated
from pgtrickle.db.statements import statement
from pgtrickle.dispatch.managed_database import ManagedDatabase
from pgtrickle.errors import (
    EngineLostError,
    FencedError,
    InvariantError,
    OriginAwayError,
    PgtrickleError,
    TransientError,
)
from pgtrickle.ipc.channel import Finished, TableResult
from pgtrickle.model.work import PERMANENT, RETRYABLE, SUCCEEDED, QueuedUnit
from pgtrickle.refresh.job import Outcome
from pgtrickle.telemetry import LEASE_BROKEN, LEASE_FAILED, event

log = logging.getLogger(__name__)


class LeaseObserver(Protocol):
    """Learns what schedulers are not told: they only need to know whether to try again."""

    def refreshed(self, outcomes: Sequence[Outcome]) -> None: ...

    def failed(self, error: Exception) -> None:
        """A lease as a whole: its connection was lost, or a fault of ours."""


def work(site: ManagedDatabase, jobs: Sequence[QueuedUnit], observer: LeaseObserver | None = None) -> Finished:
    """A lease, in a worker's thread."""
    try:
        worker = site.take()
    except PgtrickleError as error:
        return _all_failed(jobs, RETRYABLE, error, observer)
    try:
        with translated():
            worker.writer.execute(
                statement("jobs_running"), {"ids": [j.job_id for j in jobs], "worker_pid": worker.backend_pid}
            )
        # The latest of them: what was read before may lack what one of them is wanted for.
        changes_seen_at = [job.changes_seen_at for job in jobs if job.changes_seen_at is not None]
        outcomes = worker.run(
            [job.unit for job in jobs], max(changes_seen_at) if changes_seen_at and all(changes_seen_at) else 0.0
        )
        if observer is not None:
            observer.refreshed(outcomes)
        return _finished(jobs, outcomes)
    except TransientError as error:
        return _all_failed(jobs, RETRYABLE, error, observer)
    except PgtrickleError as error:
        log.error("A lease failed", extra=event(LEASE_FAILED, database=site.name, detail=error.one_line()))
        return _all_failed(jobs, PERMANENT, error, observer)
    except Exception as error:
        # A fault of ours must be seen, and must not take the other databases down.
        log.exception("A lease broke", extra=event(LEASE_BROKEN, database=site.name))
        worker.close()
        return _all_failed(jobs, RETRYABLE, error, observer)
    finally:
        site.give_back(worker)


def _finished(jobs: Sequence[QueuedUnit], outcomes: Sequence[Outcome]) -> Finished:
    fared = {o.table.pgt_id: _fared(o) for o in outcomes}
    rounds = {o.table.pgt_id: o.rounds for o in outcomes if o.rounds is not None}
    ended = []
    for job in jobs:
        own = [fared[i] for i in job.unit.members if i in fared]
        why = next(
            (f.detail for branch in ("stop", "retry", "away", "engine") for f in own if f.branch == branch), None
        )
        branches = {f.branch for f in own}
        status = PERMANENT if "stop" in branches else RETRYABLE if branches & {"retry", "away", "engine"} else SUCCEEDED
        ended.append((job.job_id, status, why, max((rounds.get(i, 0) for i in job.unit.members), default=0) or None))
    return Finished(tuple(ended), tuple(fared.values()), datetime.now(UTC))


def _fared(outcome: Outcome) -> TableResult:
    error = outcome.error
    if error is None or isinstance(error, FencedError):
        return TableResult(outcome.table.pgt_id, outcome.action, "ok")
    branch = "retry" if isinstance(error, TransientError | InvariantError) else "stop"
    if isinstance(error, EngineLostError):
        branch = "engine"
    elif isinstance(error, OriginAwayError):
        branch = "away"
    return TableResult(outcome.table.pgt_id, outcome.action, branch, error.one_line())


def _all_failed(jobs: Sequence[QueuedUnit], status: str, error: Exception, observer: LeaseObserver | None) -> Finished:
    if observer is not None:
        observer.failed(error)
    branch = "retry" if status == RETRYABLE else "stop"
    why = error.one_line() if isinstance(error, PgtrickleError) else f"{type(error).__name__}: {error}"
    fared = tuple(TableResult(i, "SKIP", branch, why) for job in jobs for i in job.unit.members)
    return Finished(tuple((job.job_id, status, why, None) for job in jobs), fared, datetime.now(UTC))
