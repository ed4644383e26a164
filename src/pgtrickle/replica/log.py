"""The Delta log of a replica: its files and its cut. The only module that imports deltalake."""

from __future__ import annotations

import json
import time
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from pgtrickle.errors import ReplicaUnavailableError
from pgtrickle.model.flow import Cut
from pgtrickle.replica.values import (
    FORMAT,
    DamagedError,
    ReplicaColumn,
    ReplicaFile,
    ReplicaId,
    ReplicaLayer,
    ReplicaVersion,
)

if TYPE_CHECKING:
    from deltalake import CommitProperties, Schema
    from deltalake.transaction import AddAction

    from pgtrickle.replica.storage import Storage

_DELTA_TYPES = {"smallint": "short", "int": "integer", "bigint": "long"}  # the others have Spark's names
METADATA = "pgtrickle"
# Checkpoints and logs of obsolete versions are removed after this time.
_CONFIGURATION = {"delta.logRetentionDuration": "interval 1 days", "delta.checkpointInterval": "20"}


def create(storage: Storage, version: ReplicaVersion) -> None:
    """The first commit."""
    from deltalake.exceptions import DeltaError
    from deltalake.transaction import create_table_with_add_actions

    try:
        create_table_with_add_actions(
            version.directory,
            _schema(version.columns),
            [_added(storage, version, each) for each in version.files],
            mode="error",
            name=f"table {version.id.relid}",
            configuration=_CONFIGURATION,
            commit_properties=_properties(version),
            storage_options=storage.log_options,
        )
    except (DeltaError, OSError) as error:
        if storage.is_remote:
            raise ReplicaUnavailableError(f"the replica cannot be committed: {storage.clean(error)}") from None
        raise


def commit(
    storage: Storage, version: ReplicaVersion, added: Sequence[ReplicaFile], removed: Sequence[ReplicaFile]
) -> None:
    """Commits `version` as the successor of the previous one, with these files added and removed.

    Without files it changes only the metadata of the commit: the cut and the layers. Raises ReplicaUnavailableError if
    another process has committed that version, or the storage fails. In an object store it may have committed then;
    whoever opens the replica next finds out by the announced token.
    """
    from deltalake import DeltaTable
    from deltalake.exceptions import CommitFailedError, DeltaError
    from deltalake.transaction import RemoveAction

    now = int(time.time() * 1000)
    actions: list[Any] = [RemoveAction(f.name, True, now, f.bytes) for f in removed]
    actions += [_added(storage, version, each) for each in added]
    try:
        table = DeltaTable(version.directory, version=version.version - 1, storage_options=storage.log_options)
        table.create_write_transaction(
            actions, "append", _schema(version.columns), commit_properties=_properties(version)
        )
    except CommitFailedError as error:
        raise ReplicaUnavailableError("another process has committed this version of the replica") from error
    except (DeltaError, OSError) as error:
        if storage.is_remote:
            raise ReplicaUnavailableError(f"the replica cannot be committed: {storage.clean(error)}") from None
        if isinstance(error, OSError):
            raise
        raise DamagedError(f"its log does not accept a commit: {storage.clean(error)}") from error


def load(
    storage: Storage, id_: ReplicaId, directory: str, generation: str, number: int | None = None
) -> ReplicaVersion:
    """The latest commit, or an earlier one by its number. Raises DamagedError; if the storage fails as a whole,
    ReplicaUnavailableError."""
    try:
        return _load(storage, id_, directory, generation, number)
    except DamagedError:
        if not storage.is_remote:
            raise
    storage.check_answers()
    try:
        return _load(storage, id_, directory, generation, number)  # the store may have failed at the first attempt
    except DamagedError:
        storage.check_answers()
        raise


