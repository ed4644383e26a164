"""`pgtrickle completion`: the script with which a shell completes commands, options and names."""

from __future__ import annotations

from enum import StrEnum
from typing import Annotated

import typer


class Shell(StrEnum):
    """Shells for which typer has a script."""

    BASH = "bash"
    ZSH = "zsh"
    FISH = "fish"


def completion(shell: Annotated[Shell, typer.Argument(help="The shell.")]) -> None:
    """Print the completion script of a shell.

    For bash: eval "$(pgtrickle completion bash)" in ~/.bashrc. Names of stream tables are completed if --server or
    PGTRICKLE_SERVER is given.
    """
    from typer.completion import get_completion_script  # type: ignore[attr-defined]  # imported there

    script = get_completion_script(prog_name="pgtrickle", complete_var="_PGTRICKLE_COMPLETE", shell=shell.value)
    typer.echo(script)


def stream_tables(ctx: typer.Context, incomplete: str) -> list[str]:
    """Names of stream tables that begin with `incomplete`; none if the server is not reachable: a completion must
    not fail. Names that need quotes are not offered: shells evaluate candidates, and any author chooses names."""
    import os
    import re

    from pgtrickle.errors import PgtrickleError

    server = ctx.params.get("server") or os.environ.get("PGTRICKLE_SERVER")
    if not server:
        return []
    from pgtrickle.db.connect import TRANSACTION, connect, translated

    try:
        with (
            connect(server, role="command", pooler=TRANSACTION) as conn,
            translated(),
        ):
            rows = conn.execute("SELECT name FROM pgtrickle.pgt_status()").fetchall()
    except PgtrickleError:
        return []
    names = [name for (name,) in rows if re.fullmatch(r"\w+\.\w+", name)]
    short = [name.removeprefix("public.") for name in names if name.startswith("public.")]
    return [name for name in (*names, *short) if name.startswith(incomplete)]
