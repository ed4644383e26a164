"""`pgtrickle replica`: columnar copies of tables."""

from __future__ import annotations

from dataclasses import asdict
from typing import TYPE_CHECKING, Annotated

import typer

from pgtrickle.cli.options import options
from pgtrickle.cli.parameters import Json, Server, print_json, require_installed

if TYPE_CHECKING:
    from pgtrickle.settings import Settings

replica = typer.Typer(help="Columnar replicas of tables.", no_args_is_help=True)
Table = Annotated[str, typer.Argument(help="Name of a table, with schema unless public.")]


@replica.command("list")
def list_(server: Server, as_json: Json = False) -> None:
    """List replicas whose tables you may read."""
    require_installed(server)
    from pgtrickle.process.replica_commands import list_replicas

    rows = list_replicas(server)
    if as_json:
        print_json(rows)
        return
    for row in rows:
        size = (
            f"{row['row_count']} rows, {row['bytes']} bytes in {row['files']} files, {row['pending_rows']} new changes"
        )
        typer.echo(f"{row['source_table']}: {row['state']}, {size if row['state'] == 'ready' else row['last_error']}")


@replica.command()
def create(
    server: Server,
    table: Table,
    columns: Annotated[
        list[str] | None, typer.Option("--column", help="Only this column and the key; repeat for several.")
    ] = None,
    as_json: Json = False,
) -> None:
    """Create the replica of a table, or add columns to it.

    It stays until it is dropped, also when no stream table reads it.
    """
    settings = _settings(server)
    from pgtrickle.cli.render import working
    from pgtrickle.process.replica_commands import create_replica

    with working("starting Spark and reading the table"):
        report = create_replica(settings, server, table, columns or [])
    if as_json:
        print_json(asdict(report))
    else:
        typer.echo(f"{report.source}: {report.rows} rows, {report.bytes} bytes")


@replica.command()
def drop(server: Server, table: Table, as_json: Json = False) -> None:
    """Drop the replica of a table and delete its files."""
    settings = _settings(server)
    from pgtrickle.process.replica_commands import drop_replica

    dropped = drop_replica(settings, server, table)
    if as_json:
        print_json({"source": table, "dropped": dropped})
    else:
        typer.echo(f"{table}: {'dropped' if dropped else 'it has no replica'}")


@replica.command()
def verify(
    server: Server,
    table: Annotated[str | None, typer.Argument(help="Name of a table, with schema unless public.")] = None,
    everything: Annotated[bool, typer.Option("--all", help="All replicas of the database.")] = False,
    as_json: Json = False,
) -> None:
    """Compare replicas with their tables.

    Compares all rows in both directions at one snapshot, changes since the replica's cut included; exit status 1 on any
    difference.
    """
    if (table is None) != everything:
        raise typer.BadParameter("name a table, or use --all")
    settings = _settings(server)
    from pgtrickle.cli.render import working
    from pgtrickle.process.replica_commands import verify_replicas

    with working("starting Spark and comparing"):
        reports = verify_replicas(settings, server, table)
    if as_json:
        print_json([{**asdict(r), "ok": r.ok} for r in reports])
    else:
        for r in reports:
            differs = f"{r.missing} rows missing, {r.extra} rows extra"
            typer.echo(f"{r.source}: {r.error or ('equal' if r.ok else differs)}")
    if not all(r.ok for r in reports):
        raise typer.Exit(1)


def _settings(server: str) -> Settings:
    require_installed(server)
    from pgtrickle.db.connect import TRANSACTION, connect
    from pgtrickle.telemetry import set_up_logging

    with connect(server, role="replica", pooler=TRANSACTION) as connection:
        settings = options.load(connection).settings
    set_up_logging("error" if settings.log_level == "info" else settings.log_level, settings.log_format)
    return settings
