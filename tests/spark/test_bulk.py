"""Large loads are carried by executors: side by side, each row once, at the wave's snapshot, whatever happens."""

from __future__ import annotations

import dataclasses
import logging
import sys
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import psycopg
import pytest

from pgtrickle.apply.stage import claim_stage, sweep_stages
from pgtrickle.db.connect import connect
from pgtrickle.db.handover import Handover, hand_over
from pgtrickle.dispatch import worker
from pgtrickle.errors import DefinitionError, EngineLostError, PgtrickleError, TransientError
from pgtrickle.pipeline.engine import bulk
from pgtrickle.pipeline.engine.spark import SparkEngine
from pgtrickle.refresh import bulk_load as bulkload
from pgtrickle.refresh import wave as refresh
from pgtrickle.refresh.culprit import Culprit
from pgtrickle.servers.spark_server import SparkServer
from pgtrickle.settings import Settings
from tests.conftest import Database
from tests.line import Line

SCHEMA = r"""
CREATE TABLE kind (id int PRIMARY KEY, name text);
CREATE TABLE item (id int, kind int, note text, qty int);
INSERT INTO kind SELECT i, 'k' || i FROM generate_series(1, 5) AS i;
INSERT INTO item SELECT i, 1 + i % 7, (ARRAY[NULL, '', 'NULL', E'two\nlines', 'a "quote", and ''more''', E'\\N \\. \\',
    '{1,"x"}', 'ünï ☃', E'tab\there\r\n'])[1 + i % 9], nullif(i % 4, 0) FROM generate_series(1, 20000) AS i;
INSERT INTO item SELECT 1, 2, 'again', NULL FROM generate_series(1, 500);
INSERT INTO item SELECT NULL FROM generate_series(1, 50);
ANALYZE;
"""
QUERIES = {
    "bag": "SELECT id, kind, note, qty FROM item WHERE qty IS DISTINCT FROM 3",
    "one_column": "SELECT note FROM item",
    "joined": "SELECT i.id, k.name, i.note FROM item AS i JOIN kind AS k ON k.id = i.kind",
}
WHOLE = {
    "recomputed": "SELECT DISTINCT ON (kind, note) kind, note, id FROM item ORDER BY kind, note, id",
    "united": "SELECT id, note FROM item UNION ALL SELECT id, name FROM kind",
}
STAGES = "SELECT relname FROM pg_class WHERE relname ~ '^stage_' ORDER BY 1"


@dataclasses.dataclass
class Watched:
    """What executors were asked for, and the rows of each child of the staging table that they made."""

    statements: list[list[str]] = dataclasses.field(default_factory=list)
    parts: list[list[int]] = dataclasses.field(default_factory=list)
    before: Callable[[], None] = lambda: None


@pytest.fixture
def watched(line: Line, engine: SparkEngine, monkeypatch: pytest.MonkeyPatch) -> Watched:
    return watch(line, engine, monkeypatch)


def watch(line: Line, engine: SparkEngine, monkeypatch: pytest.MonkeyPatch) -> Watched:
    """Every load of this line goes to the executors, as those of mirrors with large sources do."""
    line.plane.worker.refresher.loads_inside = False
    line.plane.worker.refresher.bulk_bytes = 0
    line.sql(SCHEMA)
    seen, whole = Watched(), engine.stage_by_executors

    def recorded(source: Handover, target: Handover, statements: list[str], columns: Any, stage: str) -> None:
        seen.before()
        seen.statements.append(list(statements))
        whole(source, target, statements, columns, stage)
        children = line.sql("SELECT inhrelid::regclass::text FROM pg_inherits WHERE inhparent = %s::regclass", stage)
        seen.parts.append([line.sql(f"SELECT count(*) FROM {child}")[0][0] for (child,) in children])

    monkeypatch.setattr(engine, "stage_by_executors", recorded)
    return seen


