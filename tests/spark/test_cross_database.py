"""Stream tables over tables of other databases."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from functools import partial

import psycopg
import pytest
from psycopg import sql

from pgtrickle.db.install import install
from pgtrickle.errors import SourceChangedError, TransientError
from pgtrickle.maintain.verify import verify_tables
from pgtrickle.mirror import manage as mirroring
from pgtrickle.mirror.refresh import MirrorRefresher
from pgtrickle.model.reasons import ReasonCode
from pgtrickle.origin.sessions import OriginSessions
from tests.conftest import Database
from tests.elsewhere import Elsewhere
from tests.line import Line

Make = Callable[[], Database]


@pytest.fixture
def fleet(make_installed: Make, make_database: Make, make_line: Callable[..., Line]) -> Elsewhere:
    home, crm, erp = make_installed(), make_installed(), make_installed()
    crm.sql(
        "CREATE TABLE customers (id int PRIMARY KEY, name text, region text);"
        "INSERT INTO customers VALUES (1, 'ann', 'north'), (2, 'bob', 'south'), (3, NULL, 'south')"
    )
    erp.sql(
        "CREATE TABLE orders (id int PRIMARY KEY, customer int, amount numeric(10,2), at timestamptz);"
        "CREATE INDEX ON orders (customer);"
        "INSERT INTO orders VALUES (10, 1, 5.50, '2026-01-01 12:00+02'), (11, 2, 7, NULL), (12, 2, 1.25, now())"
    )
    home.sql(
        "CREATE TABLE regions (region text PRIMARY KEY, manager text); INSERT INTO regions VALUES ('south', 'sue')"
    )
    return Elsewhere(home, make_line(home), [crm, erp], make_database)


def test_a_join_of_two_other_databases_with_a_local_table(fleet: Elsewhere) -> None:
    fleet.create(
        "totals",
        "SELECT c.region, r.manager, count(*) AS n, sum(o.amount) AS total FROM {0}.public.customers AS c "
        "JOIN {1}.public.orders AS o ON o.customer = c.id LEFT JOIN regions AS r ON r.region = c.region GROUP BY 1, 2",
    )
    fleet.settle()
    fleet.check("totals", action=None)
    crm, erp = fleet.others
    crm.sql("UPDATE customers SET region = 'north' WHERE id = 2; INSERT INTO customers VALUES (4, 'dan', 'east')")
    erp.sql("INSERT INTO orders VALUES (13, 4, 9.99, NULL), (14, 1, 1, NULL); DELETE FROM orders WHERE id = 10")
    fleet.settle()
    fleet.check("totals")
    fleet.home.sql("INSERT INTO regions VALUES ('north', 'ned')")
    fleet.settle()
    fleet.check("totals")
    assert fleet.home.sql("SELECT count(*) FROM pgtrickle.pgt_mirrors") == [(2,)]
    # They are stored like stream tables, and are none.
    counted = "SELECT total_stream_tables, active_count FROM pgtrickle.health_summary()"
    assert fleet.home.sql(counted) == [(1, 1)]


def foreign(fleet: Elsewhere, number: int, table: str, columns: str, *, name: str | None = None) -> None:
    """A foreign table of the home database over one of another."""
    other = fleet.others[number]
    fleet.home.superuser_sql(
        "CREATE EXTENSION IF NOT EXISTS postgres_fdw;"
        f"CREATE SERVER srv_{number} FOREIGN DATA WRAPPER postgres_fdw "
        f"OPTIONS (host 'localhost', port '{other.server.port}', dbname '{other.name}');"
        f"CREATE USER MAPPING FOR app SERVER srv_{number} OPTIONS (user 'app', password 'app');"
        f"GRANT USAGE ON FOREIGN SERVER srv_{number} TO app"
    )
    fleet.home.sql(
        f"CREATE FOREIGN TABLE {name or table} ({columns}) SERVER srv_{number} "
        f"OPTIONS (schema_name 'public', table_name '{table}')"
    )


def test_a_foreign_table_is_maintained_from_its_origins_changes(fleet: Elsewhere) -> None:
    crm, _ = fleet.others
    foreign(fleet, 0, "customers", "no int OPTIONS (column_name 'id'), region varchar", name="people")
    query = "SELECT region, count(*) AS n, max(no) AS last FROM people GROUP BY region"
    fleet.line.create("by_region", query)
    fleet.settle()
    assert fleet.line.rows("by_region") == sorted(fleet.home.sql(query), key=repr)
    crm.sql("INSERT INTO customers VALUES (7, 'gus', 'west'); DELETE FROM customers WHERE id = 1")
    fleet.settle()
    assert fleet.line.last("by_region")[:2] == ("DIFFERENTIAL", "COMPLETED")
    assert fleet.line.rows("by_region") == sorted(fleet.home.sql(query), key=repr)
    crm.sql("TRUNCATE customers; INSERT INTO customers VALUES (8, NULL, NULL)")
    fleet.settle()
    assert fleet.line.rows("by_region") == sorted(fleet.home.sql(query), key=repr)


@pytest.mark.parametrize(
    ("there", "here"),
    [
        (
            "ALTER TABLE customers RENAME TO former;"
            "CREATE TABLE customers (id int PRIMARY KEY, region text, name text);"
            "INSERT INTO customers VALUES (9, 'new')",
            None,
        ),
        (None, "ALTER FOREIGN TABLE people ALTER region OPTIONS (ADD column_name 'name')"),
        ("ALTER TABLE customers RENAME region TO area; ALTER TABLE customers RENAME name TO region", None),
    ],
    ids=["another table of that name", "another column", "another column of that name"],
)
def test_a_foreign_table_is_what_it_says_now(fleet: Elsewhere, there: str | None, here: str | None) -> None:
    """Its names may mean another table or column than they did when the mirror was made."""
    crm, _ = fleet.others
    foreign(fleet, 0, "customers", "id int, region text", name="people")
    query = "SELECT region, count(*) AS n, max(id) AS last FROM people GROUP BY region"
    fleet.line.create("by_region", query)
    fleet.settle()
    if there is not None:
        crm.sql(there)
    if here is not None:
        fleet.home.sql(here)
    fleet.settle()
    assert fleet.line.rows("by_region") == sorted(fleet.home.sql(query), key=repr)
    crm.sql("INSERT INTO customers (id) VALUES (20); DELETE FROM customers WHERE id = 1")
    fleet.settle()
    assert fleet.line.last("by_region")[:2] == ("DIFFERENTIAL", "COMPLETED")
    assert fleet.line.rows("by_region") == sorted(fleet.home.sql(query), key=repr)


def test_a_foreign_table_is_full_until_its_origin_is_managed(
    fleet: Elsewhere, make_database: Callable[[], Database]
) -> None:
    stranger = make_database()
    stranger.sql("CREATE TABLE things (id int PRIMARY KEY, v int); INSERT INTO things VALUES (1, 1)")
    fleet.others = [*fleet.others, stranger]
    foreign(fleet, 2, "things", "id int, v int")
    query = "SELECT v, count(*) AS n FROM things GROUP BY v"
    fleet.line.create("by_v", query)
    fleet.line.tick()
    mode = "SELECT effective_refresh_mode, mode_reason FROM pgtrickle.pgt_stream_tables WHERE pgt_name = 'by_v'"
    (found,) = fleet.home.sql(mode)
    assert found[0] == "FULL"
    assert "is not managed" in found[1]
    stranger.sql("INSERT INTO things VALUES (2, 5)")
    fleet.home.sql("SELECT pgtrickle.refresh_stream_table('by_v')")
    fleet.line.tick()
    assert fleet.line.rows("by_v") == [(1, 1), (5, 1)]

    with psycopg.connect(stranger.dsn) as connection:
        install(connection)
    fleet.settle()
    stranger.sql("UPDATE things SET v = 5 WHERE id = 1")
    fleet.settle()
    assert fleet.line.last("by_v")[:2] == ("DIFFERENTIAL", "COMPLETED")
    assert fleet.line.rows("by_v") == [(5, 2)]

    stranger.sql("DROP SCHEMA pgtrickle_changes, pgtrickle CASCADE")  # and back
    stranger.sql("INSERT INTO things VALUES (3, 5)")
    fleet.line.tick()
    fleet.home.sql("SELECT pgtrickle.refresh_stream_table('by_v')")
    fleet.line.tick()
    assert fleet.home.sql(mode)[0][0] == "FULL"
    assert fleet.line.rows("by_v") == [(5, 3)]


def test_changes_are_read_once_for_all_databases(
    fleet: Elsewhere, make_installed: Make, make_line: Callable[..., Line]
) -> None:
    """Three databases with the same definition, and one with another: one reading serves them all."""
    origins = OriginSessions()
    crm, _ = fleet.others
    readers = [make_line(make_installed(), None, origins) for _ in range(4)]
    for number, line in enumerate(readers):
        columns = "id, region" if number < 3 else "name, id"
        line.create("copied", f"SELECT {columns} FROM {crm.name}.public.customers")
        line.tick()
    (key,) = {row[0] for row in readers[0].sql("SELECT origin_key FROM pgtrickle.pgt_mirrors")}
    for _ in range(2):  # the second time they stand at the same cut
        crm.sql(
            "INSERT INTO customers SELECT max(id) + 1, 'x', NULL FROM customers; DELETE FROM customers WHERE id = 1"
        )
        noticed = time.monotonic()
        taken = origins.readings(key).taken
        for line in readers:
            line.tick(changes_seen_at=noticed)
    assert origins.readings(key).taken == taken + 1
    for number, line in enumerate(readers):
        assert line.last("copied")[:2] == ("DIFFERENTIAL", "COMPLETED")
        columns = "id, region" if number < 3 else "name, id"
        assert line.rows("copied") == sorted(crm.sql(f"SELECT {columns} FROM customers"), key=repr)
    # Who was told later than the reading began does not take it.
    crm.sql("INSERT INTO customers VALUES (100, 'late', NULL)")
    readers[0].tick(changes_seen_at=time.monotonic())
    assert (100, None) in readers[0].rows("copied")
    origins.tell_all()
    positions = crm.sql("SELECT count(*), count(snapshot) FROM pgtrickle.pgt_readers")
    assert positions == [(4, 4)]
    origins.close()


def test_an_origin_that_was_told_of_more_than_there_is_loads_the_mirror_anew(fleet: Elsewhere) -> None:
    """The database of the mirror was restored from a backup: the origin may have trimmed what it lacks."""
    crm, _ = fleet.others
    fleet.create("copied", "SELECT id, name FROM {0}.public.customers")
    fleet.settle()
    crm.sql("INSERT INTO customers VALUES (50, 'e', NULL)")
    fleet.settle()
    crm.sql("UPDATE pgtrickle.pgt_readers SET snapshot = '1:99999999:'")
    crm.sql("INSERT INTO customers VALUES (51, 'f', NULL)")
    fleet.settle()
    code = "SELECT reason_code FROM pgtrickle.pgt_refresh_history JOIN pgtrickle.pgt_mirrors USING (pgt_id) "
    assert fleet.home.sql(code + "ORDER BY refresh_id DESC LIMIT 1") == [(ReasonCode.MIRROR_BEHIND,)]
    fleet.check("copied", action=None)
    crm.sql("DELETE FROM pgtrickle.pgt_readers")
    crm.sql("DELETE FROM customers WHERE id = 51")
    fleet.settle()
    assert fleet.home.sql(code + "ORDER BY refresh_id DESC LIMIT 1") == [(ReasonCode.MIRROR_UNKNOWN,)]
    fleet.check("copied", action=None)
    crm.sql("INSERT INTO customers VALUES (52, 'g', NULL)")
    fleet.settle()
    fleet.check("copied")


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        ("ALTER TABLE codes ALTER code TYPE text USING '00' || code", "of type text now, and was integer"),
        ("ALTER TABLE codes ALTER code TYPE numeric(9,2)", "of type numeric(9,2) now, and was integer"),
        ("ALTER TABLE codes DROP code", "code"),
        ("DROP TABLE codes CASCADE", "codes"),
    ],
)
def test_a_table_that_has_changed_there_stops_its_readers_and_nobody_else(
    fleet: Elsewhere, change: str, reason: str
) -> None:
    crm, _ = fleet.others
    crm.sql("CREATE TABLE codes (id int PRIMARY KEY, code int); INSERT INTO codes VALUES (1, 7)")
    fleet.create("codes", "SELECT id, code FROM {0}.public.codes")
    fleet.create("names", "SELECT id, name FROM {0}.public.customers")
    fleet.settle()
    crm.sql(change)
    crm.sql("INSERT INTO customers VALUES (9, 'nine', NULL)")
    for _ in range(3):
        fleet.line.tick()
    rows = fleet.home.sql(
        "SELECT m.origin_table, s.status, s.last_error_message FROM pgtrickle.pgt_mirrors AS m "
        "JOIN pgtrickle.pgt_stream_tables AS s USING (pgt_id) ORDER BY 1"
    )
    assert [row[:2] for row in rows] == [("codes", "ERROR"), ("customers", "ACTIVE")]
    assert reason in rows[0][2]
    assert fleet.line.rows("codes") == [(1, 7)]
    assert fleet.line.rows("names") == sorted(crm.sql("SELECT id, name FROM customers"), key=repr)


def recreated(fleet: Elsewhere, *, notices: bool) -> None:
    """A source is dropped and created again, with its columns in another order; `notices`: a refresh between."""
    crm, erp = fleet.others
    crm.sql("DROP TABLE customers CASCADE")
    erp.sql("INSERT INTO orders VALUES (20, 1, 1, NULL)")
    before = fleet.line.rows("names")
    if notices:
        for _ in range(3):
            fleet.line.tick()
        messages = fleet.home.sql(
            "SELECT last_error_message FROM pgtrickle.pgt_stream_tables "
            "WHERE status = 'ERROR' AND last_error_code = %s",
            SourceChangedError.code,
        )
        assert messages
        for (message,) in messages:
            assert f"{crm.name}.public.customers does not exist any more (hint: create it again" in message
    crm.sql(
        "CREATE TABLE customers (x int, region text, id int PRIMARY KEY, name text); ALTER TABLE customers DROP x;"
        "INSERT INTO customers (id, name) VALUES (1, 'new'), (7, 'gus')"
    )
    assert fleet.line.rows("names") == before
    deadline = time.monotonic() + 120
    while fleet.line.rows("names") != [(1, "new"), (7, "gus")]:
        fleet.line.tick()
        assert time.monotonic() < deadline, fleet.home.sql(
            "SELECT pgt_name, last_error_message FROM pgtrickle._messages"
        )
    fleet.settle()
    crm.sql("UPDATE customers SET name = 'ann' WHERE id = 1; DELETE FROM customers WHERE id = 7")
    fleet.settle()
    assert fleet.line.rows("names") == [(1, "ann")]
    gone = "SELECT count(*) FROM pgtrickle.pgt_readers WHERE source_relid NOT IN (SELECT oid FROM pg_class)"
    assert crm.sql(gone) == [(0,)]


@pytest.mark.parametrize("notices", [False, True], ids=["at once", "later"])
def test_table_that_was_dropped_and_created_again_there_is_adopted(fleet: Elsewhere, notices: bool) -> None:
    for name in ("names", "same_names"):
        fleet.create(name, "SELECT c.id, c.name FROM {0}.public.customers AS c")
    fleet.create("orders", "SELECT o.id FROM {1}.public.orders AS o")
    fleet.settle()
    recreated(fleet, notices=notices)
    for name in ("names", "same_names"):
        fleet.check(name)
    fleet.check("orders", action=None)
    reasons = fleet.home.sql(
        "SELECT DISTINCT reason_code FROM pgtrickle.pgt_refresh_history WHERE action = 'REINITIALIZE'"
    )
    assert reasons == [(ReasonCode.SOURCE_CREATED_AGAIN,)]


TOTALS = (
    "SELECT c.region, r.manager, count(*) AS n FROM {0}.public.customers AS c "
    "LEFT JOIN regions AS r ON r.region = c.region GROUP BY 1, 2"
)


def test_a_column_that_became_wider_there_is_followed(fleet: Elsewhere) -> None:
    crm = fleet.others[0]
    crm.sql("CREATE TABLE named (id int PRIMARY KEY, name varchar(5), price numeric(6,2))")
    crm.sql("INSERT INTO named SELECT i, 'n' || i, i FROM generate_series(1, 20) AS i")
    fleet.create("rows", "SELECT id, name, price FROM {0}.public.named")
    fleet.create("joined", "SELECT n.name, r.manager FROM {0}.public.named AS n CROSS JOIN regions AS r")
    fleet.settle()
    crm.sql("ALTER TABLE named ALTER name TYPE varchar(30), ALTER price TYPE numeric(12,2)")
    crm.sql("INSERT INTO named VALUES (21, 'longer than five', 1234567890.12)")
    fleet.settle()
    fleet.settle()
    for name in ("rows", "joined"):
        fleet.check(name, action=None)
    crm.sql("UPDATE named SET name = repeat('x', 30) WHERE id = 3")
    fleet.settle()
    for name in ("rows", "joined"):
        fleet.check(name)
    assert fleet.home.sql("SELECT name FROM rows WHERE id = 3") == [("x" * 30,)]


def test_names_are_followed_in_all_databases(fleet: Elsewhere) -> None:
    crm, _ = fleet.others
    fleet.create("totals", TOTALS)
    fleet.create("names", "SELECT customers.id, customers.name FROM {0}.public.customers")
    fleet.settle()
    fleet.check("totals", action=None)

    def settled(name: str, query: str) -> None:
        """Its query is this one now, as somebody would type it, with the same meaning."""
        fleet.settle()
        fleet.expect(name, query)
        fleet.check(name, action=None)
        ((typed,),) = fleet.home.sql("SELECT original_query FROM pgtrickle.pgt_stream_tables WHERE pgt_name = %s", name)
        fleet.create("again", typed.replace("{", "{{"))
        fleet.expect("again", query)
        fleet.settle()
        fleet.check("again", action=None)
        fleet.home.sql("SELECT pgtrickle.drop_stream_table('again')")

    fleet.home.sql("ALTER TABLE regions RENAME TO areas; INSERT INTO areas VALUES ('north', 'ned')")
    by_area = TOTALS.replace("regions", "areas")
    settled("totals", by_area)
    assert fleet.line.last("totals")[:2] == ("DIFFERENTIAL", "COMPLETED")
    crm.sql("ALTER TABLE customers RENAME TO clients; INSERT INTO clients VALUES (5, 'eve', 'west')")
    by_client = by_area.replace("customers", "clients")
    settled("totals", by_client)
    settled("names", "SELECT clients.id, clients.name FROM {0}.public.clients")
    crm.sql("ALTER TABLE clients RENAME region TO name_; ALTER TABLE clients RENAME name TO region")
    crm.sql("ALTER TABLE clients RENAME name_ TO name; DELETE FROM clients WHERE id = 1")
    settled("totals", by_client.replace("c.region", "c.name").replace("c.name,", "c.name AS region,", 1))
    settled("names", "SELECT clients.id, clients.region AS name FROM {0}.public.clients")
    crm.sql("UPDATE clients SET name = 'north', region = 'x' WHERE id = 2")
    fleet.settle()
    for name in ("totals", "names"):
        fleet.check(name)


def test_another_table_under_the_name_at_the_origin_is_not_read(fleet: Elsewhere) -> None:
    crm, _ = fleet.others
    fleet.create("names", "SELECT c.id, c.name FROM {0}.public.customers AS c")
    fleet.settle()
    crm.sql(
        "BEGIN; ALTER TABLE customers RENAME TO former; CREATE TABLE customers (id int PRIMARY KEY, name text);"
        "INSERT INTO customers VALUES (70, 'no'); INSERT INTO former VALUES (7, 'yes'); COMMIT"
    )
    fleet.settle()
    fleet.expect("names", "SELECT c.id, c.name FROM {0}.public.former AS c")
    fleet.check("names", action=None)


RENAMES_THERE = {
    "tables": "ALTER TABLE customers RENAME TO former; CREATE TABLE customers (id int PRIMARY KEY, name text);"
    "INSERT INTO customers VALUES (99, 'wrong')",
    "table": "ALTER TABLE customers RENAME TO former",
    "columns": "ALTER TABLE customers RENAME name TO called; ALTER TABLE customers RENAME region TO name",
    "column": "ALTER TABLE customers RENAME name TO called",
}


@pytest.mark.parametrize("renames", RENAMES_THERE.values(), ids=RENAMES_THERE)
def test_renamed_at_the_origin_while_it_is_loaded(
    fleet: Elsewhere, monkeypatch: pytest.MonkeyPatch, renames: str
) -> None:
    crm, _ = fleet.others
    crm.sql("UPDATE customers SET region = 'wrong'")
    prints, left = MirrorRefresher._fingerprints, [renames]

    def late(self: MirrorRefresher, relids: Sequence[int]) -> Mapping[int, str | None]:
        found = prints(self, relids)
        if left:
            crm.sql(left.pop())
        return found

    monkeypatch.setattr(MirrorRefresher, "_fingerprints", late)
    fleet.home.sql(
        "SELECT pgtrickle.create_stream_table('names', %s)", f"SELECT id, name FROM {crm.name}.public.customers"
    )
    for _ in range(6):
        fleet.line.tick()
        ((mirrors,),) = fleet.home.sql("SELECT count(*) FROM pgtrickle.pgt_mirrors")
        if mirrors:
            assert "wrong" not in str(fleet.home.sql("TABLE pgtrickle_changes.mirror_1"))
    assert left == []
    assert fleet.line.rows("names") == [(1, "ann"), (2, "bob"), (3, None)]


def test_compared_after_its_origin_is_followed(fleet: Elsewhere) -> None:
    crm, _ = fleet.others
    fleet.create("names", "SELECT id, name FROM {0}.public.customers")
    fleet.settle()
    crm.sql("ALTER TABLE customers RENAME TO former; CREATE TABLE customers (id int PRIMARY KEY, name text)")
    with pytest.raises(TransientError, match="must be refreshed before verification"):
        verify_tables(fleet.home.dsn, ["names"], timeout_seconds=1)
    fleet.settle()
    assert all(result.ok for result in verify_tables(fleet.home.dsn, ["names"], timeout_seconds=1))


def test_a_foreign_table_is_renamed_here(fleet: Elsewhere) -> None:
    """Beside a table of this database; before and after the query goes by a mirror."""
    foreign(fleet, 0, "customers", "id int, region text", name="people")
    query = "SELECT p.id, r.manager FROM people AS p JOIN regions AS r ON r.region = p.region"
    fleet.home.sql("SELECT pgtrickle.create_stream_table('st', %s, '1s')", query)
    fleet.home.sql(
        "ALTER TABLE regions RENAME TO areas; CREATE TABLE regions (region text PRIMARY KEY, manager text);"
        "INSERT INTO regions VALUES ('south', 'wrong')"
    )
    for _ in range(4):
        fleet.line.tick()
    assert fleet.home.sql("SELECT count(*) FROM pgtrickle.pgt_mirrors") == [(1,)]
    assert fleet.line.rows("st") == [(2, "sue"), (3, "sue")]
    fleet.home.sql("ALTER FOREIGN TABLE people RENAME TO folks; CREATE TABLE people (id int, region text)")
    fleet.home.sql("INSERT INTO people VALUES (7, 'south')")
    for mode in (None, "FULL"):
        if mode is not None:
            fleet.home.sql("SELECT pgtrickle.alter_stream_table('st', refresh_mode => %s)", mode)
        for _ in range(4):
            fleet.line.tick()
        assert fleet.line.rows("st") == [(2, "sue"), (3, "sue")]
        ((typed,),) = fleet.home.sql("SELECT original_query FROM pgtrickle.pgt_stream_tables WHERE pgt_name = 'st'")
        assert fleet.home.sql(typed) == [(2, "sue"), (3, "sue")]


def test_an_origin_with_another_history_loads_the_mirror_anew(fleet: Elsewhere) -> None:
    """A promoted standby may lack what the mirror has seen, and its transaction ids may have gone past the mirror's."""
    crm, _ = fleet.others
    fleet.create("names", "SELECT id, name FROM {0}.public.customers")
    fleet.settle()
    ((mirror, fingerprint),) = fleet.home.sql("SELECT pgt_id, fingerprint FROM pgtrickle.pgt_mirrors")
    history, _, rest = fingerprint.partition("/")
    assert int(history, 16) == 1
    fleet.home.sql(f"UPDATE pgtrickle_changes.mirror_{mirror} SET name = 'lost' WHERE id = 1")
    fleet.home.sql("UPDATE pgtrickle.pgt_mirrors SET fingerprint = %s", f"00000002/{rest}")
    crm.sql("UPDATE customers SET name = 'bea' WHERE id = 2")
    fleet.settle()
    fleet.check("names", action=None)
    assert fleet.home.sql("SELECT fingerprint FROM pgtrickle.pgt_mirrors") == [(fingerprint,)]


