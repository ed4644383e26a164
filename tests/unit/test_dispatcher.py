"""The pipeline's centre over real sockets, with workers that only pretend."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from datetime import UTC, datetime
from multiprocessing import AuthenticationError
from multiprocessing.connection import Client, Connection
from pathlib import Path
from typing import Any, cast

import pytest

from pgtrickle.dispatch import dispatcher
from pgtrickle.dispatch.dispatcher import Dispatcher
from pgtrickle.dispatch.managed_database import ManagedDatabase
from pgtrickle.dispatch.pool import ThreadPool
from pgtrickle.ipc.channel import DatabaseSettings, Finished, Submit, TableResult, Withdraw, call, listen
from pgtrickle.ipc.fleet_memory import FleetMemory
from pgtrickle.model.work import CANCELLED, SINGLETON, SUCCEEDED, QueuedUnit, Unit
from pgtrickle.settings import Settings

KEY = b"key"


class Engine:
    """What the dispatcher asks of Spark's client."""

    jobs = 0


class Desk:
    """Pretends to work. Databases in `held` take their time."""

    def __init__(self) -> None:
        self.held: set[str] = set()
        self.go = threading.Event()
        self.at_once: dict[int, int] = {}
        self.most = 0
        self.takes_ms: dict[int, float] = {}
        self.leases: list[list[int]] = []

    def work(self, site: ManagedDatabase, jobs: Sequence[QueuedUnit], observer: object) -> Finished:
        for job in jobs:
            self.at_once[job.unit.members[0]] = self.at_once.get(job.unit.members[0], 0) + 1
        self.most = max(self.most, *self.at_once.values())
        if site.name in self.held:
            self.go.wait(120)
        for job in jobs:
            self.at_once[job.unit.members[0]] -= 1
        self.leases.append([job.job_id for job in jobs])
        results = tuple(TableResult(i, "FULL", "ok", share_ms=ms) for i, ms in self.takes_ms.items())
        return Finished(tuple((j.job_id, SUCCEEDED, None, None) for j in jobs), results, datetime.now(UTC))


@pytest.fixture
def desk(monkeypatch: pytest.MonkeyPatch) -> Iterator[Desk]:
    made = Desk()
    monkeypatch.setattr(dispatcher, "work", made.work)
    yield made
    made.go.set()


@contextmanager
def running(tmp_path: Path, settings: Settings) -> Iterator[Callable[[str], Connection]]:
    """Gives a function that connects as the scheduler of a database."""
    stop = threading.Event()
    memory = FleetMemory(tmp_path / "memory", create=True)
    made = Dispatcher(settings, cast(Any, Engine()), memory, stop)
    listener = listen(tmp_path / "socket", KEY)
    made.listen(listener)
    thread = threading.Thread(target=made.run, args=(5.0,))
    thread.start()

    def scheduler(name: str) -> Connection:
        connection = call(tmp_path / "socket", KEY, seconds=120, is_stopped=lambda: False)
        connection.send(DatabaseSettings(f"1/{name}", name, f"dbname={name}", settings))
        return connection

    try:
        yield scheduler
    finally:
        stop.set()
        made.wake()
        thread.join(120)
        listener.close()
    assert not thread.is_alive()


def submit(connection: Connection, ids: Sequence[int]) -> None:
    connection.send(Submit(tuple(QueuedUnit(i, Unit(SINGLETON, ((i,),))) for i in ids)))


def receive(connection: Connection, count: int) -> dict[int, str]:
    found: dict[int, str] = {}
    while len(found) < count:
        assert connection.poll(120), f"{len(found)} of {count}"
        message: Finished = connection.recv()
        found |= {job_id: status for job_id, status, _, _ in message.jobs}
    return found


def test_a_scheduler_that_does_not_listen_holds_up_nobody(tmp_path: Path, desk: Desk) -> None:
    with running(tmp_path, Settings()) as scheduler:
        deaf, other = scheduler("deaf"), scheduler("other")
        submit(deaf, range(20_000))  # the answers are far more than a socket holds
        for number in range(20):
            submit(other, [number])
            assert receive(other, 1) == {number: SUCCEEDED}
        assert len(receive(deaf, 20_000)) == 20_000


@pytest.mark.slow
def test_taking_back_very_much_holds_up_nobody(tmp_path: Path, desk: Desk) -> None:
    desk.held = {"deaf"}
    with running(tmp_path, Settings()) as scheduler:
        deaf, other = scheduler("deaf"), scheduler("other")
        submit(deaf, range(20_000))
        deaf.send(Withdraw())
        desk.go.set()
        submit(other, [1])
        assert receive(other, 1) == {1: SUCCEEDED}
        assert CANCELLED in receive(deaf, 20_000).values()


def test_a_table_that_took_long_does_not_delay_the_others_again(tmp_path: Path, desk: Desk) -> None:
    desk.takes_ms = {2: 30_000.0, 3: 4.0}
    with running(tmp_path, Settings(max_dynamic_refresh_workers=1)) as scheduler:
        connection = scheduler("one")
        submit(connection, [1, 2, 3])
        assert len(receive(connection, 3)) == 3
        submit(connection, [1, 2, 3])
        assert len(receive(connection, 3)) == 3
    assert desk.leases == [[1, 2, 3], [1, 3], [2]]


