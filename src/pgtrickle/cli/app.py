"""The command-line application: global options and the list of commands, each of which is a module of this package.

Commands import heavy packages inside their functions, so that --help is fast.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Annotated

import typer

from pgtrickle import __version__
from pgtrickle.cli.apply import apply
from pgtrickle.cli.completion import completion
from pgtrickle.cli.config import config
from pgtrickle.cli.create import create
from pgtrickle.cli.demo import demo
from pgtrickle.cli.detach import detach
from pgtrickle.cli.doctor import doctor
from pgtrickle.cli.drop import drop
from pgtrickle.cli.export import export
from pgtrickle.cli.init import init
from pgtrickle.cli.install import install
from pgtrickle.cli.list_tables import list_
from pgtrickle.cli.options import options, parse_assignments
from pgtrickle.cli.pause import pause, resume
from pgtrickle.cli.plan import plan
from pgtrickle.cli.refresh import refresh
from pgtrickle.cli.replica import replica
from pgtrickle.cli.run import run
from pgtrickle.cli.server import server
from pgtrickle.cli.show import show
from pgtrickle.cli.status import status
from pgtrickle.cli.top import top
from pgtrickle.cli.uninstall import uninstall
from pgtrickle.cli.verify import verify
from pgtrickle.telemetry import set_up_logging

app = typer.Typer(
    help="Stream tables for PostgreSQL: tables defined by a query, maintained from changes.",
    no_args_is_help=True,
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
    if (log_format or os.environ.get("PGTRICKLE_LOG_FORMAT")) == "json":
        set_up_logging("warning", "json")  # for an error before all settings are known


# In the order of --help, by the name on the command line.
COMMANDS: Mapping[str, Callable[..., None]] = {
    "init": init,
    "install": install,
    "uninstall": uninstall,
    "run": run,
    "create": create,
    "drop": drop,
    "list": list_,
    "show": show,
    "status": status,
    "top": top,
    "refresh": refresh,
    "pause": pause,
    "resume": resume,
    "verify": verify,
    "plan": plan,
    "apply": apply,
    "export": export,
    "doctor": doctor,
    "config": config,
    "detach": detach,
    "demo": demo,
    "completion": completion,
}
for _name, _command in COMMANDS.items():
    app.command(_name)(_command)
app.add_typer(replica, name="replica")
app.add_typer(server, name="server")
