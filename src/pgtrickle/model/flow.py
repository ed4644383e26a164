"""Values of the data flow: cuts, windows, frontiers, deltas, timings.

A cut is a PostgreSQL snapshot. Membership in a window is decided by visibility in snapshots alone, never by the order
of ids, LSNs or clocks: therefore a late commit belongs to exactly one window.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Any


@dataclass(frozen=True, slots=True)
class Cut:
    """`pg_current_snapshot()` of a REPEATABLE READ transaction: xmin:xmax:in-progress."""

    xmin: int
    xmax: int
    open_xids: tuple[int, ...]

    @staticmethod
    @lru_cache(4096)  # most tables of a wave have the same cut
    def parse(text: str) -> Cut:
        xmin, xmax, rest = text.split(":")
        return Cut(int(xmin), int(xmax), tuple(int(x) for x in rest.split(",") if x))

    def __str__(self) -> str:
        return f"{self.xmin}:{self.xmax}:{','.join(map(str, self.open_xids))}"

    def with_own(self, xid: int) -> Cut:
        """This cut plus the changes of the transaction `xid`, which began after it.

        Transactions that began in between count as in progress, as they are in this snapshot.
        """
        return Cut(self.xmin, xid + 1, (*self.open_xids, *range(self.xmax, xid)))

    def sees(self, xid: int) -> bool:
        return xid < self.xmin or (xid < self.xmax and xid not in self.open_xids)

    def precedes(self, other: Cut) -> bool:
        """Whether `other` sees all that this one sees. False when it cannot be a later snapshot of the same server
        (restore, another cluster), or is an earlier one between whose bounds fewer transactions had ended."""
        if self.xmin > other.xmin or self.xmax > other.xmax:
            return False
        return all(x >= self.xmax or x in self.open_xids for x in other.open_xids)


@dataclass(frozen=True, slots=True)
class Position:
    """The position of a mirror as its origin knows it: a cut that it has committed, or an earlier one."""

    cut: Cut | None
    netted: int | None = None  # changes of earlier transactions were compacted, between the cuts known then

    def allows(self, since: Cut) -> bool:
        """Whether the changes after this cut are complete."""
        return self.netted is None or since == self.cut or since.xmin >= self.netted


@dataclass(frozen=True, slots=True)
class Window:
    """The changes that are visible in `upto` and not in `since`."""

    since: Cut
    upto: Cut

    def predicate(self, xid: str = "xid") -> str:
        """SQL over a buffer's xid column.

        Not visible in `since` is exactly "at or after its xmax, or in progress then"; the two arms are index ranges
        that stay tight however long some transaction has been open, where a range from xmin would not.
        """
        since, upto, *lists = (f"'{value}'" for value in self.parameters())
        arms = f"({xid} >= {since}::xid8 AND {xid} < {upto}::xid8)"
        if self.since.open_xids:
            arms = f"({arms} OR {xid} = ANY ({lists[0]}::xid8[]))"
        # Visible in `upto`: below its xmax and not in progress then. As comparisons, which the planner can estimate.
        return f"{arms} AND {xid} <> ALL ({lists[1]}::xid8[])" if self.upto.open_xids else arms

    @staticmethod
    def parameterised(xid: str = "xid") -> str:
        """The same with places for the `parameters`: one text for all windows, which a server can keep planned."""
        arms = f"(({xid} >= $1::xid8 AND {xid} < $2::xid8) OR {xid} = ANY ($3::xid8[]))"
        return f"{arms} AND {xid} <> ALL ($4::xid8[])"

    def parameters(self) -> list[str]:
        """As texts, arrays too."""
        lists = [f"{{{','.join(map(str, xids))}}}" for xids in (self.since.open_xids, self.upto.open_xids)]
        return [str(self.since.xmax), str(self.upto.xmax), *lists]


@dataclass(frozen=True, slots=True)
class Instance:
    """Which database of which cluster a cut belongs to; a cut is meaningless anywhere else."""

    system_identifier: str
    database_oid: int

    @property
    def key(self) -> str:
        return f"{self.system_identifier}/{self.database_oid}"


@dataclass(frozen=True, slots=True)
class Frontier:
    """One cut per source database."""

    cuts: Mapping[str, Cut]

    @classmethod
    def cut_at(cls, value: Mapping[str, Any] | None, key: str) -> Cut | None:
        """Of one database, in a frontier as the catalog has it."""
        entry = (value or {}).get(key)
        return None if entry is None else Cut.parse(entry["snapshot"])

    def to_json(self) -> dict[str, Any]:
        return {key: {"snapshot": str(cut)} for key, cut in self.cuts.items()}


@dataclass(frozen=True, slots=True)
class Pending:
    """What one source has in a window."""

    rows: int  # changes that are relevant to the reader
    truncated: bool
    is_seen: bool = True  # no changes at all; otherwise the reader's frontier must advance
    captured: int = 0  # all rows in the buffer


@dataclass(frozen=True, slots=True)
class Delta:
    """Weighted rows as columns of plain values, the result of the pipeline's Spark part.

    `columns` maps a name of the template's Spark output to its values; every list has the same length. `lost` are the
    keys of groups whose sums are missing: NaN or an infinity was inserted or deleted, which is not invertible.
    """

    columns: Mapping[str, Sequence[Any]]
    lost: frozenset[str] = frozenset()

    def __len__(self) -> int:
        return len(next(iter(self.columns.values()))) if self.columns else 0


@dataclass(slots=True)
class Timings:
    """Durations of the parts of one refresh, in milliseconds."""

    parts: dict[str, float] = field(default_factory=dict)

    def add(self, part: str, ms: float) -> None:
        self.parts[part] = self.parts.get(part, 0.0) + ms

    @property
    def total_ms(self) -> float:
        return sum(self.parts.values())

    def to_json(self) -> dict[str, float]:
        return {part: round(ms, 3) for part, ms in self.parts.items()}
