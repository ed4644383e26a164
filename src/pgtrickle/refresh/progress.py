"""Who learns which stream tables of a lease are being refreshed, and which are done."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Protocol

from pgtrickle.refresh.job import Outcome


class Progress(Protocol):
    """Called outside transactions. Stream tables that change in one wave are begun together, as the first of them."""

    def begun(self, pgt_id: int) -> None:
        """Work that is for this table alone (to prepare or load it), or for its unit, begins."""

    def done(self, pgt_id: int) -> None:
        """The stream table is refreshed, and committed."""


class UnobservedProgress:
    """Ignores all reports: nobody observes these refreshes."""

    def begun(self, pgt_id: int) -> None:
        pass

    def done(self, pgt_id: int) -> None:
        pass


def report_done(progress: Progress, outcomes: Iterable[Outcome]) -> None:
    """Reports the stream tables whose refresh did not fail."""
    for outcome in outcomes:
        if outcome.error is None:
            progress.done(outcome.table.pgt_id)
