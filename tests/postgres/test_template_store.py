"""Stored templates: what one database has compiled is used by another one, and is what that one would have compiled."""

from __future__ import annotations

import hashlib
import os
import pickle
import shutil
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path
from typing import Any
from uuid import uuid4

import pytest

from pgtrickle.apply.groups import Groups
from pgtrickle.db import catalog
from pgtrickle.db.connect import Connection, connect
from pgtrickle.define import prepare
from pgtrickle.define import template_key as template_key_module
from pgtrickle.define.compile import Compiled, compile_table
from pgtrickle.define.template_cache import ProcessTemplates, TemplateCache
from pgtrickle.define.template_key import COMPILER, compiler_version, template_key
from pgtrickle.define.template_store import MAGIC, SUFFIX, TemplateStore
from pgtrickle.model.catalog import StreamTable
from pgtrickle.servers.embedded_postgres import EmbeddedPostgres
from pgtrickle.settings import Settings
from tests.conftest import Database, create_database, drop_database
from tests.spark.test_operators import QUERIES, TABLES

FEW = ("left", "full_grouped", "natural")
MB = 1 << 20


Defined = Callable[..., tuple[Connection, dict[str, StreamTable]]]


@pytest.fixture
def defined() -> Iterator[Defined]:
    with ExitStack() as stack:
        yield lambda *given: _defined(stack, *given)


def _defined(
    stack: ExitStack, database: Database, names: tuple[str, ...], first: str = ""
) -> tuple[Connection, dict[str, StreamTable]]:
    """A database with the stream tables of these queries. `first`: what is created before, so that numbers differ."""
    database.sql(first + TABLES)
    for name in names:
        database.sql("SELECT pgtrickle.create_stream_table(%s, %s, initialize => false)", f"s_{name}", QUERIES[name])
    conn = stack.enter_context(connect(database.dsn, role="test", autocommit=True))
    return conn, {t.name: t for t in catalog.load_stream_tables(conn) if t.name.startswith("s_")}


def values(compiled: Compiled) -> tuple[object, ...]:
    """To be compared: a bound method equals another one only if it is of the same object."""

    def without_method(groups: Groups | None) -> tuple[object, ...]:
        if groups is None:
            return ()
        return replace(groups, output=str), getattr(groups.output, "__self__", None)

    topk = compiled.topk
    rest = replace(compiled, groups=None, topk=None)
    limits = None if topk is None else (without_method(topk.groups), topk.order, topk.needed, topk.stored_rows)
    return rest, without_method(compiled.groups), limits


def cache(store: TemplateStore) -> TemplateCache:
    return TemplateCache(ProcessTemplates(1000, store), "test")


@pytest.fixture
def root(tmp_path: Path) -> Path:
    return tmp_path / "templates"


def test_every_operator_is_compiled_once_for_databases_with_other_numbers(
    make_installed: Callable[[], Database], defined: Defined, root: Path
) -> None:
    names = tuple(QUERIES)
    here, tables = defined(make_installed(), names)
    first = TemplateStore(root, 64 * MB)
    for table in tables.values():
        prepare._compiled(here, table, cache(first))
    there, others = defined(
        make_installed(),
        names,
        "CREATE TABLE other (a int); SELECT pgtrickle.create_stream_table('o', 'SELECT a FROM other');",
    )
    second = TemplateStore(root, 64 * MB)  # of another process
    for name, table in others.items():
        assert table.pgt_id != tables[name].pgt_id
        assert values(prepare._compiled(there, table, cache(second))) == values(compile_table(there, table)), name
    assert first.entries == first.misses == len(tables) == len(names)
    assert (second.hits, second.misses) == (len(names), 0)


