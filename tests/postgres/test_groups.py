"""Refresh groups, and what belongs together because of what it reads: diamonds, circles, the tree."""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import Any

import psycopg
import pytest

from pgtrickle.model.work import Node
from pgtrickle.scheduler.graph import Graph
from tests.conftest import Database
from tests.postgres.rows import create, job

MakeRole = Callable[[Database], psycopg.Connection[Any]]
GROUPS = "SELECT group_name, isolation, member_count, members FROM pgtrickle.refresh_groups()"


@pytest.fixture
def db(installed: Database) -> Database:
    installed.sql('CREATE TABLE t (a int); CREATE SCHEMA "Odd Schema"')
    create(installed, "a")
    create(installed, "b")
    create(installed, '"Odd Schema"."Odd.Name"')
    return installed


# -- refresh groups


def test_group_is_stored_as_given_and_announced(db: Database) -> None:
    db.sql("DELETE FROM pgtrickle.pgt_events")
    db.sql(
        """SELECT pgtrickle.create_refresh_group('it''s "one"', ARRAY['b', '"Odd Schema"."Odd.Name"', 'public.a'])"""
    )
    assert db.sql(GROUPS) == [('it\'s "one"', "read_committed", 3, ["public.b", '"Odd Schema"."Odd.Name"', "public.a"])]
    assert db.sql("SELECT created_by FROM pgtrickle.refresh_groups()") == [("app",)]
    assert db.sql("SELECT pgt_id, what FROM pgtrickle.pgt_events") == [(None, "group")]
    db.sql("""SELECT pgtrickle.drop_refresh_group('it''s "one"')""")
    assert db.sql(GROUPS) == []
    assert db.sql("SELECT count(*) FROM pgtrickle.pgt_events") == [(2,)]


@pytest.mark.parametrize("isolation", ["repeatable_read", "REPEATABLE READ", " Repeatable_Read "])
def test_group_isolation(db: Database, isolation: str) -> None:
    db.sql("SELECT pgtrickle.create_refresh_group('g', ARRAY['a', 'b'], isolation => %s)", isolation)
    assert db.sql(GROUPS) == [("g", "repeatable_read", 2, ["public.a", "public.b"])]


@pytest.mark.parametrize(
    ("call", "state", "message"),
    [
        ("create_refresh_group(NULL, ARRAY['a', 'b'])", "42602", "needs a name"),
        ("create_refresh_group(' ', ARRAY['a', 'b'])", "42602", "needs a name"),
        ("create_refresh_group('g', NULL)", "22023", "two different members"),
        ("create_refresh_group('g', '{}')", "22023", "two different members"),
        ("create_refresh_group('g', ARRAY['a', 'public.a'])", "22023", "two different members"),
        ("create_refresh_group('g', ARRAY['a', NULL])", "42602", "NULL is not a table name"),
        ("create_refresh_group('g', ARRAY['a', 't'])", "42P01", "stream table 't' does not exist"),
        ("create_refresh_group('g', ARRAY['a', 'b'], 'serializable')", "22023", "'serializable' is not an isolation"),
        ("create_refresh_group('g', ARRAY['a', 'b'], NULL)", "22023", "NULL is not an isolation"),
        ("drop_refresh_group('g')", "42704", "refresh group 'g' does not exist"),
        ("drop_refresh_group(NULL)", "42704", "refresh group NULL does not exist"),
    ],
)
def test_group_refuses_what_makes_no_sense(db: Database, call: str, state: str, message: str) -> None:
    with pytest.raises(psycopg.Error, match=message) as caught:
        db.sql(f"SELECT pgtrickle.{call}")
    assert caught.value.sqlstate == state
    assert caught.value.diag.message_hint


def test_stream_table_is_in_one_group_at_most(db: Database) -> None:
    db.sql("SELECT pgtrickle.create_refresh_group('g', ARRAY['a', 'b'])")
    with pytest.raises(psycopg.errors.ObjectInUse, match=r"public\.a is already in refresh group 'g'"):
        db.sql("""SELECT pgtrickle.create_refresh_group('h', ARRAY['a', '"Odd Schema"."Odd.Name"'])""")
    create(db, "c")
    with pytest.raises(psycopg.errors.DuplicateObject, match="refresh group 'g' already exists"):
        db.sql("""SELECT pgtrickle.create_refresh_group('g', ARRAY['c', '"Odd Schema"."Odd.Name"'])""")


