"""How far a load is, while it runs, as another session sees it."""

from __future__ import annotations

import os
import pty
import re
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import psycopg
import pyarrow as pa
import pytest

from pgtrickle.db.copy import write_arrow
from pgtrickle.observe.loads import LoadProgress, read_loads
from pgtrickle.pipeline.engine.spark import SparkEngine
from pgtrickle.process.local_control_plane import LocalControlPlane
from pgtrickle.refresh import load_progress
from pgtrickle.servers.server_process import free_port
from pgtrickle.settings import Sources
from tests.conftest import Database

ROWS = 20_000
GATE = """
    CREATE FUNCTION gate(k int) RETURNS int LANGUAGE plpgsql STABLE AS $$
    BEGIN
        WHILE k = 10000 AND EXISTS (SELECT FROM pg_locks WHERE locktype = 'advisory' AND objid = 4711) LOOP
            PERFORM pg_sleep(0.02);
        END LOOP;
        RETURN k;
    END
    $$
"""


def make_gated(database: Database) -> None:
    """A stream table `s` whose load waits in its middle while somebody holds the lock."""
    database.sql(
        f"CREATE TABLE t (k int, v text); INSERT INTO t SELECT g, 'v' || g FROM generate_series(1, {ROWS}) AS g"
    )
    database.sql("ANALYZE t")
    database.sql(GATE)
    query = "SELECT k, v, gate(k) AS g FROM t"
    database.sql("SELECT pgtrickle.create_stream_table('s', %s, '1h', 'FULL')", query)


def seen(conn: psycopg.Connection[Any], condition: Callable[[LoadProgress], object]) -> LoadProgress:
    deadline = time.monotonic() + 180
    while True:
        loads = read_loads(conn)
        if loads and condition(loads[0]):
            assert len(loads) == 1
            return loads[0]
        assert time.monotonic() < deadline, loads
        time.sleep(0.05)


@pytest.mark.parametrize("is_reloaded", [False, True])
def test_load_shows_rows_rate_and_remaining_time(
    installed: Database, make_role: Callable[[Database], psycopg.Connection[Any]], is_reloaded: bool
) -> None:
    make_gated(installed)
    watcher, gate = installed.connect(), installed.connect()
    # Loads need no Spark: PostgreSQL computes them.
    engine = SparkEngine(lambda: f"sc://127.0.0.1:{free_port()}")
    plane = LocalControlPlane("test", installed.dsn, engine, Sources())
    try:
        if is_reloaded:
            assert [o.error for o in plane.tick()] == [None]
            installed.sql("UPDATE pgtrickle.pgt_stream_tables SET last_full_ms = 3600000")
            installed.sql("INSERT INTO t VALUES (0, 'new'); SELECT pgtrickle.refresh_stream_table('s')")
        gate.execute("SELECT pg_advisory_lock(4711)")
        assert read_loads(watcher) == []
        outcomes: list[Any] = []
        thread = threading.Thread(target=lambda: outcomes.extend(plane.tick()))
        thread.start()
        if is_reloaded:  # computed into a table that nobody sees yet
            load = seen(watcher, lambda load: load.phase == "computing")
            assert load.rows_done is None
            assert load.remaining_seconds is not None  # by the duration of the last load
            assert 0 < load.remaining_seconds <= 3600
        else:
            load = seen(watcher, lambda load: (load.rows_done or 0) > 0.6 * ROWS / 2)
            assert load.phase == "writing"
            assert load.rows_done is not None
            assert 0.6 * ROWS / 2 < load.rows_done < 1.6 * ROWS / 2
            assert load.rows_per_second is not None
            assert load.rows_per_second > 0
            assert load.remaining_seconds is not None
            assert "of about 20,000 rows" in load.text()
            assert re.fullmatch(r"\[#{6,15}-{5,14}\] \d\d %", load.bar())
            # who may not read the table does not learn how many rows it has
            (other,) = read_loads(make_role(installed))
            assert (other.name, other.rows_done, other.rows_estimated) == ("public.s", None, None)
        assert load.name == "public.s"
        assert load.rows_estimated is not None
        assert 0.5 * ROWS < load.rows_estimated < 2 * ROWS
        gate.close()
        thread.join(180)
        assert [o.error for o in outcomes] == [None]
        assert read_loads(watcher) == []
        assert installed.sql("SELECT count(*) FROM s") == installed.sql("SELECT count(*) FROM t")
    finally:
        gate.close()
        plane.close()
        engine.close()


