"""Every committed change falls in exactly one window, whenever its transaction began, wrote and committed.

Each scenario runs for a bag, an aggregate with an extreme, and a join, and the content is compared with the query as it
is *now*: the test writes nothing between a turn and the comparison, so a row that is late is a row that is lost.
"""

from __future__ import annotations

from typing import Any

import psycopg
import pytest
from psycopg import IsolationLevel

from pgtrickle.capture.trim import index_long_buffers
from pgtrickle.model.flow import Cut, Window
from pgtrickle.model.identifiers import buffer_name
from pgtrickle.refresh.job import Outcome
from tests.conftest import Database
from tests.line import Line

SCHEMA = """
CREATE TABLE kind (id int PRIMARY KEY, name text);
CREATE TABLE item (id int PRIMARY KEY, kind int, qty int);
INSERT INTO kind SELECT i, 'k' || i FROM generate_series(1, 5) AS i;
INSERT INTO item SELECT i, 1 + i % 5, nullif(i % 4, 0) FROM generate_series(1, 40) AS i;
"""
QUERIES = {
    "bag": "SELECT kind, qty FROM item WHERE qty IS DISTINCT FROM 3",
    "totals": "SELECT kind, count(*) AS n, sum(qty) AS q, min(qty) AS lo, max(qty) AS hi FROM item GROUP BY kind",
    "joined": "SELECT i.id, k.name, i.qty FROM item AS i JOIN kind AS k ON k.id = i.kind",
}


class Shop:
    """The three stream tables, and writers whose transactions the test holds open."""

    def __init__(self, line: Line, database: Database) -> None:
        self.line = line
        self._database = database
        line.sql(SCHEMA)
        for name, query in QUERIES.items():
            line.sql("SELECT pgtrickle.create_stream_table(%s, %s, 'calculated', 'DIFFERENTIAL')", name, query)
        self.turn()
        for name in QUERIES:
            assert line.last(name)[:2] == ("FULL", "COMPLETED")

    def writer(self, isolation: IsolationLevel = IsolationLevel.READ_COMMITTED) -> psycopg.Connection[Any]:
        connection = self._database.connect(autocommit=False)
        connection.isolation_level = isolation
        return connection

    def write(self, text: str) -> None:
        self.line.sql(text)

    def turn(self, expected: str | None = None) -> list[Outcome]:
        """One turn; `expected` is what all three tables must have done. Then each equals its query, both ways."""
        # What has no changes is not due; it is looked at all the same, and must find none.
        outcomes = self.line.tick(include_unchanged=expected == "NO_DATA")
        assert [o.error for o in outcomes if o.error] == []
        if expected is not None:
            assert {o.table.name: o.action for o in outcomes} == dict.fromkeys(QUERIES, expected)
        for name, query in QUERIES.items():
            assert self.differences(name, query) == (0, 0), name
        return outcomes

    def differences(self, name: str, query: str) -> tuple[int, int]:
        columns = ", ".join(column.name for column in self.line.conn.execute(query).description or ())
        have = f"SELECT {columns} FROM {name}"
        rows = self.line.sql(
            f"SELECT (SELECT count(*) FROM (({query}) EXCEPT ALL ({have})) AS m), "
            f"(SELECT count(*) FROM (({have}) EXCEPT ALL ({query})) AS e)"
        )
        return int(rows[0][0]), int(rows[0][1])

    def frontier(self) -> Cut:
        rows = self.line.sql(
            "SELECT frontier -> pgtrickle._origin() ->> 'snapshot' FROM pgtrickle.pgt_stream_tables "
            "WHERE pgt_name = 'totals'"
        )
        return Cut.parse(rows[0][0])


@pytest.fixture
def shop(line: Line, installed: Database) -> Shop:
    return Shop(line, installed)


def test_idle_read_committed_writer_is_not_lost_when_it_commits_ticks_later(shop: Shop) -> None:
    late = shop.writer()
    late.execute("INSERT INTO item VALUES (101, 1, 50)")
    for number in range(3):
        shop.write(f"INSERT INTO item VALUES ({200 + number}, 2, {number})")
        shop.turn("DIFFERENTIAL")
    late.commit()
    shop.turn("DIFFERENTIAL")
    assert shop.line.sql("SELECT count(*) FROM joined WHERE id = 101") == [(1,)]
    for _ in range(3):
        shop.turn("NO_DATA")


