"""Rows that move to another partition: UPDATE is captured row by row; of MERGE, which PostgreSQL does not show to
statement triggers, readers learn that they have to load the table again (ADR 42)."""

from __future__ import annotations

from collections.abc import Iterator
from random import Random

import psycopg
import pytest

from pgtrickle.capture.fingerprint import fingerprints
from pgtrickle.capture.install import ensure_capture
from pgtrickle.db import Connection, connect
from pgtrickle.model.fingerprint import unchanged
from tests.conftest import Database
from tests.line import Line
from tests.postgres.test_capture_writes import Source

# Two levels, keys of two columns and of expressions over columns, one of which (json) has no equality; rows without a
# key, some of them twice; columns in another order; odd names.
TABLES = """
CREATE TABLE p (id int, "ke%y" int, v int, doc json) PARTITION BY RANGE (("ke%y" % 1000), id);
CREATE TABLE p1 PARTITION OF p FOR VALUES FROM (0, 0) TO (10, 0);
CREATE TABLE p2 (doc json, junk int, v int, "ke%y" int, id int);
ALTER TABLE p2 DROP COLUMN junk;
ALTER TABLE p ATTACH PARTITION p2 FOR VALUES FROM (10, 0) TO (20, 0);
CREATE TABLE p3 PARTITION OF p FOR VALUES FROM (20, 0) TO (30, 0) PARTITION BY LIST ((doc ->> 'a'));
CREATE TABLE p3x PARTITION OF p3 FOR VALUES IN ('x');
CREATE TABLE p3d PARTITION OF p3 DEFAULT;
INSERT INTO p SELECT g % 20, g % 20 + 5, g % 3, '{"a": "x"}' FROM generate_series(0, 39) AS g;
CREATE FUNCTION updates(wanted int) RETURNS int LANGUAGE plpgsql AS $$
    BEGIN UPDATE p SET "ke%y" = wanted WHERE id = 1; RETURN wanted; END $$;
CREATE FUNCTION merges(wanted int) RETURNS int LANGUAGE plpgsql AS $$
    BEGIN
        MERGE INTO p USING (VALUES (2)) AS s(id) ON p.id = s.id WHEN MATCHED THEN UPDATE SET "ke%y" = wanted;
        RETURN wanted;
    END $$;
"""
SOURCE = "MERGE INTO p USING (VALUES {}) AS s(id, k) ON p.id = s.id "

