"""`pgtrickle refresh`: refreshes stream tables once."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Annotated, Any

import typer

from pgtrickle.cli.loading import watching
from pgtrickle.cli.options import options
from pgtrickle.cli.parameters import Json, Others, Server, SomeNames, Timeout, print_json, require_installed
from pgtrickle.telemetry import set_up_logging

if TYPE_CHECKING:
    from pgtrickle.settings import Settings


def refresh(
    server: Server,
    names: SomeNames = None,
    everything: Annotated[bool, typer.Option("--all", help="All stream tables of the database.")] = False,
    spark_remote: Annotated[str | None, typer.Option(help="sc://host:port of a running Spark Connect server.")] = None,
    others: Others = None,
    timeout: Timeout = None,
    as_json: Json = False,
) -> None:
    """Refresh stream tables once, and what they read, and wait for the result.

    By `pgtrickle run` if it serves the database; otherwise by this command itself, for cron jobs and other schedulers.
    """
    if bool(names) == everything:
        raise typer.BadParameter("name stream tables, or use --all")
    require_installed(server)
    from pgtrickle.db.connect import TRANSACTION, connect, translated
    from pgtrickle.db.statements import statement

    with connect(server, role="refresh", pooler=TRANSACTION) as connection, translated():
        settings = options.load(connection, spark_remote=spark_remote).settings
        ((is_served,),) = connection.execute(statement("has_scheduler")).fetchall()
    if is_served:
        from pgtrickle.process.refresh_by_run import refresh_by_run

        with watching(server, "refreshing"):
            rows = refresh_by_run(server, names or None, timeout)
    else:
        set_up_logging("error" if settings.log_level == "info" else settings.log_level, settings.log_format)
        with watching(server, "starting Spark and refreshing"):
            rows = _refresh_here(server, names or None, settings, spark_remote, others or ())
    if as_json:
        print_json(rows)
    else:
        for row in rows:
            result = (
                row["error"] or f"{row['action']}, {row['inserted']} inserted, {row['deleted']} deleted, {row['ms']} ms"
            )
            typer.echo(f"{row['table']}: {result}")
    if any(row["error"] for row in rows):
        raise typer.Exit(1)


def _refresh_here(
    server: str, names: Sequence[str] | None, settings: Settings, spark_remote: str | None, others: Sequence[str]
) -> list[dict[str, Any]]:
    from pgtrickle.process.refresh_once import refresh_once

    outcomes = refresh_once(settings, options.sources(spark_remote=spark_remote), server, names, others)
    return [
        {
            "table": outcome.table.full_name,
            "action": outcome.action,
            "inserted": outcome.inserted,
            "deleted": outcome.deleted,
            "ms": round(sum(outcome.timings.values())),
            "error": outcome.error.one_line() if outcome.error is not None else None,
            "reason": outcome.reason and str(outcome.reason),
        }
        for outcome in outcomes
    ]
