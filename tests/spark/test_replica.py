"""Replicas have the rows of their table at every cut, whatever happened in between."""

from __future__ import annotations

import stat
from collections.abc import Iterator
from pathlib import Path
from random import Random
from typing import Any

import psycopg
import pytest

from pgtrickle.capture.trim import trim
from pgtrickle.db.connect import begin
from pgtrickle.errors import ReplicaUnavailableError
from pgtrickle.pipeline.engine.spark import SparkEngine
from pgtrickle.replica import Computed, ReplicaVersion, netting, window
from pgtrickle.replica import advance as advancing
from pgtrickle.replica import build as building
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
    replicated.sql("INSERT INTO t SELECT i, i % 7, 'n' || i FROM generate_series(1, 2000) AS i")
    return replicated.ensure()


def test_every_cut_and_every_version_has_the_rows_of_the_table(replicated: Replicated, table: ReplicaVersion) -> None:
    assert table.rows == 2000
    replicated.check(table)
    replicated.sql("UPDATE t SET note = 'x' WHERE id % 100 = 0; DELETE FROM t WHERE id % 90 = 1")
    replicated.sql("INSERT INTO t VALUES (9000, NULL, NULL), (-5, 0, '')")
    replicated.check(table)
    assert replicated.ensure() == table
    later = replicated.advance()
    assert (later.version, later.generation) == (1, table.generation)
    replicated.check(later)
    assert replicated.ensure() == later
    replicated.sql("UPDATE t SET note = 'y' WHERE id < 50; UPDATE t SET note = 'n' || id WHERE id < 50")
    replicated.sql(
        "DELETE FROM t WHERE id = 60; INSERT INTO t VALUES (60, 4, 'n60'); UPDATE t SET id = -id WHERE id = 70"
    )
    replicated.check(later)
    replicated.check(replicated.advance())


TYPES = r"""
CREATE TYPE mood AS ENUM ('sad', 'ok');
CREATE DOMAIN small AS numeric(4, 1);
CREATE TABLE t (
    id bigint PRIMARY KEY, b bool, s int2, i int4, f4 float4, f8 float8, n numeric, n102 numeric(10, 2),
 n386 numeric(38, 6), n45 numeric(45, 5),
    txt text, vc varchar(20), ch char(5), d date, ts timestamp, tz timestamptz, tm time, iv interval, by bytea,
 js json, jb jsonb, u uuid,
    arr int[], m mood, dom small, net inet, r int4range, tr tstzrange, pt point
);
"""
VALUES = r"""
(1, true, 1, 1, 1.5, 1.5, 1.50, 1.5, 12345678901234567890123456789012.123456,
 1234567890123456789012345678901234567890.5, 'a', 'b', 'c', '2024-02-29',
 '2024-02-29 12:34:56.789012', '2024-02-29 12:34:56.789012+05', '12:00:00.5', '1 mon 2 days', '\x00ff',
 '{"b": 1, "a":  2}', '{"b": 1, "a": 2}',
 '11111111-2222-3333-4444-555555555555', '{1,NULL,3}', 'sad', 1.5, '10.0.0.1', '[1,5)',
 '[2024-01-01 00:00+00,2024-01-02 00:00+03)', '(1,2)'),
(2, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL,
 NULL, NULL, NULL, NULL, NULL, NULL, NULL,
 NULL, NULL, NULL),
(3, false, -32768, -2147483648, 'NaN', 'NaN', 'NaN', 0, -0.000001, 0, '', '', '', 'infinity', 'infinity',
 '-infinity', '24:00', '-1 year', '', 'null',
 'null', NULL, '{}', 'ok', -999.9, '::1/64', 'empty', '(,)', '(-0,0)'),
(4, true, 32767, 2147483647, '-Infinity', 'Infinity', '1e400', 99999999.99, 0, 1, E'two\nlines, "quoted" \\N',
 E'tab\t', 'x  ', '-infinity', '0001-01-01 BC',
 '294276-12-31 23:59:59.999999+00', '00:00', '178000000 years', '\xdeadbeef', '[]', '[1.10, 1.1]', NULL, NULL,
 NULL, NULL, NULL, NULL, NULL, NULL),
(5, true, 0, 0, '-0', '-0', '1.10', '-0.01', 0, 0, 'NULL', 'ünï ☃', ' y', '5874897-12-31', '4713-01-01 BC',
 '9999-12-31 23:59:59+00', '01:02:03', '0',
 '\x', '1', '1', NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL),
(6, true, 0, 0, '0', '5e-324', '1.1', 0, 0, 0, '\x', '', '', '4713-01-01 BC', '1501-02-28 BC', '1500-03-01+00',
 '01:02:03', '0', '\x', '1', '1', NULL, NULL,
 NULL, NULL, NULL, NULL, NULL, NULL)
"""


