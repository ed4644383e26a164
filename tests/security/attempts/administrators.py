"""What administrators do with an attacker's stream table: its query must not run with their privileges."""

from __future__ import annotations

from pathlib import Path
from tempfile import TemporaryDirectory

import psycopg

from pgtrickle.db.connect import connect
from pgtrickle.definitions import fleet, present
from pgtrickle.definitions.compare import new_query
from pgtrickle.definitions.definition import Definition, FilePosition
from pgtrickle.definitions.export import collect, files_of
from pgtrickle.definitions.read import read_set
from pgtrickle.maintain.oracle import AS_TYPED
from pgtrickle.maintain.verify import verify_tables
from tests.security.arena import DATABASE, Arena, Trial
from tests.security.attempt import TICK, Attempt, Do, hostile, named, st


def _administered(*statements: str, refused: str = "was written by") -> Do:
    """Each statement is refused, or does no harm."""

    def administer(arena: Arena, trial: Trial) -> None:
        for statement in statements:
            try:
                arena.admin(named(statement, trial.number, arena.service))
            except psycopg.errors.InsufficientPrivilege as error:
                if refused not in str(error):
                    trial.found.append(f"an administrator was told {error}")
            else:
                trial.found.append(f"an administrator could {statement}")

    return Do(administer)


def _exported(arena: Arena, trial: Trial) -> None:
    """As `pgtrickle export` does it."""
    dsn = arena.server.dsn(DATABASE)
    found, _ = collect(dsn, fleet.databases(dsn, (DATABASE,)))
    if f"{trial.schema}.st" not in [each.name for each in found]:
        trial.found.append("it is not exported")


def _written_to_files(arena: Arena, trial: Trial) -> None:
    """As `pgtrickle export` writes files and `pgtrickle apply` reads them: they define what is there, and nothing else."""
    dsn = arena.server.dsn(DATABASE)
    exported, sets = collect(dsn, fleet.databases(dsn, (DATABASE,)))
    files = files_of(exported, sets, name_databases=True)
    with TemporaryDirectory() as folder:
        for name, text in files.items():
            if Path(name).name != name:
                trial.found.append(f"export writes the file {name}")
            Path(folder, Path(name).name).write_text(text)
        read, problems = read_set(Path(folder))
    stored = {each.name: each for each in exported if each.query}
    trial.found += [f"the exported files have a problem: {problem.one_line()}" for problem in problems]
    if {each.name for each in read.definitions} != stored.keys():
        trial.found.append(f"the exported files define {sorted({t.name for t in read.definitions} ^ stored.keys())}")
    for table in read.definitions:
        of_stored = stored[table.name]
        if (table.query, table.databases, table.options) != (of_stored.query, (DATABASE,), dict(of_stored.options)):
            trial.found.append(f"the exported files define {table}")


def _compared(arena: Arena, trial: Trial) -> None:
    """As `pgtrickle apply` compares a definition in a file with the stream table of this name."""
    at = FilePosition("st.sql", 1)
    with connect(arena.server.dsn(DATABASE), role="apply", as_service=False) as conn:
        table = present.stream_tables(conn)[trial.schema, "st"]
        if new_query(conn, table, Definition(table.label, "SELECT id, label AS x FROM app.open", at, at)) is None:
            trial.found.append("another query is not another one")
        conn.rollback()


def _verified(arena: Arena, trial: Trial) -> None:
    """As `pgtrickle verify` does it. Not by the text whose names mean something else by now."""
    (result,) = verify_tables(arena.line_dsn, [f"{trial.schema}.st"], timeout_seconds=5)
    if not result.ok or result.against == AS_TYPED:
        trial.found.append(f"the verification said {result}")


CALLS = st("SELECT id, evil.f('a') AS x FROM app.open")

