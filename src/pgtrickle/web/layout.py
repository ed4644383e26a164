"""A layered layout of a directed graph: sources on the left, readers on the right, one band per group. Pure."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Container, Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import accumulate, pairwise

COLUMN, ROW = 270.0, 58.0  # distances of columns and rows
LANE = 14.0  # distance of long edges where they cross a column
WIDTH, HEIGHT = 210.0, 42.0  # of a node
BAND_HEAD, BAND_GAP, MARGIN = 34.0, 30.0, 24.0
SWEEPS = 4
STRAIGHT = 4.0  # weight of a long edge, compared with that of a node


@dataclass(frozen=True, slots=True)
class Band:
    """The area of one group."""

    group: str
    y: float
    height: float


@dataclass(frozen=True, slots=True)
class Layout:
    """Positions of the upper left corners of nodes, and the size of the whole."""

    positions: Mapping[str, tuple[float, float]]
    bends: Mapping[tuple[str, str], tuple[tuple[float, float], ...]]  # of long edges: where they cross columns
    bands: tuple[Band, ...]
    width: float
    height: float


def layered(nodes: Mapping[str, str], edges: Iterable[tuple[str, str]]) -> Layout:
    """`nodes`: the group of each node; `edges`: from a node to one that reads it. Cycles are allowed."""
    links = [(a, b) for a, b in edges if a in nodes and b in nodes and a != b]
    forward = without_cycles(nodes, links)
    depth = _depths(nodes, forward)
    before: dict[str, list[str]] = defaultdict(list)
    after: dict[str, list[str]] = defaultdict(list)
    columns_of: dict[str, dict[int, list[str]]] = defaultdict(lambda: defaultdict(list))
    for node in sorted(nodes):
        columns_of[nodes[node]][depth[node]].append(node)
    dummy_nodes: set[str] = set()
    dummies = {}
    for a, b in forward:
        # A long edge inside a group has a dummy node in each column that it crosses; edges from one node share them.
        levels = range(depth[a] + 1, depth[b]) if nodes[a] == nodes[b] else ()
        dummies[a, b] = [f"{a}\n{level}" for level in levels]
        for dummy, level in zip(dummies[a, b], levels, strict=True):
            if dummy not in dummy_nodes:
                dummy_nodes.add(dummy)
                columns_of[nodes[a]][level].append(dummy)
        for start, end in pairwise((a, *dummies[a, b], b)):
            if end not in after[start]:
                after[start].append(end)
                before[end].append(start)
    bands, positions, y = [], {}, MARGIN
    for group in sorted(columns_of):
        order = _ordered(columns_of[group], before, after)
        tops = _straightened(order, before, after, dummy_nodes)
        height = BAND_HEAD + max(top + _height(node, dummy_nodes) for node, top in tops.items())
        for level, column in order.items():
            for node in column:
                # The middle of a dummy node is aligned with that of a node.
                top = tops[node] + (_height(node, dummy_nodes) - HEIGHT) / 2
                positions[node] = (MARGIN + 16 + level * COLUMN, y + BAND_HEAD + top)
        bands.append(Band(group, y, height))
        y += height + BAND_GAP
    deepest = max(depth.values(), default=0)
    bends = {edge: tuple(positions[dummy] for dummy in crossed) for edge, crossed in dummies.items() if crossed}
    for dummy in dummy_nodes:
        del positions[dummy]
    return Layout(positions, bends, tuple(bands), 2 * MARGIN + 32 + deepest * COLUMN + WIDTH, max(y, 2 * MARGIN))


def _height(node: str, dummy_nodes: Container[str]) -> float:
    return LANE if node in dummy_nodes else ROW


def _straightened(
    order: Mapping[int, list[str]],
    before: Mapping[str, list[str]],
    after: Mapping[str, list[str]],
    dummy_nodes: Container[str],
) -> dict[str, float]:
    """The top of each node, as near to the middle of its neighbours as the order of its column and the space permit."""
    tops: dict[str, float] = {}
    for column in order.values():
        for node, offset in zip(column, _offsets(column, dummy_nodes), strict=True):
            tops[node] = offset
    for sweep in range(2 * SWEEPS):
        neighbours = before if sweep % 2 == 0 else after
        for level in sorted(order, reverse=bool(sweep % 2)):
            column = order[level]
            desired = []
            for node in column:
                known = [tops[o] + _height(o, dummy_nodes) / 2 for o in neighbours.get(node, ()) if o in tops]
                half = _height(node, dummy_nodes) / 2
                desired.append(sum(known) / len(known) - half if known else tops[node])
            offsets = _offsets(column, dummy_nodes)
            weights = [STRAIGHT if node in dummy_nodes else 1.0 for node in column]
            slack = _rising([w - o for w, o in zip(desired, offsets, strict=True)], weights)
            tops.update((node, s + o) for node, s, o in zip(column, slack, offsets, strict=True))
    least = min(tops.values())
    return {node: top - least for node, top in tops.items()}


def _offsets(column: Sequence[str], dummy_nodes: Container[str]) -> list[float]:
    """The top of each node of a column without space between the nodes."""
    return [0.0, *accumulate(_height(node, dummy_nodes) for node in column[:-1])]


def _rising(values: Sequence[float], weights: Sequence[float]) -> list[float]:
    """Isotonic regression (pool adjacent violators): the non-decreasing numbers nearest to `values` (least squares)."""
    pools: list[tuple[float, float, int]] = []  # mean, weight, how many
    for value, weight in zip(values, weights, strict=True):
        mean, total, count = value, weight, 1
        while pools and pools[-1][0] > mean:
            left_mean, left_weight, left_count = pools.pop()
            mean = (left_mean * left_weight + mean * total) / (left_weight + total)
            total, count = total + left_weight, count + left_count
        pools.append((mean, total, count))
    return [mean for mean, _, count in pools for _ in range(count)]


def without_cycles(nodes: Iterable[str], edges: Sequence[tuple[str, str]]) -> list[tuple[str, str]]:
    """The edges without back edges of a depth-first search."""
    out: dict[str, list[str]] = defaultdict(list)
    for a, b in dict.fromkeys(edges):
        out[a].append(b)
    state: dict[str, int] = {}  # 1: on the current path, 2: done
    kept = []
    for root in nodes:
        if root in state:
            continue
        state[root] = 1
        stack = [(root, iter(out[root]))]
        while stack:
            node, rest = stack[-1]
            for target in rest:
                if state.get(target) == 1:
                    continue
                kept.append((node, target))
                if target not in state:
                    state[target] = 1
                    stack.append((target, iter(out[target])))
                    break
            else:
                state[node] = 2
                stack.pop()
    return kept


def _depths(nodes: Iterable[str], edges: Sequence[tuple[str, str]]) -> dict[str, int]:
    """The longest path to each node. The edges have no cycle."""
    out: dict[str, list[str]] = defaultdict(list)
    missing = dict.fromkeys(nodes, 0)
    depth = dict.fromkeys(missing, 0)
    for a, b in edges:
        out[a].append(b)
        missing[b] += 1
    ready = [node for node, number in missing.items() if not number]
    while ready:
        node = ready.pop()
        for target in out[node]:
            depth[target] = max(depth[target], depth[node] + 1)
            missing[target] -= 1
            if not missing[target]:
                ready.append(target)
    return depth


def _ordered(
    columns: Mapping[int, list[str]], before: Mapping[str, list[str]], after: Mapping[str, list[str]]
) -> dict[int, list[str]]:
    """Sorts columns by the mean position of neighbours (barycenter), alternately from the left and from the right."""
    order = {level: list(columns[level]) for level in sorted(columns)}
    place = {node: float(row) for column in order.values() for row, node in enumerate(column)}
    for sweep in range(SWEEPS):
        neighbours = before if sweep % 2 == 0 else after
        for level in sorted(order, reverse=bool(sweep % 2)):
            column = order[level]
            middle = {}
            for node in column:
                known = [place[other] for other in neighbours.get(node, ()) if other in place]
                middle[node] = sum(known) / len(known) if known else place[node]
            column.sort(key=lambda node: (middle[node], node))
            place.update((node, float(row)) for row, node in enumerate(column))
    return order
