"""Stream tables that read one another move at one instant: invariant 5."""

from __future__ import annotations

import threading

import psycopg

from tests.line import Line

ACCOUNTS = """
CREATE TABLE account (id int PRIMARY KEY, branch int NOT NULL, balance int NOT NULL);
INSERT INTO account SELECT i, i % 5, 100 FROM generate_series(1, 100) AS i;
"""
TABLES = {
    "per_branch": "SELECT branch, sum(balance) AS total FROM account GROUP BY branch",
    "largest": "SELECT branch, max(balance) AS top FROM account GROUP BY branch",
    # reads the base table and what was made of it: each row knows its share of the same instant
    "share": "SELECT a.id, a.balance, b.total FROM account a JOIN per_branch b ON b.branch = a.branch",
    "diamond": "SELECT b.branch, b.total, l.top FROM per_branch b LEFT JOIN largest l ON l.branch = b.branch",
    "peak": "SELECT max(total) AS most, sum(total) AS everything, max(top) AS top FROM diamond",
}
TORN = """
SELECT
    (SELECT count(*) FROM (SELECT b.branch FROM per_branch b JOIN account_share s USING (branch)
                           GROUP BY b.branch, b.total HAVING sum(s.balance) <> b.total) AS q),
    (SELECT sum(total) FROM per_branch), (SELECT everything FROM peak),
    (SELECT count(*) FROM diamond d JOIN per_branch b USING (branch) WHERE d.total <> b.total)
"""


def create(line: Line) -> None:
    line.sql(ACCOUNTS)
    for name, query in TABLES.items():
        line.sql("SELECT pgtrickle.create_stream_table(%s, %s, 'calculated', 'DIFFERENTIAL')", name, query)
    line.sql("CREATE VIEW account_share AS SELECT id % 5 AS branch, balance FROM share")
    for _ in range(3):
        line.tick()
    for name in TABLES:
        line.check(name, "FULL")


def test_readers_never_see_two_instants_of_one_chain(line: Line) -> None:
    create(line)
    stop = threading.Event()
    torn: list[object] = []

    def move() -> None:
        with psycopg.connect(line.dsn, autocommit=True) as conn:
            number = 0
            while not stop.is_set():
                number += 1
                with conn.transaction():  # money moves between branches and never appears or vanishes
                    conn.execute("UPDATE account SET balance = balance - 7 WHERE id = %s", (number % 100 + 1,))
                    conn.execute("UPDATE account SET balance = balance + 7 WHERE id = %s", ((number + 37) % 100 + 1,))

    def look() -> None:
        with psycopg.connect(line.dsn, autocommit=True) as conn:
            while not stop.is_set():
                row = conn.execute(TORN).fetchone()
                if row != (0, 10_000, 10_000, 0):
                    torn.append(row)
                    return

    threads = [threading.Thread(target=f) for f in (move, look)]
    for thread in threads:
        thread.start()
    for _ in range(12):
        assert [o for o in line.tick() if o.error is not None] == []
    stop.set()
    for thread in threads:
        thread.join()
    assert torn == []
    line.tick()
    for name in TABLES:
        line.equal(name)
        assert line.last(name)[:2] in (("DIFFERENTIAL", "COMPLETED"), ("NO_DATA", "COMPLETED"))


def test_chain_shares_its_frontier_and_reads_nothing_twice(line: Line) -> None:
    create(line)
    line.sql("UPDATE account SET balance = balance + 1 WHERE id = 1")
    line.tick()
    assert len(line.sql("SELECT DISTINCT frontier FROM pgtrickle.pgt_stream_tables")) == 1
    line.sql("UPDATE account SET balance = balance + 1 WHERE id = 2")
    line.tick()  # what the first chain has written is not read again
    for name in TABLES:
        line.check(name)


def test_table_that_fails_holds_its_readers_and_nobody_else(line: Line) -> None:
    line.sql("CREATE TABLE n (k int, v int); INSERT INTO n VALUES (1, 1), (2, 2)")
    for name, query in {
        "inverse": "SELECT k, 10 / v AS i FROM n",
        "over_it": "SELECT sum(i) AS s FROM inverse",
        "plain": "SELECT k, v FROM n",
        "over_plain": "SELECT sum(p.v) AS s, count(*) AS n FROM plain p",
        "over_both": "SELECT p.k, o.s FROM plain p CROSS JOIN over_it o",
    }.items():
        line.sql("SELECT pgtrickle.create_stream_table(%s, %s, 'calculated', 'DIFFERENTIAL')", name, query)
    for _ in range(3):
        line.tick()
    line.sql("INSERT INTO n VALUES (3, 0)")
    failed = [o.table.name for o in line.tick() if o.error is not None]
    assert failed == ["inverse"]
    for name in ("plain", "over_plain"):
        line.check(name)
    assert line.rows("over_it") == [(15,)]
    assert line.rows("over_both") == [(1, 15), (2, 15)]
