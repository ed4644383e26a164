"""The version number is defined once; everything that shows one agrees with it."""

from __future__ import annotations

import re
import tomllib
from importlib.metadata import version
from pathlib import Path

from typer.testing import CliRunner

from pgtrickle import __version__
from pgtrickle.cli.app import app
from pgtrickle.db.statements import migrations
from pgtrickle.db.version import SCHEMA_VERSION

ROOT = Path(__file__).parents[2]


def test_package_metadata_takes_it_from_the_package() -> None:
    project = tomllib.loads(ROOT.joinpath("pyproject.toml").read_text())
    assert "version" in project["project"]["dynamic"]
    assert "version" not in project["project"]
    assert project["tool"]["hatch"]["version"]["path"] == "src/pgtrickle/__init__.py"
    assert version("pgtrickle") == __version__, "the installed package is of another version: make setup"


def test_command_line() -> None:
    assert CliRunner().invoke(app, ["--version"]).output == f"pgtrickle {__version__}\n"


def test_changelog() -> None:
    top = re.search(r"^## (\S+)", ROOT.joinpath("CHANGELOG.md").read_text(), re.MULTILINE)
    assert top is not None
    assert top[1] == __version__


def test_catalog_version_is_the_number_of_the_latest_migration() -> None:
    folder = ROOT / "src" / "pgtrickle" / "db" / "sql" / "migrations"
    numbers = {int(re.fullmatch(r"(\d{4})_\w+_(?:pre|post)\.sql", f.name)[1]) for f in folder.iterdir()}  # type: ignore[index]
    assert numbers == set(range(2, SCHEMA_VERSION + 1))
    assert migrations(SCHEMA_VERSION, "pre") == migrations(SCHEMA_VERSION, "post") == []
    assert migrations(1, "pre")
    assert migrations(1, "post")
