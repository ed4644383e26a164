"""`pgtrickle show`: one stream table."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, datetime
from textwrap import dedent
from typing import TYPE_CHECKING, Any

import typer

from pgtrickle.cli.author import author_session, rows_of, status_rows
from pgtrickle.cli.parameters import Json, Name, Server, print_json

if TYPE_CHECKING:
    from pgtrickle.db.connect import Connection

REFRESHES = 5
RUNNING = "SELECT * FROM pgtrickle.load_progress() AS l WHERE l.pgt_id = pgtrickle._find(%s)"


def show(server: Server, name: Name, as_json: Json = False) -> None:
    """Show one stream table: query, state, lag, sources, readers, latest refreshes.

    `pgtrickle plan NAME` shows how it is maintained.
    """
    with author_session(server) as conn:
        found = read_details(conn, name)
    if as_json:
        print_json(found)
        return
    for line in detail_lines(found):
        typer.echo(line)


def read_details(conn: Connection, name: str) -> dict[str, Any]:
    from pgtrickle.db.statements import statement

    (found,) = rows_of(conn, statement("shown_table"), {"name": name})
    (state,) = status_rows(conn, [name])
    return {
        **state,
        **found,
        "sources": rows_of(conn, "SELECT * FROM pgtrickle.list_sources(%s)", (name,)),
        "load": next(iter(rows_of(conn, RUNNING, (name,))), None),
        "refreshes": rows_of(conn, "SELECT * FROM pgtrickle.get_refresh_history(%s, %s)", (name, REFRESHES)),
    }


def detail_lines(found: dict[str, Any]) -> Iterator[str]:
    from pgtrickle.cli.render import age_text, lag_text, load_text, table_lines

    yield found["name"]
    facts = {
        "status": found["status"] if found["is_populated"] else f"{found['status']}, not loaded",
        "load": load_text(found["load"]) if found["load"] else None,
        "mode": _with(found["effective_refresh_mode"], found["mode_reason"]),
        "engine": _with(found["last_engine"], found["engine_reason"]),
        "schedule": found["schedule"],
        "lag": f"{lag_text(found['behind_seconds'])}{', changes are pending' if found['changes_pending'] else ''}",
        "last refresh": _when(found["last_refresh_at"], age_text(found["last_refresh_at"])),
        "size": f"about {found['row_estimate']} rows, {found['bytes']} bytes",
        "author": found["author"],
        "error": found["last_error_message"],
        "read by": ", ".join(found["read_by"]) or "-",
    }
    for key, value in facts.items():
        if value is not None:
            yield f"  {key + ':':<14}{' '.join(str(value).split())}"
    yield "  query:"
    yield from (f"    {line}" for line in dedent(found["query"]).strip().splitlines())
    yield "  sources:"
    for source in found["sources"]:
        captured = "" if source["captured"] or source["source_type"] == "VIEW" else ", changes are not captured"
        yield f"    {source['source_table']} ({source['source_type']}{captured})"
    if not found["refreshes"]:
        return
    yield "  latest refreshes:"
    columns = ["started (UTC)", "action", "engine", "rows", "ms", "result"]
    rows = [
        [
            row["start_time"].astimezone(UTC).strftime("%Y-%m-%d %H:%M:%S"),
            row["action"],
            row["engine"],
            None if row["rows_inserted"] is None else f"+{row['rows_inserted']} -{row['rows_deleted']}",
            None if row["duration_ms"] is None else round(row["duration_ms"]),
            row["error_message"] or row["status"],
        ]
        for row in found["refreshes"]
    ]
    yield from (f"    {line}" for line in table_lines(columns, rows))


def _when(at: datetime | None, age: str) -> str:
    return "-" if at is None else f"{at.astimezone(UTC):%Y-%m-%d %H:%M:%S} UTC, {age}"


def _with(value: str | None, reason: str | None) -> str:
    return f"{value or '-'}{f', because {reason}' if reason else ''}"
