"""`pgtrickle plan`: shows how a stream table or a query is maintained."""

from __future__ import annotations

from typing import Annotated

import typer

from pgtrickle.cli.parameters import Json, OneName, Server, print_json, require_installed


def plan(
    server: Server,
    name: OneName = None,
    query: Annotated[str | None, typer.Option("--query", help="Show the plan of this query; creates nothing.")] = None,
    statements: Annotated[
        bool, typer.Option("--statements", help="Also show the SQL statements of a refresh.")
    ] = False,
    analyze: Annotated[
        bool,
        typer.Option(
            "--analyze",
            help="Compute a refresh of the stream table with each engine, without applying it, and show rows and time "
            "per operator.",
        ),
    ] = False,
    as_json: Json = False,
) -> None:
    """Show how a stream table is, or a query would be, maintained.

    Shows the operators, where each part runs, and what forces FULL.
    """
    if (name is None) == (query is None):
        raise typer.BadParameter("name a stream table, or use --query")
    if analyze and (name is None or statements):
        raise typer.BadParameter("--analyze takes the name of a stream table, and no --statements")
    require_installed(server)
    if analyze:
        _analyze(server, name or "", as_json=as_json)
        return
    from pgtrickle.refresh.plan_requests import plan_of_query, plan_of_table

    plan_values = plan_of_query(server, query) if query is not None else plan_of_table(server, name or "")
    if as_json:
        print_json(plan_values)
        return
    from pgtrickle.pipeline.templates.explain import plan_lines

    for line in plan_lines(plan_values, statements=statements):
        typer.echo(line)


def _analyze(server: str, name: str, *, as_json: bool) -> None:
    from pgtrickle.cli.analysis_output import analysis_lines
    from pgtrickle.cli.options import options
    from pgtrickle.cli.render import working
    from pgtrickle.process.analyze_command import analyze_table

    with working("starting Spark and computing a refresh"):
        analysis = analyze_table(options.load().settings, server, name)
    if as_json:
        print_json(analysis)
        return
    for line in analysis_lines(analysis):
        typer.echo(line)
