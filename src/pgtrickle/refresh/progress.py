"""Who learns which stream tables of a lease are being refreshed, and which are done."""

from __future__ import annotations

from typing import Protocol


class Progress(Protocol):
    """Called outside transactions. Stream tables that change in one wave are begun together, as the first of them."""

    def begun(self, pgt_id: int) -> None:
        """Work that is for this table alone (to prepare or load it), or for its unit, begins."""

    def done(self, pgt_id: int) -> None:
        """The stream table is refreshed, and committed."""


class UnobservedProgress:
    """Nobody wants to know."""

    def begun(self, pgt_id: int) -> None:
        pass

    def done(self, pgt_id: int) -> None:
        pass