class Compilations:
    """Counts what a process compiles."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.count = 0
        monkeypatch.setattr(prepare, "compile_table", self._compile)

    def _compile(self, *args: Any, **named: Any) -> Compiled:
        self.count += 1
        return compile_table(*args, **named)


def fill(database: Database, number: int) -> None:
    """So many stream tables, no two of them with the same definition."""
    database.sql(TABLES)
    database.sql(
        "SELECT pgtrickle.create_stream_table('s_' || i, format(shapes[1 + i %% 4], i), initialize => false) FROM "
        "generate_series(1, %s) AS i, (VALUES (ARRAY['SELECT id, v + %%s AS v FROM a WHERE k IS NOT NULL', "
        "'SELECT k, count(*) AS n, sum(v) + %%s AS v FROM b GROUP BY k', 'SELECT DISTINCT k, v + %%s AS v FROM c', "
        "'SELECT a.id, b.v, %%s AS n FROM a JOIN b ON b.k = a.k'])) AS given (shapes)",
        number,
    )


def load_all(conn: Connection, templates: TemplateCache) -> int:
    """What a process does when it sees these stream tables for the first time. Returns how many there are."""
    tables = [t for t in catalog.load_stream_tables(conn) if t.name.startswith("s_")]
    for table in tables:
        if templates.get(table) is None:
            templates.put(table, prepare._compiled(conn, table, templates))
    return len(tables)


@pytest.mark.parametrize("number", [40, 1000])
def test_a_restarted_process_compiles_none(
    number: int, installed: Database, root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """With the limits that are the default."""
    fill(installed, number)
    done, most_bytes = Compilations(monkeypatch), Settings().template_cache_max_mb * MB
    with connect(installed.dsn, role="test", autocommit=True) as conn:
        for process in range(3):
            store = TemplateStore(root, most_bytes)
            templates = ProcessTemplates(Settings().template_cache_max_entries, store)
            assert load_all(conn, TemplateCache(templates, "one")) == number
            assert (done.count, len(templates), templates.evictions) == (number, number, 0)
            assert (store.entries, store.evictions) == (number, 0)
            assert (store.hits, store.misses) == ((0, number) if process == 0 else (number, 0))
            assert load_all(conn, TemplateCache(templates, "one")) == number  # nor does the store have to be asked
            assert (done.count, store.hits + store.misses) == (number, number)


def test_another_compiler_compiles_again(
    installed: Database, root: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A module of the compiler that differs by one line makes another version, which uses none of the templates."""
    fill(installed, 4)
    package, changed = Path(template_key_module.__file__).parent.parent, tmp_path / "changed"
    done, versions = Compilations(monkeypatch), []
    with connect(installed.dsn, role="test", autocommit=True) as conn:
        for folder in (package, changed, package):
            if folder == changed:
                for name in COMPILER:
                    shutil.copytree(package / name, changed / name)
                with (changed / "pipeline" / "codec.py").open("a") as file:
                    file.write("# another line\n")
            monkeypatch.setattr(template_key_module, "files", lambda _, found=folder: found)
            compiler_version.cache_clear()
            versions.append(compiler_version())
            assert load_all(conn, TemplateCache(ProcessTemplates(100, TemplateStore(root, MB)), "one")) == 4
    compiler_version.cache_clear()
    assert versions[0] == versions[2] != versions[1]
    assert done.count == 8  # by the first and the second


