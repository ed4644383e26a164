"""`pgtrickle apply` and `pgtrickle export`: definitions that are kept in files."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from pgtrickle.cli.parameters import Json, Server, print_json

if TYPE_CHECKING:
    from pgtrickle.definitions.changes import ApplyResult
    from pgtrickle.definitions.fleet import PlannedApply
    from pgtrickle.definitions.wanted import DefinitionProblem

EXIT_CHANGES = 2
EXIT_TRY_AGAIN = 75

Folder = Annotated[Path, typer.Option("-f", "--folder", help="A folder, or a single file.", metavar="DIR")]
Only = Annotated[
    list[str] | None,
    typer.Option(
        "--database", help="A database, or a glob; may be given again. Default: that of the DSN.", metavar="NAME"
    ),
]


def apply(
    server: Server,
    folder: Folder,
    database: Only = None,
    plan: Annotated[bool, typer.Option("--plan", help="Only show it. Exit status 2: there are changes.")] = False,
    yes: Annotated[bool, typer.Option("--yes", "-y", help="Do not ask.")] = False,
    prune: Annotated[
        bool, typer.Option("--prune", help="Drop what this set has created and no longer defines.")
    ] = False,
    replace: Annotated[
        bool, typer.Option("--replace", help="Drop and create anew where columns change that others of the set read.")
    ] = False,
    adopt: Annotated[
        bool,
        typer.Option("--adopt", help="Take over what was made by hand or by another set, so that --prune may drop it."),
    ] = False,
    set_name: Annotated[
        str | None, typer.Option("--as", help="Name of the set. Default: `set` in a TOML file, or the folder's name.")
    ] = None,
    as_json: Json = False,
) -> None:
    """Bring databases to what the files of a folder define.

    Shows what it would create, alter or drop, asks, and does it in one transaction per database.
    """
    if plan and yes:
        raise typer.BadParameter("give --plan or --yes, not both")
    from pgtrickle.cli.changes import ask, print_outcomes, summary
    from pgtrickle.cli.render import working
    from pgtrickle.definitions.fleet import databases, plan_all, targets
    from pgtrickle.definitions.read import read_set
    from pgtrickle.definitions.tables import Policy

    wanted, problems = read_set(folder, set_name)
    _refuse(problems)
    chosen, problems_of_globs = targets(wanted, databases(server, database or ()), everywhere=prune)
    _refuse(problems_of_globs)
    with working("comparing"):
        planned = plan_all(server, wanted, chosen, Policy(prune=prune, replace=replace, adopt=adopt))
    results = planned.results
    if not as_json:
        print_outcomes(wanted, results)
    if planned.has_changes and not plan:
        if not yes and not ask(possible=not as_json):
            raise typer.Exit(1)
        results = _carried_out(planned)
        if not as_json:
            typer.echo(summary(results))
    if as_json:
        print_json({"set": wanted.name, "databases": [result.as_json() for result in results]})
    _exit(results, EXIT_CHANGES if plan and planned.has_changes else 0)


def export(
    server: Server,
    folder: Annotated[Path, typer.Option("-f", "--folder", help="Where the files go.", metavar="DIR")],
    database: Only = None,
    overwrite: Annotated[bool, typer.Option("--overwrite", help="Replace files that are there.")] = False,
) -> None:
    """Write what databases have as files for apply."""
    from pgtrickle.definitions.export import collect, files_of
    from pgtrickle.definitions.fleet import databases
    from pgtrickle.errors import ConfigError

    found, sets = collect(server, databases(server, database or ()))
    files = files_of(found, sets, name_databases=bool(database))
    for name in files:
        if (folder / name).exists() and not overwrite:
            raise ConfigError(f"{folder / name} exists", hint="choose another folder, or give --overwrite")
    folder.mkdir(parents=True, exist_ok=True)
    for name, text in files.items():
        (folder / name).write_text(text, encoding="utf-8", newline="\n")
        typer.echo(str(folder / name))
    if not files:
        typer.echo("there is no stream table", err=True)


def _refuse(problems: Sequence[DefinitionProblem]) -> None:
    from pgtrickle.cli.changes import complain

    if problems:
        complain(problems)
        raise typer.Exit(1)


def _carried_out(planned: PlannedApply) -> list[ApplyResult]:
    """Errors that the plan has shown are not shown again."""
    from pgtrickle.cli.changes import complain_of
    from pgtrickle.cli.render import working

    failed = {result.database for result in planned.results if result.errors}
    with working("applying"):
        results = planned.carry_out()
    complain_of([result for result in results if result.database not in failed])
    return results


def _exit(outcomes: list[ApplyResult], otherwise: int) -> None:
    failed = [outcome for outcome in outcomes if outcome.errors]
    if failed:
        raise typer.Exit(EXIT_TRY_AGAIN if all(outcome.transient for outcome in failed) else 1)
    if otherwise:
        raise typer.Exit(otherwise)
