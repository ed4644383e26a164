"""The owner of a schema replaces what a refresh names, after the check of the refresh and before its statement. The
service role owns the stream tables of the schema, but the owner of the schema may drop them."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import psycopg
import pytest

from pgtrickle.errors import PgtrickleError
from pgtrickle.maintain.verify import verify_tables
from pgtrickle.pipeline.engine.spark import SparkEngine
from pgtrickle.refresh import wave
from pgtrickle.servers.embedded_postgres import EmbeddedPostgres
from tests.security.arena import Arena
from tests.security.attempt import Attempt, hostile

TRIGGER = (
    "CREATE FUNCTION evil_1.fire() RETURNS trigger LANGUAGE plpgsql AS "
    "$f$ BEGIN PERFORM evil_1.payload('fire'); RETURN NEW; END $f$"
)
STORAGE = (
    "DROP TABLE evil_1.st; CREATE TABLE evil_1.st (id int, label text, c bigint, __pgt_row_id bigint); "
    "GRANT ALL ON evil_1.st TO PUBLIC; CREATE TRIGGER f BEFORE INSERT OR UPDATE OR DELETE OR TRUNCATE ON evil_1.st "
    "FOR EACH STATEMENT EXECUTE FUNCTION evil_1.fire()"
)
SOURCE = (
    "DROP TABLE evil_1.base CASCADE; CREATE VIEW evil_1.base AS SELECT evil_1.called(1) AS id, 'x'::text AS label; "
    "GRANT ALL ON evil_1.base TO PUBLIC"
)
TYPE = "{} TYPE evil_1.en{}; CREATE DOMAIN evil_1.en AS text CHECK (evil_1.checked(VALUE))"


class Field:
    """One attacker, `mallory_1` with the schema `evil_1`, in a database with secrets."""

    def __init__(self, arena: Arena) -> None:
        self.arena = arena
        self.trial = arena._enter(Attempt("swaps", "all of this module", ()), 1)
        self.mallory = self.trial.conn
        # Others are not refreshed in between: of these tables one fails, and is tried again from time to time.
        for (name,) in arena.admin("SELECT pgt_name FROM pgtrickle.pgt_stream_tables WHERE pgt_schema = 'reports'"):
            arena.admin("SELECT pgtrickle.suspend_stream_table(%s)", f"reports.{name}")
        for text in (
            TRIGGER,
            hostile("called", "int", "int", "1", "STABLE"),
            hostile("checked", "text", "bool", "true"),
            hostile("cast_to_text", "evil_1.other"),
        ):
            if "evil_1.other" in text:
                self.run("CREATE TYPE evil_1.other AS ENUM ('a')")
            self.run(text.replace("evil.", "evil_1."))

    def run(self, sql: str) -> list[tuple[Any, ...]]:
        cursor = self.mallory.execute(sql)
        return cursor.fetchall() if cursor.description is not None else []

    def create(self, name: str, query: str, **options: str) -> None:
        text = "".join(f", {key} => '{value}'" for key, value in options.items())
        self.run(f"SELECT pgtrickle.create_stream_table('evil_1.{name}', $q${query}$q${text})")

    def swap(self, sql: str) -> str | None:
        """As the attacker, in a session of its own; the error if it was not possible."""
        with self.arena.session(self.trial.role) as conn:
            conn.autocommit = False
            try:
                conn.execute("SET LOCAL lock_timeout = '1s'")
                conn.execute(sql)
                conn.commit()
            except psycopg.Error as error:
                conn.rollback()
                return error.sqlstate
        return None

    def ran(self) -> list[tuple[Any, ...]]:
        """Code of the attacker that ran as somebody else."""
        return [r for r in self.arena._log() if r[2] != self.trial.role]

    def clear(self) -> None:
        names = self.arena.admin(
            "SELECT format('%I.%I', pgt_schema, pgt_name) FROM pgtrickle.pgt_stream_tables WHERE pgt_schema = 'evil_1' "
            "ORDER BY pgt_id DESC"
        )
        for (name,) in names:
            self.arena.admin("SELECT pgtrickle.drop_stream_table(%s, true)", name)
        relations = self.arena.admin(
            "SELECT c.relkind, c.oid::regclass::text FROM pg_class AS c WHERE c.relnamespace = 'evil_1'::regnamespace "
            "AND c.relname IN ('st', 'base') AND c.relkind IN ('r', 'v')"
        )
        for kind, name in relations:
            self.arena.admin(f"DROP {'VIEW' if kind == 'v' else 'TABLE'} {name} CASCADE")
        types = self.arena.admin(
            "SELECT t.typtype FROM pg_type AS t WHERE t.typname = 'en' AND t.typnamespace = 'evil_1'::regnamespace"
        )
        for (kind,) in types:
            self.arena.admin(f"DROP {'DOMAIN' if kind == 'd' else 'TYPE'} evil_1.en CASCADE")
        self.arena.admin("DROP TYPE IF EXISTS evil_1.en_was CASCADE")


@pytest.fixture(scope="module")
def arena(engine: SparkEngine) -> Iterator[Arena]:
    with EmbeddedPostgres.create(durable=False, settings={"max_prepared_transactions": "5"}) as server:
        arena = Arena(server, engine, by_superuser=True)
        try:
            yield arena
        finally:
            arena.close()


@pytest.fixture(scope="module")
def entered(arena: Arena) -> Field:
    return Field(arena)


@pytest.fixture
def field(entered: Field) -> Iterator[Field]:
    yield entered
    entered.clear()


def before(monkeypatch: pytest.MonkeyPatch, place: Any, name: str, act: Callable[[], None]) -> list[int]:
    """Calls `act` once, before the function."""
    calls: list[int] = []
    original = getattr(place, name)

    def wrapped(*args: Any, **named: Any) -> Any:
        if not calls:
            calls.append(1)
            act()
        return original(*args, **named)

    monkeypatch.setattr(place, name, wrapped)
    return calls


def test_a_cast_that_an_inlined_function_finds(field: Field) -> None:
    """quote_literal(anyelement) is SQL: it casts to text, by a cast of the attacker."""
    field.run("CREATE CAST (evil_1.other AS text) WITH FUNCTION evil_1.cast_to_text(evil_1.other)")
    for function in ("quote_literal", "quote_nullable"):
        for value in ("'a'::evil_1.other", "ARRAY['a'::evil_1.other]", "ROW('a'::evil_1.other)"):
            with pytest.raises(psycopg.Error, match=r"evil_1\.other"):
                field.create("st", f"SELECT id, {function}({value}) AS t FROM app.open")
    field.run("DROP CAST (evil_1.other AS text)")
    with pytest.raises(psycopg.Error, match="may create a cast for it"):
        field.create("st", "SELECT id, quote_literal('a'::evil_1.other) AS t FROM app.open")
    field.arena.line.tick()
    assert field.ran() == []


def test_built_in_functions_that_cast_values_of_any_type_are_known(arena: Arena) -> None:
    """Those in SQL look a cast up when they are inlined: whether one is found depends on the owner of the type."""
    polymorphic = arena.admin(
        "SELECT DISTINCT p.proname::text FROM pg_proc AS p JOIN pg_language AS l ON l.oid = p.prolang "
        "WHERE l.lanname = 'sql' AND p.oid < 16384 AND p.pronamespace = 'pg_catalog'::regnamespace "
        "AND EXISTS (SELECT FROM unnest(p.proargtypes::oid[]) AS a JOIN pg_type AS t ON t.oid = a "
        "WHERE t.typtype = 'p') ORDER BY 1"
    )
    assert [name for (name,) in polymorphic] == ["anytextcat", "quote_literal", "quote_nullable", "textanycat"]


@pytest.mark.parametrize("mode", ["DIFFERENTIAL", "FULL"])
def test_storage_replaced_before_it_is_written(field: Field, monkeypatch: pytest.MonkeyPatch, mode: str) -> None:
    field.create("st", "SELECT id, label FROM app.open", refresh_mode=mode)
    field.arena.line.tick()
    field.arena.admin("INSERT INTO app.open VALUES (90, 'x', 1), (91, 'y', 2)")
    swapped: list[str | None] = []
    calls = before(monkeypatch, wave.WaveRefresher, "_finish_all", lambda: swapped.append(field.swap(STORAGE)))
    field.arena.line.tick()
    assert (calls, swapped) == ([1], [None])
    assert field.ran() == []
    field.arena.admin("DELETE FROM app.open WHERE id >= 90")


def test_storage_replaced_while_it_is_written(field: Field, monkeypatch: pytest.MonkeyPatch) -> None:
    """From the fence on nobody can."""
    field.create("st", "SELECT id, label FROM app.open", refresh_mode="DIFFERENTIAL")
    field.arena.line.tick()
    field.arena.admin("INSERT INTO app.open VALUES (92, 'x', 1)")
    swapped: list[str | None] = []
    calls = before(monkeypatch, wave.WaveRefresher, "_apply_all", lambda: swapped.append(field.swap(STORAGE)))
    field.arena.line.tick()
    assert (calls, swapped) == ([1], ["55P03"])
    assert field.run("SELECT count(*) FROM evil_1.st WHERE id = 92") == [(1,)]
    assert field.ran() == []
    field.arena.admin("DELETE FROM app.open WHERE id = 92")


def test_storage_replaced_before_a_first_load(field: Field, monkeypatch: pytest.MonkeyPatch) -> None:
    field.create("st", "SELECT id, label FROM app.open")
    swapped: list[str | None] = []
    calls = before(monkeypatch, wave.WaveRefresher, "_load_first", lambda: swapped.append(field.swap(STORAGE)))
    field.arena.line.tick()
    assert (calls, swapped) == ([1], [None])
    assert field.ran() == []


def test_storage_replaced_before_it_is_emptied(field: Field) -> None:
    """With on_lost_privilege = empty, the content of a table that lost a privilege is deleted."""
    field.arena.admin("GRANT SELECT ON app.people TO mallory_1")
    field.arena.admin("SELECT pgtrickle.set_option('on_lost_privilege', 'empty')")
    try:
        field.create("st", "SELECT id, name AS label FROM app.people")
        field.arena.line.tick()
        assert field.swap(STORAGE) is None
        field.arena.admin(
            "REVOKE SELECT ON app.people FROM mallory_1; REVOKE SELECT (id, name) ON app.people FROM PUBLIC"
        )
        field.arena.admin("INSERT INTO app.people VALUES (9, 'eve', 'WORD-pay-9')")
        for _ in range(3):
            field.arena.line.tick()
        assert field.ran() == []
    finally:
        field.arena.admin("SELECT pgtrickle.set_option('on_lost_privilege', 'keep')")
        field.arena.admin("GRANT SELECT (id, name) ON app.people TO PUBLIC")


@pytest.mark.parametrize("mode", ["DIFFERENTIAL", "FULL"])
def test_source_replaced_before_it_is_read(field: Field, monkeypatch: pytest.MonkeyPatch, mode: str) -> None:
    field.create("base", "SELECT id, label FROM app.open")
    field.arena.line.tick()
    field.create("st", "SELECT id, label FROM evil_1.base", refresh_mode=mode)
    swapped: list[str | None] = []
    calls = before(monkeypatch, wave.WaveRefresher, "_compute", lambda: swapped.append(field.swap(SOURCE)))
    field.arena.line.tick()
    assert (calls, swapped) == ([1], ["55P03"])
    assert field.run("SELECT count(*) FROM evil_1.st") == field.run("SELECT count(*) FROM app.open")
    assert field.ran() == []


@pytest.mark.parametrize("swap", [TYPE.format("DROP", " CASCADE"), TYPE.format("ALTER", " RENAME TO en_was")])
@pytest.mark.parametrize("step", ["load", "delta"])
def test_type_replaced_before_it_is_named(field: Field, monkeypatch: pytest.MonkeyPatch, step: str, swap: str) -> None:
    field.run("CREATE TYPE evil_1.en AS ENUM ('a', 'b')")
    query = "SELECT id, label FROM app.open AS o WHERE 'a'::evil_1.en IS NOT NULL"
    field.create("st", query, refresh_mode="DIFFERENTIAL")
    if step == "delta":
        field.arena.line.tick()
        field.arena.admin("INSERT INTO app.open VALUES (93, 'x', 1) ON CONFLICT DO NOTHING")
    swapped: list[str | None] = []
    calls = before(monkeypatch, wave.WaveRefresher, "_compute", lambda: swapped.append(field.swap(swap)))
    field.arena.line.tick()
    assert (calls, swapped) == ([1], [None])
    ((message,),) = field.run("SELECT last_error_message FROM pgtrickle.pgt_status() WHERE name = 'evil_1.st'")
    assert "was renamed, dropped or replaced during the refresh" in message
    assert field.ran() == []
    field.arena.admin("DELETE FROM app.open WHERE id = 93")


def test_what_is_verified_is_held(field: Field, monkeypatch: pytest.MonkeyPatch) -> None:
    field.create("st", "SELECT id, label FROM app.open")
    field.arena.line.tick()
    view = (
        "DROP TABLE evil_1.st; CREATE VIEW evil_1.st AS SELECT evil_1.called(1) AS id, 'x'::text AS label, "
        "1::bigint AS __pgt_row_id; GRANT ALL ON evil_1.st TO PUBLIC"
    )
    from pgtrickle.maintain import verify

    swapped: list[str | None] = []
    calls = before(monkeypatch, verify, "compare", lambda: swapped.append(field.swap(view)))
    (result,) = verify_tables(field.arena.line_dsn, ["evil_1.st"], timeout_seconds=5)
    assert (calls, swapped, result.ok) == ([1], ["55P03"], True)
    assert field.swap(view) is None
    with pytest.raises(PgtrickleError, match="dropped, renamed or moved"):
        verify_tables(field.arena.line_dsn, ["evil_1.st"], timeout_seconds=5)
    assert field.ran() == []


def test_rows_that_a_security_barrier_hides(field: Field) -> None:
    """The condition of the query must not be evaluated for hidden rows: an error would tell of them."""
    field.arena.admin(
        "CREATE TABLE app.shared (id int PRIMARY KEY); ALTER TABLE app.shared OWNER TO team; "
        "INSERT INTO app.shared VALUES (1); "
        "CREATE TABLE app.mixed (id int PRIMARY KEY, word text); ALTER TABLE app.mixed OWNER TO team; "
        "INSERT INTO app.mixed VALUES (1, '7'), (2, 'WORD-2'); "
        "CREATE VIEW app.some WITH (security_barrier) AS "
        "SELECT m.id, m.word FROM app.mixed AS m JOIN app.shared USING (id); "
        "ALTER VIEW app.some OWNER TO team; GRANT SELECT ON app.some TO PUBLIC"
    )
    query = "SELECT id, word FROM app.some WHERE word::int > 0"
    expected = field.run(query)
    field.create("st", query)
    field.arena.line.tick()
    assert field.run("SELECT id, word FROM evil_1.st") == expected
    field.arena.admin("INSERT INTO app.mixed VALUES (3, 'WORD-3')")
    field.arena.line.tick()
    assert field.run("SELECT id, word FROM evil_1.st") == expected
    ((status, mode, reason),) = field.run(
        "SELECT status, effective_refresh_mode, mode_reason FROM pgtrickle.pgt_status() WHERE name = 'evil_1.st'"
    )
    assert (status, mode) == ("ACTIVE", "FULL")
    assert "security barrier" in reason
