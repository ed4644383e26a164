"""The layout of delta rows: how many sums and extremes follow the weight and the key; and who nets them."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class DeltaLayout:
    """The number of sums and extremes after weight and key: the layout in which they are netted."""

    sums: int = 0
    extremes: int = 0
    every: bool = (
        False  # also keys whose weights cancel out: what is read again may be another though none came or went
    )


ROWS = DeltaLayout()  # of whole rows: neither
NETTED_HERE_ROWS = 5_000  # up to so many delta rows the worker nets a delta itself, without a Spark job (ADR 38)
