"""A buffer with readers in several databases, over the whole line."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from pgtrickle.capture.compact import Compactor
from pgtrickle.capture.trim import trim_all
from pgtrickle.db import connect
from pgtrickle.model.flow import Cut
from pgtrickle.runtime.mirrors import FORGOTTEN, NETTED
from pgtrickle.settings import Settings
from tests.conftest import Database
from tests.elsewhere import Elsewhere
from tests.line import Line

Make = Callable[[], Database]
MakeLine = Callable[..., Line]


@pytest.fixture
def origin(make_installed: Make) -> Database:
    origin = make_installed()
    origin.sql(
        "CREATE TABLE items (id int PRIMARY KEY, v int); INSERT INTO items SELECT i, i FROM generate_series(1, 9) AS i"
    )
    return origin


@pytest.fixture
def make_home(
    origin: Database, make_installed: Make, make_database: Make, make_line: MakeLine
) -> Callable[..., Elsewhere]:
    def make(settings: Settings | None = None) -> Elsewhere:
        home = make_installed()
        fleet = Elsewhere(home, make_line(home, settings), [origin], make_database)
        fleet.create("copy", "SELECT id, v FROM {0}.public.items")
        fleet.settle()
        tell(fleet)
        return fleet

    return make


def tell(fleet: Elsewhere) -> None:
    """As the dispatcher does now and then."""
    fleet.line.session.site._origins.tell_all()


def mirrored(fleet: Elsewhere) -> tuple[str, str | None]:
    """What the latest refresh of the mirror was."""
    rows = fleet.home.sql(
        "SELECT h.action, h.reason FROM pgtrickle.pgt_refresh_history AS h JOIN pgtrickle.pgt_mirrors USING (pgt_id) "
        "ORDER BY h.refresh_id DESC LIMIT 1"
    )
    return rows[0][0], rows[0][1]


def buffered(origin: Database) -> int:
    ((relid,),) = origin.sql("SELECT 'items'::regclass::oid::int8")
    return int(origin.sql(f"SELECT count(*) FROM pgtrickle_changes.changes_{relid}")[0][0])


def netted(origin: Database) -> int:
    """Netted out when all readers have been silent for long."""
    origin.sql("UPDATE pgtrickle.pgt_readers SET updated_at = '2000-01-01'")
    with connect(origin.dsn, role="test", autocommit=True) as conn:
        return sum(Compactor().round(conn, 1).values())


def trimmed(origin: Database) -> int:
    with connect(origin.dsn, role="test", autocommit=True) as conn:
        return sum(trim_all(conn).values())


def test_changes_stay_until_the_slowest_database_has_them(
    origin: Database, make_home: Callable[..., Elsewhere]
) -> None:
    quick, slow = make_home(), make_home()
    origin.sql("UPDATE items SET v = -v")
    quick.settle()
    tell(quick)
    assert trimmed(origin) == 0
    assert buffered(origin) == 18
    slow.settle()
    tell(slow)
    assert trimmed(origin) == 18
    quick.check("copy")
    slow.check("copy")


def test_a_mirror_that_was_away_follows_from_what_was_netted(
    origin: Database, make_home: Callable[..., Elsewhere]
) -> None:
    fleet = make_home()
    for i in range(20):
        origin.sql("UPDATE items SET v = %s WHERE id <= 3", i)
    assert buffered(origin) == 120
    assert netted(origin) == 114
    fleet.settle()
    assert mirrored(fleet)[0] == "DIFFERENTIAL"
    fleet.check("copy")


@pytest.mark.parametrize("is_lost", [True, False])
def test_a_mirror_whose_cut_the_origin_did_not_know_is_loaded_anew(
    origin: Database, make_home: Callable[..., Elsewhere], is_lost: bool
) -> None:
    fleet = make_home()
    where = "SELECT reader_key, mirror_id, snapshot::text FROM pgtrickle.pgt_readers"
    ((_, _, known),) = origin.sql(where)
    origin.sql("INSERT INTO items VALUES (10, 10)")
    fleet.settle()
    tell(fleet)
    ((reader_key, mirror, committed),) = origin.sql(where)
    assert committed != known
    origin.sql("UPDATE pgtrickle.pgt_readers SET snapshot = %s", known)  # as if it had not been told yet
    if not is_lost:
        ((key,),) = origin.sql("SELECT pgtrickle._origin()")
        fleet.line.session.site._origins.note(key, reader_key, [mirror], Cut.parse(committed))
    origin.sql("DELETE FROM items WHERE id = 10")
    assert netted(origin) == 2  # the mirror has the one and not the other
    origin.sql("INSERT INTO items VALUES (11, 11)")
    fleet.settle()
    fleet.check("copy")
    assert fleet.home.sql(
        "SELECT count(*) FROM pgtrickle.pgt_refresh_history JOIN pgtrickle.pgt_mirrors USING (pgt_id) "
        "WHERE action = 'REINITIALIZE' AND reason = %s",
        NETTED,
    ) == [(1,)]
    tell(fleet)
    origin.sql("INSERT INTO items VALUES (12, 12)")
    fleet.settle()
    assert mirrored(fleet)[0] == "DIFFERENTIAL"
    fleet.check("copy")


def test_a_detached_mirror_that_comes_back_is_loaded_anew(
    origin: Database, make_home: Callable[..., Elsewhere]
) -> None:
    fleet = make_home()
    origin.sql("DELETE FROM items WHERE id = 1")
    assert origin.sql("SELECT pgtrickle.detach_reader(%s)", fleet.home.name) == [(1,)]
    assert trimmed(origin) == 1
    origin.sql("INSERT INTO items VALUES (10, 10)")
    fleet.settle()
    fleet.check("copy")
    assert mirrored(fleet) == ("REINITIALIZE", FORGOTTEN)


def test_a_mirror_with_more_changes_than_max_buffer_rows_is_loaded(
    origin: Database, make_home: Callable[..., Elsewhere]
) -> None:
    fleet = make_home(Settings(max_buffer_rows=5))
    origin.sql("INSERT INTO items SELECT i, i FROM generate_series(10, 14) AS i")
    fleet.settle()
    assert mirrored(fleet)[0] == "DIFFERENTIAL"
    origin.sql("INSERT INTO items SELECT i, i FROM generate_series(20, 25) AS i")
    fleet.settle()
    assert mirrored(fleet) == ("FULL", "6 changes exceed max_buffer_rows (5)")
    fleet.check("copy", action=None)


def test_a_table_with_more_changes_than_max_buffer_rows_is_computed_anew(
    installed: Database, make_line: MakeLine
) -> None:
    line = make_line(installed, Settings(max_buffer_rows=5))
    line.sql("CREATE TABLE t (a int)")
    line.create("s", "SELECT a, count(*) AS n FROM t GROUP BY a")
    line.sql("INSERT INTO t SELECT generate_series(1, 5)")
    line.tick()
    line.check("s")
    line.sql("INSERT INTO t SELECT generate_series(1, 6)")
    line.tick()
    assert line.last("s") == ("FULL", "COMPLETED", "6 changes exceed max_buffer_rows (5)")
    line.equal("s")
