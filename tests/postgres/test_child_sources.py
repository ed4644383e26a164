"""Sources that are themselves partitions or children: statements that name their parent write to them, too."""

from __future__ import annotations

import pytest

from tests.conftest import Database
from tests.line import Line

PARTITIONS = """
CREATE TABLE p (id int, v int) PARTITION BY RANGE (id);
CREATE TABLE p1 PARTITION OF p FOR VALUES FROM (0) TO (10);
CREATE TABLE p2 PARTITION OF p FOR VALUES FROM (10) TO (30) PARTITION BY LIST (v);
CREATE TABLE p2a PARTITION OF p2 FOR VALUES IN (1, 2);
CREATE TABLE p2b PARTITION OF p2 DEFAULT;
"""
WRITES = [
    "INSERT INTO p SELECT g, g % 5 FROM generate_series(1, 25) AS g",
    "UPDATE p SET v = v + 1 WHERE id % 3 = 0",
    "UPDATE p SET id = id + 10 WHERE id IN (2, 4)",  # rows move to another partition
    "UPDATE p SET v = 7 WHERE id BETWEEN 11 AND 13",  # ... and within p2
    "DELETE FROM p WHERE id IN (1, 15)",
    "INSERT INTO p1 VALUES (5, 50); UPDATE p1 SET v = v - 1",
    "DELETE FROM p2 WHERE v = 2; INSERT INTO p2b VALUES (29, 9)",
    "MERGE INTO p USING (VALUES (3), (6)) AS n(id) ON p.id = n.id WHEN MATCHED AND n.id = 3 THEN DELETE "
    "WHEN MATCHED THEN UPDATE SET v = 100 WHEN NOT MATCHED THEN INSERT VALUES (n.id, 1)",
    "AS A REPLICA INSERT INTO p VALUES (6, 6), (17, 1)",
    "TRUNCATE p",
    "INSERT INTO p VALUES (1, 1), (2, 2), (11, 1), (12, 4)",
]


@pytest.mark.parametrize("mode", ["AUTO", "FULL"])
def test_writes_to_the_parent_reach_readers_of_a_partition(sparkless: Line, installed: Database, mode: str) -> None:
    line = sparkless
    line.sql(PARTITIONS)
    sources = ["p1", "p2", "p2a", "p"]
    for source in sources:
        line.create(f"of_{source}", f"SELECT id, v, v * 2 AS d FROM {source}", mode=mode)
    for text in WRITES:
        for each in text.split("; "):
            if each.startswith("AS A REPLICA "):
                written = each.removeprefix("AS A REPLICA ")
                installed.superuser_sql(f"SET session_replication_role = replica; {written}")
            else:
                line.sql(each)
        line.tick()
        for source in sources:
            line.equal(f"of_{source}")
    if mode == "AUTO":
        line.sql("UPDATE p SET v = v + 1 WHERE id = 2")
        line.tick()
        line.check("of_p1")


def test_merge_that_moves_rows_between_partitions(sparkless: Line) -> None:
    line = sparkless
    line.sql(PARTITIONS)
    line.sql("INSERT INTO p VALUES (2, 2), (16, 1)")
    line.create("of_p2a", "SELECT id, v FROM p2a")
    line.create("of_p2", "SELECT id, v FROM p2")
    line.sql("MERGE INTO p USING (VALUES (16)) AS n(id) ON p.id = n.id WHEN MATCHED THEN UPDATE SET v = 100")
    line.tick()
    line.check("of_p2a")
    line.check("of_p2")


def test_table_that_becomes_a_partition_and_leaves_again(sparkless: Line) -> None:
    line = sparkless
    line.sql(PARTITIONS)
    line.sql("CREATE TABLE q (id int, v int); INSERT INTO q VALUES (40, 1)")
    line.create("of_q", "SELECT id, v FROM q")
    for text in (
        "INSERT INTO q VALUES (41, 1)",
        "ALTER TABLE p ATTACH PARTITION q FOR VALUES FROM (40) TO (50); INSERT INTO p VALUES (42, 2)",
        "INSERT INTO p VALUES (43, 3); UPDATE q SET v = v + 1",
        "ALTER TABLE p DETACH PARTITION q; UPDATE q SET v = v + 1 WHERE id > 41",
        "INSERT INTO q VALUES (44, 4); DELETE FROM q WHERE id = 40",
    ):
        line.sql(text)
        line.tick()
        line.equal("of_q")
    line.check("of_q")


def test_writes_to_the_parent_reach_readers_of_an_inheritance_child(sparkless: Line) -> None:
    line = sparkless
    line.sql(
        "CREATE TABLE a (id int, v int); CREATE TABLE b () INHERITS (a); CREATE TABLE c () INHERITS (b);"
        "INSERT INTO a VALUES (1, 1); INSERT INTO b VALUES (2, 2); INSERT INTO c VALUES (3, 3)"
    )
    line.create("of_b", "SELECT id, v FROM b")
    line.create("of_a", "SELECT id, v FROM a")
    for text in (
        "UPDATE a SET v = v + 1",
        "INSERT INTO b VALUES (4, 4)",
        "INSERT INTO c VALUES (5, 5); UPDATE b SET v = 0 WHERE id = 5",
        "DELETE FROM a WHERE id IN (1, 2)",
        "DELETE FROM ONLY a; DELETE FROM b WHERE v = 0",
    ):
        line.sql(text)
        line.tick()
        line.check("of_b")
        line.check("of_a") if text != "DELETE FROM ONLY a; DELETE FROM b WHERE v = 0" else line.equal("of_a")
