"""`pgtrickle plan`: shows how a stream table or a query is maintained."""

from __future__ import annotations

from typing import Annotated

import typer

from pgtrickle.cli.parameters import Json, Server, print_json, require_installed


def plan(
    server: Server,
    name: Annotated[str | None, typer.Argument(help="Name of a stream table, with schema unless public.")] = None,
    query: Annotated[str | None, typer.Option("--query", help="Show the plan of this query; creates nothing.")] = None,
    statements: Annotated[
        bool, typer.Option("--statements", help="Also show the SQL statements of a refresh.")
    ] = False,
    as_json: Json = False,
) -> None:
    """Show how a stream table is, or a query would be, maintained.

    Shows the operators, where each part runs, and what forces FULL.
    """
    if (name is None) == (query is None):
        raise typer.BadParameter("name a stream table, or use --query")
    require_installed(server)
    from pgtrickle.define.plan_requests import plan_of_query, plan_of_table

    found = plan_of_query(server, query) if query is not None else plan_of_table(server, name or "")
    if as_json:
        print_json(found)
        return
    from pgtrickle.pipeline.templates.explain import plan_lines

    for line in plan_lines(found, statements=statements):
        typer.echo(line)
