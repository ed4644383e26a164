"""Output of `pgtrickle apply`: plans as text, queries as diffs."""

from __future__ import annotations

import sys
from collections.abc import Iterable, Iterator, Sequence

import typer
from rich.console import Console
from rich.text import Text

from pgtrickle.cli.render import cell
from pgtrickle.definitions.changes import ADOPT, ALTER, CREATE, DROP, REFRESH_GROUP, REPLACE, ApplyResult, Change
from pgtrickle.definitions.definition import DefinitionProblem, DefinitionSet
from pgtrickle.telemetry import redact

_SIGNS = {
    CREATE: ("+", "green"),
    ALTER: ("~", "yellow"),
    REPLACE: ("!", "red"),
    DROP: ("-", "red"),
    ADOPT: ("=", "cyan"),
}
_WORDS = {
    CREATE: "create",
    ALTER: "alter",
    REPLACE: "drop and create again, empty until loaded",
    DROP: "drop, no longer defined in a file",
    ADOPT: "adopt into the set",
}
_MOST_NAMED = 6  # databases that a heading lists by name


def print_problems(problems: Iterable[DefinitionProblem]) -> None:
    for problem in problems:
        typer.echo(f"pgtrickle: {problem.one_line()}", err=True)


def print_outcomes(definition_set: DefinitionSet, outcomes: Sequence[ApplyResult]) -> None:
    """Prints the plan. Databases with the same changes, such as those of tenants, are printed as one group."""
    console = Console(highlight=False, markup=False, emoji=False, soft_wrap=True)
    groups: dict[tuple[object, ...], list[ApplyResult]] = {}
    for outcome in outcomes:
        if not outcome.errors:
            key = (outcome.changes, outcome.unchanged, outcome.left, outcome.warnings)
            groups.setdefault(key, []).append(outcome)
    console.print(f"Set {definition_set.name}: {_count(len(definition_set.definitions), 'definition')}")
    for group in groups.values():
        console.print(Text(_databases([outcome.database for outcome in group]), style="bold"))
        for line in outcome_lines(group[0]):
            console.print(line)
    print_errors(outcomes)
    console.print(planned(outcomes))


def print_errors(outcomes: Iterable[ApplyResult]) -> None:
    sys.stdout.flush()
    for outcome in outcomes:
        for error in outcome.errors:
            typer.echo(redact(f"pgtrickle: {outcome.database}: {error}"), err=True)


def outcome_lines(outcome: ApplyResult) -> Iterator[Text]:
    for change in outcome.changes:
        yield from _change(change)
    for name in outcome.left:
        yield Text(f"  ? {name}  no longer defined in a file; --prune drops it", style="dim")
    for warning in outcome.warnings:
        yield Text(f"  warning: {warning}", style="yellow")
    if not outcome.changes and outcome.unchanged:
        yield Text(f"  no changes, {outcome.unchanged} as defined", style="dim")


def _change(change: Change) -> Iterator[Text]:
    sign, style = _SIGNS[change.action]
    kind = "refresh group " if change.kind == REFRESH_GROUP else ""
    where = f"  ({change.file})" if change.file else ""
    line = Text(f"  {sign} ", style=style)
    yield line.append(f"{kind}{change.name}", style="bold").append(f"  {_WORDS[change.action]}{where}")
    for option in change.options:
        before = "" if change.action == CREATE else f"{_value(option.before)} -> "
        yield Text(f"      {option.option}: {before}{_value(option.after)}")
    if change.mode is not None:
        yield Text(f"      mode: {change.mode}" + (f", because {change.reason}" if change.reason else ""))
    elif change.reason is not None:
        yield Text(f"      {change.reason}")
    if change.action == CREATE:
        yield from (Text(f"      + {row}", style="green") for row in (change.query_after or "").split("\n") if row)
    elif change.action != DROP:
        for row in change.query_diff():
            yield Text(f"      {row}", style={"+": "green", "-": "red", "@": "cyan"}.get(row[:1], ""))


def planned(outcomes: Sequence[ApplyResult]) -> str:
    """The plan in one line."""
    return f"Plan: {_tally(outcomes)}"


def summary(outcomes: Sequence[ApplyResult]) -> str:
    """What was done, in one line."""
    return f"Done: {_tally([outcome for outcome in outcomes if outcome.applied or outcome.errors])}"


def confirm(*, possible: bool) -> bool:
    """Asks whether to apply the changes. Without a terminal it does not ask, and the answer is no."""
    if possible and sys.stdin.isatty():
        return typer.confirm("Apply these changes?")
    typer.echo(
        "pgtrickle: nothing was applied (hint: --yes applies without confirmation, --plan only shows the plan)",
        err=True,
    )
    return False


def _tally(outcomes: Sequence[ApplyResult]) -> str:
    counts = dict.fromkeys(_SIGNS, 0)
    for outcome in outcomes:
        for change in outcome.changes:
            counts[change.action] += 1
    words = {CREATE: "to create", ALTER: "to alter", REPLACE: "to replace", DROP: "to drop", ADOPT: "to adopt"}
    done = any(outcome.applied for outcome in outcomes)
    if done:
        words = {CREATE: "created", ALTER: "altered", REPLACE: "replaced", DROP: "dropped", ADOPT: "adopted"}
    parts = [f"{count} {words[action]}" for action, count in counts.items() if count]
    if parts:
        parts[-1] += f", in {_count(sum(bool(outcome.changes) for outcome in outcomes), 'database')}"
    failed = sum(bool(outcome.errors) for outcome in outcomes)
    if failed:
        parts.append(f"{_count(failed, 'database')} failed")
    return ", ".join(parts) or "no changes"


def _databases(names: Sequence[str]) -> str:
    named = ", ".join(names[:_MOST_NAMED])
    return named if len(names) <= _MOST_NAMED else f"{named} and {len(names) - _MOST_NAMED} more"


def _count(number: int, noun: str) -> str:
    return f"{number} {noun}{'' if number == 1 else 's'}"


def _value(value: object) -> str:
    return "not set" if value is None else cell(value)
