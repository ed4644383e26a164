# ruff: noqa: E501 - a query is easier to read on one line
"""WITH RECURSIVE from its stored rows: exact through any changes of trees and graphs, and in proportion to what they reach."""

from __future__ import annotations

from random import Random

import pytest

from tests.line import Line

SMALL = """
CREATE TABLE e (src int NOT NULL, dst int NOT NULL);
CREATE TABLE n (id int PRIMARY KEY, parent int, name text, w numeric);
CREATE TABLE s (id int);
INSERT INTO e VALUES (1, 2), (2, 3), (3, 4), (5, 6);
INSERT INTO n VALUES (1, NULL, 'a', 1.0), (2, 1, 'b', 2.50), (3, 1, 'c', 1), (4, 2, 'd', NULL), (5, 4, NULL, 1.00);
INSERT INTO s VALUES (1), (2), (2), (NULL);
"""
WALKS = {
    "closure": "WITH RECURSIVE r(src, dst) AS (SELECT src, dst FROM e UNION SELECT r.src, e.dst FROM r JOIN e ON e.src = r.dst) SELECT src, dst FROM r",
    "reach": "WITH RECURSIVE r(id) AS (SELECT id FROM s UNION SELECT e.dst FROM r JOIN e ON e.src = r.id) SELECT id AS node FROM r",
    "tree": "WITH RECURSIVE r AS (SELECT id, parent, name, w, 0 AS depth FROM n WHERE parent IS NULL UNION ALL SELECT n.id, n.parent, n.name, r.w * n.w, r.depth + 1 FROM r JOIN n ON n.parent = r.id) SELECT id, parent, name, w, depth FROM r",
    "tree_set": "WITH RECURSIVE r AS (SELECT id, parent, name, 0 AS depth FROM n WHERE parent IS NULL UNION SELECT n.id, n.parent, n.name, r.depth + 1 FROM r JOIN n ON n.parent = r.id) SELECT depth, name, parent, id, upper(name) AS u FROM r",
    "paths": "WITH RECURSIVE r(id, path) AS (SELECT id, ARRAY[id] FROM n WHERE parent IS NULL OR id IN (SELECT id FROM s) UNION ALL SELECT n.id, r.path || n.id FROM n JOIN r ON n.parent = r.id WHERE n.id <> ALL (r.path)) SELECT * FROM r",
    "hops": "WITH RECURSIVE r(n, hops) AS (SELECT 1, 0 UNION ALL SELECT e.dst, r.hops + 1 FROM r JOIN e ON e.src = r.n WHERE r.hops < 4) SELECT n, hops FROM r",
    "hops_set": "WITH RECURSIVE r(n, hops) AS (SELECT id, 0 FROM s UNION SELECT e.dst, r.hops + 1 FROM r, e WHERE e.src = r.n AND r.hops < 4) SELECT n, hops FROM r",
    "two": "WITH RECURSIVE r(id, name, hops) AS (SELECT id, name, 0 FROM n WHERE parent IS NULL UNION ALL SELECT e.dst, n.name, r.hops + 1 FROM r JOIN e ON e.src = r.id JOIN n ON n.id = e.dst WHERE r.hops < 4) SELECT id, name, hops FROM r",
    "two_set": "WITH RECURSIVE r(id, name) AS (SELECT id, name FROM n WHERE parent IS NULL UNION SELECT e.dst, n.name FROM r JOIN e ON e.src = r.id JOIN n ON n.id = e.dst) SELECT id, name FROM r",
    "twice": "WITH RECURSIVE r(id, hops) AS (SELECT id, 0 FROM s UNION ALL SELECT b.dst, r.hops + 1 FROM r JOIN e a ON a.src = r.id JOIN e b ON b.src = a.dst WHERE r.hops < 3) SELECT id, hops FROM r",
    "branches": "WITH RECURSIVE r(id, hops) AS (SELECT id, 0 FROM s UNION ALL SELECT id, 1 FROM n WHERE parent IS NULL UNION ALL SELECT e.dst, r.hops + 1 FROM r JOIN e ON e.src = r.id WHERE r.hops < 4) SELECT id, hops FROM r",
    "branches_set": "WITH RECURSIVE r(id) AS (SELECT id FROM s UNION SELECT id FROM n WHERE parent IS NULL UNION SELECT 7 UNION SELECT e.dst FROM r JOIN e ON e.src = r.id) SELECT id FROM r",
    "mixed": "WITH RECURSIVE r(id, hops) AS ((SELECT id, 0 FROM s UNION SELECT src, 0 FROM e) UNION ALL SELECT e.dst, r.hops + 1 FROM r JOIN e ON e.src = r.id WHERE r.hops < 3) SELECT id, hops FROM r",
    "numbers": "WITH RECURSIVE r(id, w) AS (SELECT id, w FROM n UNION SELECT n.id, r.w FROM r JOIN n ON n.parent = r.id) SELECT id, w FROM r",
}


