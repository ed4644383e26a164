"""Diamonds: a stream table that reads one relation through two paths, and the tables on those paths. Pure.

Such a table joins its *branches*. Refreshed separately from them, it would read one relation at two snapshots.
The relation may be a stream table or not, and one of the paths may be direct.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass

from pgtrickle.model.work import Node

MANY = 128


@dataclass(frozen=True, slots=True)
class Convergence:
    """A table where paths meet. `members`: the tables on the paths, without itself."""

    members: tuple[int, ...]
    branches: tuple[int, ...]  # members that it reads directly
    direct: int  # further relations that it reads and that a path begins with

    def is_met(self, tables: Collection[int]) -> bool:
        """Whether two paths end in these tables. A branch that is not among them has no changes."""
        ends = sum(b in tables for b in self.branches)
        return ends > 0 and ends + self.direct >= 2


@dataclass(frozen=True, slots=True)
class Bundle:
    """Diamonds that share members. `is_atomic`: at least one convergence requires it; then slowest overrides
    fastest."""

    members: tuple[int, ...]  # upstream first
    is_atomic: bool
    is_slowest: bool


def convergences(
    nodes: Mapping[int, Node], by_relid: Mapping[int, int], order: Mapping[int, int], apart: Collection[int]
) -> dict[int, Convergence]:
    """All of them. `apart`: tables that do not wait for others (IMMEDIATE), or are a unit of their own (cycles).

    Costs the ancestors of each table that reads two relations, one of them a stream table. Those that are further away
    than many others are taken for plain tables, so that no graph is too large.
    """
    result = {}
    for pgt_id, node in nodes.items():
        if len(node.sources) > 1 and pgt_id not in apart and any(s in by_relid for s in node.sources):
            meeting = _convergence(pgt_id, nodes, by_relid, order, apart)
            if meeting is not None:
                result[pgt_id] = meeting
    return result


def _convergence(
    root: int, nodes: Mapping[int, Node], by_relid: Mapping[int, int], order: Mapping[int, int], apart: Collection[int]
) -> Convergence | None:
    direct = dict.fromkeys(nodes[root].sources)
    consumers_first = sorted(_ancestors(root, nodes, by_relid), key=order.__getitem__, reverse=True)
    origins = _origins(direct, [nodes[pgt_id] for pgt_id in consumers_first])
    if not origins:
        return None
    below: set[int] = set()
    for pgt_id in reversed(consumers_first):
        if any(s in origins or s in below for s in nodes[pgt_id].sources):
            below.add(nodes[pgt_id].relid)
    members = {by_relid[relid] for relid in below if by_relid[relid] not in apart}
    branches = tuple(by_relid[s] for s in direct if s in by_relid and by_relid[s] in members)
    further = sum(1 for s in direct if (s in origins or s in below) and by_relid.get(s) not in members)
    return Convergence(tuple(sorted(members, key=order.__getitem__)), branches, further) if members else None


def _origins(direct: Iterable[int], consumers_first: Iterable[Node]) -> set[int]:
    """The relations at which paths to the root begin.

    Which of the root's neighbours in the tree of dominators a relation is behind: consumers first, each hands its own
    on to its sources. A relation that is handed two is behind none but the root: paths begin there.
    """
    top: dict[int, int] = {relid: relid for relid in direct}
    origins: set[int] = set()
    for node in consumers_first:
        mine = top.get(node.relid)
        if mine is None:  # only in a cycle, whose members have no order among themselves
            continue
        for relid in node.sources:
            if top.setdefault(relid, mine) != mine:
                top[relid] = relid
                origins.add(relid)
    return origins


def _ancestors(root: int, nodes: Mapping[int, Node], by_relid: Mapping[int, int]) -> list[int]:
    """Level by level, no further level once there are many."""
    found: dict[int, None] = {}
    level = [root]
    while level and len(found) < MANY:
        beyond = []
        for pgt_id in level:
            for relid in nodes[pgt_id].sources:
                above = by_relid.get(relid)
                if above is not None and above not in found:
                    found[above] = None
                    beyond.append(above)
        level = beyond
    return list(found)


def bundles(
    nodes: Mapping[int, Node], meetings: Mapping[int, Convergence], order: Mapping[int, int]
) -> dict[int, Bundle]:
    """Of each table that is in a diamond: what it is bundled with."""
    parent: dict[int, int] = {}

    def root(pgt_id: int) -> int:
        parent.setdefault(pgt_id, pgt_id)
        while parent[pgt_id] != pgt_id:
            parent[pgt_id] = pgt_id = parent[parent[pgt_id]]
        return pgt_id

    for pgt_id, meeting in meetings.items():
        for member in meeting.members:
            parent[root(member)] = root(pgt_id)
    together: dict[int, list[int]] = {}
    for member in parent:
        together.setdefault(root(member), []).append(member)
    result: dict[int, Bundle] = {}
    for members in together.values():
        wanting = [nodes[i] for i in members if i in meetings and is_atomic(nodes[i])]
        bundle = Bundle(
            members=tuple(sorted(members, key=order.__getitem__)),
            is_atomic=bool(wanting),
            is_slowest=any(n.diamond_schedule_policy == "slowest" for n in wanting),
        )
        result.update(dict.fromkeys(members, bundle))
    return result


def is_atomic(node: Node) -> bool:
    return node.diamond_consistency != "none"
