"""`pgtrickle install`: installs or upgrades pgtrickle in a database."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any

import typer

from pgtrickle import __version__
from pgtrickle.cli.parameters import Dsn, Json, print_json
from pgtrickle.telemetry import redact

if TYPE_CHECKING:
    from pgtrickle.db.service import Installation

ServiceRole = Annotated[
    str | None,
    typer.Option(
        help="The role that owns pgtrickle and runs refreshes. Default for a superuser: pgtrickle_service, created "
        "if missing; for an ordinary role: itself.",
        metavar="NAME",
    ),
]


def install(dsn: Dsn, service_role: ServiceRole = None, as_json: Json = False) -> None:
    """Install or upgrade pgtrickle in a database.

    Creates schemas, catalog and functions. Needs no extension and no superuser.
    """
    facts, installation = install_in(dsn, service_role)
    if as_json:
        print_json(facts)
        return
    from pgtrickle.cli.render import installation_lines

    typer.echo(f"pgtrickle {__version__} is installed in {redact(dsn)}")
    for line in installation_lines(installation):
        typer.echo(line)
    typer.echo("Next: pgtrickle run --server DSN, and from SQL: SELECT pgtrickle.create_stream_table(name, query)")


def install_in(dsn: str, service_role: str | None) -> tuple[dict[str, Any], Installation]:
    """Installs pgtrickle; returns what --json prints and what the text output is made of."""
    from pgtrickle.db.connect import TRANSACTION, connect
    from pgtrickle.db.service import install_as_service

    with connect(dsn, role="install", pooler=TRANSACTION, as_service=False) as connection:
        installation = install_as_service(connection, service_role)
        database = connection.info.dbname
    facts = {
        "database": database,
        "version": __version__,
        "role": installation.role,
        "is_service_role": installation.is_service,
        "can_log_in": installation.can_log_in,
        "needed": list(installation.needed),
        "suggested": list(installation.suggested),
    }
    return facts, installation
