"""What the tests of each version look at, see test_attempts_18.py."""

from __future__ import annotations

import pytest

from tests.security.arena import Arena
from tests.security.attempts import ATTEMPTS


@pytest.mark.parametrize("name", [a.name for a in ATTEMPTS])
def check_attempt(arena: Arena, name: str) -> None:
    (attempt,) = [a for a in ATTEMPTS if a.name == name]
    trials = [t for t in arena.trials if t.attempt.name == name]
    if not trials:
        pytest.skip(f"made in {attempt.arenas}, of PostgreSQL {attempt.since} to {attempt.until}")
    assert trials[0].found == [], f"{attempt.tries}: {trials[0].found}"