def test_values_of_all_types_are_exact(replicated: Replicated) -> None:
    """-0 and 0, 1.1 and 1.10, NaN, infinities, years beyond 9999 and before Christ, numbers of 45 digits."""
    replicated.sql(TYPES)
    replicated.sql(f"INSERT INTO t VALUES {VALUES}")
    version = replicated.ensure()
    kinds = {c.physical: c.ddl for c in version.columns}
    assert (kinds["n102"], kinds["n386"], kinds["n45"], kinds["n"]) == (
        "decimal(10,2)",
        "decimal(38,6)",
        "string",
        "string",
    )
    assert (kinds["d"], kinds["tz"], kinds["f8"], kinds["jb"]) == ("int", "bigint", "double", "string")
    replicated.check(version)
    replicated.sql("UPDATE t SET id = id + 10 WHERE id > 2")
    # Values that Spark compares as equal.
    replicated.sql("UPDATE t SET f4 = -f4, f8 = -f8 WHERE id IN (15, 16); UPDATE t SET n = 1.10 WHERE id = 16")
    replicated.check(version)
    replicated.check(replicated.advance())


def test_negative_zero_is_another_row_than_zero(replicated: Replicated) -> None:
    replicated.sql("CREATE TABLE t (f float8, n numeric)")
    replicated.sql(
        "INSERT INTO t VALUES ('0', 1.0), ('0', 1.0), ('-0', 1.00), ('NaN', 'NaN'), ('NaN', 'NaN'), (NULL, NULL)"
    )
    version = replicated.ensure()
    replicated.check(version)
    replicated.sql("DELETE FROM t WHERE f::text = '-0'; INSERT INTO t VALUES ('-0', 1.0), ('-0', 1.0)")
    replicated.sql("DELETE FROM t WHERE ctid = (SELECT min(ctid) FROM t WHERE f = 'NaN')")
    replicated.check(version)
    replicated.check(replicated.advance())


def test_value_without_a_columnar_form_makes_its_column_text(replicated: Replicated) -> None:
    replicated.sql("CREATE TABLE t (id int PRIMARY KEY, amount numeric(10, 2), other numeric(10, 2))")
    replicated.sql("INSERT INTO t VALUES (1, 1.5, 2)")
    version = replicated.ensure()
    assert [c.ddl for c in version.columns] == ["int", "decimal(10,2)", "decimal(10,2)"]
    replicated.sql("INSERT INTO t VALUES (2, 'NaN', 3)")
    with pytest.raises(ReplicaUnavailableError, match="must store column c2 as text"):
        replicated.rows(version)
    later = replicated.advance()
    assert [c.ddl for c in later.columns] == ["int", "string", "decimal(10,2)"]
    replicated.check(later)
    replicated.sql("INSERT INTO t VALUES (3, 4, 'NaN')")
    latest = replicated.advance()
    assert [c.ddl for c in latest.columns] == ["int", "string", "string"]
    replicated.check(latest)


