"""Replicas in an object store.

Differences to a directory: files are written once under their final names, because a rename copies; a file's state is
its size and the second in which it was written; directories do not exist; and the store may fail as a whole, which is
never taken for a damaged replica. Access is what the store's own policies allow.
"""

from __future__ import annotations

import logging
import secrets
import tempfile
import threading
import time
from collections.abc import Collection, Iterable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pgtrickle.errors import ConfigError, ReplicaUnavailableError
from pgtrickle.pipeline.engine.object_client import IsolatedFiles
from pgtrickle.pipeline.engine.object_files import LIMITS, ObjectFiles, digest, options_for_executors, parquet_bytes
from pgtrickle.replica import files
from pgtrickle.replica.storage import State, Storage
from pgtrickle.replica.values import DamagedError, ReplicaFile, ReplicaVersion
from pgtrickle.telemetry import REPLICA_READ_BY, event

if TYPE_CHECKING:
    import pyarrow as pa

    from pgtrickle.pipeline.engine.columnar import Frame, Session, Shape
    from pgtrickle.replica.values import ReplicaColumn

log = logging.getLogger(__name__)

RETIRED = ".retired"  # a file beside a layer: its time is when the layer was dropped
SETTLED_SECONDS = 10  # S3 reports times in seconds, by its own clock
HINT = (
    "the identity that pgtrickle run and Spark's executors use (AWS_*, AZURE_* or GOOGLE_* in the environment, or that "
    "of the machine) must be allowed to list, read, write and delete there; the bucket must exist; AWS_ENDPOINT_URL "
    "for a store other than Amazon's, with AWS_ALLOW_HTTP=true if it has no TLS"
)
ORPHAN_SECONDS = 3600.0  # between two lists of all files of a database


