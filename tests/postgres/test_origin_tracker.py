"""Tables of other databases: a scheduler notices their changes, by the broker or by itself. Mirrors are rows only."""

from __future__ import annotations

import math
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from pgtrickle.capture.install import ensure_capture
from pgtrickle.db.connect import connect
from pgtrickle.db.discover import server_label
from pgtrickle.ipc.registry import Registry, SourceStatus
from pgtrickle.model.work import REPEATABLE_READ, RETRYABLE
from pgtrickle.observe.status import StatusPublisher
from pgtrickle.origin.tracker import OriginChangeTracker
from pgtrickle.process.broker_main import Broker, registry_path
from pgtrickle.scheduler.tick import DatabaseScheduler
from pgtrickle.settings import Sources
from tests.conftest import Database
from tests.postgres.test_scheduling import Stage

TICK_MS = 200


class Origin:
    """A database whose tables others want to know about."""

    def __init__(self, database: Database) -> None:
        self.database = database
        self.key = database.sql("SELECT pgtrickle._origin()")[0][0]

    def sql(self, text: str, *params: Any) -> list[tuple[Any, ...]]:
        return self.database.sql(text, *params)

    def table(self, name: str = "t") -> int:
        self.sql(f"CREATE TABLE {name} (id int, v int)")
        relid = int(self.sql("SELECT %s::regclass::oid::int8", name)[0][0])
        with connect(self.database.dsn, role="capture", autocommit=True) as conn:
            ensure_capture(conn, relid, [1, 2])
        return relid

    def sessions(self, purpose: str) -> int:
        found = self.database.superuser_sql(
            "SELECT count(*) FROM pg_stat_activity WHERE datname = current_database() AND application_name = %s",
            f"pgtrickle/{purpose}",
        )
        return int(found[0][0])


class Reader(Stage):
    """A database that mirrors tables of others, and its scheduler."""

    def __init__(self, database: Database, directory: Path | None = None, slot: int = 0) -> None:
        super().__init__(database)
        self.flags = {"scheduler_interval_ms": TICK_MS}
        self._directory = directory
        self._slot = slot
        self.sql("CREATE TABLE dummy (v int)")

    @property
    def scheduling(self) -> DatabaseScheduler:
        if self._scheduling is None:
            sources = Sources(flags=self.flags)
            registry = Registry(registry_path(self._directory)) if self._directory is not None else None
            looks = OriginChangeTracker(self.database.dsn, (), sources, registry=registry, slot=self._slot)
            link: Any = self.link
            self._scheduling = DatabaseScheduler(self.conn, "test", self.database.dsn, sources, link, looks)
        return self._scheduling

    def mirror(self, name: str, origin: Origin, relid: int, *, database: str | None = None) -> int:
        pgt_id = self.table(name, "SELECT 1 AS one FROM dummy")
        self.sql("DELETE FROM pgtrickle.pgt_dependencies WHERE pgt_id = %s", pgt_id)
        self.sql(
            "INSERT INTO pgtrickle.pgt_mirrors VALUES (%s, %s, '', %s, 'public', 't', %s, '{1}')",
            pgt_id,
            origin.key,
            database or origin.database.name,
            relid,
        )
        return pgt_id

    def changes_seen_at(self) -> float:
        """What the latest job says."""
        (job,) = self.link.last
        assert job.changes_seen_at is not None
        return job.changes_seen_at

    def calm(self) -> None:
        """Everything has been looked at once, the tables elsewhere, too, and is found unchanged."""
        quiet = time.monotonic()
        deadline = quiet + 120
        while time.monotonic() - quiet < 4 * TICK_MS / 1000:
            if self.tick():
                self.link.finish()
                quiet = time.monotonic()
            assert time.monotonic() < deadline
            time.sleep(0.02)

    def within(self, seconds: float = 120) -> list[tuple[int, ...]]:
        """What is handed over first, and how soon."""
        deadline = time.monotonic() + seconds
        while time.monotonic() < deadline:
            if units := self.tick():
                return units
            time.sleep(0.02)
        return []

    def quiet(self, seconds: float = 4 * TICK_MS / 1000) -> bool:
        return self.within(seconds) == []


