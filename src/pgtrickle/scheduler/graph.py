"""Stream tables that read stream tables: upstream before downstream. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from graphlib import CycleError, TopologicalSorter

from pgtrickle.errors import DefinitionError
from pgtrickle.model.catalog import StreamTable


def together(tables: Sequence[StreamTable]) -> list[list[StreamTable]]:
    """Tables that read one another, directly or through others of these: what has to move at one instant."""
    by_relid = {t.relid: t for t in tables}
    group = {t.relid: t.relid for t in tables}

    def root(relid: int) -> int:
        while group[relid] != relid:
            relid = group[relid]
        return relid

    for table in tables:
        for source in table.sources:
            if source.relid in by_relid:
                group[root(source.relid)] = root(table.relid)
    found: dict[int, list[StreamTable]] = {}
    for table in tables:
        found.setdefault(root(table.relid), []).append(table)
    return list(found.values())


def levels(tables: Sequence[StreamTable]) -> list[list[StreamTable]]:
    """Tables by depth: those of one level do not read one another and can share a wave."""
    by_relid = {t.relid: t for t in tables}
    sorter: TopologicalSorter[int] = TopologicalSorter()
    for table in tables:
        sorter.add(table.relid, *(s.relid for s in table.sources if s.relid in by_relid))
    try:
        sorter.prepare()
    except CycleError as error:
        raise DefinitionError(f"stream tables read each other in a circle: {error.args[1]}") from error
    found = []
    while sorter.is_active():
        ready = sorter.get_ready()
        found.append(sorted((by_relid[r] for r in ready), key=lambda t: t.pgt_id))
        sorter.done(*ready)
    return found
