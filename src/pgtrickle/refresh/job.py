"""How a refresh of one stream table ended."""

from __future__ import annotations

from dataclasses import dataclass, field

from pgtrickle.errors import PgtrickleError
from pgtrickle.model.catalog import StreamTable
from pgtrickle.model.reasons import Reason
from pgtrickle.refresh.engine_choice import EngineChoice


@dataclass(frozen=True, slots=True)
class Outcome:
    """The result of one table's refresh.

    `error` is set if it failed. Action PREPARE: the caller has to prepare the table and refresh it again; with a
    reason, the table has to be loaded then.
    """

    table: StreamTable
    action: str
    reason: Reason | None = None
    error: PgtrickleError | None = None
    inserted: int = 0
    deleted: int = 0
    timings: dict[str, float] = field(default_factory=dict)
    engine: EngineChoice | None = None
    rounds: int | None = None  # of a cycle, until no new row appeared
    share_ms: float = 0.0  # its share of the time of its wave; 0: unknown
