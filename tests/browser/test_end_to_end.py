"""From nothing, or an earlier version, to nothing: install and upgrade, three stream tables, an error, an alert, a
dashboard, uninstall.

Everything is done as a person would: with the command, with psql and with a browser, on a server of its own.
"""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from pgtrickle.servers.embedded_postgres import EmbeddedPostgres
from tests.browser.browser import Browser
from tests.browser.conftest import TOKEN, free_port, table_path
from tests.conftest import ROLE, Database, create_database, prepare_server
from tests.fleet.conftest import Run, wait_for
from tests.migration.fixture import VERSIONS, load

# What pgtrickle may leave behind: objects, triggers, roles, settings.
TRACES = f"""
    SELECT 'schema', nspname FROM pg_namespace WHERE nspname LIKE 'pgtrickle%'
    UNION ALL SELECT 'trigger', tgname FROM pg_trigger WHERE NOT tgisinternal
    UNION ALL SELECT 'event trigger', evtname FROM pg_event_trigger
    UNION ALL SELECT 'function', proname FROM pg_proc WHERE proname ~ 'pgt_|trickle'
    UNION ALL SELECT 'column', attrelid::regclass || '.' || attname FROM pg_attribute AS a
              JOIN pg_class AS c ON c.oid = a.attrelid WHERE attname LIKE '\\_\\_pgt%' AND c.relkind IN ('r', 'p')
    UNION ALL SELECT 'publication', pubname FROM pg_publication
    UNION ALL SELECT 'setting', unnest(setconfig) FROM pg_db_role_setting WHERE setrole <> '{ROLE}'::regrole
    UNION ALL SELECT 'session', application_name FROM pg_stat_activity WHERE application_name LIKE 'pgtrickle%'
"""


class Person:
    """Has the command and psql."""

    def __init__(self, server: EmbeddedPostgres) -> None:
        self._psql = server.program("psql")

    def pgtrickle(self, *arguments: str) -> str:
        return self._run(sys.executable, "-m", "pgtrickle.cli", *arguments)

    def psql(self, database: Database, text: str) -> str:
        return self._run(str(self._psql), "-X", "-A", "-t", "-v", "ON_ERROR_STOP=1", "-c", text, database.dsn)

    def _run(self, *command: str) -> str:
        done = subprocess.run(command, capture_output=True, text=True, timeout=300, check=False)
        assert done.returncode == 0, done.stdout + done.stderr
        return done.stdout.strip()


@dataclass(frozen=True)
class Server:
    """A server of its own, whose databases `main` and `origin` have an earlier version; `fresh` is empty."""

    postgres: EmbeddedPostgres
    main: Database
    origin: Database
    fresh: Database

    @property
    def databases(self) -> tuple[Database, ...]:
        return self.main, self.origin, self.fresh


@pytest.fixture
def server(chromium: Browser) -> Iterator[Server]:
    postgres = EmbeddedPostgres.create(durable=False)
    with postgres:
        prepare_server(postgres)
        main, origin = load(VERSIONS[0], postgres)
        found = Server(postgres, main, origin, create_database(postgres, "fresh"))
        yield found
        for database in found.databases:
            database.close()


def test_a_life_with_pgtrickle(server: Server, chromium: Browser, spark_url: str, tmp_path: Path) -> None:
    main = server.main
    person = Person(server.postgres)
    roles = main.superuser_sql("SELECT rolname FROM pg_roles ORDER BY 1")
    assert server.fresh.superuser_sql(TRACES) == []
    for database in server.databases:
        person.pgtrickle("install", database.dsn)  # an upgrade, but for the one that is empty
    address = f"127.0.0.1:{free_port()}"
    run = Run([main.dsn], spark_url, tmp_path / "run.log")
    run.environ["PGTRICKLE_HTTP_TOKEN"] = TOKEN
    run.start(http=address, engine="postgres")
    before, chromium.base = chromium.base, f"http://{address}"
    try:
        wait_for(lambda: "This launcher is active" in run.text())
        use(person, main, server.fresh, chromium)
        chromium.driver.get("about:blank")
        for database in server.databases:
            person.pgtrickle("uninstall", "--drop-tables", "--yes", database.dsn)
    finally:
        chromium.driver.get("about:blank")
        chromium.problems()
        chromium.base = before
        assert run.end()[0] == 0
    for database in server.databases:
        wait_for(lambda database=database: database.superuser_sql(TRACES) == [])  # type: ignore[misc]
    assert main.superuser_sql("SELECT rolname FROM pg_roles ORDER BY 1") == roles


def use(person: Person, main: Database, origin: Database, browser: Browser) -> None:
    """Stream tables in `main`, one of them over a table of `origin`."""
    name = origin.name
    person.psql(main, "CREATE TABLE visits (page text, seconds int); INSERT INTO visits VALUES ('a', 4), ('b', 5)")
    person.psql(origin, "CREATE TABLE pages (page text, title text); INSERT INTO pages VALUES ('a', 'A'), ('b', 'B')")
    for table, query in (
        ("rates", "SELECT page, sum(60 / seconds) AS rate FROM visits GROUP BY page"),
        ("fast_pages", "SELECT page FROM rates WHERE rate > 12"),
        ("titles", f"SELECT p.title, v.seconds FROM visits AS v JOIN {name}.public.pages AS p ON p.page = v.page"),
    ):
        person.psql(main, f"SELECT pgtrickle.create_stream_table('{table}', $${query}$$, 'calculated')")
    wait_for(lambda: main.sql("SELECT count(*) FROM pgtrickle.pending_definitions()") == [(0,)])
    for table in ("fast_pages", "titles"):
        person.psql(main, f"CALL pgtrickle.refresh_and_wait('{table}')")
    assert person.psql(main, "SELECT page FROM fast_pages") == "a"
    assert person.psql(main, "SELECT title, seconds FROM titles ORDER BY 1") == "A|4\nB|5"

    # The dashboard, with the token.
    browser.reset()
    browser.log_in(TOKEN)
    browser.wait(lambda: browser.text("h1") == "Fleet" and browser.count("#databases tbody tr") == 3)
    browser.open("/alerts")
    browser.go_live()
    # An error and its alert, in the page that is open.
    person.psql(main, "INSERT INTO visits VALUES ('c', 0)")
    browser.wait(lambda: "public.rates has failed" in browser.text("#alerts"))
    browser.wait(lambda: "division by zero" in browser.text("#alerts"))
    person.psql(main, "UPDATE visits SET seconds = 3 WHERE page = 'c'")
    browser.wait(lambda: "public.rates has failed" not in browser.text("#alerts"))  # it was tried again by itself
    browser.open(table_path(main.name, "rates"))
    browser.wait(lambda: browser.text("#state") == "fresh")
    assert browser.count("#error .problem") == 0
    assert "division by zero" in browser.text("#history")
    assert browser.problems() == []
    assert person.psql(main, "SELECT page, rate FROM rates ORDER BY 1") == "a|15\nb|12\nc|20"
    # All of them, also those of the earlier version.
    person.pgtrickle("verify", "--all", "--server", main.dsn)
