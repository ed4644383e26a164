"""The commands. Each is a thin call; heavy packages are imported inside, so that --help is quick."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Annotated

import typer

from pgtrickle import __version__
from pgtrickle.cli import define, look, readers
from pgtrickle.cli.options import Options, parse_assignments
from pgtrickle.cli.parameters import Dsn, Json, Others, Server, print_json, require_installed
from pgtrickle.telemetry import redact, set_up_logging

app = typer.Typer(
    help="Stream tables for PostgreSQL: tables defined by a query, kept current from changes.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,
    context_settings={"help_option_names": ["-h", "--help"]},
)
options = Options()


def _version(wanted: bool) -> None:
    if wanted:
        typer.echo(f"pgtrickle {__version__}")
        raise typer.Exit


@app.callback()
def _main(
    config: Annotated[Path | None, typer.Option(envvar="PGTRICKLE_CONFIG", help="A TOML file with settings.")] = None,
    assignments: Annotated[
        list[str] | None, typer.Option("--set", help="A setting for this command, name=value.", metavar="NAME=VALUE")
    ] = None,
    profile: Annotated[
        str | None, typer.Option(help="low-latency, high-throughput or resource-constrained: several settings at once.")
    ] = None,
    log_format: Annotated[str | None, typer.Option(help="text or json.")] = None,
    log_level: Annotated[str | None, typer.Option(help="debug, info, warning or error.")] = None,
    debug: Annotated[bool, typer.Option("--debug", help="Show the traceback of an error.")] = False,  # noqa: ARG001
    version: Annotated[  # noqa: ARG001  -- acts in its callback, as --debug does in main()
        bool, typer.Option("--version", callback=_version, is_eager=True, help="Print the version.")
    ] = False,
) -> None:
    options.config = config
    options.profile = profile
    options.flags = parse_assignments(assignments or [])
    if log_format:
        options.flags["log_format"] = log_format
    if log_level:
        options.flags["log_level"] = log_level


@app.command()
def install(
    dsn: Dsn,
    service_role: Annotated[
        str | None,
        typer.Option(
            help="The role that owns pgtrickle and runs refreshes. A superuser's default: pgtrickle_service, created "
            "if it is missing; an ordinary role's: itself.",
            metavar="NAME",
        ),
    ] = None,
) -> None:
    """Put pgtrickle into a database, or upgrade it there.

    Creates schemas, catalog and functions; no extension, no superuser.
    """
    from pgtrickle.cli.render import installation_lines
    from pgtrickle.db.connect import TRANSACTION, connect
    from pgtrickle.db.service import install_as_service

    with connect(dsn, role="install", pooler=TRANSACTION, as_service=False) as connection:
        found = install_as_service(connection, service_role)
    typer.echo(f"pgtrickle {__version__} is installed in {redact(dsn)}")
    for line in installation_lines(found):
        typer.echo(line)
    typer.echo("Next: pgtrickle run --server DSN, and from SQL: SELECT pgtrickle.create_stream_table(name, query)")


@app.command()
def uninstall(
    dsn: Dsn,
    drop_tables: Annotated[
        bool, typer.Option("--drop-tables", help="Drop the stream tables as well; otherwise they stay as plain tables.")
    ] = False,
) -> None:
    """Remove everything that install and run created."""
    from pgtrickle.db.connect import TRANSACTION, connect
    from pgtrickle.db.install import uninstall as uninstall_objects

    with connect(dsn, role="install", pooler=TRANSACTION, as_service=False) as connection:
        uninstall_objects(connection, drop_tables=drop_tables)
    typer.echo(f"pgtrickle is removed from {redact(dsn)}")


@app.command()
def run(
    server: Annotated[
        list[str] | None,
        typer.Option(help="postgresql://user@host/database; again for each further server.", metavar="DSN"),
    ] = None,
    spark_remote: Annotated[str | None, typer.Option(help="sc://host:port of a running Spark Connect server.")] = None,
) -> None:
    """Keep stream tables current, until it is stopped.

    Those of all databases of a server that have pgtrickle, or of several servers.
    """
    from pgtrickle.db.connect import TRANSACTION, connect
    from pgtrickle.db.database_settings import report
    from pgtrickle.process.launcher import run_forever

    # One DSN, which may hold blanks: not split as typer would.
    servers = server or [dsn for dsn in (os.environ.get("PGTRICKLE_SERVER"),) if dsn]
    if not servers:
        raise typer.BadParameter("give --server, or set PGTRICKLE_SERVER")
    with connect(servers[0], role="run", pooler=TRANSACTION) as connection:
        loaded = options.load(connection, spark_remote=spark_remote)
        name = connection.info.dbname
    settings = loaded.settings
    set_up_logging(settings.log_level, settings.log_format)
    report(loaded, database=name)  # what is wrong in one database must not keep the others waiting
    run_forever(settings, options.sources(spark_remote=spark_remote), servers)


@app.command()
def refresh(
    server: Server,
    names: Annotated[list[str] | None, typer.Argument(help="Stream tables, with their schemas if not public.")] = None,
    everything: Annotated[bool, typer.Option("--all", help="Every stream table of the database.")] = False,
    spark_remote: Annotated[str | None, typer.Option(help="sc://host:port of a running Spark Connect server.")] = None,
    others: Others = None,
    as_json: Json = False,
) -> None:
    """Refresh stream tables once, without `run`.

    From cron, or in a pipeline of yours.
    """
    if bool(names) == everything:
        raise typer.BadParameter("give the names of stream tables, or --all")
    require_installed(server)
    from pgtrickle.cli.render import working
    from pgtrickle.db.connect import TRANSACTION, connect
    from pgtrickle.process.refresh_once import refresh_once

    with connect(server, role="refresh", pooler=TRANSACTION) as connection:
        settings = options.load(connection, spark_remote=spark_remote).settings
    set_up_logging("error" if settings.log_level == "info" else settings.log_level, settings.log_format)
    with working("starting Spark and refreshing"):
        outcomes = refresh_once(
            settings, options.sources(spark_remote=spark_remote), server, names or None, others or ()
        )
    rows = [
        {
            "table": o.table.full_name,
            "action": o.action,
            "inserted": o.inserted,
            "deleted": o.deleted,
            "ms": round(sum(o.timings.values())),
            "error": o.error.one_line() if o.error is not None else None,
            "reason": o.reason,
        }
        for o in outcomes
    ]
    if as_json:
        print_json(rows)
    else:
        for row in rows:
            done = row["error"] or f"{row['action']}, {row['inserted']} in, {row['deleted']} out, {row['ms']} ms"
            typer.echo(f"{row['table']}: {done}")
    if any(row["error"] for row in rows):
        raise typer.Exit(1)


@app.command()
def verify(
    server: Server,
    name: Annotated[str | None, typer.Argument(help="A stream table, with its schema if not public.")] = None,
    everything: Annotated[bool, typer.Option("--all", help="Every stream table of the database.")] = False,
    others: Others = None,
    as_json: Json = False,
) -> None:
    """Compare stream tables with their queries.

    Row by row, both ways, as PostgreSQL evaluates them; exit status 1 on any difference.
    """
    if (name is None) != everything:
        raise typer.BadParameter("give the name of a stream table, or --all")
    require_installed(server)
    from pgtrickle.maintain.report import verify_lines
    from pgtrickle.maintain.verify import verify_tables

    results = verify_tables(server, None if name is None else [name], servers=others or ())
    if as_json:
        from dataclasses import asdict

        print_json([asdict(result) for result in results])
    else:
        for line in verify_lines(results):
            typer.echo(line)
    if not all(result.ok for result in results):
        raise typer.Exit(1)


@app.command()
def plan(
    server: Server,
    name: Annotated[str | None, typer.Argument(help="A stream table, with its schema if not public.")] = None,
    query: Annotated[str | None, typer.Option("--query", help="A query instead: nothing is created.")] = None,
    statements: Annotated[bool, typer.Option("--statements", help="Also the SQL that a refresh sends.")] = False,
    as_json: Json = False,
) -> None:
    """Show how a table is maintained, or a query would be.

    Its operators, what runs where, and what forces FULL.
    """
    if (name is None) == (query is None):
        raise typer.BadParameter("give the name of a stream table, or --query")
    require_installed(server)
    from pgtrickle.define.plan_requests import plan_of_query, plan_of_table

    found = plan_of_query(server, query) if query is not None else plan_of_table(server, name or "")
    if as_json:
        print_json(found)
        return
    from pgtrickle.pipeline.templates.explain import plan_lines

    for line in plan_lines(found, statements=statements):
        typer.echo(line)


app.command()(look.status)


app.command()(readers.detach)


@app.command()
def config(
    server: Annotated[
        str | None, typer.Option(envvar="PGTRICKLE_SERVER", help="Include this database's own settings.", metavar="DSN")
    ] = None,
    as_json: Json = False,
) -> None:
    """Show settings and where their values come from."""
    if server:
        from pgtrickle.db.connect import TRANSACTION, connect

        with connect(server, role="config", pooler=TRANSACTION) as connection:
            loaded = options.load(connection)
    else:
        loaded = options.load()
    from pgtrickle.cli.render import setting_rows

    rows = setting_rows(loaded)
    if as_json:
        print_json(rows)
    else:
        from pgtrickle.cli.render import print_table

        print_table(["setting", "value", "origin"], [[row["name"], row["value"], row["origin"]] for row in rows])
        for problem in loaded.problems:
            typer.echo(f"pgtrickle: {problem.message}", err=True)
    if loaded.problems:
        raise typer.Exit(1)


@app.command()
def demo(
    seconds: Annotated[
        int | None, typer.Option(envvar="DEMO_SECONDS", min=1, help="Stop after so many seconds; default: Ctrl-C.")
    ] = None,
) -> None:
    """See it at work, on an embedded PostgreSQL and Spark.

    A shop keeps writing, stream tables follow, and are verified at the end.
    """
    from pgtrickle.demo.run import run_demo

    raise typer.Exit(run_demo(options.load().settings, seconds))


@app.command()
def doctor(
    server: Annotated[
        str | None, typer.Option(envvar="PGTRICKLE_SERVER", help="Check this database as well.", metavar="DSN")
    ] = None,
    as_json: Json = False,
) -> None:
    """Check what pgtrickle needs, and what a fleet costs.

    Java, Spark, disk and, with --server, PostgreSQL; processes, connections and memory.
    """
    from pgtrickle.maintain.doctor import examine

    report = examine(options.sources(), os.environ, server)
    if as_json:
        from dataclasses import asdict

        print_json(asdict(report))
    else:
        from pgtrickle.cli.render import budget_lines

        for finding in report.findings:
            typer.echo(f"{'ok ' if finding.ok else 'BAD'}  {finding.what}: {finding.detail}")
        for line in budget_lines(report.budget):
            typer.echo(line)
    if not report.ok:
        raise typer.Exit(1)


app.command()(define.apply)
app.command()(define.export)
