"""Loads: computed by the server in one statement, or carried batch by batch where another session has to read. One that
breaks off leaves nothing behind; one that replaces rows writes only those that differ."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from contextlib import closing
from functools import partial
from typing import Any

import psycopg
import pytest

from pgtrickle.apply.target import Target, reshape
from pgtrickle.db.copy import read_batches
from pgtrickle.define.storage import RECORD_HASH_SINCE
from pgtrickle.errors import DefinitionError, TransientError
from pgtrickle.pipeline.engine.spark import SparkEngine
from pgtrickle.refresh import loads
from tests.line import Line

SCHEMA = """
CREATE TABLE t (id int, note text, k int);
INSERT INTO t SELECT i, CASE WHEN i % 3 > 0 THEN E'line\\n"' || i END, i % 97 FROM generate_series(1, 3000) AS i;
"""
ROWS = {
    "bag": "SELECT id, note FROM t",
    "nulls": "SELECT note FROM t",
    "copies": "SELECT k, NULL::text AS nothing FROM t",
    "regions": "SELECT DISTINCT ON (k) k, id FROM t ORDER BY k, id",
}
QUERIES = {
    **ROWS,
    "groups": "SELECT k, count(*) AS n, max(id) AS m, min(note) AS first FROM t GROUP BY k",
    "having": "SELECT k, sum(id) AS s FROM t GROUP BY k HAVING count(*) > 1000000",
    "whole": "SELECT count(*) AS n, avg(id) AS a FROM t",
    "first": "SELECT id, note FROM t ORDER BY k DESC, id LIMIT 20",
    "tree": "WITH RECURSIVE r AS (SELECT id FROM t WHERE id = 1 UNION SELECT r.id * 2 FROM r JOIN t ON t.id = r.id) "
    "SELECT id FROM r",
    "none": "SELECT id, note FROM t WHERE false",
}
STAGES = (
    r"SELECT relname FROM pg_class WHERE relname LIKE 'stage\_%' AND relnamespace = 'pgtrickle_changes'::regnamespace"
)
INDEXES = "SELECT indexdef FROM pg_indexes WHERE tablename = %s AND indexdef LIKE '%%__pgt_row_id%%'"


@pytest.fixture
def loaded(line: Line) -> Line:
    line.sql(SCHEMA)
    for name, query in QUERIES.items():
        line.sql("SELECT pgtrickle.create_stream_table(%s, %s)", name, query)
    line.tick()
    for name in QUERIES:
        line.check(name, "FULL")
    return line


def load_again(line: Line, *names: str) -> dict[str, tuple[int, int]]:
    """Rows inserted and deleted."""
    for name in names:
        line.sql("SELECT pgtrickle.repair_stream_table(%s)", name)
    found = {o.table.name: (o.inserted, o.deleted) for o in line.tick() if o.table.name in names}
    for name in names:
        line.check(name, "REINITIALIZE")
    return found


def test_the_server_computes_a_load(loaded: Line, engine: SparkEngine) -> None:
    jobs = engine.jobs
    assert load_again(loaded, *QUERIES) == dict.fromkeys(QUERIES, (0, 0))
    assert engine.jobs == jobs
    assert loaded.sql(STAGES) == []
    for name in QUERIES:
        assert len(loaded.sql(INDEXES, name)) == 1
    loaded.sql(
        "UPDATE t SET note = 'x', k = k + 1 WHERE id < 50; DELETE FROM t WHERE id = 77; INSERT INTO t VALUES (2)"
    )
    loaded.tick()
    for name in QUERIES:
        loaded.check(name)


def test_only_rows_that_differ_are_written(loaded: Line) -> None:
    loaded.sql("CREATE UNIQUE INDEX ON bag (id); CREATE UNIQUE INDEX ON groups (k)")
    loaded.edit_catalog("UPDATE pgtrickle.pgt_stream_tables SET frontier = NULL, needs_reinit = true")
    loaded.sql("UPDATE t SET note = 'new' WHERE id = 5; DELETE FROM t WHERE id = 6")
    found = {o.table.name: (o.inserted, o.deleted) for o in loaded.tick()}
    assert found["bag"] == (1, 2)
    assert found["nulls"] == (1, 2)
    assert found["copies"] == (0, 1)
    for name in QUERIES:
        loaded.check(name, "REINITIALIZE")


def test_rows_that_somebody_wrote_are_found_by_a_load(loaded: Line) -> None:
    for name in ("bag", "copies", "groups", "first"):
        loaded.sql("SELECT pgtrickle.protect_stream_table(%s, false)", name)
    loaded.sql("UPDATE bag SET note = 'by hand' WHERE id % 2 = 0; INSERT INTO bag SELECT * FROM bag WHERE id = 1")
    loaded.sql(
        "DELETE FROM copies WHERE k < 5; UPDATE groups SET n = 0; DELETE FROM groups WHERE k = 3; DELETE FROM first"
    )
    load_again(loaded, "bag", "copies", "groups", "first")


def test_rows_of_one_hash_stay_apart(line: Line, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Target, "identity", lambda *_: "7::int8")
    line.sql(SCHEMA + "DELETE FROM t WHERE id > 30")
    for name, query in ROWS.items():
        line.create(name, query)
        line.check(name, "FULL")
    line.sql("UPDATE t SET note = 'x' WHERE id < 5; DELETE FROM t WHERE id = 6")
    load_again(line, *ROWS)
    line.sql("UPDATE t SET note = 'y' WHERE id < 5; DELETE FROM t WHERE id = 7")
    line.tick()
    for name in ROWS:
        line.check(name)


VALUES = """
CREATE DOMAIN short AS text CHECK (length(VALUE) < 9);
CREATE TYPE pair AS (a int, b text);
CREATE TYPE mood AS ENUM ('sad', 'glad');
CREATE TABLE v
    (id int, n numeric, f float8, c char(4), d short, p pair, m mood, a int[], ts timestamptz, j jsonb, i interval,
     b bytea, h time);
