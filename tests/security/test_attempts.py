"""There are enough attempts, and each is made on both versions or says why not."""

from __future__ import annotations

from tests.security.attempts import ATTEMPTS


def test_there_are_enough() -> None:
    assert len({a.name for a in ATTEMPTS}) == len(ATTEMPTS) >= 80


def test_few_are_of_one_version_only() -> None:
    assert len([a for a in ATTEMPTS if a.since > 15 or a.until < 18]) < 10
