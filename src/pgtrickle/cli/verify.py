"""`pgtrickle verify`: compares stream tables with their queries."""

from __future__ import annotations

from typing import Annotated

import typer

from pgtrickle.cli.parameters import Json, OneName, Others, Server, print_json, require_installed


def verify(
    server: Server,
    name: OneName = None,
    everything: Annotated[bool, typer.Option("--all", help="All stream tables of the database.")] = False,
    others: Others = None,
    as_json: Json = False,
) -> None:
    """Compare stream tables with their queries.

    Compares all rows in both directions with the result of PostgreSQL; exit status 1 on any difference.
    """
    if (name is None) != everything:
        raise typer.BadParameter("name a stream table, or use --all")
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
