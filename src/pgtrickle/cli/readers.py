"""`pgtrickle detach`: readers in other databases that will not come back."""

from __future__ import annotations

from typing import Annotated

import typer

from pgtrickle.cli.parameters import Json, Server, print_json


def detach(
    server: Server,
    database: Annotated[str, typer.Argument(help="The database that is gone and whose mirrors read this one.")],
    of_server: Annotated[
        str | None, typer.Option(help="host:port of that database; empty for the server of this one.")
    ] = None,
    mirror: Annotated[int | None, typer.Option(help="Only this mirror, by its number.")] = None,
    key: Annotated[str | None, typer.Option(help="Which, where two databases have had the name.")] = None,
    as_json: Json = False,
) -> None:
    """Forget the readers of a database that is gone.

    For good: change buffers no longer wait for it.
    """
    from pgtrickle.db.connect import TRANSACTION, connect, translated

    with connect(server, role="detach", pooler=TRANSACTION) as connection, translated():
        row = connection.execute(
            "SELECT pgtrickle.detach_reader(%s, %s, %s, %s)", (database, of_server, mirror, key)
        ).fetchone()
        connection.commit()
    number = row[0] if row is not None else 0
    if as_json:
        print_json({"database": database, "detached": number})
    else:
        typer.echo(f"{number} readers of database {database} are detached; if it comes back, they are loaded anew")
