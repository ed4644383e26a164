"""Forms units from due stream tables. Pure.

Which tables are refreshed (`moving`):

* A table whose schedule is due and that has changes, or needs none (requested, first load, the clock).
* A table with schedule `calculated` and consumers follows them: it is due when a consumer is.
* Readers of a refreshed table whose schedule is due: they will have changes at the same snapshot.
* The other members of its cycle; of its refresh group; of its atomic bundle of diamonds, those with changes and
  what reads these in the bundle.

Members of a cycle, of a repeatable-read group, of an atomic bundle are refreshed together: while one is in progress,
all wait. A cycle also waits while one of its members is barred. A bundle with the policy `slowest` waits until the
schedules of all members that would be refreshed are due, unless one of them was requested.

Refreshed tables form units (`plan`):

* A cycle is a unit by itself (cyclic_scc).
* Tables that read one another directly are one unit, IMMEDIATE ones apart from the others: they do not wait. So are the
  members of a repeatable-read group, IMMEDIATE or not.
* Its kind is, in this order: repeatable_read_group when two members of such a group are in it; immediate_closure;
  atomic_group when two paths from one relation meet in it; fused_chain; singleton.
* When all tables where paths meet have diamond_consistency `none`, the unit is cut above each of them. What is above
  goes now; the table, with what reads it, is `later` and goes as a unit of its own once each of those directly above it
  has finished its refresh (`Behind`), well or not. It waits for one refresh of theirs, not for the next one too.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Container, Iterable, Mapping
from dataclasses import dataclass, field

from pgtrickle.model.work import ATOMIC, CHAIN, CYCLIC, IMMEDIATE, REPEATABLE_READ, SINGLETON, TIERS, RefreshGroup, Unit
from pgtrickle.scheduler.diamonds import is_atomic
from pgtrickle.scheduler.graph import Graph

_TIER = {name: position for position, name in enumerate(TIERS)}


@dataclass(frozen=True, slots=True)
class TickInput:
    """The input of a tick. Only `due` and `asked` are iterated; the others are queried for single tables."""

    due: Collection[int]  # due, with changes or needing none; all calculated ones with changes
    asked: Collection[int] = ()  # requested independent of the schedule: by a user, first load, prepared again
    scheduled: Container[int] = ()  # whose schedule is due, with or without changes; IMMEDIATE ones always
    dirty: Container[int] = ()  # that have changes
    busy: Container[int] = ()  # queued, running, or behind others
    barred: Container[int] = ()  # suspended, failing, held by one that is
    released: Container[int] = ()  # that have been behind others
    tier: Callable[[int], int] | None = None  # position in TIERS at present; None: what the nodes say


@dataclass(frozen=True, slots=True)
class Plan:
    units: tuple[Unit, ...]  # by priority
    later: Mapping[int, frozenset[int]]  # table -> tables of these units that have to finish before it


@dataclass(slots=True)
class Deferred:
    """Tables that wait until their upstream tables, which were queued first, have finished."""

    waits: dict[int, set[int]] = field(default_factory=dict)
    released: set[int] = field(default_factory=set)
    _holds: dict[int, set[int]] = field(default_factory=dict)

    def add(self, plan: Plan) -> None:
        for unit in plan.units:
            self.released.difference_update(unit.members)
        for pgt_id, above in plan.later.items():
            self.waits[pgt_id] = set(above)
            for each in above:
                self._holds.setdefault(each, set()).add(pgt_id)

    def done(self, pgt_id: int) -> None:
        """A refresh has ended: successfully, failed or cancelled."""
        for below in self._holds.pop(pgt_id, ()):
            self.waits[below].discard(pgt_id)
            if not self.waits[below]:
                del self.waits[below]
                self.released.add(below)


def plan(graph: Graph, tick: TickInput) -> Plan:
    """The units of a tick. The cost is proportional to the refreshed tables and their bundles."""
    tables = moving(graph, tick)
    units = []
    rest = []
    for pgt_id in sorted(tables, key=graph.order.__getitem__):
        cycle = graph.cycles.get(pgt_id)
        if cycle is None:
            rest.append(pgt_id)
        elif pgt_id == cycle[0]:
            units.append(_unit(graph, tick, CYCLIC, cycle, [(i,) for i in cycle]))
    later: dict[int, frozenset[int]] = {}
    for component in _components(rest, lambda i: _linked(graph, i)):
        kind = _kind(graph, component)
        pieces = [component] if kind is not None else _cut(graph, component, tick.released, later)
        units += [_unit(graph, tick, kind or _plain(piece), piece, _levels(graph, piece)) for piece in pieces]
    return Plan(tuple(sorted(units, key=lambda u: u.priority)), later)


def moving(graph: Graph, tick: TickInput) -> set[int]:
    """All tables that are refreshed in this tick."""
    has_come = _calendar(graph, tick)

    def free(pgt_id: int) -> bool:
        return pgt_id in graph.nodes and pgt_id not in tick.barred and pgt_id not in tick.busy

    asked = set(tick.asked)
    stack = [i for i in tick.asked if free(i)] + [i for i in tick.due if free(i) and has_come(i)]
    found = set(stack)
    opened: set[int] = set()  # bundles, by their first member

    def add(tables: Iterable[int]) -> None:
        for each in tables:
            if each not in found and free(each):
                found.add(each)
                stack.append(each)

    while stack:
        pgt_id = stack.pop()
        if pgt_id in graph.cycles:
            add(graph.cycles[pgt_id])
        for group in graph.groups.get(pgt_id, ()):
            add(group.members)
        bundle = graph.bundles.get(pgt_id)
        if bundle is not None and not bundle.is_atomic:
            bundle = None
        if bundle is not None and bundle.members[0] not in opened:
            opened.add(bundle.members[0])
            add(i for i in bundle.members if i in tick.dirty)
        for consumer in graph.consumers.get(pgt_id, ()):
            inside = bundle is not None and graph.bundles.get(consumer) is bundle
            if inside or (_moves_with(graph, pgt_id, consumer) and has_come(consumer)):
                add((consumer,))
    return found - _vetoed(graph, tick, found, asked, has_come)


def _calendar(graph: Graph, tick: TickInput) -> Callable[[int], bool]:
    """Whether the schedule of a table is due; for a calculated one, that of its consumers."""
    known: dict[int, bool] = {}

    def has_come(pgt_id: int) -> bool:
        if pgt_id not in graph.calculated:
            return pgt_id in tick.scheduled
        if pgt_id in known:
            return known[pgt_id]
        seen = {pgt_id}
        stack = [pgt_id]
        answer = False
        while stack and not answer:
            for consumer in graph.consumers[stack.pop()]:
                if consumer not in graph.calculated:
                    answer = consumer in tick.scheduled
                elif consumer in known:
                    answer = known[consumer]
                elif consumer not in seen:
                    seen.add(consumer)
                    stack.append(consumer)
                if answer:
                    break
        if not answer:
            known.update(dict.fromkeys(seen, False))  # none that can be reached from it is due
        known[pgt_id] = answer
        return answer

    return has_come


def _vetoed(
    graph: Graph, tick: TickInput, found: set[int], asked: set[int], has_come: Callable[[int], bool]
) -> set[int]:
    """Tables that would be refreshed but must wait for others with which they are refreshed together."""
    bonds_of = {i: bonds for i in found if (bonds := _bonds(graph, i))}
    distinct: dict[int, _Bond] = {}  # by identity: hashing all members once per member would be quadratic
    for bonds in bonds_of.values():
        for bond in bonds:
            distinct.setdefault(id(bond.members), bond)

    def waits(bond: _Bond) -> bool:
        if any(i in tick.busy for i in bond.members):
            return True
        here = [i for i in bond.members if i in found]
        if bond.needs_all:
            return len(here) < len(bond.members)
        return bond.needs_slowest and asked.isdisjoint(here) and not all(map(has_come, here))

    stack = [bond for bond in distinct.values() if waits(bond)]
    vetoed: set[int] = set()
    while stack:
        for pgt_id in stack.pop().members:
            if pgt_id in found and pgt_id not in vetoed:
                vetoed.add(pgt_id)
                stack += bonds_of.get(pgt_id, ())
    return vetoed


@dataclass(frozen=True, slots=True)
class _Bond:
    """Tables that all wait while one of them has to wait."""

    members: tuple[int, ...]
    needs_all: bool = False  # a cycle: all of them have to be refreshed
    needs_slowest: bool = False  # a diamond: the schedules of all of them have to be due


def _bonds(graph: Graph, pgt_id: int) -> list[_Bond]:
    bonds = [_Bond(group.members) for group in _repeatable(graph, pgt_id)]
    if pgt_id in graph.cycles:
        bonds.append(_Bond(graph.cycles[pgt_id], needs_all=True))
    bundle = graph.bundles.get(pgt_id)
    if bundle is not None and bundle.is_atomic:
        bonds.append(_Bond(bundle.members, needs_slowest=bundle.is_slowest))
    return bonds


def _repeatable(graph: Graph, pgt_id: int) -> list[RefreshGroup]:
    return [g for g in graph.groups.get(pgt_id, ()) if g.isolation == "repeatable_read"]


def _moves_with(graph: Graph, one: int, other: int) -> bool:
    """Whether two tables, one of which reads the other, belong to one unit."""
    if one in graph.cycles or other in graph.cycles:
        return False
    if (one in graph.immediate) == (other in graph.immediate):
        return True
    return any(other in g.members for g in _repeatable(graph, one))


def _linked(graph: Graph, pgt_id: int) -> list[int]:
    linked = [i for i in graph.upstream.get(pgt_id, ()) if _moves_with(graph, i, pgt_id)]
    for group in _repeatable(graph, pgt_id):
        linked += [i for i in group.members if i not in graph.cycles]
    return linked


def _components(tables: Collection[int], linked: Callable[[int], Iterable[int]]) -> list[list[int]]:
    """Tables that are linked, directly or through others of these. In the order of `tables`."""
    parent = {i: i for i in tables}

    def root(pgt_id: int) -> int:
        while parent[pgt_id] != pgt_id:
            parent[pgt_id] = pgt_id = parent[parent[pgt_id]]
        return pgt_id

    for pgt_id in tables:
        for other in linked(pgt_id):
            if other in parent:
                parent[root(other)] = root(pgt_id)
    components: dict[int, list[int]] = {}
    for pgt_id in tables:
        components.setdefault(root(pgt_id), []).append(pgt_id)
    return list(components.values())


def _kind(graph: Graph, tables: list[int]) -> str | None:
    """None: a chain or a singleton, after it was split above convergences without consistency."""
    members = set(tables)
    if any(i in members and i != t for t in tables for g in _repeatable(graph, t) for i in g.members):
        return REPEATABLE_READ
    if tables[0] in graph.immediate:
        return IMMEDIATE
    if any(is_atomic(graph.nodes[i]) for i in tables if _is_met(graph, i, members)):
        return ATOMIC
    return None


def _is_met(graph: Graph, pgt_id: int, tables: Collection[int]) -> bool:
    return pgt_id in graph.convergences and graph.convergences[pgt_id].is_met(tables)


def _plain(tables: Collection[int]) -> str:
    return CHAIN if len(tables) > 1 else SINGLETON


def _cut(
    graph: Graph, tables: list[int], released: Container[int], later: dict[int, frozenset[int]]
) -> list[list[int]]:
    """The pieces that are queued now; waiting ones are recorded in `later`."""
    members = set(tables)
    met = {i for i in tables if _is_met(graph, i, members)}
    if not met:
        return [tables]
    pieces = _components(tables, lambda i: () if i in met else graph.upstream.get(i, ()))
    now: list[list[int]] = []
    waiting: list[list[int]] = []
    for piece in pieces:
        (waiting if any(i in met and i not in released for i in piece) else now).append(piece)
    going = {i for piece in now for i in piece}
    for piece in waiting:
        above = frozenset(_going_above(graph, piece, members, going))
        if above:
            later.update(dict.fromkeys(piece, above))
        else:
            now.append(piece)
    return now


def _going_above(graph: Graph, piece: list[int], members: set[int], going: set[int]) -> Iterable[int]:
    """The nearest upstream tables of a piece that are queued in this tick; pieces in between wait for the same ones."""
    seen = set(piece)
    stack = list(piece)
    while stack:
        for above in graph.upstream.get(stack.pop(), ()):
            if above in members and above not in seen:
                seen.add(above)
                if above in going:
                    yield above
                else:
                    stack.append(above)


def _levels(graph: Graph, tables: list[int]) -> list[tuple[int, ...]]:
    """By depth; `tables` are in topological order."""
    depth: dict[int, int] = {}
    levels: list[list[int]] = []
    for pgt_id in tables:
        depth[pgt_id] = max((depth[i] + 1 for i in graph.upstream.get(pgt_id, ()) if i in depth), default=0)
        if depth[pgt_id] == len(levels):
            levels.append([])
        levels[depth[pgt_id]].append(pgt_id)
    return [tuple(sorted(level)) for level in levels]


def _unit(graph: Graph, tick: TickInput, kind: str, tables: Collection[int], levels: list[tuple[int, ...]]) -> Unit:
    tier = tick.tier or (lambda i: _TIER[graph.nodes[i].tier])
    return Unit(kind, tuple(levels), tier=min(map(tier, tables)), order=min(graph.order[i] for i in tables))
