"""Capture sees every way to write: replaying the buffer over an earlier copy gives the table, as a bag."""

from __future__ import annotations

import threading
import time
from collections import Counter
from collections.abc import Iterator
from typing import Any

import psycopg
import pytest

from pgtrickle.capture.fingerprint import fingerprints, fingerprints_for_others
from pgtrickle.capture.install import collect_garbage, ensure_capture
from pgtrickle.db import Connection, connect
from pgtrickle.errors import InvariantError, SourceChangedError, TransientError
from pgtrickle.model.fingerprint import unchanged
from tests.conftest import Database


class Source:
    """A captured table, a copy of it from when capture began, and the replay that must lead from one to the other."""

    def __init__(self, conn: Connection, table: str, attnums: list[int] | None = None) -> None:
        self.conn, self.table = conn, table
        row = conn.execute("SELECT %s::regclass::oid::int8", [table]).fetchone()
        assert row is not None
        self.relid = int(row[0])
        self.columns = conn.execute(
            "SELECT attnum, quote_ident(attname) FROM pg_attribute "
            "WHERE attrelid = %s AND attnum > 0 AND NOT attisdropped ORDER BY attnum",
            [self.relid],
        ).fetchall()
        self.attnums = [a for a, _ in self.columns] if attnums is None else attnums
        assert ensure_capture(conn, self.relid, self.attnums)
        assert not ensure_capture(conn, self.relid, self.attnums)
        self.before = self.content()

    def content(self) -> Counter[tuple[Any, ...]]:
        names = ", ".join(f"{name}::text" for a, name in self.columns if a in self.attnums)
        return Counter(self.conn.execute(f"SELECT {names} FROM {self.table}").fetchall())

    def images(self) -> list[tuple[Any, ...]]:
        names = "".join(f", c{a}::text" for a in self.attnums)
        return self.conn.execute(f"SELECT action::text{names} FROM pgtrickle_changes.changes_{self.relid}").fetchall()

    def check(self, *, changes: int | None = None) -> None:
        replayed = Counter(self.before)
        images = self.images()
        for action, *row in images:
            assert action in "ID"
            replayed[tuple(row)] += 1 if action == "I" else -1
        assert all(weight >= 0 for weight in replayed.values())
        assert +replayed == self.content()
        if changes is not None:
            assert len(images) == changes


@pytest.fixture
def conn(installed: Database) -> Iterator[Connection]:
    with connect(installed.dsn, role="test", autocommit=True) as connection:
        connection.execute("SET search_path = public")
        yield connection


@pytest.fixture
def super_conn(installed: Database) -> psycopg.Connection[Any]:
    return installed.connect(superuser=True)


def test_capture_sees_insert_update_delete_with_duplicates_and_nulls(conn: Connection) -> None:
    conn.execute("CREATE TABLE t (a int, b text)")
    conn.execute("INSERT INTO t VALUES (1, 'x'), (1, 'x'), (NULL, NULL)")
    source = Source(conn, "t")
    conn.execute("INSERT INTO t VALUES (1, 'x'), (2, NULL), (NULL, NULL)")
    conn.execute("UPDATE t SET b = 'y' WHERE a = 1")
    conn.execute("DELETE FROM t WHERE a IS NULL")
    conn.execute("DELETE FROM t WHERE false")
    source.check(changes=3 + 6 + 2)


def test_capture_takes_only_the_columns_asked_for(conn: Connection) -> None:
    conn.execute("CREATE TABLE t (a int, b text, c int)")
    source = Source(conn, "t", [3])
    conn.execute("INSERT INTO t VALUES (1, 'x', 7)")
    source.check(changes=1)
    assert ensure_capture(conn, source.relid, [1])
    assert not ensure_capture(conn, source.relid, [3, 1])
    conn.execute("INSERT INTO t VALUES (2, 'y', 8)")
    assert conn.execute(f"SELECT c1, c3 FROM pgtrickle_changes.changes_{source.relid}").fetchall() == [
        (None, 7),
        (2, 8),
    ]


