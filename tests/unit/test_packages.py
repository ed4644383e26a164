"""Workers of one test run install the Debian packages of programs one after the other."""

from __future__ import annotations

import os
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from tests import packages

# As apt-get: fails while another one runs. The program of a package is in the directory afterwards.
APT_GET = """#!/bin/sh
mkdir "$PLACE/running" || exit 100
sleep 0.05
if [ "$1" = install ]; then
    for package; do :; done
    echo "$package" >> "$PLACE/installed"
    printf '#!/bin/sh\\n' > "$PLACE/$package"
    chmod +x "$PLACE/$package"
fi
rmdir "$PLACE/running"
"""


def test_packages_are_installed_one_after_the_other(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "apt-get").write_text(APT_GET)
    (tmp_path / "apt-get").chmod(0o755)
    monkeypatch.setenv("PLACE", str(tmp_path))
    monkeypatch.setenv("PATH", f"{tmp_path}:{os.environ['PATH']}")
    monkeypatch.setattr(os, "geteuid", lambda: 0)
    monkeypatch.setattr(packages, "LOCK", tmp_path / "lock", raising=False)
    wanted = ["program-one", "program-two", "program-three"] * 2

    def require(name: str) -> str | None:
        try:
            return packages.require_program(name, name)
        except pytest.skip.Exception:
            return None

    with ThreadPoolExecutor(len(wanted)) as pool:
        assert list(pool.map(require, wanted)) == [str(tmp_path / name) for name in wanted]
    assert sorted((tmp_path / "installed").read_text().split()) == sorted(set(wanted))
