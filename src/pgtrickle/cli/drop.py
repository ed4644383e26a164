"""`pgtrickle drop`: drops stream tables."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Annotated

import typer

from pgtrickle.cli.author import author_session
from pgtrickle.cli.parameters import Json, Names, Server, print_json

if TYPE_CHECKING:
    from pgtrickle.db.connect import Connection


def drop(
    server: Server,
    names: Names,
    cascade: Annotated[
        bool, typer.Option("--cascade", help="Also drop the stream tables and views that read them.")
    ] = False,
    if_exists: Annotated[bool, typer.Option("--if-exists", help="Ignore names that do not exist.")] = False,
    yes: Annotated[bool, typer.Option("--yes", "-y", help="Drop without confirmation.")] = False,
    as_json: Json = False,
) -> None:
    """Drop stream tables and their content.

    All of them in one transaction. Asks for confirmation on a terminal; elsewhere --yes is required.
    """
    if not yes and (as_json or not sys.stdin.isatty()):
        typer.echo("pgtrickle: nothing was dropped (hint: --yes drops without confirmation)", err=True)
        raise typer.Exit(1)
    if not yes:
        what = "and what reads them " if cascade else ""
        typer.confirm(f"Drop {', '.join(names)} {what}with their content?", abort=True)
    with author_session(server) as conn:
        existing = [(name, not if_exists or _exists(conn, name)) for name in names]
        for name, exists in existing:
            if exists:
                conn.execute("SELECT pgtrickle.drop_stream_table(%s, %s)", (name, cascade))
    if as_json:
        print_json([{"name": name, "dropped": exists} for name, exists in existing])
        return
    for name, exists in existing:
        typer.echo(f"{name}: {'dropped' if exists else 'does not exist'}")


def _exists(conn: Connection, name: str) -> bool:
    """Whether there is a stream table of this name, or a definition that waits for the control plane."""
    text = (
        "SELECT EXISTS (SELECT FROM pgtrickle._parse_name(%(name)s) AS n WHERE "
        "pg_catalog.format('%%I.%%I', n.schema_name, n.table_name) IN "
        "(SELECT s.name FROM pgtrickle.pgt_status() AS s "
        "UNION ALL SELECT d.name FROM pgtrickle.pending_definitions() AS d))"
    )
    row = conn.execute(text, {"name": name}).fetchone()
    return row is not None and bool(row[0])
