"""Refreshing while everything else happens: another refresher, DDL, writers, trimming, odd settings of the database."""

from __future__ import annotations

import random
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from typing import Any

import psycopg
import pytest

from pgtrickle.capture.trim import index_long_buffers, long_buffers
from pgtrickle.db.pooled import PooledConnection
from pgtrickle.define import prepare
from pgtrickle.define.compile import compile_table
from pgtrickle.dispatch.lease import _table_result
from pgtrickle.errors import FencedError, LostRaceError, TransientError
from pgtrickle.maintain.verify import verify_tables
from pgtrickle.model.identifiers import buffer_name
from pgtrickle.model.reasons import Reason, ReasonCode
from pgtrickle.pipeline.engine.spark import SparkEngine
from pgtrickle.process.local_control_plane import LocalControlPlane
from pgtrickle.refresh.job import Outcome
from pgtrickle.refresh.wave import WaveRefresher
from pgtrickle.settings import Sources
from tests.conftest import Database
from tests.line import Line

SCHEMA = """
CREATE TABLE kind (id int PRIMARY KEY, name text, spare text);
CREATE TABLE item (id int PRIMARY KEY, kind int, qty int, note text);
INSERT INTO kind SELECT i, 'k' || i FROM generate_series(1, 5) AS i;
INSERT INTO item SELECT i, 1 + i % 5, nullif(i % 4, 0), 'n' || i FROM generate_series(1, 40) AS i;
"""
QUERIES = {
    "bag": "SELECT kind, qty FROM item",
    "totals": "SELECT kind, count(*) AS n, sum(qty) AS q, max(qty) AS hi FROM item GROUP BY kind",
    "joined": "SELECT i.id, k.name, i.qty FROM item AS i JOIN kind AS k ON k.id = i.kind",
    "names": "SELECT id, name FROM kind",
}
MakeLine = Callable[..., Line]


def create_all(line: Line, queries: dict[str, str] = QUERIES) -> None:
    for name, query in queries.items():
        line.sql("SELECT pgtrickle.create_stream_table(%s, %s, 'calculated', 'DIFFERENTIAL')", name, query)
    turn(line)


def turn(line: Line, *, include_unchanged: bool = False, broken: Sequence[str] = ()) -> list[Outcome]:
    """`broken`: stream tables that may fail again."""
    outcomes = line.tick(include_unchanged=include_unchanged)
    assert [o.error for o in outcomes if o.error and o.table.name not in broken] == []
    return outcomes


def equal(line: Line, names: Sequence[str] = tuple(QUERIES)) -> None:
    for name in names:
        line.equal(name)


def actions(outcomes: Sequence[Outcome]) -> dict[str, str]:
    return {o.table.name: o.action for o in outcomes}


def status(line: Line, name: str) -> tuple[str, str]:
    rows = line.sql(
        "SELECT status, coalesce(last_error_message, '') FROM pgtrickle.pgt_stream_tables WHERE pgt_name = %s", name
    )
    return rows[0][0], rows[0][1]


def pending_rows(line: Line, table: str) -> int:
    relid = int(line.sql("SELECT %s::regclass::oid", table)[0][0])
    return int(line.sql(f"SELECT count(*) FROM {buffer_name(relid)}")[0][0])


@pytest.fixture
def shop(line: Line) -> Line:
    line.sql(SCHEMA)
    create_all(line)
    return line


def before_apply(line: Line, monkeypatch: pytest.MonkeyPatch, act: Callable[[], object]) -> None:
    """`act` happens once, when everything has been read and nothing been written yet."""
    refresher: WaveRefresher = line.plane.worker.refresher
    finish = refresher._finish_all
    acted: list[object] = []

    def finish_after(*args: Any) -> list[Outcome]:
        if not acted:
            acted.append(act())
        return finish(*args)

    monkeypatch.setattr(refresher, "_finish_all", finish_after)


@contextmanager
def writing(
    dsn: str, write: Callable[[psycopg.Connection[Any], random.Random], None], threads: int = 1
) -> Iterator[None]:
    """Transactions of `write` from some threads, as fast as they go; every fifth is rolled back."""
    stop = threading.Event()
    errors: list[BaseException] = []

    def work(seed: int) -> None:
        rng = random.Random(seed)
        try:
            with psycopg.connect(dsn) as connection:
                while not stop.is_set():
                    try:
                        write(connection, rng)
                        connection.rollback() if rng.random() < 0.2 else connection.commit()
                    except psycopg.errors.DeadlockDetected:
                        connection.rollback()
                    stop.wait(rng.uniform(0, 0.02))
        except BaseException as error:  # noqa: BLE001 - shown by the test
            errors.append(error)

    workers = [threading.Thread(target=work, args=(seed,), daemon=True) for seed in range(threads)]
    for worker in workers:
        worker.start()
    try:
        yield
    finally:
        stop.set()
        for worker in workers:
            worker.join(120)
    assert errors == []


