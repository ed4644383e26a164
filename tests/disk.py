"""A small file system of a test's own, which it can fill."""

from __future__ import annotations

import os
import subprocess
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest


class SmallDisk:
    def __init__(self, path: Path) -> None:
        self.path = path
        self._filler = path / "filler"

    def fill(self) -> None:
        """Until nothing more can be written, not even a page."""
        with self._filler.open("ab", buffering=0) as file:
            for size in (1 << 20, 4096, 1):
                block = bytes(size)
                while _is_written(file.fileno(), block):
                    pass

    def is_full(self) -> bool:
        return os.statvfs(self.path).f_bavail == 0

    def free(self) -> None:
        self._filler.unlink()


def _is_written(handle: int, block: bytes) -> bool:
    try:
        return os.write(handle, block) == len(block)
    except OSError:
        return False


@contextmanager
def small_disk(mib: int) -> Iterator[SmallDisk]:
    """Where every user may reach it."""
    path = Path(tempfile.mkdtemp(prefix="pgtrickle-disk-"))
    mount = ["mount", "-t", "tmpfs", "-o", f"size={mib}m,mode=1777", "tmpfs", str(path)]
    done = subprocess.run(mount, capture_output=True, text=True, check=False)
    if done.returncode:
        path.rmdir()
        pytest.skip(f"a small disk needs root and mount: {done.stderr.strip()}")
    path.chmod(0o755)
    try:
        yield SmallDisk(path)
    finally:
        subprocess.run(["umount", "--lazy", str(path)], check=True)
        path.rmdir()
