"""An idle fleet: what `pgtrickle run` takes over databases in which nothing changes, in CPU and in memory.

Bars: all our processes together < 2 % of a core; a scheduler's Pss <= 40 MiB. Spark and PostgreSQL are not counted.
"""

from __future__ import annotations

import argparse
import statistics
import time
from typing import Any

import psycopg
from common.fleet import Run, Site, load, memory_mib, run, site, wait_for
from common.harness import note, report

from pgtrickle.db.install import install

MOST_PERCENT = 2.0
MOST_SCHEDULER_MIB = 40.0
SETTLE_SECONDS = 10.0


def prepare(where: Site, databases: int, tables: int) -> list[str]:
    names = [f"idle{i}" for i in range(databases)]
    with psycopg.connect(where.postgres.dsn(), autocommit=True) as conn:
        conn.execute(f"CREATE DATABASE {names[0]}")
        with psycopg.connect(where.postgres.dsn(names[0])) as first:
            install(first)
            for number in range(tables):
                first.execute(f"CREATE TABLE t{number} (id int PRIMARY KEY, v int)")
                query = f"SELECT v, count(*) AS n FROM t{number} GROUP BY v"
                first.execute("SELECT pgtrickle.create_stream_table(%s, %s, '1s')", (f"s{number}", query))
        for name in names[1:]:
            conn.execute(f"CREATE DATABASE {name} TEMPLATE {names[0]}")
    return names


def loaded(dsn: str) -> bool:
    with psycopg.connect(dsn, autocommit=True) as conn:
        row = conn.execute("SELECT bool_and(is_populated) FROM pgtrickle.pgt_stream_tables").fetchone()
    return row is not None and bool(row[0])


def shares(running: Run, seconds: float) -> dict[str, Any]:
    """Percent of a core, by kind of process."""
    before, begun = running.cpu(), time.monotonic()
    time.sleep(seconds)
    after, elapsed = running.cpu(), time.monotonic() - begun
    kinds: dict[str, float] = {}
    for pid, kind in running.kinds().items():
        kinds[kind] = kinds.get(kind, 0.0) + (after[pid] - before.get(pid, 0.0)) / elapsed * 100
    return {"percent": round(sum(kinds.values()), 2), "by_kind": {k: round(v, 2) for k, v in kinds.items()}}


def memory(running: Run) -> dict[str, Any]:
    """MiB; the median of the schedulers."""
    found: dict[str, list[dict[str, float]]] = {}
    for pid, kind in running.kinds().items():
        found.setdefault(kind, []).append(memory_mib(pid))
    return {
        kind: {"count": len(all_), **{name: statistics.median(one[name] for one in all_) for name in all_[0]}}
        for kind, all_ in found.items()
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--databases", type=int, default=10)
    parser.add_argument("--tables", type=int, default=5)
    parser.add_argument("--seconds", type=float, default=30)
    given = parser.parse_args()
    with site() as where:
        names = prepare(where, given.databases, given.tables)
        with run(where, {}) as running:
            dsns = [where.postgres.dsn(name) for name in names]
            wait_for(lambda: all(map(loaded, dsns)), 180, "all are loaded")
            note(f"loaded; idle for {given.seconds} s")
            time.sleep(SETTLE_SECONDS)
            cpu = shares(running, given.seconds)
            note(f"cpu: {cpu}; load average {load()}")
            sizes = memory(running)
            note(f"memory: {sizes}")
    ok = cpu["percent"] < MOST_PERCENT and sizes["scheduler"]["pss"] <= MOST_SCHEDULER_MIB
    report("idle", ok, databases=given.databases, cpu=cpu, memory=sizes, load_average=load())


if __name__ == "__main__":
    main()