CAPTURED = {
    "UPDATE": 'UPDATE p SET "ke%y" = "ke%y" + 10 WHERE "ke%y" < 15',
    "UPDATE of the key in place": 'UPDATE p SET "ke%y" = "ke%y" + 1000 WHERE id < 8',
    "UPDATE on the second level": """UPDATE p3 SET doc = '{"a": "y"}' WHERE id % 2 = 0""",
    "UPDATE of a partition": "UPDATE p1 SET v = v + 1",
    "UPDATE in a function": "SELECT updates(25)",
    "UPDATE in a CTE": 'WITH u AS (UPDATE p SET "ke%y" = 25 WHERE id < 3 RETURNING *) SELECT count(*) FROM u',
    "UPDATE and INSERT": """WITH i AS (INSERT INTO p VALUES (1, 6, 1, '{"a": "x"}'))
        UPDATE p SET "ke%y" = 12 WHERE id = 1""",
    "UPDATE and DELETE": 'WITH d AS (DELETE FROM p WHERE id = 2) UPDATE p SET "ke%y" = 12 WHERE id = 1',
    "UPDATE of a row beside its twin": 'UPDATE p SET "ke%y" = 12 WHERE ctid = (SELECT min(ctid) FROM p1 WHERE id = 1) '
    "AND tableoid = 'p1'::regclass",
    "prepared UPDATE": 'PREPARE u AS UPDATE p SET "ke%y" = 12 WHERE id < 3; EXECUTE u',
    "several UPDATEs": 'BEGIN; UPDATE p SET "ke%y" = 12 WHERE id < 3; UPDATE p SET "ke%y" = 6 WHERE id < 4; '
    'SAVEPOINT s; UPDATE p SET "ke%y" = 25; ROLLBACK TO s; UPDATE p SET v = 9 WHERE id = 1; COMMIT',
    "MERGE that moves nothing": SOURCE.format("(1, 0), (2, 0), (3, 0), (50, 7)")
    + "WHEN MATCHED AND s.id = 1 THEN DELETE WHEN MATCHED AND s.id = 2 THEN DO NOTHING "
    'WHEN MATCHED THEN UPDATE SET v = 7, "ke%y" = p."ke%y" '
    """WHEN NOT MATCHED THEN INSERT VALUES (s.id, s.k, 1, '{"a": "x"}')""",
    "MERGE of the key in place": SOURCE.format("(1, 7), (2, 1008)") + 'WHEN MATCHED THEN UPDATE SET "ke%y" = s.k',
    "MERGE of nothing": SOURCE.format("(1, 20)") + 'WHEN MATCHED AND s.k < 0 THEN UPDATE SET "ke%y" = s.k',
    "MERGE rolled back": f"""BEGIN; SAVEPOINT s; {SOURCE.format("(1, 20)")} WHEN MATCHED THEN UPDATE SET "ke%y" = s.k;
        ROLLBACK TO s; UPDATE p SET "ke%y" = 21 WHERE id = 1; COMMIT""",
}
MOVED = {
    "MERGE": SOURCE.format("(1, 12), (2, 13)") + 'WHEN MATCHED THEN UPDATE SET "ke%y" = s.k',
    "MERGE with INSERT": SOURCE.format("(1, 12), (60, 13)") + 'WHEN MATCHED THEN UPDATE SET "ke%y" = s.k '
    """WHEN NOT MATCHED THEN INSERT VALUES (s.id, s.k, 1, '{"a": "x"}')""",
    "MERGE with DELETE": SOURCE.format("(1, 12), (2, 0)")
    + 'WHEN MATCHED AND s.id = 2 THEN DELETE WHEN MATCHED THEN UPDATE SET "ke%y" = s.k',
    "MERGE of all kinds": SOURCE.format("(1, 12), (2, 0), (60, 13), (3, 0)")
    + "WHEN MATCHED AND s.id = 2 THEN DELETE WHEN MATCHED AND s.id = 3 THEN DO NOTHING "
    'WHEN MATCHED THEN UPDATE SET "ke%y" = s.k '
    """WHEN NOT MATCHED THEN INSERT VALUES (s.id, s.k, 1, '{"a": "x"}')""",
    "MERGE on the second level": """MERGE INTO p3 USING (VALUES (18)) AS s(id) ON p3.id = s.id
        WHEN MATCHED THEN UPDATE SET doc = '{"a": "y"}'""",
    "MERGE on the second level by the root": """MERGE INTO p USING (VALUES (18)) AS s(id) ON p.id = s.id
        WHEN MATCHED THEN UPDATE SET doc = '{"a": "y"}'""",
    "MERGE in a function": "SELECT merges(25)",
    "prepared MERGE": f"""PREPARE m AS {SOURCE.format("(1, 12)")} WHEN MATCHED THEN UPDATE
        SET "ke%y" = s.k; EXECUTE m""",
    "MERGE that exchanges keys": SOURCE.format("(1, 12), (8, 6)") + 'WHEN MATCHED THEN UPDATE SET "ke%y" = s.k',
    "MERGE of one twin, the other in place": "MERGE INTO p "
    "USING (SELECT ctid AS c, row_number() OVER () AS n FROM p1 WHERE id = 1) AS s ON p.id = 1 AND p.ctid = s.c "
    'WHEN MATCHED AND s.n = 1 THEN UPDATE SET "ke%y" = 12 WHEN MATCHED THEN UPDATE SET v = 9',
    "MERGE and UPDATE": 'WITH u AS (UPDATE p SET "ke%y" = 12 WHERE id = 2) '
    + SOURCE.format("(1, 12)")
    + 'WHEN MATCHED THEN UPDATE SET "ke%y" = s.k',
    "MERGE and UPDATE of a twin": 'WITH u AS (UPDATE p SET "ke%y" = 12 '
    "WHERE ctid = (SELECT min(ctid) FROM p1 WHERE id = 1)) "
    "MERGE INTO p USING (SELECT max(ctid) AS c FROM p1 WHERE id = 1) AS s ON p.id = 1 AND p.ctid = s.c "
    'WHEN MATCHED THEN UPDATE SET "ke%y" = 12',
    "MERGE after UPDATE": f"""BEGIN; UPDATE p SET "ke%y" = 12 WHERE id = 1; {SOURCE.format("(1, 5)")}
        WHEN MATCHED THEN UPDATE SET "ke%y" = s.k; UPDATE p SET "ke%y" = 12 WHERE id = 1; COMMIT""",
    "MERGE that calls UPDATE": SOURCE.format("(2, 12)") + 'WHEN MATCHED THEN UPDATE SET "ke%y" = updates(s.k)',
    "UPDATE that calls MERGE": 'UPDATE p SET "ke%y" = merges(12) WHERE id = 1',
}


