"""Change feeds of stream tables: exact, resumable, held for the slowest.

Refreshes are played by writes to the storage.
"""

from __future__ import annotations

import json
import random
from collections.abc import Callable, Iterator
from typing import Any

import psycopg
import pytest

from pgtrickle.capture.compact import Compactor
from pgtrickle.capture.install import collect_garbage
from pgtrickle.capture.trim import trim_all
from pgtrickle.db import Connection, connect
from pgtrickle.maintain.feeds import FeedMaintainer
from pgtrickle.settings import Settings
from tests.conftest import Database
from tests.feeds import Consumer
from tests.postgres.rows import create, loaded

MakeRole = Callable[[Database], psycopg.Connection[Any]]


@pytest.fixture
def conn(db: Database) -> Iterator[Connection]:
    with connect(db.dsn, role="test", autocommit=True) as connection:
        yield connection


@pytest.fixture
def keeper(db: Database, conn: Connection) -> FeedMaintainer:
    # The sessions of these tests play the control plane.
    db.superuser_sql(f"ALTER DATABASE {db.name} SET pgtrickle.applies = 'on'")
    loaded(db, create(db, "s", "SELECT a, b FROM t"))
    db.sql("CREATE TABLE copy (a int, b int); CREATE TABLE copy2 (a int, b int)")
    return FeedMaintainer("test", conn)


def turn(keeper: FeedMaintainer, limit: int = 0, now: float = 0.0) -> None:
    keeper.expect()
    keeper.maintain(Settings(publication_lag_warn_lsn=limit), now)


def consumer(
    db: Database,
    keeper: FeedMaintainer,
    name: str = "c",
    copy: str = "copy",
    table: str = "s",
    conn: psycopg.Connection[Any] | None = None,
) -> Consumer:
    made = Consumer(conn or db.connect(), table, name, copy)
    turn(keeper)
    assert made.apply() > 0  # the reset
    made.check()
    return made


def buffered(db: Database, table: str = "s") -> int:
    ((relid,),) = db.sql("SELECT %s::regclass::oid::int8", table)
    return int(db.sql(f"SELECT count(*) FROM pgtrickle_changes.changes_{relid}")[0][0])


# -- the feed


def test_a_feed_begins_with_all_rows_and_goes_on_with_changes(db: Database, keeper: FeedMaintainer) -> None:
    db.sql("INSERT INTO s VALUES (1, 1, 7), (1, 1, 7), (2, NULL, 8)")
    feed = Consumer(db.connect(), "s", "c", "copy")
    assert feed.read() == []  # not captured yet
    turn(keeper)
    begun = feed.read()
    assert [(action, row) for _, action, row in begun] == [
        ("reset", {"reason": "the feed begins"}),
        ("insert", {"a": 1, "b": 1}), ("insert", {"a": 1, "b": 1}), ("insert", {"a": 2, "b": None}),
    ]  # fmt: skip
    assert feed.apply() == 4
    assert feed.read() == []
    db.sql("DELETE FROM s WHERE a = 2; UPDATE s SET b = 5 WHERE ctid = (SELECT min(ctid) FROM s)")
    changes = feed.read()
    assert [(action, row) for _, action, row in changes] == [
        ("delete", {"a": 1, "b": 1}), ("delete", {"a": 2, "b": None}), ("insert", {"a": 1, "b": 5}),
    ]  # fmt: skip
    assert len({lsn for lsn, _, _ in changes}) == 1
    feed.apply()
    feed.check()
    assert feed.resets == 1


def test_what_comes_and_goes_is_nothing(db: Database, keeper: FeedMaintainer) -> None:
    feed = consumer(db, keeper)
    db.sql("INSERT INTO s VALUES (1, 1, 7)")
    db.sql("DELETE FROM s")
    assert feed.read() == []
    db.sql("INSERT INTO s VALUES (1, 1, 7)")
    db.sql("UPDATE s SET __pgt_row_id = 9")  # the identity is ours alone
    assert [(action, row) for _, action, row in feed.read()] == [("insert", {"a": 1, "b": 1})]


