"""`make site`: the documentation as a web site, with the generated reference, and no broken link."""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from pgtrickle.db import connect
from tests.conftest import Database
from tests.postgres.test_reference import docs_script

ROOT = Path(__file__).parents[2]


@pytest.fixture
def site(installed: Database, tmp_path: Path) -> Path:
    """Built from a copy, so that the repository stays as it is."""
    pytest.importorskip("material", reason="mkdocs-material is not installed (extra dev)")
    for name in ("mkdocs.yml", "ARCHITECTURE.md", "CHANGELOG.md", "CONTRIBUTING.md", "SECURITY.md"):
        shutil.copy(ROOT / name, tmp_path / name)
    for name in ("docs", "scripts"):
        shutil.copytree(ROOT / name, tmp_path / name, ignore=shutil.ignore_patterns("__pycache__"))
    script = docs_script()
    with connect(installed.dsn, role="test") as connection:
        script.write(tmp_path / "docs" / "reference", connection)
    done = subprocess.run(
        [sys.executable, "-m", "mkdocs", "build", "--strict"],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return tmp_path / "site"


def test_the_site_has_every_page_and_the_reference(site: Path) -> None:
    for page in (ROOT / "docs").rglob("*.md"):
        path = page.relative_to(ROOT / "docs")
        wanted = site / (path.parent / "index.html" if path.name == "README.md" else path.with_suffix(".html"))
        assert wanted.exists(), path
    assert "create_stream_table" in (site / "reference" / "sql.html").read_text()
    assert "pgtrickle_refresh_duration_seconds" in (site / "reference" / "metrics.html").read_text()
    assert "PGT202" in (site / "reference" / "errors.html").read_text()
    assert (site / "explain" / "flow.html").read_text().count('<pre class="mermaid">') == 4
    changes = (site / "CHANGELOG.html").read_text()
    assert 'href="howto/settings.html"' in changes  # links of pages at the root of the repository are adapted
    for picture in re.findall(r"!\[[^]]*\]\(([^)]+)\)", (ROOT / "README.md").read_text()):
        assert (ROOT / picture).exists()
    decisions = len(list((ROOT / "docs" / "adr").glob("0*.md")))
    assert len(re.findall(r'href="\d{4}-[^"#]*\.html"', (site / "adr" / "index.html").read_text())) >= decisions
