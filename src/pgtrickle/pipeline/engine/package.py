"""Gives the executors of a cluster this package, in the version that runs here.

What the package needs (psycopg, PyArrow) must be installed there: compiled libraries cannot be imported from a zip
file.
"""

from __future__ import annotations

import atexit
import hashlib
import shutil
import tempfile
import zipfile
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING

import pgtrickle

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_EPOCH = (1980, 1, 1, 0, 0, 0)  # the same files make the same zip file


def ship(session: SparkSession) -> None:
    """Sends the package to executors. Not if Spark runs in one process: its Python processes import what is installed
    on this machine."""
    if not is_local(session.conf.get("spark.master", "")):
        session.addArtifacts(str(package_file()), pyfile=True)


def is_local(master: str | None) -> bool:
    return master is not None and (master == "local" or master.startswith("local["))


@cache
def package_file() -> Path:
    """A zip file of the package. Its name has a hash of its content: Spark refuses two contents under one name."""
    root = Path(pgtrickle.__file__).parent
    files = sorted(f for f in root.rglob("*") if f.is_file() and f.suffix in (".py", ".sql"))
    directory = Path(tempfile.mkdtemp(prefix="pgtrickle-package-"))
    atexit.register(shutil.rmtree, directory, ignore_errors=True)
    made = directory / "package.zip"
    with zipfile.ZipFile(made, "w", zipfile.ZIP_DEFLATED) as archive:
        for file in files:
            name = file.relative_to(root.parent).as_posix()
            archive.writestr(zipfile.ZipInfo(name, _EPOCH), file.read_bytes(), zipfile.ZIP_DEFLATED)
    digest = hashlib.sha256(made.read_bytes()).hexdigest()[:16]
    return made.rename(directory / f"pgtrickle-{digest}.zip")
