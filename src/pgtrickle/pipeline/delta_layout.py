"""The layout of delta rows: how many sums and extremes follow the weight and the key."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class DeltaLayout:
    """The number of sums and extremes after weight and key: the layout of the Spark job."""

    sums: int = 0
    extremes: int = 0
    every: bool = (
        False  # also keys whose weights cancel out: what is read again may be another though none came or went
    )


ROWS = DeltaLayout()  # of whole rows: neither
