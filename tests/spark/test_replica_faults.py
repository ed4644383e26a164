"""A replica is never wrong: damaged files, two processes that advance it, restored servers, other databases."""

from __future__ import annotations

import os
import shutil
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import psycopg
import pytest

from pgtrickle.capture.compact import SnapshotHorizon, compact
from pgtrickle.db.connect import Connection, connect
from pgtrickle.errors import PgtrickleError, ReplicaUnavailableError
from pgtrickle.pipeline.engine.spark import SparkEngine
from pgtrickle.replica import ReplicaVersion, log, rows
from tests.conftest import Database
from tests.spark.replicated import Replicated


@pytest.fixture
def replicated(installed: Database, engine: SparkEngine, tmp_path: Path) -> Iterator[Replicated]:
    found = Replicated(installed, engine, tmp_path / "replicas")
    yield found
    found.conn.close()


@pytest.fixture
def table(replicated: Replicated) -> ReplicaVersion:
    replicated.sql("CREATE TABLE t (id int PRIMARY KEY, kind int, note text)")
    replicated.sql("INSERT INTO t SELECT i, i % 7, 'n' || i FROM generate_series(1, 1000) AS i")
    return replicated.ensure()


def _data(version: ReplicaVersion) -> Path:
    return Path(version.directory) / version.files[0].name


def _log(version: ReplicaVersion) -> Path:
    return Path(version.directory) / "_delta_log" / f"{version.version:020d}.json"