def test_capture_of_no_columns_counts_rows(conn: Connection) -> None:
    conn.execute("CREATE TABLE t (a int)")
    source = Source(conn, "t", [])
    conn.execute("INSERT INTO t SELECT generate_series(1, 3)")
    conn.execute("DELETE FROM t WHERE a = 1")
    assert Counter(source.images()) == {("I",): 3, ("D",): 1}


def test_capture_survives_odd_names_types_and_dropped_columns(conn: Connection) -> None:
    conn.execute('CREATE SCHEMA "Odd Schema"; CREATE DOMAIN positive AS int CHECK (VALUE > 0)')
    conn.execute("CREATE TYPE mood AS ENUM ('fine', 'bad'); CREATE TYPE pair AS (x int, y text)")
    conn.execute(
        'CREATE TABLE "Odd Schema"."Sel""ect" ("order" int GENERATED ALWAYS AS IDENTITY, gone int, '
        '"a\\b" text, "Q\'u" varchar(5), '
        '"x.y" char(4), "{z}" bit(3), d positive, m mood, p pair, arr mood[], j jsonb, '
        "n numeric(10, 2), i interval(0), "
        's int GENERATED ALWAYS AS (1 + 1) STORED, c text COLLATE "C", "pgt_new" int, "xid" int)'
    )
    conn.execute('ALTER TABLE "Odd Schema"."Sel""ect" DROP COLUMN gone')
    source = Source(conn, '"Odd Schema"."Sel""ect"')
    for value in ("fine", "bad"):
        conn.execute(
            'INSERT INTO "Odd Schema"."Sel""ect" ("a\\b", "Q\'u", "x.y", "{z}", d, m, p, arr, j, n, i, c, '
            '"pgt_new", "xid") '
            "VALUES ('\\', 'abc', 'ab', '101', 3, %s, (1, 'z'), '{fine,NULL}', '{\"k\": 1}', 1.50, '90 s', 'ü', 5, 6)",
            [value],
        )
    conn.execute('UPDATE "Odd Schema"."Sel""ect" SET "Q\'u" = NULL, d = 9 WHERE "order" = 1')
    source.check(changes=4)


def test_capture_of_many_columns(conn: Connection) -> None:
    conn.execute("CREATE TABLE wide (" + ", ".join(f"c{i} int" for i in range(1, 301)) + ")")
    source = Source(conn, "wide")
    conn.execute("INSERT INTO wide (c1, c300) VALUES (1, 2), (3, 4)")
    conn.execute("UPDATE wide SET c150 = 5")
    source.check(changes=6)


def test_capture_sees_copy_upsert_merge_and_writable_ctes(conn: Connection) -> None:
    if conn.info.server_version < 150000:
        pytest.skip("MERGE: since PostgreSQL 15")
    conn.execute(
        "CREATE TABLE t (id int PRIMARY KEY, v int); INSERT INTO t SELECT g, g FROM generate_series(1, 5) AS g"
    )
    source = Source(conn, "t")
    with conn.cursor().copy("COPY t FROM STDIN") as copy:
        copy.write_row((6, 6))
        copy.write_row((7, None))
    conn.execute("INSERT INTO t VALUES (1, 10), (8, 8) ON CONFLICT (id) DO UPDATE SET v = EXCLUDED.v")
    conn.execute("INSERT INTO t VALUES (1, 11) ON CONFLICT DO NOTHING")
    conn.execute(
        "MERGE INTO t USING (VALUES (2, 20), (3, NULL), (9, 9)) AS s(id, v) ON t.id = s.id "
        "WHEN MATCHED AND s.v IS NULL THEN DELETE WHEN MATCHED THEN UPDATE SET v = s.v WHEN NOT "
        "MATCHED THEN INSERT VALUES (s.id, s.v)"
    )
    conn.execute(
        "WITH d AS (DELETE FROM t WHERE id = 4 RETURNING *), i AS (INSERT INTO t SELECT id + 100, v FROM d), "
        "u AS (UPDATE t SET v = -1 WHERE id = 5) SELECT"
    )
    source.check()


