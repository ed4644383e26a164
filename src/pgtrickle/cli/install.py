"""`pgtrickle install`: installs or upgrades pgtrickle in a database."""

from __future__ import annotations

from typing import Annotated

import typer

from pgtrickle import __version__
from pgtrickle.cli.parameters import Dsn
from pgtrickle.telemetry import redact


def install(
    dsn: Dsn,
    service_role: Annotated[
        str | None,
        typer.Option(
            help="The role that owns pgtrickle and runs refreshes. Default for a superuser: pgtrickle_service, created "
            "if missing; for an ordinary role: itself.",
            metavar="NAME",
        ),
    ] = None,
) -> None:
    """Install or upgrade pgtrickle in a database.

    Creates schemas, catalog and functions. Needs no extension and no superuser.
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