@pytest.mark.parametrize("keys", ["", ", UNIQUE (id)"])
def test_rows_without_a_key_are_counted(replicated: Replicated, keys: str) -> None:
    """A unique index over columns that may be NULL is no key."""
    replicated.sql(f"CREATE TABLE t (id int, note text{keys})")
    if not keys:
        replicated.sql("INSERT INTO t SELECT i % 5, 'n' FROM generate_series(1, 100) AS i")
    replicated.sql(
        "INSERT INTO t SELECT NULL, nullif(i % 3, 0)::text FROM generate_series(1, 30) AS i; "
        "INSERT INTO t VALUES (77, NULL)"
    )
    version = replicated.ensure()
    assert version.key == ()
    replicated.check(version)
    replicated.sql(
        "DELETE FROM t WHERE ctid IN (SELECT ctid FROM t WHERE id IS NULL AND note IS NULL LIMIT 4); "
        "INSERT INTO t SELECT NULL, '1' FROM generate_series(1, 3); DELETE FROM t WHERE note = '2'; "
        "UPDATE t SET note = NULL WHERE id = 77"
    )
    if not keys:
        replicated.sql(
            "DELETE FROM t WHERE ctid IN (SELECT ctid FROM t WHERE id = 2 LIMIT 7); INSERT INTO t VALUES (2, 'n')"
        )
    replicated.check(version)
    later = replicated.advance()
    replicated.check(later)
    replicated.sql("DELETE FROM t")
    replicated.check(later)
    empty = replicated.advance()
    assert (empty.rows, empty.files) == (0, ())
    replicated.check(empty)


def test_odd_identifiers(replicated: Replicated) -> None:
    replicated.sql(
        'CREATE SCHEMA "Sch ema"; '
        'CREATE TABLE "Sch ema"."T ""x"" {*}" ("A" int, a int, "sp ace" text, c2 int, "C3" int, "select" int, '
        '"ünï" text, "a.b" int, "q`t" int, "%s" int, PRIMARY KEY ("A", "sp ace"))'
    )
    name = '"Sch ema"."T ""x"" {*}"'
    replicated.sql(f"INSERT INTO {name} SELECT i, i, 'x' || i, i, i, i, 'ü', i, i, i FROM generate_series(1, 50) AS i")
    version = replicated.ensure(name)
    shown = [c.physical for c in version.columns]
    assert len({n.lower() for n in shown}) == len(shown)
    assert [shown[i] for i in (3, 4, 5)] == ["c2", "C3", "select"]
    replicated.check(version, name)
    replicated.sql(
        f'UPDATE {name} SET "sp ace" = \'moved\', "C3" = NULL WHERE "A" < 9; DELETE FROM {name} WHERE a = 20'
    )
    replicated.check(version, name)
    replicated.check(replicated.advance(name), name)


def test_truncate_builds_it_again(replicated: Replicated, table: ReplicaVersion) -> None:
    replicated.sql("TRUNCATE t; INSERT INTO t VALUES (1, 1, 'new')")
    with pytest.raises(ReplicaUnavailableError, match="truncated"):
        replicated.rows(table)
    later = replicated.ensure()
    assert later.generation != table.generation
    replicated.check(later)
    replicated.sql("TRUNCATE t; INSERT INTO t VALUES (2, 2, 'newer')")
    latest = replicated.advance()
    assert latest.generation != later.generation
    replicated.check(latest)


def test_transaction_that_wrote_early_and_commits_late(replicated: Replicated, table: ReplicaVersion) -> None:
    early = replicated.database.connect(autocommit=False)
    early.execute("UPDATE t SET note = 'early' WHERE id BETWEEN 10 AND 20")
    replicated.sql("UPDATE t SET note = 'meanwhile' WHERE id BETWEEN 30 AND 40")
    replicated.check(table)
    between = replicated.advance()
    replicated.check(between)
    replicated.sql("INSERT INTO t VALUES (5000, 1, 'later')")
    replicated.check(between)
    early.commit()
    replicated.check(between)
    replicated.check(replicated.advance())


