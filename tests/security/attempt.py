"""What a hostile role tries. Attempts are data: statements of several roles, and turns of the control plane."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import psycopg

if TYPE_CHECKING:
    from tests.security.arena import Arena, Trial


EVERYWHERE = ("18-superuser", "18-ordinary", "15-superuser", "15-ordinary")  # version, and who installed


class Tick:
    """The control plane refreshes whatever is due. All attempts wait for one another here."""


TICK = Tick()


@dataclass(frozen=True)
class As:
    """A statement of somebody else: `admin` (a superuser), `team` (owns the secrets), `alice` (another author)."""

    who: str
    sql: str


@dataclass(frozen=True)
class Do:
    """A step that is no single statement."""

    run: Callable[[Arena, Trial], None]


Step = str | As | Do | Tick


@dataclass(frozen=True)
class Attempt:
    """`evil` and `mallory` in texts are the schema and the role of this attempt, {service} the service role.

    refused: what the attacker is told somewhere, as an error of a statement or of a stream table. maybe: errors that
    may come but need not. Any other error of a statement of the attacker means that the attempt was badly written: it
    would prove nothing.
    """

    name: str
    tries: str
    steps: tuple[Step, ...]
    refused: str | None = None
    maybe: str | None = None
    trusted: bool = False  # GRANT mallory TO service: what teams do, and what run_as = 'author' needs
    since: int = 15
    until: int = 99
    arenas: tuple[str, ...] = EVERYWHERE
    check: Callable[[Arena, Trial], None] | None = None

    def is_made(self, version: int, arena: str) -> bool:
        return self.since <= version <= self.until and arena in self.arenas


def st(query: str, name: str = "evil.st", mode: str = "AUTO") -> str:
    return f"SELECT pgtrickle.create_stream_table('{name}', $pgt${query}$pgt$, 'calculated', '{mode}')"


def hostile(
    name: str, arguments: str = "text", returns: str = "text", result: str = "'x'", marked: str = "IMMUTABLE"
) -> str:
    """A function that does what it can with whatever rights it has got."""
    return (
        f"CREATE FUNCTION evil.{name}({arguments}) RETURNS {returns} LANGUAGE plpgsql {marked} AS "
        f"$f$ BEGIN PERFORM evil.payload('{name}'); RETURN {result}; END $f$"
    )


def told(error: psycopg.Error) -> str:
    diag = error.diag
    return " | ".join(
        p for p in (diag.message_primary, diag.message_detail, diag.message_hint, diag.context) if p
    ) or str(error)


@dataclass
class Report:
    """What the attacker was told in an attempt, and by what."""

    errors: list[tuple[str, str, str]] = field(default_factory=list)  # sqlstate, text, statement
    notices: list[str] = field(default_factory=list)
    results: list[Any] = field(default_factory=list)


def named(text: str, number: int, service: str) -> str:
    text = re.sub(r"(?<![a-z])evil(?![a-z0-9])", f"evil_{number}", text)
    text = re.sub(r"(?<![a-z])mallory(?![a-z0-9])", f"mallory_{number}", text)
    return text.replace("{service}", service).replace("{n}", str(number))
