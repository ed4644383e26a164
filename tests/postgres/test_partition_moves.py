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
    "UPDATE and INSERT": """WITH i AS (INSERT INTO p VALUES (1, 6, 1, '{"a": "x"}')) UPDATE p SET "ke%y" = 12 WHERE id = 1""",
    "UPDATE and DELETE": 'WITH d AS (DELETE FROM p WHERE id = 2) UPDATE p SET "ke%y" = 12 WHERE id = 1',
    "UPDATE of a row beside its twin": 'UPDATE p SET "ke%y" = 12 WHERE ctid = (SELECT min(ctid) FROM p1 WHERE id = 1) '
    "AND tableoid = 'p1'::regclass",
    "prepared UPDATE": 'PREPARE u AS UPDATE p SET "ke%y" = 12 WHERE id < 3; EXECUTE u',
    "several UPDATEs": 'BEGIN; UPDATE p SET "ke%y" = 12 WHERE id < 3; UPDATE p SET "ke%y" = 6 WHERE id < 4; '
    'SAVEPOINT s; UPDATE p SET "ke%y" = 25; ROLLBACK TO s; UPDATE p SET v = 9 WHERE id = 1; COMMIT',
    "MERGE that moves nothing": SOURCE.format("(1, 0), (2, 0), (3, 0), (50, 7)")
    + 'WHEN MATCHED AND s.id = 1 THEN DELETE WHEN MATCHED AND s.id = 2 THEN DO NOTHING WHEN MATCHED THEN UPDATE SET v = 7, "ke%y" = p."ke%y" '
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
    + 'WHEN MATCHED AND s.id = 2 THEN DELETE WHEN MATCHED AND s.id = 3 THEN DO NOTHING WHEN MATCHED THEN UPDATE SET "ke%y" = s.k '
    """WHEN NOT MATCHED THEN INSERT VALUES (s.id, s.k, 1, '{"a": "x"}')""",
    "MERGE on the second level": """MERGE INTO p3 USING (VALUES (18)) AS s(id) ON p3.id = s.id
        WHEN MATCHED THEN UPDATE SET doc = '{"a": "y"}'""",
    "MERGE on the second level by the root": """MERGE INTO p USING (VALUES (18)) AS s(id) ON p.id = s.id
        WHEN MATCHED THEN UPDATE SET doc = '{"a": "y"}'""",
    "MERGE in a function": "SELECT merges(25)",
    "prepared MERGE": f"""PREPARE m AS {SOURCE.format("(1, 12)")} WHEN MATCHED THEN UPDATE SET "ke%y" = s.k; EXECUTE m""",
    "MERGE that exchanges keys": SOURCE.format("(1, 12), (8, 6)") + 'WHEN MATCHED THEN UPDATE SET "ke%y" = s.k',
    "MERGE of one twin, the other in place": "MERGE INTO p USING (SELECT ctid AS c, row_number() OVER () AS n FROM p1 WHERE id = 1) AS s "
    'ON p.id = 1 AND p.ctid = s.c WHEN MATCHED AND s.n = 1 THEN UPDATE SET "ke%y" = 12 WHEN MATCHED THEN UPDATE SET v = 9',
    "MERGE and UPDATE": 'WITH u AS (UPDATE p SET "ke%y" = 12 WHERE id = 2) '
    + SOURCE.format("(1, 12)")
    + 'WHEN MATCHED THEN UPDATE SET "ke%y" = s.k',
    "MERGE and UPDATE of a twin": 'WITH u AS (UPDATE p SET "ke%y" = 12 WHERE ctid = (SELECT min(ctid) FROM p1 WHERE id = 1)) '
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
