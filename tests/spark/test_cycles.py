"""Stream tables that read one another: after each refresh they are what WITH RECURSIVE finds, all at one instant."""

from __future__ import annotations

import random
from collections.abc import Callable

import pytest

from pgtrickle.define import compile as compiling
from pgtrickle.model.reasons import Reason, ReasonCode
from pgtrickle.refresh import cycle as cycle_module
from pgtrickle.settings import Settings
from tests.conftest import Database
from tests.line import Line

TABLES = "CREATE TABLE edge (a int NOT NULL, b int NOT NULL, note text); CREATE TABLE start (a int NOT NULL);"
# every change counts as small, so that only what is asserted decides between the stored rows and nothing
SETTINGS = Settings(allow_circular=True, differential_max_change_ratio=1.0)
# the tables of a cycle and what each reads; first all are made with the seed
Cycle = dict[str, str]
NODES, PAIRS = "SELECT s.a FROM start s", "SELECT e.a, e.b FROM edge e"

PARITY: Cycle = {
    "even": "SELECT s.a FROM start s UNION SELECT e.b FROM edge e JOIN odd o ON o.a = e.a",
    "odd": "SELECT DISTINCT e.b AS a FROM edge e JOIN even v ON v.a = e.a",
}
WALK = (
    "WITH RECURSIVE r(a, n) AS (SELECT a, 0 FROM start UNION SELECT e.b, (n + 1) %% {0} FROM r JOIN edge e USING (a)) "
    "SELECT a FROM r WHERE n = {1}"
)
CLOSURE: Cycle = {  # not linear: both sides of the join grow
    "path": "SELECT e.a, e.b FROM edge e UNION SELECT h.a, p.b FROM hop h JOIN path p ON p.a = h.b",
    "hop": "SELECT p.a, p.b FROM path p",
}
PATHS = (
    "WITH RECURSIVE r AS (SELECT a, b FROM edge UNION SELECT r.a, e.b FROM r JOIN edge e ON e.a = r.b) "
    "SELECT a, b FROM r"
)


@pytest.fixture
def line(installed: Database, make_line: Callable[..., Line]) -> Line:
    found = make_line(installed, SETTINGS)
    found.sql("SELECT pgtrickle.set_option('allow_circular', 'on')")
    found.sql(TABLES)
    return found


def close(line: Line, cycle: Cycle, seed: str) -> None:
    for name in cycle:
        line.sql("SELECT pgtrickle.create_stream_table(%s, %s)", name, seed)
    for name, query in cycle.items():
        line.sql("SELECT pgtrickle.alter_stream_table(%s, query => %s)", name, query)
    tick(line)


def tick(line: Line) -> None:
    assert [o.error for o in line.tick() if o.error is not None] == []


def same(line: Line, name: str, query: str) -> None:
    """Both ways, as bags. Percent signs are doubled in `query`."""
    columns = "a, b" if "SELECT a, b FROM r" in query else "a"
    stored, query = f"SELECT {columns} FROM {name}", query.replace("%%", "%")
    for one, other in ((stored, query), (query, stored)):
        assert line.sql(f"SELECT * FROM ({one}) AS x EXCEPT ALL SELECT * FROM ({other}) AS y") == [], (name, one)


def at_one_instant(line: Line, cycle: Cycle) -> None:
    names = list(cycle)
    rows = line.sql("SELECT DISTINCT frontier FROM pgtrickle.pgt_stream_tables WHERE pgt_name = ANY (%s)", names)
    assert len(rows) == 1


def check(line: Line, cycle: Cycle, actions: str, *queries: str) -> None:
    for name, query in zip(cycle, queries, strict=True):
        same(line, name, query)
        line.check(name, actions)
    at_one_instant(line, cycle)


def test_cycle_follows_inserts_deletes_and_updates_in_random_rounds(line: Line) -> None:
    rng = random.Random(7)
    line.sql("INSERT INTO start VALUES (0), (5); INSERT INTO edge SELECT i, i + 1 FROM generate_series(0, 8) AS i")
    close(line, PARITY, NODES)
    both = [WALK.format(2, 0), WALK.format(2, 1)]
    check(line, PARITY, "FULL", *both)
    for _ in range(10):
        goes = False
        for _ in range(rng.randint(1, 4)):
            what = rng.choice(("insert", "insert", "delete", "update"))
            a, b = rng.randrange(12), rng.randrange(12)
            if what == "insert":
                line.sql("INSERT INTO edge VALUES (%s, %s)", a, b)
            elif what == "delete":
                goes |= bool(line.sql("DELETE FROM edge WHERE a = %s RETURNING a", a))
            else:
                goes |= bool(line.sql("UPDATE edge SET b = %s WHERE a = %s AND b <> %s RETURNING a", b, a, b))
        tick(line)
        for name, query in zip(PARITY, both, strict=True):
            same(line, name, query)
            assert line.last(name)[1] == "COMPLETED"
            line.equal(name)
        at_one_instant(line, PARITY)