ATTEMPTS = (
    Attempt(
        "administrator_changes_mode",
        "an administrator changes the mode of a stream table whose query calls the attacker's code",
        (
            hostile("f"),
            CALLS,
            TICK,
            _administered(
                "SELECT pgtrickle.alter_stream_table('evil.st', refresh_mode => 'FULL')",
                "SELECT pgtrickle.alter_stream_table('evil.st', refresh_mode => 'AUTO', schedule => '1h')",
            ),
            "SELECT pgtrickle.alter_stream_table('evil.st', refresh_mode => 'FULL')",
            TICK,
        ),
        trusted=True,
    ),
    Attempt(
        "administrator_repairs",
        "an administrator repairs a stream table whose sources were created again: its names mean something else now",
        (
            "CREATE TABLE evil.src (id int PRIMARY KEY); INSERT INTO evil.src VALUES (1)",
            "SET search_path = evil, pg_catalog",
            st("SELECT id, lower('X') AS x FROM src"),
            "RESET search_path",
            TICK,
            "DROP TABLE evil.src CASCADE; CREATE TABLE evil.src (id int PRIMARY KEY)",
            hostile("lower"),
            _administered("SELECT pgtrickle.repair_stream_table('evil.st')"),
            "SELECT pgtrickle.repair_stream_table('evil.st')",
            TICK,
        ),
        trusted=True,
    ),
    Attempt(
        "administrator_exports",
        "an administrator exports the definitions of a database, among them one that calls the attacker's code",
        (hostile("f"), CALLS, TICK, Do(_exported), TICK),
        trusted=True,
    ),
    Attempt(
        "administrator_exports_to_files",
        "an administrator exports definitions to files: texts of the attacker look like headers and tables of such files",
        (
            st("-- name: reports.words\n-- databases: postgres\n\nSELECT id FROM app.open", "evil.st1"),
            st("-- query_file: ../../../etc/passwd\n-- mode: FULL\nSELECT id, n FROM app.open", "evil.st2"),
            st('SELECT id, $$\'\'\'\n"""\n[[stream_table]]\nname = "reports.gift"\n$$ AS x FROM app.open', "evil.st3"),
            st(
                'SELECT id, E\'\\u0001\' || $$\x01"\n[[stream_table]]\nname = "reports.gift"\n$$ AS x FROM app.open',
                "evil.st4",
            ),
            st("SELECT id FROM app.open", 'evil."../../st5"'),
            st("SELECT id FROM app.open", 'evil."st6\n-- name: reports.gift"'),
            "SELECT pgtrickle.create_refresh_group(E'its\\n\"]\\n[[stream_table]]\\nname = \"reports.gift\"', '{evil.st1,evil.st2}')",
            TICK,
            Do(_written_to_files),
        ),
    ),
    Attempt(
        "administrator_applies",
        "an administrator applies a definition for the name that the attacker's stream table has",
        (hostile("f"), CALLS, TICK, Do(_compared), TICK),
        trusted=True,
    ),
    Attempt(
        "administrator_verifies",
        "an administrator verifies a stream table; the name of a type in its query is that of a domain by now",
        (
            hostile("chk", returns="bool", result="true"),
            "SET search_path = evil, pg_catalog",
            st("SELECT id, label FROM app.open WHERE num_nulls(label::text) = 0"),
            "RESET search_path",
            TICK,
            "CREATE DOMAIN evil.text AS pg_catalog.text CHECK (evil.chk(VALUE))",
            Do(_verified),
            TICK,
        ),
    ),
    Attempt(
        "administrator_verifies_dates",
        "the same of a row type called date, which reads a constant before anything is checked",
        (
            hostile("chk", returns="bool", result="true"),
            "CREATE DOMAIN evil.dom AS text CHECK (evil.chk(VALUE))",
            "SET search_path = evil, pg_catalog",
            st("SELECT id, label FROM app.open WHERE num_nulls(date '(2020-01-01)') = 0"),
            "RESET search_path",
            TICK,
            "CREATE TYPE evil.date AS (d evil.dom)",
            Do(_verified),
            TICK,
        ),
    ),
)
