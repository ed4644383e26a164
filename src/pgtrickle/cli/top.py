"""`pgtrickle top`: the stream tables of a database, live."""

from __future__ import annotations

import sys
import time
from typing import TYPE_CHECKING, Annotated, Any

import typer

from pgtrickle.cli.parameters import Server, require_installed

if TYPE_CHECKING:
    from rich.console import Group

    from pgtrickle.cli.top_view import TopView
    from pgtrickle.db.connect import Connection


def top(
    server: Server,
    interval: Annotated[float, typer.Option(help="Seconds between two reads.", min=0.1)] = 1.0,
) -> None:
    """Show the stream tables of a database live, in a terminal.

    Keys: q quit, s sort by the next column, r reverse, / filter, arrows select, Enter details, Esc back.
    """
    if not (sys.stdin.isatty() and sys.stdout.isatty()):
        typer.echo("pgtrickle: top needs a terminal (hint: pgtrickle status --json)", err=True)
        raise typer.Exit(1)
    require_installed(server)
    from rich.console import Console
    from rich.live import Live

    from pgtrickle.cli.keyboard import keyboard
    from pgtrickle.cli.top_view import TopView, page_of

    view, console = TopView(), Console(highlight=False, markup=False, emoji=False)
    source = _Source(server)
    try:
        with keyboard(sys.stdin.fileno()) as keys, Live(console=console, screen=True, auto_refresh=False) as live:
            read_at = float("-inf")
            while not view.is_done:
                if time.monotonic() - read_at >= interval:
                    source.read()
                    read_at = time.monotonic()
                live.update(source.render(view, console.height, console.width), refresh=True)
                for key in keys.keys(read_at + interval - time.monotonic()):
                    view.press(key, source.rows, page_of(console.height))
    except EOFError:
        return  # the terminal is gone
    finally:
        source.close()


class _Source:
    """The rows that were read last. An error of the server is shown in the title; the next read connects again."""

    def __init__(self, server: str) -> None:
        self._server = server
        self._conn: Connection | None = None
        self.rows: list[dict[str, Any]] = []
        self._title = ""
        self._detail: tuple[str, list[str]] | None = None

    def read(self) -> None:
        from pgtrickle.cli.author import rows_of
        from pgtrickle.db.connect import TRANSACTION, connect, translated
        from pgtrickle.db.statements import statement
        from pgtrickle.errors import PgtrickleError

        self._detail = None
        try:
            with translated():
                if self._conn is None:
                    self._conn = connect(self._server, role="status", autocommit=True, pooler=TRANSACTION)
                self.rows = rows_of(self._conn, statement("top_tables"))
                ((served,),) = self._conn.execute("SELECT pgtrickle._is_served() OR pg_is_in_recovery()").fetchall()
            state = "" if served else "  no scheduler is connected (pgtrickle run)"
            self._title = f"{self._conn.info.dbname}  {time.strftime('%H:%M:%S')}{state}"
        except PgtrickleError as error:
            self._title = error.one_line()
            self.close()

    def render(self, view: TopView, height: int, width: int) -> Group:
        from pgtrickle.cli.top_view import render_detail, render_list

        if view.detail is None:
            return render_list(view, self.rows, self._title, height, width)
        if self._detail is None or self._detail[0] != view.detail:
            self._detail = view.detail, self._details(view.detail)
        return render_detail(view, self._detail[1], height)

    def _details(self, name: str) -> list[str]:
        from pgtrickle.cli.show import detail_lines, read_details
        from pgtrickle.db.connect import translated
        from pgtrickle.errors import PgtrickleError

        if self._conn is None:
            return [self._title]
        try:
            with translated():
                return list(detail_lines(read_details(self._conn, name)))
        except PgtrickleError as error:
            return [error.one_line()]

    def close(self) -> None:
        if self._conn is not None:
            self._conn.close()
        self._conn = None
