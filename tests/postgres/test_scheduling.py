"""A scheduler's turns against a real catalog; the pipeline is a fake that notes what it is handed."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from datetime import UTC, datetime
from typing import Any

import pytest

from pgtrickle.capture.install import ensure_capture
from pgtrickle.db.connect import Connection, connect
from pgtrickle.ipc.channel import DatabaseSettings, Define, Finished, TableResult
from pgtrickle.model.work import CANCELLED, RETRYABLE, SUCCEEDED, QueuedUnit
from pgtrickle.scheduler import graph_builder as graphkeeper
from pgtrickle.scheduler.tick import DatabaseScheduler
from pgtrickle.settings import Sources
from tests.conftest import Database


class FakeLink:
    """Takes what it is given; answers when the test says so."""

    def __init__(self) -> None:
        self.connection: object | None = object()
        self.losses = 0
        self.jobs: list[QueuedUnit] = []
        self.last: list[QueuedUnit] = []
        self.hellos: list[DatabaseSettings] = []
        self.messages: list[Finished] = []
        self.cleared = 0
        self.withdrawn = 0

    @property
    def is_open(self) -> bool:
        return self.connection is not None

    def open(self, hello: DatabaseSettings) -> bool:
        if self.connection is not None:
            self.hellos.append(hello)
        return self.connection is not None

    def send(self, message: object) -> bool:
        if isinstance(message, DatabaseSettings):
            self.hellos.append(message)
        else:
            assert isinstance(message, Define)  # where other databases are read
        return True

    def submit(self, jobs: list[QueuedUnit]) -> bool:
        self.jobs += jobs
        return True

    def withdraw(self) -> None:
        self.withdrawn += 1

    def clear_caches(self) -> None:
        self.cleared += 1

    def receive(self) -> list[Finished]:
        messages, self.messages = self.messages, []
        return messages

    def taken(self) -> list[tuple[int, ...]]:
        """What was handed over since the last call."""
        jobs, self.jobs = self.jobs, []
        self.last = jobs or self.last
        return [job.unit.members for job in jobs]

    def finish(self, status: str = SUCCEEDED, branch: str = "ok", action: str = "DIFFERENTIAL") -> None:
        results = tuple(TableResult(i, action, branch) for job in self.last for i in job.unit.members)
        ended = tuple((job.job_id, status, None if branch == "ok" else "why", None) for job in self.last)
        self.messages.append(Finished(ended, () if status == CANCELLED else results, datetime.now(UTC)))


class Stage:
    """A database with stream tables that count as loaded, and its scheduler."""

    def __init__(self, database: Database) -> None:
        self.database = database
        self.user = database.connect()
        self.link = FakeLink()
        self.conn: Connection = connect(database.dsn, role="scheduler", autocommit=True)
        self._scheduling: DatabaseScheduler | None = None
        self.flags: dict[str, object] = {}

    @property
    def scheduling(self) -> DatabaseScheduler:
        if self._scheduling is None:
            sources = Sources(flags=self.flags)
            self._scheduling = DatabaseScheduler(self.conn, "test", self.database.dsn, sources, self.link)  # type: ignore[arg-type]
        return self._scheduling

    def sql(self, text: str, *params: Any) -> list[tuple[Any, ...]]:
        cursor = self.user.execute(text, params or None)
        return cursor.fetchall() if cursor.description is not None else []

    def source(self, name: str) -> None:
        self.sql(f"CREATE TABLE {name} (id int PRIMARY KEY, v int)")
        self.capture(name)

    def capture(self, name: str) -> None:
        relid = self.sql("SELECT %s::regclass::oid::int8", name)[0][0]
        with connect(self.database.dsn, role="capture", autocommit=True) as conn:
            ensure_capture(conn, relid, [1, 2])

    def table(self, name: str, query: str, schedule: str = "calculated", mode: str = "AUTO", **options: str) -> int:
        self.sql("SELECT pgtrickle.create_stream_table(%s, %s, %s, %s)", name, query, schedule, mode)
        self.sql(
            "UPDATE pgtrickle.pgt_stream_tables SET is_populated = true, status = 'ACTIVE', "
            "refresh_done_at = refresh_requested_at, last_refresh_at = clock_timestamp() WHERE pgt_name = %s",
            name,
        )
        for option, value in options.items():
            self.sql(f"SELECT pgtrickle.alter_stream_table(%s, {option} => %s)", name, value)
        found = self.sql("SELECT pgt_id FROM pgtrickle.pgt_stream_tables WHERE pgt_name = %s", name)
        return int(found[0][0])

    def tick(self) -> list[tuple[int, ...]]:
        self.scheduling.tick()
        return self.link.taken()

    def settle(self) -> None:
        """Everything has been looked at once and is found unchanged."""
        while self.tick():
            self.link.finish()

    def jobs(self) -> list[tuple[Any, ...]]:
        return self.sql("SELECT members, status, attempt_no FROM pgtrickle.pgt_scheduler_jobs ORDER BY job_id")


@pytest.fixture
def stage(installed: Database) -> Iterator[Stage]:
    stage = Stage(installed)
    yield stage
    stage.conn.close()


class Counted:
    """Counts the statements that a connection sends."""

    def __init__(self, conn: Connection, monkeypatch: pytest.MonkeyPatch) -> None:
        self.texts: list[str] = []
        execute = conn.execute

        def counting(query: Any, *args: Any, **options: Any) -> Any:
            self.texts.append(str(query))
            return execute(query, *args, **options)

        monkeypatch.setattr(conn, "execute", counting)


def test_quiet_tick_is_one_statement_however_many_sources(stage: Stage, monkeypatch: pytest.MonkeyPatch) -> None:
    for i in range(30):
        stage.source(f"t{i}")
        stage.table(f"s{i}", f"SELECT v, count(*) AS n FROM t{i} GROUP BY v")
    stage.settle()
    counted = Counted(stage.conn, monkeypatch)
    for _ in range(5):
        assert stage.tick() == []
    assert len(counted.texts) == 5
    assert "pgt_stream_tables" not in counted.texts[0]


def test_subscribers_are_looked_after_while_there_are_some(stage: Stage, monkeypatch: pytest.MonkeyPatch) -> None:
    stage.source("t")
    stage.table("s", "SELECT v FROM t")
    stage.settle()
    stage.sql("SELECT pgtrickle.create_subscriber('s', 'c')")
    stage.tick()
    assert stage.sql("SELECT count(*) FROM pgtrickle.pgt_sources WHERE source_relid = 's'::regclass") == [(1,)]
    assert stage.sql("SELECT action FROM pgtrickle.read_changes('s', 'c')") == [("reset",)]
    stage.sql("SELECT pgtrickle.drop_subscriber('s', 'c')")
    stage.tick()
    counted = Counted(stage.conn, monkeypatch)
    for _ in range(3):
        stage.tick()
    assert len(counted.texts) == 3


def test_change_makes_its_readers_due_and_nobody_else(stage: Stage) -> None:
    stage.source("t")
    stage.source("u")
    one, two = stage.table("s", "SELECT v FROM t"), stage.table("r", "SELECT v FROM u")
    stage.settle()
    stage.sql("INSERT INTO t VALUES (1, 1)")
    assert stage.tick() == [(one,)]
    assert stage.tick() == []  # in flight
    stage.link.finish()
    assert stage.tick() == []
    stage.sql("INSERT INTO u VALUES (1, 1)")
    assert stage.tick() == [(two,)]


def test_change_of_a_new_source_is_detected_together_with_its_capture(stage: Stage) -> None:
    stage.sql("CREATE TABLE t (id int PRIMARY KEY, v int)")
    one = stage.table("one", "SELECT id FROM t")
    stage.settle()
    stage.capture("t")
    stage.sql("INSERT INTO t VALUES (1, 1)")
    assert stage.tick() == [(one,)]


def test_table_that_is_created_before_the_first_tick_is_not_missed(stage: Stage) -> None:
    assert stage.scheduling.tables == 0  # it has read the catalog
    stage.source("t")
    one = stage.table("one", "SELECT id FROM t")
    assert stage.tick() == [(one,)]


def test_changes_during_a_refresh_make_another_one(stage: Stage) -> None:
    stage.source("t")
    one = stage.table("s", "SELECT v FROM t")
    stage.settle()
    stage.sql("INSERT INTO t VALUES (1, 1)")
    assert stage.tick() == [(one,)]
    stage.sql("INSERT INTO t VALUES (2, 1)")
    assert stage.tick() == []
    stage.link.finish()
    assert stage.tick() == [(one,)]


def test_late_commit_with_an_old_id_is_noticed(stage: Stage) -> None:
    stage.source("t")
    one = stage.table("s", "SELECT v FROM t")
    stage.settle()
    late = stage.database.connect(autocommit=False)
    late.execute("INSERT INTO t VALUES (1, 1)")
    stage.sql("INSERT INTO t VALUES (2, 1)")
    assert stage.tick() == [(one,)]
    stage.link.finish()
    assert stage.tick() == []
    late.commit()
    assert stage.tick() == [(one,)]
    stage.link.finish()
    rolled_back = stage.database.connect(autocommit=False)
    rolled_back.execute("INSERT INTO t VALUES (3, 1)")
    assert stage.tick() == []
    rolled_back.rollback()
    assert stage.tick() == []


def test_schedule_keeps_a_changed_table_waiting(stage: Stage) -> None:
    stage.source("t")
    one = stage.table("s", "SELECT v FROM t", "1h")
    stage.settle()
    stage.sql("INSERT INTO t VALUES (1, 1)")
    assert stage.tick() == []
    stage.sql("SELECT pgtrickle.refresh_stream_table('s')")
    assert stage.tick() == [(one,)]


def test_created_altered_and_dropped_tables_are_noticed(stage: Stage) -> None:
    stage.source("t")
    stage.settle()
    stage.sql("SELECT pgtrickle.create_stream_table('s', 'SELECT v FROM t')")
    (one,) = stage.tick()
    assert stage.scheduling.tables == 1
    stage.sql("UPDATE pgtrickle.pgt_stream_tables SET is_populated = true, refresh_done_at = refresh_requested_at")
    stage.link.finish()
    assert stage.tick() == []
    stage.sql("SELECT pgtrickle.alter_stream_table('s', schedule => '1h')")
    stage.sql("INSERT INTO t VALUES (1, 1)")
    assert stage.tick() == []
    stage.sql("SELECT pgtrickle.alter_stream_table('s', schedule => 'calculated')")
    assert stage.tick() == [one]
    stage.sql("SELECT pgtrickle.drop_stream_table('s')")
    stage.tick()
    assert stage.scheduling.tables == 0


def test_two_that_define_tables_in_long_transactions_do_not_wait_for_one_another(stage: Stage) -> None:
    stage.source("t")
    stage.settle()
    one, two = stage.database.connect(autocommit=False), stage.database.connect(autocommit=False)
    one.execute("SELECT pgtrickle.create_stream_table('a', 'SELECT v FROM t')")
    two.execute("SET LOCAL lock_timeout = '300s'")
    two.execute("SELECT pgtrickle.create_stream_table('b', 'SELECT v FROM t')")
    two.commit()
    assert len(stage.tick()) == 1
    one.commit()
    assert len(stage.tick()) == 1


def test_tables_that_read_one_another_are_one_unit(stage: Stage) -> None:
    stage.source("t")
    one = stage.table("s", "SELECT v, count(*) AS n FROM t GROUP BY v")
    two = stage.table("r", "SELECT sum(n) AS n FROM s")
    stage.settle()
    stage.sql("INSERT INTO t VALUES (1, 1)")
    assert stage.tick() == [(one, two)]
    assert stage.sql("SELECT unit_kind FROM pgtrickle.pgt_scheduler_jobs ORDER BY job_id DESC LIMIT 1") == [
        ("fused_chain",)
    ]


def test_failed_upstream_holds_its_downstream(stage: Stage) -> None:
    stage.source("t")
    stage.source("u")
    stage.table("s", "SELECT v, count(*) AS n FROM t GROUP BY v")
    two = stage.table("r", "SELECT s.n, u.v FROM s JOIN u ON u.v = s.v")
    stage.settle()
    stage.sql("UPDATE pgtrickle.pgt_stream_tables SET status = 'ERROR' WHERE pgt_name = 's'")
    stage.sql("SELECT pgtrickle._wake('test', pgt_id) FROM pgtrickle.pgt_stream_tables")
    stage.sql("INSERT INTO u VALUES (1, 1)")
    assert [unit for unit in stage.tick() if two in unit] == []  # s is tried again, r waits for it
    message = "SELECT last_error_message FROM pgtrickle.pgt_stream_tables WHERE pgt_name = 'r'"
    assert stage.sql(message) == [("waits for stream table public.s: ERROR",)]
    stage.sql("SELECT pgtrickle.resume_stream_table('s')")
    assert sorted(i for unit in stage.tick() for i in unit)[-1] == two
    assert stage.sql(message) == [(None,)]


def test_retryable_failure_is_tried_again_after_a_pause_with_the_next_number(stage: Stage) -> None:
    stage.source("t")
    one = stage.table("s", "SELECT v FROM t")
    stage.settle()
    stage.sql("INSERT INTO t VALUES (1, 1)")
    assert stage.tick() == [(one,)]
    finished_at = time.time()
    stage.link.finish(RETRYABLE, "retry")
    assert stage.tick() == []
    assert finished_at + 0.5 < stage.scheduling.next_due_time() <= time.time() + 1
    time.sleep(1)
    assert stage.tick() == [(one,)]
    stage.link.finish()
    stage.tick()
    assert stage.jobs()[-2:] == [([one], RETRYABLE, 1), ([one], SUCCEEDED, 2)]


def test_pipeline_that_ends_gives_its_units_back(stage: Stage) -> None:
    stage.source("t")
    one = stage.table("s", "SELECT v FROM t")
    stage.settle()
    stage.sql("INSERT INTO t VALUES (1, 1)")
    assert stage.tick() == [(one,)]
    stage.scheduling.abandon("the pipeline exited")
    assert stage.jobs()[-1] == ([one], CANCELLED, 1)
    assert stage.tick() == [(one,)]


def test_new_scheduler_closes_what_the_old_one_left(stage: Stage) -> None:
    stage.source("t")
    stage.table("s", "SELECT v FROM t")
    stage.sql(
        "INSERT INTO pgtrickle.pgt_scheduler_jobs (unit_key, unit_kind, members, status) "
        "VALUES ('singleton:1', 'singleton', '{1}', 'QUEUED'), ('singleton:1', 'singleton', '{1}', 'RUNNING')"
    )
    assert stage.scheduling.ticks == 0
    assert [status for _, status, _ in stage.jobs()] == [CANCELLED, RETRYABLE]


def test_disabled_database_is_watched_and_not_refreshed(stage: Stage) -> None:
    stage.source("t")
    one = stage.table("s", "SELECT v FROM t")
    stage.settle()
    before = stage.link.withdrawn
    stage.sql("SELECT pgtrickle.set_option('enabled', 'off')")
    stage.scheduling.reload_settings()
    assert (stage.scheduling.state, stage.link.withdrawn - before) == ("DISABLED", 1)
    stage.sql("INSERT INTO t VALUES (1, 1)")
    assert stage.tick() == []
    stage.sql("SELECT pgtrickle.set_option('enabled', NULL)")
    stage.scheduling.reload_settings()
    assert stage.tick() == [(one,)]


def test_tiered_scheduling_takes_effect_at_run_time_in_both_directions(stage: Stage) -> None:
    stage.source("t")
    one = stage.table("s", "SELECT v FROM t", schedule="1h", tier="cold")
    frozen = stage.table("f", "SELECT id FROM t", schedule="1h", tier="frozen")
    stage.settle()
    stage.sql("UPDATE pgtrickle.pgt_stream_tables SET last_refresh_at = clock_timestamp() - interval '2 hours'")
    stage.sql("INSERT INTO pgtrickle.pgt_events (what) VALUES ('install')")
    stage.sql("INSERT INTO t VALUES (1, 1)")
    assert stage.tick() == []  # cold: every 10 hours
    stage.sql("SELECT pgtrickle.set_option('tiered_scheduling', 'off')")
    assert stage.tick() == [(one,)]  # by the event, within one tick; what a user has frozen stays frozen
    stage.link.finish()
    stage.sql("SELECT pgtrickle.set_option('tiered_scheduling', 'on')")
    stage.sql("UPDATE pgtrickle.pgt_stream_tables SET last_refresh_at = clock_timestamp() - interval '2 hours'")
    stage.sql("INSERT INTO pgtrickle.pgt_events (what) VALUES ('install')")
    stage.sql("INSERT INTO t VALUES (2, 2)")
    assert stage.tick() == []
    stage.sql("SELECT pgtrickle.alter_stream_table('f', tier => 'hot')")
    assert stage.tick() == [(frozen,)]


def test_source_that_is_captured_later_is_looked_at_from_then_on(stage: Stage) -> None:
    stage.settle()
    stage.source("t")
    one = stage.table("s", "SELECT v FROM t")
    stage.settle()
    stage.sql("INSERT INTO t VALUES (1, 1)")
    assert stage.tick() == [(one,)]


def test_buffer_that_vanishes_does_not_stop_the_ticks(stage: Stage) -> None:
    stage.source("t")
    stage.source("u")
    one = stage.table("s", "SELECT v FROM t")
    stage.settle()
    stage.sql("DROP TABLE u")
    relid = stage.sql("SELECT source_relid::int8 FROM pgtrickle.pgt_sources ORDER BY created_at DESC LIMIT 1")[0][0]
    stage.sql(f"DROP TABLE pgtrickle_changes.changes_{relid}")
    stage.sql("DELETE FROM pgtrickle.pgt_sources WHERE source_relid = %s", relid)
    stage.sql("INSERT INTO t VALUES (1, 1)")
    taken = stage.tick() + stage.tick()
    assert taken == [(one,)]


def test_cleared_caches_are_cleared_in_the_pipeline(stage: Stage) -> None:
    stage.settle()
    stage.sql("SELECT pgtrickle._wake('clear_caches')")
    stage.tick()
    assert stage.link.cleared == 1


@pytest.mark.parametrize("branch", ["ok", "retry"])
def test_a_request_that_waited_for_another_table_of_its_unit_does_not_wait_for_the_tick(
    stage: Stage, branch: str
) -> None:
    stage.source("t")
    stage.source("u")
    a = stage.table("a", "SELECT v FROM t")
    b = stage.table("b", "SELECT t.v FROM t JOIN u ON u.v = t.v")
    c = stage.table("c", "SELECT a.v FROM a JOIN b ON b.v = a.v", diamond_consistency="atomic")
    stage.settle()
    stage.sql("INSERT INTO u VALUES (1, 1)")
    assert stage.tick() == [(b, c)]
    stage.sql("SELECT pgtrickle.refresh_stream_table('a')")
    assert stage.tick() == [], "c is being refreshed, and follows a"
    stage.link.finish(RETRYABLE if branch == "retry" else SUCCEEDED, branch, "NO_DATA")
    assert stage.scheduling.listen()
    assert a in {member for unit in stage.tick() for member in unit}
    stage.link.finish(action="NO_DATA")
    stage.sql("UPDATE pgtrickle.pgt_stream_tables SET refresh_done_at = refresh_requested_at")
    assert not stage.scheduling.listen(), "nothing is requested"


def test_graph_that_takes_long_does_not_stop_the_ticks(stage: Stage, monkeypatch: pytest.MonkeyPatch) -> None:
    stage.source("t")
    stage.source("u")
    one = stage.table("s", "SELECT v FROM t")
    stage.settle()
    opened = threading.Event()
    real = graphkeeper._graph

    def build(rows: Any, groups: Any) -> Any:
        assert opened.wait(120)
        return real(rows, groups)

    monkeypatch.setattr(graphkeeper, "_graph", build)
    monkeypatch.setattr(stage.scheduling._graphs, "_small", 0)
    two = stage.table("r", "SELECT v FROM u")
    assert stage.tick() == []  # it waits for its place
    stage.sql("INSERT INTO t VALUES (1, 1)")
    stage.sql("INSERT INTO u VALUES (1, 1)")  # the old graph does not know who reads it
    assert stage.tick() == [(one,)]
    stage.link.finish()
    assert stage.tick() == []
    stage.sql("SELECT pgtrickle.drop_stream_table('s')")
    stage.sql("INSERT INTO t VALUES (2, 1)")
    assert stage.tick() == []
    opened.set()
    taken: list[tuple[int, ...]] = []
    deadline = time.monotonic() + 120
    while not taken and time.monotonic() < deadline:
        taken = stage.tick()
    assert taken == [(two,)]
    stage.link.finish()
    assert stage.tick() == []
    assert stage.scheduling.tables == 1


def test_new_session_tells_its_settings_over_a_line_that_is_still_open(stage: Stage) -> None:
    stage.flags = {"scheduler_interval_ms": 300}
    scheduling = stage.scheduling
    assert [(hello.key, hello.settings.scheduler_interval_ms) for hello in stage.link.hellos] == [(scheduling.key, 300)]
