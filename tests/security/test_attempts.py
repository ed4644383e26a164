"""A hostile role owns one schema, has USAGE on schema pgtrickle, and tries what it can. Each attempt is refused or
harmless: by what the role can read, own and execute afterwards, and by whose rights its code ran with."""

from __future__ import annotations

import pytest

from tests.security.arena import Arena
from tests.security.attempts import ATTEMPTS


@pytest.mark.parametrize("name", [a.name for a in ATTEMPTS])
def test_attempt(arena: Arena, name: str) -> None:
    (attempt,) = [a for a in ATTEMPTS if a.name == name]
    trials = [t for t in arena.trials if t.attempt.name == name]
    if not trials:
        pytest.skip(f"of PostgreSQL {attempt.since} to {attempt.until}")
    assert trials[0].found == [], f"{attempt.tries}: {trials[0].found}"


def test_nothing_else_has_changed(arena: Arena) -> None:
    assert arena.found == []


def test_there_are_enough() -> None:
    assert len({a.name for a in ATTEMPTS}) == len(ATTEMPTS) >= 80
