"""`pgtrickle doctor`: checks requirements and shows the resource budget."""

from __future__ import annotations

import os
from typing import Annotated

import typer

from pgtrickle.cli.options import options
from pgtrickle.cli.parameters import Json, print_json


def doctor(
    server: Annotated[
        str | None, typer.Option(envvar="PGTRICKLE_SERVER", help="Also check this server and database.", metavar="DSN")
    ] = None,
    as_json: Json = False,
) -> None:
    """Check the requirements and show the resource budget.

    Checks Java, Spark, disk and, with --server, PostgreSQL; shows processes, connections and memory.
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