def test_the_same_again_until_it_is_acknowledged(db: Database, keeper: FeedMaintainer) -> None:
    feed = consumer(db, keeper)
    db.sql("INSERT INTO s VALUES (1, 1, 7)")
    first = feed.read()
    db.sql("INSERT INTO s VALUES (2, 2, 8)")
    feed.conn.close()  # it dies between read and acknowledge
    feed.conn = db.connect()
    assert feed.read() == first
    assert feed.acknowledge(first[0][0])
    assert not feed.acknowledge(first[0][0])  # said twice
    second = feed.read()
    assert [row for _, _, row in second] == [{"a": 2, "b": 2}]
    with pytest.raises(psycopg.errors.InvalidParameterValue, match="not the lsn of the last read of subscriber 'c'"):
        feed.acknowledge("FFFFFFFF/0")
    assert not feed.acknowledge(first[0][0])
    assert feed.acknowledge(second[0][0])


def test_what_was_read_in_a_transaction_that_failed_comes_again(db: Database, keeper: FeedMaintainer) -> None:
    feed = consumer(db, keeper)
    db.sql("INSERT INTO s VALUES (1, 1, 7)")
    with feed.conn.transaction(force_rollback=True):
        ((lsn, _, _),) = feed.read()
        assert feed.acknowledge(lsn)
    assert feed.apply() == 1
    feed.check()


def test_a_transaction_that_commits_late_is_not_lost(db: Database, keeper: FeedMaintainer) -> None:
    feed = consumer(db, keeper)
    late = db.connect(autocommit=False)
    late.execute("INSERT INTO s VALUES (1, 1, 7)")
    db.sql("INSERT INTO s VALUES (2, 2, 8)")
    assert feed.apply() == 1
    late.commit()
    db.sql("INSERT INTO s VALUES (3, 3, 9)")
    assert feed.apply(1) == 1  # cut short: a cut with a gap below what it has seen
    assert feed.catch_up(1) == 1
    feed.check()


def test_long_windows_are_cut_between_transactions(db: Database, keeper: FeedMaintainer) -> None:
    feed = consumer(db, keeper)
    for i in range(10):
        db.sql("INSERT INTO s SELECT %s, g, g FROM generate_series(1, 3) AS g", i)
    open_one = db.connect(autocommit=False)
    open_one.execute("INSERT INTO s VALUES (99, 1, 1)")
    db.sql("INSERT INTO s VALUES (100, 1, 1)")
    assert feed.apply(7) == 6
    assert feed.apply(2) == 3  # a transaction is not cut
    open_one.commit()
    assert feed.catch_up(7) == 4
    feed.check()


def test_random_changes_in_concurrent_transactions(db: Database, keeper: FeedMaintainer) -> None:
    chance = random.Random(4)
    quick, slow = consumer(db, keeper, "quick"), consumer(db, keeper, "slow", "copy2")
    writers = [db.connect(autocommit=False) for _ in range(3)]
    with connect(db.dsn, role="test", autocommit=True) as maintenance:
        for _ in range(60):
            writer = chance.choice(writers)
            what = chance.choice(("insert", "insert", "delete", "update"))
            value = chance.randrange(6)
            if what == "insert":
                writer.execute("INSERT INTO s VALUES (%s, %s, 1)", (value, chance.choice((None, value))))
            else:
                place = "ctid = ANY (ARRAY(SELECT ctid FROM s WHERE a = %s FOR UPDATE SKIP LOCKED LIMIT 1))"
                change = "DELETE FROM s" if what == "delete" else "UPDATE s SET b = coalesce(b, 0) + 1"
                writer.execute(f"{change} WHERE {place}", (value,))
            for each in writers:
                if chance.random() < 0.3:
                    each.commit() if chance.random() < 0.8 else each.rollback()
            if chance.random() < 0.4:
                quick.apply(chance.choice((1, 3, 10_000)))
            if chance.random() < 0.1:
                slow.apply(chance.choice((1, 5, 10_000)))
            if chance.random() < 0.3:
                trim_all(maintenance)
                Compactor().round(maintenance, 1)
        for each in writers:
            each.commit()
    for feed in (quick, slow):
        feed.catch_up(chance.choice((2, 10_000)))
        feed.check()
        assert feed.resets == 1


