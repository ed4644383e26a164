"""The compiled stream tables of a lease."""

from __future__ import annotations

from pgtrickle.define.compile import Compiled
from pgtrickle.define.template_cache import Version
from pgtrickle.model.catalog import StreamTable


class LeaseTemplates:
    """`entries`: by pgt_id, from the cache. A lease references its own, because the cache may evict them."""

    def __init__(self) -> None:
        self.entries: dict[int, tuple[Version, Compiled]] = {}

    def put(self, table: StreamTable, compiled: Compiled) -> None:
        self.entries[table.pgt_id] = (table.compiled_from, compiled)

    def get(self, table: StreamTable) -> Compiled | None:
        """None: not compiled, or compiled from another definition."""
        entry = self.entries.get(table.pgt_id)
        return entry[1] if entry is not None and entry[0] == table.compiled_from else None


def is_plain(table: StreamTable, *, keeps_session: bool) -> bool:
    """Whether it reads only its own database, and may use connections that keep session state."""
    return table.mirror is None and table.origins is None and not (keeps_session and table.keeps_no_session)