def test_dropped_stream_table_leaves_its_group(db: Database) -> None:
    db.sql("SELECT pgtrickle.create_refresh_group('g', ARRAY['a', 'b'])")
    db.sql("SELECT pgtrickle.drop_stream_table('a')")
    assert db.sql(GROUPS) == [("g", "read_committed", 1, ["public.b"])]
    db.sql("SELECT pgtrickle.drop_stream_table('b')")
    assert db.sql(GROUPS) == []


def test_group_is_its_members_creators_business(db: Database, make_role: MakeRole) -> None:
    other = make_role(db)
    other.execute("SET search_path = public")
    with pytest.raises(psycopg.errors.InsufficientPrivilege, match="must be the creator of stream table"):
        other.execute("SELECT pgtrickle.create_refresh_group('g', ARRAY['a', 'b'])")
    db.sql("SELECT pgtrickle.create_refresh_group('g', ARRAY['a', 'b'])")
    with pytest.raises(psycopg.errors.InsufficientPrivilege, match="must be the creator of refresh group 'g'"):
        other.execute("SELECT pgtrickle.drop_refresh_group('g')")
    with pytest.raises(psycopg.errors.InsufficientPrivilege):
        other.execute("SELECT pgtrickle._leave_groups(1)")
    db.sql("UPDATE pgtrickle.pgt_stream_tables SET created_by = %s", other.info.user)
    with pytest.raises(psycopg.errors.ObjectInUse):
        other.execute("SELECT pgtrickle.create_refresh_group('h', ARRAY['a', 'b'])")
    db.sql("SELECT pgtrickle.drop_refresh_group('g')")
    other.execute("SELECT pgtrickle.create_refresh_group('h', ARRAY['a', 'b'])")
    assert db.sql("SELECT created_by FROM pgtrickle.refresh_groups()") == [(other.info.user,)]
    other.execute("SELECT pgtrickle.drop_refresh_group('h')")


# -- what reads what


DIAMOND = (("left", "SELECT a FROM t"), ("right", "SELECT a FROM t"),
           ("tip", 'SELECT l.a FROM "left" AS l JOIN "right" AS r ON l.a = r.a'))  # fmt: skip


def test_diamond_has_its_sides_and_its_tip(db: Database) -> None:
    columns = "group_id, member_schema, member_name, is_convergence, schedule_policy, consistency"
    diamonds = f"SELECT {columns} FROM pgtrickle.diamond_groups()"
    assert db.sql(diamonds) == []
    for name, query in DIAMOND:
        create(db, f'"{name}"', query)
    expected = [
        (1, "public", "left", False, "fastest", "atomic"),
        (1, "public", "right", False, "fastest", "atomic"),
        (1, "public", "tip", True, "fastest", "atomic"),
    ]
    assert db.sql(diamonds) == expected
    # a reader of the tip, a reader of one side, and a second diamond elsewhere
    create(db, "after", "SELECT a FROM tip")
    create(db, "beside", 'SELECT a FROM "left"')
    db.sql("CREATE TABLE u (x int)")
    create(db, "u1", "SELECT x FROM u")
    create(db, "u2", "SELECT x FROM u1")
    create(db, "u3", "SELECT x FROM u", diamond_consistency="none")
    create(db, "u4", "SELECT u2.x FROM u2, u3", diamond_schedule_policy="slowest")
    assert db.sql(diamonds) == [
        *expected,
        (2, "public", "u1", False, "fastest", "atomic"),
        (2, "public", "u2", False, "fastest", "atomic"),
        (2, "public", "u3", False, "fastest", "none"),
        (2, "public", "u4", True, "slowest", "atomic"),
    ]
    # one that reads both tips makes nothing new of what they do not share; one that shares a side joins the group
    create(db, "other_tip", 'SELECT l.a FROM "left" AS l, "right" AS r')
    assert {r[2] for r in db.sql(diamonds) if r[0] == 1} == {"left", "right", "tip", "other_tip"}


