"""What a server says besides results: notices and warnings."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from psycopg.errors import Diagnostic

    from pgtrickle.db.connect import Connection


def report_notices(conn: Connection, report: Callable[[str], None]) -> None:
    """Calls `report` with each of them, in one line with its hint."""

    def tell(diagnostic: Diagnostic) -> None:
        hint = f" (hint: {diagnostic.message_hint})" if diagnostic.message_hint else ""
        report(f"{(diagnostic.severity or 'notice').lower()}: {diagnostic.message_primary}{hint}")

    conn.add_notice_handler(tell)
