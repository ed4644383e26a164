"""The root of all replicas: a directory, or the URL of an object store (setting `replica_root`)."""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from functools import lru_cache
from pathlib import Path

from pgtrickle.errors import ConfigError, PgtrickleError
from pgtrickle.pipeline.engine.object_files import SCHEMES
from pgtrickle.replica import files
from pgtrickle.replica.objects import ObjectStorage
from pgtrickle.replica.storage import LocalStorage, Storage

Root = Path | str  # a directory, or a URL

_SCHEME = re.compile(r"([A-Za-z][A-Za-z0-9+.-]+)://")
_BUCKET = r"[A-Za-z0-9][A-Za-z0-9._-]*"
_FOLDERS = r"(/(?!\.+(/|$))[A-Za-z0-9._=+-]+)*"
# Without a user's name or password, or a query: the catalog and the log contain the location of a replica.
_FORMS = {
    "s3": rf"s3://{_BUCKET}{_FOLDERS}",
    "s3a": rf"s3a://{_BUCKET}{_FOLDERS}",
    "gs": rf"gs://{_BUCKET}{_FOLDERS}",
    "abfss": rf"abfss://{_BUCKET}@{_BUCKET}{_FOLDERS}",
    "hdfs": rf"hdfs://{_BUCKET}(:[0-9]+)?{_FOLDERS}",
}
_EXAMPLES = {
    "s3": "s3://bucket/folder",
    "s3a": "s3a://bucket/folder",
    "gs": "gs://bucket/folder",
    "abfss": "abfss://container@account.dfs.core.windows.net/folder",
    "hdfs": "hdfs://namenode:8020/folder",
}


def root_of(configured: str, environ: Mapping[str, str]) -> Root:
    """As configured (`replica_root`), or a directory below the state directory of the user."""
    if _SCHEME.match(configured):
        return configured.rstrip("/")
    if configured:
        return Path(configured)
    state = environ.get("XDG_STATE_HOME") or str(Path.home() / ".local" / "state")
    return Path(state) / "pgtrickle" / "replicas"


def _check(url: str) -> None:
    """Raises ConfigError. The text of a refused URL is not repeated: it may contain a password."""
    scheme = url.partition(":")[0]
    if scheme not in SCHEMES:
        raise ConfigError(
            f"replica_root cannot be used: replicas are not stored in {scheme}",
            hint=f"use a directory, or a URL that begins with {', '.join(f'{s}://' for s in SCHEMES)}",
        )
    if not re.fullmatch(_FORMS[scheme], url):
        raise ConfigError(
            f"replica_root is not a URL of the form {_EXAMPLES[scheme]}",
            hint="without user name, password, query, blanks or escapes; credentials belong in the environment",
        )


@lru_cache(maxsize=16)
def storage_of(root: Root) -> Storage:
    """Raises ConfigError if a URL cannot be a root."""
    if isinstance(root, Path):
        return LocalStorage(root)
    _check(root)
    return ObjectStorage(root, os.environ)


def problem(root: Root) -> PgtrickleError | None:
    """Why replicas cannot be stored there now; None: they can. Leaves nothing behind."""
    try:
        if isinstance(root, Path):
            files.check_usable(root)
        else:
            storage = storage_of(root)
            assert isinstance(storage, ObjectStorage)
            storage.try_out()
    except PgtrickleError as error:
        return error
    return None