def window(random: Random) -> list[str]:
    """Some statements between two refreshes. The parents stay a forest: a tree without a bound on its depth has to end."""
    found = []
    for _ in range(random.choice((1, 1, 2, 3, 5))):
        a, b = random.randint(1, 7), random.randint(1, 7)
        parent = random.choice(["NULL", str(random.randint(1, a))]) if a > 1 else "NULL"
        parent = "NULL" if parent == str(a) else parent
        number, name = random.choice(["1.0", "1", "1.00", "2.50", "NULL"]), random.choice("abc")
        found.append(
            random.choice(
                (
                    f"INSERT INTO e VALUES ({a}, {b})",
                    f"INSERT INTO e VALUES ({a}, {b})",
                    f"DELETE FROM e WHERE src = {a}",
                    f"UPDATE e SET dst = {b} WHERE src = {a}",
                    f"INSERT INTO n VALUES ({a}, {parent}, '{name}', {number}) ON CONFLICT (id) DO UPDATE SET parent = excluded.parent",
                    f"DELETE FROM n WHERE id = {a}",
                    f"UPDATE n SET parent = {parent} WHERE id = {a}",
                    f"UPDATE n SET name = '{name}', w = {number} WHERE id = {a}",
                    f"INSERT INTO s VALUES ({random.choice(['NULL', a, b])})",
                    f"DELETE FROM s WHERE id = {a}",
                    f"INSERT INTO e VALUES ({a}, {b}); DELETE FROM e WHERE src = {a} AND dst = {b}",
                )
            )
        )
    return found


def test_walks_are_exact_through_random_changes(line: Line) -> None:
    line.sql(SMALL)
    for name, query in WALKS.items():
        line.sql("SELECT pgtrickle.create_stream_table(%s, %s, 'calculated', 'DIFFERENTIAL')", name, query)
    line.tick()
    told = line.sql("SELECT pgt_name FROM pgtrickle.pgt_stream_tables WHERE plan::text LIKE '%from the stored rows%'")
    assert {name for (name,) in told} == WALKS.keys()
    random = Random(14)
    for _ in range(25):
        statements = window(random)
        line.sql("; ".join(statements))
        assert [o for o in line.tick() if o.error is not None] == [], statements
        for name in WALKS:
            line.equal(name)
    ways = line.sql("SELECT DISTINCT action FROM pgtrickle.pgt_refresh_history WHERE initiated_by <> 'INITIAL'")
    assert {way for (way,) in ways} <= {"DIFFERENTIAL", "NO_DATA"}


def test_node_and_parent_change_places(line: Line) -> None:
    """Both states are trees; together they are a cycle, in which a depth would grow without end."""
    line.sql("CREATE TABLE n (id int PRIMARY KEY, parent int); INSERT INTO n VALUES (1, NULL), (2, 1), (3, 2), (4, 3)")
    for name, word in (("bag", "UNION ALL"), ("rows", "UNION")):
        line.create(
            name,
            f"WITH RECURSIVE r AS (SELECT id, 0 AS depth FROM n WHERE parent IS NULL {word} SELECT n.id, r.depth + 1 FROM r JOIN n ON n.parent = r.id) SELECT id, depth FROM r",
            mode="DIFFERENTIAL",
        )
    line.sql("UPDATE n SET parent = CASE id WHEN 3 THEN 1 WHEN 2 THEN 3 END WHERE id IN (2, 3)")
    line.tick()
    line.sql("DELETE FROM n WHERE id = 1; UPDATE n SET parent = 4 WHERE id = 3")  # a cycle that nothing leads to
    line.tick()
    for name in ("bag", "rows"):
        line.check(name)
        assert line.rows(name) == []


def test_lookups_follow_the_definition(line: Line) -> None:
    def indexed() -> list[str]:
        rows = line.sql("SELECT indexdef FROM pg_indexes WHERE tablename = 'walk' AND indexname LIKE '%lookup%'")
        return [definition.partition(" USING ")[2] for (definition,) in rows]

    line.sql("CREATE TABLE e (src text, dst text); INSERT INTO e VALUES ('a', 'b'), ('b', repeat('c', 9000))")
    walk = "WITH RECURSIVE r(src, dst) AS (SELECT src, dst FROM e UNION SELECT {step}) SELECT src, dst FROM r"
    line.create("walk", walk.format(step="r.src, e.dst FROM r JOIN e ON e.src = r.dst"), mode="DIFFERENTIAL")
    assert indexed() == ["hash (dst)"]
    line.sql("INSERT INTO e SELECT dst, 'd' FROM e WHERE length(dst) > 1")
    line.tick()
    line.check("walk")
    back = walk.format(step="e.src, r.dst FROM r JOIN e ON e.dst = r.src")
    line.sql("SELECT pgtrickle.alter_stream_table('walk', query => %s)", back)
    line.tick()
    line.equal("walk")
    assert indexed() == ["hash (src)"]
    line.sql("SELECT pgtrickle.alter_stream_table('walk', query => 'SELECT src, dst FROM e')")
    line.tick()
    line.equal("walk")
    assert indexed() == []


