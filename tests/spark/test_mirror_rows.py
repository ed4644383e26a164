"""The rows of mirrors: identified by their database on every way in, netted where they are applied, exact."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

import pytest

from pgtrickle.apply.target import Target
from pgtrickle.mirror import manage as mirroring
from pgtrickle.mirror import refresh as mirrors
from pgtrickle.mirror.refresh import MirrorRefresher
from tests.conftest import Database
from tests.elsewhere import Elsewhere
from tests.line import Line

Make = Callable[[], Database]

# No key, rows more than once, NULLs, values that are equal and not the same.
TABLE = (
    "CREATE TABLE things (a int, v numeric, note text);"
    "INSERT INTO things VALUES (1, 1.0, 'x'), (1, 1.00, 'x'), (1, 1.0, 'x'), (2, NULL, NULL), (2, NULL, NULL), "
    "(NULL, NULL, NULL), (3, 3e5, '{\"a\",NULL}'), (4, -0.0, '')"
)


@pytest.fixture
def fleet(make_installed: Make, make_database: Make, make_line: Callable[..., Line]) -> Elsewhere:
    home, other = make_installed(), make_installed()
    other.sql(TABLE)
    return Elsewhere(home, make_line(home), [other], make_database)


def copied(fleet: Elsewhere) -> None:
    fleet.create("copied", "SELECT a, v, note FROM {0}.public.things", mode="DIFFERENTIAL")
    fleet.settle()
    check(fleet, None)


def mirror(fleet: Elsewhere) -> str:
    return str(fleet.home.sql("SELECT format('pgtrickle_changes.mirror_%s', pgt_id) FROM pgtrickle.pgt_mirrors")[0][0])


def check(fleet: Elsewhere, action: str | None = "DIFFERENTIAL") -> None:
    """Reader and mirror are exact, and each row of the mirror has the identity that a table of its types has."""
    fleet.check("copied", action)
    wrong = fleet.home.sql(
        f"SELECT count(*) FROM {mirror(fleet)} "
        'WHERE __pgt_row_id <> hash_record_extended(ROW(a, v, note COLLATE "C"), 0)'
    )
    assert wrong == [(0,)]


def last(fleet: Elsewhere) -> tuple[str, int, int, bool]:
    """Of the mirror: action, rows that came and went, whether Spark had a part."""
    ((action, came, went, timings),) = fleet.home.sql(
        "SELECT action, rows_inserted, rows_deleted, timings FROM pgtrickle.pgt_refresh_history "
        "JOIN pgtrickle.pgt_mirrors USING (pgt_id) ORDER BY refresh_id DESC LIMIT 1"
    )
    return action, came, went, "spark" in timings


def test_few_changes_are_netted_by_the_database(fleet: Elsewhere) -> None:
    copied(fleet)
    (other,) = fleet.others
    other.sql(
        "DELETE FROM things WHERE ctid = (SELECT min(ctid) FROM things WHERE v::text = '1.0');"
        "INSERT INTO things VALUES (1, 1.00, 'x'), (5, NULL, 'new'), (5, NULL, 'new');"
        "UPDATE things SET note = 'y' WHERE a = 2; UPDATE things SET note = NULL WHERE a = 2;"
        "INSERT INTO things VALUES (6, 6, 'gone'); DELETE FROM things WHERE a = 6"
    )
    fleet.settle()
    assert last(fleet) == ("DIFFERENTIAL", 3, 1, False)
    check(fleet)
    other.sql("DELETE FROM things WHERE a IS NULL OR a IN (2, 5); UPDATE things SET v = 1.000 WHERE v = 1")
    fleet.settle()
    assert last(fleet)[3] is False
    check(fleet)


def test_changes_that_cancel_out_are_none_to_readers(fleet: Elsewhere) -> None:
    copied(fleet)
    (other,) = fleet.others
    before = fleet.line.last("copied")
    other.sql("UPDATE things SET note = note || '!' WHERE a = 1; UPDATE things SET note = 'x' WHERE a = 1")
    fleet.settle()
    relid = fleet.home.sql(f"SELECT '{mirror(fleet)}'::regclass::oid::int8")[0][0]
    assert fleet.home.sql(f"SELECT count(*) FROM pgtrickle_changes.changes_{relid}") == [(0,)]
    assert fleet.line.last("copied") == before
    check(fleet, None)


def test_many_changes_are_netted_by_spark(fleet: Elsewhere, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(mirrors, "MIRROR_ROWS", 10)
    monkeypatch.setattr("pgtrickle.refresh.deltas.MIRROR_ROWS", 10)
    monkeypatch.setattr("pgtrickle.pipeline.engine.netting.NETTED_HERE_ROWS", 10)
    copied(fleet)
    (other,) = fleet.others
    for number in range(2):  # first by a reading, then more than a reading keeps
        if number:
            monkeypatch.setattr("pgtrickle.origin.changes.MAX_ROWS_PER_READING", 10)
        other.sql(
            "UPDATE things SET note = 'z' || coalesce(note, '') WHERE a <= 2;"
            f"INSERT INTO things SELECT i, i / 3.0, NULL FROM generate_series(1, {6000 * number + 20}) AS i;"
            "DELETE FROM things WHERE v = 1"
        )
        fleet.settle()
        assert last(fleet)[3] is True
        check(fleet)


def test_rows_of_one_hash_stay_apart(fleet: Elsewhere, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Target, "identity", lambda *_: "7::int8")
    (other,) = fleet.others
    fleet.create("copied", "SELECT a, v, note FROM {0}.public.things")
    fleet.settle()
    other.sql("DELETE FROM things WHERE v::text = '1.00'; UPDATE things SET note = 'one' WHERE a = 4")
    fleet.settle()
    fleet.check("copied")
    other.sql("DELETE FROM pgtrickle.pgt_readers; INSERT INTO things VALUES (9, 9, '9')")
    fleet.settle()
    fleet.check("copied")
    assert fleet.home.sql(f"SELECT DISTINCT __pgt_row_id FROM {mirror(fleet)}") == [(7,)]


def test_loaded_anew_by_the_driver_and_by_executors(fleet: Elsewhere, monkeypatch: pytest.MonkeyPatch) -> None:
    copied(fleet)
    (other,) = fleet.others
    other.sql("TRUNCATE things; INSERT INTO things VALUES (1, 1.0, 'x'), (1, 1.0, 'x'), (7, 7.70, NULL)")
    fleet.settle()
    assert last(fleet)[1:3] == (1, 6)
    check(fleet)
    monkeypatch.setattr(mirroring, "MirrorRefresher", partial(MirrorRefresher, bulk_bytes=0))
    other.sql("TRUNCATE things; INSERT INTO things VALUES (1, 1.0, 'x'), (8, 8, '8')")
    fleet.settle()
    assert last(fleet)[1:3] == (1, 2)
    check(fleet)
    other.sql("DELETE FROM things WHERE a = 8")
    fleet.settle()
    check(fleet)


def test_a_mirror_of_before_is_loaded_anew(fleet: Elsewhere, make_line: Callable[..., Line]) -> None:
    """Its rows have another identity: a newer program does not look for them by its own."""
    copied(fleet)
    (other,) = fleet.others
    fleet.home.sql(f"UPDATE {mirror(fleet)} SET __pgt_row_id = coalesce(a, 0)")
    fleet.home.sql(
        "UPDATE pgtrickle.pgt_stream_tables SET plan = jsonb_set(plan, '{shape}', '\"of before\"') "
        "WHERE pgt_id IN (SELECT pgt_id FROM pgtrickle.pgt_mirrors)"
    )
    fleet.line.close()
    fleet.line = make_line(fleet.home)
    other.sql("DELETE FROM things WHERE a = 1")
    fleet.settle()
    assert last(fleet)[0] == "REINITIALIZE"
    check(fleet)
    other.sql("UPDATE things SET a = a + 1")
    fleet.settle()
    check(fleet)


@pytest.mark.parametrize(
    ("key", "by_key"),
    [("id int", True), ("id numeric, at date", True), ("id text", False), ("id mood", False)],
    ids=["plain", "of two columns", "with a collation", "of a type of their own"],
)
def test_rows_are_found_by_the_key_of_their_table(
    fleet: Elsewhere, key: str, by_key: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    (other,) = fleet.others
    names = ", ".join(part.split()[0] for part in key.split(", "))
    ids = "(3, 4.0, 5)" if "numeric" in key else "('3', '4', '5')"
    for database in (fleet.home, other):
        database.sql("CREATE TYPE mood AS ENUM ('1', '2', '3', '4', '5', '6')")
    other.sql(f"CREATE TABLE keyed ({key}, v text, PRIMARY KEY ({names}))")
    dates = ", '2026-01-01'" if "date" in key else ""
    other.sql("INSERT INTO keyed VALUES " + ", ".join(f"('{i}'{dates}, 'v{i}')" for i in range(1, 6)))
    fleet.create("copied", "SELECT v FROM {0}.public.keyed")
    fleet.settle()
    has_index = fleet.home.sql(
        "SELECT EXISTS (SELECT FROM pg_index AS i JOIN pg_attribute AS a ON a.attrelid = i.indrelid "
        f"AND a.attnum = i.indkey[0] WHERE i.indrelid = '{mirror(fleet)}'::regclass AND a.attname = '__pgt_row_id')"
    )
    assert has_index == [(not by_key,)]
    for most in (5000, 2):  # by the statement, and staged
        monkeypatch.setattr(mirrors, "MIRROR_ROWS", most)
        monkeypatch.setattr("pgtrickle.refresh.deltas.MIRROR_ROWS", most)
        other.sql(
            f"UPDATE keyed SET v = v || '{most}' WHERE id IN {ids}; DELETE FROM keyed WHERE id = '1';"
            f"UPDATE keyed SET id = '1' WHERE id = '2'; INSERT INTO keyed VALUES ('2'{dates}, NULL)"
        )
        fleet.settle()
        assert fleet.line.last("copied")[:2] == ("DIFFERENTIAL", "COMPLETED")
        assert fleet.line.rows("copied") == sorted(other.sql("SELECT v FROM keyed"), key=repr)