def test_load_is_read_and_written_side_by_side_and_exact(line: Line, watched: Watched) -> None:
    for name, query in QUERIES.items():
        line.create(name, query)
        line.check(name, "FULL")
    assert [len(s) for s in watched.statements] == [2, 2, 2]
    assert all(len(parts) == 2 and min(parts) > 1000 for parts in watched.parts)
    assert line.sql(STAGES) == []
    line.sql("UPDATE item SET note = 'x' WHERE id < 50; DELETE FROM item WHERE id = 77")
    line.tick()
    for name in QUERIES:
        line.check(name)


def test_progress_is_shown_while_executors_load(line: Line, watched: Watched) -> None:
    seen: list[Any] = []
    progress = "SELECT name, phase, rows_done, rows_estimated > 10000 FROM pgtrickle.load_progress()"
    watched.before = lambda: seen.append(line.sql(progress))
    line.create("bag", QUERIES["bag"])
    assert seen == [[("public.bag", "computing", 0, True)]]
    assert line.sql(progress) == []
    line.check("bag", "FULL")


# Late in each of two parts: who comes first waits for the other, so that it does not matter how busy the machine is.
MEET = """
CREATE FUNCTION meets(id int) RETURNS bool LANGUAGE plpgsql IMMUTABLE AS $$
DECLARE
    tries int := 0;
BEGIN
    IF id IN (80000, 190000) AND current_setting('application_name') = 'pgtrickle/load' THEN
        PERFORM pg_advisory_xact_lock_shared(4711);
        WHILE (SELECT count(*) FROM pg_locks WHERE locktype = 'advisory' AND objid = 4711) < 2 AND tries < 600 LOOP
            PERFORM pg_sleep(0.05);
            tries := tries + 1;
        END LOOP;
        PERFORM pg_sleep(0.5);
    END IF;
    RETURN true;
END $$;
"""


def test_executors_work_at_the_same_time(line: Line, watched: Watched) -> None:
    line.sql("INSERT INTO item SELECT i, i % 7, repeat('x', 50), i FROM generate_series(1, 200000) AS i")
    line.sql(MEET)
    together: dict[str, int] = {}
    done = threading.Event()

    def look() -> None:
        with psycopg.connect(line.dsn, autocommit=True) as conn:
            while not done.wait(0.005):
                for role, count in conn.execute(
                    "SELECT split_part(application_name, '#', 1), count(*) FROM pg_stat_activity "
                    "WHERE split_part(application_name, '#', 1) IN ('pgtrickle/load', 'pgtrickle/stage') "
                    "AND state = 'active' "
                    "AND datname = current_database() GROUP BY 1"
                ).fetchall():
                    together[role] = max(together.get(role, 0), count)

    watcher = threading.Thread(target=look)
    watcher.start()
    try:
        line.create("bag", QUERIES["bag"] + " AND meets(id)")
    finally:
        done.set()
        watcher.join()
    assert together == {"pgtrickle/load": 2, "pgtrickle/stage": 2}
    line.check("bag", "FULL")


def test_content_is_replaced_by_difference(line: Line, watched: Watched) -> None:
    line.create("bag", QUERIES["bag"])
    line.sql("DELETE FROM item WHERE id % 2 = 0; INSERT INTO item VALUES (5, 5, 'five', 5)")
    line.sql("SELECT pgtrickle.repair_stream_table('bag')")
    line.tick()
    line.check("bag", "REINITIALIZE")
    assert len(watched.parts) == 2


def test_empty_source_is_loaded(line: Line, watched: Watched) -> None:
    line.sql("TRUNCATE item")
    line.create("bag", QUERIES["bag"])
    line.check("bag", "FULL")
    assert line.rows("bag") == []
    assert len(watched.parts) == 1


@pytest.mark.parametrize("name", list(WHOLE))
def test_load_that_cannot_be_cut_is_one_part(line: Line, watched: Watched, name: str) -> None:
    line.create(name, WHOLE[name])
    line.check(name, "FULL")
    assert [len(s) for s in watched.statements] == [1]


