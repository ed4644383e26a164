"""`pgtrickle server`: servers of the fleet."""

from __future__ import annotations

from typing import Annotated

import typer

from pgtrickle.cli.parameters import Json, Others, Server, print_json

server = typer.Typer(help="Servers of the fleet.", no_args_is_help=True)


@server.command()
def move(
    old: Annotated[str, typer.Argument(help="The former address, host:port.", metavar="OLD")],
    new: Annotated[str, typer.Argument(help="The new address, host:port.", metavar="NEW")],
    server: Server,
    others: Others = None,
    as_json: Json = False,
) -> None:
    """Read the tables of a server at another address, after a failover for example.

    In all databases of the given servers that have mirrors of its tables. Then start `pgtrickle run` with
    the new address.
    """
    from pgtrickle.process.move_server import move_server

    moved = move_server([server, *(others or [])], old, new)
    if as_json:
        print_json({"old": old, "new": new, "moved": moved})
        return
    for database, number in moved.items():
        typer.echo(f"{database}: {number} mirrors and readers moved from {old} to {new}")
    if not any(moved.values()):
        typer.echo(f"nothing is read from {old}: pgtrickle.pgt_mirrors has the addresses in use")
        raise typer.Exit(1)