class RunningBroker:
    """In a thread of the test."""

    def __init__(self, directory: Path, dsn: str) -> None:
        self.registry = Registry(registry_path(directory))
        self._stop = threading.Event()
        broker = Broker(directory, Sources(), [dsn], self._stop)
        self._broker = broker
        self._thread = threading.Thread(target=broker.run, daemon=True)
        self._thread.start()

    def end(self) -> None:
        """As if killed: it says nothing any more, and what it has said stays."""
        self._stop.set()
        self._thread.join()
        for origin in self._broker._origins.values():
            origin._statuses = _Deaf()  # type: ignore[assignment]
            origin.stop()


class _Deaf:
    def write(self, origin: str, answers: object) -> None:
        """What a dead broker would say."""


@pytest.fixture
def origin(make_installed: Callable[[], Database]) -> Origin:
    return Origin(make_installed())


@pytest.fixture
def reader(installed: Database) -> Iterator[Reader]:
    made = Reader(installed)
    yield made
    made.conn.close()


@pytest.fixture
def directory(tmp_path: Path) -> Path:
    Registry(registry_path(tmp_path), create=True)
    return tmp_path


@pytest.fixture
def make_reader(make_installed: Callable[[], Database], directory: Path) -> Iterator[Callable[..., Reader]]:
    made: list[Reader] = []

    def make(**flags: object) -> Reader:
        reader = Reader(make_installed(), directory, len(made))
        reader.flags |= {"enable_refresh_broker": "on", **flags}
        made.append(reader)
        return reader

    yield make
    for reader in made:
        reader.conn.close()


@pytest.fixture
def make_broker(directory: Path, pg_server: Any) -> Iterator[Callable[[], RunningBroker]]:
    made: list[RunningBroker] = []

    def make() -> RunningBroker:
        made.append(RunningBroker(directory, pg_server.dsn("postgres", user="app", password="app")))
        return made[-1]

    yield make
    for broker in made:
        broker.end()


# -- without a broker


def test_a_change_elsewhere_makes_its_mirror_due_and_nobody_else(reader: Reader, origin: Origin) -> None:
    relid, other = origin.table(), origin.table("u")
    second = Origin(reader.database)  # a mirror of a table of the same server's same database is no different
    mirror, _ = reader.mirror("m", origin, relid), reader.mirror("n", second, second.table())
    reader.calm()
    began = time.monotonic()
    origin.sql("INSERT INTO t VALUES (1, 1)")
    assert reader.within() == [(mirror,)]
    assert began < reader.changes_seen_at() < time.monotonic()
    reader.link.finish()
    assert reader.quiet()
    origin.sql(f"INSERT INTO u SELECT 1, 1 WHERE {other} > 0")
    assert reader.quiet()


def test_late_commit_elsewhere_is_noticed(reader: Reader, origin: Origin) -> None:
    mirror = reader.mirror("m", origin, origin.table())
    reader.calm()
    late = origin.database.connect(autocommit=False)
    late.execute("INSERT INTO t VALUES (1, 1)")
    origin.sql("INSERT INTO t VALUES (2, 1)")
    assert reader.within() == [(mirror,)]
    reader.link.finish()
    assert reader.quiet()
    late.commit()
    assert reader.within() == [(mirror,)]
    reader.link.finish()
    rolled_back = origin.database.connect(autocommit=False)
    rolled_back.execute("INSERT INTO t VALUES (3, 1)")
    assert reader.quiet()
    rolled_back.rollback()
    assert reader.quiet()


def test_mirrors_of_one_origin_move_together(reader: Reader, origin: Origin) -> None:
    one, two = reader.mirror("m", origin, origin.table()), reader.mirror("n", origin, origin.table("u"))
    reader.calm()
    origin.sql("INSERT INTO u VALUES (1, 1)")
    assert reader.within() == [(one, two)]
    assert reader.link.last[0].unit.kind == REPEATABLE_READ
    origin.sql("INSERT INTO t VALUES (1, 1)")
    assert reader.quiet()  # both are under way
    reader.link.finish()
    assert reader.within() == [(one, two)]


def test_what_was_asked_for_wants_what_is_there_now(reader: Reader, origin: Origin) -> None:
    mirror = reader.mirror("m", origin, origin.table())
    reader.calm()
    began = time.monotonic()
    reader.sql("SELECT pgtrickle.refresh_stream_table('m')")
    assert reader.within() == [(mirror,)]
    assert reader.changes_seen_at() > began


