"""Values of the data flow: cuts, windows, frontiers, deltas, timings.

A cut is a PostgreSQL snapshot. Membership in a window is decided by visibility in snapshots alone, never by the order
of ids, LSNs or clocks: therefore a late commit belongs to exactly one window.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from decimal import Decimal
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
        """SQL over a buffer's xid column."""
        since, upto, were_open, are_open = (f"'{value}'" for value in self.parameters())
        return _between(
            xid, since, upto, were_open if self.since.open_xids else None, are_open if self.upto.open_xids else None
        )

    @staticmethod
    def parameterised(xid: str = "xid") -> str:
        """The same with places for the `parameters`: one text for all windows, which a server can keep planned."""
        return _between(xid, "$1", "$2", "$3", "$4")

    def parameters(self) -> list[str]:
        """As texts, arrays too."""
        lists = [f"{{{','.join(map(str, xids))}}}" for xids in (self.since.open_xids, self.upto.open_xids)]
        return [str(self.since.xmax), str(self.upto.xmax), *lists]


def not_seen(xid: str, xmax: str, open_xids: str | None, below: str | None = None) -> str:
    """SQL condition: a transaction is not visible in a cut, that is, at or after its xmax, or in progress then.

    The two arms are index ranges that stay tight however long some transaction has been open, where a range from xmin
    would not. `below`: the xmax of a later cut.
    """
    arm = f"({xid} >= {xmax}::xid8{f' AND {xid} < {below}::xid8' if below is not None else ''})"
    return arm if open_xids is None else f"({arm} OR {xid} = ANY ({open_xids}::xid8[]))"


def _between(xid: str, since: str, upto: str, were_open: str | None, are_open: str | None) -> str:
    """Not visible in one cut and visible in the other: below its xmax and not in progress then. As comparisons, which
    the planner can estimate."""
    arms = not_seen(xid, since, were_open, upto)
    return arms if are_open is None else f"{arms} AND {xid} <> ALL ({are_open}::xid8[])"


# A sign is the action in a buffer (I, D; T for TRUNCATE), and a weight everywhere else.
WEIGHTS: Mapping[str, int] = {"I": 1, "D": -1}


def weight_of(buffer: str, *, negated: bool = False) -> str:
    """SQL: the weight of a row image in the buffer with this alias (`WEIGHTS`), or the weight that undoes it."""
    return f"CASE {buffer}.action WHEN '{'D' if negated else 'I'}' THEN 1 ELSE -1 END"


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

    @classmethod
    def reading_at(cls, value: Mapping[str, Any] | None, key: str) -> str | None:
        """The token of the reading (pgt_readings) that brought a mirror to its cut of one database."""
        token = ((value or {}).get(key) or {}).get("reading")
        return None if token is None else str(token)

    def to_json(self) -> dict[str, Any]:
        return {key: {"snapshot": str(cut)} for key, cut in self.cuts.items()}


@dataclass(frozen=True, slots=True)
class Pending:
    """The changes of one source in a window."""

    rows: int  # changes that are relevant to the reader
    truncated: bool
    is_seen: bool = True  # no changes at all; otherwise the reader's frontier must advance
    captured: int = 0  # all rows in the buffer


@dataclass(frozen=True, slots=True)
class SumDelta:
    """The change of one exact sum, by group."""

    rows: Sequence[int]  # rows with a value, net
    totals: Sequence[Decimal | None]

    def at(self, positions: Sequence[int]) -> SumDelta:
        return SumDelta([self.rows[i] for i in positions], [self.totals[i] for i in positions])


@dataclass(frozen=True, slots=True)
class ExtremeDelta:
    """The change of one MIN or MAX, by group: the extreme inserted and the extreme deleted value."""

    came: Sequence[str | None]
    gone: Sequence[str | None]

    def at(self, positions: Sequence[int]) -> ExtremeDelta:
        return ExtremeDelta([self.came[i] for i in positions], [self.gone[i] for i in positions])


@dataclass(frozen=True, slots=True)
class Delta:
    """A Z-set as columns of plain values, the result of consolidating signed rows; all columns have the same length.

    A key is the text of a row or of a group key; its weight is positive for inserted and negative for deleted rows.
    `lost`: keys of groups without sums, because NaN or an infinity was inserted or deleted, which is not invertible.
    """

    weights: Sequence[int]
    keys: Sequence[str]
    sums: tuple[SumDelta, ...] = ()
    extremes: tuple[ExtremeDelta, ...] = ()
    lost: frozenset[str] = frozenset()

    def __len__(self) -> int:
        return len(self.keys)

    def at(self, positions: Sequence[int]) -> Delta:
        """The rows at these positions."""
        return Delta(
            [self.weights[i] for i in positions],
            [self.keys[i] for i in positions],
            tuple(each.at(positions) for each in self.sums),
            tuple(each.at(positions) for each in self.extremes),
            self.lost,
        )


PARTS_ELSEWHERE = frozenset({"spark", "evaluate", "net"})  # on Spark or in the worker: not on the source server


@dataclass(slots=True)
class Timings:
    """Durations of the parts of one refresh, in milliseconds. `is_cold`: it started Spark or created a replica, which
    later refreshes do not."""

    parts: dict[str, float] = field(default_factory=dict)
    is_cold: bool = False
    share_ms: float = 0.0  # without the shares of other tables: those of a wave's tables add up to at most its duration
    source_ms: float = 0.0  # of this share, what the source server has spent

    def add(self, part: str, ms: float, tables: int = 1) -> None:
        """`tables`: how many the time was spent for, all of which have to wait for the end of it."""
        self.parts[part] = self.parts.get(part, 0.0) + ms
        self.share_ms += ms / tables
        if part not in PARTS_ELSEWHERE:
            self.source_ms += ms / tables

    @property
    def total_ms(self) -> float:
        return sum(self.parts.values())

    def to_json(self) -> dict[str, float]:
        return {part: round(ms, 3) for part, ms in self.parts.items()}


@dataclass(slots=True)
class DeltaSizes:
    """Rows of one differential refresh between its operators: `read` is what the statement that reads the changes
    returned (None: Spark evaluated the query), `netted` what was left of it, rows or groups."""

    read: int | None = None
    netted: int | None = None

    def to_json(self, changes: Mapping[int, int]) -> dict[str, Any] | None:
        """`changes`: changed rows by source. None: the refresh was not differential."""
        if self.netted is None:
            return None
        return {
            "changes": {str(relid): rows for relid, rows in changes.items()},
            "read": self.read,
            "netted": self.netted,
        }
