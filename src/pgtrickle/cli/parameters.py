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
    typer.Option("--other-server", help="Another server of the fleet; repeat for several.", metavar="DSN"),
]
Json = Annotated[bool, typer.Option("--json", help="Print one JSON document instead of text.")]

Databases = Annotated[
    list[str] | None,
    typer.Option(
        "--database",
        help="A database name or a glob; repeat for several. Default: the database of the DSN.",
        metavar="NAME",
    ),
]


def require_installed(server: str) -> None:
    """Raises an error with a hint if pgtrickle is not installed, or this role may not use it."""
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
