"""Parameters and output that several commands share."""

from __future__ import annotations

import json
import sys
from typing import Annotated, Any

import typer

from pgtrickle.cli.completion import stream_tables
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
Name = Annotated[
    str,
    typer.Argument(help="Name of a stream table, with schema unless in search_path.", autocompletion=stream_tables),
]
Names = Annotated[
    list[str],
    typer.Argument(help="Names of stream tables, with schema unless in search_path.", autocompletion=stream_tables),
]
SomeNames = Annotated[
    list[str] | None,
    typer.Argument(help="Names of stream tables, with schema unless in search_path.", autocompletion=stream_tables),
]
OneName = Annotated[
    str | None,
    typer.Argument(help="Name of a stream table, with schema unless public.", autocompletion=stream_tables),
]
Timeout = Annotated[
    float | None, typer.Option(help="Seconds to wait at most; then the exit status is 75.", metavar="SECONDS", min=0)
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
    """Raises an error with a hint if pgtrickle is not installed, has another version, or this role may not use it."""
    from pgtrickle.db.connect import TRANSACTION, connect
    from pgtrickle.db.discover import find_other_owner
    from pgtrickle.db.version import catalog_version
    from pgtrickle.errors import ConfigError

    with connect(server, role="status", pooler=TRANSACTION) as connection:
        name = connection.info.dbname
        try:
            version = catalog_version(connection)
        except ConfigError as error:
            user = connection.info.user
            owner = find_other_owner(server)
            installed_by = f"; {owner} installed pgtrickle there" if owner is not None else ""
            hint = f"GRANT USAGE ON SCHEMA pgtrickle TO {user}"
            raise ConfigError(f"{name}: {error.message}{installed_by}", hint=hint) from error
    if version is None:
        raise ConfigError(f"pgtrickle is not installed in database {name}", hint=f"pgtrickle install {redact(server)}")
    if (problem := version.problem(name)) is not None:
        raise problem


def print_json(value: Any) -> None:
    json.dump(value, sys.stdout, default=str, indent=2, ensure_ascii=False)
    sys.stdout.write("\n")
