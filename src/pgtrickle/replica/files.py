"""Data files of replicas: private, named after a hash of their content, which is checked before use."""

from __future__ import annotations

import hashlib
import os
import secrets
import shutil
import time
from collections.abc import Collection, Iterable
from pathlib import Path
from typing import TYPE_CHECKING

from pgtrickle.errors import ConfigError
from pgtrickle.replica.values import DamagedError, ReplicaFile, ReplicaLayer, ReplicaVersion

if TYPE_CHECKING:
    from pgtrickle.replica.values import ReplicaColumn

STAGING = "_staging_"  # readers of Delta tables skip names that begin with an underscore
LAYERS = "_changes"
GRACE_HOURS = 1  # files of earlier versions stay for refreshes that read them
DIGEST_HEX = 32
BOUNDED = ("smallint", "int", "bigint", "string")  # types of columns whose bounds are stored
_LONGEST_BOUND = 64  # characters of a text that is stored as the bound of a file
_GLOB = frozenset("*?[]{}\\,")


def private(directory: Path) -> Path:
    """Creates the directory with access for us only. Raises ConfigError on failure, or if another user owns it."""
    _check_name(directory)
    try:
        directory.mkdir(mode=0o700, parents=True, exist_ok=True)
        status = directory.stat()
        if status.st_uid != os.geteuid():
            raise ConfigError(
                f"{directory} belongs to another user", hint="set replica_root to a directory of this user"
            )
        if status.st_mode & 0o077:
            directory.chmod(0o700)
    except OSError as error:
        raise ConfigError(f"{directory} cannot be created: {error.strerror}", hint="set replica_root") from error
    return directory


def check_usable(directory: Path) -> None:
    """Raises ConfigError if `private` would; creates and changes nothing."""
    _check_name(directory)
    existing = next(each for each in (directory, *directory.parents) if each.exists())
    if not existing.is_dir() or not os.access(existing, os.W_OK | os.X_OK):
        raise ConfigError(f"{directory} cannot be created or written", hint="set replica_root")
    if existing == directory and directory.stat().st_uid != os.geteuid():
        raise ConfigError(f"{directory} belongs to another user", hint="set replica_root to a directory of this user")


def _check_name(directory: Path) -> None:
    if _GLOB & set(str(directory)) or not directory.is_absolute():
        raise ConfigError(
            f"replica_root {directory} cannot be used", hint="use an absolute path without any of * ? [ ] { } \\ ,"
        )


def publish(staged: Path, directory: Path, leading: ReplicaColumn | None) -> list[ReplicaFile]:
    """Moves the files that Spark has written, and names each after its content. `leading`: the key's first column."""
    from pyarrow import parquet

    if not staged.is_dir():
        raise ConfigError(
            f"Spark has written a replica to {staged}, which does not exist here",
            hint="replica_root must be a directory that this machine and Spark's executors share",
        )
    published: list[ReplicaFile] = []
    for number, path in enumerate(sorted(staged.glob("part-*.parquet"))):
        metadata = parquet.read_metadata(path)
        if metadata.num_rows == 0:
            continue
        path.chmod(0o600)
        name = f"part-{secrets.token_hex(6)}-{number:05d}-{digest(path)}.parquet"
        checksums = staged / f".{path.name}.crc"  # Spark checks them when it reads
        if checksums.exists():
            checksums.chmod(0o600)
            checksums.rename(directory / f".{name}.crc")
        path.rename(directory / name)
        low, high = _bounds(metadata, leading)
        published.append(ReplicaFile(name, (directory / name).stat().st_size, metadata.num_rows, low, high))
    shutil.rmtree(staged, ignore_errors=True)
    return published


def publish_layer(staged: Path, directory: Path) -> tuple[str, int]:
    """Moves a file of changes to a directory that readers of Delta tables ignore. Returns its name and size."""
    name = f"{LAYERS}/layer-{secrets.token_hex(6)}-{digest(staged)}.parquet"
    (directory / LAYERS).mkdir(mode=0o700, exist_ok=True)
    staged.rename(directory / name)
    return name, (directory / name).stat().st_size


def retire(paths: Iterable[Path]) -> None:
    """Sets the modification time of layers that the next version does not have, so that they stay for a while."""
    for path in paths:
        os.utime(path)


def sweep_layers(version: ReplicaVersion, hours: int) -> None:
    """Deletes layers that the version does not have."""
    kept = set(map(Path, version.layer_paths))
    for path in (Path(version.directory) / LAYERS).glob("layer-*.parquet"):
        if path not in kept and _is_older(path, hours):
            path.unlink(missing_ok=True)


def close_off(directory: Path) -> None:
    """Restricts the permissions of the log, which is written with the defaults of the process."""
    for path in [directory, *(directory / "_delta_log").rglob("*"), directory / "_delta_log"]:
        path.chmod(0o700 if path.is_dir() else 0o600)


def delete(directory: Path, names: Iterable[str]) -> None:
    for name in names:
        (directory / name).unlink(missing_ok=True)
        (directory / f".{name}.crc").unlink(missing_ok=True)


def states(version: ReplicaVersion) -> dict[str, tuple[int, ...]]:
    """Size, identity and times of those files of the version that exist."""
    states: dict[str, tuple[int, ...]] = {}
    listed: list[ReplicaFile | ReplicaLayer] = [*version.files, *version.layers]
    for file in listed:
        try:
            state = (Path(version.directory) / file.name).stat()
        except OSError:
            continue
        states[file.name] = (state.st_size, state.st_ino, state.st_mtime_ns, state.st_ctime_ns)
    return states


def digest(path: Path) -> str:
    try:
        with path.open("rb") as file:
            return hashlib.file_digest(file, lambda: hashlib.blake2b(digest_size=DIGEST_HEX // 2)).hexdigest()
    except OSError as error:
        raise DamagedError(f"file {path.name} is not readable") from error


def _bounds(metadata: object, leading: ReplicaColumn | None) -> tuple[int | str | None, int | str | None]:
    """Minimum and maximum of a column in a file; None if its footer does not contain them."""
    if leading is None or leading.ddl not in BOUNDED:
        return None, None
    lows, highs = [], []
    for number in range(metadata.num_row_groups):  # type: ignore[attr-defined]
        group = metadata.row_group(number)  # type: ignore[attr-defined]
        column = next(c for i in range(group.num_columns) if (c := group.column(i)).path_in_schema == leading.physical)
        statistics = column.statistics
        if statistics is None or not statistics.has_min_max:
            return None, None
        lows.append(statistics.min)
        highs.append(statistics.max)
    return short_bounds(min(lows), max(highs))


def short_bounds(low: int | str | None, high: int | str | None) -> tuple[int | str | None, int | str | None]:
    if isinstance(low, str) and isinstance(high, str) and max(len(low), len(high)) > _LONGEST_BOUND:
        return None, None
    return low, high


def sweep_staging(directory: Path, hours: int) -> None:
    """Deletes staging files of killed processes."""
    for path in directory.glob(f"{STAGING}*"):
        if _is_older(path, hours):
            shutil.rmtree(path, ignore_errors=True) if path.is_dir() else path.unlink(missing_ok=True)


def remove_old(location: Path, kept: Collection[str], hours: int) -> None:
    """Removes directories with other names than these."""
    for path in location.iterdir():
        if path.name not in kept and path.is_dir() and _is_older(path, hours):
            shutil.rmtree(path, ignore_errors=True)


def _is_older(path: Path, hours: int) -> bool:
    try:
        return time.time() - path.stat().st_mtime > hours * 3600
    except OSError:
        return False