def test_capture_sees_foreign_key_cascades(conn: Connection) -> None:
    conn.execute("CREATE TABLE parent (id int PRIMARY KEY); INSERT INTO parent VALUES (1), (2), (3)")
    conn.execute(
        "CREATE TABLE child (id int, p int REFERENCES parent ON DELETE CASCADE ON UPDATE CASCADE, "
        "q int REFERENCES parent ON DELETE SET NULL ON UPDATE CASCADE)"
    )
    conn.execute("INSERT INTO child VALUES (1, 1, 2), (2, 2, 3), (3, 3, 3), (4, 3, 1)")
    source = Source(conn, "child")
    conn.execute("DELETE FROM parent WHERE id IN (1, 2)")
    conn.execute("UPDATE parent SET id = 30 WHERE id = 3")
    source.check()


def test_capture_forgets_what_is_rolled_back(conn: Connection) -> None:
    conn.execute("CREATE TABLE t (a int)")
    source = Source(conn, "t")
    with conn.transaction():
        conn.execute("INSERT INTO t VALUES (1)")
        with conn.transaction(force_rollback=True):
            conn.execute("INSERT INTO t VALUES (2)")
        conn.execute("INSERT INTO t VALUES (3)")
    with conn.transaction(force_rollback=True):
        conn.execute("DELETE FROM t")
    source.check(changes=2)
    assert conn.execute(f"SELECT count(DISTINCT xid) FROM pgtrickle_changes.changes_{source.relid}").fetchone() == (1,)


def test_capture_works_in_replica_sessions_exactly_once(conn: Connection, super_conn: psycopg.Connection[Any]) -> None:
    conn.execute("CREATE TABLE t (id int PRIMARY KEY, v text); INSERT INTO t VALUES (1, 'a'), (2, 'b')")
    source = Source(conn, "t")
    for role in ("origin", "replica", "local", "replica"):
        super_conn.execute(f"SET session_replication_role = {role}")
        super_conn.execute("INSERT INTO t SELECT coalesce(max(id), 0) + 1, 'n' FROM t")
        super_conn.execute("UPDATE t SET v = v || 'x'")
        super_conn.execute("DELETE FROM t WHERE id = (SELECT min(id) FROM t)")
    source.check()


@pytest.mark.parametrize("role", ["origin", "replica"])
def test_capture_of_partitions_sees_root_and_leaf(
    conn: Connection, super_conn: psycopg.Connection[Any], role: str
) -> None:
    conn.execute("CREATE TABLE p (id int, k int, v text) PARTITION BY RANGE (k)")
    conn.execute("CREATE TABLE p1 (v text, junk int, k int, id int)")
    conn.execute("ALTER TABLE p1 DROP COLUMN junk; ALTER TABLE p ATTACH PARTITION p1 FOR VALUES FROM (0) TO (10)")
    conn.execute("CREATE TABLE p2 PARTITION OF p FOR VALUES FROM (10) TO (20) PARTITION BY LIST (id)")
    conn.execute("CREATE TABLE p2d PARTITION OF p2 DEFAULT; INSERT INTO p VALUES (1, 1, 'a'), (2, 11, 'b')")
    source = Source(conn, "p")
    super_conn.execute(f"SET session_replication_role = {role}")
    super_conn.execute("INSERT INTO p VALUES (3, 2, 'c'), (4, 12, 'd')")
    super_conn.execute("INSERT INTO p1 (id, k, v) VALUES (5, 3, 'e')")
    super_conn.execute("INSERT INTO p2d VALUES (6, 13, 'f')")
    super_conn.execute("INSERT INTO p2 VALUES (7, 14, 'g')")
    super_conn.execute("UPDATE p SET k = k + 9 WHERE k < 10")
    super_conn.execute("UPDATE p2d SET v = v || '!'")
    super_conn.execute("DELETE FROM p1")
    super_conn.execute("DELETE FROM p WHERE id = 4")
    source.check()