@pytest.mark.timeout(7200)  # creating and dropping 1,000 databases
@pytest.mark.parametrize("number", [8, 1000])
def test_databases_with_the_same_definitions_compile_each_once(
    number: int, make_installed: Callable[[], Database], pg_server: EmbeddedPostgres, root: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:  # fmt: skip
    """Twenty definitions, one process; every other database gives its objects other numbers."""
    one, other = make_installed(), make_installed()
    other.sql("CREATE TABLE early (a int); SELECT pgtrickle.create_stream_table('o', 'SELECT a FROM early')")
    done = Compilations(monkeypatch)
    store = TemplateStore(root, Settings().template_cache_max_mb * MB)
    templates = ProcessTemplates(Settings().template_cache_max_entries, store)
    for database in (one, other):
        fill(database, 20)
    for each in range(number):
        copy = create_database(pg_server, f"copy_{uuid4().hex}", template=(one, other)[each % 2].name)
        try:
            with connect(copy.dsn, role="test", autocommit=True) as conn:
                assert load_all(conn, TemplateCache(templates, copy.name)) == 20
        finally:
            drop_database(pg_server, copy.name)
        assert done.count == 20
    assert (store.entries, store.misses, store.hits) == (20, 20, 20 * (number - 1))
    assert len(templates) == min(20 * number, templates.most)


def test_what_a_template_follows_from_is_in_its_key(installed: Database, defined: Defined) -> None:
    conn, tables = defined(installed, ("left",))
    table = tables["s_left"]

    def digest() -> str:
        found = template_key(conn, catalog.load_stream_tables(conn, [table.pgt_id])[0])
        assert found is not None
        return found.digest

    seen = [digest()]
    for change in (
        "ALTER TABLE b ALTER k SET NOT NULL",
        "CREATE UNIQUE INDEX ON b (k)",
        'ALTER TABLE b ALTER t TYPE text COLLATE "C"',
        "CREATE FUNCTION abs(text) RETURNS SETOF int LANGUAGE sql AS 'SELECT 1'",
        "SELECT pgtrickle.alter_stream_table('s_left', max_differential_joins => 3)",
        "SELECT pgtrickle.alter_stream_table('s_left', refresh_mode => 'FULL')",
    ):
        installed.sql("DELETE FROM b")
        installed.sql(change)
        assert digest() not in seen, change
        seen.append(digest())
    assert digest() == seen[-1]


def test_code_and_types_of_the_database_are_compiled_by_each_process(installed: Database, root: Path) -> None:
    installed.sql("CREATE TYPE mood AS ENUM ('fine'); CREATE TABLE t (a int, m mood)")
    installed.sql("CREATE FUNCTION twice(int) RETURNS int IMMUTABLE LANGUAGE sql AS 'SELECT 2 * $1'")
    for name, query in {"typed": "SELECT m FROM t", "called": "SELECT twice(a) AS a FROM t"}.items():
        installed.sql("SELECT pgtrickle.create_stream_table(%s, %s, initialize => false)", name, query)
    store = TemplateStore(root, MB)
    with connect(installed.dsn, role="test", autocommit=True) as conn:
        for table in catalog.load_stream_tables(conn):
            assert template_key(conn, table) is None
            assert values(prepare._compiled(conn, table, cache(store))) == values(compile_table(conn, table))
    assert (store.entries, store.misses) == (0, 0)


class Bomb:
    """As a role of the database would write it, if it could."""

    def __reduce__(self) -> Any:
        return os.mkdir, (os.environ["BOMB"],)


def test_damaged_and_foreign_files_are_not_used(
    installed: Database, defined: Defined, root: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    conn, tables = defined(installed, ("left",))
    table = tables["s_left"]
    key = template_key(conn, table)
    assert key is not None
    path = root / compiler_version() / (key.digest + SUFFIX)
    monkeypatch.setenv("BOMB", str(tmp_path / "bomb"))
    exploding = pickle.dumps(Bomb())
    for content in (b"", b"nonsense", MAGIC + bytes(32) + b"x", MAGIC + hashlib.sha256(exploding).digest() + exploding):
        store = TemplateStore(root, MB)
        path.parent.mkdir(exist_ok=True)
        path.write_bytes(content)
        assert store.get(key) is None
        assert not path.exists()
        assert values(prepare._compiled(conn, table, cache(store))) == values(compile_table(conn, table))
        assert store.get(key) is not None
    assert not (tmp_path / "bomb").exists()


def test_the_store_is_private_bounded_and_optional(installed: Database, defined: Defined, root: Path) -> None:
    conn, tables = defined(installed, FEW)
    root.mkdir(mode=0o777)
    root.chmod(0o777)
    whole = TemplateStore(root, MB)
    assert root.stat().st_mode & 0o777 == 0o700
    for table in tables.values():
        prepare._compiled(conn, table, cache(whole))
    files = sorted(root.glob(f"*/*{SUFFIX}"), key=lambda p: p.stat().st_mtime_ns)
    assert len(files) == whole.entries == len(FEW)
    assert all(f.stat().st_mode & 0o777 == 0o600 for f in files)
    used = TemplateStore(root, MB)
    prepare._compiled(conn, tables["s_left"], cache(used))  # now the latest used one
    sizes = {f: f.stat().st_size for f in files}
    small = TemplateStore(root, sum(sizes.values()) - 1)  # a process with another limit, which looks at its start
    assert small.evictions == len(FEW) - small.entries > 0
    assert small.get(template_key(conn, tables["s_left"])) is not None  # type: ignore[arg-type]
    assert small.evictions < len(FEW)
    none = TemplateStore(root, 0)
    assert values(prepare._compiled(conn, tables["s_natural"], cache(none))) == values(
        compile_table(conn, tables["s_natural"])
    )
    assert (none.hits, none.misses) == (0, 0)


def test_clear_removes_what_a_database_uses_at_both_levels_and_tells_how_many(
    make_installed: Callable[[], Database], defined: Defined, root: Path
) -> None:
    store = TemplateStore(root, MB)
    both = ProcessTemplates(1000, store)
    caches = {}
    for place, names in (("one", FEW), ("two", FEW[:2])):
        conn, tables = defined(make_installed(), names)
        caches[place] = TemplateCache(both, place)
        for table in tables.values():
            caches[place].put(table, prepare._compiled(conn, table, caches[place]))

    def counted(place: str) -> int:
        """What is published, and returned by clear_caches()."""
        return len(caches[place]) + caches[place].stored(store.digests())

    assert (len(both), len(caches["one"]), len(caches["two"]), store.entries) == (5, 3, 2, 3)
    assert (counted("one"), counted("two")) == (6, 4)
    assert caches["two"].clear() == 4
    assert (len(both), len(caches["one"]), len(caches["two"]), store.entries) == (3, 3, 0, 1)
    assert (counted("one"), counted("two")) == (4, 0)
    assert caches["one"].clear() == 4  # two of the stored ones are gone already
    assert (len(both), store.entries, list(root.glob(f"*/*{SUFFIX}"))) == (0, 0, [])
    assert (counted("one"), counted("two")) == (0, 0)


def test_what_is_stored_is_known_though_other_processes_add_and_remove(
    installed: Database, defined: Defined, root: Path
) -> None:
    conn, tables = defined(installed, FEW)
    store, other = TemplateStore(root, MB), TemplateStore(root, MB)
    assert store.digests() == frozenset()
    mine = cache(store)
    for table in tables.values():
        prepare._compiled(conn, table, mine)
    assert mine.stored(store.digests()) == len(FEW)
    long_ago = time.time() - 3600  # a folder that has been the same for a while is not listed again
    os.utime(store.folder, (long_ago, long_ago))
    assert mine.stored(store.digests()) == mine.stored(store.digests()) == len(FEW)
    assert other.remove(sorted(store.digests())[:1]) == 1
    assert mine.stored(store.digests()) == len(FEW) - 1
    TemplateStore(root, 1)  # a process with next to no room, which removes the rest at its start
    assert (mine.stored(store.digests()), mine.clear()) == (0, 0)


def test_memory_holds_its_maximum_for_all_databases_together(installed: Database, defined: Defined) -> None:
    conn, tables = defined(installed, FEW)
    both = ProcessTemplates(4)
    caches = [TemplateCache(both, place) for place in ("one", "two")]
    for each in caches:
        for table in tables.values():
            each.put(table, compile_table(conn, table))
    assert (len(both), both.evictions, [len(each) for each in caches]) == (4, 2, [1, 3])
    latest = list(tables.values())[-1]
    assert caches[0].get(latest) is not None  # the least recently used goes, and that is not this one now
    caches[1].put(next(iter(tables.values())), compile_table(conn, latest))
    caches[0].put(next(iter(tables.values())), compile_table(conn, latest))
    assert (len(both), [len(each) for each in caches]) == (4, [2, 2])
