"""Sessions for a transaction pooler, without one: after each operation the session is as if nobody had been there, and
what somebody left in it before does not reach us. tests/fleet/test_pooler.py has the real PgBouncer."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from datetime import UTC, date, datetime
from typing import Any

import psycopg
import pytest
from psycopg.pq import TransactionStatus

from pgtrickle.capture.install import collect_garbage, ensure_capture
from pgtrickle.capture.trim import index_long_buffers, trim_all
from pgtrickle.db import catalog
from pgtrickle.db.connect import (
    OFF,
    SESSION,
    TRANSACTION,
    Connection,
    backend_pid,
    begin,
    connect,
    outside,
    pooler_of,
    translated,
)
from pgtrickle.db.copy import read_batches
from pgtrickle.db.database_settings import SettingsWatch, find_pooler
from pgtrickle.db.handover import Handover, hand_over, take_over
from pgtrickle.db.install import install, uninstall
from pgtrickle.db.pooled import PooledConnection
from pgtrickle.db.settings import read_settings
from pgtrickle.db.statements import statement
from pgtrickle.errors import DefinitionError, InvariantError, TransientError
from pgtrickle.maintain.tidy import _cancelled_after
from pgtrickle.process import leader_lock as claims
from pgtrickle.process.leader_lock import LeaderLock, new_holder
from pgtrickle.settings import Sources
from tests.conftest import Database
from tests.pgbouncer import NOTHING_LEFT, ODD, ODD_PER_CLIENT


class Session:
    """A pooled connection, and the bare session under it, as the pooler's next client would find it."""

    def __init__(self, dsn: str, **pins: str) -> None:
        conn = connect(dsn, role="test", pooler=TRANSACTION, pins=pins)
        assert isinstance(conn, PooledConnection)
        self.conn = conn
        self.is_soiled = False
        self._before = self.settings()

    def bare(self, text: str, *params: Any) -> list[tuple[Any, ...]]:
        cursor = psycopg.Cursor(self.conn).execute(text, params or None)
        return cursor.fetchall() if cursor.description is not None else []

    def settings(self) -> dict[str, str]:
        return dict(self.bare("SELECT name, setting FROM pg_settings UNION ALL SELECT 'role', current_setting('role')"))

    def soil(self) -> None:
        """As a careless neighbour does."""
        self.is_soiled = True
        for name, value in {**ODD, **ODD_PER_CLIENT}.items():
            self.bare("SELECT set_config(%s, %s, false)", name, value)
        self._before = self.settings()

    def assert_untouched(self) -> None:
        if self.conn.closed:
            return
        assert self.conn.info.transaction_status == TransactionStatus.IDLE
        after = self.settings()
        assert {n: (v, after[n]) for n, v in self._before.items() if after[n] != v} == {}
        assert self.bare(NOTHING_LEFT) == []


@pytest.fixture(params=["clean", "soiled"])
def session(installed: Database, request: pytest.FixtureRequest) -> Iterator[Session]:
    installed.sql("CREATE TABLE t (a int PRIMARY KEY, b numeric)")
    session = Session(installed.dsn, work_mem="7MB", jit="off")
    if request.param == "soiled":
        session.soil()
    yield session
    session.assert_untouched()
    session.conn.close()


PINS = (
    "SELECT current_setting('search_path'), current_setting('work_mem'), current_setting('datestyle'), "
    "current_setting('statement_timeout'), current_setting('transaction_isolation'), "
    "current_setting('transaction_read_only'), current_setting('extra_float_digits')"
)
PINNED = ("pg_catalog, pg_temp", "7MB", "ISO, MDY", "0", "read committed", "off", "1")


def test_every_way_to_run_a_statement_has_the_pins(session: Session) -> None:
    conn = session.conn
    assert conn.execute(PINS).fetchone() == PINNED
    assert conn.execute(PINS + " WHERE %s", (True,)).fetchone() == PINNED
    with conn.cursor() as cursor:
        assert cursor.execute(PINS).fetchone() == PINNED
        assert list(cursor.stream(PINS)) == [PINNED]
        with cursor.copy(f"COPY ({PINS}) TO STDOUT") as copy:
            assert list(copy.rows()) == [PINNED]
        cursor.executemany("INSERT INTO public.t SELECT %s WHERE current_setting('work_mem') = '7MB'", [(1,), (2,)])
        with cursor.copy("COPY public.t (a) FROM STDIN") as copy:
            copy.write_row((3,))
    with conn.transaction():
        assert conn.execute(PINS).fetchone() == PINNED
        with conn.transaction():
            assert conn.execute(PINS).fetchone() == PINNED
    begin(conn, "ISOLATION LEVEL REPEATABLE READ READ ONLY")
    assert conn.execute(PINS).fetchone() == (*PINNED[:4], "repeatable read", "on", "1")
    conn.rollback()
    assert conn.execute("SELECT count(*) FROM public.t").fetchone() == (3,)