def test_capture_follows_partitions_that_come_and_go(conn: Connection) -> None:
    conn.execute(
        "CREATE TABLE p (k int, v text) PARTITION BY LIST (k); CREATE TABLE p1 PARTITION OF p FOR VALUES IN (1)"
    )
    source = Source(conn, "p")
    first = fingerprints(conn, [source.relid])[source.relid]
    conn.execute("CREATE TABLE p2 PARTITION OF p FOR VALUES IN (2)")
    second = fingerprints(conn, [source.relid])[source.relid]
    assert not unchanged(first, second, source.attnums)
    assert ensure_capture(conn, source.relid, [])
    source.before = source.content()
    conn.execute("INSERT INTO p2 VALUES (2, 'leaf')")
    source.check(changes=1)
    conn.execute("ALTER TABLE p DETACH PARTITION p1; ALTER TABLE p1 DROP COLUMN v")
    third = fingerprints(conn, [source.relid])[source.relid]
    assert not unchanged(second, third, source.attnums)
    conn.execute("INSERT INTO p1 VALUES (1)")  # must not fail, must not look like a row of p
    assert ("T", None, None) in source.images()
    assert ensure_capture(conn, source.relid, [])
    conn.execute(f"DELETE FROM pgtrickle_changes.changes_{source.relid}")
    conn.execute("INSERT INTO p1 VALUES (1)")
    assert source.images() == []
    assert conn.execute("SELECT count(*) FROM pg_trigger WHERE tgrelid = 'p1'::regclass").fetchone() == (0,)


def test_capture_of_inheritance_children(conn: Connection) -> None:
    conn.execute("CREATE TABLE base (id int, v text); CREATE TABLE kid (extra int) INHERITS (base)")
    source = Source(conn, "base")
    conn.execute("INSERT INTO base VALUES (1, 'a'); INSERT INTO kid VALUES (2, 'b', 9)")
    conn.execute("UPDATE base SET v = v || 'x'; UPDATE kid SET extra = 1; DELETE FROM base WHERE id = 2")
    source.check()


def test_truncate_leaves_a_marker(conn: Connection, super_conn: psycopg.Connection[Any]) -> None:
    conn.execute("CREATE TABLE t (a int); INSERT INTO t VALUES (1)")
    source = Source(conn, "t")
    conn.execute("TRUNCATE t")
    super_conn.execute("SET session_replication_role = replica")
    super_conn.execute("TRUNCATE t")
    assert source.images() == [("T", None), ("T", None)]


def test_writer_needs_no_privilege_on_our_schemas(conn: Connection, super_conn: psycopg.Connection[Any]) -> None:
    conn.execute("CREATE TABLE t (a int)")
    source = Source(conn, "t")
    super_conn.execute(
        "DROP ROLE IF EXISTS capture_writer; CREATE ROLE capture_writer; GRANT INSERT ON t TO capture_writer"
    )
    try:
        super_conn.execute("SET ROLE capture_writer")
        super_conn.execute("INSERT INTO t VALUES (1)")
        with pytest.raises(psycopg.errors.InsufficientPrivilege):
            super_conn.execute(f"SELECT * FROM pgtrickle_changes.changes_{source.relid}")
        super_conn.execute("RESET ROLE")
        source.check(changes=1)
    finally:
        super_conn.execute("RESET ROLE; DROP OWNED BY capture_writer; DROP ROLE capture_writer")


@pytest.mark.parametrize(
    "ddl",
    [
        "ALTER TABLE t RENAME COLUMN b TO z",
        "ALTER TABLE t DROP COLUMN b",
        "ALTER TABLE t ALTER COLUMN b TYPE int USING 1",
        "ALTER TABLE t ALTER COLUMN b TYPE varchar(3)",
        "ALTER TABLE t ALTER COLUMN a TYPE bigint",
        "ALTER TABLE t ALTER COLUMN a TYPE int USING a + 1",
        "ALTER TABLE t RENAME COLUMN b TO z; ALTER TABLE t RENAME COLUMN a TO b; ALTER TABLE t RENAME COLUMN z TO a",
        "ALTER TABLE t DISABLE TRIGGER ALL; ALTER TABLE t ENABLE TRIGGER ALL",
        "ALTER TABLE t DISABLE TRIGGER ALL",
    ],
)
def test_ddl_never_fails_writers_and_changes_the_fingerprint(conn: Connection, installed: Database, ddl: str) -> None:
    conn.execute("CREATE TABLE t (id int, a int, b text); INSERT INTO t VALUES (1, 1, 'x')")
    source = Source(conn, "t")
    writer, old_snapshot = installed.connect(), installed.connect(autocommit=False)
    writer.execute("INSERT INTO t (id) VALUES (2)")
    old_snapshot.execute("SET TRANSACTION ISOLATION LEVEL REPEATABLE READ")
    old_snapshot.execute("SELECT 1")
    before = fingerprints(conn, [source.relid])[source.relid]
    conn.execute(ddl)
    writer.execute("INSERT INTO t (id) VALUES (3)")
    old_snapshot.execute("INSERT INTO t (id) VALUES (4)")
    old_snapshot.commit()
    after = fingerprints(conn, [source.relid])[source.relid]
    assert not unchanged(before, after, [1, 2, 3])
    if "TRIGGER" not in ddl:
        assert unchanged(before, after, [1])
    ensure_capture(conn, source.relid, [])
    writer.execute("INSERT INTO t (id) VALUES (5)")
    assert conn.execute(
        f"SELECT count(*) FROM pgtrickle_changes.changes_{source.relid} WHERE c1 = 5 AND action = 'I'"
    ).fetchone() == (1,)