def test_what_was_committed_together_is_seen_together(fleet: Elsewhere) -> None:
    """Two tables of one origin, and a reader of both: never half of a transaction."""
    _, erp = fleet.others
    erp.sql(
        "CREATE TABLE totals (n int, total numeric(10,2)); INSERT INTO totals SELECT count(*), sum(amount) FROM orders"
    )
    fleet.create(
        "checked",
        "SELECT t.n, t.total, (SELECT count(*) FROM {1}.public.orders) AS n2, "
        "(SELECT sum(o.amount) FROM {1}.public.orders AS o) AS total2 FROM {1}.public.totals AS t",
    )
    fleet.settle()
    for number in range(5):
        with erp.connect(autocommit=False) as conn:
            conn.execute(f"INSERT INTO orders VALUES ({100 + number}, 1, 1.5, NULL)")
            if number % 2:
                conn.execute("UPDATE totals SET n = n + 1, total = total + 1.5")
            else:
                conn.execute("DELETE FROM orders WHERE id = %s", [100 + number])
        fleet.line.tick()
        ((n, total, n2, total2),) = fleet.line.rows("checked")
        assert (n, total) == (n2, total2)
        cuts = fleet.home.sql(
            "SELECT count(DISTINCT frontier) FROM pgtrickle.pgt_mirrors JOIN pgtrickle.pgt_stream_tables USING (pgt_id)"
        )
        assert cuts == [(1,)]


