"""`pgtrickle uninstall` says what it removes, asks, and leaves no role behind; what cannot be served is named."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator

import psycopg
import pytest
from typer.testing import CliRunner

from pgtrickle.cli.app import app
from pgtrickle.db.install import install, uninstall
from pgtrickle.db.service import install_as_service
from pgtrickle.process.server_watch import ServerWatch
from pgtrickle.settings import Sources
from tests.conftest import Database

SERVICE = "uninstalled_service"


@pytest.fixture
def service(database: Database) -> Iterator[Database]:
    """Installed by a superuser, as a service role that install creates."""
    with psycopg.connect(database.superuser_dsn) as conn:
        install_as_service(conn, SERVICE)
    database.superuser_sql(f"GRANT app TO {SERVICE}; GRANT USAGE ON SCHEMA pgtrickle TO app")
    database.superuser_sql(f"GRANT USAGE, CREATE ON SCHEMA public TO {SERVICE}, app")
    database.sql("CREATE TABLE t (a int)")
    database.sql("SELECT pgtrickle.create_stream_table('s', 'SELECT a FROM t')")
    yield database
    database.superuser_sql(f"DROP OWNED BY {SERVICE} CASCADE" if roles(database) else "SELECT")
    database.superuser_sql(f"DROP ROLE IF EXISTS {SERVICE}")


def roles(database: Database) -> list[tuple[str]]:
    return database.superuser_sql("SELECT rolname FROM pg_roles WHERE rolname = %s", SERVICE)


def test_uninstall_lists_and_asks_and_drops_the_role_that_install_made(service: Database) -> None:
    service.superuser_sql(
        "INSERT INTO pgtrickle.pgt_readers (reader_key, mirror_id, reader_server, reader_database, source_relid) "
        "VALUES ('1/2', 3, '', 'reports', 't'::regclass)"
    )
    run = CliRunner().invoke
    stranger = run(app, ["uninstall", "--yes", service.dsn])
    assert stranger.exit_code != 0
    assert f"{SERVICE} installed pgtrickle in database {service.name}" in str(stranger.exception)
    refused = run(app, ["uninstall", "--drop-tables", service.superuser_dsn], input="n\n")
    assert refused.exit_code == 1
    assert "1 stream tables that are dropped: public.s" in refused.output
    assert "1 other databases that read tables of this one and get no more changes: reports" in refused.output
    assert service.sql("SELECT count(*) FROM pgtrickle.pgt_status()") == [(1,)]
    done = run(app, ["uninstall", "--drop-tables", "--yes", service.superuser_dsn])
    assert (done.exit_code, roles(service)) == (0, []), done.output
    again = run(app, ["uninstall", "--yes", service.superuser_dsn])
    assert again.exit_code != 0
    assert "is not installed" in str(again.exception)


def test_role_stays_with_the_tables_that_stay(service: Database) -> None:
    done = CliRunner().invoke(app, ["uninstall", "--yes", service.superuser_dsn])
    assert done.exit_code == 0
    assert "stay as plain tables and are no longer refreshed: public.s" in done.output
    assert f"role {SERVICE} stays, because it owns tables here" in done.output


def test_doctor_names_a_database_that_another_role_installed(
    service: Database, make_installed: Callable[[], Database]
) -> None:
    from pgtrickle.maintain.doctor import examine

    own = make_installed()
    report = examine(Sources(), {}, own.dsn)
    said = f"{service.name} is not served: pgtrickle was installed there by {SERVICE}"
    assert said in [finding.detail for finding in report.findings if not finding.ok]


def test_status_names_the_role_that_serves_the_database(service: Database) -> None:
    service.superuser_sql("GRANT USAGE ON SCHEMA pgtrickle TO app")
    done = CliRunner().invoke(app, ["status", "--server", service.dsn])
    assert f"{SERVICE} installed pgtrickle here (hint: pgtrickle run --server as {SERVICE}" in done.output


def test_run_names_a_database_that_another_role_installed(
    service: Database, make_installed: Callable[[], Database], caplog: pytest.LogCaptureFixture
) -> None:
    own, stop = make_installed(), threading.Event()
    watch = ServerWatch(own.dsn, Sources(), stop, 30.0)
    with caplog.at_level("WARNING"):
        watch.start()
        deadline = time.monotonic() + 60
        while own.name not in {found.name for found in watch.databases}:
            assert time.monotonic() < deadline
            time.sleep(0.05)
        stop.set()
        watch.join(60)
    assert service.name not in {found.name for found in watch.databases}
    said = [vars(record)["pgt_fields"] for record in caplog.records if "another role installed" in record.message]
    assert [(fields["database"], fields["role"]) for fields in said] == [(service.name, SERVICE)]


def test_system_catalogs_are_refused(installed: Database) -> None:
    installed.sql("CREATE VIEW sizes AS SELECT relname FROM pg_class")
    for query in (
        "SELECT relname FROM pg_class",
        "SELECT * FROM sizes",
        "SELECT table_name FROM information_schema.tables",
    ):
        with pytest.raises(psycopg.errors.FeatureNotSupported, match="the query reads the system catalog"):
            installed.sql("SELECT pgtrickle.create_stream_table('s', %s)", query)


def test_uninstall_of_an_ordinary_role_needs_no_role(database: Database) -> None:
    with psycopg.connect(database.dsn) as conn:
        install(conn)
        uninstall(conn)
    assert database.sql("SELECT to_regnamespace('pgtrickle')") == [(None,)]
