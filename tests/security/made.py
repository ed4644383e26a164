"""What the tests of each version look at, see test_attempts_18_superuser.py."""

from __future__ import annotations

from tests.security.arena import Arena


def check_attempt(arena: Arena, name: str) -> None:
    (trial,) = [t for t in arena.trials if t.attempt.name == name]
    assert trial.found == [], f"{trial.attempt.tries}: {trial.found}"