def test_snapshot_of_a_transaction_decides(replicated: Replicated, table: ReplicaVersion) -> None:
    """What is committed after the snapshot is not in the DataFrame, even when the replica has advanced meanwhile."""
    before = replicated.sql("SELECT count(*) FROM t")
    begin(replicated.conn, "ISOLATION LEVEL REPEATABLE READ READ ONLY")
    replicated.conn.execute("SELECT 1")
    replicated.sql("DELETE FROM t WHERE id <= 1000")
    other = Replicated(replicated.database, replicated.engine, replicated.root)
    try:
        assert other.advance().version == 1
    finally:
        other.conn.close()
    version = replicated.store.open(replicated.conn, replicated.need())
    assert version.version == 0
    with replicated.engine.bulk_session() as spark, replicated.store.at_cut(spark, replicated.conn, version) as frame:
        assert frame.count() == before[0][0]
    replicated.conn.rollback()
    replicated.check(replicated.ensure())


def test_buffer_is_kept_for_the_replica(replicated: Replicated, table: ReplicaVersion) -> None:
    relid = table.id.relid
    replicated.sql("UPDATE t SET note = 'x' WHERE id <= 100")
    with psycopg.connect(replicated.database.dsn, autocommit=True) as conn:
        assert trim(conn, relid) == 0
        replicated.check(table)
        replicated.advance()
        assert trim(conn, relid) == 200
        assert replicated.store.drop(replicated.conn, relid)
        assert not replicated.store.drop(replicated.conn, relid)
        replicated.sql("UPDATE t SET note = 'y' WHERE id <= 100")
        assert trim(conn, relid) == 200
    assert list(Path(replicated.root).rglob("*.parquet")) == []


def test_readers_with_different_columns_share_it(replicated: Replicated) -> None:
    replicated.sql("CREATE TABLE t (id int PRIMARY KEY, a text, b text, c text)")
    replicated.sql("INSERT INTO t SELECT i, 'a' || i, 'b' || i, 'c' || i FROM generate_series(1, 100) AS i")
    first = replicated.ensure(attnums=frozenset({2}))
    assert [c.physical for c in first.columns] == ["id", "a"]
    replicated.check(first)
    second = replicated.ensure(attnums=frozenset({4}))
    assert [c.physical for c in second.columns] == ["id", "a", "c"]
    assert replicated.ensure(attnums=frozenset({2})) == second
    replicated.sql("UPDATE t SET b = 'only b'; UPDATE t SET c = 'z' WHERE id = 3")
    replicated.check(second)
    replicated.check(replicated.advance())


def test_computed_columns(replicated: Replicated) -> None:
    """Evaluated by PostgreSQL, over the row and over its image in the change buffer."""
    replicated.sql('CREATE TABLE t (id int PRIMARY KEY, "No te" varchar(10), code char(4))')
    replicated.sql("INSERT INTO t SELECT i, 'n' || i, 'c' FROM generate_series(1, 100) AS i")
    computed = (
        Computed("upper_note", 'upper("No te") || length(t.code)', (2, 3)),
        Computed("half", "t.id / 2.0", (1,)),
    )
    version = replicated.ensure(attnums=frozenset({1}), computed=computed)

    def check(version: ReplicaVersion) -> None:
        names = [c.name for c in version.columns]
        at = [names.index(n) for n in ("c1", "upper_note", "half")]
        found = sorted(tuple(row[i] for i in at) for row in replicated.rows(version))
        expected = replicated.sql('SELECT id, upper("No te") || length(code), (id / 2.0)::text FROM t ORDER BY id')
        assert found == expected

    check(version)
    replicated.sql("UPDATE t SET \"No te\" = 'changed' WHERE id % 3 = 0; INSERT INTO t VALUES (1000, 'x', 'yyyy')")
    check(version)
    later = replicated.advance()
    assert later.generation == version.generation
    check(later)


