"""`pgtrickle uninstall`: removes pgtrickle from a database."""

from __future__ import annotations

import os
from collections.abc import Iterator
from dataclasses import asdict
from typing import TYPE_CHECKING, Annotated

import typer

from pgtrickle.cli.options import options
from pgtrickle.cli.parameters import Dsn, Json, print_json
from pgtrickle.telemetry import redact

if TYPE_CHECKING:
    from pgtrickle.db.connect import Connection
    from pgtrickle.db.install import Installed
    from pgtrickle.errors import PgtrickleError


def uninstall(
    dsn: Dsn,
    drop_tables: Annotated[
        bool, typer.Option("--drop-tables", help="Also drop the stream tables; without it they remain as plain tables.")
    ] = False,
    yes: Annotated[bool, typer.Option("--yes", "-y", help="Do not ask.")] = False,
    as_json: Json = False,
) -> None:
    """Remove everything that `install` and `run` created, replicas in replica_root included.

    Lists what will be removed and which databases read this one, and asks. The role that `install` created is dropped
    when nothing belongs to it any more.
    """
    if as_json and not yes:
        raise typer.BadParameter("--json needs --yes, because it asks nothing")
    from pgtrickle.db.connect import TRANSACTION, connect
    from pgtrickle.db.install import drop_service_role, installed_objects
    from pgtrickle.db.install import uninstall as uninstall_objects
    from pgtrickle.db.statements import statement
    from pgtrickle.errors import ConfigError

    with connect(dsn, role="install", pooler=TRANSACTION, as_service=False) as connection:
        other = connection.execute(statement("installed_by_other")).fetchone()
        if other is not None:
            raise ConfigError(
                f"{other[0]} installed pgtrickle in database {connection.info.dbname}",
                hint=f"connect as {other[0]}, as a member of that role or as a superuser",
            )
        installed = installed_objects(connection)
        connection.commit()
        if installed is None:
            raise ConfigError(f"pgtrickle is not installed in database {connection.info.dbname}")
        for line in () if as_json else _removed_lines(installed, drop_tables=drop_tables):
            typer.echo(line)
        if not yes:
            typer.confirm(f"Remove pgtrickle from {redact(dsn)}?", abort=True)
        owner = connection.execute(statement("installed_by")).fetchone()
        uninstall_objects(connection, drop_tables=drop_tables)
        connection.commit()
        remaining = _remove_replica_files(connection)
        kept = drop_service_role(connection, owner[0]) if owner is not None else None
        connection.commit()
    if as_json:
        print_json({**asdict(installed), "dropped_tables": drop_tables, "kept": kept})
        if remaining is not None:
            raise remaining
        return
    if kept is not None:
        typer.echo(kept)
    typer.echo(f"pgtrickle was removed from {redact(dsn)}")
    if remaining is not None:
        raise remaining


def _remove_replica_files(connection: Connection) -> PgtrickleError | None:
    """Deletes the files of replicas; returns the error if some remain."""
    from pgtrickle.errors import ConfigError, PgtrickleError
    from pgtrickle.replica.drop import remove_files
    from pgtrickle.replica.roots import root_of

    root = root_of(options.load().settings.replica_root, os.environ)
    try:
        remove_files(connection, root)
    except PgtrickleError as error:
        return ConfigError(f"files of replicas remain: {error.message}", hint="delete them in replica_root")
    return None


def _removed_lines(installed: Installed, *, drop_tables: bool) -> Iterator[str]:
    fate = "are dropped" if drop_tables else "stay as plain tables and are no longer refreshed"
    for names, text in (
        (installed.stream_tables, f"stream tables that {fate}"),
        (installed.sources, "tables whose changes are no longer captured"),
        (installed.publications, "publications that are dropped"),
        (installed.subscribers, "subscribers that are removed"),
        (installed.readers, "other databases that read tables of this one and get no more changes"),
    ):
        if names:
            yield f"{len(names)} {text}: {', '.join(names)}"
