"""What a database says about our settings: PostgreSQL's own precedence, changes under an open session, set_option()."""

from __future__ import annotations

import json
import logging
import os
import statistics
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import psycopg
import pytest

from pgtrickle.db.connect import Connection, connect
from pgtrickle.db.database_settings import SettingsWatch, current_settings
from pgtrickle.db.settings import read_settings
from pgtrickle.servers.embedded_postgres import EmbeddedPostgres
from pgtrickle.settings import PROFILES, Sources, describe
from tests.conftest import Database, prepare_server, reset_role


@contextmanager
def session(database: Database, **options: str) -> Iterator[Connection]:
    dsn = psycopg.conninfo.make_conninfo(database.dsn, **options)
    with connect(dsn, role="test", autocommit=True) as connection:
        yield connection


def watch(database: Database, sources: Sources | None = None) -> SettingsWatch:
    return SettingsWatch(database.name, sources or Sources(), lambda: connect(database.dsn, role="test"))


@pytest.fixture
def role_settings(pg_server: EmbeddedPostgres) -> Iterator[None]:
    """Roles outlive the test's database."""
    yield
    with psycopg.connect(pg_server.dsn(), autocommit=True) as connection:
        reset_role(connection, "app")
        connection.execute("ALTER ROLE ALL RESET ALL")


def test_the_precedence_is_that_of_postgresql(installed: Database, role_settings: None) -> None:
    name = installed.name
    steps = [
        ("SELECT pgtrickle.set_option('max_databases', '1')", "set_option"),
        ("ALTER ROLE ALL SET pg_trickle.max_databases = 3", "all roles"),
        (f"ALTER DATABASE {name} SET pg_trickle.max_databases = 4", "database"),
        ("ALTER ROLE app SET pg_trickle.max_databases = 5", "role"),
        (f"ALTER ROLE app IN DATABASE {name} SET pg_trickle.max_databases = 6", "role in database"),
    ]
    with session(installed) as opened:
        for sql, origin in steps:
            installed.superuser_sql(sql)
            value = sql.rstrip("')")[-1]
            assert read_settings(opened, options=True).winners() == {"max_databases": (value, origin)}
            with session(installed) as fresh:
                assert current_settings(fresh) == {"max_databases": (value, origin)}
                if origin != "set_option":
                    assert fresh.execute("SELECT current_setting('pg_trickle.max_databases')").fetchone() == (value,)
            assert installed.sql("SELECT value, origin FROM pgtrickle.options() WHERE name = 'max_databases'") == [
                (value, origin)
            ]
    with session(installed, options="-c pg_trickle.max_databases=7 --pg_trickle.spark_remote=a\\ b") as fresh:
        assert current_settings(fresh) == {"max_databases": ("7", "connection"), "spark_remote": ("a b", "connection")}


def test_other_roles_and_databases_do_not_matter(make_installed: Callable[[], Database], role_settings: None) -> None:
    one, other = make_installed(), make_installed()
    one.superuser_sql(
        f"ALTER DATABASE {other.name} SET pg_trickle.max_databases = 4; "
        "ALTER ROLE postgres SET pg_trickle.max_databases = 5; "
        f"ALTER ROLE app IN DATABASE {other.name} SET pg_trickle.max_databases = 6"
    )
    try:
        with session(one) as fresh:
            assert current_settings(fresh) == {}
        assert one.sql("SELECT DISTINCT origin FROM pgtrickle.options()") == [("default",)]
    finally:
        one.superuser_sql("ALTER ROLE postgres RESET ALL")


def test_a_watch_notices_what_is_stored_and_taken_away(installed: Database) -> None:
    name = installed.name
    with session(installed) as opened:
        watched = watch(installed)
        assert watched.read(opened).settings.enabled is True
        installed.superuser_sql(f"ALTER DATABASE {name} SET pg_trickle.enabled = off")
        assert watched.read(opened).settings.enabled is False
        assert watched.read(opened).origins["enabled"] == "database"
        installed.superuser_sql(f"ALTER ROLE app IN DATABASE {name} SET pg_trickle.enabled = on")
        assert watched.read(opened).origins["enabled"] == "role in database"
        assert watched.read(opened).settings.enabled is True
        installed.superuser_sql(f"ALTER ROLE app IN DATABASE {name} RESET ALL; ALTER DATABASE {name} RESET ALL")
        assert watched.read(opened).origins["enabled"] == "default"
        installed.sql("SELECT pgtrickle.set_option('enabled', 'off')")
        assert watched.read(opened).settings.enabled is False
        installed.sql("SELECT pgtrickle.set_option('enabled', NULL)")
        assert watched.read(opened).origins["enabled"] == "default"