def shuffle_items(connection: psycopg.Connection[Any], rng: random.Random) -> None:
    for _ in range(rng.randint(1, 4)):
        match rng.randint(0, 4):
            case 0 | 1:
                connection.execute(
                    "INSERT INTO item SELECT %s, %s, %s, 'w' ON CONFLICT (id) DO UPDATE SET qty = excluded.qty",
                    (rng.randint(1, 3000), rng.randint(1, 6), rng.choice([None, rng.randint(0, 50)])),
                )
            case 2:
                connection.execute("DELETE FROM item WHERE id = %s", (rng.randint(1, 3000),))
            case 3:
                first = rng.randint(1, 3000)
                connection.execute(
                    "UPDATE item SET kind = 1 + (kind + 1) %% 5, qty = qty + 1 WHERE id BETWEEN %s AND %s",
                    (first, first + 30),
                )
            case _ if rng.random() < 0.1:
                # Seldom, and not ever longer: each change of a name is one of all its items, and a slow machine has
                # more of them to a turn, which makes it slower.
                more, of = rng.choice("+-*/"), rng.randint(1, 5)
                connection.execute("UPDATE kind SET name = right(name || %s, 12) WHERE id = %s", (more, of))


# -- two refreshers ---------------------------------------------------------------------------------------------------


