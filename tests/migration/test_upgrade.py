"""Catalogs of earlier versions, with populated stream tables and pending changes, are upgraded by `install`."""

from __future__ import annotations

from collections.abc import Callable

import psycopg
import pytest

from pgtrickle.db import SCHEMA_VERSION, connect, install, installed_version
from tests.conftest import create_database
from tests.line import Line
from tests.migration.earlier import WRITTEN, Earlier, check_refreshed, upgrade
from tests.migration.fixture import VERSIONS
from tests.migration.schema import difference, schema_of


def test_there_is_a_fixture_of_each_earlier_version() -> None:
    assert [f"v{number}" for number in range(1, SCHEMA_VERSION)] == list(VERSIONS)


def test_upgrade_keeps_content_and_loses_no_change(earlier: Earlier, make_line: Callable[[str], Line]) -> None:
    content, before = earlier.content(), earlier.before_changes()
    assert all(content.values())
    assert all(before.values())
    earlier.write(0)
    late = earlier.main.connect(autocommit=False)  # writes before the upgrade, commits after it
    late.execute("UPDATE orders SET amount = amount + 3 WHERE id = 15")
    opened = [connect(d.dsn, role="install", as_service=False) for d in (earlier.main, earlier.origin)]
    for conn in opened:
        conn.execute("SELECT 1")  # the transaction is open: install takes part in it
        install(conn)
        assert installed_version(conn) == SCHEMA_VERSION
    earlier.write(1)
    version = "SELECT max(version) FROM pgtrickle.pgt_schema_version"
    for conn in opened:
        conn.commit()
        conn.close()
    assert earlier.main.sql(version) == earlier.origin.sql(version) == [(SCHEMA_VERSION,)]
    late.commit()
    assert earlier.before_changes() == before
    earlier.write(2)
    assert earlier.content() == content
    assert earlier.marked() == WRITTEN
    check_refreshed(earlier, make_line(earlier.main.dsn))


def test_upgraded_schema_equals_a_new_one(earlier: Earlier) -> None:
    installed = create_database(earlier.main.server, "fresh")
    upgrade(installed)
    fresh = schema_of(installed.dsn)
    for database in (earlier.main, earlier.origin):
        upgrade(database)
        assert not difference(schema_of(database.dsn), fresh)
    upgrade(earlier.main)  # again
    upgrade(installed)
    assert not difference(schema_of(earlier.main.dsn), fresh)
    assert not difference(schema_of(installed.dsn), fresh)


def test_upgrade_that_is_killed_leaves_the_earlier_catalog_at_work(
    earlier: Earlier, make_line: Callable[[str], Line]
) -> None:
    schema, content, before = schema_of(earlier.main.dsn), earlier.content(), earlier.before_changes()
    conn = connect(earlier.main.dsn, role="install", as_service=False)
    conn.execute("SELECT 1")
    install(conn)
    earlier.write(0)
    earlier.main.superuser_sql("SELECT pg_terminate_backend(%s)", conn.info.backend_pid)
    with pytest.raises(psycopg.Error):
        conn.commit()
    earlier.write(1)
    assert not difference(schema_of(earlier.main.dsn), schema)
    assert earlier.main.sql("SELECT max(version) FROM pgtrickle.pgt_schema_version") == [(earlier.version,)]
    assert earlier.content() == content
    earlier.main.sql("SELECT pgtrickle.create_stream_table('made', 'SELECT id FROM orders', initialize => false)")
    earlier.main.sql("SELECT pgtrickle.drop_stream_table('made')")
    upgrade(earlier.main)
    upgrade(earlier.origin)
    assert earlier.before_changes() == before
    earlier.write(2)
    assert earlier.marked() == WRITTEN
    check_refreshed(earlier, make_line(earlier.main.dsn))
