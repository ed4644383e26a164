"""`pgtrickle detach`: removes readers in databases that no longer exist."""

from __future__ import annotations

from typing import Annotated

import typer

from pgtrickle.cli.parameters import Json, Server, print_json, require_installed


def detach(
    server: Server,
    database: Annotated[str, typer.Argument(help="The removed database whose mirrors read from this one.")],
    of_server: Annotated[
        str | None, typer.Option(help="host:port of the removed database; empty for the server of this one.")
    ] = None,
    mirror: Annotated[int | None, typer.Option(help="Only the mirror with this number.")] = None,
    key: Annotated[str | None, typer.Option(help="Key of the reader, if two databases had this name.")] = None,
    as_json: Json = False,
) -> None:
    """Remove the readers of a database that no longer exists.

    Permanent: change buffers are no longer kept for them.
    """
    from pgtrickle.db.connect import TRANSACTION, connect, translated

    require_installed(server)
    with connect(server, role="detach", pooler=TRANSACTION) as connection, translated():
        row = connection.execute(
            "SELECT pgtrickle.detach_reader(%s, %s, %s, %s)", (database, of_server, mirror, key)
        ).fetchone()
        connection.commit()
    number = row[0] if row is not None else 0
    if as_json:
        print_json({"database": database, "detached": number})
    else:
        typer.echo(
            f"{number} readers of database {database} were detached; if it returns, its mirrors are loaded again"
        )