def test_partitioned_source_is_one_part(line: Line, watched: Watched) -> None:
    line.sql("CREATE TABLE parted (id int, note text) PARTITION BY LIST (id)")
    line.sql("CREATE TABLE parted_1 PARTITION OF parted FOR VALUES IN (1)")
    line.sql("CREATE TABLE parted_rest PARTITION OF parted DEFAULT")
    line.sql("INSERT INTO parted SELECT id, note FROM item WHERE id IS NOT NULL")
    line.create("bag", "SELECT id, note FROM parted")
    line.check("bag", "FULL")
    assert [len(s) for s in watched.statements] == [1]


def test_small_loads_stay_with_the_driver(line: Line, watched: Watched) -> None:
    line.plane.worker.refresher.bulk_bytes = 1 << 30
    line.create("bag", QUERIES["bag"])
    line.check("bag", "FULL")
    assert watched.statements == []


def test_few_rows_that_one_session_computes_stay_with_the_driver(
    line: Line, watched: Watched, engine: SparkEngine, monkeypatch: pytest.MonkeyPatch
) -> None:
    """However large what they are computed from is: executors would only be one more thing to wait for."""
    line.sql("ANALYZE item")
    line.plane.worker.refresher.bulk_bytes = 4096
    with monkeypatch.context() as patched:
        patched.setattr(engine, "parallelism", lambda: pytest.fail("Spark was asked how much it does at once"))
        line.create("groups", "SELECT kind, count(*) AS n FROM item GROUP BY kind", mode="FULL")
        line.check("groups", "FULL")
    assert watched.statements == []
    line.create("rows", "SELECT i.*, now() IS NOT NULL AS yes FROM item AS i", mode="FULL")
    line.check("rows", "FULL")
    assert [len(s) for s in watched.statements] == [1]


def test_load_sees_one_snapshot_while_others_write(line: Line, watched: Watched) -> None:
    ((rows,),) = line.sql("SELECT count(*) FROM item WHERE qty IS DISTINCT FROM 3")
    stop = threading.Event()

    def write() -> None:
        with psycopg.connect(line.dsn, autocommit=True) as conn:
            number = 0
            while not stop.is_set():
                number += 1
                # Updates move rows to other pages, so a load without the snapshot would find some twice or never.
                conn.execute("UPDATE item SET note = note || 'u', qty = 1 WHERE id %% 40 = %s", (number % 40,))
                conn.execute("INSERT INTO item SELECT i, 1, 'new', 1 FROM generate_series(1, 200) AS i")
                conn.execute("DELETE FROM item WHERE id %% 41 = %s", (number % 41,))

    writer = threading.Thread(target=write)

    def start() -> None:
        writer.start()
        while line.sql("SELECT count(*) FROM item WHERE note = 'new'")[0][0] < 1000:
            time.sleep(0.01)

    watched.before = start
    try:
        line.create("bag", QUERIES["bag"])
    finally:
        stop.set()
        writer.join()
    assert line.sql("SELECT count(*) FROM bag") == [(rows,)]
    assert line.sql("SELECT count(*) FROM bag WHERE note = 'new'") == [(0,)]
    line.check("bag", "FULL")
    line.sql("SELECT pgtrickle.alter_stream_table('bag', refresh_mode => 'DIFFERENTIAL')")
    line.tick()
    line.check("bag")


@pytest.mark.parametrize(
    ("query", "message"),
    [
        ("SELECT id, 100 / (kind - 3) AS share FROM item", "division by zero [22012]"),
        ("SELECT id, (repeat('x', 5000) || (id - id))::int AS number FROM item", "invalid input syntax for type"),
        ("SELECT id, kind * 2000000000 AS large FROM item", "integer out of range [22003]"),
    ],
)
def test_query_that_fails_says_the_same_as_by_the_driver(
    line: Line, watched: Watched, monkeypatch: pytest.MonkeyPatch, query: str, message: str
) -> None:
    # The expression that failed is looked for afterwards, whoever evaluated the query: tests/postgres/test_failures.py.
    monkeypatch.setattr(worker, "find_culprit", lambda *_: Culprit())
    errors: list[PgtrickleError | None] = []
    states = []
    for name, limit in (("by_executors", 0), ("by_driver", sys.maxsize)):
        line.plane.worker.refresher.bulk_bytes = limit
        errors += [o.error for o in line.create(name, query) if o.table.name == name]
        states += line.sql(
            "SELECT status, replace(last_error_message, pgt_name, 'NAME') FROM pgtrickle.pgt_stream_tables "
            "WHERE pgt_name = %s",
            name,
        )
    assert len(watched.statements) == 1
    ours, drivers = errors
    assert ours is not None
    assert drivers is not None
    assert message in ours.message
    assert (type(ours), ours.message, ours.hint) == (type(drivers), drivers.message, drivers.hint)
    assert states[0] == states[1]
    assert line.sql("SELECT count(*) FROM by_executors") == [(0,)]
    line.plane.tidy()
    assert line.sql(STAGES) == []