def test_a_watch_is_not_misled_by_what_is_stored_while_it_asks(installed: Database) -> None:
    stored = f"ALTER DATABASE {installed.name} {{}} pg_trickle.scheduler_interval_ms"
    asked = 0

    def ask() -> Connection:
        nonlocal asked
        asked += 1
        if asked == 1:
            installed.superuser_sql(stored.format("SET") + " = 900")
        return connect(installed.dsn, role="test")

    installed.superuser_sql(stored.format("SET") + " = 700")
    with session(installed) as opened:
        watched = SettingsWatch(installed.name, Sources(), ask)
        assert watched.read(opened).settings.scheduler_interval_ms == 700
        installed.superuser_sql(stored.format("RESET"))
        for _ in range(2):
            assert watched.read(opened).settings.scheduler_interval_ms == 900
        installed.superuser_sql(stored.format("RESET"))
        for _ in range(3):
            assert watched.read(opened).settings.scheduler_interval_ms == 1000
        assert asked == 2


def test_a_watch_keeps_the_previous_value_of_what_becomes_wrong(
    make_installed: Callable[[], Database], caplog: pytest.LogCaptureFixture
) -> None:
    broken, sound = make_installed(), make_installed()
    with session(broken) as opened, session(sound) as other, caplog.at_level(logging.INFO):
        watches = watch(broken), watch(sound)
        broken.superuser_sql(f"ALTER DATABASE {broken.name} SET pg_trickle.scheduler_interval_ms = 300")
        assert watches[0].read(opened).settings.scheduler_interval_ms == 300
        broken.superuser_sql(f"ALTER DATABASE {broken.name} SET pg_trickle.scheduler_interval_ms = 3")
        for _ in range(3):
            assert watches[0].read(opened).settings.scheduler_interval_ms == 300
        assert [p.origin for p in watches[0].read(opened).problems] == ["database"]
        assert watches[1].read(other).problems == ()
    said = [record for record in caplog.records if record.message == "An invalid setting of the database was ignored"]
    assert len(said) == 1
    assert broken.sql("SELECT problem FROM pgtrickle.options() WHERE problem IS NOT NULL") == [
        ("scheduler_interval_ms = 3 is not valid: it must be 100..600000",)
    ]


def test_what_pgtrickle_was_started_with_wins_over_the_database(installed: Database) -> None:
    installed.sql("SELECT pgtrickle.set_option('scheduler_interval_ms', '300')")
    with session(installed) as opened:
        loaded = watch(installed, Sources(profile="low-latency")).read(opened)
    assert (loaded.settings.scheduler_interval_ms, loaded.origins["scheduler_interval_ms"]) == (200, "profile")


@pytest.mark.parametrize(
    "statement",
    [
        "ALTER DATABASE {name} SET pg_trickle.enabled = off",
        "ALTER ROLE app SET pg_trickle.enabled = off",
        "ALTER ROLE app IN DATABASE {name} SET pg_trickle.enabled = off",
    ],
)
def test_postgresql_refuses_an_ordinary_role_until_it_is_granted(
    database: Database, role_settings: None, statement: str
) -> None:
    """The owner of the database and the role itself included: why set_option() exists."""
    text = statement.format(name=database.name)
    with pytest.raises(psycopg.errors.InsufficientPrivilege):
        database.sql(text)
    database.superuser_sql('GRANT SET ON PARAMETER "pg_trickle.enabled" TO app')
    try:
        database.sql(text)
        with session(database) as fresh:
            assert current_settings(fresh)["enabled"][0] == "off"
    finally:
        database.superuser_sql('REVOKE SET ON PARAMETER "pg_trickle.enabled" FROM app')


