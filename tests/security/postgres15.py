"""PostgreSQL 15 from Debian's package, installed where we may."""

from __future__ import annotations

import os
import shutil
import subprocess
from functools import cache
from pathlib import Path

HOME = Path("/usr/lib/postgresql/15")
PACKAGE = "postgresql-15"


@cache
def why_not() -> str | None:
    """None: it is there, perhaps since now."""
    if (HOME / "bin" / "initdb").exists():
        return None
    if os.geteuid() != 0 or shutil.which("apt-get") is None:
        return f"PostgreSQL 15 is not installed (Debian package {PACKAGE})"
    done = subprocess.run(
        # No cluster of its own: that would start a server.
        ["apt-get", "install", "-y", "--no-install-recommends", "-o", "DPkg::Lock::Timeout=60", PACKAGE],
        env={**os.environ, "DEBIAN_FRONTEND": "noninteractive", "PG_CREATE_CLUSTER": "no"},
        capture_output=True,
        text=True,
        timeout=180,
        check=False,
    )
    if (HOME / "bin" / "initdb").exists():
        return None
    return f"PostgreSQL 15 is not installed (Debian package {PACKAGE}): {done.stderr.strip()[-200:]}"
