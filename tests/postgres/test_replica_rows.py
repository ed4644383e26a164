"""Replicas in the catalog: who sees them, what they hold back, what is dropped with them."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import psycopg
import pytest

from pgtrickle.capture.install import collect_garbage, ensure_capture
from pgtrickle.capture.trim import trim
from pgtrickle.db.connect import connect
from pgtrickle.errors import ReplicaUnavailableError
from pgtrickle.replica import rows
from pgtrickle.replica.drop import drop, drop_unused
from tests.conftest import Database


@pytest.fixture
def relid(installed: Database) -> int:
    """A captured table with the row of a replica that is being built."""
    installed.sql("CREATE TABLE t (id int PRIMARY KEY, note text)")
    ((found,),) = installed.sql("SELECT 't'::regclass::oid::int8")
    with connect(installed.dsn, role="replica", autocommit=True) as conn:
        ensure_capture(conn, found, [1, 2])
        rows.register(
            conn,
            found,
            generation="g1",
            location="/nowhere/1/2/3",
            token="t1",
            attnums=[1, 2],
            computed=[],
            as_text=[],
            reader=None,
            requested=True,
        )
    return int(found)


def _ready(installed: Database) -> None:
    installed.sql(
        "UPDATE pgtrickle.pgt_replicas SET snapshot = pg_current_snapshot(), row_count = 5, bytes = 7, file_count = 1, "
        "committed = 't1', announced = '{}'"
    )


def test_buffer_is_kept_while_it_is_built_and_behind_its_cut(installed: Database, relid: int) -> None:
    with psycopg.connect(installed.dsn, autocommit=True) as conn:
        installed.sql("INSERT INTO t SELECT i FROM generate_series(1, 10) AS i")
        assert trim(conn, relid) == 0
        _ready(installed)
        installed.sql("INSERT INTO t SELECT i FROM generate_series(11, 15) AS i")
        assert trim(conn, relid) == 10
        assert collect_garbage(conn) == []
        installed.sql("UPDATE pgtrickle.pgt_replicas SET origin = 'another/1'")  # as in a copy of the database
        assert trim(conn, relid) == 5
        assert collect_garbage(conn) == [relid]


def test_shown_to_roles_that_may_read_the_table(
    installed: Database, relid: int, make_role: Callable[[Database], psycopg.Connection[Any]]
) -> None:
    _ready(installed)
    installed.sql("INSERT INTO t VALUES (1), (2)")
    role = make_role(installed)
    columns = "source_table, state, row_count, bytes, files, pending_rows, requested, location"
    listed = f"SELECT {columns} FROM pgtrickle.replicas()"
    assert installed.sql(listed) == [("public.t", "ready", 5, 7, 1, 2, True, "/nowhere/1/2/3")]
    assert role.execute(listed).fetchall() == []
    with pytest.raises(psycopg.errors.InsufficientPrivilege):
        role.execute("SELECT * FROM pgtrickle.pgt_replicas")
    installed.sql(f"GRANT SELECT (id) ON t TO {role.info.user}")
    assert role.execute(listed).fetchall() == []
    installed.sql(f"GRANT SELECT ON t TO {role.info.user}")
    assert role.execute(listed).fetchall() == [("public.t", "ready", 5, 7, 1, 2, True, None)]
    installed.sql("UPDATE pgtrickle.pgt_replicas SET snapshot = NULL, last_error = 'no room'")
    assert role.execute("SELECT state, last_error FROM pgtrickle.replicas()").fetchall() == [("failed", "no room")]


def test_one_process_changes_a_replica_at_a_time(installed: Database, relid: int) -> None:
    with (
        connect(installed.dsn, role="replica", autocommit=True) as one,
        connect(installed.dsn, role="replica", autocommit=True) as two,
        rows.changing(one, relid),
    ):
        with pytest.raises(ReplicaUnavailableError, match="another process"), rows.changing(two, relid):
            pass
        with rows.changing(two, relid + 1):
            pass


def test_dropped_with_its_files(installed: Database, relid: int, tmp_path: Path) -> None:
    location = tmp_path / "1" / "2" / str(relid)
    location.mkdir(parents=True)
    (location / "file").touch()
    installed.sql("UPDATE pgtrickle.pgt_replicas SET location = %s", str(location))
    with connect(installed.dsn, role="replica", autocommit=True) as conn:
        assert drop_unused(conn, tmp_path) == []
        assert drop(conn, tmp_path, relid)
        assert not drop(conn, tmp_path, relid)
    assert not location.exists()


def test_unused_replicas_and_files_without_a_row_are_removed(installed: Database, relid: int, tmp_path: Path) -> None:
    ((key,),) = installed.sql("SELECT pgtrickle._origin()")
    own = tmp_path / key
    for name in (str(relid), "999", "888"):
        (own / name).mkdir(parents=True)
    for name in (str(relid), "999"):
        os.utime(own / name, (1, 1))
    with connect(installed.dsn, role="replica", autocommit=True) as conn:
        assert drop_unused(conn, tmp_path) == []
        assert sorted(p.name for p in own.iterdir()) == sorted([str(relid), "888"])
        installed.sql("UPDATE pgtrickle.pgt_replicas SET is_requested = false")
        assert drop_unused(conn, tmp_path) == [relid]
