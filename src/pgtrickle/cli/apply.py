"""`pgtrickle apply`: creates, alters and drops stream tables so that databases match definition files."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from pgtrickle.cli.parameters import Databases, Json, Server, print_json

if TYPE_CHECKING:
    from pgtrickle.definitions.changes import ApplyResult

EXIT_CHANGES = 2
EXIT_TRY_AGAIN = 75

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
    from pgtrickle.cli.apply_output import confirm, print_errors, print_outcomes, print_problems, summary
    from pgtrickle.cli.render import working
    from pgtrickle.definitions.fleet import carry_out, databases, targets
    from pgtrickle.definitions.fleet import plan as plan_one
    from pgtrickle.definitions.read import read_set
    from pgtrickle.definitions.tables import Policy

    wanted, problems = read_set(folder, set_name)
    if problems:
        print_problems(problems)
        raise typer.Exit(1)
    policy = Policy(prune=prune, replace=replace, adopt=adopt)
    chosen, problems_of_globs = targets(wanted, databases(server, database or ()), everywhere=prune)
    if problems_of_globs:
        print_problems(problems_of_globs)
        raise typer.Exit(1)
    with working("comparing"):
        planned = [(target, plan_one(server, wanted, target, policy)) for target in chosen]
    visited = [(target, outcome) for target, outcome in planned if outcome is not None]
    outcomes = [outcome for _, outcome in visited]
    changes = any(outcome.changes for outcome in outcomes)
    if not as_json:
        print_outcomes(wanted, outcomes)
    if changes and not plan:
        if not yes and not confirm(possible=not as_json):
            raise typer.Exit(1)
        failed = {outcome.database for outcome in outcomes if outcome.errors}
        with working("applying"):
            outcomes = [
                carry_out(server, wanted, target, policy, outcome) if outcome.changes else outcome
                for target, outcome in visited
            ]
        print_errors([outcome for outcome in outcomes if outcome.database not in failed])
        if not as_json:
            typer.echo(summary(outcomes))
    if as_json:
        print_json({"set": wanted.name, "databases": [outcome.as_json() for outcome in outcomes]})
    _exit(outcomes, EXIT_CHANGES if plan and changes else 0)


def _exit(outcomes: list[ApplyResult], otherwise: int) -> None:
    failed = [outcome for outcome in outcomes if outcome.errors]
    if failed:
        raise typer.Exit(EXIT_TRY_AGAIN if all(outcome.transient for outcome in failed) else 1)
    if otherwise:
        raise typer.Exit(otherwise)
