"""There are enough attempts, and each is made in every arena, on both versions or says why not."""

from __future__ import annotations

import re
import shlex
import subprocess
from pathlib import Path

from tests.security.attempt import EVERYWHERE
from tests.security.attempts import ATTEMPTS


def test_there_are_enough() -> None:
    assert len({a.name for a in ATTEMPTS}) == len(ATTEMPTS) >= 80


def test_few_are_of_one_version_only() -> None:
    assert len([a for a in ATTEMPTS if a.since > 15 or a.until < 18]) < 10


def test_make_test_long_makes_every_attempt_in_every_arena() -> None:
    """pytest collects what the command of the Makefile selects: four modules, all attempts in each."""
    root = Path(__file__).parents[2]
    printed = subprocess.run(["make", "-n", "test-long"], cwd=root, capture_output=True, text=True, check=True).stdout
    (command,) = [line for line in printed.splitlines() if "-m pytest" in line]
    modules = [f"tests/security/test_attempts_{arena.replace('-', '_')}.py" for arena in EVERYWHERE]
    listed = subprocess.run(
        ["sh", "-c", f"{command} --collect-only -q {shlex.join(modules)}"], cwd=root, capture_output=True, text=True
    )
    made = set(re.findall(r"test_attempts_(\d+)_(\w+)\.py::test_attempt\[(.+)\]$", listed.stdout, re.M))
    wanted = {
        (version, installed_by, attempt.name)
        for version, installed_by in (arena.split("-") for arena in EVERYWHERE)
        for attempt in ATTEMPTS
        if attempt.since <= int(version) <= attempt.until
    }
    assert made == wanted, listed.stderr
