"""What the queue promises whatever is put, taken, cancelled and finished: caps, guarantees, priority, no starvation."""

from __future__ import annotations

from collections import Counter

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from pgtrickle.dispatch.queue import MOST_MEMBERS, OLDEST_EVERY, Queue
from pgtrickle.dispatch.quota import WorkerLimit, cap
from pgtrickle.model.work import BANDS, IMMEDIATE, QueuedUnit, Unit

DATABASES = ("a", "b", "c", "d")
limits = st.builds(WorkerLimit, st.integers(0, 4), st.integers(1, 4))


class Dispatch(RuleBasedStateMachine):
    """Beside the queue, all that it should know, kept in the plainest way."""

    def __init__(self) -> None:
        super().__init__()
        self.queue = Queue()
        self.limits: dict[str, WorkerLimit] = dict.fromkeys(DATABASES, WorkerLimit())
        self.running: Counter[str] = Counter()
        self.waiting: dict[str, dict[int, QueuedUnit]] = {d: {} for d in DATABASES}
        self.max_workers = 4
        self.numbers = 0

    @rule(database=st.sampled_from(DATABASES), limit=limits)
    def limit(self, database: str, limit: WorkerLimit) -> None:
        self.limits[database] = limit

    @rule(workers=st.integers(1, 10))
    def resize(self, workers: int) -> None:
        self.max_workers = workers

    @rule(
        database=st.sampled_from(DATABASES),
        kind=st.sampled_from(list(BANDS)),
        tier=st.integers(0, 2),
        order=st.integers(0, 5),
        size=st.sampled_from([1, 1, 1, 7, 60]),
        times=st.sampled_from([1, 1, 2, 40]),
    )
    def put(self, database: str, kind: str, tier: int, order: int, size: int, times: int) -> None:
        for _ in range(times):
            self.numbers += 1
            job = QueuedUnit(self.numbers, Unit(kind, (tuple(range(size)),), tier, order))
            self.waiting[database][job.job_id] = job
            self.queue.put(database, job)

    @rule(database=st.sampled_from(DATABASES), which=st.integers(0, 50))
    def cancel(self, database: str, which: int) -> None:
        job_id = list(self.waiting[database])[which] if which < len(self.waiting[database]) else -1
        assert self.queue.cancel(database, job_id) == self.waiting[database].pop(job_id, None)

    @rule(database=st.sampled_from(DATABASES))
    def drop(self, database: str) -> None:
        assert list(self.queue.drop(database)) == list(self.waiting[database].values())
        self.waiting[database].clear()

    @precondition(lambda self: +self.running)
    @rule(which=st.integers(0, 9))
    def finish(self, which: int) -> None:
        busy = sorted(+self.running)
        self.running[busy[which % len(busy)]] -= 1

    @rule()
    def take(self) -> None:
        active = sum(self.running.values())
        may = [
            d for d in DATABASES if self.waiting[d] and self.running[d] < cap(self.limits[d], active, self.max_workers)
        ]
        by_age = (self.queue._leases + 1) % OLDEST_EVERY == 0
        lease = self.queue.take(self.running, self.limits, self.max_workers)
        if active >= self.max_workers or not may:
            assert lease is None
            return
        assert lease is not None
        chosen = lease.database
        assert chosen in may
        assert len({BANDS[j.unit.kind] for j in lease.jobs}) == 1
        assert len(lease.jobs) == 1 or sum(j.unit.size for j in lease.jobs) <= MOST_MEMBERS
        assert lease.jobs
        if not by_age:
            self.check_choice(chosen, may, lease.jobs)
        for job in lease.jobs:
            assert self.waiting[chosen].pop(job.job_id) is job
        self.running[chosen] += 1

    def check_choice(self, chosen: str, may: list[str], jobs: tuple[QueuedUnit, ...]) -> None:
        def band(database: str) -> int:
            return min(BANDS[j.unit.kind] for j in self.waiting[database].values())

        def deserves(database: str) -> tuple[bool, bool, int, float, int]:
            base = self.limits[database].guaranteed
            used = self.running[database]
            oldest = min(i for i, j in self.waiting[database].items() if BANDS[j.unit.kind] == band(database))
            return band(database) != BANDS[IMMEDIATE], used >= base, band(database), used / base, oldest

        assert chosen == min(may, key=deserves)
        line = [j for j in self.waiting[chosen].values() if BANDS[j.unit.kind] == band(chosen)]
        line.sort(key=lambda j: (j.unit.tier, j.unit.order, j.job_id))
        assert list(jobs) == line[: len(jobs)]

    @invariant()
    def counts_agree(self) -> None:
        assert {d: self.queue.waiting(d) for d in DATABASES} == {d: len(w) for d, w in self.waiting.items()}

    def teardown(self) -> None:
        """Nobody starves: with one worker that is always taken back, and better units coming, all get their turn."""
        older = sum(map(len, self.waiting.values()))
        bound = OLDEST_EVERY * (older + 2)
        for turn in range(bound):
            if not any(self.waiting.values()):
                return
            better = QueuedUnit(-turn - 1, Unit(IMMEDIATE, ((0,),)))
            self.queue.put("flood", better)
            lease = self.queue.take({}, {**self.limits, "flood": WorkerLimit()}, 1)
            assert lease is not None
            for job in lease.jobs:
                self.waiting.get(lease.database, {}).pop(job.job_id, None)
        assert not any(self.waiting.values())


TestDispatch = Dispatch.TestCase
TestDispatch.settings = settings(max_examples=60, stateful_step_count=40, deadline=None)