def test_the_time_zone_and_the_role_are_those_of_a_fresh_session(session: Session, installed: Database) -> None:
    fresh = installed.connect().execute("SELECT current_setting('timezone'), current_user").fetchone()
    assert session.conn.execute("SELECT current_setting('timezone'), current_user").fetchone() == fresh


def test_failures_leave_nothing_and_the_session_usable(session: Session) -> None:
    conn = session.conn
    for failing in (
        lambda: conn.execute("SELECT 1/%s::int", (0,)),
        lambda: conn.execute("no sql"),
        lambda: list(conn.cursor().stream("SELECT 1/0")),
        lambda: conn.execute("INSERT INTO public.t VALUES (1), (1)"),
    ):
        with pytest.raises(DefinitionError), translated():
            failing()
        session.assert_untouched()
    with pytest.raises(ZeroDivisionError):
        _insert_and_fail(conn)
    with conn.transaction(force_rollback=True):
        conn.execute("INSERT INTO public.t VALUES (1)")
    with conn.transaction():
        conn.execute("INSERT INTO public.t VALUES (2)")
        with pytest.raises(psycopg.errors.UniqueViolation), conn.transaction():
            conn.execute("INSERT INTO public.t VALUES (2)")
    assert conn.execute("SELECT a FROM public.t").fetchall() == [(2,)]


def _insert_and_fail(conn: Connection) -> None:
    with conn.transaction():
        conn.execute("INSERT INTO public.t VALUES (1)")
        raise ZeroDivisionError


def test_an_iterator_that_is_left_half_way_leaves_nothing(session: Session) -> None:
    """Or no session: the driver tries once to get out of the statement."""
    stream = session.conn.cursor().stream("SELECT * FROM generate_series(1, 100000)")
    assert next(stream) == (1,)
    stream.close()  # type: ignore[attr-defined]
    session.assert_untouched()


@pytest.mark.parametrize(
    "text", ["SET work_mem = '1MB'", "set session work_mem = '1MB'", "LISTEN x", "BEGIN", "PREPARE p AS SELECT 1"]
)
def test_what_would_stay_is_refused(session: Session, text: str) -> None:
    with pytest.raises(InvariantError, match="would change a session of the pooler"):
        session.conn.execute(text)
    with session.conn.transaction(), pytest.raises(InvariantError, match="would change a session of the pooler"):
        session.conn.execute(text)


def test_nothing_is_prepared_however_often_it_runs(session: Session) -> None:
    for i in range(20):
        session.conn.execute("SELECT %s::int", (i,))
    with session.conn.transaction():
        for i in range(20):
            session.conn.execute("SELECT %s::int", (i,))


def test_times_are_read_as_they_were_written_whatever_the_session_has(session: Session) -> None:
    text = "SELECT date '2026-02-03', timestamp '2026-02-03 04:05:06', timestamptz '2026-02-03 04:05:06+01'"
    found = (date(2026, 2, 3), datetime(2026, 2, 3, 4, 5, 6), datetime(2026, 2, 3, 3, 5, 6, tzinfo=UTC))
    assert session.conn.execute(text).fetchone() == found
    with session.conn.transaction():
        assert session.conn.execute(text).fetchone() == found


def test_a_snapshot_is_handed_over_between_pooled_sessions(session: Session, installed: Database) -> None:
    conn = session.conn
    begin(conn, "ISOLATION LEVEL REPEATABLE READ READ ONLY")
    handover = Handover.from_json(hand_over(conn).to_json())
    assert handover.pooler == TRANSACTION
    installed.sql("INSERT INTO t VALUES (1)")
    with take_over(handover, role="load", in_snapshot=True) as other:
        assert pooler_of(other) == TRANSACTION
        row = other.execute("SELECT (SELECT count(*) FROM public.t), current_setting('work_mem')").fetchone()
        assert row == (0, "7MB")
        other.rollback()
        assert psycopg.Cursor(other).execute("SELECT current_setting('lock_timeout')").fetchone() == ("0",)
    with take_over(handover, role="stage", in_snapshot=False) as other:
        other.execute("INSERT INTO public.t VALUES (2)")
        other.commit()
    conn.rollback()
    assert conn.execute("SELECT count(*) FROM public.t").fetchone() == (2,)