@pytest.mark.parametrize(
    "change",
    [
        "ALTER TABLE t RENAME COLUMN note TO remark",
        "ALTER TABLE t RENAME TO u; ALTER TABLE u RENAME COLUMN note TO t; ALTER TABLE u RENAME TO t",
        "ALTER TABLE t ADD COLUMN extra int DEFAULT 5",
        "ALTER TABLE t DROP COLUMN kind",
        "ALTER TABLE t ALTER COLUMN kind TYPE bigint",
        "ALTER TABLE t DROP CONSTRAINT t_pkey; INSERT INTO t SELECT * FROM t WHERE id < 50",
    ],
)
def test_altered_tables(replicated: Replicated, table: ReplicaVersion, change: str) -> None:
    replicated.sql("UPDATE t SET note = 'before' WHERE id < 10")
    replicated.sql(change)
    replicated.sql("DELETE FROM t WHERE id = 5; UPDATE t SET id = -id WHERE id = 6")
    version = replicated.ensure()
    replicated.check(version)
    replicated.sql("DELETE FROM t WHERE id = 9; UPDATE t SET id = -id WHERE id = 10")
    replicated.check(version)
    replicated.check(replicated.advance())


def test_partitions(replicated: Replicated) -> None:
    replicated.sql(
        "CREATE TABLE t (id int, region int, note text, PRIMARY KEY (id, region)) PARTITION BY LIST (region)"
    )
    replicated.sql("CREATE TABLE t1 PARTITION OF t FOR VALUES IN (1); CREATE TABLE rest PARTITION OF t DEFAULT")
    replicated.sql("INSERT INTO t SELECT i, i % 4, 'n' || i FROM generate_series(1, 400) AS i")
    version = replicated.ensure()
    replicated.check(version)
    replicated.sql(
        "UPDATE t SET region = 1 WHERE region = 2; DELETE FROM t1 WHERE id < 50; INSERT INTO rest VALUES (900, 9, 'x')"
    )
    replicated.check(version)
    replicated.check(replicated.advance())
    replicated.sql(
        "CREATE TABLE t5 (id int, region int, note text, PRIMARY KEY (id, region)); "
        "INSERT INTO t5 VALUES (5, 5, 'attached')"
    )
    replicated.sql("ALTER TABLE t ATTACH PARTITION t5 FOR VALUES IN (5); INSERT INTO t VALUES (6, 5, 'y')")
    replicated.check(replicated.ensure())
    replicated.sql("ALTER TABLE t DETACH PARTITION t1")
    replicated.check(replicated.ensure())


def test_children_have_no_common_key(replicated: Replicated) -> None:
    replicated.sql("CREATE TABLE t (id int PRIMARY KEY, note text); CREATE TABLE child () INHERITS (t)")
    replicated.sql("INSERT INTO t VALUES (1, 'parent'); INSERT INTO child VALUES (1, 'child'), (1, 'child')")
    version = replicated.ensure()
    replicated.check(version)
    replicated.sql("DELETE FROM child WHERE ctid = (SELECT min(ctid) FROM child)")
    replicated.check(version)
    replicated.check(replicated.advance())


def test_table_without_rows_or_used_columns(replicated: Replicated) -> None:
    replicated.sql("CREATE TABLE t (note text, id int)")
    version = replicated.ensure(attnums=frozenset())
    assert [c.name for c in version.columns] == ["c1"]
    replicated.check(version)
    replicated.sql("INSERT INTO t VALUES (NULL, 1), (NULL, 1), ('', 2)")
    replicated.check(version)
    replicated.check(replicated.advance())


