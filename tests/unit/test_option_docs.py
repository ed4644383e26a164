"""The guides list the options that a definition may have, and none that is refused."""

from __future__ import annotations

import re
from pathlib import Path

from pgtrickle.definitions.definition import OPTIONS

ROOT = Path(__file__).parents[2]
REFUSED = {"append_only"}  # _check_options raises


def test_the_guide_to_files_lists_the_options_that_are_accepted() -> None:
    text = (ROOT / "docs/howto/definitions.md").read_text()
    (keys,) = re.findall(r"every option of `create_stream_table`: (.*?)\. Missing keys", text, re.DOTALL)
    listed = set(re.findall(r"`(\w+)`", keys)) - {"alter_stream_table"}
    assert listed == OPTIONS.keys() - REFUSED


def test_the_guide_to_dbt_lists_the_options_that_the_package_passes_on() -> None:
    text = (ROOT / "docs/howto/dbt.md").read_text()
    (row,) = re.findall(r"^\| (.*?) \| as in `create_stream_table`", text, re.MULTILINE)
    lists = re.findall(r"for option in \((.*?)\)", (ROOT / "dbt/macros/stream_table.sql").read_text())
    passed_on = {option for found in lists for option in re.findall(r"'(\w+)'", found)}
    assert set(re.findall(r"`(\w+)`", row)) == (passed_on | {"tier"}) - REFUSED - {"engine"}  # which has a row
    assert passed_on | {"tier"} <= OPTIONS.keys()


def test_refused_options_are_named_as_such() -> None:
    assert "append_only is not supported" in (ROOT / "src/pgtrickle/db/sql/install/define/define.sql").read_text()
    for guide in ("definitions", "dbt", "migrate"):
        assert re.search(r"`append_only\b.*refused", (ROOT / f"docs/howto/{guide}.md").read_text()), guide
