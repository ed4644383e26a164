"""Notices changes of what stream tables read that write no captured row: a replaced view or function, an attached
partition, row security, a dropped column, a dropped source, a disabled capture trigger.

The statement of each tick (`capture/detect.py`) sums hashes of the catalog rows of all watched objects. When the sum is
another one than that of the last known states, the states are read object by object. What a change means is decided by
the fingerprints: this only says where to look.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from pgtrickle.db.statements import statement

if TYPE_CHECKING:
    from pgtrickle.db.connect import Connection

RELATION, FUNCTION, TYPE = "r", "f", "t"
_PARAMETERS = {RELATION: "%(relations)s", FUNCTION: "%(functions)s", TYPE: "%(types)s"}


@dataclass(frozen=True, slots=True, order=True)
class WatchedObject:
    kind: str
    oid: int


class CatalogWatch:
    """The objects that the stream tables of one database depend on, with the last known state of each."""

    def __init__(self) -> None:
        self._named_by: dict[WatchedObject, set[int]] = {}  # the sources or functions that it belongs to
        self._states: dict[WatchedObject, int] = {}

    @property
    def total(self) -> int:
        """What the query returns while nothing has changed."""
        return sum(self._states.values())

    @property
    def query(self) -> str | None:
        """The sum of all states, as a scalar subquery with the oids in its text. None: nothing is watched."""
        if not self._named_by:
            return None
        rows = statement("watched_rows")
        for kind, parameter in _PARAMETERS.items():
            oids = ",".join(str(each.oid) for each in sorted(self._named_by) if each.kind == kind)
            rows = rows.replace(parameter, f"'{{{oids}}}'")
        return f"(SELECT coalesce(sum(w.state), 0) FROM ({rows}) AS w)"

    def load(self, conn: Connection, ids: Sequence[int] | None) -> bool:
        """Watches what these stream tables, or all, depend on. True: objects were added. What is not needed any more
        stays until all are loaded again."""
        rows = conn.execute(statement("watched_objects"), {"ids": ids}).fetchall()
        if ids is None:
            self._named_by.clear()
            self._states.clear()
        added = set()
        for named, kind, oid in rows:
            each = WatchedObject(kind, oid)
            if each not in self._named_by:
                self._named_by[each] = set()
                added.add(each)
            self._named_by[each].add(named)
        self._states |= _states(conn, added)
        return bool(added)

    def changed(self, conn: Connection) -> frozenset[int]:
        """The sources and functions that belong to objects whose state is another one than before."""
        states = _states(conn, self._named_by)
        changed = [each for each, state in states.items() if self._states.get(each) != state]
        self._states = states
        return frozenset(named for each in changed for named in self._named_by[each])


def _states(conn: Connection, objects: Collection[WatchedObject]) -> dict[WatchedObject, int]:
    """The sum of the hashes of each object's rows; 0: it does not exist."""
    if not objects:
        return {}
    states: defaultdict[WatchedObject, int] = defaultdict(int)
    parameters = {
        "relations": _oids(objects, RELATION),
        "functions": _oids(objects, FUNCTION),
        "types": _oids(objects, TYPE),
    }
    for kind, oid, state in conn.execute(statement("watched_rows"), parameters).fetchall():
        states[WatchedObject(kind, oid)] += state
    return {each: states[each] for each in objects}


def _oids(objects: Iterable[WatchedObject], kind: str) -> list[int]:
    return [each.oid for each in objects if each.kind == kind]
