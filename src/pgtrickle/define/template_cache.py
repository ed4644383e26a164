"""Compiled stream tables of all databases in the memory of a process; the least recently used is evicted."""

from __future__ import annotations

import threading
from collections import Counter, OrderedDict
from collections.abc import Iterable, Set

from pgtrickle.define.compile import Compiled
from pgtrickle.define.template_key import TemplateKey
from pgtrickle.define.template_store import TemplateStore
from pgtrickle.model.catalog import StreamTable

Version = tuple[object, ...]


class ProcessTemplates:
    """Shared by all databases. `store`: the level below, None: there is none."""

    def __init__(self, most: int, store: TemplateStore | None = None) -> None:
        self.most = most
        self.store = store
        self.lock = threading.Lock()
        self.entries: OrderedDict[tuple[str, int], tuple[Version, Compiled]] = OrderedDict()
        self.by_database: Counter[str] = Counter()
        self.hits = 0
        self.misses = 0
        self.evictions = 0

    def __len__(self) -> int:
        return len(self.entries)

    def find(self, key: tuple[str, int]) -> tuple[Version, Compiled] | None:
        """With the lock held, as the others."""
        entry = self.entries.get(key)
        if entry is not None:
            self.entries.move_to_end(key)
        return entry

    def put(self, key: tuple[str, int], entry: tuple[Version, Compiled]) -> None:
        self.remove(key)
        self.entries[key] = entry
        self.by_database[key[0]] += 1
        self._shrink()

    def resize(self, most: int) -> None:
        with self.lock:
            self.most = most
            self._shrink()

    def _shrink(self) -> None:
        while len(self.entries) > self.most:
            self.remove(next(iter(self.entries)))
            self.evictions += 1

    def remove(self, key: tuple[str, int]) -> None:
        if self.entries.pop(key, None) is not None:
            self.by_database[key[0]] -= 1


class TemplateCache:
    """Those of one database; its workers share it. Also the way to the store, which remembers what this database has
    used of it."""

    def __init__(self, all_templates: ProcessTemplates, database: str) -> None:
        self._all = all_templates
        self._database = database
        self._digests: set[str] = set()

    def __len__(self) -> int:
        return self._all.by_database[self._database]

    def stored(self, present: Set[str]) -> int:
        """How many of the templates that are stored at `present` this database has used: those that `clear` removes."""
        return len(self._digests & present)

    def get(self, table: StreamTable) -> Compiled | None:
        with self._all.lock:
            entry = self._all.find((self._database, table.pgt_id))
            if entry is None or entry[0] != table.compiled_from:
                self._all.misses += 1
                return None
            self._all.hits += 1
            return entry[1]

    def entries(self, ids: Iterable[int]) -> dict[int, tuple[Version, Compiled]]:
        """The cached entries of these tables, each with the definition that it was compiled from."""
        entries = {}
        with self._all.lock:
            for pgt_id in ids:
                entry = self._all.find((self._database, pgt_id))
                if entry is None:
                    self._all.misses += 1
                    continue
                self._all.hits += 1
                entries[pgt_id] = entry
        return entries

    def put(self, table: StreamTable, compiled: Compiled) -> None:
        with self._all.lock:
            self._all.put((self._database, table.pgt_id), (table.compiled_from, compiled))

    def drop(self, pgt_id: int) -> None:
        with self._all.lock:
            self._all.remove((self._database, pgt_id))

    def forget(self) -> int:
        """Empties what is in memory of this database, and leaves the store alone. How many there were."""
        with self._all.lock:
            own = [key for key in self._all.entries if key[0] == self._database]
            for key in own:
                self._all.remove(key)
        return len(own)

    def clear(self) -> int:
        """Removes what is in memory of this database, and the stored templates that it has used. How many there were,
        at both levels."""
        digests, self._digests = self._digests, set()
        removed = self._all.store.remove(digests) if self._all.store is not None else 0
        return self.forget() + removed

    # -- the store
    # ------------------------------------------------------------------------------------------------------------

    def is_usable(self) -> bool:
        return self._all.store is not None and self._all.store.is_usable

    def get_stored(self, key: TemplateKey) -> Compiled | None:
        assert self._all.store is not None
        found = self._all.store.get(key)
        if found is not None:
            self._digests.add(key.digest)
        return found

    def put_stored(self, key: TemplateKey, compiled: Compiled) -> Compiled | None:
        assert self._all.store is not None
        found = self._all.store.put(key, compiled)
        if found is not None:
            self._digests.add(key.digest)
        return found
