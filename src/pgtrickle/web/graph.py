"""The graph of a fleet: tables, stream tables and which of them read which, across databases. Pure."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass

from pgtrickle.observe.state import FRESH, DatabaseState, FleetState, Source, Table
from pgtrickle.web.layout import HEIGHT, WIDTH, Layout, layered

SOURCE = "source"
THINNEST, THICKEST = 1.2, 7.0


@dataclass(frozen=True, slots=True)
class Node:
    """A stream table (`state` is its freshness), or a table that stream tables read (SOURCE)."""

    id: str
    database: str
    schema: str
    name: str
    state: str
    detail: str
    is_stream_table: bool


@dataclass(frozen=True, slots=True)
class Link:
    """`rate`: changes per second of the source. `state`: of the mirror, if the reader is in another database."""

    source: str
    target: str
    rate: float
    state: str
    is_remote: bool


@dataclass(frozen=True, slots=True)
class Graph:
    nodes: tuple[Node, ...]
    links: tuple[Link, ...]


def graph_of(fleet: FleetState) -> Graph:
    """Mirrors are not nodes: the reader of a mirror is linked with the table at the origin."""
    by_key = {database.key: database for database in fleet.databases if database.key}
    nodes: dict[str, Node] = {}
    links: dict[tuple[str, str], Link] = {}
    for database in fleet.databases:
        for table in database.stream_tables:
            nodes[_id(database.key, table.relid)] = _stream_table(database, table)
    for database in fleet.databases:
        for node, link in _reads(database, by_key):
            nodes.setdefault(node.id, node)
            links[link.source, link.target] = link
    return Graph(tuple(nodes.values()), tuple(links.values()))


def _id(key: str, relid: int) -> str:
    return f"{key}/{relid}"


def _stream_table(database: DatabaseState, table: Table) -> Node:
    lag = "" if table.lag is None else "up to date · " if not table.lag else f"{table.lag:.0f} s behind · "
    return Node(
        _id(database.key, table.relid),
        database.label,
        table.schema,
        table.name,
        table.freshness,
        f"{lag}{table.schedule}" + ("" if table.mode == "DIFFERENTIAL" else f" · {table.mode.lower()}"),
        True,
    )


def _reads(database: DatabaseState, by_key: dict[str, DatabaseState]) -> Iterator[tuple[Node, Link]]:
    tables = {table.pgt_id: table for table in database.tables}
    by_relid = {table.relid: table for table in database.tables}
    for edge in database.edges:
        reader = tables.get(edge.pgt_id)
        if reader is None or reader.is_mirror:
            continue
        target = _id(database.key, reader.relid)
        mirror = by_relid.get(edge.relid)
        if mirror is None or not mirror.is_mirror:
            source = _source(database, edge.relid)
            node = _table(database.key, database.label, edge.relid, edge.schema, edge.name, edge.kind, source)
            yield node, Link(node.id, target, (source and source.rate) or 0.0, FRESH, False)
            continue
        assert mirror.origin_key is not None
        assert mirror.origin_relid is not None
        origin = by_key.get(mirror.origin_key)
        label = origin.label if origin is not None else f"{mirror.origin_database} (not in this fleet)"
        source = _source(origin, mirror.origin_relid) if origin is not None else None
        names = mirror.origin_schema or "", mirror.origin_table or ""
        node = _table(mirror.origin_key, label, mirror.origin_relid, *names, "TABLE", source)
        yield node, Link(node.id, target, (source and source.rate) or 0.0, mirror.freshness, True)


def _source(database: DatabaseState, relid: int) -> Source | None:
    return next((source for source in database.sources if source.relid == relid), None)


def _table(key: str, label: str, relid: int, schema: str, name: str, kind: str, source: Source | None) -> Node:
    words = kind.lower().replace("_", " ")
    if source is not None and source.rate is not None:
        words += f" · {source.rate:.1f} changes/s"
    return Node(_id(key, relid), label, schema, name, SOURCE, words, False)


def layout_of(graph: Graph) -> Layout:
    return layered({node.id: node.database for node in graph.nodes}, [(e.source, e.target) for e in graph.links])


def stroke(rate: float) -> float:
    """The width of a link: by the logarithm of its rate."""
    return round(min(THICKEST, THINNEST + 1.5 * math.log10(1 + rate)), 2)


def curve(layout: Layout, link: Link) -> str:
    """The path of a link, as SVG writes it."""
    x, y = layout.positions[link.source]
    x, y = x + WIDTH, y + HEIGHT / 2
    path = f"M{x:.0f},{y:.0f}"
    for left, top in (*layout.bends.get((link.source, link.target), ()), layout.positions[link.target]):
        middle = top + HEIGHT / 2
        bend = max(30.0, abs(left - x) / 2)
        path += f" C{x + bend:.0f},{y:.0f} {left - bend:.0f},{middle:.0f} {left:.0f},{middle:.0f}"
        x, y = left, middle
        if (left, top) != layout.positions[link.target]:  # straight through the column
            x = left + WIDTH
            path += f" L{x:.0f},{y:.0f}"
    return path
