"""`pgtrickle status`: the stream tables of a database."""

from __future__ import annotations

from pgtrickle.cli.parameters import Json, Server, print_json, require_installed


def status(server: Server, as_json: Json = False) -> None:
    """Show the stream tables of a database.

    The main columns of pgtrickle.pgt_status(); --json prints all of them.
    """
    from pgtrickle.db.connect import TRANSACTION, connect, translated

    require_installed(server)
    with connect(server, role="status", pooler=TRANSACTION) as connection, translated():
        cursor = connection.execute("SELECT * FROM pgtrickle.pgt_status()")
        names = [column.name for column in cursor.description or ()]
        rows = [dict(zip(names, row, strict=True)) for row in cursor.fetchall()]
        ((served,),) = connection.execute("SELECT pgtrickle._is_served() OR pg_is_in_recovery()").fetchall()
    if as_json:
        print_json(rows)
        return
    from pgtrickle.cli.render import print_status

    print_status(rows, served=served)
