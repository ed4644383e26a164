"""The error of a stream table whose author has lost a privilege."""

from __future__ import annotations

from pgtrickle.errors import LostPrivilegeError
from pgtrickle.model.catalog import StreamTable


def lost_privilege(table: StreamTable) -> LostPrivilegeError:
    return LostPrivilegeError(
        table.lost_privilege or "",
        hint=f"grant it again, then SELECT pgtrickle.resume_stream_table('{table.full_name}')",
    )
