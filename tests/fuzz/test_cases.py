"""Cases that once failed, each a script of its own; its head says what was wrong."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from tests.fuzz import wave
from tests.fuzz.case import generate, read, script
from tests.fuzz.lines import Lines

CASES = sorted((Path(__file__).parent / "cases").glob("*.sql"))

# Known and not yet mended.
OPEN: frozenset[str] = frozenset()


@pytest.mark.spark
@pytest.mark.parametrize(
    "path",
    [
        pytest.param(p, id=p.stem, marks=[pytest.mark.xfail(reason="open", strict=False)] if p.stem in OPEN else [])
        for p in CASES
    ],
)
def test_case_stays_mended(lines: Lines, path: Path) -> None:
    for name, verdict in wave.run(lines.open, read(path)).items():
        assert verdict.status == wave.OK, (name, verdict)


def test_script_reads_back_as_the_case_that_it_was_written_from(tmp_path: Path) -> None:
    case = generate(5, count=3).case
    path = tmp_path / "case.sql"
    path.write_text(script(case, "a note"))
    found = read(path)
    assert found == replace(case, setup=(*case.setup, *case.views), views=())