@pytest.fixture
def conn(installed: Database) -> Iterator[Connection]:
    with connect(installed.dsn, role="test", autocommit=True) as connection:
        if connection.info.server_version < 150000:
            pytest.skip("MERGE: since PostgreSQL 15")
        connection.execute("SET search_path = public")
        yield connection


def _execute(conn: Connection, statements: str) -> None:
    for text in statements.split("; ") if "BEGIN;" in statements or "PREPARE" in statements else [statements]:
        conn.execute(text)


def _has_marker(source: Source) -> bool:
    return any(action == "T" for action, *_ in source.images())


@pytest.mark.parametrize("what", CAPTURED)
def test_row_by_row(conn: Connection, what: str) -> None:
    conn.execute(TABLES)
    source = Source(conn, "p")
    _execute(conn, CAPTURED[what])
    source.check()
    assert conn.execute("SELECT * FROM pgtrickle_changes.moves").fetchall() == []


@pytest.mark.parametrize("what", MOVED)
def test_moves_that_only_a_load_shows(conn: Connection, what: str) -> None:
    conn.execute(TABLES)
    source = Source(conn, "p")
    _execute(conn, MOVED[what])
    assert _has_marker(source)
    assert conn.execute("SELECT * FROM pgtrickle_changes.moves").fetchall() == []


def test_random_writes_are_captured_or_marked(conn: Connection) -> None:
    """Rows without keys, many of them equal; statements of one transaction mixed."""
    conn.execute(
        "CREATE TABLE p (id int, k int, v int) PARTITION BY RANGE (k);"
        "CREATE TABLE p1 PARTITION OF p FOR VALUES FROM (0) TO (4);"
        "CREATE TABLE p2 (v int, k int, id int); ALTER TABLE p ATTACH PARTITION p2 FOR VALUES FROM (4) TO (8);"
        "CREATE TABLE p3 PARTITION OF p FOR VALUES FROM (8) TO (12) PARTITION BY LIST (v);"
        "CREATE TABLE p3a PARTITION OF p3 FOR VALUES IN (1, 2); CREATE TABLE p3b PARTITION OF p3 DEFAULT;"
        "INSERT INTO p SELECT g % 6, g % 12, g % 3 FROM generate_series(1, 60) AS g"
    )
    source = Source(conn, "p")
    random = Random(17)
    marked = captured = 0
    for _ in range(150):
        source.before = source.content()
        conn.execute(f"DELETE FROM pgtrickle_changes.changes_{source.relid}")
        with conn.transaction():
            for _ in range(random.randint(1, 3)):
                with conn.transaction(force_rollback=random.random() < 0.2):
                    conn.execute(_random_write(random))
        if _has_marker(source):
            marked += 1
        else:
            source.check()
            captured += 1
    assert marked > 10
    assert captured > 40
    assert conn.execute("SELECT * FROM pgtrickle_changes.moves").fetchall() == []