def test_mirror_that_comes_later_is_looked_at_and_one_that_goes_is_not(reader: Reader, origin: Origin) -> None:
    relid = origin.table()
    reader.calm()
    assert origin.sessions("look") == 0
    mirror = reader.mirror("m", origin, relid)
    reader.sql("SELECT pgtrickle._wake('alter', %s)", mirror)
    reader.calm()
    origin.sql("INSERT INTO t VALUES (1, 1)")
    assert reader.within() == [(mirror,)]
    reader.link.finish()
    reader.sql("SELECT pgtrickle.drop_stream_table('m')")
    deadline = time.monotonic() + 120
    while origin.sessions("look"):
        reader.tick()
        assert time.monotonic() < deadline


def test_an_origin_that_cannot_be_reached_is_named_and_delays_nobody(reader: Reader, origin: Origin) -> None:
    reader.source("own")
    gone = reader.mirror("m", Origin(origin.database), 1, database="nowhere")
    there = reader.mirror("n", Origin(reader.database), Origin(reader.database).table())
    local = reader.table("s", "SELECT v FROM own")
    assert {i for unit in reader.within() for i in unit} == {gone, there, local}
    reader.link.finish(RETRYABLE, "retry")  # as the pipeline does, which cannot reach it either
    began = time.monotonic()
    attempts = 0
    while time.monotonic() - began < 3.0 or not attempts:
        units = reader.tick()
        attempts += sum(gone in unit for unit in units)
        if units:
            fine = [job for job in reader.link.last if gone not in job.unit.members]
            broken = [job for job in reader.link.last if gone in job.unit.members]
            for jobs, status, branch in ((fine, "SUCCEEDED", "ok"), (broken, RETRYABLE, "retry")):
                reader.link.last = jobs
                reader.link.finish(status, branch)
        time.sleep(0.02)
    # It rests for 1 s, 2 s, 4 s, ... as any table that fails.
    assert attempts <= 1 + math.log2(1 + time.monotonic() - began)
    publish(reader)
    ((severity, detail),) = reader.sql(
        "SELECT severity, detail FROM pgtrickle.health_check() WHERE check_name = 'origins'"
    )
    assert severity == "WARN"
    assert f"{server_label(reader.database.dsn)}/nowhere: " in detail
    assert 'database "nowhere" does not exist' in detail
    reader.sql("INSERT INTO own VALUES (1, 1)")
    assert [local] in [list(unit) for unit in reader.within()]


def tick_seconds(reader: Reader) -> float:
    began = time.monotonic()
    assert reader.tick() == []
    taken = time.monotonic() - began
    time.sleep(0.05)
    return taken


def test_an_origin_that_hangs_delays_no_tick(reader: Reader, origin: Origin) -> None:
    mirror = reader.mirror("m", origin, relid := origin.table())
    reader.calm()
    before = [tick_seconds(reader) for _ in range(10)]
    lock = origin.database.connect(autocommit=False)
    lock.execute(f"LOCK TABLE pgtrickle_changes.changes_{relid}")
    during = [tick_seconds(reader) for _ in range(10)]
    assert min(during) < 3 * max(before)
    lock.execute(f"INSERT INTO pgtrickle_changes.changes_{relid} (xid, lsn, action) "
                 "VALUES (pg_current_xact_id(), '0/1', 'T')")  # fmt: skip
    lock.commit()
    assert reader.within() == [(mirror,)]


def test_another_database_in_the_place_of_an_origin_is_not_believed(reader: Reader, origin: Origin) -> None:
    reader.mirror("m", origin, origin.table(), database=reader.database.name)
    reader.settle()
    deadline = time.monotonic() + 120
    while not reader.scheduling.origin_changes.problems():
        reader.tick()
        assert time.monotonic() < deadline
        time.sleep(0.02)
    assert f"not {origin.key}" in reader.scheduling.origin_changes.problems()[0]["problem"]


# -- with one


def publish(reader: Reader) -> None:
    from pgtrickle.ipc.fleet_memory import FleetMemory

    path = Path(f"/tmp/fleet-{reader.database.name}-{time.monotonic_ns()}")
    try:
        StatusPublisher(FleetMemory(path, create=True)).publish(reader.conn, reader.scheduling)
    finally:
        path.unlink()


def wait_answers(reader: Reader, count: int) -> None:
    deadline = time.monotonic() + 120
    while len(reader.scheduling.origin_changes.ledger()) < count or reader.scheduling.origin_changes.broker_problem():
        reader.within(0.01)
        reader.link.finish()
        assert time.monotonic() < deadline
        time.sleep(0.02)


