"""`pgtrickle create`: creates a stream table."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from pgtrickle.cli.author import author_session, status_rows
from pgtrickle.cli.parameters import Json, Server, Timeout, print_json

if TYPE_CHECKING:
    from pgtrickle.db.connect import Connection


def create(
    server: Server,
    name: Annotated[str, typer.Argument(help="Name of the stream table, with schema unless the first of search_path.")],
    query: Annotated[str | None, typer.Option("--query", "-q", help="The defining query.")] = None,
    file: Annotated[
        Path | None,
        typer.Option("--file", "-f", help="A file with the defining query; - for standard input.", metavar="FILE"),
    ] = None,
    schedule: Annotated[
        str | None, typer.Option(help="30s, 1h30m, cron, or calculated (the default): whenever a source changes.")
    ] = None,
    mode: Annotated[
        str | None, typer.Option(help="AUTO, DIFFERENTIAL, FULL or IMMEDIATE (asynchronous, right after the commit).")
    ] = None,
    engine: Annotated[str | None, typer.Option(help="auto, postgres or spark.")] = None,
    option: Annotated[
        list[str] | None,
        typer.Option(help="Another option of create_stream_table(); repeat for several.", metavar="NAME=VALUE"),
    ] = None,
    if_not_exists: Annotated[bool, typer.Option("--if-not-exists", help="Keep an existing stream table.")] = False,
    or_replace: Annotated[bool, typer.Option("--or-replace", help="Change an existing stream table.")] = False,
    wait: Annotated[bool, typer.Option("--wait", help="Return when it is loaded; shows the progress.")] = False,
    timeout: Timeout = None,
    as_json: Json = False,
) -> None:
    """Create a stream table.

    PostgreSQL checks the query in the call. `pgtrickle run` loads the table.
    """
    if if_not_exists and or_replace:
        raise typer.BadParameter("use either --if-not-exists or --or-replace")
    text = _query(query, file)
    options = _options(option or []) | {
        key: value
        for key, value in (("schedule", schedule), ("refresh_mode", mode), ("engine", engine))
        if value is not None
    }
    function = "create_or_replace_stream_table" if or_replace else "create_stream_table"
    if if_not_exists:
        function = "create_stream_table_if_not_exists"
    with author_session(server) as conn:
        arguments = "".join(f", {key} => %({key})s" for key in options)
        values = {**options, "pgt_name": name, "pgt_query": text}
        conn.execute(f"SELECT pgtrickle.{function}(%(pgt_name)s, %(pgt_query)s{arguments})", values)
        full_name = _full_name(conn, name)
    if wait:
        from pgtrickle.cli.loading import wait_until_loaded

        wait_until_loaded(server, full_name, timeout)
    with author_session(server) as conn:
        rows = status_rows(conn)
    _print(full_name, next((row for row in rows if row["name"] == full_name), None), as_json=as_json)


def _query(query: str | None, file: Path | None) -> str:
    if (query is None) == (file is None):
        raise typer.BadParameter("use --query or --file")
    if query is not None:
        return query
    assert file is not None
    if str(file) == "-":
        return sys.stdin.read()
    try:
        return file.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise typer.BadParameter(f"cannot read {file}: {error}") from error


def _options(pairs: list[str]) -> dict[str, Any]:
    from pgtrickle.definitions.definition import OPTIONS, nearest, option_value

    options: dict[str, Any] = {}
    known = OPTIONS.keys() - {"tier"}  # only alter_stream_table has it
    for pair in pairs:
        key, equals, value = pair.partition("=")
        key = key.strip()
        if not equals or key not in known:
            raise typer.BadParameter(f"--option {pair}: write NAME=VALUE; {nearest(key, known)}")
        try:
            options[key] = option_value(key, value.strip())
        except ValueError as error:
            raise typer.BadParameter(f"--option {pair}: it must be {error}") from error
    return options


def _full_name(conn: Connection, name: str) -> str:
    text = "SELECT pg_catalog.format('%%I.%%I', n.schema_name, n.table_name) FROM pgtrickle._parse_name(%s) AS n"
    row = conn.execute(text, (name,)).fetchone()
    assert row is not None
    return str(row[0])


def _print(name: str, row: dict[str, Any] | None, *, as_json: bool) -> None:
    if as_json:
        print_json(row if row is not None else {"name": name, "status": "WAITING"})
    elif row is None:
        typer.echo(f"{name}: the control plane validates the definition, because it reads other databases")
    else:
        from pgtrickle.cli.render import because

        state = row["status"] if row["is_populated"] else "not loaded yet"
        reason = because(row["mode_reason"], row["mode_hint"])
        typer.echo(f"{name}: {state}, {row['effective_refresh_mode']}{reason}, schedule {row['schedule']}")