def test_what_the_control_plane_does_leaves_nothing(session: Session, installed: Database) -> None:
    import pyarrow as pa

    conn = session.conn
    installed.sql("SELECT pgtrickle.create_stream_table('s', 'SELECT b, count(*) AS n FROM t GROUP BY b')")
    (relid,) = installed.sql("SELECT 't'::regclass::oid::int8")[0]
    catalog.read_moment(conn)
    catalog.load_stream_tables(conn)
    catalog.describe(conn, "SELECT a, b FROM public.t")
    ensure_capture(conn, relid, frozenset({1, 2}))
    installed.sql("INSERT INTO t SELECT i, i FROM generate_series(1, 2000) AS i")
    # Outside of a transaction the session's settings act: read-only, and 7 ms for a lock.
    assert index_long_buffers(conn, long_bytes=1000) == ([] if session.is_soiled else [relid])
    trim_all(conn)
    collect_garbage(conn)
    conn.execute(statement("publish"), {"state": "{}", "broker": "[]", "keeps_session": not session.is_soiled})
    assert sum(len(t) for t in read_batches(conn, "SELECT a FROM public.t", [pa.int64()])) == 2000
    session.assert_untouched()


def test_install_and_uninstall_leave_nothing(database: Database) -> None:
    session = Session(database.dsn)
    session.soil()
    install(session.conn)
    install(session.conn)
    session.assert_untouched()
    uninstall(session.conn)
    session.assert_untouched()
    session.conn.close()


def test_a_pooled_session_does_not_say_whose_backend_it_has(installed: Database) -> None:
    with connect(installed.dsn, role="test", pooler=TRANSACTION) as pooled, connect(installed.dsn, role="test") as own:
        assert backend_pid(pooled) is None
        assert backend_pid(own) == own.info.backend_pid
        assert [pooler_of(c) for c in (pooled, own)] == [TRANSACTION, OFF]


def test_a_session_pooler_gets_its_session_back_as_it_was(installed: Database, monkeypatch: pytest.MonkeyPatch) -> None:
    """A pooler that resets nothing: closing does not close."""
    monkeypatch.setattr(psycopg.Connection, "close", lambda self: None)
    conn = connect(installed.dsn, role="test", autocommit=True, pooler=SESSION, pins={"work_mem": "7MB"})
    conn.execute("LISTEN x")
    conn.execute("SELECT pg_advisory_lock(5)")
    for i in range(20):
        assert conn.execute("SELECT current_setting('work_mem'), %s::int", (i,)).fetchone() == ("7MB", i)
    conn.close()
    monkeypatch.undo()
    assert conn.execute("SELECT current_setting('search_path')").fetchone() == ('"$user", public',)
    assert conn.execute(NOTHING_LEFT).fetchall() == []
    conn.close()


def test_an_index_that_waits_too_long_is_cancelled(installed: Database) -> None:
    installed.sql("CREATE TABLE t (a int)")
    writer = installed.connect(autocommit=False)
    writer.execute("INSERT INTO t VALUES (1)")
    # Without a cancellation it would wait for the writer, which stays open.
    with (
        connect(installed.dsn, role="index", pooler=TRANSACTION) as conn,
        pytest.raises(TransientError),
        translated(),
        _cancelled_after(conn, 0.3),
    ):
        outside(conn, "CREATE INDEX CONCURRENTLY i ON public.t (a)")


# -- who is active
# --------------------------------------------------------------------------------------------------------------

LOCK = 0x7067_7363


@pytest.fixture
def open_session(installed: Database) -> Iterator[Callable[[str], Connection]]:
    opened: list[Connection] = []

    def make(pooler: str) -> Connection:
        opened.append(connect(installed.dsn, role="scheduler", autocommit=True, pooler=pooler))
        return opened[-1]

    yield make
    for conn in opened:
        conn.close()


def status(database: Database) -> str:
    return str(database.sql("SELECT scheduler_status FROM pgtrickle.health_summary()")[0][0])