def test_ddl_and_write_in_one_transaction(conn: Connection) -> None:
    conn.execute("CREATE TABLE t (id int, a text)")
    source = Source(conn, "t")
    conn.execute("INSERT INTO t VALUES (1, 'x')")
    with conn.transaction():
        conn.execute("ALTER TABLE t ALTER COLUMN a TYPE int USING 1")
        conn.execute("INSERT INTO t VALUES (2, 2)")
    assert [i[0] for i in source.images()] == ["I", "T"]


@pytest.mark.parametrize(
    "ddl",
    [
        "ALTER TABLE t ADD COLUMN z int DEFAULT 5",
        "CREATE INDEX ON t (a)",
        "ANALYZE t",
        "VACUUM FULL t",
        "ALTER TABLE t RENAME TO t2",
        "ALTER TABLE t ALTER a SET NOT NULL",
        "ALTER TABLE t ALTER a SET DEFAULT 7",
        "ALTER TABLE t ALTER a SET STATISTICS 50",
        "ALTER TABLE t RENAME a TO b; ALTER TABLE t RENAME b TO a",
        "GRANT SELECT (a) ON t TO PUBLIC",
        "CREATE STATISTICS of_t ON a, b2 FROM t",
        "COMMENT ON COLUMN t.a IS 'a comment'",
    ],
)
def test_harmless_ddl_keeps_the_fingerprint(conn: Connection, ddl: str) -> None:
    conn.execute("CREATE TABLE t (a int, b2 int); INSERT INTO t VALUES (1)")
    source = Source(conn, "t")
    before = fingerprints(conn, [source.relid])[source.relid]
    conn.execute(ddl)
    assert unchanged(before, fingerprints(conn, [source.relid])[source.relid], [1])


@pytest.mark.parametrize(
    "ddl",
    [
        "ALTER TABLE t ALTER a TYPE int USING a + 1",
        "ALTER TABLE t ALTER a TYPE bigint; ALTER TABLE t ALTER a TYPE int",
        "ALTER TABLE t ALTER a TYPE text; ALTER TABLE t ALTER a TYPE int USING 1",
        "ALTER TABLE t ALTER note TYPE varchar(3)",
        'ALTER TABLE t ALTER note TYPE text COLLATE "POSIX"',
        "ALTER TABLE t ALTER twice DROP EXPRESSION",
        "ALTER TABLE t RENAME a TO z; ALTER TABLE t RENAME b TO a; ALTER TABLE t RENAME z TO b",
    ],
)
def test_ddl_that_changes_values_or_their_texts_changes_the_fingerprint(conn: Connection, ddl: str) -> None:
    conn.execute(
        "CREATE TABLE t (a int, b int, note text, twice int GENERATED ALWAYS AS (d * 2) STORED, "
        "d int, short varchar(5))"
    )
    conn.execute("INSERT INTO t VALUES (1, 2, 'x', DEFAULT, 4, 'y')")
    source = Source(conn, "t")
    before = fingerprints(conn, [source.relid])[source.relid]
    for each in ddl.split("; "):
        conn.execute(each)
    assert not unchanged(before, fingerprints(conn, [source.relid])[source.relid], [1, 2, 3, 4, 6])


