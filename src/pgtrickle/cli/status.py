"""`pgtrickle status`: the stream tables of a database."""

from __future__ import annotations

import typer

from pgtrickle.cli.parameters import Json, Server, print_json, require_installed


def status(server: Server, as_json: Json = False) -> None:
    """Show the stream tables of a database.

    The main columns of pgtrickle.pgt_status() and the lag behind the sources; --json prints all of them. The exit
    status is 1 if one is in status ERROR or SUSPENDED.
    """
    from pgtrickle.cli.author import rows_of, status_rows
    from pgtrickle.db.connect import TRANSACTION, connect, translated
    from pgtrickle.db.statements import statement

    require_installed(server)
    with connect(server, role="status", pooler=TRANSACTION) as connection, translated():
        rows = status_rows(connection)
        loads = {load["pgt_id"]: load for load in rows_of(connection, "SELECT * FROM pgtrickle.load_progress()")}
        ((served,),) = connection.execute("SELECT pgtrickle._is_served() OR pg_is_in_recovery()").fetchall()
        other = connection.execute(statement("installed_by_other")).fetchone()
    for row in rows:
        row["load"] = loads.get(row["pgt_id"])
    if as_json:
        print_json(rows)
    else:
        from pgtrickle.cli.render import print_status

        print_status(rows, served=served, owner=other[0] if other else None)
    if any(row["status"] in ("ERROR", "SUSPENDED") for row in rows):
        raise typer.Exit(1)
