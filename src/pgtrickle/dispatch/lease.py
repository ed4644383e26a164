"""Executes a lease in a worker's thread and reports its results."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from datetime import UTC, datetime
from typing import Protocol

from pgtrickle.db.connect import without_values
from pgtrickle.dispatch.lease_progress import LeaseProgress
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
from pgtrickle.refresh.culprit import is_of_a_value
from pgtrickle.refresh.job import Outcome
from pgtrickle.telemetry import LEASE_BROKEN, LEASE_FAILED, event
from pgtrickle.tracing import span

log = logging.getLogger(__name__)

# The first matching class determines the branch; any other error stops the table.
_BRANCHES: tuple[tuple[type[PgtrickleError], str], ...] = (
    (FencedError, "fenced"),
    (EngineLostError, "engine"),
    (OriginAwayError, "away"),
    (TransientError, "retry"),
    (InvariantError, "retry"),
)
_BY_WEIGHT = ("stop", "retry", "away", "engine", "fenced")  # by precedence: the reason of a failed unit


class LeaseObserver(Protocol):
    """Receives details that schedulers do not need, which only have to know whether to retry."""

    def refreshed(self, outcomes: Sequence[Outcome]) -> None: ...

    def failed(self, error: Exception) -> None:
        """A lease failed as a whole: its connection was lost, or because of a bug."""


def work(site: ManagedDatabase, jobs: Sequence[QueuedUnit], observer: LeaseObserver | None = None) -> Finished:
    """A lease, in a worker's thread."""
    try:
        worker = site.take()
    except PgtrickleError as error:
        return _all_failed(jobs, RETRYABLE, error, observer)
    try:
        progress = LeaseProgress(worker.writer, jobs)
        # The latest of them: an earlier read may lack the changes that made one of them due.
        changes_seen_at = [job.changes_seen_at for job in jobs if job.changes_seen_at is not None]
        with span("lease", lambda: {"database": site.name, "units": len(jobs)}):
            outcomes = worker.run(
                [job.unit for job in jobs],
                max(changes_seen_at) if changes_seen_at and all(changes_seen_at) else 0.0,
                progress,
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
        # A bug must be visible, and must not affect the other databases.
        log.exception("A lease failed unexpectedly", extra=event(LEASE_BROKEN, database=site.name))
        worker.close()
        return _all_failed(jobs, RETRYABLE, error, observer)
    finally:
        site.give_back(worker)


def _finished(jobs: Sequence[QueuedUnit], outcomes: Sequence[Outcome]) -> Finished:
    results = {o.table.pgt_id: _table_result(o) for o in outcomes}
    rounds = {o.table.pgt_id: o.rounds for o in outcomes if o.rounds is not None}
    ended = []
    for job in jobs:
        own = [results[i] for i in job.unit.members if i in results]
        why = next((f.detail for branch in _BY_WEIGHT for f in own if f.branch == branch), None)
        branches = {f.branch for f in own}
        status = PERMANENT if "stop" in branches else RETRYABLE if branches - {"ok"} else SUCCEEDED
        ended.append((job.job_id, status, why, max((rounds.get(i, 0) for i in job.unit.members), default=0) or None))
    return Finished(tuple(ended), tuple(results.values()), datetime.now(UTC))


def failure_text(error: Exception) -> str:
    """Why a unit failed, without values of rows: those who may read its stream tables see it, not only those who may
    read the sources."""
    if not isinstance(error, PgtrickleError):
        return f"{type(error).__name__}: {error}"
    return f"{error.code}: {without_values(error)}" if is_of_a_value(error) else error.one_line()


def _table_result(outcome: Outcome) -> TableResult:
    error = outcome.error
    if error is None:
        return TableResult(outcome.table.pgt_id, outcome.action, "ok", share_ms=outcome.share_ms)
    branch = next((name for kind, name in _BRANCHES if isinstance(error, kind)), "stop")
    return TableResult(outcome.table.pgt_id, outcome.action, branch, failure_text(error))


def _all_failed(jobs: Sequence[QueuedUnit], status: str, error: Exception, observer: LeaseObserver | None) -> Finished:
    if observer is not None:
        observer.failed(error)
    branch = "retry" if status == RETRYABLE else "stop"
    why = failure_text(error)
    results = tuple(TableResult(i, "SKIP", branch, why) for job in jobs for i in job.unit.members)
    return Finished(tuple((job.job_id, status, why, None) for job in jobs), results, datetime.now(UTC))
