"""`pgtrickle demo`: a demonstration on an embedded PostgreSQL and Spark."""

from __future__ import annotations

from typing import Annotated

import typer

from pgtrickle.cli.options import options


def demo(
    seconds: Annotated[
        int | None,
        typer.Option(envvar="DEMO_SECONDS", min=1, help="Stop after this number of seconds; default: until Ctrl-C."),
    ] = None,
    http: Annotated[
        str | None,
        typer.Option(help="Address of the web UI; default: 127.0.0.1:8321, or a free port.", metavar="HOST:PORT"),
    ] = None,
) -> None:
    """Run a demonstration on an embedded PostgreSQL and Spark.

    A shop workload writes, stream tables are refreshed, and the result is verified.
    """
    from pgtrickle.demo.run import run_demo

    raise typer.Exit(run_demo(options.load().settings, seconds, http))