@pytest.mark.parametrize("first", [TRANSACTION, SESSION, OFF])
@pytest.mark.parametrize("second", [TRANSACTION, OFF])
def test_one_claim_excludes_the_other(
    installed: Database, open_session: Callable[[str], Connection], first: str, second: str
) -> None:
    conn = open_session(first)
    one, two = (
        LeaderLock(conn, "scheduler", LOCK, new_holder()),
        LeaderLock(open_session(second), "scheduler", LOCK, new_holder()),
    )
    assert one.take()
    assert one.take()
    assert not two.take()
    assert not two.take()
    one.end()
    conn.close()
    while not two.take():  # a server process releases its locks a moment after its session was closed
        time.sleep(0.02)
    assert status(installed) == "ACTIVE"


def test_a_lease_that_is_not_renewed_goes_to_the_next(
    installed: Database, open_session: Callable[[str], Connection], monkeypatch: pytest.MonkeyPatch
) -> None:
    one, two = (LeaderLock(open_session(TRANSACTION), "scheduler", LOCK, new_holder()) for _ in range(2))
    monkeypatch.setattr(claims, "RENEW_SECONDS", 0.0)
    assert one.take()
    one.renew()
    late = "UPDATE pgtrickle.pgt_leases SET until = clock_timestamp() - interval '1s'"
    installed.sql(late)
    assert status(installed) == "STOPPED"
    one.renew()  # late, but nobody was there
    assert not two.take()
    installed.sql(late)
    assert two.take()
    with pytest.raises(TransientError, match="another process holds it"):
        one.renew()
    one.end()
    assert status(installed) == "ACTIVE"


def test_a_claim_in_a_database_without_pgtrickle_excludes_nobody_behind_a_pooler(database: Database) -> None:
    with connect(database.dsn, role="launcher", pooler=TRANSACTION) as conn:
        claim = LeaderLock(conn, "launcher", LOCK, new_holder())
        assert claim.take()
        claim.renew()
        claim.end()


def test_a_session_that_calls_itself_ours_is_no_scheduler(installed: Database) -> None:
    """As an idle session of a pooler does, whose last client was a scheduler."""
    with connect(installed.dsn, role="scheduler", pooler=TRANSACTION) as conn:
        claim = LeaderLock(conn, "scheduler", LOCK, new_holder())
        assert claim.take()
        assert status(installed) == "ACTIVE"
        claim.end()
        assert status(installed) == "STOPPED"
    assert status(installed) == "STOPPED"
    with connect(installed.dsn, role="other", pooler=TRANSACTION) as conn:
        claim = LeaderLock(conn, "scheduler", LOCK, new_holder())
        assert claim.take()
        assert status(installed) == "ACTIVE"


# -- settings
# -------------------------------------------------------------------------------------------------------------------


def test_the_mode_is_found_before_anything_is_set(installed: Database) -> None:
    assert find_pooler(installed.dsn, Sources()) == OFF
    installed.sql("SELECT pgtrickle.set_option('connection_pooler_mode', 'transaction')")
    assert find_pooler(installed.dsn, Sources()) == TRANSACTION
    assert find_pooler(installed.dsn, Sources(flags={"connection_pooler_mode": "session"})) == SESSION
    installed.superuser_sql(f"ALTER DATABASE {installed.name} SET pg_trickle.connection_pooler_mode = session")
    assert find_pooler(installed.dsn, Sources()) == SESSION


def test_what_another_client_has_set_is_no_setting_of_ours(installed: Database) -> None:
    session = Session(installed.dsn)
    session.soil()
    session.bare("SET pg_trickle.max_databases = 5")
    assert read_settings(session.conn, options=True).winners() == {}
    session.assert_untouched()
    session.conn.close()


def test_a_watch_behind_a_pooler_does_not_go_to_and_fro_between_sessions(installed: Database) -> None:
    name = installed.name

    def never() -> Connection:
        raise AssertionError("behind a pooler nobody gets a new session for the asking")

    sessions = []
    for text in ("", f"ALTER DATABASE {name} SET pg_trickle.enabled = off", f"ALTER DATABASE {name} RESET ALL"):
        if text:
            installed.superuser_sql(text)
        sessions.append(connect(installed.dsn, role="test", pooler=TRANSACTION))
        time.sleep(0.01)
    watch = SettingsWatch(name, Sources(), never)
    # The second one still has what was stored when it began; the third knows better.
    assert [watch.read(sessions[i]).settings.enabled for i in (0, 2, 1, 0, 1, 2)] == [True] * 6
    for conn in sessions:
        conn.close()
