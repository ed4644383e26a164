"""A table of another database that Spark reads from a replica: alice may read it there, the attacker may not."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import psycopg
from pyspark.sql.types import StringType, StructField, StructType

from pgtrickle.pipeline.datasource.options import DataSourceError
from pgtrickle.pipeline.datasource.source import StreamTableSource
from tests.security.arena import VAULT, Arena, Trial
from tests.security.attempt import TICK, Attempt, Do

SECRET = f"{VAULT}.app.vaulted"
DENIED = "permission denied"
WORD = StructType([StructField("word", StringType())])


def on_spark(name: str, query: str) -> str:
    return f"SELECT pgtrickle.create_stream_table('{name}', $pgt${query}$pgt$, 'calculated', engine => 'spark')"


def _validated(arena: Arena, trial: Trial) -> None:
    """The control plane has looked for a plan, and was denied it."""
    rows = arena.attack(trial, f"SELECT * FROM pgtrickle.validate_query('SELECT word FROM {SECRET}')")
    trial.found += [f"it was told a plan: {row}" for row in rows if "Scan" in str(row) or "DIFFERENTIAL" in str(row)]
    if not any("denied" in str(row) or "may not" in str(row) for row in rows):
        trial.found.append(f"nothing was refused: {rows}")


def _replicas(arena: Arena, trial: Trial) -> None:
    """There is a replica of the secret, of which neither database tells the attacker."""
    assert arena.vault("SELECT count(*) FROM pgtrickle.pgt_replicas") == [(1,)]
    trial.found += [
        f"it was told of a replica: {row}" for row in arena.attack(trial, "SELECT * FROM pgtrickle.replicas()")
    ]
    conn = arena.session(trial.role, VAULT)
    try:
        for text in (f"SELECT word FROM {SECRET.removeprefix(VAULT + '.')}", "SELECT * FROM pgtrickle.replicas()"):
            try:
                trial.found.append(f"{text} gave {conn.execute(text).fetchall()}")
            except psycopg.errors.InsufficientPrivilege as error:
                trial.report.notices.append(str(error))
    finally:
        conn.close()


def _read_by_data_source(arena: Arena, trial: Trial) -> None:
    for name in ("reports.vaulted", "reports.words", "app.secret"):
        options = {"dsn": arena.dsn(trial.role), "table": name}
        content, feed = StreamTableSource(options), StreamTableSource({**options, "subscriber": "her consumer"})
        steps: dict[str, Callable[[], Any]] = {
            "schema": content.schema,
            "content": partial(_rows, content),
            "changes": partial(_position, feed),
        }
        for what, step in steps.items():
            try:
                trial.found.append(f"the data source gave {what} of {name}: {step()}")
            except DataSourceError as error:
                trial.report.notices.append(str(error))


def _rows(source: StreamTableSource) -> list[Any]:
    return [batch.to_pylist() for batch in source.reader(WORD).read(None)]


def _position(source: StreamTableSource) -> Any:
    return source.streamReader(WORD).initialOffset()


ATTEMPTS = (
    Attempt(
        "elsewhere_on_spark",
        "a secret of another database in stream tables that Spark computes",
        (
            on_spark("evil.st", f"SELECT id, word FROM {SECRET}"),
            on_spark("evil.st2", f"SELECT o.label, v.word FROM app.open AS o JOIN {SECRET} AS v ON v.id = o.id"),
            on_spark("evil.st3", f"SELECT count(*) AS n FROM {SECRET} WHERE word ~ '^S'"),
            TICK,
            TICK,
        ),
        check=lambda arena, trial: _all_refused(arena, trial, 3),
    ),
    Attempt(
        "elsewhere_asked",
        "what functions tell of a secret of another database, its replica, and a stream table over it",
        (
            "SELECT * FROM pgtrickle.explain_st('reports.vaulted')",
            "SELECT * FROM pgtrickle.list_sources('reports.vaulted')",
            "SELECT * FROM pgtrickle.get_refresh_history('reports.vaulted')",
            f"SELECT * FROM pgtrickle.validate_query('SELECT word FROM {SECRET}')",
            TICK,
            Do(_validated),
            Do(_replicas),
        ),
    ),
    Attempt(
        "elsewhere_data_source",
        "stream tables of others, one over another database, by the Spark data source",
        (Do(_read_by_data_source),),
    ),
)


def _all_refused(arena: Arena, trial: Trial, number: int) -> None:
    text = "SELECT is_final, error_message FROM pgtrickle.pgt_definitions WHERE pgt_schema = %s"
    rows = arena.admin(text, trial.schema)
    if len(rows) != number or not all(is_final and DENIED in message for is_final, message in rows):
        trial.found.append(f"not refused: {rows}")
