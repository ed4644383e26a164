"""`pgtrickle list`: the stream tables of a database."""

from __future__ import annotations

from fnmatch import fnmatchcase
from typing import Annotated

import typer

from pgtrickle.cli.author import author_session, status_rows
from pgtrickle.cli.parameters import Json, Server, print_json


def list_(
    server: Server,
    pattern: Annotated[str, typer.Argument(help="A glob for schema.name, or for the name alone.")] = "*",
    status: Annotated[str | None, typer.Option(help="Only ACTIVE, ERROR, SUSPENDED or INITIALIZING.")] = None,
    as_json: Json = False,
) -> None:
    """List stream tables.

    Always succeeds if it can read them; `pgtrickle status` also shows errors and reports them by its exit status.
    """
    with author_session(server) as conn:
        rows = [row for row in status_rows(conn) if _matches(row["name"], pattern)]
    if status is not None:
        rows = [row for row in rows if row["status"] == status.upper()]
    if as_json:
        print_json(rows)
        return
    from pgtrickle.cli.render import age_text, lag_text, print_unbroken

    columns = ["stream table", "status", "mode", "engine", "schedule", "lag", "refreshed"]
    shown = [
        [
            row["name"],
            row["status"],
            row["effective_refresh_mode"],
            row["last_engine"],
            row["schedule"],
            lag_text(row["behind_seconds"]),
            age_text(row["last_refresh_at"]),
        ]
        for row in rows
    ]
    print_unbroken(columns, shown)


def _matches(name: str, pattern: str) -> bool:
    return fnmatchcase(name, pattern) or fnmatchcase(name.partition(".")[2], pattern)
