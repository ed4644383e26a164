"""Layers of a replica: changes beside the files. Rows are right at every cut; other engines read the files alone."""

from __future__ import annotations

import os
import stat
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from random import Random
from typing import Any

import pytest

from pgtrickle.errors import ReplicaUnavailableError
from pgtrickle.pipeline.engine.spark import SparkEngine
from pgtrickle.replica import ReplicaVersion, files, layers, log, window
from pgtrickle.replica.roots import storage_of
from tests.conftest import Database
from tests.spark.replicated import Replicated


@pytest.fixture
def replicated(
    installed: Database, engine: SparkEngine, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> Iterator[Replicated]:
    """Tables of a few rows get layers, too."""
    monkeypatch.setattr(layers, "LEAST_ROWS", 0)
    found = Replicated(installed, engine, tmp_path / "replicas")
    yield found
    found.conn.close()


@pytest.fixture
def table(replicated: Replicated) -> ReplicaVersion:
    replicated.sql("CREATE TABLE t (id int PRIMARY KEY, kind int, note text)")
    replicated.sql("INSERT INTO t SELECT i, i % 7, 'n' || i FROM generate_series(1, 1000) AS i")
    return replicated.ensure()


def _read_by_others(version: ReplicaVersion) -> list[tuple[Any, ...]]:
    import duckdb
    from deltalake import DeltaTable

    replica = DeltaTable(version.directory).to_pyarrow_dataset()
    with duckdb.connect() as duck:
        duck.register("replica", replica)
        return duck.sql("SELECT id, kind, note FROM replica ORDER BY id").fetchall()


def test_changes_are_kept_beside_the_files_until_they_are_many(replicated: Replicated, table: ReplicaVersion) -> None:
    at_base = replicated.sql("SELECT id, kind, note FROM t ORDER BY id")
    version = table
    for turn in range(4):
        replicated.sql("UPDATE t SET note = note || %s WHERE id %% 100 = %s", str(turn), turn % 2)
        replicated.sql(f"DELETE FROM t WHERE id = {10 + turn}; INSERT INTO t VALUES ({2000 + turn}, 0, 'new')")
        version = replicated.advance()
        assert (set(version.files), version.base_cut) == (
            set(table.files),
            table.cut,
        )  # the log has an order of its own
        assert len(version.layers) == turn + 1
        assert version.rows == 1000
        assert _read_by_others(version) == at_base  # the table at an earlier cut, and not a mixture
        replicated.sql("UPDATE t SET kind = kind + 1 WHERE id = 2000")  # in no layer yet
        replicated.check(version)
    loaded = log.load(storage_of(replicated.root), version.id, version.directory, version.generation)
    assert set(loaded.files) == set(version.files)
    assert replace(loaded, files=version.files) == version
    replicated.sql("UPDATE t SET note = 'many' WHERE id % 2 = 0")
    folded = replicated.advance()
    assert (folded.layers, folded.base_cut) == ((), folded.cut)
    replicated.check(folded)
    assert _read_by_others(folded) == replicated.sql("SELECT id, kind, note FROM t ORDER BY id")
    # What earlier versions have stays for those who read it, and then goes.
    kept = sorted(Path(table.directory, files.LAYERS).iterdir())
    assert kept == sorted(map(Path, version.layer_paths))
    files.sweep_layers(folded, 1)
    assert sorted(Path(table.directory, files.LAYERS).iterdir()) == kept
    for path in kept:
        os.utime(path, (0, 0))
    files.sweep_layers(folded, 1)
    assert list(Path(table.directory, files.LAYERS).iterdir()) == []


def test_changes_that_cancel_make_no_layer(replicated: Replicated, table: ReplicaVersion) -> None:
    replicated.sql("UPDATE t SET note = 'x' WHERE id < 10")
    replicated.sql("UPDATE t SET note = 'n' || id WHERE id < 10")
    version = replicated.advance()
    assert (version.layers, version.base_cut, version.version) == ((), version.cut, 1)
    replicated.check(version)
    assert set(replicated.advance().files) == set(table.files)  # without any change
    replicated.sql("UPDATE t SET note = 'x' WHERE id < 10")
    replicated.advance()
    replicated.sql("UPDATE t SET note = 'n' || id WHERE id < 10")  # the second layer takes the first one back
    version = replicated.advance()
    assert len(version.layers) == 2
    replicated.check(version)


@pytest.mark.parametrize("key", ["", ", PRIMARY KEY (a, b)"])
def test_random_changes(replicated: Replicated, monkeypatch: pytest.MonkeyPatch, key: str) -> None:
    """Layers, files that are rewritten with them, windows in files, duplicates and -0.0."""
    monkeypatch.setattr(layers, "MOST_SHARE", 1.0)
    monkeypatch.setattr(layers, "MOST_LAYERS", 3)
    random = Random(31)
    replicated.sql(f"CREATE TABLE t (a int, b text, c float8, d numeric(8, 2){key})")
    replicated.sql("INSERT INTO t SELECT i, 'b' || i % 3, i, i / 7.0 FROM generate_series(1, 300) AS i")
    if not key:
        replicated.sql("INSERT INTO t SELECT * FROM t")
    replicated.ensure()
    shapes = set()
    for turn in range(10):
        for _ in range(random.randint(1, 3)):
            low = random.randint(1, 300)
            where = f"a BETWEEN {low} AND {low + random.randint(0, 30)}"
            replicated.sql(
                random.choice(
                    [
                        f"DELETE FROM t WHERE {where}",
                        f"DELETE FROM t WHERE ctid IN (SELECT ctid FROM t WHERE {where} LIMIT 3)",
                        f"UPDATE t SET c = -c, d = NULL WHERE {where}",
                        f"UPDATE t SET c = '-0' WHERE {where}",
                        f"UPDATE t SET c = '0' WHERE {where}",
                        f"INSERT INTO t SELECT i, 'new', 0, 0 FROM generate_series({2000 + low}, {2020 + low}) AS i "
                        "ON CONFLICT DO NOTHING",
                    ]
                )
            )
        if turn == 6:
            with monkeypatch.context() as patched:
                patched.setattr(window, "IN_MEMORY_BYTES", 0)
                replicated.check(replicated.store.open(replicated.conn, replicated.need()), verify=False)
        version = replicated.advance()
        shapes.add(bool(version.layers))
        replicated.check(version, verify=turn in (5, 9))
    assert shapes == {False, True}


DAMAGE: dict[str, Callable[[Path], object]] = {
    "deleted": Path.unlink,
    "truncated": lambda path: os.truncate(path, path.stat().st_size - 10),
    "replaced": lambda path: path.write_bytes(b"x" * path.stat().st_size),
}


@pytest.mark.parametrize("damage", DAMAGE)
def test_damaged_layer_is_found_before_use(replicated: Replicated, table: ReplicaVersion, damage: str) -> None:
    replicated.sql("UPDATE t SET note = 'x' WHERE id < 10")
    version = replicated.advance()
    path = Path(*version.layer_paths)
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert stat.S_IMODE(path.parent.stat().st_mode) == 0o700
    replicated.store.open(replicated.conn, replicated.need())
    DAMAGE[damage](path)
    with pytest.raises(ReplicaUnavailableError, match="cannot be used"):
        replicated.store.open(replicated.conn, replicated.need())
    built = replicated.ensure()
    assert built.generation != version.generation
    replicated.check(built)


def test_layer_of_a_commit_that_fails_is_deleted(
    replicated: Replicated, table: ReplicaVersion, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fails(*_: object) -> None:
        raise ReplicaUnavailableError("another process has committed this version of the replica")

    replicated.sql("UPDATE t SET note = 'x' WHERE id < 10")
    with monkeypatch.context() as patched:
        patched.setattr(log, "commit", fails)
        with pytest.raises(ReplicaUnavailableError):
            replicated.advance()
    assert list(Path(table.directory, files.LAYERS).iterdir()) == []
    replicated.check(replicated.advance())