VALUES = """
    SELECT v.* FROM (VALUES
        (1::int8, '1.50'::numeric, '-0'::float8, 'a "b" \\ é'::text, '\\x00ff'::bytea,
         '2024-02-29 13:00:00.123456+02'::timestamptz,
         '1 mon 2 days 03:04:05'::interval, '{1,NULL,3}'::int[], '[2:3]={x,y}'::text[], '{"k": [1, 2.00]}'::jsonb,
         '{"k" :  1}'::json, 'f'::bool, '[1,5)'::int4range, 'x  '::char(3), '{NaN,Infinity}'::float8[], 'NaN'::numeric,
         '0044-03-15 BC'::date),
        (NULL, NULL, 'Infinity', '', NULL, '-infinity', NULL, '{}', '{"a,b","",NULL}', '"s"',
         '[]', NULL, 'empty', NULL, NULL, 1e-20, NULL)
    ) AS v (i, n, f, x, y, t, p, l, m, j, k, o, r, c, d, e, z)
"""


def test_values_come_back_to_the_byte(db: Database, keeper: FeedMaintainer) -> None:
    loaded(db, create(db, "v", "SELECT NULL::t AS comp, * FROM (" + VALUES.strip() + ") AS q"))
    db.sql("CREATE TABLE vcopy AS SELECT NULL::t AS comp, * FROM (" + VALUES.strip() + ") AS q WHERE false")
    db.sql("INSERT INTO v SELECT ROW(1, NULL)::t, q.*, 1 FROM (" + VALUES.strip() + ") AS q")
    feed = consumer(db, keeper, table="v", copy="vcopy")
    db.sql("INSERT INTO v SELECT v.* FROM v; UPDATE v SET __pgt_row_id = 3; DELETE FROM v WHERE i = 1")
    feed.catch_up()
    feed.check()
    assert feed.resets == 1
    feed.conn.execute("SET datestyle = 'German'; SET intervalstyle = 'sql_standard'; SET timezone = 'Asia/Tokyo'")
    db.sql("INSERT INTO v SELECT v.* FROM v")
    feed.catch_up()
    feed.check()


# -- what makes a consumer start over


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        ("TRUNCATE s; INSERT INTO s VALUES (9, 9, 9)", "truncated"),
        ("ALTER TABLE s DISABLE TRIGGER USER; INSERT INTO s VALUES (9, 9, 9); ALTER TABLE s ENABLE TRIGGER USER",
         "changed"),
        ("ALTER TABLE s ALTER a TYPE bigint; INSERT INTO s VALUES (9, 9, 9)", "changed"),
        ("DROP TABLE s; SELECT pgtrickle.repair_stream_table('s')", "changed"),
    ],
)  # fmt: skip
def test_it_starts_over_when_changes_are_not_known(
    db: Database, keeper: FeedMaintainer, change: str, reason: str
) -> None:
    feed = consumer(db, keeper)
    db.sql("INSERT INTO s VALUES (1, 1, 1)")
    db.sql(change)
    db.sql("UPDATE pgtrickle.pgt_stream_tables SET is_populated = true")  # loaded again, where it was created again
    turn(keeper)
    begun = feed.read()
    assert begun[0][1] == "reset"
    assert reason in begun[0][2]["reason"]
    again = feed.read()
    assert again[0] == begun[0]
    assert sorted(again, key=str) == sorted(begun, key=str)
    assert feed.acknowledge(again[0][0])
    db.sql("INSERT INTO s VALUES (10, 10, 10)")
    assert [(a, r) for _, a, r in feed.read()] == [("insert", {"a": 10, "b": 10})]


