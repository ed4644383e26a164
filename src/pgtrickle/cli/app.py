"""The command-line application: global options and the list of commands, each of which is a module of this package.

Commands import heavy packages inside their functions, so that --help is fast.
"""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from pgtrickle import __version__
from pgtrickle.cli.apply import apply
from pgtrickle.cli.config import config
from pgtrickle.cli.demo import demo
from pgtrickle.cli.detach import detach
from pgtrickle.cli.doctor import doctor
from pgtrickle.cli.export import export
from pgtrickle.cli.install import install
from pgtrickle.cli.options import options, parse_assignments
from pgtrickle.cli.plan import plan
from pgtrickle.cli.refresh import refresh
from pgtrickle.cli.run import run
from pgtrickle.cli.status import status
from pgtrickle.cli.uninstall import uninstall
from pgtrickle.cli.verify import verify

app = typer.Typer(
    help="Stream tables for PostgreSQL: tables defined by a query, maintained from changes.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,
    context_settings={"help_option_names": ["-h", "--help"]},
)


def _version(requested: bool) -> None:
    if requested:
        typer.echo(f"pgtrickle {__version__}")
        raise typer.Exit


@app.callback()
def _main(
    config: Annotated[Path | None, typer.Option(envvar="PGTRICKLE_CONFIG", help="A TOML file with settings.")] = None,
    assignments: Annotated[
        list[str] | None,
        typer.Option("--set", help="Set a setting for this command, name=value.", metavar="NAME=VALUE"),
    ] = None,
    profile: Annotated[
        str | None, typer.Option(help="low-latency, high-throughput or resource-constrained: a set of settings.")
    ] = None,
    log_format: Annotated[str | None, typer.Option(help="text or json.")] = None,
    log_level: Annotated[str | None, typer.Option(help="debug, info, warning or error.")] = None,
    debug: Annotated[bool, typer.Option("--debug", help="Show the traceback of an error.")] = False,  # noqa: ARG001
    version: Annotated[  # noqa: ARG001  -- acts in its callback, as --debug does in main()
        bool, typer.Option("--version", callback=_version, is_eager=True, help="Print the version.")
    ] = False,
) -> None:
    options.config = config
    options.profile = profile
    options.flags = parse_assignments(assignments or [])
    if log_format:
        options.flags["log_format"] = log_format
    if log_level:
        options.flags["log_level"] = log_level


# In the order of --help.
COMMANDS = (
    install,
    uninstall,
    run,
    refresh,
    verify,
    plan,
    status,
    detach,
    config,
    demo,
    doctor,
    apply,
    export,
)
for _command in COMMANDS:
    app.command()(_command)
