"""Refreshes mirrors: the tables of one origin that are mirrored in one database, all to one cut of the origin.

They move together, in one transaction: whoever reads several of them in one snapshot sees the origin at one instant.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

from pgtrickle.db import catalog
from pgtrickle.db.connect import translated
from pgtrickle.db.statements import statement
from pgtrickle.errors import InvariantError, PgtrickleError
from pgtrickle.model.catalog import StreamTable, as_at_origin
from pgtrickle.model.flow import Cut, Frontier, Pending, Timings
from pgtrickle.runtime.decide import NO_DATA, PREPARE, Decision
from pgtrickle.runtime.origins import RENDERING
from pgtrickle.runtime.pending import Wanted
from pgtrickle.runtime.refresh import Job, Outcome, Refresher

if TYPE_CHECKING:
    from pgtrickle.db.connect import Connection

FORGOTTEN = "the origin does not know this mirror any more (detached, or restored from a backup)"
WENT_BACK = "the origin has been told of a later state than this one (this database was restored from a backup)"


class MirrorRefresher(Refresher):
    """`reader` is a session in the origin, `writer` one in the database of the mirrors."""

    _known: dict[int, Cut | None]  # how far the origin believes that each mirror is

    def together(self, ids: Sequence[int], reader_key: str) -> list[Outcome]:
        """All mirrors of one origin. When one of them has to be prepared first, nothing is done."""
        with translated(), self._snapshot():
            moment = catalog.read_moment(self.reader)
            self._known = _positions(self.reader, reader_key)
            outcomes: list[Outcome] = []
            jobs = self._plan(ids, moment, outcomes)
            unready = [o for o in outcomes if o.error is not None or o.action == PREPARE]
            if unready or not jobs:
                return unready or outcomes
            jobs += [self._follower(o.table, jobs[0]) for o in outcomes]
            self._compute(jobs, moment)
            failed = next((job.error for job in jobs if job.error is not None), None)
            if failed is not None:
                return [Outcome(job.table, job.decision.action, None, failed) for job in jobs]
            written = self._commit(jobs, moment)
        if all(o.error is None for o in written):
            _acknowledge(self.reader, reader_key, ids, moment.cut)
        return written

    def _follower(self, table: StreamTable, other: Job) -> Job:
        """A mirror without changes goes along: its content is the same at the new cut."""
        compiled = self.compiled(table)
        if compiled is None:
            raise InvariantError(f"{table.full_name} was not prepared")
        job = Job(table, compiled, Decision(NO_DATA), None, {}, table.fingerprints, other.started_at, Timings())
        job.is_silent = True
        return job

    def _commit(self, jobs: Sequence[Job], moment: catalog.Moment) -> list[Outcome]:
        try:
            with translated(), self.writer.transaction():
                for name, value in RENDERING.items():
                    self.writer.execute("SELECT pg_catalog.set_config(%s, %s, true)", (name, value))
                outcomes = self._write(jobs, moment, "SCHEDULER")
                for outcome in outcomes:
                    if outcome.error is not None:
                        raise outcome.error
                self.writer.execute(
                    statement("mirror_fingerprints"),
                    {
                        "ids": [j.table.pgt_id for j in jobs],
                        "fingerprints": [next(iter(j.fingerprints.values())) for j in jobs],
                    },
                )
        except PgtrickleError as error:
            return [Outcome(job.table, job.decision.action, None, error) for job in jobs]
        return outcomes

    def _tables(self, ids: Sequence[int]) -> list[StreamTable]:
        return [self._adapted(table) for table in catalog.load_stream_tables(self.writer, ids)]

    def _adapted(self, table: StreamTable) -> StreamTable:
        """As its origin sees it. One whose position there does not fit its own is loaded anew."""
        table = as_at_origin(table)
        assert table.mirror is not None
        frontier = Frontier.from_json(table.frontier)
        cut = frontier.cuts.get(table.mirror.key) if frontier is not None else None
        if cut is None or table.needs_reinit:
            return table
        if table.pgt_id not in self._known:
            return replace(table, needs_reinit=True, reinit_reason=FORGOTTEN)
        position = self._known[table.pgt_id]
        if position is not None and not position.precedes(cut):
            return replace(table, needs_reinit=True, reinit_reason=WENT_BACK)
        return table

    def _analyse(self, counts: dict[Wanted, Pending]) -> None:
        """Windows are read as they are, not joined."""


def _positions(conn: Connection, reader_key: str) -> dict[int, Cut | None]:
    rows = conn.execute(
        "SELECT mirror_id, snapshot::text FROM pgtrickle.pgt_readers WHERE reader_key = %s", (reader_key,)
    ).fetchall()
    return {mirror_id: None if text is None else Cut.parse(text) for mirror_id, text in rows}


def _acknowledge(conn: Connection, reader_key: str, ids: Sequence[int], cut: Cut) -> None:
    """After the commit: what is before the cut may be trimmed. When this is lost, the next refresh says it."""
    conn.execute(
        "UPDATE pgtrickle.pgt_readers SET snapshot = %s::pg_snapshot, updated_at = clock_timestamp() "
        "WHERE reader_key = %s AND mirror_id = ANY (%s)",
        (str(cut), reader_key, list(ids)),
    )
