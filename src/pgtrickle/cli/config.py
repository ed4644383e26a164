"""`pgtrickle config`: shows settings and their origins."""

from __future__ import annotations

from typing import Annotated

import typer

from pgtrickle.cli.options import options
from pgtrickle.cli.parameters import Json, print_json


def config(
    server: Annotated[
        str | None,
        typer.Option(envvar="PGTRICKLE_SERVER", help="Include the settings of this database.", metavar="DSN"),
    ] = None,
    as_json: Json = False,
) -> None:
    """Show all settings, their values and where the values come from."""
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