def test_only_files_with_deleted_rows_are_rewritten(replicated: Replicated, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(building, "ROWS_PER_FILE", 100)
    monkeypatch.setattr(advancing, "ROWS_PER_FILE", 100)
    monkeypatch.setattr(advancing, "SMALL_FILE_ROWS", 25)
    replicated.sql("CREATE TABLE t (id int PRIMARY KEY, note text)")
    replicated.sql("INSERT INTO t SELECT i, 'n' || i FROM generate_series(1, 2000) AS i")
    first = replicated.ensure()
    assert len(first.files) >= 20
    replicated.sql("UPDATE t SET note = 'x' WHERE id BETWEEN 950 AND 960; INSERT INTO t VALUES (5000, 'new')")
    second = replicated.advance()
    kept = {f.name for f in first.files} & {f.name for f in second.files}
    assert len(first.files) - len(kept) in (1, 2)
    replicated.check(second)
    # Many small files are merged.
    for i in range(advancing.MOST_SMALL_FILES + 2):
        replicated.sql("INSERT INTO t VALUES (%s, 'small')", 6000 + i)
        latest = replicated.advance()
    assert sum(f.rows < 25 for f in latest.files) < advancing.MOST_SMALL_FILES
    replicated.check(latest)


@pytest.mark.parametrize("limit", [(window, "IN_MEMORY_BYTES"), (netting, "SENT_BYTES")])
def test_large_windows_are_files(
    replicated: Replicated, table: ReplicaVersion, monkeypatch: pytest.MonkeyPatch, limit: tuple[Any, str]
) -> None:
    monkeypatch.setattr(*limit, 0)
    replicated.sql("UPDATE t SET note = 'x' WHERE id % 3 = 0; DELETE FROM t WHERE id % 5 = 0")
    replicated.check(table)
    replicated.check(replicated.advance())
    assert list(Path(replicated.root).rglob("_staging_*")) == []


def test_directories_and_files_are_private(replicated: Replicated, table: ReplicaVersion) -> None:
    replicated.sql("UPDATE t SET note = 'x' WHERE id < 5")
    replicated.advance()
    found = [Path(replicated.root), *Path(replicated.root).rglob("*")]
    assert any(p.suffix == ".parquet" for p in found)
    assert any(p.suffix == ".json" for p in found)
    modes = {(p.is_dir(), stat.S_IMODE(p.stat().st_mode)) for p in found}
    assert modes == {(True, 0o700), (False, 0o600)}


def test_another_engine_reads_the_same_rows(replicated: Replicated, table: ReplicaVersion) -> None:
    import duckdb
    from deltalake import DeltaTable

    replicated.sql("UPDATE t SET note = 'x' WHERE id % 10 = 0; DELETE FROM t WHERE id % 7 = 0")
    version = replicated.advance()
    replica = DeltaTable(version.directory).to_pyarrow_dataset()
    with duckdb.connect() as duck:
        duck.register("replica", replica)
        found = duck.sql("SELECT id, kind, note FROM replica ORDER BY id").fetchall()
        counted = duck.sql("SELECT kind, count(*) FROM replica GROUP BY kind ORDER BY kind").fetchall()
    assert found == replicated.sql("SELECT id, kind, note FROM t ORDER BY id")
    assert counted == replicated.sql("SELECT kind, count(*) FROM t GROUP BY kind ORDER BY kind")


@pytest.mark.parametrize("key", ["", ", PRIMARY KEY (a, b)"])
def test_random_changes(replicated: Replicated, key: str) -> None:
    random = Random(4711)
    replicated.sql(f"CREATE TABLE t (a int, b text, c float8, d numeric(8, 2){key})")
    replicated.sql("INSERT INTO t SELECT i, 'b' || i % 3, i, i / 7.0 FROM generate_series(1, 300) AS i")
    version = replicated.ensure()

    def change() -> Any:
        low = random.randint(1, 400)
        where = f"a BETWEEN {low} AND {low + random.randint(0, 40)}"
        return random.choice(
            [
                f"DELETE FROM t WHERE {where}",
                f"UPDATE t SET c = -c, d = NULL WHERE {where}",
                f"UPDATE t SET a = a + 1000 WHERE {where}",
                f"INSERT INTO t SELECT i, 'new', 0, 0 FROM generate_series({2000 + low}, {2020 + low}) AS i "
                "ON CONFLICT DO NOTHING",
                f"BEGIN; DELETE FROM t WHERE {where}; ROLLBACK",
            ]
        )

    for turn in range(12):
        for _ in range(random.randint(1, 4)):
            replicated.sql(change())
        replicated.check(version, verify=turn % 4 == 0)
        if turn % 3 == 2:
            version = replicated.advance()
            replicated.check(version, verify=False)
