"""Programs of the operating system that some tests drive: installed where the tests may do that."""

from __future__ import annotations

import fcntl
import os
import shutil
import subprocess
import tempfile
from pathlib import Path

import pytest

# The workers of all test runs on this machine install one after the other: a second apt-get fails.
LOCK = Path(tempfile.gettempdir()) / "pgtrickle-tests-packages.lock"


def require_program(name: str, package: str) -> str:
    """Its path. As root with apt, a missing one is installed; elsewhere the test is skipped, with the reason."""
    if (found := _which(name)) is None and os.geteuid() == 0 and shutil.which("apt-get"):
        with LOCK.open("a") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)  # released when the file is closed
            found = _which(name) or _installed(name, package)
    if found is None:
        pytest.skip(f"{name} is not installed (Debian package {package}), and the tests may not install it")
    assert Path(found).exists()
    return found


def _installed(name: str, package: str) -> str | None:
    commands = (
        ["apt-get", "update", "-qq"],
        ["apt-get", "install", "-y", "-qq", "--no-install-recommends", package],
    )
    environ = {**os.environ, "DEBIAN_FRONTEND": "noninteractive"}
    if all(subprocess.run(c, env=environ, capture_output=True, check=False).returncode == 0 for c in commands):
        return _which(name)
    return None


def _which(name: str) -> str | None:
    """Debian installs servers into /usr/sbin, which is not in the PATH of everyone."""
    return shutil.which(name) or shutil.which(name, path="/usr/sbin")
