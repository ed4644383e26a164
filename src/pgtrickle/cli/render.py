"""Text output of commands: tables and lines."""

from __future__ import annotations

import shutil
import sys
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

import typer

from pgtrickle.settings import Loaded, describe, shown_value

if TYPE_CHECKING:
    from pgtrickle.db.service import Installation
    from pgtrickle.maintain.budget import Budget

MOST_SUGGESTED = 20


@contextmanager
def working(what: str) -> Iterator[None]:
    """Shows progress on a terminal, and nothing elsewhere."""
    from rich.console import Console

    console = Console(stderr=True)
    if not console.is_terminal:
        yield
        return
    with console.status(what):
        yield


def cell(value: Any) -> str:
    if value is None:
        return "-"
    if isinstance(value, bool):
        return "on" if value else "off"
    if isinstance(value, datetime):
        return value.isoformat(sep=" ", timespec="seconds")
    # Control characters are replaced: a terminal would interpret them.
    return "".join(c if c.isprintable() or c.isspace() else "\N{REPLACEMENT CHARACTER}" for c in str(value))


def setting_rows(loaded: Loaded) -> list[dict[str, Any]]:
    """Every setting with value, origin and description, then unknown names; `problem` describes an invalid value."""
    problems = {problem.name: problem for problem in loaded.problems}
    rows = []
    for described in describe():
        row = {key: described[key] for key in ("name", "default", "range", "scope", "doc")}
        row["value"] = shown_value(row["name"], getattr(loaded.settings, row["name"]))
        row["origin"] = loaded.origins[row["name"]]
        invalid = problems.pop(row["name"], None)
        row["problem"] = invalid.message if invalid is not None else None
        rows.append({key: dict(value) if isinstance(value, Mapping) else value for key, value in row.items()})
    for problem in problems.values():
        rows.append(
            {"name": problem.name, "value": problem.value, "origin": problem.origin, "problem": problem.message}
        )
    return rows


def budget_lines(budget: Budget) -> Iterator[str]:
    """The resource budget: the parts and their sum, then the maximum of each database."""
    rows = [(f"{part.name} x{part.count}" if part.count != 1 else part.name, part.cost) for part in budget.parts]
    rows.append(("total", budget.total))
    rows += [(f"{share.database}: scheduler, up to {share.workers} workers", share.cost) for share in budget.shares]
    width = max(len(name) for name, _ in rows)
    yield f"{'budget (maximum)':{width}}  processes  connections     MiB"
    for name, cost in rows:
        yield f"{name:{width}}  {cost.processes:9}  {cost.connections:11}  {cost.mib:6}"


def installation_lines(installation: Installation) -> Iterator[str]:
    """The owner, and the remaining steps for the DBA as SQL statements."""
    if installation.is_service:
        yield f"Owner: role {installation.role} (not a superuser); pgtrickle run uses this role"
    lines = list(installation.needed)
    if installation.is_service and not installation.can_log_in:
        lines.append(
            f"ALTER ROLE {installation.quoted} LOGIN PASSWORD '...';  -- so that pgtrickle run can connect as it"
        )
    if lines:
        yield "To do for the DBA:"
        yield from (f"  {line}" for line in lines)
    if installation.suggested:
        yield "Optional, for stream tables over these schemas:"
        yield from (f"  {line}" for line in installation.suggested[:MOST_SUGGESTED])
        if len(installation.suggested) > MOST_SUGGESTED:
            yield f"  and {len(installation.suggested) - MOST_SUGGESTED} more: see docs/howto/roles.md"
    if installation.is_service:
        yield "For each role that defines stream tables:"
        yield "  GRANT USAGE ON SCHEMA pgtrickle TO role;"
        yield f"  GRANT role TO {installation.quoted};  -- its queries may then use its own functions and types"


