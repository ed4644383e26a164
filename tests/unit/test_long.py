"""The list of tests that take long names tests that exist."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.long import LONG, takes_long

TESTS = Path(__file__).parents[1]


@pytest.mark.parametrize("entry", LONG)
def test_entry_is_a_test(entry: str) -> None:
    file, _, name = entry.partition("::")
    text = (TESTS / file).read_text()
    assert not name or f"\ndef {name.partition('[')[0]}(" in text


def test_list_is_sorted_out() -> None:
    assert len(set(LONG)) == len(LONG)


def test_files_tests_and_parameters() -> None:
    assert takes_long("fleet/test_dbt.py::test_any[1]")
    assert takes_long("spark/test_operators.py::test_every_operator_is_exact_from_changes[1]")
    assert not takes_long("spark/test_operators.py::test_every_operator_is_exact_from_changes[0]")
    assert not takes_long("spark/test_operators.py::test_every_operator_is_exact_from_changes[10]")