INSERT INTO v VALUES
    (1, 1.0, 0, 'a', 'x', (1, 'b'), 'sad', '{1,NULL}', '2020-01-01 00:00+01', '{"a": 1.0}', '24 hours', 'x', '12:00'),
    (1, 1.00, '-0', 'a ', 'x', (1, NULL), 'glad', '[0:0]={1}', 'infinity', '{"a": 1.00}', '1 day', 'x', '12:00'),
    (1, 'NaN', 'NaN', '', '', NULL, NULL, '{}', NULL, 'null', NULL, NULL, NULL),
    (NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL);
"""


@pytest.mark.parametrize(
    ("columns", "alike"),
    [("*", 0), ("n", 2), ("f", 2), ("c, d", 1), ("p", 1), ("m, a", 0), ("ts", 1), ("j, i", 0),
     ("id, n, f, c, d, ts", 0), ("id, n, f, b", 1), ("n, h", 2)],
)  # fmt: skip
def test_a_row_has_one_identity_whoever_writes_it(line: Line, columns: str, alike: int) -> None:
    """What a load has written is found by changes and by another load, and the other way round.

    `alike`: rows that share their identity with another one: their values of types that are hashed are equal, though
    their texts may differ, and the texts of the others are. So one column of another type does not make the identity
    the hash of the whole row's text. PostgreSQL gives NULL the hash of a numeric NaN, and of the float 0.
    """
    line.sql(VALUES)
    line.create("copy", f"SELECT {columns} FROM v")
    line.check("copy", "FULL")
    if line.conn.info.server_version >= RECORD_HASH_SINCE:
        assert line.sql("SELECT count(*) - count(DISTINCT __pgt_row_id) FROM copy") == [(alike,)]
    line.sql("INSERT INTO v SELECT * FROM v; UPDATE v SET id = 2 WHERE n = 1")
    line.tick()
    line.check("copy")
    assert load_again(line, "copy") == {"copy": (0, 0)}
    line.sql("DELETE FROM v WHERE ctid IN (SELECT min(ctid) FROM v GROUP BY v.*::text)")
    line.tick()
    line.check("copy")
    line.sql("DELETE FROM v")
    line.tick()
    line.check("copy")
    assert line.rows("copy") == []


def test_wide_rows_and_odd_names(line: Line) -> None:
    names = [f'"c {i} ""%s"' for i in range(300)]
    line.sql(f"CREATE TABLE wide ({', '.join(f'{name} int' for name in names)})")
    line.sql(f"INSERT INTO wide SELECT {', '.join(['i'] * 300)} FROM generate_series(1, 20) AS i")
    line.create('"Odd ""name"""', "SELECT * FROM wide", mode="FULL")
    assert line.sql('SELECT count(*), sum("c 299 ""%s") FROM "Odd ""name"""') == [(20, 210)]
    line.sql(f"DELETE FROM wide WHERE {names[0]} < 5")
    line.tick()
    assert line.sql('SELECT count(*), min("c 299 ""%s") FROM "Odd ""name"""') == [(16, 5)]