# -- in proportion to what changes reach
# --------------------------------------------------------------------------------------------------------------

LARGE = """
CREATE TABLE node (id int PRIMARY KEY, parent int, name text);
CREATE TABLE edge (id serial PRIMARY KEY, src int NOT NULL, dst int NOT NULL);
INSERT INTO node SELECT i, nullif(i / 8, 0), 'n' || i FROM generate_series(1, 100000) AS i;
INSERT INTO edge (src, dst) SELECT i, i + 1 FROM generate_series(1, 100000) AS i WHERE i % 10 <> 0;
INSERT INTO edge (src, dst) SELECT i + 9, i FROM generate_series(1, 99990, 10) AS i;
INSERT INTO edge (src, dst) SELECT i, i + 3 FROM generate_series(1, 99990, 10) AS i;
CREATE INDEX ON node (parent);
CREATE INDEX ON edge (src);
CREATE INDEX ON edge (dst);
ANALYZE node;
ANALYZE edge;
"""
TREE = "WITH RECURSIVE r AS (SELECT id, parent, name, 0 AS depth FROM node WHERE parent IS NULL {word} SELECT n.id, n.parent, n.name, r.depth + 1 FROM r JOIN node AS n ON n.parent = r.id) SELECT id, parent, name, depth FROM r"
LARGE_WALKS = {
    "tree": TREE.format(word="UNION ALL"),
    "tree_set": TREE.format(word="UNION"),
    "closure": "WITH RECURSIVE r(src, dst) AS (SELECT src, dst FROM edge WHERE src <= 20000 UNION SELECT r.src, e.dst FROM r JOIN edge AS e ON e.src = r.dst) SELECT src, dst FROM r",
}
TABLES = ("node", "edge", *LARGE_WALKS)
# name of the change: statement, and how many rows of any table it may read
REACH = {
    "leaf moved": ("UPDATE node SET parent = 77 WHERE id = 99999", 200),
    "leaf added, leaf renamed": ("INSERT INTO node VALUES (200001, 99997, 'new'); UPDATE node SET name = 'x' WHERE id = 99000", 400),
    "leaf gone": ("DELETE FROM node WHERE id = 99998", 200),
    "9 nodes moved": ("UPDATE node SET parent = 5001 WHERE id = 5000", 1_000),
    "edge of a cycle gone": ("DELETE FROM edge WHERE src = 1205 AND dst = 1206", 20_000),
    "edge between cycles": ("INSERT INTO edge (src, dst) VALUES (1510, 1701)", 20_000),
    "both undone": ("INSERT INTO edge (src, dst) VALUES (1205, 1206); DELETE FROM edge WHERE src = 1510 AND dst = 1701", 20_000),
}  # fmt: skip


def read(line: Line) -> dict[str, tuple[int, int]]:
    """Per table: rows read by sequential scans, rows fetched through indexes, since the beginning."""
    for connection in (line.plane.worker.reader, line.plane.worker.writer, line.plane.control, line.conn):
        connection.execute("SELECT pg_stat_force_next_flush()")
    line.sql("SELECT pg_stat_clear_snapshot()")
    rows = line.sql(
        "SELECT relname, seq_tup_read, coalesce(idx_tup_fetch, 0) FROM pg_stat_user_tables WHERE relname = ANY (%s)",
        list(TABLES),
    )
    return {name: (int(scanned), int(fetched)) for name, scanned, fetched in rows}


@pytest.mark.slow
def test_walks_read_what_changes_reach(line: Line) -> None:
    line.sql(LARGE)
    for name, query in LARGE_WALKS.items():
        line.sql("SELECT pgtrickle.create_stream_table(%s, %s, 'calculated', 'DIFFERENTIAL')", name, query)
    line.tick()
    line.tick()
    for step, (change, most) in REACH.items():
        line.sql(change)
        before = read(line)
        assert "DIFFERENTIAL" in {o.action for o in line.tick()}
        after = read(line)
        for table in TABLES:
            scanned, fetched = (after[table][i] - before[table][i] for i in (0, 1))
            assert scanned == 0, f"{step}: {scanned} rows of {table} by sequential scan"
            assert fetched < most, f"{step}: {fetched} rows of {table} through indexes"
    for name in LARGE_WALKS:
        line.equal(name)
