"""One statement at an origin that counts new visible changes per source."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from pgtrickle.broker.ledger import SourceCount, SourceScan
from pgtrickle.db.statements import statement
from pgtrickle.model.flow import Cut

if TYPE_CHECKING:
    from pgtrickle.db.connect import Connection


def scan(conn: Connection, requested: Sequence[tuple[int, Cut | None]]) -> SourceScan:
    """`requested`: sources, each with the cut since which changes are counted. None: count the changes that a reader in
    another database may not have read."""
    params = {
        "relids": [relid for relid, _ in requested],
        "sinces": [None if since is None else str(since) for _, since in requested],
    }
    row = conn.execute(statement("broker_counts"), params).fetchone()
    assert row is not None
    origin, seen, *columns = row
    sources = {
        relid: SourceCount(changes, lsn_number(lsn), horizon)
        for relid, changes, lsn, horizon in zip(*columns, strict=True)
    }
    return SourceScan(origin, Cut.parse(seen), sources)


def lsn_number(lsn: str | None) -> int:
    high, _, low = (lsn or "0/0").partition("/")
    return int(high, 16) << 32 | int(low, 16)


def lsn_text(number: int) -> str:
    return f"{number >> 32:X}/{number & 0xFFFF_FFFF:X}"