def test_of_two_refreshers_that_have_read_the_same_window_one_commits(
    shop: Line, installed: Database, make_line: MakeLine, monkeypatch: pytest.MonkeyPatch
) -> None:
    other = make_line(installed)
    other.tick()  # compiles
    shop.sql("INSERT INTO item VALUES (100, 2, 9); DELETE FROM item WHERE id = 4")
    before = {name: shop.refreshes(name) for name in QUERIES}
    both_have_read = threading.Barrier(2, timeout=120)
    results: list[list[Outcome]] = []
    for line in (shop, other):
        before_apply(line, monkeypatch, both_have_read.wait)
    threads = [threading.Thread(target=lambda which=line: results.append(which.tick())) for line in (shop, other)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(120)
    for name in ("bag", "totals", "joined"):
        pair = [o for outcomes in results for o in outcomes if o.table.name == name]
        assert [type(o.error) for o in pair if o.error is not None] == [FencedError], pair
        assert [o.action for o in pair] == ["DIFFERENTIAL", "DIFFERENTIAL"]
        assert shop.refreshes(name) == before[name] + 1
        shop.check(name)
    for line in (shop, other):
        assert set(actions(turn(line, include_unchanged=True)).values()) == {"NO_DATA"}
    equal(shop)
    assert {name: status(shop, name) for name in QUERIES} == dict.fromkeys(QUERIES, ("ACTIVE", ""))


def test_chain_that_loses_against_another_pipeline_is_tried_again_and_not_counted(
    shop: Line, installed: Database, make_line: MakeLine, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A chain is applied through the snapshot that it has read: whoever committed since then makes it fail by 40001."""
    queries = {
        "one": "SELECT id, kind, qty * 2 AS q FROM item WHERE qty IS NOT NULL",
        "two": "SELECT kind, sum(q) AS q, count(*) AS n FROM one GROUP BY kind",
    }
    create_all(shop, queries)
    other = make_line(installed)
    turn(other)  # compiles
    shop.sql("INSERT INTO item VALUES (100, 2, 9)")
    compute = WaveRefresher._compute
    beaten: list[list[Outcome]] = []

    def compute_after(self: WaveRefresher, *args: Any, **kwargs: Any) -> Any:
        if not beaten and self.writer is shop.plane.worker.writer and self.reader is self.writer:
            beaten.append(other.tick())
        return compute(self, *args, **kwargs)

    monkeypatch.setattr(WaveRefresher, "_compute", compute_after)
    outcomes = [o for o in shop.tick() if o.table.name in queries]
    assert beaten
    assert {type(o.error) for o in outcomes if o.error is not None} == {LostRaceError}
    assert {_table_result(o).branch for o in outcomes if o.error is not None} == {"retry"}
    state = "SELECT DISTINCT status, consecutive_errors, last_error_message FROM pgtrickle.pgt_stream_tables"
    assert shop.sql(state) == [("ACTIVE", 0, None)]
    assert shop.sql("SELECT DISTINCT status FROM pgtrickle.pgt_refresh_history") == [("COMPLETED",)]
    turn(shop)
    equal(shop, list(queries))


def test_loser_of_a_first_load_does_not_load_twice(
    shop: Line, installed: Database, make_line: MakeLine, monkeypatch: pytest.MonkeyPatch
) -> None:
    other = make_line(installed)
    other.tick()
    shop.sql("SELECT pgtrickle.create_stream_table('late', 'SELECT qty, note FROM item', 'calculated', 'DIFFERENTIAL')")
    before_apply(shop, monkeypatch, other.tick)
    errors = [type(o.error) for o in shop.tick() if o.table.name == "late"]
    assert errors == [FencedError]
    assert shop.refreshes("late") == 1
    equal(shop, ["late"])


def test_two_workers_on_one_database_stay_exact_under_load(
    shop: Line, installed: Database, engine: SparkEngine
) -> None:
    """Each believes that it is alone, as after a partition of the network."""
    stop = threading.Event()

    def work() -> None:
        plane = LocalControlPlane("other", installed.dsn, engine, Sources())
        while not stop.is_set():
            plane.tick()
        plane.close()

    loops = [threading.Thread(target=work, daemon=True) for _ in range(2)]
    for loop in loops:
        loop.start()
    try:
        with writing(installed.dsn, shuffle_items, threads=2):
            time.sleep(10)
        results = verify_tables(installed.dsn, None, timeout_seconds=30)
    finally:
        stop.set()
        for loop in loops:
            loop.join(120)
    assert not any(loop.is_alive() for loop in loops)
    assert [r for r in results if not r.ok] == []
    turn(shop)
    equal(shop)
    history = dict(shop.sql("SELECT status, count(*) FROM pgtrickle.pgt_refresh_history GROUP BY status"))
    assert set(history) == {"COMPLETED"}
    assert history["COMPLETED"] > 12
    overlapping = shop.sql(
        "SELECT count(*) FROM (SELECT data_timestamp, lag(data_timestamp) OVER (PARTITION BY pgt_id "
        "ORDER BY refresh_id) AS previous FROM pgtrickle.pgt_refresh_history WHERE status = 'COMPLETED') AS h "
        "WHERE data_timestamp < previous"
    )
    assert overlapping == [(0,)]


# -- the stream table itself is changed -------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "query",
    [
        "SELECT kind, count(*) AS n, sum(qty) AS q, max(qty) AS hi FROM item WHERE qty > 1 GROUP BY kind",
        "SELECT note, qty FROM item",
    ],
    ids=["same columns", "other columns"],
)
def test_alter_between_read_and_apply_fences_the_refresh(
    shop: Line, monkeypatch: pytest.MonkeyPatch, query: str
) -> None:
    shop.sql("INSERT INTO item VALUES (100, 2, 9, 'x')")
    alter = "SELECT pgtrickle.alter_stream_table('totals', query => %s)"
    before_apply(shop, monkeypatch, lambda: shop.sql(alter, query))
    errors = {o.table.name: type(o.error) for o in shop.tick() if o.error}
    assert errors == {"totals": FencedError}
    turn(shop)
    equal(shop)
    shop.sql("INSERT INTO item VALUES (101, 2, 10, 'y')")
    turn(shop)
    shop.check("totals")


def test_drop_between_read_and_apply_leaves_nothing(shop: Line, monkeypatch: pytest.MonkeyPatch) -> None:
    shop.sql("INSERT INTO item VALUES (100, 2, 9)")
    before_apply(shop, monkeypatch, lambda: shop.sql("SELECT pgtrickle.drop_stream_table('totals')"))
    errors = {o.table.name: type(o.error) for o in shop.tick() if o.error}
    assert errors == {"totals": FencedError}
    turn(shop)
    equal(shop, ["bag", "joined", "names"])
    assert shop.sql("SELECT to_regclass('totals')") == [(None,)]
    assert shop.sql("SELECT count(*) FROM pgtrickle.pgt_stream_tables") == [(3,)]


def test_drop_during_apply_waits_for_it(shop: Line, installed: Database, monkeypatch: pytest.MonkeyPatch) -> None:
    shop.sql("INSERT INTO item VALUES (100, 2, 9)")
    refresher = shop.plane.worker.refresher
    apply = refresher._apply_all
    dropped = threading.Thread(
        target=lambda: installed.sql("SELECT pgtrickle.drop_stream_table('totals')"), daemon=True
    )

    def apply_while_dropping(jobs: Any, stages: Any) -> dict[int, tuple[int, int]]:
        if any(job.planned.table.name == "totals" for job in jobs):
            dropped.start()
            time.sleep(0.5)
            assert dropped.is_alive()
        return apply(jobs, stages)

    monkeypatch.setattr(refresher, "_apply_all", apply_while_dropping)
    turn(shop)
    dropped.join(120)
    assert not dropped.is_alive()
    turn(shop)
    assert shop.sql("SELECT to_regclass('totals')") == [(None,)]
    equal(shop, ["bag", "joined", "names"])


def test_storage_dropped_by_hand_is_an_error_that_repair_mends(shop: Line) -> None:
    shop.sql("DROP TABLE totals; INSERT INTO item VALUES (100, 2, 9)")
    shop.tick()
    now, message = status(shop, "totals")
    assert now == "ERROR"
    assert "totals" in message
    assert "was dropped" in message
    equal(shop, ["bag", "joined", "names"])
    shop.sql("SELECT pgtrickle.repair_stream_table('totals')")
    turn(shop)
    equal(shop)
    shop.sql("DELETE FROM item WHERE id = 100")
    turn(shop)
    shop.check("totals")


# -- the sources are changed ------------------------------------------------------------------------------------------


def test_truncate_of_a_source_makes_one_full_refresh(shop: Line) -> None:
    shop.sql("INSERT INTO item VALUES (99, 1, 1); TRUNCATE item; INSERT INTO item VALUES (100, 2, 9)")
    turn(shop)
    for name in ("bag", "totals", "joined"):
        shop.check(name, "FULL")
        assert shop.reason(name) == Reason.of(ReasonCode.SOURCE_TRUNCATED)
    shop.sql("INSERT INTO item VALUES (101, 2, 10)")
    turn(shop)
    for name in ("bag", "totals", "joined"):
        shop.check(name)


def test_truncate_that_is_rolled_back_is_not_noticed(shop: Line, installed: Database) -> None:
    writer = installed.connect(autocommit=False)
    writer.execute("TRUNCATE item CASCADE")
    writer.rollback()
    assert set(actions(turn(shop, include_unchanged=True)).values()) == {"NO_DATA"}
    equal(shop)


def test_partitions_come_and_go(line: Line) -> None:
    line.sql(
        "CREATE TABLE ev (at int, kind int, qty int) PARTITION BY RANGE (at); "
        "CREATE TABLE ev_1 PARTITION OF ev FOR VALUES FROM (0) TO (100); "
        "INSERT INTO ev SELECT i, i % 3, i % 7 FROM generate_series(0, 99) AS i"
    )
    queries = {
        "rows_of": "SELECT at, qty FROM ev WHERE qty > 2",
        "sums_of": "SELECT kind, sum(qty) AS q, max(at) AS last FROM ev GROUP BY kind",
    }
    create_all(line, queries)
    ddl = (
        "CREATE TABLE ev_2 PARTITION OF ev FOR VALUES FROM (100) TO (200); INSERT INTO ev_2 VALUES (150, 1, 5)",
        "CREATE TABLE ev_3 (at int, kind int, qty int); INSERT INTO ev_3 VALUES (250, 2, 6), (250, 2, 6); "
        "ALTER TABLE ev ATTACH PARTITION ev_3 FOR VALUES FROM (200) TO (300)",
        "ALTER TABLE ev DETACH PARTITION ev_1",
        "INSERT INTO ev_1 VALUES (10, 0, 6)",
        "ALTER TABLE ev ATTACH PARTITION ev_1 FOR VALUES FROM (0) TO (100)",
        "DROP TABLE ev_2",
    )
    for statement in ddl:
        line.sql(statement)
        turn(line, include_unchanged=True)
        equal(line, list(queries))
        line.sql("UPDATE ev SET qty = qty + 1 WHERE at % 10 = 0; UPDATE ev SET kind = 4 WHERE qty > 6")
        if "ev_1" in statement:
            line.sql("INSERT INTO ev VALUES (260, 1, 8); UPDATE ev_3 SET kind = 4; DELETE FROM ev_3 WHERE qty = 7")
        turn(line)
        equal(line, list(queries))
    line.sql("UPDATE ev SET qty = 3 WHERE at > 200")
    turn(line)
    for name in queries:
        line.check(name)


@pytest.mark.parametrize("enabled_again", [True, False])
def test_writes_past_disabled_capture_are_found(shop: Line, enabled_again: bool) -> None:
    shop.sql(
        "ALTER TABLE item DISABLE TRIGGER USER; INSERT INTO item VALUES (100, 2, 9); DELETE FROM item WHERE id = 3"
    )
    if enabled_again:
        shop.sql("ALTER TABLE item ENABLE TRIGGER USER")
    turn(shop, include_unchanged=True)
    for name in ("bag", "totals", "joined"):
        shop.check(name, "REINITIALIZE")
        assert shop.reason(name) == Reason.of(ReasonCode.SOURCE_CHANGED)
    assert shop.refreshes("names") == 1
    shop.sql("INSERT INTO item VALUES (101, 2, 10)")
    turn(shop)
    for name in ("bag", "totals", "joined"):
        shop.check(name)


def test_dropped_buffer_is_made_again_and_its_readers_are_loaded_anew(shop: Line) -> None:
    relid = shop.sql("SELECT 'item'::regclass::oid::int8")[0][0]
    shop.sql(f"INSERT INTO item VALUES (100, 2, 9); DROP TABLE {buffer_name(relid)}")
    shop.sql("UPDATE kind SET name = 'z' WHERE id = 1")
    turn(shop, include_unchanged=True)
    shop.check("names")
    for name in ("bag", "totals", "joined"):
        shop.check(name, "REINITIALIZE")
    shop.sql("INSERT INTO item VALUES (101, 2, 10)")
    turn(shop)
    for name in ("bag", "totals", "joined"):
        shop.check(name)


def test_column_that_nobody_uses_comes_and_goes_unnoticed(shop: Line) -> None:
    before = {name: shop.refreshes(name) for name in QUERIES}
    shop.sql("ALTER TABLE item ADD COLUMN extra int DEFAULT 5; ALTER TABLE kind DROP COLUMN spare")
    assert set(actions(turn(shop, include_unchanged=True)).values()) == {"NO_DATA"}
    shop.sql("UPDATE item SET extra = 6; ALTER TABLE item DROP COLUMN extra; ALTER TABLE item DROP COLUMN note")
    turn(shop)
    shop.sql("INSERT INTO item VALUES (100, 2, 9); UPDATE kind SET name = 'z' WHERE id = 1")
    turn(shop)
    for name in QUERIES:
        shop.check(name)
        assert shop.refreshes(name) - before[name] <= 2


BROKEN = ("bag", "totals", "joined")  # what reads the dropped column or table


def test_dropped_column_stops_its_readers_and_nobody_else(shop: Line) -> None:
    shop.sql("SELECT pgtrickle.create_stream_table('ids', 'SELECT id, kind FROM item', 'calculated', 'DIFFERENTIAL')")
    turn(shop)
    shop.sql("ALTER TABLE item DROP COLUMN qty; INSERT INTO item VALUES (100, 2)")
    for _ in range(2):
        shop.tick()
    for name in BROKEN:
        now, message = status(shop, name)
        assert now == "ERROR"
        assert "qty" in message or "column" in message, message
    shop.sql("INSERT INTO item VALUES (101, 3); UPDATE kind SET name = 'z' WHERE id = 1")
    turn(shop, broken=BROKEN)
    equal(shop, ["ids", "names"])
    shop.check("ids")
    shop.sql("SELECT pgtrickle.alter_stream_table('bag', query => 'SELECT kind, id AS qty FROM item')")
    turn(shop, broken=BROKEN[1:])
    equal(shop, ["bag"])


def test_dropped_source_stops_its_readers_and_nobody_else(shop: Line) -> None:
    shop.sql("DROP TABLE item CASCADE")
    for _ in range(2):
        shop.tick(include_unchanged=True)
    for name in BROKEN:
        now, message = status(shop, name)
        assert now == "ERROR"
        assert "was dropped" in message, message
    shop.sql("UPDATE kind SET name = 'z' WHERE id = 1")
    turn(shop, broken=BROKEN)
    shop.check("names")
    shop.plane.tidy()
    turn(shop, broken=BROKEN)


def test_retyped_column_is_loaded_anew(shop: Line) -> None:
    shop.sql("ALTER TABLE kind ALTER COLUMN name TYPE varchar(50); UPDATE kind SET name = 'q' WHERE id = 2")
    for _ in range(2):
        shop.tick()
    for name in ("joined", "names"):
        now, message = status(shop, name)
        assert now == "ACTIVE" or "type" in message, message
        if now == "ACTIVE":
            shop.equal(name)
    equal(shop, ["bag", "totals"])


# -- stream tables over stream tables ---------------------------------------------------------------------------------


def test_chain_and_diamond_follow_within_one_turn(shop: Line) -> None:
    queries = {
        "one": "SELECT id, kind, qty * 2 AS q FROM item WHERE qty IS NOT NULL",
        "two": "SELECT kind, sum(q) AS q, count(*) AS n FROM one GROUP BY kind",
        "three": "SELECT k.name, t.q FROM two AS t JOIN kind AS k ON k.id = t.kind WHERE t.q > 5",
        "left_side": "SELECT kind, max(q) AS hi FROM one GROUP BY kind",
        "diamond": "SELECT t.kind, t.q, l.hi FROM two AS t JOIN left_side AS l ON l.kind = t.kind",
    }
    create_all(shop, queries)
    changes = (
        "INSERT INTO item VALUES (100, 2, 9), (101, 3, 70)",
        "UPDATE item SET qty = NULL WHERE id % 3 = 0; UPDATE kind SET name = 'z' WHERE id = 2",
        "DELETE FROM item WHERE kind = 3; DELETE FROM item WHERE id = 100",
        "UPDATE item SET kind = kind % 5 + 1",
    )
    for change in changes:
        shop.sql(change)
        turn(shop)
        for name in queries:
            shop.check(name)
        assert set(actions(turn(shop, include_unchanged=True)).values()) == {"NO_DATA"}
    shop.sql("TRUNCATE item; INSERT INTO item VALUES (1, 1, 1), (2, 2, NULL)")
    turn(shop)
    shop.check("one", "FULL")
    for name in ("two", "three", "left_side", "diamond"):
        shop.check(name)  # what they read changed by a difference, not by everything


# -- loads, trimming, readers that stand still ------------------------------------------------------------------------


def test_initial_load_under_writes_has_no_gap_and_no_duplicate(
    line: Line, installed: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    line.sql(
        "CREATE TABLE kind (id int PRIMARY KEY, name text); "
        "INSERT INTO kind SELECT i, 'k' || i FROM generate_series(1, 5) AS i; "
        "CREATE TABLE item (id int PRIMARY KEY, kind int, qty int, note text); "
        "INSERT INTO item SELECT i, 1 + i % 5, i % 50, 'n' FROM generate_series(1, 200000) AS i"
    )
    with writing(installed.dsn, shuffle_items, threads=2):
        time.sleep(0.3)
        create_all(line, {"bag": QUERIES["bag"], "totals": QUERIES["totals"]})
        for name in ("bag", "totals"):
            assert line.last(name)[:2] == ("FULL", "COMPLETED")
            line.equal(name)
        before_apply(line, monkeypatch, lambda: time.sleep(0.5))
        turn(line)
        equal(line, ["bag", "totals"])
    turn(line)
    for name in ("bag", "totals"):
        line.check(name)
    assert line.sql("SELECT (SELECT count(*) FROM bag) - (SELECT count(*) FROM item)") == [(0,)]


def test_long_writer_on_a_new_source_delays_its_own_reader_only(shop: Line, installed: Database) -> None:
    """Capture has to lock writers out for an instant; until it can, the table waits, with a reason, and nobody else."""
    shop.sql("CREATE TABLE fresh (id int, qty int); INSERT INTO fresh VALUES (1, 1)")
    writer = installed.connect(autocommit=False)
    writer.execute("INSERT INTO fresh VALUES (2, 2)")
    shop.sql("SELECT pgtrickle.create_stream_table('late', 'SELECT id, qty FROM fresh', 'calculated', 'DIFFERENTIAL')")
    for number in range(5):
        shop.sql(f"INSERT INTO item VALUES ({100 + number}, 2, {number})")
        # It does not wait for the writer, whose transaction stays open.
        assert {o.table.name: type(o.error) for o in shop.tick() if o.error} == {"late": TransientError}
        shop.check("totals")
    now, message = status(shop, "late")
    assert now == "INITIALIZING"
    assert "no lock" in message
    writer.execute("INSERT INTO fresh VALUES (3, 3)")
    writer.commit()
    turn(shop)
    shop.check("late", "FULL")
    assert status(shop, "late") == ("ACTIVE", "")


def test_trimming_never_takes_what_a_reader_needs(shop: Line, installed: Database) -> None:
    slow = installed.connect(autocommit=False)
    slow.execute("INSERT INTO item VALUES (5000, 1, 1)")
    with writing(installed.dsn, shuffle_items, threads=2):
        for number in range(15):
            turn(shop)
            shop.plane.tidy()
            equal(shop, ["totals", "joined"])
            if number == 10:
                slow.commit()
    turn(shop)
    equal(shop)
    turn(shop)
    shop.sql("UPDATE item SET qty = 1 WHERE id = 5000; UPDATE kind SET name = 'last' WHERE id = 1")
    turn(shop)  # a cut after the last writer, for every reader
    shop.plane.tidy()
    assert pending_rows(shop, "item") == pending_rows(shop, "kind") == 0
    equal(shop)
    for name in QUERIES:
        assert shop.last(name)[0] in ("DIFFERENTIAL", "NO_DATA")  # nothing, where the last changes did not matter


def test_reader_that_was_suspended_for_long_goes_on_where_it_stood(shop: Line) -> None:
    shop.sql("SELECT pgtrickle.alter_stream_table('totals', status => 'SUSPENDED')")
    for number in range(10):
        shop.sql(f"INSERT INTO item VALUES ({100 + number}, 2, {number}); DELETE FROM item WHERE id = {1 + number}")
        turn(shop)
        shop.plane.tidy()
        equal(shop, ["bag", "joined"])
    assert pending_rows(shop, "item") == 20
    shop.sql("SELECT pgtrickle.resume_stream_table('totals')")
    turn(shop)
    shop.check("totals")
    turn(shop)
    shop.plane.tidy()
    assert pending_rows(shop, "item") == 0


def test_buffer_that_a_slow_reader_makes_long_gets_an_index(shop: Line, monkeypatch: pytest.MonkeyPatch) -> None:
    for function in (long_buffers, index_long_buffers):
        monkeypatch.setattr(f"pgtrickle.maintain.tidy.{function.__name__}", partial(function, long_bytes=100_000))
    shop.sql("SELECT pgtrickle.alter_stream_table('totals', status => 'SUSPENDED')")
    shop.sql("INSERT INTO item SELECT i, 2, i FROM generate_series(1000, 9000) AS i")
    turn(shop)
    shop.plane.tidy()
    shop.plane.finish_tidying(30)
    relid = shop.sql("SELECT 'item'::regclass::oid::int8")[0][0]
    indexed = shop.sql(
        "SELECT i.indisvalid FROM pg_index AS i WHERE i.indrelid = %s::regclass", f"pgtrickle_changes.changes_{relid}"
    )
    assert indexed == [(True,)]
    shop.sql("SELECT pgtrickle.resume_stream_table('totals'); DELETE FROM item WHERE id = 5")
    turn(shop)
    for name in ("bag", "totals", "joined"):
        shop.check(name)


# -- foreign frontiers ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("change", "code"),
    [
        ("jsonb_build_object('1/1', frontier -> pgtrickle._origin())", ReasonCode.OTHER_DATABASE),
        (
            "jsonb_build_object(pgtrickle._origin(), jsonb_build_object('snapshot', '900000000:900000000:'))",
            ReasonCode.XIDS_WENT_BACK,
        ),
        ("NULL", ReasonCode.NO_FRONTIER),
    ],
)
def test_content_of_another_instance_is_loaded_anew(shop: Line, change: str, code: ReasonCode) -> None:
    shop.sql("SELECT pgtrickle.protect_stream_table('totals', false), pgtrickle.protect_stream_table('bag', false)")
    shop.sql(
        f"DELETE FROM totals WHERE kind = 1; DELETE FROM bag WHERE kind = 2; "
        f"UPDATE pgtrickle.pgt_stream_tables SET frontier = {change}"
    )
    turn(shop, include_unchanged=True)
    for name in QUERIES:
        shop.check(name, "REINITIALIZE")
        assert shop.reason(name) == Reason.of(code)
    shop.sql("INSERT INTO item VALUES (100, 2, 9)")
    turn(shop)
    for name in ("bag", "totals", "joined"):
        shop.check(name)


# -- settings of the role and the database ----------------------------------------------------------------------------

ODD_SETTINGS = {
    "statement_timeout": "'15ms'",
    "lock_timeout": "'1ms'",
    "idle_in_transaction_session_timeout": "'1ms'",
    "client_encoding": "latin1",
    "datestyle": "'German'",
    "intervalstyle": "iso_8601",
    "extra_float_digits": "-10",
    "bytea_output": "escape",
    "array_nulls": "off",
    "standard_conforming_strings": "off",
    "quote_all_identifiers": "on",
    "search_path": "pg_catalog",
    "default_transaction_isolation": "serializable",
    "xmloption": "document",
    "default_transaction_read_only": "on",
}


def test_odd_settings_of_role_and_database_do_not_reach_us(
    installed: Database, make_line: MakeLine, engine: SparkEngine
) -> None:
    installed.sql(
        "CREATE TABLE t (id int, txt text, d date, f float8, b bytea, iv interval, a text[]); "
        r"INSERT INTO t SELECT i, CASE WHEN i % 5 > 0 THEN 'žluťoučký \ €' || i % 9 END, "
        r"date '2026-01-31' + i % 40, i / 3.0::float8, '\x00ff5c'::bytea, make_interval(mins => i), "
        "ARRAY['x', NULL] FROM generate_series(1, 30000) AS i"
    )
    queries = {
        "odd_bag": "SELECT * FROM t",
        "odd_sums": "SELECT txt, d, count(*) AS n, max(f) AS hi, max(iv) AS longest FROM t GROUP BY txt, d",
    }
    for name, query in queries.items():
        installed.sql("SELECT pgtrickle.create_stream_table(%s, %s, 'calculated', 'DIFFERENTIAL')", name, query)
    for number, (name, value) in enumerate(ODD_SETTINGS.items()):
        whom = f"DATABASE {installed.name}" if number % 2 else f"ROLE app IN DATABASE {installed.name}"
        installed.superuser_sql(f"ALTER {whom} SET {name} = {value}")
    line = make_line(installed)
    line.sql("SET statement_timeout = 0")
    line.sql("RESET ALL; SET statement_timeout = 0; SET default_transaction_read_only = off; SET search_path = public")
    line.sql("SET idle_in_transaction_session_timeout = 0; SET lock_timeout = 0")
    line.sql("SET client_encoding = 'UTF8'; SET standard_conforming_strings = on; SET array_nulls = on")
    turn(line)
    for name in queries:
        line.check(name, "FULL")
    changes = (
        "INSERT INTO t VALUES (1, NULL, NULL, NULL, NULL, NULL, NULL), (2, 'ž', '2026-02-03', 0.1, '', '1 day', '{}')",
        "UPDATE t SET txt = txt || '\\', f = f + 0.1, d = d + 1 WHERE id % 100 = 0",
        "DELETE FROM t WHERE id % 7 = 0",
    )
    for change in changes:
        line.sql(change)
        turn(line)
        for name in queries:
            line.check(name)


def test_changed_time_zone_reloads_tables_that_keep_none(installed: Database, make_line: MakeLine) -> None:
    line = make_line(installed)
    line.sql(
        "CREATE TABLE ev (happened timestamptz, qty int); "
        "INSERT INTO ev SELECT timestamptz '2026-01-01 00:30Z' + i * interval '7 hours', i "
        "FROM generate_series(1, 50) AS i"
    )
    create_all(line, {"days": "SELECT date_trunc('day', happened) AS day, sum(qty) AS q FROM ev GROUP BY 1"})
    line.sql("UPDATE pgtrickle.pgt_stream_tables SET session_settings = '{}'")
    installed.superuser_sql(f"ALTER DATABASE {installed.name} SET timezone = 'America/Los_Angeles'")
    line.close()
    moved = make_line(installed)
    turn(moved)
    moved.check("days", "REINITIALIZE")
    reason = Reason.of(ReasonCode.TIME_ZONE_CHANGED, old="UTC", new="America/Los_Angeles")
    assert moved.reason("days") == reason
    assert actions(turn(moved, include_unchanged=True)) == {"days": "NO_DATA"}
    moved.sql("INSERT INTO ev VALUES ('2026-01-05 01:00Z', 1)")
    turn(moved)
    moved.check("days")


# -- sessions ---------------------------------------------------------------------------------------------------------


def test_table_in_pooler_compatibility_mode_leaves_nothing_in_a_session(shop: Line) -> None:
    shop.sql("SELECT pgtrickle.alter_stream_table('bag', pooler_compatibility_mode => true)")
    before = shop.refreshes("bag")
    for number in range(8):
        shop.sql("INSERT INTO item SELECT 1000 * %s + i, 1, 1 FROM generate_series(1, %s) AS i", number + 1, 20)
        turn(shop)
        for name in QUERIES:
            shop.equal(name)
    shop.sql("INSERT INTO item SELECT 100000 + i, 1, 1 FROM generate_series(1, 6000) AS i")  # through a staging table
    turn(shop)
    shop.check("bag")
    assert shop.refreshes("bag") == before + 9
    worker = shop.plane.worker
    beside = worker._pooler_worker
    assert beside is not None
    for conn in (beside.reader, beside.writer):
        assert isinstance(conn, PooledConnection)
        # as the server's session is, outside of our transactions
        left = psycopg.Cursor(conn).execute(
            "SELECT current_setting('search_path'), (SELECT count(*) FROM pg_prepared_statements), "
            "(SELECT count(*) FROM pg_class WHERE relnamespace = pg_my_temp_schema())"
        )
        assert left.fetchone() == ('"$user", public', 0, 0)
    # unlike the other tables' sessions, which are ours alone
    assert worker.reader.execute("SELECT current_setting('search_path')").fetchone() == ("pg_catalog, pg_temp",)


RENAMES = {
    "tables": "BEGIN; ALTER TABLE kind RENAME TO former; ALTER TABLE kind2 RENAME TO kind; COMMIT",
    "columns": "BEGIN; ALTER TABLE kind RENAME name TO other; ALTER TABLE kind RENAME spare TO name; COMMIT",
    "table": "ALTER TABLE kind RENAME TO former",
    "column": "ALTER TABLE kind RENAME name TO other",
}


@pytest.mark.parametrize("renames", RENAMES.values(), ids=RENAMES)
@pytest.mark.parametrize("mode", ["DIFFERENTIAL", "FULL"])
@pytest.mark.parametrize("is_chained", [False, True], ids=["alone", "chained"])
def test_renamed_between_the_snapshot_and_the_read(
    line: Line, monkeypatch: pytest.MonkeyPatch, renames: str, mode: str, is_chained: bool
) -> None:
    """Statements find tables by the names of now, whatever the snapshot: what was read may be another table, or is
    not there."""
    line.sql(SCHEMA)
    line.sql("CREATE TABLE kind2 AS SELECT id, 'wrong' AS name FROM kind; UPDATE kind SET spare = 'wrong'")
    line.create("joined", QUERIES["joined"], mode=mode)
    if is_chained:
        line.create("above", "SELECT name, count(*) AS n FROM joined GROUP BY name", mode="DIFFERENTIAL")
    line.sql("INSERT INTO item VALUES (100, 2, 1, 'x')")
    prints, left = WaveRefresher._fingerprints, [renames]

    def late(self: WaveRefresher, relids: Sequence[int]) -> Any:
        found = prints(self, relids)
        if left:
            line.sql(left.pop())
        return found

    monkeypatch.setattr(WaveRefresher, "_fingerprints", late)
    for _ in range(4):
        line.tick(include_unchanged=True)
        assert left == []
        assert not any("wrong" in str(row) for row in line.rows("joined"))
    assert (100, "k2", 1) in line.rows("joined")
    for name in ("joined", "above") if is_chained else ("joined",):
        assert status(line, name) == ("ACTIVE", "")
        line.equal(name)


@pytest.mark.parametrize("renames", RENAMES.values(), ids=RENAMES)
def test_renamed_while_the_query_is_looked_at(line: Line, monkeypatch: pytest.MonkeyPatch, renames: str) -> None:
    line.sql(SCHEMA + "CREATE TABLE kind2 AS TABLE kind")
    line.create("joined", QUERIES["joined"])
    left = [renames]

    def late(*args: Any, **named: Any) -> Any:
        if left:
            line.sql(left.pop())
        return compile_table(*args, **named)

    monkeypatch.setattr(prepare, "compile_table", late)
    line.sql("ALTER TABLE kind ALTER id TYPE bigint; INSERT INTO item VALUES (100, 2, 1, 'x')")
    for _ in range(3):
        line.tick()
    assert left == []
    assert status(line, "joined") == ("ACTIVE", "")
    line.equal("joined")
    assert (100, "k2", 1) in line.rows("joined")
