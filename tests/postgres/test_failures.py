"""Refreshes that fail: tried again after a pause, and recovered without anybody's help. And who waits for them."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from typing import Any

import psycopg
import pytest

from pgtrickle.errors import InvariantError, TransientError
from pgtrickle.pipeline.engine.spark import SparkEngine
from pgtrickle.refresh import culprit
from tests.conftest import Database
from tests.line import Line
from tests.postgres.test_cli_commands import pgtrickle
from tests.postgres.test_restore import no_spark


@pytest.fixture
def line(installed: Database) -> Iterator[Line]:
    engine = SparkEngine(no_spark)
    line = Line(installed.dsn, engine)
    line.sql("CREATE TABLE t (id int PRIMARY KEY, v int); INSERT INTO t VALUES (1, 10), (2, 20)")
    yield line
    line.close()
    engine.close()


def status(line: Line, name: str) -> tuple[Any, ...]:
    (row,) = line.sql("SELECT status, consecutive_errors FROM pgtrickle.pgt_stream_tables WHERE pgt_name = %s", name)
    return row


def test_bad_row_that_is_gone_again(line: Line) -> None:
    line.create("shares", "SELECT id, 100 / v AS share FROM t", mode="FULL")
    line.create("sums", "SELECT sum(share) AS total FROM shares", mode="FULL")
    line.sql("INSERT INTO t VALUES (3, 0)")
    for number in (1, 2):
        line.tick()
        assert status(line, "shares") == ("ERROR", number)
    ((message, waits),) = line.sql(
        "SELECT a.last_error_message, b.last_error_message FROM pgtrickle.pgt_stream_tables a, "
        "pgtrickle.pgt_stream_tables b WHERE a.pgt_name = 'shares' AND b.pgt_name = 'sums'"
    )
    assert "division by zero" in message
    assert "public.shares" in waits
    line.sql("DELETE FROM t WHERE id = 3; INSERT INTO t VALUES (4, 50)")
    line.tick()
    line.tick()
    for name in ("shares", "sums"):
        assert status(line, name) == ("ACTIVE", 0)
        line.check(name, "FULL")


def test_first_load_that_fails_is_tried_again(line: Line) -> None:
    line.sql("UPDATE t SET v = 0 WHERE id = 1")
    line.create("shares", "SELECT id, 100 / v AS share FROM t", mode="FULL")
    assert status(line, "shares") == ("ERROR", 1)
    line.sql("UPDATE t SET v = 5 WHERE id = 1")
    line.tick()
    assert status(line, "shares") == ("ACTIVE", 0)
    line.equal("shares")


def test_transient_failures_never_suspend_and_broken_invariants_do(line: Line, monkeypatch: pytest.MonkeyPatch) -> None:
    line.create("copied", "SELECT id FROM t", mode="FULL")
    for error, expected in ((TransientError, "ACTIVE"), (InvariantError, "SUSPENDED")):

        def failing(*_: Any, error: type[Exception] = error) -> None:
            raise error("no luck today")

        line.sql("INSERT INTO t SELECT max(id) + 1, 1 FROM t")
        with monkeypatch.context() as patched:
            patched.setattr(line.plane.worker.refresher, "_apply_all", failing)
            for _ in range(5):
                line.tick()
        assert status(line, "copied")[0] == expected
        line.tick()
        if expected == "ACTIVE":
            line.check("copied", "FULL")
    line.sql("SELECT pgtrickle.resume_stream_table('copied')")
    line.tick()
    line.equal("copied")


@contextmanager
def ticking(line: Line, installed: Database) -> Iterator[None]:
    """A control plane that does a tick when something is requested."""
    stop = threading.Event()
    listening = installed.connect()
    listening.execute("LISTEN pgtrickle_wake")

    def control_plane() -> None:
        while not stop.is_set():
            if list(listening.notifies(timeout=0.05, stop_after=1)):
                line.tick()

    thread = threading.Thread(target=control_plane)
    thread.start()
    try:
        yield
    finally:
        stop.set()
        thread.join()


def test_refresh_and_wait_refreshes_what_it_reads_and_raises_what_fails(line: Line, installed: Database) -> None:
    line.create("shares", "SELECT id, 100 / v AS share FROM t", mode="FULL", schedule="1h")
    line.create("sums", "SELECT sum(share) AS total FROM shares", mode="FULL", schedule="1h")
    with ticking(line, installed):
        installed.sql("INSERT INTO t VALUES (5, 4)")
        installed.sql("CALL pgtrickle.refresh_and_wait('sums', '1 minute')")
        assert installed.sql("SELECT total FROM sums") == installed.sql("SELECT sum(100 / v) FROM t")
        installed.sql("INSERT INTO t VALUES (6, 0)")
        for name in ("sums", "shares"):
            with pytest.raises(psycopg.errors.ObjectNotInPrerequisiteState, match=r"of public.shares failed.*by zero"):
                installed.sql(f"CALL pgtrickle.refresh_and_wait('{name}', '1 minute')")
        installed.sql("DELETE FROM t WHERE id = 6")
        installed.sql("CALL pgtrickle.refresh_and_wait('sums', '1 minute')")
        assert installed.sql("SELECT total FROM sums") == installed.sql("SELECT sum(100 / v) FROM t")


def test_refresh_and_wait_returns_after_the_fixpoint_of_a_cycle(line: Line, installed: Database) -> None:
    line.sql("SELECT pgtrickle.set_option('allow_circular', 'on'); CREATE TABLE edge (a int NOT NULL, b int NOT NULL)")
    for name in ("path", "hop"):
        line.create(name, "SELECT e.a, e.b FROM edge e", schedule="1h")
    step = "SELECT e.a, e.b FROM edge e UNION SELECT h.a, e.b FROM hop h JOIN edge e ON e.a = h.b"
    line.sql("SELECT pgtrickle.alter_stream_table('path', query => %s)", step)
    line.sql("SELECT pgtrickle.alter_stream_table('hop', query => 'SELECT p.a, p.b FROM path p')")
    line.create("ends", "SELECT b, count(*) AS n FROM path GROUP BY b", schedule="1h")
    paths = (
        "WITH RECURSIVE r AS (SELECT a, b FROM edge UNION SELECT r.a, e.b FROM r JOIN edge e ON e.a = r.b) "
        "SELECT a, b FROM r"
    )
    expected = {
        "path": paths,
        "hop": paths,
        "ends": f"SELECT b, count(*) FROM ({paths}) AS p GROUP BY b",
    }
    with ticking(line, installed):
        for number in range(9):
            change = (
                f"INSERT INTO edge SELECT {number} * 10 + i, {number} * 10 + i + 1 FROM generate_series(1, 10) AS i"
            )
            installed.sql(change if number % 3 else f"{change}; DELETE FROM edge WHERE a % 7 = {number % 7}")
            name = list(expected)[number % 3]
            installed.sql(f"CALL pgtrickle.refresh_and_wait('{name}', '2 minutes')")
            columns = "b, n" if name == "ends" else "a, b"
            assert sorted(installed.sql(f"SELECT {columns} FROM {name}")) == sorted(installed.sql(expected[name])), name


WAITS_FOR_COMMIT = """
SELECT count(*)
FROM pg_locks AS l
JOIN pg_stat_activity AS blocker ON blocker.pid = ANY (pg_blocking_pids(l.pid))
WHERE l.locktype = 'advisory' AND NOT l.granted AND l.mode = 'ShareLock' AND blocker.wait_event_type = 'Lock'
"""


def test_refresh_and_wait_is_woken_by_the_commit_of_the_refresh(line: Line, installed: Database) -> None:
    """The transaction of the refresh waits for a lock on the stream table here, and the caller waits for it."""
    line.create("copied", "SELECT id, v FROM t", mode="FULL", schedule="1h")
    with ticking(line, installed), ThreadPoolExecutor() as pool, installed.connect(autocommit=False) as lock:
        installed.sql("INSERT INTO t VALUES (7, 7)")
        lock.execute("LOCK TABLE copied IN SHARE MODE")
        calls = [pool.submit(installed.sql, "CALL pgtrickle.refresh_and_wait('copied', '1 minute')") for _ in range(2)]
        deadline = time.monotonic() + 60
        while installed.sql(WAITS_FOR_COMMIT) != [(2,)]:
            assert time.monotonic() < deadline, "the callers do not wait for the transaction of the refresh"
        lock.rollback()
        for call in calls:
            call.result()
        line.check("copied", "FULL")
        assert installed.sql("SELECT v FROM copied WHERE id = 7") == [(7,)]
    assert installed.sql("SELECT count(*) FROM pg_locks WHERE locktype = 'advisory' AND mode = 'ShareLock'") == [(0,)]


@pytest.mark.parametrize("kind", ["", "_shared"])
def test_refresh_and_wait_polls_where_a_stranger_holds_the_lock_of_the_commit(
    line: Line, installed: Database, kind: str
) -> None:
    line.create("copied", "SELECT id, v FROM t", mode="FULL", schedule="1h")
    stranger = installed.connect()
    stranger.execute(f"SELECT pg_advisory_lock{kind}(pgtrickle._commit_lock(pgt_id)) FROM pgtrickle.pgt_stream_tables")
    with ticking(line, installed):
        for number in (7, 8):
            installed.sql("INSERT INTO t VALUES (%s, %s)", number, number)
            installed.sql("CALL pgtrickle.refresh_and_wait('copied', '1 minute')")
            assert installed.sql("SELECT v FROM copied WHERE id = %s", number) == [(number,)]


def test_commands_name_what_is_broken_every_time(line: Line, installed: Database) -> None:
    line.create("shares", "SELECT id, 100 / v AS share FROM t", mode="FULL")
    line.create("copied", "SELECT id, v FROM t", mode="FULL")
    line.sql("INSERT INTO t VALUES (3, 0)")
    line.tick()
    line.sql("SELECT pgtrickle.protect_stream_table('copied', false)")
    line.sql("DELETE FROM copied WHERE id = 1; INSERT INTO copied VALUES (9, 9, 0)")
    for _ in range(2):
        done = pgtrickle("status", "--server", installed.dsn)
        assert done.returncode == 1
        assert "public.shares: PGT200: public.shares: 100 / v: division by zero" in done.stdout
        done = pgtrickle("doctor", "--server", installed.dsn)
        assert done.returncode == 1
        assert f"BAD  stream tables: {installed.name}: public.shares is in status ERROR" in done.stdout
        done = pgtrickle("verify", "--server", installed.dsn, "--all")
        assert done.returncode == 1
        lines = [text.strip() for text in done.stdout.splitlines()]
        assert any(
            text.startswith("BROKEN     public.shares: PGT100: public.shares is in status ERROR") for text in lines
        )
        assert {"missing (1,10)", "extra (9,9)"} <= set(lines), lines


# -- what a refresh failed on
# --------------------------------------------------------------------------------------------------------------


MakeRole = Callable[[Database], psycopg.Connection[Any]]
DIVISION = "public.x: 100 / v: division by zero [22012] (row of public.t (id = '3'))"


def message(session: psycopg.Connection[Any], name: str) -> str:
    """As the role of a session sees it."""
    text = "SELECT last_error_message FROM pgtrickle.pgt_status() WHERE name = %s"
    (row,) = session.execute(text, (f"public.{name}",)).fetchall()
    return str(row[0])


@pytest.mark.parametrize("mode", ["FULL", "DIFFERENTIAL"])
@pytest.mark.parametrize(
    ("query", "expected"),
    [
        ("SELECT id, 100 / v AS share FROM t", DIVISION),
        ("SELECT id FROM t WHERE 100 / v > 1", DIVISION),
        ("SELECT 100 / v AS share, count(*) AS n FROM t GROUP BY 100 / v", DIVISION),
        (
            'SELECT t.id, o."Per Cent" % t.v AS m FROM t JOIN "Odd s"."o t" AS o ON o."k 1" = t.id',
            "public.x: o.\"Per Cent\" % t.v: division by zero [22012] (row of public.t (id = '3'); "
            "row of \"Odd s\".\"o t\" (\"k 1\" = '3', \"K'2%s\" = 'it''s'))",
        ),
        ("SELECT id, sqrt(v - 1) AS r FROM t", "public.x: sqrt(((v - 1))::double precision): "),
    ],
    ids=["column", "condition", "key", "join", "call"],
)  # fmt: skip
def test_message_names_table_expression_and_row(line: Line, query: str, expected: str, mode: str) -> None:
    line.sql('CREATE SCHEMA "Odd s"')
    line.sql('CREATE TABLE "Odd s"."o t" ("k 1" int, "K\'2%s" text, "Per Cent" int, PRIMARY KEY ("k 1", "K\'2%s"))')
    line.sql("""INSERT INTO "Odd s"."o t" SELECT n, 'it''s', 5 FROM generate_series(1, 40) AS n""")
    line.sql("INSERT INTO t SELECT n, n FROM generate_series(4, 30) AS n")
    line.sql("INSERT INTO t VALUES (3, 0)")
    line.create("x", query, mode=mode)
    assert expected in message(line.conn, "x")


@pytest.mark.parametrize("mode", ["FULL", "DIFFERENTIAL"])
def test_row_below_a_view_and_row_without_a_key_are_named(line: Line, mode: str) -> None:
    line.sql("CREATE TABLE bag (k int, v int, note text) PARTITION BY LIST (k)")
    line.sql("CREATE TABLE bag_1 PARTITION OF bag FOR VALUES IN (1); CREATE TABLE bag_2 PARTITION OF bag DEFAULT")
    line.sql("INSERT INTO bag SELECT 1 + n % 2, n, repeat('n', 100) FROM generate_series(1, 40) AS n")
    line.sql("INSERT INTO t SELECT n, n FROM generate_series(4, 30) AS n; CREATE SCHEMA s")
    line.sql("CREATE VIEW s.below (id, w) AS SELECT id, v FROM t")
    line.sql("CREATE VIEW s.shown AS SELECT id, 100 / w AS share FROM s.below")
    line.create("x", "SELECT share, count(*) AS n FROM s.shown GROUP BY share", mode=mode)
    line.create("y", "SELECT k, 100 / v AS share FROM bag", mode=mode)
    line.create("z", "SELECT b.k, o.share FROM bag AS b JOIN s.shown AS o ON o.id = b.v", mode=mode)
    line.sql("INSERT INTO t VALUES (3, 0); INSERT INTO bag VALUES (2, 0, 'bad')")
    line.tick()
    row = "row of public.bag (k = '2', v = '0', note = 'bad')"
    assert message(line.conn, "x").endswith(": division by zero [22012] (row of public.t (id = '3'))")
    assert message(line.conn, "y") == f"PGT200: public.y: 100 / v: division by zero [22012] ({row})"
    assert "row of public.t (id = '3')" in message(line.conn, "z")
    line.sql("DELETE FROM t WHERE id = 3; DELETE FROM bag WHERE v = 0")
    line.tick()
    for name in ("x", "y", "z"):
        assert status(line, name) == ("ACTIVE", 0)
        line.equal(name)


@pytest.mark.parametrize("mode", ["FULL", "DIFFERENTIAL"])
@pytest.mark.parametrize("change", ["DROP COLUMN v", "RENAME v TO w"])
def test_columns_of_a_stream_table_that_somebody_dropped_are_named(line: Line, mode: str, change: str) -> None:
    line.create("x", "SELECT id, v, v + 1 AS more FROM t", mode=mode)
    line.sql(f"ALTER TABLE x {change}; UPDATE t SET v = v + 1")
    line.tick()
    if mode == "DIFFERENTIAL":  # FULL has added it again
        repair = """SELECT pgtrickle.repair_stream_table('"public"."x"')"""
        said = f"PGT202: column v of public.x itself was dropped (hint: {repair})"
        assert message(line.conn, "x") == said
        line.sql(repair)
        line.tick()
    assert status(line, "x") == ("ACTIVE", 0)
    assert line.sql("SELECT id, v, more FROM x ORDER BY id") == [(1, 11, 12), (2, 21, 22)]


def test_key_of_a_row_is_for_readers_of_the_source(line: Line, installed: Database, make_role: MakeRole) -> None:
    line.sql("CREATE TABLE s (id text PRIMARY KEY, x text); INSERT INTO s VALUES ('key of a', '1')")
    line.create("x", "SELECT x::int AS n FROM s")
    line.sql("""INSERT INTO s VALUES ('key of b', '9"secret"9')""")
    line.tick()
    full = (
        "PGT200: public.x: (x)::integer: invalid text representation [22P02] (invalid input syntax for type integer: "
        '"9"secret"9" [22P02]; row of public.s (id = \'key of b\'))'
    )
    assert message(line.conn, "x") == full
    reader = make_role(installed)
    role = reader.info.user
    safe = "PGT200: public.x: (x)::integer: invalid text representation [22P02]"
    assert message(reader, "x") == "None"
    line.sql(f"GRANT SELECT ON x TO {role}")
    assert message(reader, "x") == safe
    line.sql(f"GRANT SELECT (x) ON s TO {role}")
    assert message(reader, "x") == safe
    line.sql(f"GRANT SELECT ON s TO {role}")
    assert message(reader, "x") == full
    line.sql("ALTER TABLE s ENABLE ROW LEVEL SECURITY")
    assert message(reader, "x") == safe
    history = reader.execute("SELECT error_message, reason FROM pgtrickle.get_refresh_history('x', 10)").fetchall()
    assert "secret" not in str(history)
    assert "key of" not in str(history)
    with pytest.raises(psycopg.errors.InsufficientPrivilege):
        reader.execute("SELECT last_error_detail FROM pgtrickle.pgt_stream_tables")
    # what is fixed is not told any more
    line.sql("DELETE FROM s WHERE id = 'key of b'")
    line.tick()
    assert message(line.conn, "x") == "None"


def test_row_that_was_written_lately_is_found_in_a_large_source(line: Line, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(culprit, "MOST_SEARCHED_ROWS", 5)
    line.sql("INSERT INTO t SELECT n, n FROM generate_series(4, 30) AS n")
    line.create("x", "SELECT id, 100 / v AS share FROM t", mode="DIFFERENTIAL")
    line.sql("INSERT INTO t VALUES (3, 0)")
    line.tick()
    assert message(line.conn, "x") == f"PGT200: {DIVISION}"


def test_rows_that_fail_only_together_are_not_named(line: Line) -> None:
    line.sql("INSERT INTO t SELECT n, 20000 FROM generate_series(4, 9) AS n")
    line.create("x", "SELECT sum(v)::int2 AS s FROM t", mode="FULL")
    assert message(line.conn, "x") == (
        "PGT400: public.x: (sum(v))::smallint: numeric value out of range [22003] (smallint out of range [22003])"
    )


def test_search_for_what_failed_ends_when_its_time_is_over(line: Line, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(culprit, "SECONDS", 0.0)
    line.create("x", "SELECT id, 100 / (v - v) AS share FROM t", mode="FULL")
    assert message(line.conn, "x") == "PGT200: public.x: division by zero [22012]"


def test_search_for_what_failed_survives_a_statement_that_somebody_cancels(
    line: Line, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A statement that was canceled says nothing about the expression; the search begins again."""
    read = culprit._Search._read
    canceled: list[str] = []

    def cancel_once(search: culprit._Search, sql: str) -> Any:
        if not canceled:
            canceled.append(sql)
            search.conn.execute("SELECT pg_cancel_backend(pg_backend_pid()), pg_sleep(60)")
        return read(search, sql)

    monkeypatch.setattr(culprit._Search, "_read", cancel_once)
    line.create("x", "SELECT id, 100 / (v - v) AS share FROM t", mode="FULL")
    assert canceled
    assert message(line.conn, "x").startswith("PGT200: public.x: 100 / (v - v): division by zero [22012]")
