"""What several pages have to say alike."""

from __future__ import annotations

import re
from pathlib import Path

ROOT = Path(__file__).parents[2]


def test_every_page_that_mentions_immediate_says_that_it_is_asynchronous() -> None:
    pages = [ROOT / "README.md", ROOT / "ARCHITECTURE.md", ROOT / "CHANGELOG.md", *(ROOT / "docs").rglob("*.md")]
    mentioned = [page for page in pages if re.search(r"\bIMMEDIATE\b", page.read_text())]
    assert mentioned
    assert [str(page) for page in mentioned if "asynchronous" not in page.read_text()] == []