def test_repeatable_read_writer_begun_between_ticks_is_not_lost(shop: Shop) -> None:
    """With an older transaction that has just ended, an oldest-xmin rule would move past the younger writer."""
    older = shop.writer()
    older.execute("INSERT INTO item VALUES (101, 1, 1)")
    shop.turn("NO_DATA")
    younger = shop.writer(IsolationLevel.REPEATABLE_READ)
    younger.execute("SELECT count(*) FROM item")
    younger.execute("UPDATE item SET qty = 77 WHERE id = 4")
    older.commit()
    shop.turn("DIFFERENTIAL")
    shop.write("DELETE FROM item WHERE id = 5")
    shop.turn("DIFFERENTIAL")
    younger.commit()
    shop.turn("DIFFERENTIAL")
    assert shop.line.sql("SELECT qty FROM joined WHERE id = 4") == [(77,)]
    for _ in range(3):
        shop.turn("NO_DATA")


@pytest.mark.parametrize("ending", ["COMMIT PREPARED", "ROLLBACK PREPARED"])
def test_prepared_transaction_falls_in_the_window_of_its_end(shop: Shop, installed: Database, ending: str) -> None:
    name = f"late_{installed.name}"
    with installed.connect() as preparing:
        preparing.execute("BEGIN")
        preparing.execute("INSERT INTO item VALUES (101, 1, 50), (102, 3, NULL)")
        preparing.execute("DELETE FROM item WHERE id = 7")
        preparing.execute(f"PREPARE TRANSACTION '{name}'")
    for number in range(2):
        shop.write(f"UPDATE item SET qty = {number} WHERE id = 8")
        shop.turn("DIFFERENTIAL")
    shop.write(f"{ending} '{name}'")
    shop.turn("DIFFERENTIAL" if ending == "COMMIT PREPARED" else "NO_DATA")
    for _ in range(3):
        shop.turn("NO_DATA")


def test_savepoint_with_partial_rollback_counts_only_what_is_kept(shop: Shop) -> None:
    late = shop.writer()
    late.execute("INSERT INTO item VALUES (101, 1, 50)")
    late.execute("SAVEPOINT a")
    late.execute("INSERT INTO item VALUES (102, 1, 60)")
    late.execute("DELETE FROM item WHERE kind = 2")
    late.execute("ROLLBACK TO a")
    late.execute("UPDATE item SET kind = 5 WHERE id = 10")
    shop.turn("NO_DATA")
    shop.write("INSERT INTO item VALUES (103, 4, 4)")
    shop.turn("DIFFERENTIAL")
    late.execute("RELEASE a")
    late.commit()
    shop.turn("DIFFERENTIAL")
    assert shop.line.sql("SELECT id FROM joined WHERE id > 100 ORDER BY id") == [(101,), (103,)]
    for _ in range(3):
        shop.turn("NO_DATA")


def test_writer_open_across_twenty_refreshes_loses_nothing_and_keeps_reads_tight(shop: Shop) -> None:
    shop.write("INSERT INTO kind VALUES (6, 'k6')")
    shop.turn()
    assert len(index_long_buffers(shop.line.plane.control, long_bytes=-1)) == 2
    late = shop.writer()
    late.execute("INSERT INTO item VALUES (101, 6, 1)")
    late_xid = int(late.execute("SELECT pg_current_xact_id()::text").fetchall()[0][0])
    relid = int(shop.line.sql("SELECT 'item'::regclass::oid")[0][0])
    for number in range(20):
        if number % 5 == 4:
            late.execute(f"UPDATE item SET qty = {number} WHERE id = 101")
        first = 1000 + 100 * number
        shop.write(
            f"INSERT INTO item SELECT i, 1 + i % 6, i % 9 FROM generate_series({first}, {first + 99}) AS i; "
            f"DELETE FROM item WHERE id BETWEEN {first - 80} AND {first - 70}"
        )
        before = shop.frontier()
        shop.turn("DIFFERENTIAL")
        assert late_xid in shop.frontier().open_xids
    window = Window(before, shop.frontier())
    assert before.xmin <= late_xid < before.xmax - 19  # a range from xmin on would hold everything since then
    shop.write(f"ANALYZE {buffer_name(relid)}")
    everything = int(shop.line.sql(f"SELECT count(*) FROM {buffer_name(relid)}")[0][0])
    assert everything > 2000
    shop.line.sql("SET enable_seqscan = off")
    plan = shop.line.sql(
        f"EXPLAIN (ANALYZE, TIMING off, FORMAT JSON) SELECT * FROM {buffer_name(relid)} WHERE {window.predicate()}"
    )[0][0][0]["Plan"]
    assert _touched(plan) < 300, plan
    shop.line.sql("RESET enable_seqscan")
    late.commit()
    shop.turn("DIFFERENTIAL")
    assert shop.line.sql("SELECT id, name, qty FROM joined WHERE id = 101") == [(101, "k6", 19)]
    shop.turn("NO_DATA")


