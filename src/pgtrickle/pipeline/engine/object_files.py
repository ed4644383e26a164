"""Files in an object store (S3, Azure, Google Cloud Storage, HDFS), for the control plane and for executors.

The file handler of `deltalake` reads and writes them, as it does the log of a replica: executors need no Hadoop file
system, and there is one way to configure credentials. They come from the environment, a profile, or the identity of the
machine. Variables of the control plane's environment that contain credentials or addresses reach executors in the
serialized function of a task, as the password of PostgreSQL does; they are in no plan, log or file.

Executors import this module by name.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pgtrickle.errors import ReplicaUnavailableError

if TYPE_CHECKING:
    import pyarrow as pa

SCHEMES = ("s3", "s3a", "abfss", "gs", "hdfs")
DIGEST_HEX = 32
COPIED_BYTES = 8 << 20
# A request is repeated for some seconds; what still fails is repeated as a whole by the scheduler.
LIMITS = {"timeout": "60s", "connect_timeout": "5s", "max_retries": "6", "retry_timeout": "30s"}
_S3 = (
    *("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY", "AWS_SESSION_TOKEN", "AWS_REGION", "AWS_DEFAULT_REGION"),
    *("AWS_ENDPOINT_URL", "AWS_ENDPOINT_URL_S3", "AWS_ALLOW_HTTP", "AWS_VIRTUAL_HOSTED_STYLE_REQUEST"),
)
_AZURE = (
    *("AZURE_STORAGE_ACCOUNT_NAME", "AZURE_STORAGE_ACCOUNT_KEY", "AZURE_STORAGE_SAS_TOKEN", "AZURE_STORAGE_ENDPOINT"),
    *("AZURE_CLIENT_ID", "AZURE_CLIENT_SECRET", "AZURE_TENANT_ID"),
)
_GOOGLE = ("GOOGLE_SERVICE_ACCOUNT_KEY",)
_VARIABLES = {"s3": _S3, "s3a": _S3, "abfss": _AZURE, "gs": _GOOGLE, "hdfs": ()}
_SECRETS = ("KEY", "KEY_ID", "SECRET", "TOKEN")
_COLOUR = re.compile(r"\x1b\[\d*m")
_QUERY = re.compile(r"\?[^\s]*")


@dataclass(frozen=True, slots=True)
class ObjectInfo:
    """A file below the root of a store, its size in bytes, and when it was written (nanoseconds since 1970)."""

    path: str
    size: int
    written: int


@dataclass(frozen=True, slots=True)
class ObjectFiles:
    """Files below a URL. Paths are relative to it. `options`: (name, value), as `deltalake` takes them; secret.

    All methods raise FileNotFoundError, or ReplicaUnavailableError if the store does not do what it should.
    """

    root: str
    options: tuple[tuple[str, str], ...] = field(default=(), repr=False)

    def read(self, path: str) -> bytes:
        with self._translated():
            return bytes(self._handler().open_input_file(path).read())

    def open(self, path: str) -> pa.PythonFile:
        """Opens a file to read parts of it. Reads raise OSError."""
        import pyarrow as pa

        with self._translated():
            return pa.PythonFile(self._handler().open_input_file(path), mode="r")

    def write(self, path: str, content: bytes) -> None:
        with self._translated():
            stream = self._handler().open_output_stream(path)
            stream.write(content)
            stream.close()

    def copy(self, local: Path, path: str) -> None:
        """Copies a local file to the store."""
        with local.open("rb") as file, self._translated():
            stream = self._handler().open_output_stream(path)
            while part := file.read(COPIED_BYTES):
                stream.write(part)
            stream.close()

    def below(self, path: str, *, recursive: bool = False) -> list[ObjectInfo]:
        """The files below a directory; none if it does not exist."""
        from pyarrow import fs

        with self._translated():
            entries = self._handler().get_file_info_selector(path, True, recursive)
            return [ObjectInfo(i.path, i.size, i.mtime_ns or 0) for i in entries if i.type == fs.FileType.File]

    def directories(self, path: str) -> list[str]:
        """The names of the directories in a directory."""
        from pyarrow import fs

        with self._translated():
            entries = self._handler().get_file_info_selector(path, True, False)
            return [i.path.rstrip("/").rpartition("/")[2] for i in entries if i.type == fs.FileType.Directory]

    def delete(self, path: str) -> None:
        """Deletes a file; no error if it does not exist."""
        with self._translated():
            try:
                self._handler().delete_file(path)
            except FileNotFoundError:
                return

    def delete_all(self, path: str) -> None:
        """Deletes all files below a directory."""
        for each in self.below(path, recursive=True):
            self.delete(each.path)

    def clean(self, error: BaseException) -> str:
        """The text of an error of the store in one line, without the query of a URL, which may contain a signature, and
        without a secret option."""
        text = " ".join(_QUERY.sub("", _COLOUR.sub("", str(error)).replace("↳", "-")).split())
        for name, value in self.options:
            if name.endswith(_SECRETS):
                text = text.replace(value, "...")
        return text[:300] or type(error).__name__

    @contextmanager
    def _translated(self) -> Iterator[None]:
        try:
            yield
        except FileNotFoundError:
            raise
        except OSError as error:
            raise ReplicaUnavailableError(f"the object store of {self.root} fails: {self.clean(error)}") from None

    def _handler(self) -> Any:
        return _handler(self.root, self.options)


@lru_cache(maxsize=16)
def _handler(root: str, options: tuple[tuple[str, str], ...]) -> Any:
    """With its open connections, once per process."""
    from deltalake.fs import DeltaStorageHandler

    # Its raw handler: the wrapper passes Arrow buffers on to a method that takes bytes only.
    return DeltaStorageHandler(root, {**LIMITS, **dict(options)})._handler


def options_for_executors(root: str, environ: Mapping[str, str]) -> tuple[tuple[str, str], ...]:
    """Credentials and addresses in this environment. Not what is valid on this machine only: names of files, profiles,
    and the identity of the machine, of which executors have their own."""
    names = _VARIABLES[root.partition(":")[0]]
    return tuple((name, environ[name]) for name in names if environ.get(name))


def digest(content: bytes) -> str:
    return hashlib.blake2b(content, digest_size=DIGEST_HEX // 2).hexdigest()


def parquet_bytes(table: pa.Table, compression: str) -> bytes:
    import pyarrow as pa
    from pyarrow import parquet

    sink = pa.BufferOutputStream()
    parquet.write_table(table, sink, compression=compression)
    return bytes(sink.getvalue())


def paths_below(root: str, urls: Sequence[str]) -> list[str]:
    return [url.removeprefix(f"{root}/") for url in urls]
