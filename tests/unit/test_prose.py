"""What several pages have to say alike, and words that have an established term."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]


def test_every_page_that_mentions_immediate_says_that_it_is_asynchronous() -> None:
    pages = [ROOT / "README.md", ROOT / "ARCHITECTURE.md", ROOT / "CHANGELOG.md", *(ROOT / "docs").rglob("*.md")]
    mentioned = [page for page in pages if re.search(r"\bIMMEDIATE\b", page.read_text())]
    assert mentioned
    assert [str(page) for page in mentioned if "asynchronous" not in page.read_text()] == []


# Words of our own, and the term of the glossary or of the field for each.
FORBIDDEN = {
    "lookout": "poller",
    "misfits?": "decimal overflow",
    "carriers?": "codec",
    "deltatext": "statement cache",
    "sidebyside": "run concurrently",
    "errands?": "task",
    "fared": "table result",
    "turn_?out": "terminate backends",
    "_heard": "polled",
    "is_believing": "uses the broker",
}


@pytest.mark.parametrize("word", FORBIDDEN)
def test_code_uses_the_established_term(word: str) -> None:
    pattern = re.compile(rf"(?<![A-Za-z])(?:{word})(?![a-z])", re.IGNORECASE)
    files = [f for folder in ("src", "tests", "benchmarks", "scripts") for f in (ROOT / folder).rglob("*.*")]
    texts = [f for f in files if f.suffix in (".py", ".sql") and f != Path(__file__)]
    found = [f"{f.relative_to(ROOT)}: {m[0]}" for f in texts for m in pattern.finditer(f.read_text())]
    assert not found, f"say {FORBIDDEN[word]}"
