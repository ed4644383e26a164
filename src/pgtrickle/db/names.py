"""Locks what statements of a refresh name, and compares it with the catalog (sql/install/trust/hold.sql)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from pgtrickle.db.connect import translated
from pgtrickle.db.statements import statement

if TYPE_CHECKING:
    from pgtrickle.db.connect import Connection


@dataclass(frozen=True, slots=True)
class HeldNames:
    """Stream tables by what holds of the names in their queries, which are locked until the end of the transaction.

    `lost`: a name means something else than in the snapshot. `with_types`: types are named, which cannot be locked.
    """

    lost: frozenset[int] = frozenset()
    with_types: frozenset[int] = frozenset()


def hold_names(conn: Connection, ids: Sequence[int]) -> HeldNames:
    if not ids:
        return HeldNames()
    with translated():
        rows = conn.execute(statement("hold_names"), {"ids": list(ids)}).fetchall()
    lost = frozenset(pgt_id for pgt_id, is_held, _ in rows if not is_held)
    return HeldNames(lost, frozenset(pgt_id for pgt_id, _, names_types in rows if names_types))


def hold_storage(conn: Connection, pgt_id: int) -> bool:
    """Locks the table that a stream table is stored in; false if another relation has its name."""
    row = conn.execute(statement("hold_storage"), {"id": pgt_id}).fetchone()
    return row is not None and bool(row[0])
