"""A replica: its size, the time to create it, to read it at a later cut, and to advance it by 1 % of changes.

Bars: at most half of the table's size; advancing by a layer of changes, of neighbouring rows or spread over the whole
table, takes at most 3 x the time to COPY these changes out of the change buffer. Now and then an advance rewrites files
with the changes of all layers; its time is shown, and all advances together against all COPYs. `--rows` sets the size
(default 10 M).
"""

from __future__ import annotations

import argparse
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from common.harness import bench, note, percentile, report

from pgtrickle.db.connect import begin, connect
from pgtrickle.replica import ReplicaNeed, ReplicaStore, ReplicaVersion

ROUNDS = 3


def timed(action: Callable[[], Any]) -> tuple[float, Any]:
    begun = time.perf_counter()
    found = action()
    return (time.perf_counter() - begun) * 1000, found


def copy_window(conn: Any, version: ReplicaVersion) -> float:
    """Milliseconds to read the changes since the version, by COPY."""
    buffer = f"pgtrickle_changes.changes_{version.id.relid}"
    query = f"SELECT * FROM {buffer} WHERE NOT pg_visible_in_snapshot(xid, '{version.cut}')"

    def read() -> None:
        with conn.cursor() as cursor, cursor.copy(f"COPY ({query}) TO STDOUT") as copy:
            for _ in copy:
                pass

    read()
    return percentile([timed(read)[0] for _ in range(3)], 0.5)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rows", type=int, default=10_000_000)
    rows = parser.parse_args().rows
    figures: dict[str, Any] = {}
    with bench() as line, tempfile.TemporaryDirectory() as root:
        note(f"loading {rows} rows")
        line.sql(f"""
            CREATE TABLE sale (id int PRIMARY KEY, customer int NOT NULL, sold date, note text, amount numeric(10, 2));
            INSERT INTO sale
            SELECT i, 1 + (i * 7919::int8) % 100000, DATE '2020-01-01' + i % 1500, 'note ' || i % 1000, i * 0.01
            FROM generate_series(1, {rows}) AS i;
        """)
        line.sql("VACUUM ANALYZE sale")
        engine = line.engine
        assert engine is not None
        conn = connect(line.dsn, role="replica", autocommit=True)
        store = ReplicaStore(Path(root) / "replicas", engine)
        ((relid, size),) = line.sql("SELECT 'sale'::regclass::oid::int8, pg_table_size('sale')")
        create, version = timed(lambda: store.ensure(conn, ReplicaNeed(relid, None)))
        figures |= {
            "table_bytes": size,
            "replica_bytes": version.bytes,
            "size_ratio": version.bytes / size,
            "create_ms": create,
        }
        note(f"created in {create:.0f} ms: {version.bytes} of {size} bytes, {len(version.files)} files")

        def count() -> int:
            begin(conn, "ISOLATION LEVEL REPEATABLE READ READ ONLY")
            try:
                with engine.bulk_session() as spark, store.at_cut(spark, conn, version) as frame:
                    return int(frame.selectExpr("sum(c1)").collect()[0][0])
            finally:
                conn.rollback()

        count()
        figures["scan_ms"] = percentile([timed(count)[0] for _ in range(ROUNDS)], 0.5)
        all_advances, all_copies, rewrites = 0.0, 0.0, []
        for name, where in (("near", "id BETWEEN {low} AND {low} + {share}"), ("spread", "id % 100 = {number}")):
            ratios, advances, copies, reads = [], [], [], []
            for number in range(ROUNDS + 1):
                low = rows // (ROUNDS + 2) * (number + 1)
                changed = where.format(low=low, share=rows // 100 - 1, number=number)
                line.sql(f"UPDATE sale SET amount = amount + 1 WHERE {changed}")
                copied = copy_window(conn, version)
                read, _ = timed(count)
                took, version = timed(lambda: store.advance(conn, relid))
                how = f"by layer {len(version.layers)}" if version.layers else "by rewriting files"
                note(f"{name}: COPY {copied:.0f} ms, read at the cut {read:.0f} ms, advanced {how} in {took:.0f} ms")
                all_advances, all_copies = all_advances + took, all_copies + copied
                if not version.layers:
                    rewrites.append(took)
                elif number:
                    ratios.append(took / copied)
                    advances.append(took)
                    copies.append(copied)
                    reads.append(read)
            figures |= {
                f"{name}_ratio": percentile(ratios, 0.5),
                f"{name}_advance_ms": percentile(advances, 0.5),
                f"{name}_copy_ms": percentile(copies, 0.5),
                f"{name}_read_ms": percentile(reads, 0.5),
            }
        figures |= {"rewrite_ms": rewrites, "all_ratio": all_advances / all_copies}
        checked = store.verify(conn, relid)
        conn.close()
    ok = checked.ok and figures["size_ratio"] <= 0.5 and max(figures["near_ratio"], figures["spread_ratio"]) <= 3
    report("replica", ok, rows=rows, exact=checked.ok, **figures)


if __name__ == "__main__":
    main()
