"""Looks at what pgtrickle needs and says what is missing, in words an operator can act on."""

from __future__ import annotations

import importlib.util
import shutil
import sys
import tempfile
from collections.abc import Mapping
from dataclasses import dataclass

from pgtrickle.errors import ConfigError, PgtrickleError
from pgtrickle.runtime.java import find_java
from pgtrickle.settings import Settings

OLDEST, NEWEST = 13, 18
NEED_DISK_MIB = 600


@dataclass(frozen=True, slots=True)
class Finding:
    """One line of the report."""

    what: str
    ok: bool
    detail: str


def examine(settings: Settings, environ: Mapping[str, str], dsn: str | None) -> list[Finding]:
    findings = [Finding("python", sys.version_info >= (3, 11), sys.version.split()[0])]
    if settings.spark_remote:
        findings.append(Finding("spark", True, "an external Spark Connect server is configured"))
    else:
        findings += [_java(settings, environ), _spark(), _disk()]
    if dsn:
        findings += _postgres(dsn)
    return findings


def _java(settings: Settings, environ: Mapping[str, str]) -> Finding:
    warnings: list[str] = []
    try:
        java = find_java(settings.java_home, environ, warnings.append)
    except ConfigError as error:
        return Finding("java", False, error.one_line())
    return Finding("java", True, "; ".join([f"{java.version} from {java.origin}", *warnings]))


def _spark() -> Finding:
    found = importlib.util.find_spec("pyspark") is not None
    return Finding("spark", found, "installed" if found else "missing (hint: pip install 'pyspark[connect]')")


def _disk() -> Finding:
    free = shutil.disk_usage(tempfile.gettempdir()).free >> 20
    detail = f"{free} MiB free for temporary files"
    return Finding("disk", free >= NEED_DISK_MIB, detail if free >= NEED_DISK_MIB else detail + " (hint: set TMPDIR)")


def _postgres(dsn: str) -> list[Finding]:
    from pgtrickle.db.connect import connect

    try:
        with connect(dsn, role="doctor") as connection:
            row = connection.execute(
                "SELECT current_setting('server_version_num')::int, current_setting('server_version'), "
                "to_regclass('pgtrickle.pgt_stream_tables') IS NOT NULL"
            ).fetchone()
    except PgtrickleError as error:
        return [Finding("postgresql", False, error.one_line())]
    assert row is not None
    number, text, installed = row
    supported = OLDEST <= number // 10_000 <= NEWEST
    return [
        Finding("postgresql", supported, text if supported else f"{text}; {OLDEST} to {NEWEST} are supported"),
        Finding("pgtrickle", installed, "installed" if installed else "not installed (hint: pgtrickle install DSN)"),
    ]
