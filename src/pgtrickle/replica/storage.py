"""Where the files of replicas are: in a directory (here) or in an object store (objects.py).

Locations are texts: absolute paths, or URLs. A location below the root of a storage belongs to it.
"""

from __future__ import annotations

import secrets
import shutil
import threading
from abc import ABC, abstractmethod
from collections.abc import Collection, Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pgtrickle.replica import files
from pgtrickle.replica.values import DamagedError, ReplicaFile, ReplicaId, ReplicaLayer, ReplicaVersion

if TYPE_CHECKING:
    import pyarrow as pa

    from pgtrickle.pipeline.engine.columnar import Frame, Session, Shape
    from pgtrickle.replica.values import ReplicaColumn

_THREADS = 8
State = tuple[int, ...]  # of a file: another one if it was written since; the first number is its size


class Storage(ABC):
    """The files of all replicas below a root."""

    root: str

    def location(self, id_: ReplicaId) -> str:
        return f"{self.root}/{id_.path}"

    def staging(self, directory: str) -> str:
        """The name of a directory for files of a refresh."""
        return f"{directory}/{files.STAGING}{secrets.token_hex(8)}"

    # Directories.

    @abstractmethod
    def create(self, directory: str) -> None:
        """With access for us only. Raises ConfigError on failure."""

    @abstractmethod
    def create_staging(self, staged: str) -> None: ...

    @abstractmethod
    def remove(self, location: str) -> None:
        """All files below it. Raises ReplicaUnavailableError if files remain."""

    @abstractmethod
    def discard(self, location: str) -> None:
        """The same after a failure; files that remain are deleted later."""

    @abstractmethod
    def remove_old(self, location: str, kept: Collection[str], hours: int) -> None:
        """Removes directories with other names than these."""

    @abstractmethod
    def remove_orphans(self, location: str, kept: Collection[str], hours: int) -> None:
        """The same for tables without a replica; called often."""

    @abstractmethod
    def sweep(self, version: ReplicaVersion, unused: Iterable[str], hours: int) -> None:
        """Deletes data files that no recent version contains, and layers and staging files that nobody uses."""

    # Files.

    @abstractmethod
    def delete(self, directory: str, names: Iterable[str]) -> None: ...

    @abstractmethod
    def give_up(self, directory: str, names: Iterable[str]) -> None:
        """After an error: deletes files of a commit, unless the commit may have happened nevertheless."""

    @abstractmethod
    def states(self, version: ReplicaVersion) -> Mapping[str, State]:
        """By name, of those files of the version that exist."""

    @abstractmethod
    def is_settled(self, state: State) -> bool:
        """Whether a file that is written again now will have another state."""

    @abstractmethod
    def digest(self, path: str) -> str:
        """Raises DamagedError if there is no such file."""

    @abstractmethod
    def write_table(self, table: pa.Table, path: str, compression: str) -> None: ...

    @abstractmethod
    def read_table(self, path: str, columns: Sequence[str] | None = None) -> pa.Table: ...

    @abstractmethod
    def writer(self, path: str, schema: pa.Schema) -> Any:
        """A ParquetWriter."""

    @abstractmethod
    def add_layer(self, table: pa.Table, staged: str, directory: str) -> tuple[str, int]:
        """Writes a file of changes. Returns its name and size."""

    @abstractmethod
    def retire(self, layers: Iterable[str]) -> None:
        """Notes that the next version does not have these layers, so that they stay for a while from now on."""

    # Files that Spark reads and writes.

    @abstractmethod
    def used_columns(self, shape: Shape, used: Collection[str] | None) -> Shape:
        """The columns that a DataFrame for a query must have. `used`: those of the query; None: all."""

    @abstractmethod
    def scan(
        self, spark: Session, paths: Sequence[str], columns: Sequence[tuple[str, str]], *, with_file: bool = False
    ) -> Frame:
        """A `columnar.Scan`."""

    @abstractmethod
    def write_sorted(
        self,
        frame: Frame,
        shape: Shape,
        directory: str,
        staged: str,
        leading: ReplicaColumn | None,
        *,
        parts: int | None,
        rows_per_file: int,
    ) -> list[ReplicaFile]:
        """Writes data files. `staged`: for files that are not complete yet; `leading`: the key's first column."""

    @abstractmethod
    def write_one(self, frame: Frame, shape: Shape, staged: str, name: str) -> str:
        """Writes images with their weights. Returns the path of the file."""

    # The log.

    @property
    def log_options(self) -> dict[str, str] | None:
        return None

    @abstractmethod
    def has_log(self, directory: str) -> bool: ...

    @abstractmethod
    def read_text(self, path: str) -> str:
        """Raises OSError if there is no such file."""

    @abstractmethod
    def written_ms(self, path: str) -> int:
        """When a file was written, in milliseconds since 1970."""

    @abstractmethod
    def close_off(self, directory: str) -> None:
        """Restricts the permissions of the log, which is written with the defaults of the process."""

    @property
    @abstractmethod
    def is_remote(self) -> bool:
        """Whether it can fail as a whole, for a while."""

    @abstractmethod
    def check_answers(self) -> None:
        """Raises ReplicaUnavailableError if it fails as a whole: then an error says nothing about its files."""

    def clean(self, error: BaseException) -> str:
        """The first line of an error, without secrets."""
        return (str(error).strip().splitlines() or [type(error).__name__])[0][:200]