def test_a_reset_comes_again_as_it_was(db: Database, keeper: FeedMaintainer) -> None:
    db.sql("INSERT INTO s VALUES (1, 1, 7), (1, 1, 7), (2, NULL, 8)")
    feed = Consumer(db.connect(), "s", "c", "copy")
    turn(keeper)
    begun = feed.read()
    assert [row for _, _, row in begun[1:]] == [{"a": 1, "b": 1}, {"a": 1, "b": 1}, {"a": 2, "b": None}]
    late = db.connect(autocommit=False)
    late.execute("INSERT INTO s VALUES (1, 1, 7)")
    db.sql("DELETE FROM s WHERE ctid = (SELECT min(ctid) FROM s); UPDATE s SET b = 5 WHERE a = 2")
    assert sorted(feed.read(), key=str) == sorted(begun, key=str)
    late.commit()
    assert sorted(feed.read(), key=str) == sorted(begun, key=str)
    assert feed.apply() == 4  # the reset, acknowledged
    feed.catch_up()
    feed.check()
    assert feed.resets == 1


def test_a_reset_of_a_truncated_table_is_another(db: Database, keeper: FeedMaintainer) -> None:
    db.sql("INSERT INTO s VALUES (1, 1, 7)")
    feed = Consumer(db.connect(), "s", "c", "copy")
    turn(keeper)
    begun = feed.read()
    db.sql("TRUNCATE s; INSERT INTO s VALUES (3, 3, 3)")
    again = feed.read()
    assert [row for _, _, row in again[1:]] == [{"a": 3, "b": 3}]
    with pytest.raises(psycopg.errors.InvalidParameterValue):
        feed.acknowledge(begun[0][0])
    assert feed.acknowledge(again[0][0])


def test_a_consumer_can_ask_for_its_position(db: Database, keeper: FeedMaintainer, make_role: MakeRole) -> None:
    feed = Consumer(db.connect(), "s", "c", "copy")
    position = "SELECT lsn::text, acknowledged_at IS NOT NULL FROM pgtrickle.subscriber_position('s', 'c')"
    assert db.sql(position) == [(None, False)]
    turn(keeper)
    (reset,) = feed.read()
    assert db.sql(position) == [(None, False)]  # offered is not acknowledged
    feed.acknowledge(reset[0])
    assert db.sql(position) == [(reset[0], True)]
    db.sql("INSERT INTO s VALUES (1, 1, 7)")
    db.sql("DELETE FROM s")
    assert feed.read() == []
    assert db.sql(position) == [(reset[0], True)]  # nothing came, and nothing was acknowledged
    with pytest.raises(psycopg.errors.InsufficientPrivilege):
        make_role(db).execute(position)


def test_nothing_is_given_while_a_trigger_is_missing(db: Database, keeper: FeedMaintainer) -> None:
    feed = consumer(db, keeper)
    ((trigger,),) = db.sql("SELECT tgname FROM pg_trigger WHERE tgrelid = 's'::regclass AND tgname ~ '_i$'")
    db.sql(f"DROP TRIGGER {trigger} ON s")
    db.sql("INSERT INTO s VALUES (1, 1, 1)")
    assert feed.read() == []
    turn(keeper)
    feed.catch_up()
    feed.check()
    assert feed.resets == 2


def test_a_position_of_another_server_means_nothing(db: Database, keeper: FeedMaintainer, conn: Connection) -> None:
    feed = consumer(db, keeper)
    db.sql("UPDATE pgtrickle.pgt_subscribers SET origin = '1/1', feed = 'other', snapshot = '9000000:9000000:'")
    db.sql("INSERT INTO s VALUES (1, 1, 1)")
    trim_all(conn)
    assert buffered(db) == 1
    feed.catch_up()
    feed.check()
    assert feed.resets == 2


# -- what is kept for whom