def test_load_is_of_one_snapshot_while_others_write(line: Line, monkeypatch: pytest.MonkeyPatch) -> None:
    """What is written between the snapshot and the load is in the next window, once."""
    line.sql(SCHEMA)
    calls = 0

    def written_before(*args: Any) -> Any:
        nonlocal calls
        calls += 1
        line.sql("UPDATE t SET note = 'late' WHERE id < 10; DELETE FROM t WHERE id = 20")
        line.sql("INSERT INTO t VALUES (-1, 'late', 1)")
        return reshape(*args)

    for name in ("bag", "groups"):
        line.sql("SELECT pgtrickle.create_stream_table(%s, %s)", name, QUERIES[name])
    with monkeypatch.context() as patched:
        patched.setattr(loads, "reshape", written_before)
        line.tick()
    assert calls == 2
    assert line.sql("SELECT count(*), count(*) FILTER (WHERE note = 'late') FROM bag") == [(3000, 0)]
    assert line.sql("SELECT sum(n) FROM groups") == [(3000,)]
    line.tick()
    for name in ("bag", "groups"):
        line.check(name)


def test_request_during_a_load_does_not_undo_it(line: Line, monkeypatch: pytest.MonkeyPatch) -> None:
    """The first attempt is, as its snapshot is older than the request; the second one has a staging table."""
    line.sql(SCHEMA)
    calls = 0

    def requested(*args: Any) -> Any:
        nonlocal calls
        calls += 1
        if calls == 1:
            line.sql("SELECT pgtrickle.refresh_stream_table('bag')")
        return reshape(*args)

    with monkeypatch.context() as patched:
        patched.setattr(loads, "reshape", requested)
        (outcome,) = line.create("bag", QUERIES["bag"])
    assert calls == 2
    assert outcome.error is None
    line.check("bag", "FULL")
    assert line.sql(STAGES) == []


def test_ddl_that_waits_for_the_snapshot_goes_first(line: Line, monkeypatch: pytest.MonkeyPatch) -> None:
    line.sql(SCHEMA)

    def alter() -> None:
        with psycopg.connect(line.dsn, autocommit=True) as conn:
            conn.execute("ALTER TABLE t ADD COLUMN more int")

    waiting = threading.Thread(target=alter)

    def altered(*args: Any) -> Any:
        line.plane.worker.refresher.reader.execute("SELECT FROM public.t LIMIT 1")
        waiting.start()
        while line.sql("SELECT count(*) FROM pg_locks WHERE NOT granted") == [(0,)]:
            time.sleep(0.01)
        return reshape(*args)

    with monkeypatch.context() as patched:
        patched.setattr(loads, "reshape", altered)
        (outcome,) = line.create("bag", QUERIES["bag"])
    assert isinstance(outcome.error, TransientError)
    waiting.join(120)
    assert not waiting.is_alive()
    line.tick()
    line.check("bag", "FULL")