def test_ddl_that_waits_for_the_load_goes_first(line: Line, watched: Watched) -> None:
    def alter() -> None:
        with psycopg.connect(line.dsn, autocommit=True) as conn:
            conn.execute("ALTER TABLE item ADD COLUMN more int")

    waiting = threading.Thread(target=alter)

    def start() -> None:
        waiting.start()
        while line.sql("SELECT count(*) FROM pg_locks WHERE NOT granted") == [(0,)]:
            time.sleep(0.01)

    watched.before = start
    (outcome,) = line.create("bag", QUERIES["bag"])
    assert isinstance(outcome.error, TransientError)
    assert "55P03" in outcome.error.message
    waiting.join(120)
    assert not waiting.is_alive()
    watched.before = lambda: None
    line.tick()
    line.check("bag", "FULL")


# -- what breaks off --------------------------------------------------------------------------------------------------


def broken(*_: object) -> tuple[int, int]:
    raise EngineLostError("gone")


def test_stage_of_a_load_that_broke_off_is_swept_and_no_other(
    line: Line, watched: Watched, monkeypatch: pytest.MonkeyPatch
) -> None:
    with monkeypatch.context() as patched:
        patched.setattr(refresh, "write_load", broken)
        (outcome,) = line.create("bag", QUERIES["bag"])
    assert isinstance(outcome.error, EngineLostError)
    assert len(line.sql(STAGES)) == 3
    with connect(line.dsn, role="test") as running, connect(line.dsn, role="test", autocommit=True) as conn:
        claim_stage(running, outcome.table.pgt_id)
        assert sweep_stages(conn) == []
        running.rollback()
    assert len(line.sql(STAGES)) == 3
    line.plane.tidy()
    assert line.sql(STAGES) == []
    line.tick()
    line.check("bag", "FULL")


