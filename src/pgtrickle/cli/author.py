"""A session with the role and the settings of the user, as psql has it: the meaning of a query depends on both."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import typer

from pgtrickle.cli.parameters import require_installed

if TYPE_CHECKING:
    from pgtrickle.db.connect import Connection

# Settings that `connect` pins, and that are stored with a definition: here the role's own values apply.
_AUTHOR_SETTINGS = ("search_path", "datestyle", "intervalstyle", "extra_float_digits", "bytea_output")


@contextmanager
def author_session(server: str) -> Iterator[Connection]:
    """One transaction as the role of the DSN with its own settings. Notices of the server go to standard error."""
    from pgtrickle.db.connect import TRANSACTION, connect, translated
    from pgtrickle.db.notices import report_notices

    require_installed(server)
    with connect(server, role="command", pooler=TRANSACTION, as_service=False) as conn, translated():
        report_notices(conn, lambda line: typer.echo(f"pgtrickle: {line}", err=True))
        with conn.transaction():
            conn.execute("; ".join(f"SET LOCAL {name} TO DEFAULT" for name in _AUTHOR_SETTINGS))
            yield conn


def status_rows(conn: Connection, names: Sequence[str] | None = None) -> list[dict[str, Any]]:
    """The rows of `pgtrickle status` for these stream tables, or for all if `names` is None."""
    from pgtrickle.db.statements import statement

    rows = rows_of(conn, statement("status_rows"))
    if names is None:
        return rows
    ids = [conn.execute("SELECT pgtrickle._find(%s)", (name,)).fetchone() for name in names]
    selected = {row[0] for row in ids if row is not None}
    return [row for row in rows if row["pgt_id"] in selected]


def rows_of(conn: Connection, text: str, values: Mapping[str, Any] | Sequence[Any] = ()) -> list[dict[str, Any]]:
    cursor = conn.execute(text, values or None)
    columns = [column.name for column in cursor.description or ()]
    return [dict(zip(columns, row, strict=True)) for row in cursor.fetchall()]
