"""How a refresh of one stream table ended."""

from __future__ import annotations

from dataclasses import dataclass, field

from pgtrickle.errors import PgtrickleError
from pgtrickle.model.catalog import StreamTable
from pgtrickle.model.reasons import Reason


@dataclass(frozen=True, slots=True)
class Outcome:
    """How one table fared.

    `error` is set when it failed; action PREPARE asks the caller to prepare the table and come again, with a reason
    when it has to be loaded anew then.
    """

    table: StreamTable
    action: str
    reason: Reason | None = None
    error: PgtrickleError | None = None
    inserted: int = 0
    deleted: int = 0
    timings: dict[str, float] = field(default_factory=dict)
    rounds: int | None = None  # of a cycle, until nothing came any more
