"""A server is put back to an earlier state at its address, under `pgtrickle run`: a disk, or a base backup of the same
timeline. Stream tables there, and those that read its tables from elsewhere, equal their queries without a command.
"""

from __future__ import annotations

import shutil
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from pgtrickle.db.connect import connect
from pgtrickle.db.discover import server_label
from pgtrickle.db.install import install
from pgtrickle.servers.embedded_postgres import EmbeddedPostgres
from tests.conftest import create_database, prepare_server
from tests.fleet.conftest import Run, Small, make_small, wait_for
from tests.postgres.test_cli_commands import pgtrickle
from tests.postgres.test_origin_restored import put_back


@pytest.fixture
def beside() -> Iterator[EmbeddedPostgres]:
    """A server that stays as it is."""
    with EmbeddedPostgres.create(settings={"fsync": "off", "max_connections": "40"}) as server:
        prepare_server(server)
        yield server


@pytest.mark.slow
@pytest.mark.parametrize("is_quiet", [False, True], ids=["writes go on", "quiet"])
def test_server_is_put_back_to_an_earlier_state(
    own_server: EmbeddedPostgres,
    beside: EmbeddedPostgres,
    spark_url: str,
    make_run: Callable[..., Run],
    tmp_path: Path,
    is_quiet: bool,
) -> None:
    one = make_small(own_server, "one")
    reader = Small(create_database(beside, "reader"))
    with connect(reader.database.dsn, role="test", autocommit=True) as connection:
        install(connection)
    origin = server_label(one.database.dsn)
    reader.sql(
        "SELECT pgtrickle.create_stream_table('copied', %s, 'calculated')", f'SELECT k, v FROM "one@{origin}".public.t'
    )

    def is_copied() -> bool:
        return sorted(reader.sql("SELECT k, v FROM copied")) == sorted(one.sql("SELECT k, v FROM t"))

    run = make_run([one.database.dsn, reader.database.dsn], spark_url)
    process = run.start()
    wait_for(lambda: reader.sql("SELECT to_regclass('copied') IS NOT NULL") == [(True,)])  # the run defines it
    one.add(5)
    wait_for(lambda: one.is_current() and is_copied())
    own_server.stop()
    shutil.copytree(own_server.data, tmp_path / "earlier")
    own_server.start()
    # What is lost: many transactions, and a stream table, the number of which is given to another one afterwards.
    for i in range(40):
        one.add(i)
    one.sql("DELETE FROM t WHERE v = 5")
    one.sql("SELECT pgtrickle.create_stream_table('lost', 'SELECT max(v) AS v FROM t', 'calculated')")
    wait_for(lambda: one.sql("SELECT v FROM lost") == [(39,)])
    wait_for(lambda: one.is_current() and is_copied())
    put_back(own_server, tmp_path / "earlier")
    if not is_quiet:
        one.add(7)
        one.sql("SELECT pgtrickle.create_stream_table('given', 'SELECT min(v) AS v FROM t', 'calculated')")
        wait_for(lambda: one.sql("SELECT v FROM given") == [(1,)])
    wait_for(lambda: one.is_current() and is_copied())
    assert len(one.sql("SELECT FROM t")) == (3 if is_quiet else 4)
    one.sql("UPDATE t SET v = -1 WHERE v = 5")
    if not is_quiet:
        wait_for(lambda: one.sql("SELECT v FROM given") == [(-1,)])
    wait_for(lambda: one.is_current() and is_copied())
    assert process.poll() is None
    assert run.traceback() == ""
    for each in (one, reader):
        done = pgtrickle("verify", "--all", "--server", each.database.dsn, "--other-server", one.database.dsn)
        assert done.returncode == 0, done.stdout + done.stderr
    assert run.end()[0] == 0
    for each in (one, reader):
        each.database.close()