def test_readers_that_go_by_versions_notice_a_default(conn: Connection) -> None:
    conn.execute("CREATE TABLE t (a int)")
    source = Source(conn, "t")
    before = fingerprints_for_others(conn, [source.relid])[source.relid]
    conn.execute("ALTER TABLE t ALTER a SET DEFAULT 1")
    assert not unchanged(before, fingerprints_for_others(conn, [source.relid])[source.relid], [1])


@pytest.mark.parametrize("table", ["t", "t_1", "child"])
@pytest.mark.parametrize("is_replica", [False, True])
def test_writes_while_columns_have_exchanged_their_names_are_reported(
    conn: Connection, installed: Database, table: str, is_replica: bool
) -> None:
    """Afterwards nothing in the catalog shows that they had."""
    if table == "child":
        conn.execute("CREATE TABLE t (id int, a int, b int); CREATE TABLE child (more int) INHERITS (t)")
    else:
        conn.execute("CREATE TABLE t (id int, a int, b int) PARTITION BY RANGE (id)")
        conn.execute("CREATE TABLE t_1 (b int, dropped int, a int, id int); ALTER TABLE t_1 DROP COLUMN dropped")
        conn.execute("ALTER TABLE t ATTACH PARTITION t_1 FOR VALUES FROM (0) TO (9)")
    source = Source(conn, "t")
    exchange = "ALTER TABLE t RENAME a TO z; ALTER TABLE t RENAME b TO a; ALTER TABLE t RENAME z TO b"
    with psycopg.connect(installed.superuser_dsn, autocommit=True) as writer:
        writer.execute(f"SET session_replication_role = {'replica' if is_replica else 'origin'}")
        for number, ddl in enumerate(("SELECT 1", exchange, exchange)):
            conn.execute(ddl)
            for i in range(7):  # the plan is kept from the sixth time on
                writer.execute(f"INSERT INTO {table} (id, a, b) VALUES (%s, %s, %s)", (number, i, 10 + i))
    images = source.images()
    written = [(each[0], each[1]) for each in images]
    assert written == [("I", "0")] * 7 + [("T", None)] * 7 + [("I", "2")] * 7
    assert [each[2:4] for each in images[14:]] == [(str(i), str(10 + i)) for i in range(7)]


def test_widening_leaves_other_readers_alone(conn: Connection) -> None:
    conn.execute("CREATE TABLE t (a int, b int)")
    source = Source(conn, "t", [1])
    before = fingerprints(conn, [source.relid])[source.relid]
    ensure_capture(conn, source.relid, [2])
    after = fingerprints(conn, [source.relid])[source.relid]
    assert unchanged(before, after, [1])
    assert not unchanged(before, after, [2])
    assert not unchanged(None, after, [1])


def test_fingerprints_of_many_sources_in_one_call(conn: Connection) -> None:
    conn.execute("CREATE TABLE a (x int); CREATE TABLE b (x int)")
    one, two = Source(conn, "a"), Source(conn, "b")
    assert set(fingerprints(conn, [one.relid, two.relid, 1])) == {one.relid, two.relid}
    assert fingerprints(conn, []) == {}


def test_widening_waits_for_writers_and_gives_up_in_time(conn: Connection, installed: Database) -> None:
    conn.execute("CREATE TABLE t (a int, b int)")
    source = Source(conn, "t", [1])
    writer, other = installed.connect(autocommit=False), installed.connect()
    writer.execute("INSERT INTO t VALUES (1, 1)")
    slowest = 0.0

    def write_meanwhile() -> None:
        nonlocal slowest
        for _ in range(20):
            begun = time.monotonic()
            other.execute("INSERT INTO t VALUES (2, 2)")
            slowest = max(slowest, time.monotonic() - begun)
            time.sleep(0.02)

    thread = threading.Thread(target=write_meanwhile)
    thread.start()
    with pytest.raises(TransientError, match="no lock within"):
        ensure_capture(conn, source.relid, [2], deadline_s=1.0)
    thread.join()
    assert slowest < 0.6
    writer.commit()
    assert ensure_capture(conn, source.relid, [2], deadline_s=10.0)


