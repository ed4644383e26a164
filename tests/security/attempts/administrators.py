"""What administrators do with an attacker's stream table: its query must not run with their privileges."""

from __future__ import annotations

import psycopg

from tests.security.arena import Arena, Trial
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


ATTEMPTS = (
    Attempt(
        "administrator_changes_mode",
        "an administrator changes the mode of a stream table whose query calls the attacker's code",
        (
            hostile("f"),
            st("SELECT id, evil.f('a') AS x FROM app.open"),
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
)
