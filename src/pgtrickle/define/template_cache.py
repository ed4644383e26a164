"""Compiled stream tables, kept while there is room: the least recently used goes."""

from __future__ import annotations

import threading
from collections import OrderedDict

from pgtrickle.define.compile import Compiled
from pgtrickle.model.catalog import StreamTable

Version = tuple[object, ...]


class TemplateCache:
    """Of one database; its workers share it."""

    def __init__(self, most: int) -> None:
        self._most = most
        self._lock = threading.Lock()
        self._entries: OrderedDict[int, tuple[Version, Compiled]] = OrderedDict()
        self.hits = 0
        self.misses = 0
        self.evictions = 0

    def __len__(self) -> int:
        return len(self._entries)

    def get(self, table: StreamTable) -> Compiled | None:
        with self._lock:
            entry = self._entries.get(table.pgt_id)
            if entry is None or entry[0] != version(table):
                self.misses += 1
                return None
            self.hits += 1
            self._entries.move_to_end(table.pgt_id)
            return entry[1]

    def put(self, table: StreamTable, compiled: Compiled) -> None:
        with self._lock:
            self._entries[table.pgt_id] = (version(table), compiled)
            self._entries.move_to_end(table.pgt_id)
            self._shrink()

    def resize(self, most: int) -> None:
        with self._lock:
            self._most = most
            self._shrink()

    def _shrink(self) -> None:
        while len(self._entries) > self._most:
            self._entries.popitem(last=False)
            self.evictions += 1

    def drop(self, pgt_id: int) -> None:
        with self._lock:
            self._entries.pop(pgt_id, None)

    def clear(self) -> int:
        with self._lock:
            count = len(self._entries)
            self._entries.clear()
            return count


def version(table: StreamTable) -> Version:
    """What a compiled table depends on; sources are watched by their fingerprints."""
    return (table.definition_version, table.refresh_mode, table.relid, table.run_as, table.author, table.code)
