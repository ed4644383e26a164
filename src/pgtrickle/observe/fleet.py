"""Collects the state of all databases and processes on demand.

Without viewers nothing is read. A database that does not answer delays no page: its last known state is used, with the
problem.
"""

from __future__ import annotations

import threading
import time
from collections import deque
from collections.abc import Sequence
from concurrent.futures import Future, ThreadPoolExecutor, wait

from pgtrickle import __version__
from pgtrickle.ipc.fleet_memory import FleetMemory
from pgtrickle.observe.database import DatabaseAddress, DatabaseObserver
from pgtrickle.observe.processes import observed_processes
from pgtrickle.observe.state import DatabaseState, FleetState, Pool, Sample, Scheduler, Share
from pgtrickle.settings import Sources

WAIT_SECONDS = 2.0  # for databases, before their last known state is used
SAMPLE_SECONDS = 2.0
MOST_SAMPLES = 900  # half an hour
MOST_THREADS = 16


class FleetObserver:
    """Any thread may call its methods."""

    def __init__(self, memory: FleetMemory, sources: Sources) -> None:
        self.sources = sources
        self._memory = memory
        self._pool = ThreadPoolExecutor(MOST_THREADS, "observe")
        self._lock = threading.Lock()
        self._observers: dict[str, DatabaseObserver] = {}
        self._reading: dict[str, Future[DatabaseState]] = {}
        self._samples: deque[Sample] = deque(maxlen=MOST_SAMPLES)

    def set_databases(self, addresses: Sequence[DatabaseAddress]) -> None:
        """The databases of the fleet, as the launcher found them."""
        with self._lock:
            by_label = {address.label: address for address in addresses}
            removed = [o for label, o in self._observers.items() if by_label.get(label) != o.address]
            for observer in removed:
                del self._observers[observer.address.label]
                self._reading.pop(observer.address.label, None)
            for label, address in by_label.items():
                if label not in self._observers:
                    self._observers[label] = DatabaseObserver(address, self.sources)
        for observer in removed:
            self._pool.submit(observer.close)

    def observer(self, label: str) -> DatabaseObserver | None:
        with self._lock:
            return self._observers.get(label)

    def observers(self) -> list[DatabaseObserver]:
        with self._lock:
            return [self._observers[label] for label in sorted(self._observers)]

    def read(self, max_age: float = 1.0) -> FleetState:
        """The state of the fleet. The state of each database is at most `max_age` seconds old if it answers in time."""
        with self._lock:
            observers = [self._observers[label] for label in sorted(self._observers)]
            for observer in observers:
                label = observer.address.label
                if label not in self._reading or self._reading[label].done():
                    self._reading[label] = self._pool.submit(observer.read, max_age)
            reading = [self._reading[observer.address.label] for observer in observers]
        wait(reading, WAIT_SECONDS)
        return self.fleet(tuple(observer.state for observer in observers))

    def fleet(self, databases: tuple[DatabaseState, ...]) -> FleetState:
        """The state of the fleet with these states of databases; reads only shared memory."""
        memory = self._memory
        pool, shares = memory.pool(), memory.shares()
        processes = memory.processes()
        schedulers = memory.schedulers()
        labels = {database.key: database.label for database in databases if database.key}
        return FleetState(
            at=time.time(),
            launcher=next((p.state for p in processes if p.kind == "launcher"), "STARTING"),
            version=__version__,
            databases=databases,
            pool=Pool(
                pool.active,
                pool.most,
                sum(share.queued for share in shares),
                pool.spark_jobs,
                pool.leases,
                pool.cache_hits,
                pool.cache_misses,
                pool.cache_entries,
                pool.cache_evictions,
                pool.stored_hits,
                pool.stored_misses,
                pool.stored_evictions,
            ),
            shares=tuple(Share(labels.get(s.key, s.name), s.used, s.quota, s.queued, s.cap) for s in shares),
            schedulers=tuple(
                Scheduler(labels.get(s.key, s.name), s.state, s.seen, s.tick, s.tables) for s in schedulers
            ),
            processes=observed_processes(processes, schedulers, labels),
            samples=tuple(self._samples),
        )

    def sample_until(self, stop: threading.Event) -> None:
        """Samples the workers from shared memory until the stop event."""
        while not stop.wait(SAMPLE_SECONDS):
            pool = self._memory.pool()
            queued = sum(share.queued for share in self._memory.shares())
            self._samples.append(Sample(time.time(), pool.active, pool.most, queued, pool.spark_jobs))

    def close(self) -> None:
        for observer in self.observers():
            observer.close()
        self._pool.shutdown(wait=False, cancel_futures=True)