@pytest.mark.parametrize(
    ("name", "value", "says"),
    [
        ("scheduler_interval_ms", "99", "it must be 100..600000"),
        ("scheduler_interval_ms", "1e3", "it must be 100..600000"),
        ("scheduler_interval_ms", "", "it must be 100..600000"),
        ("differential_max_change_ratio", "NaN", "it must be 0..1"),
        ("compact_threshold", "-1", "it must be 0 or more"),
        ("parallel_refresh_mode", "maybe", "it must be off, dry_run, on"),
        ("enabled", "perhaps", "it must be on, off"),
        ("intervall", "1", "unknown setting intervall"),
        ("intervall", None, "unknown setting intervall"),
        ("java_home", "/tmp", "concerns the machine"),
        ("spark_conf.spark.x", "1", "concerns the machine"),
        (None, "1", "unknown setting"),
    ],
)
def test_set_option_refuses_what_is_wrong(installed: Database, name: str, value: str | None, says: str) -> None:
    with pytest.raises(psycopg.Error, match=says):
        installed.sql("SELECT pgtrickle.set_option(%s, %s)", name, value)
    assert installed.sql("SELECT * FROM pgtrickle.pgt_settings") == []


@pytest.mark.parametrize(
    ("name", "value", "expected"),
    [
        ("pg_trickle.Scheduler_Interval_MS", " 250 ", ("scheduler_interval_ms", 250)),
        ("publication_lag_warn_bytes", "5", ("publication_lag_warn_lsn", 5)),
        ("differential_max_change_ratio", ".25", ("differential_max_change_ratio", 0.25)),
        ("parallel_refresh_mode", "DRY_RUN", ("parallel_refresh_mode", "dry_run")),
        ("enabled", "No", ("enabled", False)),
    ],
)
def test_set_option_takes_what_the_control_plane_takes(
    installed: Database, name: str, value: str, expected: tuple[str, object]
) -> None:
    installed.sql("SELECT pgtrickle.set_option(%s, %s)", name, value)
    with session(installed) as fresh:
        loaded = Sources().load(current_settings(fresh))
    assert loaded.problems == ()
    assert (getattr(loaded.settings, expected[0]), loaded.origins[expected[0]]) == (expected[1], "set_option")


def test_sql_and_the_control_plane_agree_on_what_is_valid(installed: Database) -> None:
    values = ("on", "off", "0", "1", "-1", "64", "65", "0.5", "100000000", "100000001", "dry_run", "transaction", "x")
    names = [row["name"] for row in describe() if row["scope"] != "host"]
    rows = installed.sql(
        "SELECT n, v, pgtrickle._option_problem(n, v) IS NULL FROM unnest(%s::text[]) AS n, unnest(%s::text[]) AS v",
        names,
        list(values),
    )
    assert len(rows) == len(names) * len(values)
    wrong = [(n, v, ok) for n, v, ok in rows if ok is bool(Sources().load({n: (v, "database")}).problems)]
    assert wrong == []


def test_set_option_says_what_wins_over_it_and_what_is_for_the_fleet(installed: Database) -> None:
    installed.superuser_sql(f"ALTER DATABASE {installed.name} SET pg_trickle.wake_debounce_ms = 20")
    heard: list[str] = []
    connection = installed.connect()
    connection.add_notice_handler(lambda diag: heard.append(diag.message_primary or ""))
    connection.execute("SELECT pgtrickle.set_option('wake_debounce_ms', '30')")
    connection.execute("SELECT pgtrickle.set_option('worker_pool_size', '3')")
    assert heard == [
        "wake_debounce_ms = 20 of database overrides it",
        "worker_pool_size applies to all databases: it is read from the database that --server names",
    ]


def test_set_option_is_for_the_installing_role_only(installed: Database) -> None:
    installed.superuser_sql(
        "DROP ROLE IF EXISTS stranger; CREATE ROLE stranger; GRANT USAGE ON SCHEMA pgtrickle TO stranger"
    )
    try:
        with pytest.raises(psycopg.errors.InsufficientPrivilege, match="only app, who installed pgtrickle here"):
            installed.superuser_sql("SET ROLE stranger; SELECT pgtrickle.set_option('enabled', 'off')")
        with pytest.raises(psycopg.errors.InsufficientPrivilege):
            installed.superuser_sql("SET ROLE stranger; INSERT INTO pgtrickle.pgt_settings VALUES ('enabled', 'off')")
        assert installed.superuser_sql("SET ROLE stranger; SELECT count(*) > 20 FROM pgtrickle.options()") == [(True,)]
    finally:
        installed.superuser_sql("DROP OWNED BY stranger; DROP ROLE stranger")


def test_looking_is_cheap(installed: Database) -> None:
    with session(installed) as opened:
        watched = watch(installed)
        watched.read(opened)
        took: dict[str, list[float]] = {"look": [], "trivial": []}
        for _ in range(50):
            for name, call in (("look", lambda: watched.read(opened)), ("trivial", lambda: opened.execute("SELECT 1"))):
                began = time.perf_counter()
                call()
                took[name].append(time.perf_counter() - began)
    # About 10 times a trivial statement.
    assert statistics.median(took["look"]) < 50 * statistics.median(took["trivial"])


