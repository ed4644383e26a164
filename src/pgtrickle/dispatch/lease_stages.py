"""The stages of a lease as values, in the order of their execution. Pure."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace

from pgtrickle.model.catalog import StreamTable
from pgtrickle.model.work import CYCLIC, Unit

REFRESHED = ("INITIALIZING", "ACTIVE", "ERROR")


@dataclass(frozen=True, slots=True)
class LeaseStages:
    """The stages before tables are refreshed.

    `apart`: units that are refreshed over connections without session state. `stopped`: tables whose author lacks a
    privilege; they are not even planned. `mirrors` are prepared at their origins, which may be unreachable. `own` are
    prepared here; then `units`, without mirrors, are refreshed (`refresh_stages`). `remote` read tables of other
    databases from their replicas: each is refreshed by itself, before the units, or after them if it reads one of
    their tables.
    """

    apart: tuple[Unit, ...]
    stopped: tuple[StreamTable, ...]
    mirrors: tuple[StreamTable, ...]
    own: tuple[StreamTable, ...]
    units: tuple[Unit, ...]
    remote: tuple[StreamTable, ...] = ()

    def remote_first(self) -> tuple[StreamTable, ...]:
        return tuple(t for t in self.remote if not self._follows(t))

    def remote_last(self) -> tuple[StreamTable, ...]:
        return tuple(t for t in self.remote if self._follows(t))

    def _follows(self, table: StreamTable) -> bool:
        here = {t.relid for t in (*self.own, *self.remote)}
        return any(source.relid in here for source in table.sources)


@dataclass(frozen=True, slots=True)
class WaveStage:
    """Independent tables: read at one snapshot, each committed by itself."""

    ids: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class ChainStage:
    """Tables that read one another, upstream first: read at one snapshot and committed in one transaction."""

    levels: tuple[tuple[int, ...], ...]


@dataclass(frozen=True, slots=True)
class CycleStage:
    """A cycle: none is refreshed without the others."""

    tables: tuple[StreamTable, ...]


RefreshStage = WaveStage | ChainStage | CycleStage


def is_single(unit: Unit) -> bool:
    return len(unit.members) == 1 and unit.kind != CYCLIC


def units_apart(units: Sequence[Unit], tables: Sequence[StreamTable]) -> tuple[Unit, ...]:
    """Units with a table in pooler_compatibility_mode, which need connections without session state."""
    apart = {t.pgt_id for t in tables if t.keeps_no_session}
    return tuple(u for u in units if not apart.isdisjoint(u.members))


def lease_stages(units: Sequence[Unit], tables: Sequence[StreamTable], apart: Collection[Unit]) -> LeaseStages:
    """`tables`: the tables of the units, from the current catalog."""
    here = [u for u in units if u not in apart]
    members = {i for u in here for i in u.members}
    moving = [t for t in tables if t.pgt_id in members and t.status in REFRESHED]
    permitted = [t for t in moving if t.lost_privilege is None]
    mirrors = tuple(t for t in permitted if t.mirror is not None and t.mirror.is_stored)
    remote = tuple(t for t in permitted if t.remotes)
    # Readers of mirrors see them as just committed or, if an origin is unreachable, unchanged.
    done = {t.pgt_id for t in moving if t.mirror is not None or t.remotes}
    # A cycle with such a table is refused when that is prepared; none of its members is refreshed without the others.
    broken = {t.pgt_id for t in remote}
    complete = [u for u in here if u.kind != CYCLIC or broken.isdisjoint(u.members)]
    return LeaseStages(
        tuple(apart),
        tuple(t for t in moving if t.lost_privilege is not None),
        mirrors,
        tuple(t for t in permitted if t.mirror is None and not t.remotes),
        tuple(_without(unit, done) for unit in complete),
        remote,
    )


def cycle_relations(units: Sequence[Unit], tables: Sequence[StreamTable]) -> dict[int, frozenset[int]]:
    """For each table of a cycle, the relations of all its tables."""
    relids = {t.pgt_id: t.relid for t in tables}
    cycles = [u for u in units if u.kind == CYCLIC]
    return {i: frozenset(relids[j] for j in u.members if j in relids) for u in cycles for i in u.members}


def refresh_stages(units: Sequence[Unit], ready: Mapping[int, StreamTable]) -> tuple[RefreshStage, ...]:
    """The refreshes of tables that are ready: one wave for independent ones, then each unit by itself."""
    alone = tuple(i for u in units if is_single(u) for i in u.members if i in ready)
    stages: list[RefreshStage] = [WaveStage(alone)] if alone else []
    for unit in units:
        if unit.kind == CYCLIC:
            if all(i in ready for i in unit.members):
                stages.append(CycleStage(tuple(ready[i] for i in unit.members)))
        elif len(unit.members) > 1:
            levels = tuple(some for level in unit.levels if (some := tuple(i for i in level if i in ready)))
            stages += [ChainStage(levels)] if levels else []
    return tuple(stages)


def _without(unit: Unit, done: Collection[int]) -> Unit:
    levels = tuple(kept for level in unit.levels if (kept := tuple(i for i in level if i not in done)))
    return replace(unit, levels=levels)