def test_nothing_goes_before_the_slowest_has_acknowledged_it(
    db: Database, keeper: FeedMaintainer, conn: Connection
) -> None:
    quick, slow = consumer(db, keeper, "quick"), consumer(db, keeper, "slow", "copy2")
    db.sql("INSERT INTO s VALUES (1, 1, 7)")
    quick.apply()
    lsn = slow.read()[0][0]  # offered is not acknowledged
    trim_all(conn)
    assert buffered(db) == 1
    assert db.sql("SELECT stream_table, pending_rows FROM pgtrickle.change_buffer_sizes() ORDER BY 1") == [
        ("subscriber quick", 0), ("subscriber slow", 1)
    ]  # fmt: skip
    slow.acknowledge(lsn)
    trim_all(conn)
    assert buffered(db) == 0


def test_a_dead_subscriber_is_dropped_and_capture_goes_with_the_last(
    db: Database, keeper: FeedMaintainer, conn: Connection
) -> None:
    feed = consumer(db, keeper)
    dead = consumer(db, keeper, 'it\'s; "dead"', "copy2")
    db.sql("INSERT INTO s VALUES (1, 1, 7)")
    feed.apply()
    trim_all(conn)
    assert buffered(db) == 1
    assert collect_garbage(conn) == []
    db.sql("SELECT pgtrickle.drop_subscriber('s', %s)", dead.name)
    trim_all(conn)
    assert buffered(db) == 0
    db.sql("SELECT pgtrickle.drop_subscriber('s', 'c')")
    assert len(collect_garbage(conn)) == 1
    with pytest.raises(psycopg.errors.UndefinedObject, match="has no subscriber 'c'"):
        feed.read()


def test_netting_leaves_what_was_offered(db: Database, keeper: FeedMaintainer, conn: Connection) -> None:
    feed = consumer(db, keeper)
    db.sql("INSERT INTO s VALUES (1, 0, 7)")
    for i in range(5):
        db.sql("UPDATE s SET b = %s", i + 1)
    offered = feed.read()
    for i in range(5):
        db.sql("UPDATE s SET b = %s", -i)
    assert sum(Compactor().round(conn, 1).values()) == 10 + 8
    assert feed.read() == offered
    assert feed.acknowledge(offered[0][0])
    assert [(a, r["b"]) for _, a, r in feed.read()] == [("delete", 5), ("insert", -4)]


def reads_as(db: Database, keeper: FeedMaintainer, role: psycopg.Connection[Any]) -> Consumer:
    """A consumer that can write no cut of its own, so that netting does not wait for its transactions."""
    role.execute("SET search_path = public")
    db.sql(f"GRANT SELECT ON s TO {role.info.user}; GRANT ALL ON copy TO {role.info.user}")
    return consumer(db, keeper, conn=role)


def test_netting_leaves_a_buffer_alone_that_is_being_read(
    db: Database, keeper: FeedMaintainer, conn: Connection, make_role: MakeRole
) -> None:
    feed = reads_as(db, keeper, make_role(db))
    db.sql("INSERT INTO s VALUES (1, 0, 7)")
    db.sql("UPDATE s SET b = 1")
    with feed.conn.transaction():
        feed.conn.execute("SELECT count(*) FROM pgtrickle.read_changes('s', 'c')")
        assert Compactor().round(conn, 1) == {}
    assert buffered(db) == 3
    assert sum(Compactor().round(conn, 1).values()) == 2
    assert db.sql("SELECT netted FROM pgtrickle.pgt_subscribers") == [(None,)]
    feed.catch_up()
    feed.check()


def test_an_old_snapshot_cannot_offer_what_has_been_netted(
    db: Database, keeper: FeedMaintainer, conn: Connection, make_role: MakeRole
) -> None:
    feed = reads_as(db, keeper, make_role(db))
    db.sql("INSERT INTO s VALUES (1, 0, 7)")
    feed.conn.execute("BEGIN ISOLATION LEVEL REPEATABLE READ")
    feed.conn.execute("SELECT 1")
    db.sql("DELETE FROM s")
    assert sum(Compactor().round(conn, 1).values()) == 2
    with pytest.raises(psycopg.errors.SerializationFailure):
        feed.read()
    feed.conn.rollback()
    feed.catch_up()
    feed.check()