def _touched(plan: dict[str, Any]) -> float:
    """Rows that the scans have looked at, kept or not."""
    own = float(plan["Actual Rows"]) + float(plan.get("Rows Removed by Filter", 0))
    own += float(plan.get("Rows Removed by Index Recheck", 0))
    return own + sum(_touched(child) for child in plan.get("Plans", ()))


def test_subtransactions_share_the_window_of_their_transaction(shop: Shop) -> None:
    late = shop.writer()
    for number in range(70):  # more than a backend's cache of subtransactions holds
        late.execute("SAVEPOINT s")
        late.execute(f"INSERT INTO item VALUES ({300 + number}, {1 + number % 5}, {number})")
        late.execute("ROLLBACK TO s" if number % 3 == 0 else "RELEASE s")
    shop.turn("NO_DATA")
    shop.write("UPDATE kind SET name = 'new' WHERE id = 2")
    assert {o.table.name: o.action for o in shop.turn()}["joined"] == "DIFFERENTIAL"
    late.commit()
    shop.turn("DIFFERENTIAL")
    shop.turn("NO_DATA")


def test_error_caught_inside_a_function_leaves_no_rows_behind(shop: Shop) -> None:
    shop.write(
        "DO $$ BEGIN INSERT INTO item VALUES (400, 1, 1); "
        "BEGIN INSERT INTO item VALUES (401, 1, 9); UPDATE item SET qty = 1 / 0; EXCEPTION WHEN OTHERS THEN NULL; END; "
        "INSERT INTO item VALUES (402, 2, 2); END $$"
    )
    shop.turn("DIFFERENTIAL")
    assert shop.line.sql("SELECT id FROM joined WHERE id >= 400 ORDER BY id") == [(400,), (402,)]


def test_rolled_back_transaction_changes_nothing(shop: Shop) -> None:
    late = shop.writer()
    late.execute("INSERT INTO item SELECT i, 1, 99 FROM generate_series(500, 600) AS i")
    late.execute("DELETE FROM kind")
    shop.turn("NO_DATA")
    shop.write("DELETE FROM item WHERE id = 9")
    shop.turn("DIFFERENTIAL")
    late.rollback()
    for _ in range(2):
        shop.turn("NO_DATA")


def test_many_writers_that_overlap_the_ticks_in_every_order(shop: Shop) -> None:
    """Each writer writes in one interval between ticks and commits in another; every pair of intervals occurs."""
    intervals = 4
    open_writers: dict[tuple[int, int], psycopg.Connection[Any]] = {}
    number = 700
    for now in range(intervals):
        for end in range(now, intervals):
            writer = shop.writer(IsolationLevel.REPEATABLE_READ if end % 2 else IsolationLevel.READ_COMMITTED)
            writer.execute(f"INSERT INTO item VALUES ({number}, {1 + number % 5}, {number})")
            writer.execute(f"UPDATE item SET qty = {number} WHERE id = {number - 699}")
            open_writers[now, end] = writer
            number += 1
        for (begun, end), writer in open_writers.items():
            if end == now:
                writer.rollback() if begun == 1 else writer.commit()
        shop.turn("DIFFERENTIAL")
    for _ in range(2):
        shop.turn("NO_DATA")
