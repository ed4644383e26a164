"""`pgtrickle export`: writes the stream tables of databases to definition files."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from pgtrickle.cli.parameters import Databases, Json, Server, print_json


def export(
    server: Server,
    folder: Annotated[Path, typer.Option("-f", "--folder", help="Folder to write the files to.", metavar="DIR")],
    database: Databases = None,
    overwrite: Annotated[bool, typer.Option("--overwrite", help="Replace existing files.")] = False,
    as_json: Json = False,
) -> None:
    """Write the stream tables of databases to files for `apply`."""
    from pgtrickle.definitions.export import collect, files_of
    from pgtrickle.definitions.fleet import databases
    from pgtrickle.errors import ConfigError

    exported, sets = collect(server, databases(server, database or ()))
    files = files_of(exported, sets, name_databases=bool(database))
    for name in files:
        if (folder / name).exists() and not overwrite:
            raise ConfigError(f"{folder / name} exists", hint="choose another folder, or use --overwrite")
    folder.mkdir(parents=True, exist_ok=True)
    for name, text in files.items():
        (folder / name).write_text(text, encoding="utf-8", newline="\n")
        if not as_json:
            typer.echo(str(folder / name))
    if as_json:
        print_json([str(folder / name) for name in files])
    elif not files:
        typer.echo("no stream tables", err=True)