class LocalStorage(Storage):
    """A directory that this machine and Spark's executors see."""

    def __init__(self, root: Path) -> None:
        self.root = str(root)

    def used_columns(self, shape: Shape, used: Collection[str] | None) -> Shape:
        del used  # Spark's own scan reads only what a query uses
        return shape

    def create(self, directory: str) -> None:
        files.private(Path(self.root))
        path = files.private(Path(directory))
        for parent in path.parents[:3]:  # of the table, of the database and of the server
            files.private(parent)

    def create_staging(self, staged: str) -> None:
        Path(staged).mkdir(mode=0o700)

    def remove(self, location: str) -> None:
        shutil.rmtree(location, ignore_errors=True)

    def discard(self, location: str) -> None:
        shutil.rmtree(location, ignore_errors=True)

    def remove_old(self, location: str, kept: Collection[str], hours: int) -> None:
        files.remove_old(Path(location), kept, hours)

    def remove_orphans(self, location: str, kept: Collection[str], hours: int) -> None:
        if Path(location).is_dir():
            files.remove_old(Path(location), kept, hours)

    def sweep(self, version: ReplicaVersion, unused: Iterable[str], hours: int) -> None:
        directory = Path(version.directory)
        files.delete(directory, unused)
        files.sweep_staging(directory, hours)
        files.sweep_layers(version, hours)

    def delete(self, directory: str, names: Iterable[str]) -> None:
        files.delete(Path(directory), names)

    def give_up(self, directory: str, names: Iterable[str]) -> None:
        files.delete(Path(directory), names)

    def states(self, version: ReplicaVersion) -> Mapping[str, State]:
        return files.states(version)

    def is_settled(self, state: State) -> bool:
        return bool(state)  # its time of change has nanoseconds

    def digest(self, path: str) -> str:
        return files.digest(Path(path))

    def write_table(self, table: pa.Table, path: str, compression: str) -> None:
        from pyarrow import parquet

        Path(path).parent.mkdir(mode=0o700, exist_ok=True)
        Path(path).touch(mode=0o600)
        parquet.write_table(table, path, compression=compression)

    def read_table(self, path: str, columns: Sequence[str] | None = None) -> pa.Table:
        from pyarrow import dataset, parquet

        if columns is None:
            return parquet.read_table(path)
        return dataset.dataset(path, format="parquet", exclude_invalid_files=True).to_table(columns=list(columns))

    def writer(self, path: str, schema: pa.Schema) -> Any:
        from pyarrow import parquet

        Path(path).parent.mkdir(mode=0o700, exist_ok=True)
        Path(path).touch(mode=0o600)
        return parquet.ParquetWriter(path, schema, compression="snappy")

    def add_layer(self, table: pa.Table, staged: str, directory: str) -> tuple[str, int]:
        path = f"{staged}/layer.parquet"
        self.write_table(table, path, "zstd")
        return files.publish_layer(Path(path), Path(directory))

    def retire(self, layers: Iterable[str]) -> None:
        files.retire(map(Path, layers))

    def scan(
        self, spark: Session, paths: Sequence[str], columns: Sequence[tuple[str, str]], *, with_file: bool = False
    ) -> Frame:
        from pgtrickle.pipeline.engine.columnar import spark_scan

        return spark_scan(spark, [f"file://{path}" for path in paths], columns, with_file=with_file)

    def write_sorted(
        self,
        frame: Frame,
        shape: Shape,
        directory: str,
        staged: str,
        leading: ReplicaColumn | None,
        *,
        parts: int | None,
        rows_per_file: int,
    ) -> list[ReplicaFile]:
        from pgtrickle.pipeline.engine import columnar

        columnar.write_sorted(frame, shape, f"file://{staged}", parts=parts, rows_per_file=rows_per_file)
        return files.publish(Path(staged), Path(directory), leading)

    def write_one(self, frame: Frame, shape: Shape, staged: str, name: str) -> str:
        del shape  # Spark knows the columns
        from pgtrickle.pipeline.engine import columnar

        columnar.write_one(frame, f"file://{staged}/{name}")
        return f"{staged}/{name}"

    def has_log(self, directory: str) -> bool:
        return (Path(directory) / "_delta_log").is_dir()

    def read_text(self, path: str) -> str:
        return Path(path).read_text()

    def written_ms(self, path: str) -> int:
        return int(Path(path).stat().st_mtime * 1000)

    def close_off(self, directory: str) -> None:
        files.close_off(Path(directory))

    @property
    def is_remote(self) -> bool:
        return False

    def check_answers(self) -> None:
        """A directory that does not exist has no files."""


class FileChecker:
    """Checks that files have the content that their names state. Thread-safe."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._known: dict[str, State] = {}

    def check(self, storage: Storage, version: ReplicaVersion) -> None:
        """Raises DamagedError if a file is missing or has changed."""
        found = storage.states(version)
        unknown: list[tuple[str, State]] = []
        listed: list[ReplicaFile | ReplicaLayer] = [*version.files, *version.layers]
        for file in listed:
            state = found.get(file.name)
            if state is None:
                raise DamagedError(f"file {file.name} is missing")
            if state[0] != file.bytes:
                raise DamagedError(f"file {file.name} has {state[0]} bytes instead of {file.bytes}")
            path = f"{version.directory}/{file.name}"
            if self._known.get(path) != state:
                unknown.append((path, state))
        if unknown:
            self._compare(storage, unknown)

    def _compare(self, storage: Storage, listed: Sequence[tuple[str, State]]) -> None:
        with ThreadPoolExecutor(min(_THREADS, len(listed))) as threads:
            digests = list(threads.map(lambda each: storage.digest(each[0]), listed))
        for (path, state), digest in zip(listed, digests, strict=True):
            if digest != Path(path).stem[-files.DIGEST_HEX :]:
                raise DamagedError(f"file {Path(path).name} was modified")
            if storage.is_settled(state):
                with self._lock:
                    self._known[path] = state
