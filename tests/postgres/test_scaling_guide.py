"""What docs/howto/scaling.md shows works as it stands, and its numbers are those of the code."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import psycopg
import pytest

from pgtrickle.dispatch.queue import MOST_MEMBERS
from pgtrickle.ipc.fleet_memory import MOST_DATABASES
from pgtrickle.maintain.budget import budget
from pgtrickle.refresh.deltas import MAX_DELTA_ROWS
from pgtrickle.settings import PROFILES, Settings, Sources
from tests.conftest import Database

GUIDE = (Path(__file__).parents[2] / "docs" / "howto" / "scaling.md").read_text("utf-8")
BLOCKS = re.findall(r"^```(\w+)\n(.*?)^```", GUIDE, re.M | re.S)


@pytest.mark.parametrize("text", [text for language, text in BLOCKS if language == "sql"])
def test_statements_run(installed: Database, text: str) -> None:
    installed.sql("CREATE TABLE t (a int); SELECT pgtrickle.create_stream_table('s', 'SELECT a FROM t')")
    installed.sql(text)


def test_refresh_from_outside_says_when_nobody_serves_the_database(installed: Database) -> None:
    """That it returns when the refresh is done: tests/fleet/test_guide.py."""
    installed.sql("CREATE TABLE t (a int); SELECT pgtrickle.create_stream_table('sales', 'SELECT a FROM t')")
    (text,) = (text for language, text in BLOCKS if language == "python")
    made: dict[str, Any] = {}
    exec(text, made)
    with pytest.raises(psycopg.errors.ObjectNotInPrerequisiteState, match="not refreshed"):
        made["refresh"](installed.dsn, "public.sales")


def test_numbers_are_those_of_the_code() -> None:
    for tables, databases, workers, connections, mib in re.findall(
        r"^\| ([\d+ -]+) \| (\d+) \| (?:\d+ - )?(\d+)(?: \(default\))? \| (\d+) \+ 2 x parts \| ([\d,]+) \|$",
        GUIDE,
        re.M,
    ):
        fleet = Settings(max_dynamic_refresh_workers=int(workers), spark_remote="sc://there")
        found = budget(fleet, {str(n): fleet for n in range(int(databases))}, load_parts=0).total
        assert (found.connections, found.mib) == (int(connections), int(mib.replace(",", ""))), tables
    assert GUIDE.count("x parts |") == 4
    for number in (MOST_DATABASES, MOST_MEMBERS, MAX_DELTA_ROWS, Settings().max_buffer_rows):
        assert re.search(rf"(?<![\d,]){number:,}(?![\d,])", GUIDE), number


@pytest.mark.parametrize("profile", PROFILES)
def test_profiles_are_those_of_the_code(profile: str) -> None:
    """All that differs from the defaults, and nothing else."""
    (shown,) = re.findall(rf"^\| `{profile}` \| (`.*?) \| ", GUIDE, re.M)
    found, usual = Sources(profile=profile).load().settings, Settings()
    differing = {name: value for name in PROFILES[profile] if (value := getattr(found, name)) != getattr(usual, name)}
    assert shown == ", ".join(f"`{name}` {value:g}" for name, value in differing.items())