def test_inserts_begin_with_the_stored_rows_and_losses_with_nothing(line: Line) -> None:
    line.sql("INSERT INTO edge SELECT i, i + 1 FROM generate_series(1, 20) AS i")
    close(line, CLOSURE, PAIRS)
    check(line, CLOSURE, "FULL", PATHS, PATHS)
    line.sql("INSERT INTO edge VALUES (21, 22), (30, 1)")
    tick(line)
    check(line, CLOSURE, "DIFFERENTIAL", PATHS, PATHS)
    line.sql("INSERT INTO edge VALUES (22, 1)")  # a circle in the data: every row supports every other
    tick(line)
    check(line, CLOSURE, "DIFFERENTIAL", PATHS, PATHS)
    line.sql("UPDATE edge SET note = 'nobody reads this'")
    tick(line)
    check(line, CLOSURE, "NO_DATA", PATHS, PATHS)
    line.sql("DELETE FROM edge WHERE a = 22")
    tick(line)
    check(line, CLOSURE, "FULL", PATHS, PATHS)
    assert line.reason("path") == Reason.of(ReasonCode.CYCLE_ROWS_DELETED)
    written = line.sql("SELECT rows_inserted FROM pgtrickle.pgt_refresh_history ORDER BY refresh_id DESC LIMIT 1")
    assert written == [(0,)]  # the difference alone
    line.sql("TRUNCATE edge")
    tick(line)
    check(line, CLOSURE, "FULL", PATHS, PATHS)


def test_support_in_a_circle_does_not_keep_rows_alive(line: Line) -> None:
    line.sql("INSERT INTO start VALUES (1); INSERT INTO edge VALUES (1, 2), (2, 3), (3, 2)")
    close(line, PARITY, NODES)
    line.sql("DELETE FROM edge WHERE a = 1")
    tick(line)
    assert line.rows("even") == [(1,)]
    assert line.rows("odd") == []


def test_duplicates_count_and_a_bag_that_grows_for_ever_stops_at_the_limit(line: Line) -> None:
    line.sql("INSERT INTO start VALUES (1), (1), (2); INSERT INTO edge VALUES (1, 2), (1, 2), (2, 3), (1, 3)")
    bag = {
        "walk": "SELECT s.a FROM start s UNION ALL SELECT e.b FROM edge e JOIN behind w ON w.a = e.a",
        "behind": "SELECT w.a FROM walk w",
    }
    close(line, bag, NODES)
    recursive = WALK.replace("UNION", "UNION ALL").replace("(n + 1) %% {0}", "0").format(0, 0)
    check(line, bag, "FULL", recursive, recursive)
    line.sql("INSERT INTO edge VALUES (3, 4), (3, 4)")
    tick(line)
    check(line, bag, "DIFFERENTIAL", recursive, recursive)
    line.sql("DELETE FROM start WHERE ctid = (SELECT min(ctid) FROM start)")
    tick(line)
    check(line, bag, "FULL", recursive, recursive)
    before = line.rows("walk")
    frontier = line.sql("SELECT frontier FROM pgtrickle.pgt_stream_tables")
    line.sql("INSERT INTO edge VALUES (5, 5); INSERT INTO start VALUES (5)")
    failed = [o.error for o in line.tick() if o.error is not None]
    assert len(failed) == 2
    assert "does not terminate: there are still new rows after 100 rounds" in str(failed[0])
    assert line.sql("SELECT DISTINCT status FROM pgtrickle.pgt_stream_tables") == [("ERROR",)]
    assert line.rows("walk") == before
    assert line.sql("SELECT frontier FROM pgtrickle.pgt_stream_tables") == frontier
    assert line.sql("SELECT count(*) FROM pg_class WHERE relname ~ '^__pgt_(came|now)_'") == [(0,)]
    # the data is put right, and somebody resumes them
    line.sql("DELETE FROM edge WHERE a = 5")
    line.sql("SELECT pgtrickle.resume_stream_table(n) FROM unnest(ARRAY['walk', 'behind']) AS n")
    tick(line)
    for name in bag:
        same(line, name, recursive)