def test_broker_looks_for_all_and_nobody_looks_beside_it(
    make_reader: Callable[..., Reader], make_broker: Callable[[], RunningBroker], origin: Origin
) -> None:
    relid = origin.table()
    broker = make_broker()
    readers = [make_reader() for _ in range(2)]
    mirrors = [reader.mirror("m", origin, relid) for reader in readers]
    for reader in readers:
        wait_answers(reader, 1)
        reader.calm()
    origin.database.superuser_sql(
        "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE application_name = 'pgtrickle/look'"
    )
    for number in range(3):
        began = time.monotonic()
        origin.sql("INSERT INTO t SELECT i, 1 FROM generate_series(1, 4) AS i")
        for reader, mirror in zip(readers, mirrors, strict=True):
            assert reader.within() == [(mirror,)], number
            assert began < reader.changes_seen_at() < time.monotonic()
            reader.link.finish()
        for reader in readers:
            reader.calm()
    assert (origin.sessions("look"), origin.sessions("broker")) == (0, 1)
    (answer,) = broker.registry.answers([origin.key]).values()
    assert (answer.count, answer.consumers) == (12, 2)
    assert answer.scans_saved == pytest.approx(answer.scans_done, abs=20)
    publish(readers[0])
    rows = readers[0].sql(
        "SELECT source, database, max_lsn > '0/0', last_updated_tick > 0, consumers, scans_done > 0, scans_saved > 0, "
        "source_oid::int8, db_oid = (SELECT oid FROM pg_database WHERE datname = database) "
        "FROM pgtrickle.broker_status()"
    )
    assert rows == [("public.t", origin.database.name, True, True, 2, True, True, relid, True)]


@pytest.mark.parametrize("setting", ["enable_refresh_broker", "adaptive_batch_coalescing"])
def test_settings_decide_whether_the_broker_is_asked(
    make_reader: Callable[..., Reader], make_broker: Callable[[], RunningBroker], origin: Origin, setting: str
) -> None:
    relid = origin.table()
    broker = make_broker()
    on, off = make_reader(), make_reader(**{setting: "off"})
    mirrors = [reader.mirror("m", origin, relid) for reader in (on, off)]
    wait_answers(on, 1)
    off.calm()
    assert {interest.reader for interest in broker.registry.interests()} == {on.scheduling.key}
    assert origin.sessions("look") >= 1
    assert off.scheduling.origin_changes.broker_problem() is None
    origin.sql("INSERT INTO t VALUES (1, 1)")
    assert off.within() == [(mirrors[1],)]
    # switched off in a running database, it takes its interests back
    on.sql(f"SELECT pgtrickle.set_option('{setting}', 'off')")
    on.scheduling._watch.sources = replace(on.scheduling._watch.sources, flags={"scheduler_interval_ms": TICK_MS})
    on.scheduling.reload_settings()
    on.within(1.0)
    assert broker.registry.interests() == []


def test_a_silent_broker_is_not_believed_and_used_again_on_its_return(
    make_reader: Callable[..., Reader], make_broker: Callable[[], RunningBroker], origin: Origin
) -> None:
    relid = origin.table()
    broker, reader = make_broker(), make_reader()
    mirror = reader.mirror("m", origin, relid)
    wait_answers(reader, 1)
    reader.calm()
    for _ in range(3):
        broker.end()
        origin.sql("INSERT INTO t VALUES (1, 1)")
        assert reader.within() == [(mirror,)]
        reader.link.finish()
        reader.calm()
        assert reader.scheduling.origin_changes.next_due_time(1.0) < time.time() + 1.0
        broker = make_broker()
        wait_answers(reader, 1)
        reader.calm()
        # what came before its first look, too: a generation that is not known counts as changed
        origin.sql("INSERT INTO t VALUES (2, 1)")
        assert reader.within() == [(mirror,)]
        reader.link.finish()
        reader.calm()


