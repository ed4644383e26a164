"""Change feeds over the whole line: applied to a copy, they give the stream table, whatever its refreshes did."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from random import Random

import psycopg
import pytest

from pgtrickle.capture.trim import trim_all
from pgtrickle.db import connect
from tests.feeds import Consumer
from tests.line import Line

QUERIES = {
    "rows_": ("SELECT id, k, v FROM items WHERE v > 2", "id int, k int, v int"),
    "sums": ("SELECT k, count(*) AS n, sum(v) AS total FROM items GROUP BY k", "k int, n bigint, total bigint"),
    "firsts": ("SELECT id, v FROM items ORDER BY v DESC, id LIMIT 5", "id int, v int"),
    "wholes": ("SELECT k, string_agg(v::text, ',' ORDER BY id) AS list FROM items GROUP BY k", "k int, list text"),
}


@pytest.fixture
def shop(line: Line) -> Line:
    line.sql("CREATE TABLE items (id int PRIMARY KEY, k int, v int)")
    line.sql("INSERT INTO items SELECT i, i % 4, i % 9 FROM generate_series(1, 60) AS i")
    for name, (query, columns) in QUERIES.items():
        line.create(name, query)
        line.sql(f"CREATE TABLE copy_{name} ({columns})")
    return line


def follow(line: Line, name: str, subscriber: str = "c") -> Consumer:
    consumer = Consumer(psycopg.connect(line.dsn, autocommit=True), name, subscriber, f"copy_{name}")
    line.plane.tidy()
    consumer.catch_up()
    consumer.check()
    return consumer


def change(line: Line, chance: Random) -> None:
    for _ in range(chance.randrange(1, 5)):
        id_, k, v = chance.randrange(1, 90), chance.choice((0, 1, 2, 3, None)), chance.randrange(12)
        what = chance.randrange(4)
        if what == 0:
            line.sql("DELETE FROM items WHERE id = %s", id_)
        elif what == 1:
            line.sql("UPDATE items SET k = %s, v = %s WHERE id = %s", k, v, id_)
        else:
            line.sql("INSERT INTO items VALUES (%s, %s, %s) ON CONFLICT (id) DO UPDATE SET v = excluded.v", id_, k, v)


def test_feeds_give_the_tables_after_random_changes(shop: Line) -> None:
    chance = Random(11)
    consumers = [follow(shop, name) for name in QUERIES]
    for number in range(12):
        change(shop, chance)
        if number == 6:
            shop.sql("TRUNCATE items; INSERT INTO items SELECT i, i % 3, i FROM generate_series(1, 30) AS i")
        shop.tick()
        if number == 8:
            shop.sql("SELECT pgtrickle.repair_stream_table('sums')")
            shop.tick()
        if number % 3 == 0:
            shop.plane.tidy()
        for consumer in consumers:
            if chance.random() < 0.7:
                consumer.catch_up(chance.choice((1, 5, 10_000)))
                consumer.check()
    for consumer in consumers:
        consumer.catch_up()
        consumer.check()
        assert consumer.resets == 1  # loads show as the difference that they write
        consumer.conn.close()
    for name in QUERIES:
        shop.equal(name)


def test_the_first_load_is_not_written_to_a_buffer(shop: Line) -> None:
    shop.sql("SELECT pgtrickle.create_stream_table('late', 'SELECT id, v FROM items')")
    shop.sql("CREATE TABLE copy_late (id int, v int)")
    consumer = Consumer(psycopg.connect(shop.dsn, autocommit=True), "late", "c", "copy_late")
    shop.plane.tidy()
    assert consumer.read() == []
    shop.tick()
    assert consumer.read() == []
    shop.plane.tidy()
    ((relid,),) = shop.sql("SELECT 'late'::regclass::oid::int8")
    assert shop.sql(f"SELECT count(*) FROM pgtrickle_changes.changes_{relid}") == [(0,)]
    shop.sql("DELETE FROM items WHERE id = 1")
    shop.tick()
    consumer.catch_up()
    consumer.check()
    consumer.conn.close()


def test_a_new_query_with_other_columns_starts_over(shop: Line) -> None:
    consumer = follow(shop, "rows_")
    shop.sql("SELECT pgtrickle.stream_table_to_publication('rows_')")
    shop.sql("SELECT pgtrickle.alter_stream_table('rows_', query => 'SELECT id, v AS w FROM items')")
    shop.sql("INSERT INTO items VALUES (70, 1, 1)")
    shop.tick()
    shop.plane.tidy()
    shop.sql("DROP TABLE copy_rows_; CREATE TABLE copy_rows_ (id int, w int)")
    consumer.catch_up()
    consumer.check()
    shop.sql("DELETE FROM items WHERE id < 20; UPDATE items SET v = 3 WHERE id = 70")
    shop.tick()
    shop.check("rows_")
    consumer.catch_up()
    consumer.check()
    assert consumer.resets == 2
    consumer.conn.close()


DIES = """
import os, signal, sys, psycopg
conn = psycopg.connect(sys.argv[1], autocommit=True)
rows = conn.execute("SELECT * FROM pgtrickle.read_changes('sums', 'c')").fetchall()
assert rows
os.kill(os.getpid(), signal.SIGKILL)
"""


def test_a_consumer_that_is_killed_before_it_acknowledges_gets_it_again(shop: Line) -> None:
    consumer = follow(shop, "sums")
    for round_ in range(3):
        shop.sql("UPDATE items SET v = v + 1 WHERE k = %s", round_)
        shop.tick()
        died = subprocess.run([sys.executable, "-c", DIES, shop.dsn], check=False, env=os.environ)
        assert died.returncode == -signal.SIGKILL
        with connect(shop.dsn, role="test", autocommit=True) as conn:
            trim_all(conn)
    consumer.catch_up()
    consumer.check()
    assert consumer.resets == 1
    consumer.conn.close()