def _random_write(random: Random) -> str:
    change = random.choice(["v = (t.v + 1) % 3", "k = (t.k + 1) % 12", "k = 11 - t.k", "k = (t.k + 4) % 12, v = 1"])
    where = f"t.id = {random.randrange(6)} AND t.v <> {random.randrange(4)}"
    update = f"UPDATE p AS t SET {change} WHERE {where}"
    match random.randrange(4):
        case 0:
            return update
        case 1:
            return f"WITH d AS (DELETE FROM p WHERE id = {random.randrange(6)} AND k = {random.randrange(12)}) {update}"
        case 2:
            return f"INSERT INTO p VALUES ({random.randrange(6)}, {random.randrange(12)}, {random.randrange(3)})"
    arms = [
        f"WHEN MATCHED AND t.v = {random.randrange(3)} THEN DELETE",
        f"WHEN MATCHED AND t.k < {random.randrange(12)} THEN UPDATE SET {change}",
        "WHEN MATCHED THEN UPDATE SET v = 2 - t.v",
        "WHEN NOT MATCHED THEN INSERT VALUES (s.id, s.id % 12, 0)",
    ]
    chosen = [arm for arm in arms if random.random() < 0.6] or arms[-1:]
    ids = random.sample(range(9), 2)
    return f"MERGE INTO p AS t USING (VALUES ({ids[0]}), ({ids[1]})) AS s(id) ON t.id = s.id {' '.join(chosen)}"


MERGE_1 = "MERGE INTO p USING (VALUES (1)) AS s(id) ON p.id = s.id WHEN MATCHED THEN UPDATE SET "


def test_a_trigger_of_the_user_that_changes_the_key(conn: Connection) -> None:
    conn.execute(TABLES)
    conn.execute(
        """CREATE FUNCTION changes_key() RETURNS trigger LANGUAGE plpgsql AS
        $$ BEGIN NEW."ke%y" = NEW.v + 10; RETURN NEW; END $$;
        CREATE TRIGGER "~~~" BEFORE UPDATE ON p FOR EACH ROW EXECUTE FUNCTION changes_key()"""
    )
    source = Source(conn, "p")
    conn.execute("UPDATE p SET v = 3 WHERE id = 2")
    conn.execute('UPDATE p SET "ke%y" = 29 WHERE id = 3')
    source.check()
    conn.execute(MERGE_1 + "v = 4")
    assert _has_marker(source)


def test_a_trigger_of_the_user_that_changes_or_discards_the_new_row(conn: Connection) -> None:
    conn.execute(TABLES)
    conn.execute(
        """CREATE FUNCTION at_insert() RETURNS trigger LANGUAGE plpgsql AS
        $$ BEGIN NEW.v = 77; RETURN CASE WHEN NEW.id <> 2 THEN NEW END; END $$;
        CREATE TRIGGER t BEFORE INSERT ON p2 FOR EACH ROW EXECUTE FUNCTION at_insert()"""
    )
    source = Source(conn, "p")
    conn.execute('UPDATE p SET "ke%y" = 12 WHERE id = 1')
    source.check()
    conn.execute('UPDATE p SET "ke%y" = 12 WHERE id = 2')
    source.check()
    conn.execute('UPDATE p SET "ke%y" = 12 WHERE id IN (2, 3)')
    if not _has_marker(source):
        source.check()


