"""Whether authors may still read the mirrored tables at their origins.

Queried at the origin and stored here: the catalog read of each refresh finds it with the privileges of this database.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from typing import TYPE_CHECKING, Any

from pgtrickle.db.connect import translated
from pgtrickle.db.statements import statement
from pgtrickle.model.catalog import Mirror

if TYPE_CHECKING:
    from pgtrickle.db.connect import Connection

Session = Callable[[Mirror], AbstractContextManager["Connection"]]


def recheck(home: Connection, mirrors: Sequence[Mirror], session: Session) -> None:
    """At the origins of these mirrors. Raises an error if one does not answer: the previous result stays."""
    by_key = {mirror.key: mirror for mirror in mirrors}
    names = {(mirror.key, mirror.relid): mirror.name for mirror in mirrors}
    with translated():
        readers = home.execute(statement("elsewhere_readers"), {"keys": list(by_key)}).fetchall()
    for key, mirror in by_key.items():
        own = [r[1:] for r in readers if r[0] == key]
        if own:
            with session(mirror) as conn:
                lost = _lost(conn, own)
            databases = [names.get((key, relid), mirror.database) for *_, relid, _ in own]
            words = [w and f"permission denied for {name}: {w}" for name, w in zip(databases, lost, strict=True)]
            _note(home, own, words)


def _lost(conn: Connection, readers: Sequence[tuple[Any, ...]]) -> list[str | None]:
    parameters = {
        "roles": [role for _, _, _, role, _, _ in readers],
        "relids": [relid for *_, relid, _ in readers],
        "columns": ["{" + ",".join(str(c) for c in columns if c is not None) + "}" for *_, columns in readers],
    }
    with translated():
        return [row[0] for row in conn.execute(statement("elsewhere_rights"), parameters).fetchall()]


def _note(home: Connection, readers: Sequence[tuple[Any, ...]], words: Sequence[str | None]) -> None:
    with translated():
        parameters = {
            "ids": [r[0] for r in readers],
            "relids": [r[1] for r in readers],
            "readers": [r[2] for r in readers],
            "words": list(words),
        }
        home.execute(statement("elsewhere_lost"), parameters)
