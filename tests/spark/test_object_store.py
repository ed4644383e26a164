"""Replicas in an S3 server: as exact as in a directory, also when the store is slow, fails or is modified."""

from __future__ import annotations

import itertools
import json
import logging
import os
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import pytest
from typer.testing import CliRunner

from pgtrickle.cli.app import app
from pgtrickle.db.connect import Connection, begin, connect
from pgtrickle.errors import PgtrickleError, ReplicaUnavailableError
from pgtrickle.pipeline.engine import object_frames
from pgtrickle.pipeline.engine.spark import SparkEngine
from pgtrickle.replica import ReplicaVersion, layers, log, netting, objects, rows, window
from pgtrickle.replica.roots import storage_of
from pgtrickle.servers.spark_server import SparkServer
from pgtrickle.settings import Settings
from tests.conftest import Database
from tests.line import Line
from tests.objectstore import KEY, S3, SECRET, s3_server
from tests.spark.replicated import Replicated
from tests.spark.test_engine import CHANGES, QUERIES, TABLES, engines

_numbers = itertools.count()


@pytest.fixture(scope="module")
def s3(engine: SparkEngine) -> Iterator[S3]:
    """After Spark was started: executors do not have the credentials in their environment."""
    with s3_server() as server:
        yield server


@pytest.fixture
def bucket(s3: S3, monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    for name in [name for name in os.environ if name.startswith("AWS_")]:
        monkeypatch.delenv(name)
    for name, value in s3.environment.items():
        monkeypatch.setenv(name, value)
    found = f"bucket-{next(_numbers)}"
    s3.create_bucket(found)
    s3.requests()
    yield found
    s3.behave()


@pytest.fixture
def replicated(installed: Database, engine: SparkEngine, bucket: str) -> Iterator[Replicated]:
    found = Replicated(installed, engine, f"s3a://{bucket}/pgtrickle/replicas")
    yield found
    found.conn.close()


@pytest.fixture
def table(replicated: Replicated) -> ReplicaVersion:
    replicated.sql("CREATE TABLE t (id int PRIMARY KEY, kind int, note text)")
    replicated.sql("INSERT INTO t SELECT i, i % 7, 'n' || i FROM generate_series(1, 2000) AS i")
    return replicated.ensure()


def test_every_cut_and_every_version_has_the_rows_of_the_table(
    replicated: Replicated, table: ReplicaVersion, s3: S3, bucket: str
) -> None:
    assert table.rows == 2000
    assert table.directory.startswith(f"s3a://{bucket}/pgtrickle/replicas/")
    replicated.check(table)
    replicated.sql("UPDATE t SET note = 'x' WHERE id % 100 = 0; DELETE FROM t WHERE id % 90 = 1")
    replicated.sql("INSERT INTO t VALUES (9000, NULL, NULL), (-5, 0, '')")
    replicated.check(table)
    later = replicated.advance()
    assert (later.version, later.generation) == (1, table.generation)
    replicated.check(later)
    assert replicated.ensure().token == later.token
    assert {f.name for f in later.files} <= {key.rpartition("/")[2] for key in s3.keys(bucket)}
    commits = [each for each in s3.requests() if each.method == "PUT" and "_delta_log" in each.path]
    assert [each.if_none_match for each in commits] == ["*", "*"]  # a commit never replaces another
    assert replicated.store.drop(replicated.conn, table.id.relid)
    assert s3.keys(bucket) == []


def _key(version: ReplicaVersion, name: str) -> str:
    return f"{version.directory.partition('://')[2].partition('/')[2]}/{name}"


def _log_key(version: ReplicaVersion) -> str:
    return _key(version, f"_delta_log/{version.version:020d}.json")


DAMAGE: dict[str, Callable[[S3, str, ReplicaVersion], object]] = {
    "deleted file": lambda s3, b, v: s3.delete(b, _key(v, v.files[0].name)),
    "replaced file": lambda s3, b, v: s3.put(b, _key(v, v.files[0].name), b"x" * v.files[0].bytes),
    "truncated file": lambda s3, b, v: s3.put(b, _key(v, v.files[0].name), b"x"),
    "deleted commit": lambda s3, b, v: s3.delete(b, _log_key(v)),
    "truncated commit": lambda s3, b, v: s3.put(b, _log_key(v), s3.get(b, _log_key(v))[:200]),
    "other commit": lambda s3, b, v: s3.put(
        b, _log_key(v), s3.get(b, _log_key(v)).replace(v.token.encode(), b"0" * 32)
    ),
    "deleted objects": lambda s3, b, _: s3.empty(b),
}


@pytest.mark.parametrize("damage", DAMAGE)
def test_damage_is_found_before_use(
    replicated: Replicated, table: ReplicaVersion, s3: S3, bucket: str, damage: str
) -> None:
    replicated.sql("UPDATE t SET note = 'x' WHERE id < 10")
    version = replicated.advance()
    assert replicated.ensure().token == version.token  # its files were read and compared
    DAMAGE[damage](s3, bucket, version)
    with pytest.raises(ReplicaUnavailableError, match="cannot be used"):
        replicated.store.open(replicated.conn, replicated.need())
    built = replicated.ensure()
    assert built.generation != version.generation
    replicated.check(built, verify=False)


def test_store_that_fails_delays_and_loses_nothing(
    replicated: Replicated, table: ReplicaVersion, s3: S3, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A failing store is not a damaged replica: nothing is built again, and the same replica goes on."""
    replicated.sql("UPDATE t SET note = 'x' WHERE id < 10")
    s3.behave(is_down=True)
    s3.requests()
    with pytest.raises(ReplicaUnavailableError, match="object store"):
        replicated.store.open(replicated.conn, replicated.need())
    with pytest.raises(ReplicaUnavailableError, match="object store"):
        replicated.ensure()
    with pytest.raises(ReplicaUnavailableError):
        replicated.advance()
    assert [each.status for each in s3.requests() if each.status] == []
    s3.behave()
    assert replicated.ensure().token == table.token
    # It fails in the middle: when executors read, and when the driver commits.
    scan = objects.ObjectStorage.scan

    def failing(*args: Any, **options: Any) -> Any:
        found = scan(*args, **options)
        s3.behave(is_down=True)
        return found

    with monkeypatch.context() as patched:
        patched.setattr(objects.ObjectStorage, "scan", failing)
        with pytest.raises(ReplicaUnavailableError, match=r"object store|cannot be read"):
            replicated.rows(table)
    s3.behave()
    commit = log.commit

    def uncommitted(*args: Any) -> None:
        s3.behave(is_down=True)
        commit(*args)

    with monkeypatch.context() as patched:
        patched.setattr(log, "commit", uncommitted)
        with pytest.raises(ReplicaUnavailableError, match="cannot be committed"):
            replicated.advance()
    s3.behave()
    later = replicated.advance()
    assert (later.version, later.generation) == (1, table.generation)
    replicated.check(later)


def test_commit_whose_answer_was_lost_counts(
    replicated: Replicated, table: ReplicaVersion, monkeypatch: pytest.MonkeyPatch
) -> None:
    replicated.sql("UPDATE t SET note = 'x' WHERE id < 10")
    commit = log.commit

    def unanswered(*args: Any) -> None:
        commit(*args)
        raise ReplicaUnavailableError("the answer was lost")

    with monkeypatch.context() as patched:
        patched.setattr(log, "commit", unanswered)
        with pytest.raises(ReplicaUnavailableError, match="was lost"):
            replicated.advance()
    version = replicated.ensure()
    assert (version.version, version.generation) == (1, table.generation)
    replicated.check(version)


def test_one_of_two_commits_counts(
    replicated: Replicated, table: ReplicaVersion, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Even without the lock of the database."""
    replicated.sql("INSERT INTO t VALUES (5000, 1, 'x')")
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
    assert [r.version for r in results if isinstance(r, ReplicaVersion)] == [1]
    assert [type(r) for r in results if isinstance(r, PgtrickleError)] == [ReplicaUnavailableError]
    replicated.check(replicated.ensure())
    for other in others:
        other.conn.close()


def test_stream_tables_on_spark_equal_their_queries_in_a_slow_store(
    installed: Database, make_line: Callable[..., Line], s3: S3, bucket: str
) -> None:
    line = make_line(installed, Settings(replica_root=f"s3a://{bucket}"))
    line.sql(TABLES)
    s3.behave(delay_s=0.1)
    for name, query in QUERIES.items():
        line.sql("SELECT pgtrickle.create_stream_table(%s, %s, 'calculated', engine => 'spark')", name, query)
    line.tick()
    for name in QUERIES:
        line.equal(name)
    for change in CHANGES:
        line.sql(change)
        line.tick()
        for name in QUERIES:
            line.equal(name)
    for name in QUERIES:
        assert set(engines(line, name)) == {("FULL", "spark"), ("DIFFERENTIAL", "spark")}


def test_stream_table_is_refreshed_when_the_store_is_back(
    installed: Database, make_line: Callable[..., Line], s3: S3, bucket: str
) -> None:
    line = make_line(installed, Settings(replica_root=f"s3a://{bucket}"))
    line.sql(TABLES)
    line.sql("SELECT pgtrickle.create_stream_table('g', %s, 'calculated', engine => 'spark')", QUERIES["groups"])
    line.tick()
    line.equal("g")
    before = line.rows("g")
    ((generation,),) = line.sql("SELECT generation FROM pgtrickle.pgt_replicas ORDER BY source_relid LIMIT 1")
    s3.behave(is_down=True)
    line.sql(CHANGES[1])
    line.tick()
    assert line.rows("g") == before
    s3.behave()
    line.tick()
    line.equal("g")
    assert set(engines(line, "g")) <= {("FULL", "spark"), ("DIFFERENTIAL", "spark")}
    assert line.sql("SELECT status, last_error_message FROM pgtrickle.pgt_status()")[0][0] == "ACTIVE"
    assert line.sql("SELECT generation FROM pgtrickle.pgt_replicas ORDER BY source_relid LIMIT 1") == [(generation,)]


def test_large_windows_layers_and_rows_without_a_key(
    replicated: Replicated, s3: S3, bucket: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Windows as files in the store; layers, which are kept for an hour when a version drops them."""
    monkeypatch.setattr(layers, "LEAST_ROWS", 10)
    replicated.sql("CREATE TABLE t (a int, f float8, note text)")
    replicated.sql(
        "INSERT INTO t SELECT i % 50, CASE i % 3 WHEN 0 THEN '-0' ELSE i % 2 END, NULLIF(i % 4, 0) "
        "FROM generate_series(1, 1000) AS i"
    )
    version = replicated.ensure()
    replicated.sql("UPDATE t SET note = 'x' WHERE ctid IN (SELECT ctid FROM t WHERE a = 7 LIMIT 5)")
    layered = replicated.advance()
    assert len(layered.layers) == 1
    replicated.check(layered)
    for module, name in ((window, "IN_MEMORY_BYTES"), (netting, "SENT_BYTES")):
        monkeypatch.setattr(module, name, 100)
    replicated.sql("DELETE FROM t WHERE ctid IN (SELECT ctid FROM t WHERE a < 9 LIMIT 60); INSERT INTO t VALUES (7)")
    replicated.check(layered)
    folded = replicated.advance()
    assert (folded.layers, folded.generation) == ((), version.generation)
    replicated.check(folded)
    (kept,) = [key for key in s3.keys(bucket) if "/layer-" in key and not key.endswith(objects.RETIRED)]
    assert kept.endswith(layered.layers[0].name)
    storage_of(replicated.root).sweep(folded, [], -1)  # as if an hour had passed
    assert [key for key in s3.keys(bucket) if "_changes" in key or "_staging_" in key] == []
    replicated.check(folded, verify=False)


def test_only_needed_columns_are_read(
    replicated: Replicated, engine: SparkEngine, s3: S3, caplog: pytest.LogCaptureFixture
) -> None:
    """Without a Hadoop file system executors read by Arrow; what they read is said once."""
    replicated.sql("CREATE TABLE t (id int PRIMARY KEY, small int, large text)")
    large = "(SELECT string_agg(md5(i::text || j), '') FROM generate_series(1, 20) AS j)"
    replicated.sql(f"INSERT INTO t SELECT i, i % 9, {large} FROM generate_series(1, 3000) AS i")
    version = replicated.ensure()
    replicated.sql("UPDATE t SET large = 'x' WHERE id = 5; UPDATE t SET small = 100 WHERE id = 6")

    def read(used: list[str] | None) -> tuple[int, int]:
        s3.requests()
        begin(replicated.conn, "ISOLATION LEVEL REPEATABLE READ READ ONLY")
        try:
            with (
                engine.bulk_session() as spark,
                replicated.store.at_cut(spark, replicated.conn, version, used) as frame,
            ):
                total = sum(row[0] for row in frame.select("c2").collect())
        finally:
            replicated.conn.rollback()
        ranges = [each.range.removeprefix("bytes=").split("-") for each in s3.requests() if each.range]
        return total, sum(int(last) - int(first) + 1 for first, last in ranges)

    caplog.set_level(logging.INFO)
    storage_of.cache_clear()
    total, size = read(["c2"])
    assert read(None)[0] == total == replicated.sql("SELECT sum(small) FROM t")[0][0]
    assert size < read(None)[1] / 3
    assert [vars(r)["pgt_fields"]["detail"] for r in caplog.records if r.message == "How replicas are read"] == [
        "Arrow in executors"
    ]


def test_spark_reads_by_its_own_scan_where_it_can(
    replicated: Replicated, table: ReplicaVersion, engine: SparkEngine, tmp_path: Any, s3: S3, bucket: str
) -> None:
    """With a Hadoop file system for the scheme: here one that maps the bucket to a directory."""
    for key in s3.keys(bucket):
        (tmp_path / key).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / key).write_bytes(s3.get(bucket, key))
    mapped = {
        "fs.s3a.impl": "org.apache.hadoop.fs.viewfs.ViewFileSystemOverloadScheme",
        "fs.s3a.impl.disable.cache": "true",
        "fs.viewfs.overload.scheme.target.s3a.impl": "org.apache.hadoop.fs.LocalFileSystem",
        f"fs.viewfs.mounttable.{bucket}.link./pgtrickle": f"file://{tmp_path}/pgtrickle",
    }
    path = table.base_paths[0]
    with engine.bulk_session() as spark:
        assert not object_frames.reads_itself(spark, path)
        for name, value in mapped.items():
            spark.conf.set(name, value)
        try:
            storage_of.cache_clear()
            s3.requests()
            frame = storage_of(replicated.root).scan(spark, table.base_paths, [("id", "int"), ("note", "string")])
            plan = frame.select("note")._explain_string(extended=True)
            assert "FileScan parquet" in plan
            assert "ReadSchema: struct<note:string>" in plan
            assert frame.count() == 2000
            assert s3.requests() == []
        finally:
            for name in mapped:
                spark.conf.unset(name)
            storage_of.cache_clear()


def test_credentials_are_stored_and_logged_nowhere(
    replicated: Replicated,
    table: ReplicaVersion,
    s3: S3,
    bucket: str,
    spark_server: SparkServer,
    caplog: pytest.LogCaptureFixture,
) -> None:
    caplog.set_level(logging.DEBUG)
    replicated.sql("UPDATE t SET note = 'x' WHERE id < 10")
    replicated.check(replicated.advance())
    s3.behave(is_down=True)
    with pytest.raises(ReplicaUnavailableError) as failed:
        replicated.ensure()
    s3.behave()
    found = [failed.value.one_line(), caplog.text, spark_server.log.read_text()]
    tables = replicated.sql(
        "SELECT format('%I.%I', schemaname, tablename) FROM pg_tables WHERE schemaname = 'pgtrickle'"
    )
    found += [str(replicated.sql(f"SELECT * FROM {name}")) for (name,) in tables]
    found += [s3.get(bucket, key).decode("latin-1") for key in s3.keys(bucket)]
    assert len(found) > 10
    assert [text[:200] for text in found if SECRET in text or KEY in text] == []


def test_commands_and_uninstall(installed: Database, spark_url: str, s3: S3, bucket: str) -> None:
    def run(*arguments: str, code: int = 0) -> str:
        settings = ["--set", f"spark_remote={spark_url}", "--set", f"replica_root=s3a://{bucket}/r"]
        done = CliRunner().invoke(app, [*settings, *arguments])
        assert done.exit_code == code, done.output
        return done.output

    installed.sql("CREATE TABLE sale (id int PRIMARY KEY, note text); INSERT INTO sale VALUES (1, 'a'), (2, NULL)")
    run("replica", "create", "sale", "--server", installed.dsn)
    (listed,) = json.loads(run("replica", "list", "--json", "--server", installed.dsn))
    assert (listed["state"], listed["row_count"]) == ("ready", 2)
    assert listed["location"].startswith(f"s3a://{bucket}/r/")
    assert run("replica", "verify", "sale", "--server", installed.dsn) == "public.sale: equal\n"
    assert f"ok   replica_root: s3a://{bucket}/r can be used" in run("doctor")
    assert [key for key in s3.keys(bucket) if "_pgtrickle_" in key] == []
    run("uninstall", "--yes", installed.dsn)
    assert s3.keys(bucket) == []


def test_doctor_reports_a_store_that_cannot_be_used(s3: S3, bucket: str, spark_url: str) -> None:
    for root, expected in (
        (f"s3a://{bucket}-missing/r", "must be allowed to list, read, write and delete"),
        ("s3a://key:geheim@bucket/r", "credentials belong in the environment"),
    ):
        done = CliRunner().invoke(
            app, ["--set", f"spark_remote={spark_url}", "--set", f"replica_root={root}", "doctor"]
        )
        assert done.exit_code == 1
        (line,) = [line for line in done.output.splitlines() if "replica_root" in line]
        assert line.startswith("BAD")
        assert expected in line
