"""A wave: stream tables of one database that are refreshed together, from one snapshot.

Read in one REPEATABLE READ transaction, compute on Spark in few jobs, apply each table in a transaction of its own. A
table that fails does not hold back the others.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Generator, Iterable, Iterator, Mapping, Sequence
from contextlib import closing, contextmanager
from dataclasses import replace
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

from pgtrickle.apply import bags
from pgtrickle.apply import groups as grouped
from pgtrickle.apply import kept as limited
from pgtrickle.apply.commit import Record, Written, fence, write_history
from pgtrickle.apply.stage import drop_stage, stage_arrow, stage_columns
from pgtrickle.apply.target import reshape
from pgtrickle.capture.fingerprint import fingerprints, unchanged
from pgtrickle.db import catalog
from pgtrickle.db.connect import MOST_PLANNED_AHEAD, begin, plan_for_many, translated
from pgtrickle.db.copy import read_batches
from pgtrickle.db.roundtrip import Ask, Steps, ask_all, ask_together
from pgtrickle.errors import (
    DefinitionError,
    FencedError,
    InexactValueError,
    PgtrickleError,
    SourceChangedError,
    TooManyRowsError,
)
from pgtrickle.model.catalog import Source, StreamTable
from pgtrickle.model.flow import Cut, Frontier, Pending, Timings, Window
from pgtrickle.pipeline import frames
from pgtrickle.pipeline.deltatext import delta_text
from pgtrickle.pipeline.rules.linear import Changed
from pgtrickle.pipeline.spark import SparkEngine, WorkItem
from pgtrickle.pipeline.templates import FoldTemplate
from pgtrickle.runtime.bulkload import BULK_BYTES, stage_by_executors
from pgtrickle.runtime.compile import Compiled
from pgtrickle.runtime.costs import CostMemory
from pgtrickle.runtime.decide import (
    DIFFERENTIAL,
    FULL,
    NO_DATA,
    PREPARE,
    Decision,
    decide,
    reload_reason,
    since,
)
from pgtrickle.runtime.job import Job, Outcome, timed
from pgtrickle.runtime.pending import Wanted, analyse_buffers, read_pending
from pgtrickle.runtime.rereads import delta_arrays
from pgtrickle.runtime.room import Room
from pgtrickle.scheduler.cost import LOAD, Limits

if TYPE_CHECKING:
    import pyarrow as pa

    from pgtrickle.db.connect import Connection

# Transactions that may have begun between a chain's snapshot and its own: they are listed in its frontier.
MAX_BETWEEN = 5_000
# Rows that a few changes may bring (all of them twice, where a subquery that every row asks has another answer) before
# AUTO computes the table anew instead. They are held in memory.
MOST_ROWS = 500_000
FEW_ROWS = 10_000  # changes whose rows are rather found by an index: to read a table for them is not proportional
SMALL_ROWS = 5_000  # above: leaves are read, and deltas staged, by COPY; below, rows and array parameters are quicker
MIRROR_ROWS = 20_000  # changes that the apply statement of a mirror nets itself, from array parameters


class _SpoiltError(Exception):
    """A statement failed without a savepoint: nothing more can be read at this snapshot."""


class Refresher:
    """Refreshes stream tables of one database over two connections: one reads at a snapshot, one applies."""

    def __init__(
        self,
        reader: Connection,
        writer: Connection,
        engine: SparkEngine,
        compiled: Callable[[StreamTable], Compiled | None],
        limits: Limits,
        bulk_bytes: int = BULK_BYTES,
        costs: CostMemory | None = None,
    ) -> None:
        self.reader = reader
        self.writer = writer
        self.engine = engine
        self.compiled = compiled
        self.limits = limits
        self.quiet_too = False  # of a cycle all go when one does
        self.bulk_bytes = bulk_bytes
        self.costs = costs if costs is not None else CostMemory()

    def wave(self, ids: Sequence[int], *, initiated_by: str = "SCHEDULER") -> list[Outcome]:
        return self.wave_if(ids, lambda _tables: True, initiated_by) or []

    def wave_if(
        self, ids: Sequence[int], may_go: Callable[[Sequence[StreamTable]], bool], initiated_by: str = "SCHEDULER"
    ) -> list[Outcome] | None:
        """None: they may not go, as they are now.

        First without savepoints: a read that fails spoils the snapshot for all, and then they go with them.
        """
        try:
            return self._wave(ids, may_go, initiated_by, guarded=len(ids) == 1)
        except _SpoiltError:
            return self._wave(ids, may_go, initiated_by, guarded=True)

    def _wave(
        self,
        ids: Sequence[int],
        may_go: Callable[[Sequence[StreamTable]], bool],
        initiated_by: str,
        *,
        guarded: bool,
    ) -> list[Outcome] | None:
        outcomes: list[Outcome] = []
        with translated(), self._snapshot():
            with self.engine.coming():
                moment = catalog.read_moment(self.reader)
                tables = self._tables(ids)
                if not may_go(tables):
                    return None
                jobs = self._plan(tables, moment, outcomes)
                self._compute(jobs, moment, guarded=guarded)
            outcomes += self._finish_all(jobs, moment, initiated_by)
        return outcomes

    def chain(self, levels: Sequence[Sequence[int]]) -> tuple[list[Outcome], list[int]]:
        """Stream tables that read one another, at one instant: refreshed and committed together, upstream first.

        The applying transaction takes over the snapshot, so that it sees all base tables as of it and, besides, what it
        has itself written upstream. A table that fails is undone alone and holds what reads it. Returns outcomes, and
        the tables that have to be loaded, which is done afterwards, each by itself.
        """
        outcomes: list[Outcome] = []
        later: list[int] = []
        with translated(), self._snapshot():
            moment = catalog.read_moment(self.reader)
            exported = self.reader.execute("SELECT pg_export_snapshot()").fetchone()
            assert exported is not None
            with self._joined(exported[0]) as xid:
                if xid - moment.cut.xmax > MAX_BETWEEN:
                    return [], [i for ids in levels for i in ids]
                limits = replace(self.limits, may_try_full=False)
                inner = Refresher(self.writer, self.writer, self.engine, self.compiled, limits, costs=self.costs)
                moment = replace(moment, cut=moment.cut.with_own(xid))
                held: set[int] = set()
                for ids in levels:
                    inner.level(ids, moment, outcomes, later, held)
        return outcomes, later

    def level(
        self, ids: Sequence[int], moment: catalog.Moment, outcomes: list[Outcome], later: list[int], held: set[int]
    ) -> None:
        """One level of a chain, inside its transaction. `held` are the tables that did not move, or will move later."""
        tables = self._tables(ids)
        waiting = [t for t in tables if held & {s.relid for s in t.sources}]
        held |= {t.relid for t in waiting}
        later += [t.pgt_id for t in waiting if later]
        found: list[Outcome] = []
        jobs = self._plan([t for t in tables if t not in waiting], moment, found)
        loads = [j.table for j in jobs if j.is_load] + [o.table for o in found if o.action == PREPARE]
        later += [t.pgt_id for t in loads]
        held |= {t.relid for t in loads} | {o.table.relid for o in found if o.error is not None}
        outcomes += [o for o in found if o.action != PREPARE]
        moving = [j for j in jobs if not j.is_load]
        self._compute(moving, moment)
        for job in moving:
            if job.is_load:  # a value sent it to FULL
                later.append(job.table.pgt_id)
                held.add(job.table.relid)
                continue
            outcome = self._finish(job, moment, "SCHEDULER")
            outcomes.append(outcome)
            if outcome.error is not None:
                held.add(job.table.relid)

    def _compute(self, jobs: Sequence[Job], moment: catalog.Moment, *, guarded: bool = True) -> None:
        """Reads, runs and arranges the changes of these tables; what AUTO cannot do from changes turns to FULL."""
        self._expect_few(jobs)
        if guarded:
            for job in jobs:
                self._step(job, self._read, moment.cut)
        else:
            self._all(self._read_all, jobs, moment.cut)
        self._spark(jobs)
        self._arrange_all(jobs, moment, guarded=guarded)

    def _expect_few(self, jobs: Sequence[Job]) -> None:
        """For the rest of the snapshot, if nothing is loaded from it: pages are in memory, as most are that changes
        touch. The planner's usual idea, of a disk with a head, is that 1,500 lookups take longer than to read and hash
        100,000 rows, which takes six times as long.
        """
        rows = [sum(p.rows for p in job.pending.values()) for job in jobs if job.decision.action == DIFFERENTIAL]
        if rows and max(rows) <= FEW_ROWS and not any(job.is_load for job in jobs):
            cost = "least(current_setting('random_page_cost')::float8, 1.1)::text"
            self.reader.execute(f"SELECT set_config('random_page_cost', {cost}, true)")

    def _arrange_all(self, jobs: Sequence[Job], moment: catalog.Moment, *, guarded: bool = True) -> None:
        if any(job.delta is not None and len(job.delta) > MOST_PLANNED_AHEAD for job in jobs):
            plan_for_many(self.reader)
        arranged = [job for job in jobs if job.delta is not None and job.error is None]
        if guarded:
            for job in arranged:
                self._step(job, self._arrange)
        else:
            self._all(self._arrange_some, arranged)
        for job in jobs:
            # A row on which the query fails (no other kind of DefinitionError) may have come and gone: FULL sees
            # only what is there now.
            is_value = isinstance(job.error, InexactValueError | TooManyRowsError) or type(job.error) is DefinitionError
            if job.error is not None and is_value and job.table.refresh_mode == "AUTO":
                if isinstance(job.error, TooManyRowsError):  # the time until it gave up is what it takes at least
                    self._learn(job, DIFFERENTIAL, moment)
                job.decision, job.error = Decision(FULL, job.error.message), None

    @contextmanager
    def _joined(self, snapshot: str) -> Iterator[int]:
        """A transaction of the writer that sees what the snapshot sees; gives its own id."""
        begin(self.writer, "ISOLATION LEVEL REPEATABLE READ READ WRITE", snapshot=snapshot)
        try:
            row = self.writer.execute("SELECT pg_current_xact_id()::text::int8").fetchone()
            assert row is not None
            yield row[0]
            self.writer.execute("COMMIT")
        finally:
            if not self.writer.closed:
                self.writer.rollback()

    # -- read
    # -------------------------------------------------------------------------------------------------------------

    @contextmanager
    def _snapshot(self) -> Iterator[None]:
        begin(self.reader, "ISOLATION LEVEL REPEATABLE READ READ ONLY")
        try:
            yield
            if not self.reader.closed:
                self.reader.commit()  # rollback() would forget what is prepared, which then is planned anew each time
        finally:
            if not self.reader.closed:
                self.reader.rollback()

    def _tables(self, ids: Sequence[int]) -> list[StreamTable]:
        return catalog.load_stream_tables(self.reader, ids)

    def _plan(self, tables: Sequence[StreamTable], moment: catalog.Moment, outcomes: list[Outcome]) -> list[Job]:
        """What each of them needs. Who needs nothing (not with `quiet_too`) or cannot go on is in `outcomes`."""
        started, begun = datetime.now(UTC), time.perf_counter()
        prints = self._prints(sorted({s.relid for t in tables for s in t.watched}))
        cuts = {t.pgt_id: since(t, moment.instance, moment.cut) for t in tables}
        windows = {t.pgt_id: Window(cut, moment.cut) for t in tables if (cut := cuts[t.pgt_id]) is not None}
        # Of a source whose structure changed not even the buffer may be there any more; `decide` sees to that.
        wanted = {
            (t.pgt_id, s.relid): (s.relid, windows[t.pgt_id], _columns(t, s, self.compiled(t)))
            for t in tables
            if t.pgt_id in windows
            for s in t.captured
            if unchanged(t.fingerprints.get(s.relid), prints.get(s.relid), ())
        }
        counts, sizes = self._pending(list(wanted.values()))
        self.costs.read(self.reader, (t for t in tables if t.refresh_mode == "AUTO" and t.is_populated))
        jobs = []
        for table in tables:
            if not table.is_in_place:
                outcomes.append(Outcome(table, FULL, None, _moved(table)))
                continue
            compiled = self.compiled(table)
            if compiled is None:
                outcomes.append(Outcome(table, PREPARE))
                continue
            pending = {relid: counts[w] for (pgt_id, relid), w in wanted.items() if pgt_id == table.pgt_id}
            decision = decide(
                table,
                differentiable=compiled.template is not None,
                reload=reload_reason(table, moment.instance, moment.cut, moment.time_zone),
                fingerprints=prints,
                pending=pending,
                source_rows=sizes,
                limits=self.limits,
                past=self.costs.past(table),
                now=moment.time,
            )
            compiled.texts.moved += sum(p.captured for p in pending.values())
            # Changes that do not matter to the table are behind it all the same: its frontier lets their buffer go.
            is_quiet = not table.refresh_requested and all(p.is_seen for p in pending.values())
            if decision.action == PREPARE or (decision.action == NO_DATA and is_quiet and not self.quiet_too):
                outcomes.append(Outcome(table, decision.action, decision.reason))
                continue
            timings = Timings()
            timings.add("plan", (time.perf_counter() - begun) * 1000)
            own = {s.relid: prints.get(s.relid) for s in table.watched}
            jobs.append(Job(table, compiled, decision, cuts[table.pgt_id], pending, own, started, timings))
        return jobs

    def _prints(self, relids: Sequence[int]) -> Mapping[int, str | None]:
        return fingerprints(self.reader, relids)

    def _pending(self, wanted: Sequence[Wanted]) -> tuple[dict[Wanted, Pending], dict[int, float]]:
        counts, sizes = read_pending(self.reader, wanted)
        analyse_buffers(self.writer, counts)
        return counts, sizes

    def _read(self, job: Job, cut: Cut) -> None:
        self._read_all([job], cut)

    def _read_all(self, jobs: Sequence[Job], cut: Cut) -> None:
        """The signed rows that changes bring, the small ones in one round trip. Raises when there is no room for them:
        then all is computed anew."""
        asked: list[tuple[Job, Ask]] = []
        for job in jobs:
            if job.decision.action != DIFFERENTIAL or job.since is None:
                continue
            window, template = Window(job.since, cut), job.template
            # Of a source that the query names and does not use, as an unused WITH item does, nothing is wanted.
            changed = {r: Changed(r, window, p.rows) for r, p in job.pending.items() if p.rows and r in template.relids}
            job.leaf = frames.Rows(template.slots, [])
            if not changed:
                continue
            room = Room(MOST_ROWS, self.limits.max_delta_bytes) if job.table.refresh_mode == "AUTO" else None
            if sum(c.rows for c in changed.values()) > SMALL_ROWS:
                self._copy(job, template.delta_statement(changed), room)
                continue
            text, values = delta_text(template, job.compiled.texts, changed)
            # Some at a time: a result is otherwise in memory before the first of its rows can be counted.
            look = None if room is None else room.take_rows
            asked.append((job, Ask(text, values or (), values is not None, job.compiled.texts.mark(), look)))
        answers = ask_all(self.reader, [ask for _, ask in asked], apart=_are_timed(job for job, _ in asked))
        for (job, _), answer in zip(asked, answers, strict=True):
            job.leaf = frames.Rows(job.template.slots, answer.rows)
            job.timings.add("read", answer.ms)

    def _copy(self, job: Job, text: str, room: Room | None) -> None:
        import pyarrow as pa

        slots = job.template.slots
        with timed(job, "read"), closing(read_batches(self.reader, text, frames.text_types(slots))) as batches:
            tables = []
            for batch in batches:
                if room is not None:
                    room.take(len(batch), batch.nbytes)
                tables.append(frames.from_arrow(batch, slots))
            job.leaf = pa.concat_tables(tables) if tables else frames.from_rows([], slots)

    # -- compute
    # ----------------------------------------------------------------------------------------------------------

    def _spark(self, jobs: Sequence[Job]) -> None:
        """One execution for the wave; when a value of one table does not fit, the tables run one by one to find it."""
        jobs = [job for job in jobs if job.leaf is not None and job.error is None]
        if not jobs:
            return
        begun = time.perf_counter()
        items = [WorkItem(j.template.slots, j.leaf) for j in jobs]
        try:
            for job, delta in zip(jobs, self.engine.run(items), strict=True):
                job.delta = delta
        except InexactValueError as error:
            if len(jobs) == 1:
                jobs[0].error = error
            else:
                for job in jobs:
                    self._spark([job])
                return
        except PgtrickleError as error:
            for job in jobs:
                job.error = error
        for job in jobs:
            job.timings.add("spark", (time.perf_counter() - begun) * 1000)

    def _arrange(self, job: Job) -> None:
        self._arrange_some([job])

    def _arrange_some(self, jobs: Sequence[Job]) -> None:
        folds: list[tuple[Job, Steps[list[Sequence[Any]]]]] = []
        for job in jobs:
            assert job.delta is not None
            kept, groups, template = job.compiled.kept, job.compiled.groups, job.template
            if kept is not None and limited.runs_out(self.reader, kept, sum(job.delta.columns["n"])):
                with timed(job, "refill"):
                    job.refill = self._refill(job)
            elif isinstance(template, FoldTemplate):
                assert groups is not None
                folds.append((job, delta_arrays(template, groups, job.compiled.texts, job.delta)))
            else:
                job.arrays = [job.delta.columns[name] for name, _ in bags.delta_columns(job.compiled.target)]
        found = ask_together(self.reader, [steps for _, steps in folds], apart=_are_timed(job for job, _ in folds))
        for (job, _), (arrays, ms) in zip(folds, found, strict=True):
            job.arrays = arrays
            job.timings.add("reread", ms)

    def _refill(self, job: Job) -> list[pa.Table]:
        """The first rows of a LIMIT, in the snapshot that the changes were read in."""
        with closing(read_batches(self.reader, job.compiled.load_sql, _load_types(job.compiled))) as batches:
            return [self.engine.identify(batch) for batch in batches]

    # -- apply
    # ------------------------------------------------------------------------------------------------------------

    def _finish_all(self, jobs: Sequence[Job], moment: catalog.Moment, initiated_by: str) -> list[Outcome]:
        """Deltas in one transaction: one commit for all. When one fails, each in its own, so that it fails alone."""
        small = [job for job in jobs if not job.is_load and job.error is None]
        outcomes: list[Outcome] = []
        if len(small) > 1:
            try:
                with translated(), self.writer.transaction():
                    outcomes = self._write(small, moment, initiated_by)
            except PgtrickleError:
                outcomes = []
        # Loads last: they may be long, and they still read from the snapshot while they write.
        left = [job for job in jobs if not outcomes or job.is_load or job.error is not None]
        return outcomes + [self._finish(job, moment, initiated_by) for job in sorted(left, key=lambda j: j.is_load)]

    def _finish(self, job: Job, moment: catalog.Moment, initiated_by: str) -> Outcome:
        try:
            if job.error is not None:
                raise job.error
            with translated(), self.writer.transaction():
                (outcome,) = self._write([job], moment, initiated_by)
                if outcome.error is not None:
                    raise outcome.error  # what was staged goes with the transaction
        except PgtrickleError as error:
            return Outcome(job.table, job.decision.action, job.decision.reason, error)
        return outcome

    def _write(self, jobs: Sequence[Job], moment: catalog.Moment, initiated_by: str) -> list[Outcome]:
        """Inside a transaction: rows, frontiers and history."""
        stages = {job.table.pgt_id: self._stage(job) for job in jobs if job.is_load}
        records = [self._record(job, moment, initiated_by) for job in jobs]
        if any(job.is_load or (job.arrays and len(job.arrays[0]) > MOST_PLANNED_AHEAD) for job in jobs):
            plan_for_many(self.writer)
        # Only now: a long load must not lock the catalog row while it is read.
        moved = fence(self.writer, records)
        applied = self._apply_all([job for job in jobs if job.table.pgt_id in moved], stages)
        outcomes: list[Outcome] = []
        written: list[Written] = []
        for job, record in zip(jobs, records, strict=True):
            if record.pgt_id not in moved:
                fenced = FencedError(f"stream table {record.pgt_id} was refreshed or changed by somebody else first")
                outcomes.append(Outcome(job.table, record.action, record.reason, fenced))
                continue
            inserted, deleted = applied[record.pgt_id]
            job.compiled.texts.moved += inserted + deleted
            timings = job.timings.to_json()
            if not job.is_silent:
                written.append(Written(record, inserted, deleted, timings))
            outcomes.append(Outcome(job.table, record.action, record.reason, None, inserted, deleted, timings))
        if written:
            write_history(self.writer, written)
            # The transaction that holds the cut is there until we commit: netting out a buffer waits for it
            # (capture/compact.py).
            if self.reader is not self.writer:
                self.reader.execute("SELECT")
        for job in jobs:
            if job.table.pgt_id in moved and job.decision.action != NO_DATA:
                is_load = job.decision.action not in (FULL, DIFFERENTIAL) or not job.table.is_populated
                self._learn(job, LOAD if is_load else job.decision.action, moment)
        return outcomes

    def _record(self, job: Job, moment: catalog.Moment, initiated_by: str) -> Record:
        return Record(
            job.table.pgt_id,
            job.table.epoch,
            {**(job.table.origins or {}), **Frontier({moment.instance.key: moment.cut}).to_json()},
            moment.time,
            job.started_at,
            job.decision.action,
            job.decision.reason,
            "INITIAL" if not job.table.is_populated else "MANUAL" if job.table.refresh_requested else initiated_by,
            sum(p.rows for p in job.pending.values()),
            job.table.refresh_requested_at,
            job.fingerprints,
            {"time_zone": moment.time_zone, "functions": job.table.functions},
        )

    def _learn(self, job: Job, kind: str, moment: catalog.Moment) -> None:
        rows = sum(p.rows for p in job.pending.values())
        self.costs.learn(job.table, kind, rows, sum(job.timings.parts.values()), moment.time)

    def _stage(self, job: Job) -> str:
        """The table's whole content from the snapshot: read, given its identity by Spark (not a mirror), staged.

        By executors where the sources are large; else here, batch by batch.
        """
        groups = job.compiled.groups
        columns = groups.load_columns() if groups is not None else bags.load_columns(job.compiled.target)
        if self.reader is self.writer:  # one session cannot copy out and in at a time
            return stage_arrow(self.writer, columns, list(self._identified(job)))
        begun = time.perf_counter()
        stage = stage_by_executors(
            self.reader, self.writer, self.engine, job.table, job.compiled, at_least_bytes=self.bulk_bytes
        )
        if stage is not None:
            job.timings.add("executors", (time.perf_counter() - begun) * 1000)
            return stage
        # Closed inside the savepoint: a COPY that was left half-way has to end before the connection is used again.
        with self.reader.transaction(), closing(self._identified(job)) as batches:
            return stage_arrow(self.writer, columns, batches)

    def _identified(self, job: Job) -> Generator[pa.Table, None, None]:
        with closing(read_batches(self.reader, job.compiled.load_sql, _load_types(job.compiled))) as batches:
            while True:
                with timed(job, "read"):
                    batch = next(batches, None)
                if batch is None:
                    return
                if not job.compiled.target.is_mirror:
                    with timed(job, "spark"):
                        batch = self.engine.identify(batch)
                with timed(job, "stage"):
                    yield batch

    def _replace(self, job: Job, stage: str) -> tuple[int, int]:
        reshape(self.writer, job.compiled.target)
        if job.compiled.kept is not None:
            rows = limited.replace_kept(self.writer, job.compiled.kept, stage)
        elif job.compiled.groups is not None:
            rows = grouped.replace_groups(self.writer, job.compiled.groups, stage)
        else:
            rows = bags.replace_staged(self.writer, job.compiled.target, stage)
        drop_stage(self.writer, stage)
        return rows

    def _apply_all(self, jobs: Sequence[Job], stages: Mapping[int, str]) -> dict[int, tuple[int, int]]:
        """Rows inserted and deleted, by table. Small deltas go together."""
        found: dict[int, tuple[int, int]] = {}
        small: list[tuple[Job, Steps[tuple[int, int]]]] = []
        for job in jobs:
            groups, arrays = job.compiled.groups, job.arrays
            stage = stages.get(job.table.pgt_id)
            most = MIRROR_ROWS if job.compiled.target.is_mirror else SMALL_ROWS
            if stage is None and job.compiled.kept is None and arrays and 0 < len(arrays[0]) <= most:
                if groups is not None:
                    small.append((job, grouped.fold_arrays(groups, arrays)))
                else:
                    small.append((job, bags.apply_arrays(job.compiled.target, arrays)))
                continue
            with timed(job, "apply"):
                found[job.table.pgt_id] = self._apply(job) if stage is None else self._replace(job, stage)
        results = ask_together(self.writer, [steps for _, steps in small], apart=_are_timed(job for job, _ in small))
        for (job, _), (rows, ms) in zip(small, results, strict=True):
            found[job.table.pgt_id] = rows
            job.timings.add("apply", ms)
        return found

    def _apply(self, job: Job) -> tuple[int, int]:
        """A large delta; or one of the rows that a LIMIT keeps."""
        target, groups, conn, arrays = job.compiled.target, job.compiled.groups, self.writer, job.arrays
        kept = job.compiled.kept
        if job.refill is not None and kept is not None:
            return limited.replace_kept(conn, kept, stage_arrow(conn, kept.groups.load_columns(), job.refill))
        if not arrays or not arrays[0]:
            return 0, 0
        if kept is not None:
            if len(arrays[0]) <= SMALL_ROWS:
                return limited.keep_arrays(conn, kept, arrays)
            return limited.keep_staged(conn, kept, stage_columns(conn, kept.groups.delta_columns(), arrays))
        if groups is not None:
            return grouped.fold_staged(conn, groups, stage_columns(conn, groups.delta_columns(), arrays))
        return bags.apply_staged(conn, target, stage_columns(conn, bags.delta_columns(target), arrays))

    def _step(self, job: Job, step: Callable[..., None], *args: Any) -> None:
        """Runs one table's step, so that its failure leaves the snapshot usable for the others."""
        if job.error is not None:
            return
        try:
            with translated(), self.reader.transaction():
                step(job, *args)
        except PgtrickleError as error:
            job.error = error

    def _all(self, step: Callable[..., None], *args: Any) -> None:
        """The same step of all tables, without savepoints."""
        try:
            with translated():
                step(*args)
        except PgtrickleError as error:
            raise _SpoiltError from error


def _are_timed(jobs: Iterable[Job]) -> bool:
    """Whether it matters what each of them takes: AUTO goes by that."""
    return any(job.table.refresh_mode == "AUTO" for job in jobs)


def _moved(table: StreamTable) -> SourceChangedError:
    """Rows are written by name: what stands under the name of a table that was renamed is somebody else's."""
    return SourceChangedError(
        f"the table {table.full_name} was dropped, renamed or moved to another schema",
        hint=f"put it back and resume, or SELECT pgtrickle.repair_stream_table('{table.full_name}')",
    )


def _columns(table: StreamTable, source: Source, compiled: Compiled | None) -> frozenset[int] | None:
    """The columns whose changes matter; None where all do, because the table is recomputed."""
    if compiled is None or compiled.template is None or table.effective_mode == "FULL":
        return None
    return source.columns


def _load_types(compiled: Compiled) -> list[pa.DataType]:
    """Columns of a load statement: the row; or key, number of rows, state."""
    import pyarrow as pa

    if compiled.groups is None:
        return [pa.string()]
    return [pa.string(), pa.int64(), *(pa.string() for _ in compiled.groups.state)]