COMMAND = "import pgtrickle.cli.loading as l; l.PLAIN_SECONDS = 0.2; from pgtrickle.cli import main; main()"
PROGRESS = r"writing, [\d,]+ of about [\d,]+ rows, [\d,]+/s, about [\d.]+ (s|min|h) left"
WITH_BAR = rf"public\.s: \[#+-+\] \d\d % {PROGRESS}"


@pytest.mark.parametrize("is_terminal", [False, True])
def test_commands_show_the_progress_while_they_wait(installed: Database, is_terminal: bool) -> None:
    """`refresh` in lines, or on a terminal in one that is replaced, `status` once."""
    make_gated(installed)
    gate = installed.connect()
    gate.execute("SELECT pg_advisory_lock(4711)")
    ours, theirs = pty.openpty() if is_terminal else os.pipe()
    environ = {k: v for k, v in os.environ.items() if not k.startswith("PGTRICKLE_") and k != "NO_COLOR"}
    environ |= {"PGTRICKLE_SERVER": installed.dsn, "TERM": "xterm", "COLUMNS": "200"}
    no_spark = f"sc://127.0.0.1:{free_port()}"  # loads need none
    command = [sys.executable, "-c", COMMAND, "refresh", "s", "--spark-remote", no_spark]
    refresh = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=theirs, env=environ, text=True)
    os.close(theirs)
    said: list[bytes] = []
    reader = threading.Thread(target=read_all, args=(ours, said))
    reader.start()
    try:
        line = WITH_BAR if is_terminal else rf"(?m)^{WITH_BAR}$"
        deadline = time.monotonic() + 180
        while not re.search(line, b"".join(said).decode(errors="replace")):
            assert time.monotonic() < deadline, said
            assert refresh.poll() is None, said
            time.sleep(0.05)
        assert (b"\x1b" in b"".join(said)) == is_terminal
        status = subprocess.run(
            [sys.executable, "-m", "pgtrickle.cli", "status"], env=environ, capture_output=True, text=True, check=False
        )
        assert re.search(rf"(?m)^public\.s: {PROGRESS}$", status.stdout)
    finally:
        gate.close()
        result, _ = refresh.communicate(timeout=180)
        reader.join(180)
        os.close(ours)
    assert (refresh.returncode, result.split(",")[:2]) == (0, ["public.s: FULL", f" {ROWS} inserted"])


def read_all(descriptor: int, said: list[bytes]) -> None:
    """Until the other side is closed, so that it never waits for a reader."""
    try:
        while read := os.read(descriptor, 65536):
            said.append(read)
    except OSError:  # so ends a pseudo-terminal
        pass


def test_rows_of_another_session_are_counted_across_batches(installed: Database) -> None:
    """A mirror's rows, for example: each batch is a COPY of its own."""
    installed.sql("CREATE TABLE t (k int); SELECT pgtrickle.create_stream_table('s', 'SELECT k FROM t')")
    watcher, writer = installed.connect(), installed.connect(autocommit=False)
    ((pgt_id,),) = installed.sql("SELECT pgt_id FROM pgtrickle.pgt_stream_tables")
    planned: Any = SimpleNamespace(table=SimpleNamespace(pgt_id=pgt_id, schema="public", name="s"))
    batches = (pa.table({"k": ["x" * 100] * 1000}) for _ in range(2))
    shown = load_progress.counted(writer, planned, batches, 4000)
    writer.execute("CREATE TEMP TABLE stage (k text)")
    write_arrow(writer, "pg_temp.stage", next(shown))
    next(shown)
    with writer.cursor().copy("COPY pg_temp.stage FROM STDIN") as copy:
        for _ in range(1000):
            copy.write("x" * 100 + "\n")
        # The server has counted the rows of the first packets, in addition to those of the first batch.
        load = seen(watcher, lambda load: (load.rows_done or 0) > 1000)
        assert (load.phase, load.rows_estimated) == ("copying", 4000)
        assert load.rows_done is not None
        assert load.rows_done <= 2000
        assert load.remaining_seconds is not None
    writer.rollback()
    assert read_loads(watcher) == []
