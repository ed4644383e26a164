"""The dependency graph of the stream tables of a database. Pure.

A `Graph` is immutable: a new one is built and replaces it.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from pgtrickle.model.reasons import Reason
from pgtrickle.model.work import Node, RefreshGroup
from pgtrickle.scheduler.diamonds import Bundle, Convergence, bundles, convergences

IMMEDIATE_MODE = "IMMEDIATE"
CALCULATED = "calculated"


@dataclass(frozen=True, slots=True)
class Graph:
    """All keys are pgt_ids, except those of `readers`, which are relations of any kind."""

    nodes: Mapping[int, Node]
    readers: Mapping[int, tuple[int, ...]]  # of a relation, stream tables or not
    upstream: Mapping[int, tuple[int, ...]]  # only of those that read stream tables
    consumers: Mapping[int, tuple[int, ...]]  # only of those that are read
    order: Mapping[int, int]  # position: upstream before downstream
    cycles: Mapping[int, tuple[int, ...]]  # only of those in a cycle: all that are in it, itself included
    convergences: Mapping[int, Convergence]  # where two paths from one relation meet
    bundles: Mapping[int, Bundle]  # only of those that are in a diamond
    groups: Mapping[int, tuple[RefreshGroup, ...]]  # only of those that are in a group
    immediate: frozenset[int]
    calculated: frozenset[int]  # by schedule, and with consumers, which they follow

    @classmethod
    def of(cls, nodes: Iterable[Node], groups: Iterable[RefreshGroup] = ()) -> Graph:
        by_id = {n.pgt_id: n for n in sorted(nodes, key=lambda n: n.pgt_id)}
        by_relid = {n.relid: n.pgt_id for n in by_id.values()}
        reading: dict[int, list[int]] = {}
        upstream: dict[int, tuple[int, ...]] = {}
        for pgt_id, node in by_id.items():
            above = []
            for relid in dict.fromkeys(node.sources):
                reading.setdefault(relid, []).append(pgt_id)
                if relid in by_relid:
                    above.append(by_relid[relid])
            if above:
                upstream[pgt_id] = tuple(above)
        readers = {relid: tuple(ids) for relid, ids in reading.items()}
        consumers = {i: readers[relid] for relid, i in by_relid.items() if relid in readers}
        order, cycles = _ordered(by_id, upstream, consumers)
        immediate = frozenset(i for i, n in by_id.items() if n.refresh_mode == IMMEDIATE_MODE)
        meetings = convergences(by_id, by_relid, order, immediate | cycles.keys())
        grouped: dict[int, tuple[RefreshGroup, ...]] = {}
        for group in groups:
            for member in group.members:
                if member in by_id:
                    grouped[member] = (*grouped.get(member, ()), group)
        return cls(
            nodes=by_id,
            readers=readers,
            upstream=upstream,
            consumers=consumers,
            order=order,
            cycles=cycles,
            convergences=meetings,
            bundles=bundles(by_id, meetings, order),
            groups=grouped,
            immediate=immediate,
            calculated=frozenset(
                i
                for i in consumers
                if by_id[i].schedule.strip().lower() == CALCULATED
                and i not in immediate
                and _is_read_from_outside(i, cycles, consumers)
            ),
        )


def _is_read_from_outside(
    pgt_id: int, cycles: Mapping[int, tuple[int, ...]], consumers: Mapping[int, tuple[int, ...]]
) -> bool:
    """Whether tables outside its cycle read it, or another table of its cycle."""
    cycle = cycles.get(pgt_id)
    return cycle is None or any(c not in cycle for i in cycle for c in consumers[i])


def held(graph: Graph, failed: Mapping[int, Reason]) -> dict[int, Reason]:
    """Which stream tables wait because an upstream table has failed or is suspended, and why.

    failed: the failed tables, with the reason for which their readers wait. They are not part of the result.
    """
    reasons: dict[int, Reason] = {}
    for start in sorted(failed, key=lambda i: graph.order.get(i, -1)):
        stack = [start]
        while stack:
            for consumer in graph.consumers.get(stack.pop(), ()):
                if consumer not in reasons and consumer not in failed:
                    reasons[consumer] = failed[start]
                    stack.append(consumer)
    return reasons


def _ordered(
    nodes: Mapping[int, Node], upstream: Mapping[int, tuple[int, ...]], consumers: Mapping[int, tuple[int, ...]]
) -> tuple[dict[int, int], dict[int, tuple[int, ...]]]:
    """Positions, upstream first, and the cycles. Those of a cycle are neighbours."""
    missing = {i: len(above) for i, above in upstream.items()}
    found = [i for i in nodes if i not in missing]
    for pgt_id in found:  # grows
        for consumer in consumers.get(pgt_id, ()):
            missing[consumer] -= 1
            if not missing[consumer]:
                found.append(consumer)
    cycles: dict[int, tuple[int, ...]] = {}
    if len(found) < len(nodes):  # cycles, and what is behind them
        done = set(found)
        for component in _components([i for i in nodes if i not in done], upstream, done):
            found += component
            if len(component) > 1 or component[0] in upstream.get(component[0], ()):
                cycles.update(dict.fromkeys(component, tuple(component)))
    return {pgt_id: position for position, pgt_id in enumerate(found)}, cycles


def _components(
    nodes: Sequence[int], upstream: Mapping[int, tuple[int, ...]], without: set[int]
) -> Iterable[list[int]]:
    """Strongly connected components, upstream first (Tarjan 1972, with a stack of our own: graphs may be deep)."""
    number: dict[int, int] = {}
    low: dict[int, int] = {}
    open_: dict[int, None] = {}
    for root in nodes:
        if root in number:
            continue
        number[root] = low[root] = len(number)
        open_[root] = None
        work = [(root, iter(upstream.get(root, ())))]
        while work:
            node, rest = work[-1]
            for above in rest:
                if above in without:
                    continue
                if above not in number:
                    number[above] = low[above] = len(number)
                    open_[above] = None
                    work.append((above, iter(upstream.get(above, ()))))
                    break
                if above in open_:
                    low[node] = min(low[node], number[above])
            else:
                work.pop()
                if work:
                    low[work[-1][0]] = min(low[work[-1][0]], low[node])
                if low[node] == number[node]:
                    component = []
                    while node in open_:
                        component.append(open_.popitem()[0])
                    yield sorted(component)