def test_an_old_answer_is_never_believed_however_it_looks(
    make_reader: Callable[..., Reader], directory: Path, origin: Origin
) -> None:
    """Answers by hand: no change, a look that is a little older than a tick."""
    relid = origin.table()
    reader = make_reader()
    mirror = reader.mirror("m", origin, relid)
    registry = Registry(registry_path(directory))

    def answer(age: float, count: int = 5, generation: int = 1) -> None:
        xmin = int(origin.sql("SELECT pg_snapshot_xmin(pg_current_snapshot())::text")[0][0])
        at = time.time() - age
        made = SourceStatus(origin.key, relid, generation, count, 0, 0, xmin, 1, at, at, 1, 1, 1)
        registry.write_answers({0: made}, 1)

    def answered(count: int = 5, generation: int = 1) -> list[tuple[int, ...]]:
        units: list[tuple[int, ...]] = []
        for _ in range(15):
            answer(0.0, count, generation)
            units += reader.tick()
            time.sleep(0.02)
        reader.link.finish()
        return units

    answered()
    assert answered() == []  # nothing new
    origin.sql("INSERT INTO t VALUES (1, 1)")
    assert answered() == []  # says the broker, and it is believed: it looked a moment ago
    assert origin.sessions("look") == 0
    assert answered(count=6) == [(mirror,)]
    assert answered(count=6) == []
    assert answered(count=6, generation=2) == [(mirror,)]
    # late by less than the grace: neither believed nor yet looked past
    answer(TICK_MS / 1000 * 1.05, 6, 2)
    assert reader.tick() == []
    looks = reader.scheduling.origin_changes
    assert looks.next_due_time(1.0) < time.time() + TICK_MS / 1000
    origin.sql("INSERT INTO t VALUES (2, 1)")
    assert reader.within() == [(mirror,)]
    assert origin.sessions("look") == 1


def test_late_commit_is_noticed_through_the_broker(
    make_reader: Callable[..., Reader], make_broker: Callable[[], RunningBroker], origin: Origin
) -> None:
    relid = origin.table()
    make_broker()
    reader = make_reader()
    mirror = reader.mirror("m", origin, relid)
    wait_answers(reader, 1)
    reader.calm()
    late = origin.database.connect(autocommit=False)
    late.execute("INSERT INTO t VALUES (1, 1)")
    origin.sql("INSERT INTO t VALUES (2, 1)")
    assert reader.within() == [(mirror,)]
    reader.link.finish()
    reader.calm()
    late.commit()
    assert reader.within() == [(mirror,)]


def test_pending_rows_are_those_that_the_slowest_reader_has_not_seen(
    make_reader: Callable[..., Reader], make_broker: Callable[[], RunningBroker], origin: Origin
) -> None:
    relid = origin.table()
    for name in ("1/1", "1/2"):
        origin.sql(
            "INSERT INTO pgtrickle.pgt_readers (reader_key, mirror_id, reader_server, reader_database, source_relid, "
            "snapshot) VALUES (%s, 1, '', 'x', %s, pg_current_snapshot())",
            name,
            relid,
        )
    origin.sql("INSERT INTO t SELECT i, 1 FROM generate_series(1, 3) AS i")
    broker, reader = make_broker(), make_reader()
    reader.mirror("m", origin, relid)
    wait_answers(reader, 1)

    def pending(expected: int) -> None:
        deadline = time.monotonic() + 120
        while next(iter(broker.registry.answers([origin.key]).values())).pending_rows != expected:
            assert time.monotonic() < deadline
            time.sleep(0.02)

    pending(3)
    origin.sql("INSERT INTO t SELECT i, 1 FROM generate_series(1, 4) AS i")
    pending(7)
    origin.sql("UPDATE pgtrickle.pgt_readers SET snapshot = pg_current_snapshot() WHERE reader_key = '1/1'")
    time.sleep(3 * TICK_MS / 1000)
    pending(7)
    origin.sql("UPDATE pgtrickle.pgt_readers SET snapshot = pg_current_snapshot()")
    pending(0)


def test_a_full_registry_is_told_and_looked_past(
    make_reader: Callable[..., Reader],
    make_broker: Callable[[], RunningBroker],
    origin: Origin,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    relid = origin.table()
    make_broker()
    reader = make_reader()
    mirror = reader.mirror("m", origin, relid)
    monkeypatch.setattr(Registry, "register", lambda *_: 1)
    reader.calm()
    origin.sql("INSERT INTO t VALUES (1, 1)")
    assert reader.within() == [(mirror,)]
    publish(reader)
    ((detail,),) = reader.sql("SELECT detail FROM pgtrickle.health_check() WHERE check_name = 'broker'")
    assert detail == "its registry is full: 1 sources are polled directly"
    assert [r.message for r in caplog.records if "registry is full" in r.message] == [
        "The broker registry is full; the remaining sources are polled directly"
    ]