def test_partitions_that_come_and_go(conn: Connection) -> None:
    conn.execute(TABLES)
    source = Source(conn, "p")
    conn.execute("CREATE TABLE late PARTITION OF p FOR VALUES FROM (30, 0) TO (40, 0) PARTITION BY RANGE (v)")
    conn.execute("CREATE TABLE late1 PARTITION OF late FOR VALUES FROM (0) TO (10)")
    conn.execute("CREATE TABLE late2 PARTITION OF late FOR VALUES FROM (10) TO (99); ALTER TABLE p DETACH PARTITION p2")
    conn.execute('UPDATE p SET "ke%y" = 35 WHERE id = 1')
    # before capture knows them, and with the key of the new level afterwards
    conn.execute(MERGE_1 + '"ke%y" = 6')
    assert _has_marker(source)
    conn.execute(f"DELETE FROM pgtrickle_changes.changes_{source.relid}")
    conn.execute('UPDATE p SET "ke%y" = 35 WHERE id = 1')
    assert ensure_capture(conn, source.relid, [])
    assert not ensure_capture(conn, source.relid, [])
    conn.execute(f"DELETE FROM pgtrickle_changes.changes_{source.relid}")
    source.before = source.content()
    conn.execute("UPDATE p SET v = v + 10 WHERE id = 1")
    source.check()
    conn.execute(MERGE_1 + "v = 5")
    assert _has_marker(source)
    assert conn.execute("SELECT count(*) FROM pg_trigger WHERE tgrelid = 'p2'::regclass").fetchone() == (0,)


def test_the_name_of_a_key_column_changes(conn: Connection) -> None:
    """Writers do not fail, and captured is the key, whatever readers read."""
    conn.execute(TABLES)
    source = Source(conn, "p", [3])
    before = fingerprints(conn, [source.relid])[source.relid]
    conn.execute('ALTER TABLE p RENAME "ke%y" TO k')
    conn.execute("UPDATE p SET k = 12 WHERE id = 1")
    conn.execute(MERGE_1 + "k = 6")
    assert {action for action, *_ in source.images()} == {"T"}
    assert not unchanged(before, fingerprints(conn, [source.relid])[source.relid], [2])
    assert ensure_capture(conn, source.relid, [3])
    conn.execute(f"DELETE FROM pgtrickle_changes.changes_{source.relid}")
    conn.execute("UPDATE p SET k = 12 WHERE id = 1")
    assert not _has_marker(source)
    conn.execute(MERGE_1 + "k = 6")
    assert _has_marker(source)


def test_disabled_triggers_are_enabled_again(conn: Connection) -> None:
    conn.execute(TABLES)
    source = Source(conn, "p")
    before = fingerprints(conn, [source.relid])[source.relid]
    conn.execute("ALTER TABLE p3 DISABLE TRIGGER ALL")
    assert not unchanged(before, fingerprints(conn, [source.relid])[source.relid], source.attnums)
    assert ensure_capture(conn, source.relid, [])
    assert not ensure_capture(conn, source.relid, [])
    conn.execute(MOVED["MERGE on the second level"])
    assert _has_marker(source)


def test_writers_need_no_privileges(conn: Connection, installed: Database) -> None:
    conn.execute(TABLES)
    source = Source(conn, "p")
    installed.superuser_sql("CREATE ROLE moves_writer; GRANT SELECT, UPDATE ON public.p TO moves_writer")
    try:
        with installed.connect(superuser=True) as writer:
            writer.execute("SET ROLE moves_writer")
            writer.execute(MERGE_1 + '"ke%y" = 12')
            with pytest.raises(psycopg.errors.InsufficientPrivilege):
                writer.execute("SELECT pgtrickle_changes._note_move(1::oid, '', '')")
            writer.execute("RESET ROLE")
        assert _has_marker(source)
    finally:
        installed.superuser_sql("DROP OWNED BY moves_writer; DROP ROLE moves_writer")