def test_bag_that_doubles_stops_before_it_fills_the_disk(line: Line, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cycle_module, "MAX_CYCLE_ROWS", 1_000)
    line.sql("INSERT INTO start VALUES (1)")
    for name in ("more", "twice"):
        line.sql("SELECT pgtrickle.create_stream_table(%s, %s)", name, NODES)
    line.sql("SELECT pgtrickle.alter_stream_table('twice', query => 'SELECT a FROM more UNION ALL SELECT a FROM more')")
    line.sql("SELECT pgtrickle.alter_stream_table('more', query => %s)", NODES + " UNION ALL SELECT t.a FROM twice t")
    errors = [str(o.error) for o in line.tick()]
    assert ["new rows in 9 rounds" in e for e in errors] == [True, True], errors


def test_cycle_of_three_a_cycle_of_one_and_a_diamond_in_a_cycle(line: Line) -> None:
    line.sql("INSERT INTO start VALUES (0); INSERT INTO edge SELECT i, (i + 1) % 7 FROM generate_series(0, 6) AS i")
    three = {
        "n0": "SELECT s.a FROM start s UNION SELECT e.b FROM edge e JOIN n2 x ON x.a = e.a",
        "n1": "SELECT DISTINCT e.b AS a FROM edge e JOIN n0 x ON x.a = e.a",
        "n2": "SELECT DISTINCT e.b AS a FROM edge e JOIN n1 x ON x.a = e.a",
    }
    one = {"self": "SELECT s.a FROM start s UNION SELECT e.b FROM edge e JOIN self x ON x.a = e.a"}
    diamond = {
        "top": "SELECT s.a FROM start s UNION SELECT x.a FROM bottom x",
        "left_": "SELECT DISTINCT e.b AS a FROM edge e JOIN top x ON x.a = e.a WHERE e.a % 2 = 0",
        "right_": "SELECT DISTINCT e.b AS a FROM edge e JOIN top x ON x.a = e.a WHERE e.a % 2 = 1",
        "bottom": "SELECT l.a FROM left_ l UNION SELECT r.a FROM right_ r",
    }
    for cycle in (three, one, diamond):
        close(line, cycle, NODES)
    assert sorted(m for (m,) in line.sql("SELECT member_count FROM pgtrickle.pgt_scc_status()")) == [1, 3, 4]
    reach = WALK.format(1, 0)

    def right(*actions: str) -> None:
        for i, name in enumerate(three):
            same(line, name, WALK.format(3, i))
        same(line, "self", reach)
        same(line, "top", reach)
        for cycle in (three, one, diamond):
            at_one_instant(line, cycle)
            for name in cycle:
                assert line.last(name)[0] in actions
                line.equal(name)

    right("FULL")
    line.sql("INSERT INTO edge VALUES (3, 9), (9, 10)")
    tick(line)
    right("DIFFERENTIAL")
    line.sql("DELETE FROM edge WHERE a = 2")
    tick(line)
    right("FULL")


def test_exists_in_and_a_view_are_monotone(line: Line) -> None:
    line.sql("INSERT INTO start VALUES (1), (4); INSERT INTO edge VALUES (1, 2), (2, 3), (3, 1), (4, 5), (6, 7)")
    line.sql("CREATE TABLE open_ (a int); INSERT INTO open_ VALUES (1), (2), (3), (5), (NULL)")
    close(line, {"near": "SELECT s.a FROM start s", "far": "SELECT s.a FROM start s"}, NODES)
    line.sql("CREATE VIEW seen AS SELECT f.a FROM far f WHERE f.a IS NOT NULL")
    cycle = {
        "near": "SELECT s.a FROM start s UNION SELECT v.a FROM seen v WHERE v.a IN (SELECT o.a FROM open_ o)",
        "far": "SELECT DISTINCT e.b AS a FROM edge e WHERE EXISTS (SELECT 1 FROM near n WHERE n.a = e.a)",
    }
    for name, query in cycle.items():
        line.sql("SELECT pgtrickle.alter_stream_table(%s, query => %s)", name, query)
    recursive = (
        "WITH RECURSIVE r(a) AS (SELECT a FROM start UNION SELECT e.b FROM r JOIN edge e USING (a) "
        "WHERE e.b IN (SELECT o.a FROM open_ o)) SELECT a FROM r"
    )
    for change in (
        "SELECT 1",
        "INSERT INTO open_ VALUES (7)",
        "INSERT INTO edge VALUES (5, 6)",
        "INSERT INTO open_ VALUES (6)",
        "DELETE FROM open_ WHERE a = 2",
        "UPDATE open_ SET a = 2 WHERE a IS NULL",
    ):
        line.sql(change)
        tick(line)
        same(line, "near", recursive)
        line.equal("far")


