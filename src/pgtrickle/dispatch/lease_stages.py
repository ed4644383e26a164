"""What a worker does for the units of a lease: stages as values, in the order of their execution. Pure."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace

from pgtrickle.model.catalog import StreamTable
from pgtrickle.model.work import CYCLIC, Unit

REFRESHED = ("INITIALIZING", "ACTIVE")


@dataclass(frozen=True, slots=True)
class LeaseStages:
    """The stages before rows move.

    `apart`: units that are refreshed over connections that keep no session. `stopped`: tables that lack a privilege;
    not even a plan is made for them. `mirrors` are prepared at their origins, which may be away. `own` are prepared
    here; then `units`, which have no mirrors any more, move (`move_stages`).
    """

    apart: tuple[Unit, ...]
    stopped: tuple[StreamTable, ...]
    mirrors: tuple[StreamTable, ...]
    own: tuple[StreamTable, ...]
    units: tuple[Unit, ...]


@dataclass(frozen=True, slots=True)
class WaveStage:
    """Tables that stand alone: read at one snapshot, each committed by itself."""

    ids: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class ChainStage:
    """Tables that read one another, upstream first: read and committed at one instant."""

    levels: tuple[tuple[int, ...], ...]


@dataclass(frozen=True, slots=True)
class CycleStage:
    """Tables that read one another in a circle: none moves without the others."""

    tables: tuple[StreamTable, ...]


MoveStage = WaveStage | ChainStage | CycleStage


def is_single(unit: Unit) -> bool:
    return len(unit.members) == 1 and unit.kind != CYCLIC


def units_apart(units: Sequence[Unit], tables: Sequence[StreamTable]) -> tuple[Unit, ...]:
    """Units with a table in pooler_compatibility_mode, whose connections must keep nothing in their session."""
    apart = {t.pgt_id for t in tables if t.keeps_no_session}
    return tuple(u for u in units if not apart.isdisjoint(u.members))


def lease_stages(units: Sequence[Unit], tables: Sequence[StreamTable], apart: Collection[Unit]) -> LeaseStages:
    """`tables` are those of the units as the catalog has them now."""
    here = [u for u in units if u not in apart]
    members = {i for u in here for i in u.members}
    moving = [t for t in tables if t.pgt_id in members and t.status in REFRESHED]
    permitted = [t for t in moving if t.lost_privilege is None]
    mirrors = tuple(t for t in permitted if t.mirror is not None)
    # What reads mirrors sees them as they were committed just now or, where an origin is away, as they were.
    done = {t.pgt_id for t in mirrors}
    return LeaseStages(
        tuple(apart),
        tuple(t for t in moving if t.lost_privilege is not None),
        mirrors,
        tuple(t for t in permitted if t.mirror is None),
        tuple(_without(unit, done) for unit in here),
    )


def cycle_relations(units: Sequence[Unit], tables: Sequence[StreamTable]) -> dict[int, frozenset[int]]:
    """By table of a cycle: the relations of all tables of that cycle."""
    relids = {t.pgt_id: t.relid for t in tables}
    cycles = [u for u in units if u.kind == CYCLIC]
    return {i: frozenset(relids[j] for j in u.members if j in relids) for u in cycles for i in u.members}


def move_stages(units: Sequence[Unit], ready: Mapping[int, StreamTable]) -> tuple[MoveStage, ...]:
    """How the tables that are ready move: one wave for those that stand alone, then each unit by itself."""
    alone = tuple(i for u in units if is_single(u) for i in u.members if i in ready)
    found: list[MoveStage] = [WaveStage(alone)] if alone else []
    for unit in units:
        if unit.kind == CYCLIC:
            if all(i in ready for i in unit.members):
                found.append(CycleStage(tuple(ready[i] for i in unit.members)))
        elif len(unit.members) > 1:
            levels = tuple(some for level in unit.levels if (some := tuple(i for i in level if i in ready)))
            found += [ChainStage(levels)] if levels else []
    return tuple(found)


def _without(unit: Unit, done: Collection[int]) -> Unit:
    levels = tuple(kept for level in unit.levels if (kept := tuple(i for i in level if i not in done)))
    return replace(unit, levels=levels)