def print_status(rows: Sequence[Mapping[str, Any]], *, served: bool, owner: str | None = None) -> None:
    """One line per stream table, not wrapped, followed by problems. Lag: an upper bound, 0 when nothing is pending."""
    columns = ["stream table", "status", "mode", "schedule", "lag", "refreshed"]
    shown = [
        [
            row["name"],
            _state(row),
            row["effective_refresh_mode"],
            row["schedule"],
            lag_text(row["behind_seconds"]),
            age_text(row["last_refresh_at"]),
        ]
        for row in rows
    ]
    if shown:
        print_unbroken(columns, shown)
    lines = [
        f"{row['name']}: FULL{because(row['mode_reason'], row['mode_hint'])}" for row in rows if row["mode_reason"]
    ]
    lines += [f"{row['name']}: {load_text(row['load'])}" for row in rows if row["load"]]
    lines += [f"{row['name']}: {row['last_error_message']}" for row in rows if row["last_error_message"]]
    if not served and owner is None:
        lines.append("no scheduler is connected to this database (hint: start pgtrickle run)")
    elif not served:
        hint = f"pgtrickle run --server as {owner}, or as a member of that role"
        lines.append(f"no scheduler is connected to this database; {owner} installed pgtrickle here (hint: {hint})")
    if not rows:
        lines.insert(0, "no stream tables (hint: SELECT pgtrickle.create_stream_table(name, query))")
    for line in lines:
        typer.echo(" ".join(line.split()))


def because(reason: str | None, hint: str | None = None) -> str:
    """What follows the value that a reason explains; nothing when there is no reason."""
    return f", because {reason}{f' (hint: {hint})' if hint else ''}" if reason else ""


def _state(row: Mapping[str, Any]) -> str:
    if row["load"]:
        return "loading"
    return str(row["status"]) if row["is_populated"] or row["status"] != "INITIALIZING" else "not loaded"


def load_text(load: Mapping[str, Any]) -> str:
    """A row of load_progress() for people."""
    from dataclasses import fields

    from pgtrickle.observe.loads import LoadProgress

    return LoadProgress(**{field.name: load[field.name] for field in fields(LoadProgress)}).text()


def lag_text(seconds: float | None) -> str:
    """The lag behind the sources; - if it is unknown."""
    return "-" if seconds is None else duration_text(seconds)


def duration_text(seconds: float) -> str:
    """In one unit: `0 s`, `0.3 s`, `45 s`, `12 min`, `3 h`, `2 d`."""
    if seconds < 10:
        return f"{max(seconds, 0.1):.1f} s" if seconds > 0 else "0 s"
    for unit, size in (("d", 86_400), ("h", 3_600), ("min", 60)):
        if seconds >= size:
            return f"{seconds // size:.0f} {unit}"
    return f"{seconds:.0f} s"


def age_text(at: datetime | None) -> str:
    """The age by the clock of this machine, which may differ from that of the server."""
    if at is None:
        return "-"
    seconds = (datetime.now(UTC) - at).total_seconds()
    return "now" if seconds < 1 else f"{duration_text(round(seconds))} ago" if seconds >= 10 else f"{seconds:.0f} s ago"


def print_unbroken(columns: Sequence[str], rows: Iterable[Sequence[Any]]) -> None:
    """Prints a table without wrapping cells, even on a narrow terminal: people copy them, and programs read them."""
    for line in table_lines(columns, rows, shutil.get_terminal_size().columns if sys.stdout.isatty() else None):
        typer.echo(line)


def table_lines(columns: Sequence[str], rows: Iterable[Sequence[Any]], width: int | None = None) -> Iterator[str]:
    """`width`: of the terminal. The gap between columns shrinks to one blank where the table would be too wide."""
    lines = [tuple(columns), *(tuple(" ".join(cell(value).split()) for value in row) for row in rows)]
    widths = [max(len(line[i]) for line in lines) for i in range(len(columns))]
    gap = " " if width is not None and sum(widths) + 2 * (len(widths) - 1) > width else "  "
    for line in lines:
        yield gap.join(text.ljust(width) for text, width in zip(line, widths, strict=True)).rstrip()


def print_table(columns: Sequence[str], rows: Iterable[Sequence[Any]]) -> None:
    from rich.console import Console
    from rich.table import Table

    table = Table(box=None, pad_edge=False)
    for column in columns:
        table.add_column(column, overflow="fold")
    for row in rows:
        table.add_row(*(cell(value) for value in row))
    Console().print(table)