def test_diamonds_are_those_of_the_scheduler(db: Database) -> None:
    db.sql("CREATE TABLE u (a int)")
    for seed in range(4):
        rng = random.Random(seed)
        made = ["t", "u"]
        for i in range(rng.randint(3, 14)):
            sources = rng.sample(made, min(len(made), rng.choice([1, 2, 2, 3])))
            mode = "IMMEDIATE" if rng.random() < 0.1 else "AUTO"
            create(db, f"n{i}", f"SELECT {sources[0]}.a FROM {', '.join(sources)}", refresh_mode=mode)
            made.append(f"n{i}")
        found = db.sql(
            "SELECT st.pgt_id, st.pgt_relid::int8, array_agg(d.source_relid::int8), st.schedule, st.refresh_mode "
            "FROM pgtrickle.pgt_stream_tables AS st JOIN pgtrickle.pgt_dependencies AS d ON d.pgt_id = st.pgt_id "
            "GROUP BY st.pgt_id"
        )
        graph = Graph.of([Node(i, relid, tuple(sources), *rest) for i, relid, sources, *rest in found])
        reported: dict[int, list[tuple[int, bool]]] = {}
        for group, pgt_id, is_tip in db.sql(
            "SELECT g.group_id, st.pgt_id, g.is_convergence FROM pgtrickle.diamond_groups() AS g "
            "JOIN pgtrickle.pgt_stream_tables AS st ON st.pgt_name = g.member_name AND st.pgt_schema = g.member_schema"
        ):
            reported.setdefault(group, []).append((pgt_id, is_tip))
        expected = {b.members: {(i, i in graph.convergences) for i in b.members} for b in graph.bundles.values()}
        assert sorted(map(sorted, reported.values())) == sorted(map(sorted, expected.values())), seed
        for name in reversed(made[2:]):
            db.sql(f"SELECT pgtrickle.drop_stream_table('{name}')")


def test_circle_is_reported_with_its_rounds(db: Database) -> None:
    assert db.sql("SELECT * FROM pgtrickle.pgt_scc_status()") == []
    first, second = create(db, "x", "SELECT a FROM a"), create(db, "y", "SELECT a FROM x")
    # as a cycle is stored
    db.sql(
        "INSERT INTO pgtrickle.pgt_dependencies (pgt_id, source_relid, source_type) "
        "VALUES (%s, 'y'::regclass, 'STREAM_TABLE')",
        first,
    )
    assert db.sql("SELECT * FROM pgtrickle.pgt_scc_status()") == [(1, 2, ["public.x", "public.y"], None, None)]
    job_id = job(
        db, [first, second], "SUCCEEDED", unit_kind="cyclic_scc", iterations=4, finished_at="2024-05-01 10:00Z"
    )
    ((at,),) = db.sql("SELECT finished_at FROM pgtrickle.pgt_scheduler_jobs WHERE job_id = %s", job_id)
    assert db.sql("SELECT * FROM pgtrickle.pgt_scc_status()") == [(1, 2, ["public.x", "public.y"], 4, at)]
    # and the other reports end
    assert len(db.sql("SELECT * FROM pgtrickle.dependency_tree()")) > 5
    assert db.sql("SELECT * FROM pgtrickle.diamond_groups()") == []
    assert db.sql("SELECT count(*) FROM pgtrickle.stream_tables_info") == [(5,)]


def test_tree_shows_sources_below_their_readers(db: Database) -> None:
    db.sql("CREATE VIEW v AS SELECT a FROM a")
    for name, query in DIAMOND:
        create(db, f'"{name}"', query)
    create(db, "top", "SELECT v.a FROM v, tip, t")
    lines = db.sql("SELECT tree_line FROM pgtrickle.dependency_tree()")
    assert (
        "\n".join(line for (line,) in lines)
        == """\
"Odd Schema"."Odd.Name"
└── public.t
public.b
└── public.t
public.top
├── public.a
│   └── public.t
├── public.t
└── public.tip
    ├── public."left"
    │   └── public.t
    └── public."right"
        └── public.t"""
    )
    assert db.sql("SELECT node, node_type, depth, status, refresh_mode FROM pgtrickle.dependency_tree()")[4:8] == [
        ("public.top", "stream_table", 0, "INITIALIZING", "DIFFERENTIAL"),
        ("public.a", "stream_table", 1, "INITIALIZING", "DIFFERENTIAL"),
        ("public.t", "table", 2, None, None),
        ("public.t", "table", 1, None, None),
    ]
    create(db, "zebra", "SELECT a FROM tip")
    assert [line for (line,) in db.sql("SELECT tree_line FROM pgtrickle.dependency_tree()")][-2:] == [
        "public.zebra", "└── public.tip (see above)",
    ]  # fmt: skip


def test_tree_of_many_levels_stays_small(db: Database) -> None:
    """Two tables per level that read both of the level below: a million ways; sources are shown once."""
    below = ("a", "b")
    for level in range(20):
        names = (f"l{level}", f"r{level}")
        for name in names:
            create(db, name, f"SELECT x.a FROM {below[0]} AS x JOIN {below[1]} AS y ON x.a = y.a")
        below = names
    assert len(db.sql("SELECT * FROM pgtrickle.dependency_tree()")) < 100
    # all on ways from t to the last, but the one that is neither
    assert db.sql("SELECT count(*), count(DISTINCT group_id) FROM pgtrickle.diamond_groups()") == [(42, 1)]
    assert db.sql("SELECT count(*) FROM pgtrickle.pgt_scc_status()") == [(0,)]