def test_capture_refuses_to_run_inside_a_transaction(conn: Connection) -> None:
    conn.execute("CREATE TABLE t (a int)")
    with conn.transaction(), pytest.raises(InvariantError):
        ensure_capture(conn, 1, [1])


def test_capture_of_lost_columns_and_tables_says_so(conn: Connection) -> None:
    conn.execute("CREATE TABLE t (a int)")
    source = Source(conn, "t")
    with pytest.raises(SourceChangedError, match="lacks columns"):
        ensure_capture(conn, source.relid, [2])
    conn.execute("DROP TABLE t")
    with pytest.raises(SourceChangedError, match="does not exist"):
        ensure_capture(conn, source.relid, [1])
    assert collect_garbage(conn) == [source.relid]


def test_garbage_is_what_nobody_reads(conn: Connection) -> None:
    conn.execute("CREATE TABLE used (a int); CREATE TABLE unused (a int)")
    conn.execute("SELECT pgtrickle.create_stream_table('s', 'SELECT a FROM used')")
    used, unused = Source(conn, "used"), Source(conn, "unused")
    assert collect_garbage(conn) == [unused.relid]
    assert conn.execute("SELECT source_relid::int8 FROM pgtrickle.pgt_sources").fetchall() == [(used.relid,)]
    assert conn.execute("SELECT count(*) FROM pg_trigger WHERE tgrelid = 'unused'::regclass").fetchone() == (0,)
    conn.execute("SELECT pgtrickle.drop_stream_table('s')")
    assert collect_garbage(conn) == [used.relid]
    assert collect_garbage(conn) == []
    left = "SELECT tablename FROM pg_tables WHERE schemaname = 'pgtrickle_changes' ORDER BY 1"
    assert conn.execute(left).fetchall() == [("caller_key",), ("moves",)]


def test_capture_works_under_a_publication_for_all_tables(
    conn: Connection, super_conn: psycopg.Connection[Any]
) -> None:
    conn.execute("CREATE TABLE t (id int PRIMARY KEY)")
    source = Source(conn, "t")
    super_conn.execute("CREATE PUBLICATION everything FOR ALL TABLES")
    conn.execute("INSERT INTO t VALUES (1)")
    conn.execute(f"DELETE FROM pgtrickle_changes.changes_{source.relid}")


def test_capture_obeys_no_search_path_of_the_writer(conn: Connection, installed: Database) -> None:
    """The capture function runs with our rights: operators and tables of the writer's own must not be taken."""
    conn.execute("CREATE TABLE public.t (a int)")
    source = Source(conn, "public.t")
    installed.superuser_sql(
        "CREATE ROLE h_writer; GRANT INSERT, UPDATE, DELETE, SELECT ON public.t TO h_writer;"
        "CREATE SCHEMA hostile AUTHORIZATION h_writer"
    )
    try:
        with installed.connect(superuser=True) as writer:
            writer.execute("SET ROLE h_writer")
            for kind in ("text", "oid", "regclass"):
                for name, op in (("eq", "="), ("ne", "<>")):
                    writer.execute(
                        f"CREATE FUNCTION hostile.{name}({kind}, {kind}) RETURNS bool LANGUAGE plpgsql AS "
                        "'BEGIN RAISE EXCEPTION ''taken''; END'"
                    )
                    writer.execute(
                        f"CREATE OPERATOR hostile.{op} (FUNCTION = hostile.{name}, LEFTARG = {kind}, RIGHTARG = {kind})"
                    )
            writer.execute(
                "CREATE FUNCTION hostile.pg_current_xact_id() RETURNS xid8 LANGUAGE sql AS 'SELECT ''3''::xid8'"
            )
            writer.execute("CREATE TABLE hostile.pgt_new (a int)")
            writer.execute("CREATE TABLE hostile.changes_1 (a int)")
            writer.execute("SET search_path = hostile, pg_catalog")
            writer.execute("INSERT INTO public.t VALUES (1), (2)")
            writer.execute("UPDATE public.t SET a = 3")
            writer.execute("DELETE FROM public.t")
            writer.execute("RESET ROLE")
        source.check(changes=8)
    finally:
        installed.superuser_sql("DROP OWNED BY h_writer CASCADE; DROP ROLE h_writer")