def test_consumer_of_a_cycle_follows_it(line: Line) -> None:
    line.sql("INSERT INTO start VALUES (0); INSERT INTO edge SELECT i, i + 1 FROM generate_series(0, 5) AS i")
    close(line, PARITY, NODES)
    line.create("reached", "SELECT count(*) AS n, max(e.a) AS most FROM even e")
    assert line.rows("reached") == [(4, 6)]
    line.sql("INSERT INTO edge VALUES (6, 7), (7, 8)")
    for _ in range(2):
        tick(line)
    assert line.rows("reached") == [(5, 8)]
    line.check("reached")
    line.sql("DELETE FROM edge WHERE a = 3")
    for _ in range(2):
        tick(line)
    assert line.rows("reached") == [(2, 2)]
    line.check("reached")


def test_cycle_over_another_stream_table_and_types_that_travel_as_text(line: Line) -> None:
    line.sql("CREATE TABLE link (a uuid, b uuid, cost numeric(8, 2), at timestamptz)")
    line.sql(
        "INSERT INTO link SELECT md5(i::text)::uuid, md5((i + 1)::text)::uuid, i / 3.0, 'epoch' "
        "FROM generate_series(1, 6) i"
    )
    line.create("dear", "SELECT l.a, l.b, l.cost, l.at FROM link l WHERE l.cost > 0.5")
    close(
        line,
        {
            "way": "SELECT d.a, d.b, d.cost, d.at FROM dear d UNION SELECT w.a, d.b, d.cost, d.at FROM way2 w "
            "JOIN dear d ON d.a = w.b",
            "way2": "SELECT w.a, w.b, w.cost, w.at FROM way w",
        },
        "SELECT l.a, l.b, l.cost, l.at FROM link l",
    )
    recursive = (
        "WITH RECURSIVE r AS (SELECT a, b, cost, at FROM link WHERE cost > 0.5 UNION SELECT r.a, l.b, l.cost, l.at "
        "FROM r JOIN link l ON l.a = r.b WHERE l.cost > 0.5) SELECT a, b FROM r"
    )
    same(line, "way", recursive)
    line.sql("INSERT INTO link VALUES (md5('7')::uuid, md5('1')::uuid, 2, 'infinity'), (NULL, NULL, 3, NULL)")
    for _ in range(3):
        tick(line)
    same(line, "way", recursive)
    line.check("way")
    line.equal("way2")


def test_failing_apply_leaves_all_members_at_the_old_instant(line: Line) -> None:
    line.sql("INSERT INTO start VALUES (0); INSERT INTO edge SELECT i, i + 1 FROM generate_series(0, 5) AS i")
    close(line, PARITY, NODES)
    line.sql("ALTER TABLE odd ADD CHECK (a < 8)")
    before = [line.rows(name) for name in PARITY]
    frontiers = line.sql("SELECT pgt_name, frontier, epoch FROM pgtrickle.pgt_stream_tables ORDER BY 1")
    line.sql("INSERT INTO edge VALUES (6, 7), (7, 8), (8, 9)")
    assert [o.error is not None for o in line.tick()] == [True, True]
    assert [line.rows(name) for name in PARITY] == before
    assert line.sql("SELECT pgt_name, frontier, epoch FROM pgtrickle.pgt_stream_tables ORDER BY 1") == frontiers
    line.sql("ALTER TABLE odd DROP CONSTRAINT odd_a_check")
    line.sql("SELECT pgtrickle.resume_stream_table(n) FROM unnest(ARRAY['even', 'odd']) AS n")
    tick(line)
    check(line, PARITY, "DIFFERENTIAL", WALK.format(2, 0), WALK.format(2, 1))


