"""`pgtrickle pause` and `pgtrickle resume`: suspend and resume stream tables."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated

import typer

from pgtrickle.cli.author import author_session, status_rows
from pgtrickle.cli.parameters import Json, Server, SomeNames, print_json

Everything = Annotated[bool, typer.Option("--all", help="All stream tables of the database.")]


def pause(server: Server, names: SomeNames = None, everything: Everything = False, as_json: Json = False) -> None:
    """Suspend stream tables: they are not refreshed until they are resumed.

    Changes of their sources are kept. All of them in one transaction.
    """
    _call("suspend_stream_table", server, names, everything=everything, as_json=as_json)


def resume(server: Server, names: SomeNames = None, everything: Everything = False, as_json: Json = False) -> None:
    """Resume suspended or failed stream tables.

    With --all: those in status SUSPENDED or ERROR. All of them in one transaction.
    """
    _call("resume_stream_table", server, names, everything=everything, as_json=as_json)


def _call(function: str, server: str, names: Sequence[str] | None, *, everything: bool, as_json: bool) -> None:
    if bool(names) == everything:
        raise typer.BadParameter("name stream tables, or use --all")
    with author_session(server) as conn:
        if everything:
            statuses = (
                ("SUSPENDED", "ERROR") if function == "resume_stream_table" else ("ACTIVE", "INITIALIZING", "ERROR")
            )
            names = [row["name"] for row in status_rows(conn) if row["status"] in statuses]
        for name in names or ():
            conn.execute(f"SELECT pgtrickle.{function}(%s)", (name,))
        rows = [{"name": row["name"], "status": row["status"]} for row in status_rows(conn, names or ())]
    if as_json:
        print_json(rows)
        return
    for row in rows:
        typer.echo(f"{row['name']}: {row['status']}")
    if not rows:
        typer.echo("no stream table was in a status to change")