def _flip(path: Path) -> None:
    """Another byte in the middle, the time of the last modification as before."""
    before = path.stat()
    content = bytearray(path.read_bytes())
    content[len(content) // 2] ^= 0xFF
    path.write_bytes(content)
    os.utime(path, ns=(before.st_atime_ns, before.st_mtime_ns))


DAMAGE: dict[str, Callable[[ReplicaVersion], object]] = {
    "deleted file": lambda v: _data(v).unlink(),
    "truncated file": lambda v: os.truncate(_data(v), v.files[0].bytes - 10),
    "modified file": lambda v: _flip(_data(v)),
    "replaced file": lambda v: _data(v).write_bytes(b"x" * v.files[0].bytes),
    "deleted log": lambda v: shutil.rmtree(_log(v).parent),
    "deleted commit": lambda v: _log(v).unlink(),
    "truncated log": lambda v: os.truncate(_log(v), 200),
    "other log": lambda v: _log(v).write_text(_log(v).read_text().replace(v.token, "0" * 32)),
    "deleted directory": lambda v: shutil.rmtree(Path(v.directory).parent),
    "deleted root": lambda v: shutil.rmtree(Path(v.directory).parents[3]),
}


@pytest.mark.parametrize("damage", DAMAGE)
@pytest.mark.parametrize("another_process", [False, True])
def test_damage_is_found_before_use(
    replicated: Replicated, table: ReplicaVersion, damage: str, another_process: bool
) -> None:
    replicated.sql("UPDATE t SET note = 'x' WHERE id < 10")
    version = replicated.advance()
    DAMAGE[damage](version)
    if another_process:  # one that has not seen these files yet
        replicated = Replicated(replicated.database, replicated.engine, replicated.root)
    with pytest.raises(ReplicaUnavailableError, match="cannot be used"):
        replicated.store.open(replicated.conn, replicated.need())
    built = replicated.ensure()
    assert built.generation != version.generation
    replicated.check(built)
    if another_process:
        replicated.conn.close()


def test_second_process_gives_up_while_one_advances(replicated: Replicated, table: ReplicaVersion) -> None:
    replicated.sql("UPDATE t SET note = 'x' WHERE id < 10")
    other = Replicated(replicated.database, replicated.engine, replicated.root)
    with rows.changing(replicated.conn, table.id.relid), pytest.raises(ReplicaUnavailableError, match="is changing"):
        other.advance()
    other.check(other.advance())
    other.conn.close()


@pytest.mark.parametrize("change", ["UPDATE t SET note = 'x' WHERE id < 10", "INSERT INTO t VALUES (5000, 1, 'x')"])
def test_one_of_two_commits_counts(
    replicated: Replicated, table: ReplicaVersion, monkeypatch: pytest.MonkeyPatch, change: str
) -> None:
    """Even without the lock. A commit that only adds files must not be repeated on top of the other."""
    replicated.sql(change)
    others = [Replicated(replicated.database, replicated.engine, replicated.root) for _ in range(2)]
    both, commit = threading.Barrier(2), log.commit
    results: list[ReplicaVersion | PgtrickleError] = []

    @contextmanager
    def unlocked(_conn: Connection, _relid: int) -> Iterator[Connection]:
        with connect(replicated.database.dsn, role="replica") as writer:
            yield writer

    def together(*args: Any) -> None:
        both.wait(300)
        commit(*args)

    def advance(other: Replicated) -> None:
        try:
            results.append(other.advance())
        except PgtrickleError as error:
            results.append(error)

    with monkeypatch.context() as patched:
        patched.setattr(rows, "changing", unlocked)
        patched.setattr(log, "commit", together)
        threads = [threading.Thread(target=advance, args=(other,)) for other in others]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    won = [r for r in results if isinstance(r, ReplicaVersion)]
    lost = [r for r in results if isinstance(r, PgtrickleError)]
    assert [v.version for v in won] == [1]
    assert [type(e) for e in lost] == [ReplicaUnavailableError]
    replicated.check(replicated.ensure())
    referenced = {f.name for f in (*won[0].files, *table.files)}
    assert {p.name for p in Path(table.directory).glob("part-*.parquet")} == referenced
    for other in others:
        other.conn.close()


def _advance_unrecorded(replicated: Replicated, monkeypatch: pytest.MonkeyPatch) -> None:
    """As when the process is killed between the commit and the row in the database."""

    def killed(*_: object) -> bool:
        raise KeyboardInterrupt

    with monkeypatch.context() as patched:
        patched.setattr(rows, "record", killed)
        with pytest.raises(KeyboardInterrupt):
            replicated.advance()
    replicated.conn.close()


def test_commit_that_was_not_recorded_is_adopted(
    replicated: Replicated, table: ReplicaVersion, monkeypatch: pytest.MonkeyPatch
) -> None:
    replicated.sql("UPDATE t SET note = 'x' WHERE id < 10")

    _advance_unrecorded(replicated, monkeypatch)
    again = Replicated(replicated.database, replicated.engine, replicated.root)
    row = rows.find(again.conn, table.id.relid)
    assert row is not None
    assert row.cut == table.cut
    version = again.ensure()
    assert (version.version, version.generation) == (1, table.generation)
    row = rows.find(again.conn, table.id.relid)
    assert row is not None
    assert (row.cut, row.committed, row.announced) == (version.cut, version.token, ())
    again.check(version)
    again.conn.close()


def test_restored_database_does_not_use_later_commits(replicated: Replicated, table: ReplicaVersion) -> None:
    """A backup that was taken before the replica advanced: its transactions after that are others."""
    columns = "generation, committed, announced, snapshot, updated_at"
    ((backup,),) = replicated.sql(f"SELECT row_to_json(p) FROM (SELECT {columns} FROM pgtrickle.pgt_replicas) AS p")
    replicated.sql("UPDATE t SET note = 'lost' WHERE id < 10")
    assert replicated.advance().version == 1
    replicated.sql(
        "UPDATE pgtrickle.pgt_replicas SET committed = %s, announced = '{}', snapshot = %s::pg_snapshot",
        backup["committed"],
        backup["snapshot"],
    )
    with pytest.raises(ReplicaUnavailableError, match="unknown to the database"):
        replicated.store.open(replicated.conn, replicated.need())
    version = replicated.ensure()
    assert version.generation != table.generation
    replicated.check(version)


def test_copy_of_a_database_has_its_own_replicas(
    replicated: Replicated, table: ReplicaVersion, make_database: Callable[..., Database]
) -> None:
    replicated.conn.close()
    copy = Replicated(make_database(template=replicated.database.name), replicated.engine, replicated.root)
    assert rows.find(copy.conn, table.id.relid) is None
    copy.sql("UPDATE t SET note = 'copy'")
    version = copy.ensure()
    assert version.id != table.id
    copy.check(version)
    copy.conn.close()
    original = Replicated(replicated.database, replicated.engine, replicated.root)
    assert original.ensure() == table
    original.check(table)
    original.conn.close()


def test_compaction_does_not_change_what_a_replica_reads(replicated: Replicated, table: ReplicaVersion) -> None:
    for i in range(5):
        replicated.sql("UPDATE t SET note = 'turn ' || %s WHERE id <= 100", i)
    with psycopg.connect(replicated.database.dsn, autocommit=True) as conn:
        replicated.sql("UPDATE pgtrickle.pgt_replicas SET updated_at = updated_at - interval '1 hour'")
        horizon = SnapshotHorizon(conn)
        assert horizon.has_come(conn)
        assert compact(conn, table.id.relid, horizon.horizon, 1000) == 800
    replicated.check(table)
    replicated.check(replicated.advance())


def test_changes_that_were_compacted_past_an_unrecorded_commit(
    replicated: Replicated, table: ReplicaVersion, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The commit's cut lies between two changes that have been netted out: it is of no use any more."""
    replicated.sql("UPDATE t SET note = 'first' WHERE id <= 100")

    _advance_unrecorded(replicated, monkeypatch)
    again = Replicated(replicated.database, replicated.engine, replicated.root)
    again.sql("UPDATE t SET note = 'second' WHERE id <= 100")
    again.sql("UPDATE pgtrickle.pgt_replicas SET updated_at = updated_at - interval '1 hour'")
    with psycopg.connect(again.database.dsn, autocommit=True) as conn:
        horizon = SnapshotHorizon(conn)
        assert horizon.has_come(conn)
        assert compact(conn, table.id.relid, horizon.horizon, 1000) == 200
    version = again.ensure()
    assert version.generation != table.generation
    again.check(version)
    again.conn.close()
