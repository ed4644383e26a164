"""`pgtrickle uninstall`: removes pgtrickle from a database."""

from __future__ import annotations

from typing import Annotated

import typer

from pgtrickle.cli.parameters import Dsn
from pgtrickle.telemetry import redact


def uninstall(
    dsn: Dsn,
    drop_tables: Annotated[
        bool, typer.Option("--drop-tables", help="Also drop the stream tables; without it they remain as plain tables.")
    ] = False,
) -> None:
    """Remove everything that `install` and `run` created."""
    from pgtrickle.db.connect import TRANSACTION, connect
    from pgtrickle.db.install import uninstall as uninstall_objects

    with connect(dsn, role="install", pooler=TRANSACTION, as_service=False) as connection:
        uninstall_objects(connection, drop_tables=drop_tables)
    typer.echo(f"pgtrickle was removed from {redact(dsn)}")
