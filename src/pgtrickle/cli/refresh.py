"""`pgtrickle refresh`: refreshes stream tables once."""

from __future__ import annotations

from typing import Annotated

import typer

from pgtrickle.cli.options import options
from pgtrickle.cli.parameters import Json, Others, Server, print_json, require_installed
from pgtrickle.telemetry import set_up_logging


def refresh(
    server: Server,
    names: Annotated[
        list[str] | None, typer.Argument(help="Names of stream tables, with schema unless public.")
    ] = None,
    everything: Annotated[bool, typer.Option("--all", help="All stream tables of the database.")] = False,
    spark_remote: Annotated[str | None, typer.Option(help="sc://host:port of a running Spark Connect server.")] = None,
    others: Others = None,
    as_json: Json = False,
) -> None:
    """Refresh stream tables once, without `run`.

    For cron jobs and other schedulers.
    """
    if bool(names) == everything:
        raise typer.BadParameter("name stream tables, or use --all")
    require_installed(server)
    from pgtrickle.cli.render import working
    from pgtrickle.db.connect import TRANSACTION, connect
    from pgtrickle.process.refresh_once import refresh_once

    with connect(server, role="refresh", pooler=TRANSACTION) as connection:
        settings = options.load(connection, spark_remote=spark_remote).settings
    set_up_logging("error" if settings.log_level == "info" else settings.log_level, settings.log_format)
    with working("starting Spark and refreshing"):
        sources = options.sources(spark_remote=spark_remote)
        outcomes = refresh_once(settings, sources, server, names or None, others or ())
    rows = [
        {
            "table": o.table.full_name,
            "action": o.action,
            "inserted": o.inserted,
            "deleted": o.deleted,
            "ms": round(sum(o.timings.values())),
            "error": o.error.one_line() if o.error is not None else None,
            "reason": o.reason and str(o.reason),
        }
        for o in outcomes
    ]
    if as_json:
        print_json(rows)
    else:
        for row in rows:
            done = (
                row["error"] or f"{row['action']}, {row['inserted']} inserted, {row['deleted']} deleted, {row['ms']} ms"
            )
            typer.echo(f"{row['table']}: {done}")
    if any(row["error"] for row in rows):
        raise typer.Exit(1)
