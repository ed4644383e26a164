"""Parameters and output that several commands share."""

from __future__ import annotations

import json
import sys
from typing import Annotated, Any

import typer

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


def print_json(value: Any) -> None:
    json.dump(value, sys.stdout, default=str, indent=2, ensure_ascii=False)
    sys.stdout.write("\n")