def test_windows_are_not_cut_short_before_what_is_being_netted(db: Database, keeper: FeedMaintainer) -> None:
    feed = consumer(db, keeper)
    for i in range(4):
        db.sql("INSERT INTO s VALUES (%s, 0, 7)", i)
    db.sql("UPDATE pgtrickle.pgt_subscribers SET netted = pg_snapshot_xmin(pg_current_snapshot())")
    db.sql("INSERT INTO s VALUES (9, 0, 7)")
    assert len(feed.read(1)) == 4


def test_a_subscriber_is_read_after_its_transaction(db: Database, keeper: FeedMaintainer) -> None:
    consumer(db, keeper)
    other = db.connect(autocommit=False)
    other.execute("SELECT pgtrickle.create_subscriber('s', 'new')")
    with pytest.raises(psycopg.errors.ObjectNotInPrerequisiteState, match="Commit first"):
        other.execute("SELECT * FROM pgtrickle.read_changes('s', 'new')")


# -- lag


def test_subscribers_shows_position_and_lag(db: Database, keeper: FeedMaintainer) -> None:
    feed = consumer(db, keeper)
    shown = "SELECT kind, stream_table, subscriber, pending_rows, active, lag_bytes FROM pgtrickle.subscribers()"
    assert db.sql(shown) == [("pull", "public.s", "c", 0, True, 0)]
    db.sql("INSERT INTO s VALUES (1, 1, 7)")
    db.sql("CREATE TABLE other AS SELECT generate_series(1, 10000)")
    ((*_, pending, _, lag),) = db.sql(shown)
    assert pending == 1
    assert lag > 100_000
    feed.apply()
    assert db.sql(shown) == [("pull", "public.s", "c", 0, True, 0)]
    assert db.sql("SELECT lsn <= pg_current_wal_insert_lsn() FROM pgtrickle.subscribers()") == [(True,)]


def test_lag_is_told_when_it_begins_and_not_too_often(db: Database, keeper: FeedMaintainer) -> None:
    feed = consumer(db, keeper)
    listener = db.connect()
    listener.execute("LISTEN pg_trickle_alert")

    def drain() -> list[dict[str, Any]]:
        return [json.loads(n.payload) for n in listener.notifies(timeout=0.2)]

    turn(keeper, 1000)
    assert drain() == []
    db.sql("INSERT INTO s VALUES (1, 1, 7)")
    db.sql("CREATE TABLE other AS SELECT generate_series(1, 10000)")
    turn(keeper, 0)
    turn(keeper, 1_000_000_000)
    assert drain() == []
    turn(keeper, 1000, 1.0)
    (alert,) = drain()
    assert (alert["event"], alert["table"], alert["subscriber"]) == ("subscriber_lag", "public.s", "c")
    assert alert["bytes"] > 1000
    assert "subscriber c is" in alert["detail"]
    turn(keeper, 1000, 200.0)
    assert drain() == []
    turn(keeper, 1000, 400.0)
    assert len(drain()) == 1
    db.sql("SELECT pgtrickle.set_option('publication_lag_warn_lsn', '1000')")
    check = "SELECT severity, detail FROM pgtrickle.health_check() WHERE check_name = 'subscribers'"
    ((severity, detail),) = db.sql(check)
    assert severity == "WARN"
    assert "c of public.s is" in detail
    feed.apply()
    turn(keeper, 1000, 401.0)
    assert db.sql(check)[0][0] == "OK"
    assert drain() == []


# -- rights and names


