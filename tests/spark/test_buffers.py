"""A buffer with readers in several databases, over the whole line."""

from __future__ import annotations

from collections.abc import Callable

import psycopg
import pytest

from pgtrickle.capture.compact import Compactor
from pgtrickle.capture.trim import trim_all
from pgtrickle.db import connect
from pgtrickle.maintain.verify import verify_tables
from pgtrickle.model.flow import Cut
from pgtrickle.model.reasons import ReasonCode
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
    fleet.line.plane.database._origins.tell_all()


def mirrored(fleet: Elsewhere) -> tuple[str, str | None]:
    """What the latest refresh of the mirror was, and the code of its reason."""
    rows = fleet.home.sql(
        "SELECT h.action, h.reason_code FROM pgtrickle.pgt_refresh_history AS h "
        "JOIN pgtrickle.pgt_mirrors USING (pgt_id) ORDER BY h.refresh_id DESC LIMIT 1"
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
        fleet.line.plane.database._origins.note(key, reader_key, [mirror], Cut.parse(committed))
    origin.sql("DELETE FROM items WHERE id = 10")
    assert netted(origin) == 2  # the mirror has the one and not the other
    origin.sql("INSERT INTO items VALUES (11, 11)")
    fleet.settle()
    fleet.check("copy")
    assert fleet.home.sql(
        "SELECT count(*) FROM pgtrickle.pgt_refresh_history JOIN pgtrickle.pgt_mirrors USING (pgt_id) "
        "WHERE action = 'REINITIALIZE' AND reason_code = %s",
        ReasonCode.MIRROR_NETTED.value,
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
    assert mirrored(fleet) == ("REINITIALIZE", ReasonCode.MIRROR_UNKNOWN)


def test_a_mirror_with_more_changes_than_max_buffer_rows_is_loaded(
    origin: Database, make_home: Callable[..., Elsewhere]
) -> None:
    fleet = make_home(Settings(max_buffer_rows=5))
    origin.sql("INSERT INTO items SELECT i, i FROM generate_series(10, 14) AS i")
    fleet.settle()
    assert mirrored(fleet)[0] == "DIFFERENTIAL"
    origin.sql("INSERT INTO items SELECT i, i FROM generate_series(20, 25) AS i")
    fleet.settle()
    assert mirrored(fleet) == ("FULL", ReasonCode.MAX_BUFFER_ROWS)
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


def captured(line: Line, names: str = "") -> int:
    """Rows in the buffers of stream tables, mirrors included, whose names match."""
    relids = line.sql(
        "SELECT pgt_relid::int8 FROM pgtrickle.pgt_stream_tables JOIN pgtrickle.pgt_sources "
        "ON source_relid = pgt_relid WHERE pgt_name ~ %s",
        names,
    )
    assert relids
    return sum(int(line.sql(f"SELECT count(*) FROM pgtrickle_changes.changes_{r}")[0][0]) for (r,) in relids)


def right(line: Line, name: str, action: str) -> None:
    """Refreshed in this way, and equal to its query; so are the mirrors that it reads."""
    assert line.last(name)[:2] == (action, "COMPLETED"), line.last(name)
    results = verify_tables(line.dsn, [name], timeout_seconds=1)
    assert all(r.ok for r in results), results


def test_a_first_load_does_not_go_through_a_buffer(make_installed: Make, make_line: MakeLine) -> None:
    """Of a mirror, and of stream tables that read one another: whoever reads them is loaded afterwards."""
    origin = make_installed()
    origin.sql("CREATE TABLE big AS SELECT i AS id, i % 7 AS v FROM generate_series(1, 30000) AS i")
    line = make_line(make_installed())
    query = f"SELECT id, v FROM {origin.name}.public.big WHERE id > 10"
    line.sql("SELECT pgtrickle.create_stream_table('copied', %s)", query)
    line.tick()
    line.sql("SELECT pgtrickle.create_stream_table('counted', 'SELECT v, count(*) AS n FROM copied GROUP BY v')")
    line.tick()
    assert captured(line) == 0
    line.sql("SELECT pgtrickle.create_stream_table('first', 'SELECT id, v FROM copied WHERE v < 3')")
    line.sql("SELECT pgtrickle.create_stream_table('second', 'SELECT v, sum(id) AS s FROM first GROUP BY v')")
    line.sql("SELECT pgtrickle.create_stream_table('third', 'SELECT count(*) AS n FROM second')")
    line.tick()
    assert captured(line) == 0
    for name in ("copied", "counted", "first", "second", "third"):
        assert line.refreshes(name) == 1
        right(line, name, "FULL")

    origin.sql("UPDATE big SET v = 2 WHERE id BETWEEN 100 AND 120")
    line.tick()
    for name in ("copied", "counted", "first", "second"):
        right(line, name, "DIFFERENTIAL")
    assert captured(line, "^mirror_") == 36  # three of them had that value already
    line.plane.tidy()
    assert captured(line, "^mirror_") == 0


def test_a_mirror_that_is_loaded_late_is_not_captured_before(make_installed: Make, make_line: MakeLine) -> None:
    """Its origin was away when its reader was defined."""
    near, far = make_installed(), make_installed()
    for database in (near, far):
        database.sql("CREATE TABLE big AS SELECT i AS id, i % 7 AS v FROM generate_series(1, 5000) AS i")
    line = make_line(make_installed())
    query = f"SELECT n.id, f.v FROM {near.name}.public.big AS n JOIN {far.name}.public.big AS f USING (id)"
    line.sql("SELECT pgtrickle.create_stream_table('joined', %s)", query)
    line.plane.database.define_with(line.plane.control)
    with psycopg.connect(far.server.dsn(), autocommit=True) as conn:
        conn.execute(f"ALTER DATABASE {far.name} ALLOW_CONNECTIONS false")
        conn.execute("SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE datname = %s", [far.name])
        (waits,) = [o for o in line.tick() if o.table.name == "joined"]
        assert "to be loaded" in str(waits.error)
        assert line.sql("SELECT count(*) FROM pgtrickle.pgt_sources") == [(0,)]
        conn.execute(f"ALTER DATABASE {far.name} ALLOW_CONNECTIONS true")
    line.tick()
    right(line, "joined", "FULL")
    assert captured(line) == 0
    far.sql("UPDATE big SET v = 9 WHERE id = 7")
    line.tick()
    right(line, "joined", "DIFFERENTIAL")
