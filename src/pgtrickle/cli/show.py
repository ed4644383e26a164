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
RUNNING_LOAD = "SELECT * FROM pgtrickle.load_progress() AS l WHERE l.pgt_id = pgtrickle._find(%s)"


def show(server: Server, name: Name, as_json: Json = False) -> None:
    """Show one stream table: query, state, lag, sources, readers, latest refreshes.

    `pgtrickle plan NAME` shows how it is maintained.
    """
    with author_session(server) as conn:
        details = read_details(conn, name)
    if as_json:
        print_json(details)
        return
    for line in detail_lines(details):
        typer.echo(line)


def read_details(conn: Connection, name: str) -> dict[str, Any]:
    from pgtrickle.db.statements import statement

    (table,) = rows_of(conn, statement("shown_table"), {"name": name})
    (state,) = status_rows(conn, [name])
    return {
        **state,
        **table,
        "sources": rows_of(conn, "SELECT * FROM pgtrickle.list_sources(%s)", (name,)),
        "load": next(iter(rows_of(conn, RUNNING_LOAD, (name,))), None),
        "refreshes": rows_of(conn, "SELECT * FROM pgtrickle.get_refresh_history(%s, %s)", (name, REFRESHES)),
    }


def detail_lines(details: dict[str, Any]) -> Iterator[str]:
    from pgtrickle.cli.render import age_text, because, lag_text, load_text, table_lines

    yield details["name"]
    facts = {
        "status": details["status"] if details["is_populated"] else f"{details['status']}, not loaded",
        "load": load_text(details["load"]) if details["load"] else None,
        "mode": f"{details['effective_refresh_mode']}{because(details['mode_reason'], details['mode_hint'])}",
        "engine": f"{details['last_engine'] or '-'}{because(details['engine_reason'])}",
        "schedule": details["schedule"],
        "lag": f"{lag_text(details['behind_seconds'])}{', changes are pending' if details['changes_pending'] else ''}",
        "last refresh": _time_and_age(details["last_refresh_at"], age_text(details["last_refresh_at"])),
        "size": f"about {details['row_estimate']} rows, {details['bytes']} bytes",
        "author": details["author"],
        "error": details["last_error_message"],
        "read by": ", ".join(details["read_by"]) or "-",
    }
    for key, value in facts.items():
        if value is not None:
            yield f"  {key + ':':<14}{' '.join(str(value).split())}"
    yield "  query:"
    yield from (f"    {line}" for line in dedent(details["query"]).strip().splitlines())
    yield "  sources:"
    for source in details["sources"]:
        captured = "" if source["captured"] or source["source_type"] == "VIEW" else ", changes are not captured"
        yield f"    {source['source_table']} ({source['source_type']}{captured})"
    if not details["refreshes"]:
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
        for row in details["refreshes"]
    ]
    yield from (f"    {line}" for line in table_lines(columns, rows))


def _time_and_age(at: datetime | None, age: str) -> str:
    return "-" if at is None else f"{at.astimezone(UTC):%Y-%m-%d %H:%M:%S} UTC, {age}"