def test_only_who_may_read_the_table_reads_its_feed(db: Database, keeper: FeedMaintainer, make_role: MakeRole) -> None:
    feed = consumer(db, keeper)
    other = make_role(db)
    other.execute("SET search_path = public")
    for call in ("create_subscriber('s', 'x')", "read_changes('s', 'c')"):
        with pytest.raises(psycopg.errors.InsufficientPrivilege, match="permission denied for the change feed"):
            other.execute(f"SELECT pgtrickle.{call}")
    for call in (
        "drop_subscriber('s', 'c')",
        "acknowledge_changes('s', 'c', '0/1')",
        "stream_table_to_publication('s')",
    ):
        with pytest.raises(psycopg.errors.InsufficientPrivilege, match="must be the creator"):
            other.execute(f"SELECT pgtrickle.{call}")
    assert other.execute("SELECT * FROM pgtrickle.subscribers()").fetchall() == []
    db.sql(f"GRANT SELECT ON s TO {other.info.user}")
    with pytest.raises(psycopg.errors.InsufficientPrivilege, match="must be the creator of subscriber 'c'"):
        other.execute("SELECT pgtrickle.read_changes('s', 'c')")
    db.sql("CREATE SCHEMA own")
    db.sql(f"GRANT ALL ON SCHEMA own TO {other.info.user}")
    other.execute("CREATE TABLE own.copy (a int, b int)")
    mine = Consumer(other, "s", "mine", "own.copy")
    db.sql("INSERT INTO s VALUES (1, 1, 7)")
    mine.catch_up()
    mine.check()
    assert len(other.execute("SELECT * FROM pgtrickle.subscribers()").fetchall()) == 2
    db.sql("ALTER TABLE s ENABLE ROW LEVEL SECURITY; CREATE POLICY p ON s USING (a > 1)")
    with pytest.raises(psycopg.errors.InsufficientPrivilege, match="row security"):
        mine.read()
    db.sql(f"ALTER TABLE s DISABLE ROW LEVEL SECURITY; REVOKE SELECT ON s FROM {other.info.user}")
    with pytest.raises(psycopg.errors.InsufficientPrivilege, match="permission denied"):
        mine.read()
    feed.catch_up()
    feed.check()
    db.sql("SELECT pgtrickle.drop_subscriber('s', 'mine')")  # the creator of the table is rid of it


def test_odd_names(db: Database, keeper: FeedMaintainer) -> None:
    db.sql('CREATE SCHEMA "od;d"')
    loaded(db, create(db, '"od;d"."s"" %s"', 'SELECT a AS "a b%", b AS "c""\'d;" FROM t'))
    db.sql('CREATE TABLE "c;opy" ("a b%" int, "c""\'d;" int)')
    db.sql('INSERT INTO "od;d"."s"" %s" VALUES (1, 2, 3)')
    feed = consumer(db, keeper, "'; DROP TABLE t; --", '"c;opy"', '"od;d"."s"" %s"')
    db.sql('UPDATE "od;d"."s"" %s" SET "a b%" = 5')
    feed.catch_up()
    feed.check()


def test_what_is_not_there_is_refused(db: Database, keeper: FeedMaintainer) -> None:
    consumer(db, keeper)
    for call, error in {
        "create_subscriber('s', 'c')": psycopg.errors.DuplicateObject,
        "create_subscriber('s', ' ')": psycopg.errors.InvalidName,
        "create_subscriber('none', 'c')": psycopg.errors.UndefinedTable,
        "read_changes('s', 'x')": psycopg.errors.UndefinedObject,
        "read_changes('s', 'c', 0)": psycopg.errors.InvalidParameterValue,
        "drop_subscriber('s', 'x')": psycopg.errors.UndefinedObject,
    }.items():
        with pytest.raises(error):
            db.sql(f"SELECT pgtrickle.{call}")


def test_a_dropped_stream_table_takes_its_subscribers_along(
    db: Database, keeper: FeedMaintainer, conn: Connection
) -> None:
    feed = consumer(db, keeper)
    db.sql("SELECT pgtrickle.drop_stream_table('s')")
    assert db.sql("SELECT count(*) FROM pgtrickle.pgt_subscribers") == [(0,)]
    assert len(collect_garbage(conn)) == 1
    with pytest.raises(psycopg.errors.UndefinedTable):
        feed.read()