def test_two_tables_of_one_origin_that_are_loaded_anew_together(fleet: Elsewhere) -> None:
    """Each has its own staging table."""
    crm, _ = fleet.others
    crm.sql("CREATE TABLE places (id int, name text, region text); INSERT INTO places VALUES (1, 'x', 'north')")
    fleet.create(
        "matched",
        "SELECT c.id, p.id AS place FROM {0}.public.customers AS c JOIN {0}.public.places AS p ON p.region = c.region",
    )
    fleet.settle()
    fleet.check("matched", action=None)
    crm.sql(
        "BEGIN; TRUNCATE customers, places;"
        "INSERT INTO customers VALUES (8, 'hal', 'west'), (9, 'ida', 'east');"
        "INSERT INTO places VALUES (5, 'shed', 'west'), (7, 'hall', 'west'), (6, 'yard', 'east'); COMMIT"
    )
    fleet.settle()
    fleet.check("matched", action=None)
    assert len(fleet.line.rows("matched")) == 3


def test_executors_load_a_large_mirror(
    fleet: Elsewhere, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """They read in one database and stage in another."""
    monkeypatch.setattr(mirroring, "MirrorRefresher", partial(MirrorRefresher, bulk_bytes=0))
    crm, _ = fleet.others
    crm.sql("INSERT INTO customers SELECT i, 'c' || i, 'r' || i % 7 FROM generate_series(100, 9000) AS i")
    with caplog.at_level("INFO"):
        fleet.create(
            "by_region", "SELECT region, count(*) AS n, max(name) AS last FROM {0}.public.customers GROUP BY 1"
        )
        fleet.settle()
    assert "Loading by executors" in caplog.text
    assert "the driver does" not in caplog.text
    fleet.check("by_region", action="FULL")
    for database in (fleet.home, crm):
        assert database.sql("SELECT count(*) FROM pg_class WHERE relname ~ '^stage_'") == [(0,)]
    crm.sql("UPDATE customers SET region = 'r0' WHERE id BETWEEN 200 AND 210")
    fleet.settle()
    fleet.check("by_region")


def test_frontiers_are_vectors(fleet: Elsewhere) -> None:
    fleet.create(
        "j", "SELECT o.id, c.name FROM {0}.public.customers AS c JOIN {1}.public.orders AS o ON o.customer = c.id"
    )
    fleet.settle()
    ((frontier,),) = fleet.home.sql("SELECT frontier FROM pgtrickle.pgt_stream_tables WHERE pgt_name = 'j'")
    keys = fleet.home.sql("SELECT origin_key FROM pgtrickle.pgt_mirrors UNION SELECT pgtrickle._origin() ORDER BY 1")
    assert sorted(frontier) == [key for (key,) in keys]


@pytest.mark.parametrize(
    ("query", "error"),
    [
        ("SELECT * FROM nowhere.public.t", "database nowhere does not exist"),
        ("SELECT * FROM {0}.public.nothing", "does not exist"),
        ("SELECT nosuch FROM {0}.public.customers", 'column "nosuch" does not exist'),
        ("SELECT * FROM {0}.public.a_view", "is a view"),
        ("SELECT mood FROM {0}.public.moods", 'type "public.mood" does not exist'),
        ("SELECT random() AS r FROM {0}.public.customers", "volatile"),
        ("SELECT to_jsonb(c) AS j FROM {0}.public.customers AS c", "whole row"),
    ],
)
def test_what_is_wrong_is_said(fleet: Elsewhere, query: str, error: str) -> None:
    fleet.others[0].sql(
        "CREATE VIEW a_view AS SELECT 1 AS x; CREATE TYPE mood AS ENUM ('up');"
        "CREATE TABLE moods (id int PRIMARY KEY, mood mood)"
    )
    fleet.create("wrong", query)
    ((state, message),) = fleet.home.sql("SELECT state, error_message FROM pgtrickle.pending_definitions()")
    assert state == "REFUSED"
    assert error in message
    assert fleet.home.sql("SELECT count(*) FROM pgtrickle.pgt_stream_tables") == [(0,)]
    assert fleet.home.sql("SELECT to_regclass('public.wrong')") == [(None,)]


def test_a_mirror_goes_with_its_last_reader(fleet: Elsewhere) -> None:
    crm, _ = fleet.others
    fleet.create("one", "SELECT id, name FROM {0}.public.customers")
    fleet.create("two", "SELECT name, count(*) AS n, min(id) AS first FROM {0}.public.customers GROUP BY name")
    fleet.settle()
    assert fleet.home.sql("SELECT count(*) FROM pgtrickle.pgt_mirrors") == [(1,)]  # the same columns
    fleet.home.sql("SELECT pgtrickle.drop_stream_table('one')")
    fleet.settle()
    assert crm.sql("SELECT count(*) FROM pgtrickle.pgt_readers") == [(1,)]
    fleet.home.sql("SELECT pgtrickle.drop_stream_table('two')")
    fleet.settle()
    assert fleet.home.sql("SELECT count(*) FROM pgtrickle.pgt_stream_tables") == [(0,)]
    assert crm.sql("SELECT count(*) FROM pgtrickle.pgt_readers") == [(0,)]
    left = "SELECT count(*) FROM pg_class WHERE relname ~ '^mirror_'"
    assert fleet.home.sql(left) == [(0,)]


def test_altered_to_other_databases_and_back(fleet: Elsewhere) -> None:
    crm, _ = fleet.others
    fleet.line.create("t", "SELECT region, manager FROM regions")
    query = f"SELECT region, name FROM {crm.name}.public.customers"
    fleet.home.sql("SELECT pgtrickle.alter_stream_table('t', query => %s)", query)
    fleet.settle()
    assert fleet.line.rows("t") == sorted(crm.sql("SELECT region, name FROM customers"), key=repr)
    fleet.home.sql("SELECT pgtrickle.alter_stream_table('t', refresh_mode => 'FULL')")
    fleet.settle()
    crm.sql("DELETE FROM customers WHERE id = 1")
    fleet.settle()
    assert fleet.line.last("t")[0] == "FULL"
    assert fleet.line.rows("t") == sorted(crm.sql("SELECT region, name FROM customers"), key=repr)
    fleet.home.sql("SELECT pgtrickle.alter_stream_table('t', query => 'SELECT region, manager FROM regions')")
    fleet.settle()
    assert fleet.line.rows("t") == [("south", "sue")]


def test_odd_names_everywhere(make_installed: Make, make_line: Callable[..., Line], make_database: Make) -> None:
    home, other = make_installed(), make_installed()
    odd = 'a;b"c@d%s'
    with psycopg.connect(other.server.dsn(), autocommit=True) as conn:
        conn.execute(sql.SQL("ALTER DATABASE {} RENAME TO {}").format(sql.Identifier(other.name), sql.Identifier(odd)))
    other.name = odd
    other.sql(
        'CREATE SCHEMA "S.x;""%s"; CREATE TABLE "S.x;""%s"."T;--""%s" ("c;""%s" int PRIMARY KEY, "sel ect" text);'
        'INSERT INTO "S.x;""%s"."T;--""%s" VALUES (1, \'x\')'
    )
    line = make_line(home)
    name = '"a;b""c@d%s"."S.x;""%s"."T;--""%s"'
    home.sql(
        "SELECT pgtrickle.create_stream_table(%s, %s)", '"O;""dd%s"', f"SELECT * FROM {name} WHERE \"sel ect\" <> ';'"
    )
    for _ in range(3):
        line.tick()
    assert home.sql("SELECT error_message FROM pgtrickle.pending_definitions()") == []
    assert line.rows('"O;""dd%s"') == [(1, "x")]
    other.sql('INSERT INTO "S.x;""%s"."T;--""%s" VALUES (2, \'y\')')
    line.tick()
    assert line.rows('"O;""dd%s"') == [(1, "x"), (2, "y")]


def test_an_origin_that_is_away_delays_only_its_readers(fleet: Elsewhere) -> None:
    crm, erp = fleet.others
    fleet.create(
        "joined", "SELECT o.id, c.name FROM {0}.public.customers AS c JOIN {1}.public.orders AS o ON o.customer = c.id"
    )
    fleet.create("one", "SELECT count(*) AS n FROM {1}.public.orders")
    fleet.settle()
    with psycopg.connect(crm.server.dsn(), autocommit=True) as conn:
        conn.execute(sql.SQL("ALTER DATABASE {} ALLOW_CONNECTIONS false").format(sql.Identifier(crm.name)))
        conn.execute("SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE datname = %s", [crm.name])
        erp.sql("INSERT INTO orders VALUES (60, 1, 1, NULL)")
        for _ in range(4):
            fleet.line.tick()
        assert fleet.line.rows("one") == [(4,)]
        assert (60, "ann") in fleet.line.rows("joined")  # exact at the cut that its customers stand at
        messages = fleet.home.sql(
            "SELECT status, consecutive_errors, last_error_message FROM pgtrickle.pgt_stream_tables "
            "JOIN pgtrickle.pgt_mirrors USING (pgt_id) WHERE origin_database = %s",
            crm.name,
        )
        assert [(s, n) for s, n, _ in messages] == [("ACTIVE", 0)]
        assert all(f"database {crm.name} does not answer" in m for _, _, m in messages)
        conn.execute(sql.SQL("ALTER DATABASE {} ALLOW_CONNECTIONS true").format(sql.Identifier(crm.name)))
    crm.sql("UPDATE customers SET name = 'anna' WHERE id = 1")
    fleet.settle()
    fleet.check("joined")


def test_stars_and_natural_joins_mean_the_columns_of_the_tables(fleet: Elsewhere) -> None:
    crm, erp = fleet.others
    crm.sql("CREATE TABLE a (id int, v int, w int); INSERT INTO a VALUES (1, 1, 1), (1, 1, 2), (2, 2, 3)")
    erp.sql("CREATE TABLE b (id int, v int, x text); INSERT INTO b VALUES (1, 1, 'x'), (2, 3, 'y')")
    fleet.create("stars", "SELECT * FROM {0}.public.a NATURAL JOIN {1}.public.b")
    fleet.create("few", "SELECT x FROM {0}.public.a NATURAL LEFT JOIN {1}.public.b")
    fleet.create("nobody", "SELECT count(*) AS n FROM {0}.public.a, {1}.public.b")
    fleet.create(
        "deep",
        "WITH q AS (TABLE {0}.public.a) SELECT q.* FROM q WHERE EXISTS (SELECT FROM {1}.public.b WHERE b.v = q.v)",
    )
    fleet.settle()
    for name in ("stars", "few", "nobody", "deep"):
        fleet.check(name, action=None)
    crm.sql("INSERT INTO a VALUES (2, 3, 9), (1, 1, 2); DELETE FROM a WHERE w = 1")
    erp.sql("UPDATE b SET v = 2 WHERE id = 2; INSERT INTO b VALUES (1, 1, 'x')")
    fleet.settle()
    for name in ("stars", "few", "nobody", "deep"):
        fleet.check(name)


def test_a_mirror_that_differs_is_found(fleet: Elsewhere) -> None:
    crm, _ = fleet.others
    fleet.create("copied", "SELECT id, name FROM {0}.public.customers")
    fleet.settle()
    fleet.check("copied", action=None)
    crm.sql("INSERT INTO customers VALUES (70, 'h', NULL)")  # not yet refreshed: as of its cut it is right
    (mirror, _) = verify_tables(fleet.home.dsn, ["copied"], timeout_seconds=1)
    assert mirror.ok
    fleet.home.sql(f"DELETE FROM {mirror.name} WHERE id = 2; UPDATE {mirror.name} SET name = 'odd' WHERE id = 1")
    (mirror, _) = verify_tables(fleet.home.dsn, ["copied"], timeout_seconds=1)
    assert (mirror.ok, mirror.missing, mirror.extra) == (False, 2, 1)


def test_status_functions_name_the_origin(fleet: Elsewhere) -> None:
    crm, _ = fleet.others
    fleet.create("copied", "SELECT c.id, r.manager FROM {0}.public.customers AS c JOIN regions AS r USING (region)")
    fleet.settle()
    origin = f"{crm.name}.public.customers"
    sources = fleet.home.sql("SELECT source_table, source_type, columns_used FROM pgtrickle.list_sources('copied')")
    assert (origin, "REMOTE", ["id", "region"]) in sources
    tree = [line for (line,) in fleet.home.sql("SELECT tree_line FROM pgtrickle.dependency_tree()")]
    assert any(line.endswith(origin) for line in tree)
    ((value,),) = fleet.home.sql("SELECT value FROM pgtrickle.explain_st('copied') WHERE property = 'sources'")
    assert f"{origin} (REMOTE)" in value
    ((value,),) = fleet.home.sql("SELECT value FROM pgtrickle.explain_st('copied') WHERE property = 'plan'")
    assert f"Scan {origin} (mirrored here as pgtrickle_changes.mirror_" in value
    assert "Scan public.regions: " in value
    (definition,) = fleet.home.sql("SELECT pgtrickle.export_definition('copied')")[0]
    assert origin in definition