def _load(storage: Storage, id_: ReplicaId, directory: str, generation: str, number: int | None) -> ReplicaVersion:
    from deltalake import DeltaTable
    from deltalake.exceptions import DeltaError

    if not storage.has_log(directory):
        raise DamagedError("its log is missing")
    try:
        table = DeltaTable(directory, version=number, storage_options=storage.log_options)
        files = _files(table)
        metadata = _metadata(storage, directory, int(table.version()))
        if metadata["format"] != FORMAT:
            raise DamagedError(f"it has format {metadata['format']}, this program writes {FORMAT}")
        version = ReplicaVersion(
            id_,
            directory,
            metadata["generation"],
            int(table.version()),
            metadata["token"],
            Cut.parse(metadata["cut"]),
            metadata["fingerprint"],
            tuple(ReplicaColumn(**each) for each in metadata["columns"]),
            tuple(metadata["key"]),
            tuple(files),
            Cut.parse(metadata["base_cut"]),
            tuple(ReplicaLayer(**each) for each in metadata["layers"]),
        )
    except (DeltaError, KeyError, IndexError, TypeError, ValueError, OSError) as error:
        raise DamagedError(f"its log is not readable: {storage.clean(error)}") from error
    if metadata["generation"] != generation:
        raise DamagedError("its log is not the one that was written")
    if version.rows != metadata["rows"] or len(version.files) != metadata["files"]:
        raise DamagedError("its log does not list the files that were written")
    return version


def _metadata(storage: Storage, directory: str, number: int) -> dict[str, Any]:
    """The metadata of a commit, from its file. history() of an earlier version returns later ones, too."""
    lines = storage.read_text(f"{directory}/_delta_log/{number:020d}.json").splitlines()
    infos = [action["commitInfo"] for line in lines if line.strip() and "commitInfo" in (action := json.loads(line))]
    metadata: dict[str, Any] = infos[0][METADATA]
    return metadata


def removable(storage: Storage, directory: str, grace_hours: int) -> list[str]:
    """Files that no recent version contains."""
    from deltalake import DeltaTable
    from deltalake.exceptions import DeltaError

    try:
        table = DeltaTable(directory, storage_options=storage.log_options)
        paths = table.vacuum(grace_hours, dry_run=True, enforce_retention_duration=False, full=True)
    except (DeltaError, OSError):  # the log was damaged just now, or the storage fails: the next open reports it
        return []
    return [name for each in paths if (name := str(each)).startswith("part-")]


def _files(table: Any) -> list[ReplicaFile]:
    import pyarrow as pa

    listed = pa.table(table.get_add_actions()).to_pylist()
    return [_file(each) for each in listed]


def _file(listed: dict[str, Any]) -> ReplicaFile:
    """Only the bounds of the key's first column are written."""
    low = next((v for v in (listed.get("min") or {}).values() if v is not None), None)
    high = next((v for v in (listed.get("max") or {}).values() if v is not None), None)
    return ReplicaFile(listed["path"], listed["size_bytes"], listed["num_records"], low, high)


def _added(storage: Storage, version: ReplicaVersion, file: ReplicaFile) -> AddAction:
    from deltalake.transaction import AddAction

    stats: dict[str, Any] = {"numRecords": file.rows}
    if version.key and file.low is not None and file.high is not None:
        leading = next(c.physical for c in version.columns if c.name in version.key)
        stats |= {"minValues": {leading: file.low}, "maxValues": {leading: file.high}}
    modified = storage.written_ms(f"{version.directory}/{file.name}")
    return AddAction(file.name, file.bytes, {}, modified, True, json.dumps(stats))


def _properties(version: ReplicaVersion) -> CommitProperties:
    from deltalake import CommitProperties

    metadata = {
        "format": FORMAT,
        "generation": version.generation,
        "token": version.token,
        "origin": version.id.instance.key,
        "relid": version.id.relid,
        "cut": str(version.cut),
        "fingerprint": version.fingerprint,
        "columns": [c.to_json() for c in version.columns],
        "key": list(version.key),
        "base_cut": str(version.base_cut),
        "layers": [each.to_json() for each in version.layers],
        "rows": version.rows,
        "files": len(version.files),
    }
    # Without retries, which would append to a commit of another process.
    return CommitProperties({METADATA: metadata}, max_commit_retries=0)


def _schema(columns: Sequence[ReplicaColumn]) -> Schema:
    from deltalake import Field, Schema
    from deltalake.schema import PrimitiveType

    return Schema(
        [
            Field(
                c.physical,
                PrimitiveType(_DELTA_TYPES.get(c.ddl, c.ddl)),
                nullable=True,
                metadata={"postgres_type": c.type},
            )
            for c in columns
        ]
    )
