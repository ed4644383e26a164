"""Netting out a buffer changes the window of no reader, and shortens it."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator
from typing import Any

import psycopg
import pytest

from pgtrickle.capture import compact as module
from pgtrickle.capture.compact import Compactor, XidRegions
from pgtrickle.capture.install import ensure_capture
from pgtrickle.capture.trim import trim
from pgtrickle.db import Connection, connect
from pgtrickle.maintain.tidy import Cleaner
from pgtrickle.model.flow import Cut, Window
from pgtrickle.settings import Settings
from tests.conftest import Database

IMAGES = (
    "(1, '{\"a\": 1}', '(1,2)', 1.0, 'x')",
    "(1, '{\"a\":1}', '(1,2)', 1.00, 'x')",
    "(NULL, NULL, NULL, NULL, NULL)",
    "(2, '[]', '(-0,0)', 'NaN', '')",
)
COLUMNS = "a, j, p, n, s"
CHANGES = (
    "INSERT INTO t SELECT v.a::int, v.j::json, v.p::point, v.n::numeric, v.s, {k} "
    f"FROM (VALUES {{image}}) AS v({COLUMNS})",
    f"INSERT INTO t ({COLUMNS}, w) SELECT {COLUMNS}, w FROM t WHERE w = {{k}} LIMIT 2",
    f"UPDATE t SET ({COLUMNS}) = {{image}} WHERE w = {{k}}",
    "DELETE FROM t WHERE ctid = ANY (ARRAY(SELECT ctid FROM t WHERE w = {k} LIMIT 2))",
)
LONG_AGO = "2000-01-01"  # when a mirror that nobody waits for has said something
ROW = "ROW(c1, c2, c3, c4, c5)::text"


@pytest.fixture
def conn(installed: Database) -> Iterator[Connection]:
    with connect(installed.dsn, role="test", autocommit=True) as connection:
        connection.execute("SET search_path = public")
        connection.execute("CREATE TABLE t (a int, j json, p point, n numeric, s text, w int)")
        yield connection


@pytest.fixture
def relid(conn: Connection) -> int:
    """Captured without column w; all that is ever written to the buffer stays in table shadow."""
    relid = int(one(conn, "SELECT 't'::regclass::oid::int8"))
    ensure_capture(conn, relid, [1, 2, 3, 4, 5])
    buffer = f"pgtrickle_changes.changes_{relid}"
    conn.execute(
        f"CREATE TABLE shadow (LIKE {buffer}); "
        "CREATE FUNCTION shadow() RETURNS trigger LANGUAGE plpgsql AS "
        "'BEGIN INSERT INTO public.shadow SELECT new.*; RETURN NULL; END'; "
        f"CREATE TRIGGER shadow AFTER INSERT ON {buffer} FOR EACH ROW EXECUTE FUNCTION shadow()"
    )
    return relid


def one(conn: psycopg.Connection[Any], text: str, *params: object) -> Any:
    row = conn.execute(text, params or None).fetchone()
    assert row is not None
    return row[0]


def rows(conn: psycopg.Connection[Any], relid: int) -> list[tuple[str, str]]:
    return conn.execute(f"SELECT action, {ROW} FROM pgtrickle_changes.changes_{relid} ORDER BY 1, 2").fetchall()


def netted(conn: Connection, threshold: int = 1) -> int:
    return sum(Compactor().round(conn, threshold).values())


def stand(conn: Connection, relid: int, mirror_id: int, cut: str | None = None) -> None:
    """A mirror elsewhere has read so far, or now."""
    conn.execute(
        "INSERT INTO pgtrickle.pgt_readers AS r "
        "(reader_key, mirror_id, reader_server, reader_database, source_relid, snapshot, updated_at) "
        "VALUES ('7/7', %s, '', 'elsewhere', %s, coalesce(%s::pg_snapshot, pg_current_snapshot()), %s) "
        "ON CONFLICT (reader_key, mirror_id) DO UPDATE SET snapshot = excluded.snapshot",
        (mirror_id, relid, cut, LONG_AGO),
    )


class Reader:
    """Stands at a cut, takes the next one in a transaction that it keeps open, commits it or does not."""

    def __init__(self, database: Database, main: Connection, relid: int) -> None:
        self.session = database.connect(autocommit=False)
        self.main = main
        self.relid = relid
        self.stands: Cut | None = None
        self.next: Cut | None = None

    def begin(self) -> None:
        self.session.execute("SET TRANSACTION ISOLATION LEVEL REPEATABLE READ READ ONLY")
        self.next = Cut.parse(one(self.session, "SELECT pg_current_snapshot()::text"))

    def end(self) -> None:
        self.session.rollback()
        self.next = None

    def since(self) -> Cut | None:
        return self.stands

    def wrong(self) -> list[tuple[Any, ...]]:
        """How its windows differ from what was captured: the one up to now, and the one that it reads at present."""
        since = self.since()
        if since is None:
            return []
        found: list[tuple[Any, ...]] = []
        now = Cut.parse(one(self.main, "SELECT pg_current_snapshot()::text"))
        for session, upto in ((self.main, now), (self.session, self.next)):
            if upto is None:
                continue
            window = Window(since, upto).predicate()
            parts = [
                f"SELECT {ROW} AS image, CASE action WHEN 'I' THEN {sign} ELSE -({sign}) END AS n, {sign} * t AS t "
                f"FROM {table} CROSS JOIN LATERAL (SELECT (action = 'T')::int) AS mark (t) WHERE {window}"
                for table, sign in ((f"pgtrickle_changes.changes_{self.relid}", 1), ("shadow", -1))
            ]
            found += session.execute(
                f"SELECT image, sum(n) FROM ({' UNION ALL '.join(parts)}) AS u WHERE t = 0 GROUP BY image "
                "HAVING sum(n) <> 0"
            ).fetchall()
            has = [f"SELECT coalesce(bool_or(t <> 0), false) FROM ({part}) AS u" for part in parts]
            found += session.execute(f"SELECT 'T' WHERE ({has[0]}) <> ({has[1]})").fetchall()
        return found


class Local(Reader):
    """A stream table of the same database."""

    def __init__(self, database: Database, main: Connection, relid: int, name: str) -> None:
        super().__init__(database, main, relid)
        self.name = name
        main.execute("SELECT pgtrickle.create_stream_table(%s, 'SELECT a FROM t')", [name])

    def commit(self) -> None:
        self.main.execute(
            "UPDATE pgtrickle.pgt_stream_tables SET status = 'ACTIVE', is_populated = true, frontier = "
            "jsonb_build_object(pgtrickle._origin(), jsonb_build_object('snapshot', %s::text)) WHERE pgt_name = %s",
            (str(self.next), self.name),
        )
        self.stands = self.next
        self.end()


class Remote(Reader):
    """A mirror elsewhere. Its commit and the note of it are two things; either order of their losses happens."""

    def __init__(self, database: Database, main: Connection, relid: int, number: int, rng: random.Random) -> None:
        super().__init__(database, main, relid)
        self.number = number
        self.rng = rng
        main.execute(
            "INSERT INTO pgtrickle.pgt_readers "
            "(reader_key, mirror_id, reader_server, reader_database, source_relid, updated_at) "
            "VALUES ('7/7', %s, '', 'elsewhere', %s, %s)",
            (number, relid, LONG_AGO),
        )

    def since(self) -> Cut | None:
        """None when it would be loaded anew now."""
        snapshot, before = self.main.execute(
            "SELECT snapshot::text, netted::text FROM pgtrickle.pgt_readers WHERE mirror_id = %s", [self.number]
        ).fetchall()[0]
        if self.stands is None or before is None or str(self.stands) == snapshot:
            return self.stands
        return self.stands if self.stands.xmin >= int(before) else None

    def commit(self) -> None:
        cut, self.stands = self.next, self.next
        self.end()  # the session is lost here, or ends before the note
        if self.rng.random() < 0.4:
            return
        if self.rng.random() < 0.3:
            Compactor().round(self.main, 1)
        self.main.execute(
            "UPDATE pgtrickle.pgt_readers SET snapshot = %s::pg_snapshot WHERE mirror_id = %s "
            "AND (netted IS NULL OR pg_snapshot_xmin(%s::pg_snapshot) >= netted)",
            (str(cut), self.number, str(cut)),
        )


@pytest.mark.parametrize("seed", range(6))
def test_windows_of_all_readers_stay_as_they_were(
    installed: Database,
    conn: Connection,
    relid: int,
    seed: int,
    make_role: Callable[[Database], psycopg.Connection[Any]],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(module, "PART_ROWS", 10)
    rng = random.Random(seed)
    readers: list[Local | Remote] = [Local(installed, conn, relid, f"s{i}") for i in range(3)]
    readers += [Remote(installed, conn, relid, i, rng) for i in range(2)]
    writers = [make_role(installed) for _ in range(3)]
    for writer in writers:  # of roles that cannot write cuts: netting does not wait for them
        conn.execute(f"GRANT ALL ON t TO {writer.info.user}")
        writer.execute("SET search_path = public")
        writer.autocommit = False
    compactor, deleted = Compactor(), 0
    for step in range(200):
        k = rng.randrange(3)
        if rng.random() < 0.05:
            heard = rng.choice(("now", LONG_AGO, LONG_AGO))
            conn.execute("UPDATE pgtrickle.pgt_readers SET updated_at = %s WHERE mirror_id = 0", [heard])
        match rng.randrange(12):
            case 0 | 1 | 2 | 3 | 4:
                writers[k].execute(rng.choice(CHANGES).format(image=rng.choice(IMAGES), k=k))
                if rng.random() < 0.03:
                    conn.execute(
                        f"INSERT INTO pgtrickle_changes.changes_{relid} (xid, lsn, action) "
                        "VALUES (pg_current_xact_id(), pg_current_wal_insert_lsn(), 'T')"
                    )
                if rng.random() < 0.7:
                    writers[k].commit()
            case 5:
                (writers[k].commit if rng.random() < 0.6 else writers[k].rollback)()
            case 6:
                (reader,) = rng.choices(readers, weights=(6, 2, 1, 2, 1))
                if reader.next is None:
                    reader.begin()
            case 7 | 8 | 9 | 10:
                deleted += sum(compactor.round(conn, 1).values())
                if not compactor.is_waiting:
                    compactor = Compactor()
            case _:
                trim(conn, relid, batch_rows=3)
        for reader in readers:
            if reader.next is not None and rng.random() < 0.3:
                (reader.commit if rng.random() < 0.8 else reader.end)()
        for reader in readers:
            assert reader.wrong() == [], (step, reader)
    assert deleted > 0


def test_a_hot_row_becomes_its_first_and_last_image(conn: Connection, relid: int) -> None:
    conn.execute("INSERT INTO t VALUES (0)")
    stand(conn, relid, 1)
    for i in range(1, 30):
        conn.execute("UPDATE t SET a = %s", [i])
    assert netted(conn) == 56
    assert rows(conn, relid)[-2:] == [("I", "(0,,,,)"), ("I", "(29,,,,)")]
    assert rows(conn, relid)[0] == ("D", "(0,,,,)")


def test_rows_on_either_side_of_a_cut_stay(conn: Connection, relid: int) -> None:
    stand(conn, relid, 1)
    conn.execute("INSERT INTO t VALUES (1)")
    stand(conn, relid, 2)
    conn.execute("DELETE FROM t")
    assert netted(conn) == 0
    stand(conn, relid, 2)
    assert netted(conn) == 2


def test_a_transaction_that_was_open_at_a_cut_is_not_netted_with_others(
    installed: Database, conn: Connection, relid: int
) -> None:
    stand(conn, relid, 1)
    writer = installed.connect(autocommit=False)
    writer.execute("INSERT INTO t VALUES (1)")
    conn.execute("INSERT INTO t VALUES (2); DELETE FROM t")
    stand(conn, relid, 2)
    writer.commit()
    conn.execute("DELETE FROM t")
    assert netted(conn) == 2  # those of value 2
    assert [row for row in rows(conn, relid) if row[1] == "(1,,,,)"] == [("D", "(1,,,,)"), ("I", "(1,,,,)")]


def test_netting_waits_for_refreshes_that_have_taken_their_cut(
    installed: Database, conn: Connection, relid: int
) -> None:
    stand(conn, relid, 1)
    reader = Local(installed, conn, relid, "s")
    conn.execute("INSERT INTO t VALUES (1)")
    reader.begin()
    conn.execute("DELETE FROM t")
    compactor = Compactor()
    assert compactor.round(conn, 1) == {}
    assert compactor.is_waiting
    reader.commit()
    conn.execute("INSERT INTO t VALUES (2), (3)")
    assert compactor.round(conn, 1) == {relid: 0}  # its cut is between the two
    assert reader.wrong() == []
    assert not compactor.is_waiting


def test_netting_waits_for_those_that_began_while_it_waited(installed: Database, conn: Connection, relid: int) -> None:
    """The session with the snapshot may break while the one that commits the cut goes on."""
    stand(conn, relid, 1)
    conn.execute("INSERT INTO t VALUES (1)")
    reader = installed.connect(autocommit=False)
    reader.execute("SET TRANSACTION ISOLATION LEVEL REPEATABLE READ")
    cut = one(reader, "SELECT pg_current_snapshot()::text")
    conn.execute("DELETE FROM t")
    compactor = Compactor()
    assert compactor.round(conn, 1) == {}
    writer = installed.connect(autocommit=False)
    writer.execute("INSERT INTO pgtrickle.pgt_readers VALUES ('7/7', 2, '', 'x', %s, '{}', %s)", (relid, cut))
    reader.close()
    assert compactor.round(conn, 1) == {}
    writer.commit()
    assert compactor.round(conn, 1) == {relid: 0}


def test_netting_does_not_wait_for_who_cannot_write_a_cut(
    installed: Database, conn: Connection, relid: int, make_role: Callable[[Database], psycopg.Connection[Any]]
) -> None:
    stand(conn, relid, 1)
    other = make_role(installed)
    other.autocommit = False
    other.execute("SELECT 1")
    conn.execute("INSERT INTO t VALUES (1)")
    conn.execute("DELETE FROM t")
    assert netted(conn) == 2


def test_a_mirror_is_told_how_far_its_window_was_netted(conn: Connection, relid: int) -> None:
    stand(conn, relid, 1)
    stand(conn, relid, 2)
    conn.execute("UPDATE pgtrickle.pgt_readers SET snapshot = NULL WHERE mirror_id = 2")
    conn.execute("INSERT INTO t VALUES (1)")
    conn.execute("DELETE FROM t")
    last = one(conn, f"SELECT max(xid)::text FROM pgtrickle_changes.changes_{relid}")
    assert netted(conn) == 2
    told = conn.execute("SELECT netted::text::int8 > %s FROM pgtrickle.pgt_readers", [int(last)]).fetchall()
    assert told == [(True,), (True,)]


def test_nothing_is_netted_past_a_mirror_that_has_just_told_where_it_is(conn: Connection, relid: int) -> None:
    stand(conn, relid, 1)
    conn.execute("INSERT INTO t VALUES (1)")
    conn.execute("DELETE FROM t")
    stand(conn, relid, 2)
    conn.execute("UPDATE pgtrickle.pgt_readers SET updated_at = clock_timestamp() WHERE mirror_id = 2")
    conn.execute("INSERT INTO t VALUES (2)")
    conn.execute("DELETE FROM t")
    assert netted(conn) == 2
    assert rows(conn, relid) == [("D", "(2,,,,)"), ("I", "(2,,,,)")]


def test_of_truncations_between_two_cuts_one_stays(conn: Connection, relid: int) -> None:
    stand(conn, relid, 1)
    conn.execute("TRUNCATE t")
    conn.execute("TRUNCATE t")
    conn.execute("INSERT INTO t VALUES (NULL)")
    stand(conn, relid, 2)
    conn.execute("TRUNCATE t")
    assert netted(conn) == 1
    assert [action for action, _ in rows(conn, relid)] == ["I", "T", "T"]


def test_images_without_a_column_that_came_later_are_netted_with_their_like(conn: Connection, relid: int) -> None:
    stand(conn, relid, 1)
    conn.execute("INSERT INTO t (a, w) VALUES (1, 5), (2, NULL)")
    ensure_capture(conn, relid, [6])
    conn.execute("DELETE FROM t")
    assert netted(conn) == 2
    left = conn.execute(f"SELECT action, c1, c6 FROM pgtrickle_changes.changes_{relid} ORDER BY 1").fetchall()
    assert left == [("D", 1, 5), ("I", 1, None)]


def test_functions_of_one_name_are_not_taken_for_each_other(conn: Connection) -> None:
    conn.execute("CREATE TABLE f (a regproc); CREATE FUNCTION g(int) RETURNS int LANGUAGE sql AS 'SELECT 1'")
    conn.execute("CREATE FUNCTION g(text) RETURNS int LANGUAGE sql AS 'SELECT 1'")
    relid = int(one(conn, "SELECT 'f'::regclass::oid::int8"))
    ensure_capture(conn, relid, [1])
    stand(conn, relid, 1)
    conn.execute("INSERT INTO f SELECT 'g(int)'::regprocedure::oid::regproc")
    conn.execute("UPDATE f SET a = 'g(text)'::regprocedure::oid::regproc")
    assert netted(conn) == 2
    assert one(conn, f"SELECT count(*) FROM pgtrickle_changes.changes_{relid}") == 1


def test_a_buffer_below_the_threshold_is_left_alone(conn: Connection, relid: int) -> None:
    stand(conn, relid, 1)
    conn.execute("INSERT INTO t SELECT generate_series(1, 500)")
    conn.execute("DELETE FROM t")
    assert netted(conn, threshold=1000) == 0
    assert netted(conn, threshold=0) == 0
    assert netted(conn, threshold=999) == 1000


def test_what_everybody_has_seen_does_not_count(conn: Connection, relid: int) -> None:
    conn.execute("INSERT INTO t SELECT generate_series(1, 500)")
    conn.execute("DELETE FROM t")
    stand(conn, relid, 1)
    assert netted(conn, threshold=10) == 0


def test_what_cannot_be_netted_is_tried_again_when_there_is_more(conn: Connection, relid: int) -> None:
    stand(conn, relid, 1)
    compactor = Compactor()
    conn.execute("INSERT INTO t SELECT generate_series(1, 100)")
    assert compactor.round(conn, 1) == {relid: 0}
    assert compactor.round(conn, 1) == {}
    conn.execute("INSERT INTO t SELECT generate_series(1, 100)")
    assert compactor.round(conn, 1) == {relid: 0}


def test_one_at_a_time(installed: Database, conn: Connection, relid: int) -> None:
    stand(conn, relid, 1)
    conn.execute("INSERT INTO t VALUES (1)")
    conn.execute("DELETE FROM t")
    other = installed.connect()
    other.execute("SELECT pg_advisory_lock(%s)", [module._LOCK | relid])
    assert netted(conn) == 0
    other.close()


@pytest.mark.parametrize(("threshold", "left"), [(100, 0), (1_000, 300), (0, 300)])
def test_tidying_nets_out_what_is_beyond_compact_threshold(
    installed: Database, conn: Connection, relid: int, threshold: int, left: int
) -> None:
    stand(conn, relid, 1)
    conn.execute("INSERT INTO t SELECT generate_series(1, 150)")
    conn.execute("DELETE FROM t")
    tidier = Cleaner("test", installed.dsn, conn)
    tidier.tidy(Settings(compact_threshold=threshold))
    if tidier.beside is not None:
        tidier.beside.join(120)
    assert len(rows(conn, relid)) == left


def test_regions_are_bounded_by_what_cuts_see() -> None:
    cuts = [Cut(10, 20, (10, 15)), Cut(30, 30, ()), Cut(50, 60, (50,))]
    assert XidRegions.between(cuts, 40) == XidRegions(10, 40, (20, 30), (10, 15))
    assert XidRegions.between([], 40) == XidRegions(0, 40, (), ())
