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


def test_numbers_of_every_compared_system_have_a_source() -> None:
    before, numbers = (ROOT / "docs" / "comparison.md").read_text().split("## Numbers")
    systems = table(before)[0][1:]
    header, *rows = table(numbers)
    assert header == ["what", "measured", "source"]
    sources = {system: [source for *said, source in rows if system in " ".join(said)] for system in systems}
    assert {system: found for system, found in sources.items() if not any(found)} == {}
    elsewhere = {system for system in systems if not any("benchmarks/" in source for source in sources[system])}
    assert elsewhere == {"pg_ivm", "pg_trickle", "Materialize"}
    assert [system for system in elsewhere if "](https://" not in sources[system][0]] == []


def table(text: str) -> list[list[str]]:
    """The cells of the first table, without the line below its header."""
    lines = text[text.index("\n|") :].strip().partition("\n\n")[0].splitlines()
    rows = [[cell.strip() for cell in line.strip("|").split(" | ")] for line in lines]
    return [rows[0], *rows[2:]]
