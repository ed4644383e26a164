"""`pgtrickle apply`: creates, alters and drops stream tables so that databases match definition files."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from pgtrickle.cli.exit_status import CHANGES, TRY_AGAIN
from pgtrickle.cli.parameters import Databases, Json, Server, print_json

if TYPE_CHECKING:
    from pgtrickle.definitions.changes import ApplyResult
    from pgtrickle.definitions.definition import DefinitionProblem
    from pgtrickle.definitions.fleet import PlannedApply

Folder = Annotated[
    Path, typer.Option("-f", "--folder", help="A folder or a single file with definitions.", metavar="DIR")
]


def apply(
    server: Server,
    folder: Folder,
    database: Databases = None,
    plan: Annotated[
        bool, typer.Option("--plan", help="Only show the plan. Exit status 2 if there are changes.")
    ] = False,
    yes: Annotated[bool, typer.Option("--yes", "-y", help="Apply without confirmation.")] = False,
    prune: Annotated[
        bool, typer.Option("--prune", help="Drop stream tables that this set created and no longer defines.")
    ] = False,
    replace: Annotated[
        bool,
        typer.Option(
            "--replace", help="Drop and create a table again when others of the set read columns that change."
        ),
    ] = False,
    adopt: Annotated[
        bool,
        typer.Option(
            "--adopt",
            help="Adopt stream tables that were created by hand or by another set, so that --prune may drop them.",
        ),
    ] = False,
    set_name: Annotated[
        str | None,
        typer.Option("--as", help="Name of the set. Default: `set` in a TOML file, or the name of the folder."),
    ] = None,
    as_json: Json = False,
) -> None:
    """Create, alter and drop stream tables as defined in files.

    Shows the plan, asks for confirmation, and applies it in one transaction per database.
    """
    if plan and yes:
        raise typer.BadParameter("use either --plan or --yes")
    from pgtrickle.cli.apply_output import confirm, print_outcomes, summary
    from pgtrickle.cli.render import working
    from pgtrickle.definitions.fleet import databases, plan_all, targets
    from pgtrickle.definitions.read import read_set
    from pgtrickle.definitions.tables import Policy

    definition_set, problems = read_set(folder, set_name)
    _exit_on_problems(problems)
    target_databases, problems_of_globs = targets(definition_set, databases(server, database or ()), everywhere=prune)
    _exit_on_problems(problems_of_globs)
    with working("comparing"):
        planned = plan_all(server, definition_set, target_databases, Policy(prune=prune, replace=replace, adopt=adopt))
    results = planned.results
    if not as_json:
        print_outcomes(definition_set, results)
    if planned.has_changes and not plan:
        if not yes and not confirm(possible=not as_json):
            raise typer.Exit(1)
        results = _carry_out(planned)
        if not as_json:
            typer.echo(summary(results))
    if as_json:
        print_json({"set": definition_set.name, "databases": [result.as_json() for result in results]})
    _exit(results, CHANGES if plan and planned.has_changes else 0)


def _exit_on_problems(problems: Sequence[DefinitionProblem]) -> None:
    from pgtrickle.cli.apply_output import print_problems

    if problems:
        print_problems(problems)
        raise typer.Exit(1)


def _carry_out(planned: PlannedApply) -> list[ApplyResult]:
    """Applies the plan. Prints errors, except those of databases whose plan already had errors."""
    from pgtrickle.cli.apply_output import print_errors
    from pgtrickle.cli.render import working

    failed = {result.database for result in planned.results if result.errors}
    with working("applying"):
        results = planned.carry_out()
    print_errors([result for result in results if result.database not in failed])
    return results


def _exit(outcomes: list[ApplyResult], status_without_errors: int) -> None:
    failed = [outcome for outcome in outcomes if outcome.errors]
    if failed:
        raise typer.Exit(TRY_AGAIN if all(outcome.transient for outcome in failed) else 1)
    if status_without_errors:
        raise typer.Exit(status_without_errors)