def test_load_whose_query_fails_says_why_and_leaves_nothing(line: Line) -> None:
    line.sql(SCHEMA)
    (outcome,) = line.create("bad", "SELECT id, 1 / (id - 3000) AS x FROM t")
    assert isinstance(outcome.error, DefinitionError)
    assert "division by zero" in outcome.error.message
    assert line.sql(STAGES) == []
    assert line.sql("SELECT count(*) FROM bad") == [(0,)]


def test_load_that_is_killed_before_it_is_applied_is_swept_and_done_again(
    line: Line, engine: SparkEngine, monkeypatch: pytest.MonkeyPatch
) -> None:
    line.sql(SCHEMA)

    def killed(writer: Any, *_: Any) -> Any:
        line.sql("SELECT pg_terminate_backend(%s)", writer.info.backend_pid)
        writer.execute("SELECT")

    line.create("bag", QUERIES["bag"])
    line.sql("SELECT pgtrickle.repair_stream_table('bag'); DELETE FROM t WHERE id < 5")
    with monkeypatch.context() as patched:
        patched.setattr(loads, "reshape", killed)
        with pytest.raises(TransientError):
            line.tick()
    assert len(line.sql(STAGES)) == 1
    assert line.sql("SELECT count(*) FROM bag") == [(3000,)]
    other = Line(line.dsn, engine)
    try:
        other.tick()
        other.check("bag", "REINITIALIZE")
        other.plane.tidy()
    finally:
        other.close()
    assert line.sql(STAGES) == []


# -- carried ----------------------------------------------------------------------------------------------------------


@pytest.fixture
def carried(line: Line, monkeypatch: pytest.MonkeyPatch) -> Line:
    """As loads of mirrors, and of authors whose code is not trusted."""
    line.plane.worker.refresher.loads_inside = False
    monkeypatch.setattr(loads, "read_batches", partial(read_batches, batch_bytes=2000))
    line.sql(SCHEMA)
    return line


def test_load_in_many_batches_is_the_whole_query(carried: Line, monkeypatch: pytest.MonkeyPatch) -> None:
    many, count = partial(read_batches, batch_bytes=2000), 0

    def counted(*args: Any) -> Iterator[Any]:
        nonlocal count
        with closing(many(*args)) as batches:
            for batch in batches:
                count += 1
                yield batch

    monkeypatch.setattr(loads, "read_batches", counted)
    for name, query in ROWS.items():
        carried.create(name, query)
        carried.check(name, "FULL")
    assert count > 20
    carried.sql("DELETE FROM t WHERE id % 2 = 0")
    load_again(carried, *ROWS)
    carried.plane.worker.refresher.loads_inside = True
    assert load_again(carried, *ROWS) == dict.fromkeys(ROWS, (0, 0))


def test_load_that_breaks_off_writes_nothing_and_is_done_again(carried: Line, monkeypatch: pytest.MonkeyPatch) -> None:
    many = partial(read_batches, batch_bytes=2000)

    def broken(*args: Any) -> Iterator[Any]:
        with closing(many(*args)) as batches:  # a COPY has to end before its session is used again
            yield next(batches)
            raise TransientError("the network went away")

    with monkeypatch.context() as patched:
        patched.setattr(loads, "read_batches", broken)
        (outcome,) = carried.create("bag", ROWS["bag"])
    assert isinstance(outcome.error, TransientError)
    assert carried.sql("SELECT count(*) FROM bag") == [(0,)]
    carried.tick()
    carried.check("bag", "FULL")
    carried.sql("UPDATE t SET note = 'x' WHERE id < 50")
    carried.tick()
    carried.check("bag")
