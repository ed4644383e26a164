"""The value types of replicas. Pure."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from pgtrickle.errors import DefinitionError
from pgtrickle.model.flow import Cut, Instance

FORMAT = 2  # of the metadata in a commit
_PLAIN = re.compile(r"[A-Za-z_][A-Za-z0-9_]{0,62}")
_ATTRIBUTE = re.compile(r"c\d+", re.IGNORECASE)


class DamagedError(Exception):
    """A replica is unusable and has to be built again."""


@dataclass(frozen=True, slots=True)
class ReplicaId:
    """A table of a database of a server."""

    instance: Instance
    relid: int

    @property
    def path(self) -> str:
        return f"{self.instance.system_identifier}/{self.instance.database_oid}/{self.relid}"


@dataclass(frozen=True, slots=True)
class Computed:
    """A column that PostgreSQL computes: an expression over the columns `attnums` of the table, by their names."""

    name: str
    expression: str
    attnums: tuple[int, ...]

    def __post_init__(self) -> None:
        if not _PLAIN.fullmatch(self.name) or _ATTRIBUTE.fullmatch(self.name):
            raise DefinitionError(f"{self.name!r} cannot be the name of a computed column of a replica")

    def to_json(self) -> dict[str, Any]:
        return {"name": self.name, "expression": self.expression, "attnums": list(self.attnums)}

    @classmethod
    def from_json(cls, value: Mapping[str, Any]) -> Computed:
        return cls(value["name"], value["expression"], tuple(value["attnums"]))


@dataclass(frozen=True, slots=True)
class ReplicaNeed:
    """The columns that a reader needs of a table. `attnums` None: all columns."""

    relid: int
    attnums: frozenset[int] | None
    computed: tuple[Computed, ...] = ()


@dataclass(frozen=True, slots=True)
class ReplicaColumn:
    """`name` in DataFrames, `physical` in the files, `ddl`: the type in both; `type`: PostgreSQL's.

    `attnum` None: a computed column.
    """

    name: str
    physical: str
    ddl: str
    type: str
    attnum: int | None = None
    expression: str | None = None

    def to_json(self) -> dict[str, Any]:
        return {
            "name": self.name,
            "physical": self.physical,
            "ddl": self.ddl,
            "type": self.type,
            "attnum": self.attnum,
            "expression": self.expression,
        }


@dataclass(frozen=True, slots=True)
class ReplicaFile:
    """A data file: its name in the directory of the table. `low` and `high` bound the first column of the key."""

    name: str
    bytes: int
    rows: int
    low: int | str | None = None
    high: int | str | None = None


@dataclass(frozen=True, slots=True)
class ReplicaLayer:
    """Changes since the data files, in a file beside the table: images with their net weights. `memory`: its size in
    memory, in bytes."""

    name: str
    bytes: int
    images: int
    deleted: int
    inserted: int
    memory: int

    def to_json(self) -> dict[str, Any]:
        return {
            "name": self.name,
            "bytes": self.bytes,
            "images": self.images,
            "deleted": self.deleted,
            "inserted": self.inserted,
            "memory": self.memory,
        }


@dataclass(frozen=True, slots=True)
class ReplicaVersion:
    """A replica as of one commit of its log: the rows of its files, then the changes of its layers, are the table at
    `cut`. Without the layers they are the table at `base_cut`."""

    id: ReplicaId
    directory: str
    generation: str
    version: int
    token: str
    cut: Cut
    fingerprint: str
    columns: tuple[ReplicaColumn, ...]
    key: tuple[str, ...]
    files: tuple[ReplicaFile, ...]
    base_cut: Cut
    layers: tuple[ReplicaLayer, ...] = ()

    @property
    def base_rows(self) -> int:
        return sum(each.rows for each in self.files)

    @property
    def rows(self) -> int:
        return self.base_rows + sum(each.inserted - each.deleted for each in self.layers)

    @property
    def bytes(self) -> int:
        return sum(each.bytes for each in self.files) + sum(each.bytes for each in self.layers)

    @property
    def base_paths(self) -> list[str]:
        """Of the data files, without the layers."""
        return [f"{self.directory}/{each.name}" for each in self.files]

    @property
    def layer_paths(self) -> list[str]:
        return [f"{self.directory}/{each.name}" for each in self.layers]

    @property
    def attnums(self) -> frozenset[int]:
        return frozenset(c.attnum for c in self.columns if c.attnum is not None)

    @property
    def computed(self) -> Mapping[str, str]:
        return {c.name: c.expression for c in self.columns if c.expression is not None}

    def has(self, need: ReplicaNeed) -> bool:
        known = self.computed
        is_computed = all(known.get(c.name) == c.expression for c in need.computed)
        return is_computed and need.attnums is not None and need.attnums <= self.attnums


@dataclass(frozen=True, slots=True)
class CatalogRow:
    """A row of pgt_replicas."""

    relid: int
    generation: str
    location: str
    attnums: frozenset[int]
    computed: tuple[Computed, ...]
    as_text: frozenset[str]
    readers: tuple[int, ...]
    is_requested: bool
    announced: tuple[str, ...]
    committed: str | None
    cut: Cut | None
    netted: int | None

    def knows(self, token: str) -> bool:
        """Whether a commit with this token was announced."""
        return token == self.committed or token in self.announced

    @classmethod
    def of(cls, row: Sequence[Any]) -> CatalogRow:
        relid, generation, location, columns, computed, as_text, readers, is_requested, announced, committed, *rest = (
            row
        )
        cut, netted = rest
        return cls(
            relid,
            generation,
            location,
            frozenset(columns),
            tuple(Computed.from_json(each) for each in computed),
            frozenset(as_text),
            tuple(readers),
            is_requested,
            tuple(announced),
            committed,
            None if cut is None else Cut.parse(cut),
            None if netted is None else int(netted),
        )


def physical_names(names: Sequence[tuple[str, str]]) -> list[str]:
    """Names in files for (name in DataFrames, name in PostgreSQL).

    PostgreSQL's name if every engine can read it and distinguish it from the others: letters, digits and underscores,
    compared without case.
    """
    counts: dict[str, int] = {}
    for _, shown in names:
        counts[shown.lower()] = counts.get(shown.lower(), 0) + 1
    found: list[str] = []
    taken = {shown.lower() for _, shown in names}
    for name, shown in names:
        if _PLAIN.fullmatch(shown) and counts[shown.lower()] == 1:
            found.append(shown)
            continue
        other = name
        while other.lower() in taken:
            other += "_"
        taken.add(other.lower())
        found.append(other)
    return found
