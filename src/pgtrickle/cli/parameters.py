"""Parameters and output that several commands share."""

from __future__ import annotations

import json
import sys
from typing import Annotated, Any

import typer

from pgtrickle.telemetry import redact

Dsn = Annotated[str, typer.Argument(help="postgresql://user@host/database", metavar="DSN", show_default=False)]
Server = Annotated[
    str,
    typer.Option("--server", envvar="PGTRICKLE_SERVER", help="postgresql://user@host/database", metavar="DSN"),
]
Others = Annotated[
    list[str] | None,
    typer.Option("--other-server", help="A server of the fleet whose tables are read as well.", metavar="DSN"),
]
Json = Annotated[bool, typer.Option("--json", help="One JSON document instead of text.")]


def require_installed(server: str) -> None:
    """One clear line where pgtrickle is not installed, or not for this role."""
    from pgtrickle.db.connect import TRANSACTION, connect
    from pgtrickle.db.install import installed_version
    from pgtrickle.errors import ConfigError

    with connect(server, role="status", pooler=TRANSACTION) as connection:
        name = connection.info.dbname
        try:
            version = installed_version(connection)
        except ConfigError as error:
            user = connection.info.user
            raise ConfigError(error.message, hint=f"GRANT USAGE ON SCHEMA pgtrickle TO {user}") from error
    if version is None:
        raise ConfigError(f"pgtrickle is not installed in database {name}", hint=f"pgtrickle install {redact(server)}")


def print_json(value: Any) -> None:
    json.dump(value, sys.stdout, default=str, indent=2, ensure_ascii=False)
    sys.stdout.write("\n")