def test_workers_that_hang_in_one_database_are_not_missed_by_the_others(
    tmp_path: Path, desk: Desk, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(dispatcher, "SLOW_SECONDS", 0.3)
    desk.held = {"hangs"}
    settings = Settings(max_dynamic_refresh_workers=2, max_concurrent_refreshes=2)
    with running(tmp_path, settings) as scheduler:
        hangs, other = scheduler("hangs"), scheduler("other")
        for number in range(2):
            submit(hangs, [number])
            time.sleep(0.1)
        submit(hangs, range(10, 200))
        for number in range(5):
            submit(other, [number])
            assert receive(other, 1) == {number: SUCCEEDED}
        assert sum(desk.at_once.values()) == 2  # no more for who has them already
        desk.go.set()
        assert len(receive(hangs, 192)) == 192


def test_a_table_is_with_one_worker_when_its_scheduler_was_replaced(tmp_path: Path, desk: Desk) -> None:
    desk.held = {"one"}
    with running(tmp_path, Settings()) as scheduler:
        first = scheduler("one")
        submit(first, [7])
        while not desk.at_once:
            time.sleep(0.01)
        first.close()
        second = scheduler("one")
        submit(second, [7])
        time.sleep(0.2)
        desk.go.set()
        assert receive(second, 1) == {7: SUCCEEDED}
        assert desk.most == 1


def test_a_stranger_does_not_end_the_listening(tmp_path: Path, desk: Desk) -> None:
    with running(tmp_path, Settings()) as scheduler:
        with pytest.raises((AuthenticationError, OSError, EOFError)):
            Client(str(tmp_path / "socket"), family="AF_UNIX", authkey=b"wrong")
        one = scheduler("one")
        submit(one, [1])
        assert receive(one, 1) == {1: SUCCEEDED}


def test_workers_that_end_at_the_same_moment(tmp_path: Path, desk: Desk) -> None:
    """A thread that has said that it is done may still be there."""
    with running(tmp_path, Settings(max_dynamic_refresh_workers=1)) as scheduler:
        one = scheduler("one")
        for number in range(300):
            submit(one, [number])
            receive(one, 1)


def test_leases_that_wait_for_spark_make_room_for_others(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    arrived, go = threading.Semaphore(0), threading.Event()

    def work(site: ManagedDatabase, jobs: Sequence[QueuedUnit], _observer: object) -> Finished:
        with site.engine.slot_lent():
            arrived.release()
            go.wait(120)
        return Finished(tuple((j.job_id, SUCCEEDED, None, None) for j in jobs), (), datetime.now(UTC))

    monkeypatch.setattr(dispatcher, "work", work)
    monkeypatch.setattr(dispatcher, "MOST_BEGUN", 5)
    with running(tmp_path, Settings(max_dynamic_refresh_workers=2)) as scheduler:
        lines = [scheduler(f"d{i}") for i in range(7)]
        for line in lines:
            submit(line, [1])
        for _ in range(5):
            assert arrived.acquire(timeout=120)
        assert not arrived.acquire(timeout=0.2)
        go.set()
        assert [receive(line, 1) for line in lines] == [{1: SUCCEEDED}] * 7


def test_the_pool_follows_the_settings_of_the_home_database(tmp_path: Path, desk: Desk) -> None:
    desk.held = {"one", "two", "three"}
    fleet = Settings(max_dynamic_refresh_workers=1, worker_pool_size=1)
    memory = FleetMemory(tmp_path / "memory", create=True)
    stop = threading.Event()
    made = Dispatcher(fleet, cast(Any, Engine()), memory, stop)
    pool = cast(ThreadPool, made._executor)
    assert (pool.persistent, pool.started) == (1, 1)  # by the setting, before there is anything to do
    listener = listen(tmp_path / "socket", KEY)
    made.listen(listener)
    thread = threading.Thread(target=made.run, args=(5.0,))
    thread.start()
    try:
        lines = {}
        for name in ("one", "two", "three"):
            lines[name] = call(tmp_path / "socket", KEY, seconds=120, is_stopped=lambda: False)
            lines[name].send(DatabaseSettings(f"1/{name}", name, f"dbname={name}", fleet, name == "one"))
            submit(lines[name], [1])
        wait_until(lambda: memory.pool().active == memory.pool().most == 1)
        larger = replace(fleet, max_dynamic_refresh_workers=3, worker_pool_size=3)
        lines["two"].send(DatabaseSettings("1/two", "two", "dbname=two", larger))  # not that one's to say
        lines["one"].send(DatabaseSettings("1/one", "one", "dbname=one", larger, True))
        wait_until(lambda: memory.pool().active == memory.pool().most == 3)
        assert (pool.persistent, pool.started) == (3, 3)
        lines["one"].send(DatabaseSettings("1/one", "one", "dbname=one", fleet, True))
        wait_until(lambda: memory.pool().most == 1)
        desk.go.set()
        for line in lines.values():
            assert receive(line, 1) == {1: SUCCEEDED}
        wait_until(lambda: sum(t.name.startswith("worker ") and t.is_alive() for t in threading.enumerate()) == 1)
        for number in range(10, 15):  # the one that stays does it all
            submit(lines["two"], [number])
            assert receive(lines["two"], 1) == {number: SUCCEEDED}
        assert pool.started == 3
    finally:
        desk.go.set()
        stop.set()
        made.wake()
        thread.join(120)
        listener.close()
        pool.close()


def wait_until(condition: Callable[[], bool]) -> None:
    limit = time.monotonic() + 120
    while not condition():
        assert time.monotonic() < limit
        time.sleep(0.01)