def test_an_owner_who_did_not_install_adds_partitions(conn: Connection, installed: Database) -> None:
    """A partition gets a clone of our trigger, for whose function its creator must have rights."""
    installed.superuser_sql(
        "CREATE ROLE moves_owner; GRANT moves_owner TO app; CREATE SCHEMA own AUTHORIZATION moves_owner"
    )
    try:
        with installed.connect(superuser=True) as owner:
            owner.execute("SET ROLE moves_owner; SET search_path = own")
            owner.execute("CREATE TABLE p (id int, k int) PARTITION BY RANGE (k)")
            owner.execute("CREATE TABLE p1 PARTITION OF p FOR VALUES FROM (0) TO (10); INSERT INTO p VALUES (1, 1)")
            conn.execute("SET search_path = own")
            source = Source(conn, "p")
            owner.execute("CREATE TABLE p2 PARTITION OF p FOR VALUES FROM (10) TO (20)")
            owner.execute("CREATE TABLE p3 (LIKE p); ALTER TABLE p ATTACH PARTITION p3 FOR VALUES FROM (20) TO (30)")
            for key in (11, 21):
                owner.execute(MERGE_1 + f"k = {key}")
                assert _has_marker(source)
                conn.execute(f"DELETE FROM pgtrickle_changes.changes_{source.relid}")
            owner.execute("ALTER TABLE p DETACH PARTITION p1; DROP TABLE p2; RESET ROLE")
    finally:
        installed.superuser_sql("DROP OWNED BY moves_owner CASCADE; DROP ROLE moves_owner")


def test_without_statistics(conn: Connection, installed: Database) -> None:
    conn.execute(TABLES)
    source = Source(conn, "p")
    with installed.connect(superuser=True) as writer:
        writer.execute("SET track_counts = off")
        writer.execute(MERGE_1 + '"ke%y" = 12')
    assert _has_marker(source)


def test_replica_sessions_capture_moves_row_by_row(conn: Connection, installed: Database) -> None:
    conn.execute(TABLES)
    source = Source(conn, "p")
    with installed.connect(superuser=True) as writer:
        writer.execute("SET session_replication_role = replica")
        writer.execute('UPDATE p SET "ke%y" = 12 WHERE id = 1')
        writer.execute(MOVED["MERGE of all kinds"])
    source.check()


def test_readers_load_again(sparkless: Line) -> None:
    line = sparkless
    line.sql(TABLES)
    for name in ("p", "p1", "p3"):
        line.create(f"of_{name}", f'SELECT id, v, "ke%y" AS k FROM {name}')
    line.sql('UPDATE p SET "ke%y" = "ke%y" + 10 WHERE id < 5')
    line.tick()
    for name in ("p", "p1"):
        line.check(f"of_{name}")
    for what in ("MERGE", "MERGE with INSERT", "MERGE with DELETE", "MERGE of all kinds"):
        line.sql('UPDATE p SET "ke%y" = 6 WHERE id IN (1, 2)')
        line.tick()
        line.sql(MOVED[what])
        line.tick()
        line.check("of_p", "FULL")
        assert "moved to another partition by MERGE" in (line.last("of_p")[2] or "")
        line.check("of_p1")  # its row triggers see the move
        line.equal("of_p3")
    line.sql("UPDATE p SET v = v + 1 WHERE id = 1")
    line.tick()
    line.check("of_p")


def test_capture_of_an_earlier_version_is_replaced_and_its_readers_load(sparkless: Line) -> None:
    line = sparkless
    line.sql(TABLES)
    line.create("of_p", 'SELECT id, v, "ke%y" AS k FROM p')
    ((trigger,),) = line.sql(
        "SELECT tgname FROM pg_trigger WHERE tgrelid = 'p'::regclass AND tgname ~ '_m[0-9a-f]{6}$'"
    )
    line.sql(f"DROP TRIGGER {trigger} ON p")
    line.sql(MOVED["MERGE"])
    line.tick(include_unchanged=True)
    line.equal("of_p")
    assert line.sql(f"SELECT 1 FROM pg_trigger WHERE tgrelid = 'p'::regclass AND tgname = '{trigger}'")
    line.sql(MERGE_1 + '"ke%y" = 6')
    line.tick()
    line.check("of_p", "FULL")


def test_notes_that_nobody_will_delete_are_removed(sparkless: Line) -> None:
    sparkless.sql("SELECT pgtrickle_changes._note_move(1::oid, '', '')")
    assert sparkless.sql("SELECT count(*) FROM pgtrickle_changes.moves") == [(1,)]
    sparkless.plane.tidy()
    assert sparkless.sql("SELECT count(*) FROM pgtrickle_changes.moves") == [(0,)]