def test_table_is_dropped_with_what_its_load_left(
    line: Line, watched: Watched, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(refresh, "write_load", broken)
    line.create("bag", QUERIES["bag"])
    assert len(line.sql(STAGES)) == 3
    line.sql("SELECT pgtrickle.drop_stream_table('bag')")
    assert line.sql(STAGES) == []


@pytest.fixture(scope="module")
def retrying() -> Iterator[SparkEngine]:
    """A Spark that runs a failed task again, as clusters do and the local one by default does not."""
    server = SparkServer.start(Settings(spark_master="local[2,4]", spark_driver_memory_mb=1024))
    server.wait_ready(120)
    engine = SparkEngine(lambda: server.url)
    yield engine
    engine.close()
    server.stop()


def failing_once(marker: Path, *, after_writing: bool) -> type[bulk.Writer]:
    """Classes made here travel to the executors by value."""

    class FailingWriter(bulk.Writer):
        def __call__(self, batches: Iterator[Any]) -> str:
            if after_writing:
                table = super().__call__(batches)
                self.fail()
                return table

            def cut_short() -> Iterator[Any]:
                for number, batch in enumerate(batches):
                    yield batch
                    if number == 0:
                        self.fail()

            return super().__call__(cut_short())

        def fail(self) -> None:
            try:
                marker.touch(exist_ok=False)
            except FileExistsError:
                return
            raise RuntimeError("this executor has had enough")

    return FailingWriter


@pytest.mark.parametrize("after_writing", [False, True])
def test_task_that_runs_twice_is_counted_once(
    installed: Database, retrying: SparkEngine, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, after_writing: bool
) -> None:
    line = Line(installed.dsn, retrying)
    try:
        seen = watch(line, retrying, monkeypatch)
        marker = tmp_path / "failed"
        monkeypatch.setattr(bulk, "Writer", failing_once(marker, after_writing=after_writing))
        line.create("bag", QUERIES["bag"])
        assert marker.exists()
        line.check("bag", "FULL")
        assert [len(parts) for parts in seen.parts] == [2]
        # The first attempt had committed its rows before the task failed: nobody counts them, and they are swept.
        assert len(line.sql(STAGES)) == (1 if after_writing else 0)
        line.plane.tidy()
        assert line.sql(STAGES) == []
    finally:
        line.close()


def test_task_that_fails_for_good_is_a_lost_engine(
    line: Line, watched: Watched, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    with monkeypatch.context() as patched:
        patched.setattr(bulk, "Writer", failing_once(tmp_path / "failed", after_writing=True))
        (outcome,) = line.create("bag", QUERIES["bag"])
    assert isinstance(outcome.error, EngineLostError)
    assert line.sql("SELECT status FROM pgtrickle.pgt_stream_tables") == [("INITIALIZING",)]
    line.tick()
    line.check("bag", "FULL")
    line.plane.tidy()
    assert line.sql(STAGES) == []


# -- executors that cannot --------------------------------------------------------------------------------------------


@pytest.mark.parametrize("wrong", ["address", "password", "server"])
def test_load_goes_by_the_driver_when_executors_do_not_reach_the_database(
    line: Line,
    watched: Watched,
    spark_server: SparkServer,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
    wrong: str,
) -> None:
    secret = "do-not-print-this"

    def elsewhere(conn: Any, *, snapshot: bool = True) -> Handover:
        session = hand_over(conn, snapshot=snapshot)
        changes: dict[str, dict[str, Any]] = {
            "address": {"dsn": f"{session.dsn} host=127.0.0.1 port=1 password={secret}"},
            "password": {"dsn": f"{session.dsn} user=nobody_at_all password={secret}"},
            "server": {"server": "another"},
        }
        return dataclasses.replace(session, **changes[wrong])

    monkeypatch.setattr(bulkload, "hand_over", elsewhere)
    with caplog.at_level(logging.DEBUG):
        (outcome,) = line.create("bag", QUERIES["bag"])
    assert outcome.error is None
    line.check("bag", "FULL")
    assert len(watched.statements) == 1
    assert watched.parts == []
    assert "Executors cannot load; the driver does" in caplog.text
    assert secret not in caplog.text
    assert secret not in spark_server.log_tail(10_000_000)


def test_session_is_handed_over_with_its_settings_and_without_showing_the_password(installed: Database) -> None:
    from pgtrickle.db.handover import take_over

    with connect(installed.dsn, role="test", autocommit=True) as conn:
        conn.execute("SET TimeZone = 'Asia/Kathmandu'")
        conn.execute("SET work_mem = '7MB'")
        conn.execute("CREATE TABLE public.t AS SELECT 1 AS a")
        conn.execute("BEGIN ISOLATION LEVEL REPEATABLE READ READ ONLY")
        session = hand_over(conn)
        assert "password" not in repr(session)
        installed.sql("INSERT INTO t VALUES (2)")
        with take_over(Handover.from_json(session.to_json()), role="load", in_snapshot=True) as other:
            row = other.execute(
                "SELECT current_setting('TimeZone'), current_setting('work_mem'), current_user, "
                "(SELECT count(*) FROM public.t), current_setting('application_name'), current_setting('search_path')"
            ).fetchone()
        assert row == ("Asia/Kathmandu", "7MB", "app", 1, "pgtrickle/load", "pg_catalog, pg_temp")


def test_error_of_the_query_is_one_of_its_author(line: Line, watched: Watched) -> None:
    (outcome,) = line.create("bag", "SELECT 1 / (id - id) AS x FROM item WHERE id IS NOT NULL")
    assert type(outcome.error) is DefinitionError
    assert line.sql("SELECT status FROM pgtrickle.pgt_stream_tables") == [("ERROR",)]