@pytest.fixture(scope="module")
def own_server() -> Iterator[EmbeddedPostgres]:
    """Started with the lines of a profile, and with one that nobody knows."""
    lines = {f"pg_trickle.{name}": value for name, value in PROFILES["resource-constrained"].items()}
    server = EmbeddedPostgres.create(durable=False, settings={**lines, "pg_trickle.scheduler_intervall_ms": "5"})
    with server:
        prepare_server(server)
        yield server


def config(dsn: str, *arguments: str) -> tuple[int, dict[str, dict[str, object]]]:
    done = subprocess.run(
        [sys.executable, "-m", "pgtrickle.cli", *arguments, "config", "--server", dsn, "--json"],
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
        env={k: v for k, v in os.environ.items() if not k.startswith("PGTRICKLE_")},
    )
    return done.returncode, {row["name"]: row for row in json.loads(done.stdout)}


def rewrite(server: EmbeddedPostgres, old: str, new: str) -> None:
    file = server.data / "postgresql.conf"
    text = file.read_text()
    assert old in text
    file.write_text(text.replace(old, new))
    with psycopg.connect(server.dsn(), autocommit=True) as connection:
        connection.execute("SELECT pg_reload_conf()")


@pytest.mark.parametrize("profile", PROFILES)
def test_a_profile_works_in_postgresql_conf(own_server: EmbeddedPostgres, profile: str) -> None:
    file = own_server.data / "postgresql.conf"
    before = file.read_text()
    lines = "".join(f"pg_trickle.{name} = '{value}'\n" for name, value in PROFILES[profile].items())
    try:
        file.write_text("".join(x for x in before.splitlines(True) if not x.startswith("pg_trickle.")) + lines)
        own_server.restart()
        dsn = own_server.dsn("postgres", user="app", password="app")
        code, rows = config(dsn)
        assert code == 0
        found = {name: row["value"] for name, row in rows.items() if row["origin"] == "postgresql.conf"}
        settings = Sources(profile=profile).load().settings
        assert found == {name: getattr(settings, name) for name in PROFILES[profile]}
        _, rows = config(dsn, "--profile", "low-latency", "--set", "tiered_scheduling=off")
        assert (rows["scheduler_interval_ms"]["value"], rows["scheduler_interval_ms"]["origin"]) == (200, "profile")
        assert (rows["tiered_scheduling"]["value"], rows["tiered_scheduling"]["origin"]) == (False, "flag")
    finally:
        file.write_text(before)
        own_server.restart()


def test_a_superuser_sees_unknown_names_in_postgresql_conf(own_server: EmbeddedPostgres) -> None:
    """PostgreSQL shows such names to nobody else."""
    code, rows = config(own_server.dsn("postgres", user="app", password="app"))
    assert (code, "scheduler_intervall_ms" in rows) == (0, False)
    code, rows = config(own_server.dsn())
    assert code == 1
    assert "did you mean scheduler_interval_ms?" in str(rows["scheduler_intervall_ms"]["problem"])


def test_a_watch_finds_the_servers_own_value_again(own_server: EmbeddedPostgres) -> None:
    """What was stored when the session began hides postgresql.conf from it, for as long as it lasts."""
    database = Database(own_server, "postgres")
    stored = "ALTER DATABASE postgres {} pg_trickle.scheduler_interval_ms"
    database.superuser_sql(stored.format("SET") + " = 700")
    with session(database) as opened:
        watched = watch(database)
        assert watched.read(opened).settings.scheduler_interval_ms == 700
        database.superuser_sql(stored.format("RESET"))
        assert watched.read(opened).settings.scheduler_interval_ms == 2000
        assert watched.read(opened).origins["scheduler_interval_ms"] == "postgresql.conf"
        rewrite(own_server, "pg_trickle.scheduler_interval_ms = 2000", "pg_trickle.scheduler_interval_ms = 2500")
        for _ in range(100):
            if watched.read(opened).settings.scheduler_interval_ms == 2500:
                break
            time.sleep(0.05)
        assert watched.read(opened).settings.scheduler_interval_ms == 2500
        rewrite(own_server, "pg_trickle.scheduler_interval_ms = 2500", "pg_trickle.scheduler_interval_ms = 2000")