class ObjectStorage(Storage):
    """Files below a URL. `environ`: with the credentials, unless the machine has them. Thread-safe."""

    def __init__(self, root: str, environ: Mapping[str, str]) -> None:
        self.root = root
        self._environ = environ
        self._lock = threading.Lock()
        self._reads_itself: dict[str, bool] = {}  # by Spark session
        self._looked: dict[str, float] = {}
        self._staged: set[str] = set()  # staging directories that have files

    @property
    def _shipped(self) -> ObjectFiles:
        """For executors: with credentials of this process, if its environment has them."""
        return ObjectFiles(self.root, options_for_executors(self.root, self._environ))

    @property
    def _files(self) -> IsolatedFiles:
        return IsolatedFiles(self._shipped)

    def create(self, directory: str) -> None:
        """Directories need not be created."""

    def create_staging(self, staged: str) -> None:
        """The same."""

    def remove(self, location: str) -> None:
        self._files.delete_all(self._path(location))

    def discard(self, location: str) -> None:
        if files.STAGING in location:
            with self._lock:
                if location not in self._staged:
                    return  # most refreshes write nothing there
                self._staged.remove(location)
        try:
            self._files.delete_all(self._path(location))
        except ReplicaUnavailableError:
            return  # they are deleted with those of killed processes

    def remove_old(self, location: str, kept: Collection[str], hours: int) -> None:
        path = self._path(location)
        for name in self._files.directories(path):
            if name in kept:
                continue
            found = self._files.below(f"{path}/{name}", recursive=True)
            if all(_is_older(each.written, hours) for each in found):
                for each in found:
                    self._files.delete(each.path)

    def remove_orphans(self, location: str, kept: Collection[str], hours: int) -> None:
        with self._lock:
            if time.monotonic() - self._looked.get(location, float("-inf")) < ORPHAN_SECONDS:
                return
            self._looked[location] = time.monotonic()
        try:
            self.remove_old(location, kept, hours)
        except ReplicaUnavailableError:
            return  # the next call, after a while

    def sweep(self, version: ReplicaVersion, unused: Iterable[str], hours: int) -> None:
        try:
            self.delete(version.directory, unused)
            directory = self._path(version.directory)
            for name in self._files.directories(directory):
                if name.startswith(files.STAGING):
                    for each in self._files.below(f"{directory}/{name}", recursive=True):
                        if _is_older(each.written, hours):
                            self._files.delete(each.path)
            self._sweep_layers(version, hours)
        except ReplicaUnavailableError:
            return  # the next advance sweeps

    def _sweep_layers(self, version: ReplicaVersion, hours: int) -> None:
        found = {each.path: each for each in self._files.below(f"{self._path(version.directory)}/{files.LAYERS}")}
        kept = set(map(self._path, version.layer_paths))
        for path, each in found.items():
            if path in kept or path.endswith(RETIRED):
                continue
            retired = found.get(path + RETIRED)
            if _is_older((retired or each).written, hours):
                self._files.delete(path)
                if retired is not None:
                    self._files.delete(retired.path)

    def delete(self, directory: str, names: Iterable[str]) -> None:
        for name in names:
            self._files.delete(f"{self._path(directory)}/{name}")

    def give_up(self, directory: str, names: Iterable[str]) -> None:
        """The store may have committed although its answer was lost. `sweep` deletes files that no version has."""

    def states(self, version: ReplicaVersion) -> Mapping[str, State]:
        directory = self._path(version.directory)
        listed = self._files.below(directory)
        if version.layers:
            listed += self._files.below(f"{directory}/{files.LAYERS}")
        return {each.path.removeprefix(f"{directory}/"): (each.size, each.written) for each in listed}

    def is_settled(self, state: State) -> bool:
        return time.time() - state[1] / 1e9 > SETTLED_SECONDS

    def digest(self, path: str) -> str:
        try:
            return digest(self._files.read(self._path(path)))
        except FileNotFoundError as error:
            raise DamagedError(f"file {path.rpartition('/')[2]} is missing") from error

    def _stage(self, staged: str) -> None:
        with self._lock:
            self._staged.add(staged)

    def write_table(self, table: pa.Table, path: str, compression: str) -> None:
        self._stage(path.rpartition("/")[0])
        self._files.write(self._path(path), parquet_bytes(table, compression))

    def read_table(self, path: str, columns: Sequence[str] | None = None) -> pa.Table:
        import pyarrow as pa
        from pyarrow import parquet

        try:
            content = self._files.read(self._path(path))
        except FileNotFoundError as error:
            raise DamagedError(f"file {path.rpartition('/')[2]} is missing") from error
        return parquet.read_table(pa.BufferReader(content), columns=None if columns is None else list(columns))

    def writer(self, path: str, schema: pa.Schema) -> Any:
        self._stage(path.rpartition("/")[0])
        return _Writer(self._files, self._path(path), schema)

    def add_layer(self, table: pa.Table, staged: str, directory: str) -> tuple[str, int]:
        del staged
        content = parquet_bytes(table, "zstd")
        name = f"{files.LAYERS}/layer-{secrets.token_hex(6)}-{digest(content)}.parquet"
        self._files.write(f"{self._path(directory)}/{name}", content)
        return name, len(content)

    def retire(self, layers: Iterable[str]) -> None:
        for layer in layers:
            self._files.write(self._path(layer) + RETIRED, b"retired")

    def used_columns(self, shape: Shape, used: Collection[str] | None) -> Shape:
        """Executors read what they are told to. Without a key, rows are counted by the columns that are left, which is
        right for a projection."""
        from pgtrickle.pipeline.engine.columnar import Shape

        if used is None:
            return shape
        kept = tuple(c for c in shape.columns if c.name in used or c.name in shape.key)
        return Shape(kept or shape.columns[:1], shape.key)

    def scan(
        self, spark: Session, paths: Sequence[str], columns: Sequence[tuple[str, str]], *, with_file: bool = False
    ) -> Frame:
        from pgtrickle.pipeline.engine import columnar, object_frames

        if self._is_read_by_spark(spark, paths[0]):
            return columnar.spark_scan(spark, paths, columns, with_file=with_file)
        return object_frames.arrow_frame(spark, self._shipped, paths, columns, with_file=with_file)

    def _is_read_by_spark(self, spark: Session, path: str) -> bool:
        from pgtrickle.pipeline.engine import object_frames

        key = str(spark.session_id)
        found = self._reads_itself.get(key)
        if found is None:
            found = object_frames.reads_itself(spark, path)
            self._reads_itself = {key: found}  # of the latest session
            how = "Spark's own Parquet scan" if found else "Arrow in executors"
            log.info("How replicas are read", extra=event(REPLICA_READ_BY, location=self.root, detail=how))
        return found

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
        from pgtrickle.pipeline.engine import object_frames

        del staged
        has_bounds = leading is not None and leading.ddl in files.BOUNDED
        written = object_frames.write_sorted(
            frame,
            shape,
            self._shipped,
            self._path(directory),
            leading.physical if leading is not None and has_bounds else None,
            parts=parts,
            rows_per_file=rows_per_file,
        )
        return [
            ReplicaFile(each["name"], each["bytes"], each["rows"], *files.short_bounds(each["low"], each["high"]))
            for each in written
        ]

    def write_one(self, frame: Frame, shape: Shape, staged: str, name: str) -> str:
        from pgtrickle.pipeline.engine import columnar, object_frames

        self._stage(staged)
        columns = columnar.weighted_columns(shape)
        path = object_frames.write_one(frame, columns, self._shipped, f"{self._path(staged)}/{name}")
        return f"{self.root}/{path}"

    @property
    def log_options(self) -> dict[str, str] | None:
        return {**LIMITS, **dict(self._shipped.options)}

    def has_log(self, directory: str) -> bool:
        del directory
        return True  # reading it shows

    def read_text(self, path: str) -> str:
        return self._files.read(self._path(path)).decode()

    def written_ms(self, path: str) -> int:
        """For a file that was written just now."""
        del path
        return int(time.time() * 1000)

    def close_off(self, directory: str) -> None:
        """The policies of the store decide who may read."""

    @property
    def is_remote(self) -> bool:
        return True

    def check_answers(self) -> None:
        self._files.directories("")

    def try_out(self) -> None:
        """Writes, lists, reads and deletes a file. Raises ConfigError with a hint."""
        path = f"_pgtrickle_{secrets.token_hex(8)}/test"
        try:
            self._files.write(path, b"test")
            listed = self._files.below(path.rpartition("/")[0])
            is_as_written = [each.size for each in listed] == [4] and self._files.read(path) == b"test"
            self._files.delete(path)
        except (ReplicaUnavailableError, FileNotFoundError) as error:
            raise ConfigError(f"replica_root {self.root} cannot be used: {self.clean(error)}", hint=HINT) from None
        if not is_as_written:
            raise ConfigError(f"replica_root {self.root} cannot be used: it does not return what was written")

    def clean(self, error: BaseException) -> str:
        return self._shipped.clean(error)

    def _path(self, location: str) -> str:
        return location.removeprefix(f"{self.root}/")


class _Writer:
    """A ParquetWriter of a temporary file, which `close` copies to the store."""

    def __init__(self, files_: IsolatedFiles, path: str, schema: pa.Schema) -> None:
        from pyarrow import parquet

        self._files, self._path = files_, path
        self._local = tempfile.NamedTemporaryFile(prefix="pgtrickle-window-", suffix=".parquet")  # noqa: SIM115
        self._writer = parquet.ParquetWriter(self._local.name, schema, compression="zstd")

    def write_table(self, table: pa.Table) -> None:
        self._writer.write_table(table)

    def close(self) -> None:
        with self._local:
            self._writer.close()
            self._files.copy(Path(self._local.name), self._path)


def _is_older(written: int, hours: int) -> bool:
    return time.time() - written / 1e9 > hours * 3600