def test_row_written_by_hand_is_found_out(line: Line) -> None:
    line.sql("INSERT INTO start VALUES (0); INSERT INTO edge SELECT i, i + 1 FROM generate_series(0, 5) AS i")
    close(line, PARITY, NODES)
    line.sql("SELECT pgtrickle.protect_stream_table('odd', false); INSERT INTO odd (a, __pgt_row_id) VALUES (77, 1)")
    tick(line)
    check(line, PARITY, "FULL", WALK.format(2, 0), WALK.format(2, 1))
    assert line.reason("even") == Reason.of(ReasonCode.CYCLE_WRITTEN)


def test_tables_that_leave_a_cycle_are_maintained_as_others_are(line: Line) -> None:
    line.sql("INSERT INTO start VALUES (0); INSERT INTO edge SELECT i, i + 1 FROM generate_series(0, 5) AS i")
    close(line, PARITY, NODES)
    line.sql("SELECT pgtrickle.alter_stream_table('even', query => 'SELECT DISTINCT s.a FROM start s')")
    for _ in range(2):
        tick(line)
    assert line.rows("odd") == [(1,)]
    line.sql("INSERT INTO start VALUES (3), (3)")
    for _ in range(2):
        tick(line)
    assert line.rows("odd") == [(1,), (4,)]
    for name in PARITY:
        line.check(name)
    assert line.sql("SELECT * FROM pgtrickle.pgt_scc_status()") == []


def test_plan_finds_what_is_not_monotone_where_the_parts_do_not_tell(line: Line) -> None:
    line.sql("SELECT pgtrickle.create_stream_table('even', %s)", NODES)
    query = "SELECT e.b AS a FROM edge e WHERE e.a = 1 OR EXISTS (SELECT 1 FROM even v WHERE v.a = e.a)"
    line.sql("SELECT pgtrickle.create_stream_table('odd', %s)", query)
    line.sql("SELECT pgtrickle.alter_stream_table('even', query => 'SELECT DISTINCT o.a FROM odd o')")
    errors = [str(o.error) for o in line.tick() if o.error is not None]
    assert any("public.odd reads itself" in e and "a subquery under NOT, OR" in e for e in errors), errors
    assert line.sql("SELECT status FROM pgtrickle.pgt_stream_tables WHERE pgt_name = 'odd'") == [("ERROR",)]


def test_cycle_is_not_refreshed_while_allow_circular_is_off(
    installed: Database, line: Line, make_line: Callable[..., Line]
) -> None:
    line.sql("INSERT INTO start VALUES (0)")
    close(line, PARITY, NODES)
    line.sql("INSERT INTO start VALUES (1)")
    errors = [str(o.error) for o in make_line(installed, Settings()).tick()]
    assert len(errors) == 2
    assert "while allow_circular is off" in errors[0]


def test_rounds_are_as_many_as_max_fixpoint_iterations_allows(
    installed: Database, line: Line, make_line: Callable[..., Line]
) -> None:
    line.sql("INSERT INTO start VALUES (0); INSERT INTO edge SELECT i, i + 1 FROM generate_series(0, 9) AS i")
    few = make_line(installed, Settings(allow_circular=True, max_fixpoint_iterations=5))
    for name in PARITY:
        line.sql("SELECT pgtrickle.create_stream_table(%s, %s)", name, NODES)
    for name, query in PARITY.items():
        line.sql("SELECT pgtrickle.alter_stream_table(%s, query => %s)", name, query)
    assert ["after 5 rounds" in str(o.error) for o in few.tick()] == [True, True]
    line.sql("SELECT pgtrickle.resume_stream_table(n) FROM unnest(ARRAY['even', 'odd']) AS n")
    assert {o.rounds for o in line.tick()} == {7}  # two nodes in each, the eleventh in the sixth, none in the last


def test_a_long_change_statement_does_not_break_a_cycle(line: Line, monkeypatch: pytest.MonkeyPatch) -> None:
    """FULL, which AUTO takes for others, is no way to a fixpoint."""
    monkeypatch.setattr(compiling, "MOST_CHARACTERS", 0)
    line.sql("INSERT INTO start VALUES (1); INSERT INTO edge VALUES (1, 2), (2, 3)")
    close(line, PARITY, NODES)
    line.sql("INSERT INTO edge VALUES (3, 4), (4, 1)")
    tick(line)
    same(line, "even", WALK.format(2, 0))
    same(line, "odd", WALK.format(2, 1))
