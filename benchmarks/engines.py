"""PostgreSQL and Spark as engines of the same stream tables: what each way takes, and what AUTO chooses.

Parts, each selectable, because at scale 1 all of them take more than an hour:

full      the 22 queries of TPC-H in FULL, on each engine, and by AUTO with source_cost_weight 0 and 1.
          Bars: AUTO (0) at most 0.85 x PostgreSQL alone, and the faster engine (or one within 10 %) in 90 %; AUTO (1)
          at most half of PostgreSQL's CPU seconds at the source; Spark at most 1.5 x PostgreSQL; the source's CPU time
          of a refresh on Spark at most a quarter of that on PostgreSQL (median)
changes   1 % and 10 % changes: (DIFFERENTIAL, FULL) x (PostgreSQL, Spark), and AUTO with weight 0.
          Bar: what AUTO chooses takes at most 1.2 x the best, for every query
extremes  min and max of 100 groups of 10,000 rows by an expression without an index, 100 and 5,000 changes.
          Bar: as above
curve     three queries, 0.01 % to 50 % changes, the four ways; engines_plot.py draws it
loads     benchmarks/loads.py      replica   benchmarks/replica.py

Figures are medians. The ways take turns over the same changes, in changing order. CPU time is that of all processes of
PostgreSQL, from /proc. Each query is appended to the results file when it is done: `--resume` continues a run, and the
bars are judged over everything that the file has for this scale.

    python benchmarks/engines.py [--scale 1] [--part full,changes] [--queries q01,q02] [--resume]
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from statistics import median
from typing import Any

from common.engine_bars import judged, show
from common.harness import Bench, bench, note, report
from common.results import Results
from common.tpch import QUERIES, Tpch
from common.ways import (
    FULL,
    FULL_WAYS,
    WAYS,
    Measured,
    Source,
    Way,
    advance_replicas,
    build_replicas,
    created,
    dropped,
    refreshed,
    rotated,
    weigh,
)

from tests.tpch.database import TABLES

FEW = 0.0001  # so that a FULL refresh has a reason
WEIGHTS = (0, 1)
SHARES = (0.01, 0.1)
CURVE_SHARES = (0.0001, 0.001, 0.01, 0.05, 0.1, 0.2, 0.5)
CURVE_QUERIES = ("q01", "q05", "q18")
STATEMENT_S = 120  # a way may lose, but not for hours
MEMORY_MB = 4096
POSTGRES = {"shared_buffers": "2GB", "max_wal_size": "16GB", "autovacuum": "off"}
GROUPS, ROWS_OF_GROUP, EXTREME_CHANGES = 100, 10_000, (100, 5_000)
EXTREME_QUERY = (
    "SELECT id % 100 + 0 AS k, min(v) AS low, max(v) AS high, count(*) AS n FROM sample GROUP BY id % 100 + 0"
)
PARTS = ("full", "changes", "extremes", "curve", "loads", "replica")


@dataclass(frozen=True, slots=True)
class Table:
    """A stream table that takes part: the way that it is pinned to; None: AUTO, with a weight of the source's time."""

    name: str
    way: Way | None
    mode: str = "AUTO"
    weight: int = 0


@dataclass(frozen=True, slots=True)
class Stage:
    """A database with replicas, and what changes a share of its rows."""

    line: Bench
    source: Source
    change: Callable[[float], int]

    def pinned(self, query: str, ways: Sequence[Way]) -> list[Table]:
        return [Table(f"{query}_{way.suffix}", way, way.mode) for way in ways]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--scale", type=float, default=1.0)
    parser.add_argument("--part", default="full,changes,extremes,loads,replica", help="some of: " + ", ".join(PARTS))
    parser.add_argument("--queries", default=",".join(QUERIES))
    parser.add_argument("--rounds", type=int, default=3, help="refreshes in each way that are measured")
    parser.add_argument("--learn", type=int, default=8, help="refreshes by AUTO; the last three are judged")
    parser.add_argument("--resume", action="store_true", help="leave out what the results file has")
    parser.add_argument("--results", type=Path, default=Path("engines.jsonl"))
    options = parser.parse_args()
    results, parts = Results(options.results), options.part.split(",")
    if unknown := set(parts) - set(PARTS):
        parser.error(f"there is no part {', '.join(sorted(unknown))}")
    if {"full", "changes", "curve"} & set(parts):
        with tpch_stage(options.scale) as stage:
            for part in ("full", "changes", "curve"):
                if part in parts:
                    run_queries(part, stage, options, results)
    if "extremes" in parts:
        results.add("extremes", options.scale, "groups", extremes(options))
    for part, command in (("loads", ["loads.py"]), ("replica", ["replica.py"])):
        if part in parts and not (options.resume and results.has(part, options.scale, part)):
            results.add(part, options.scale, part, other_benchmark(command))
    judgement = judged(results, options.scale, parts)
    show(results, options.scale)
    report("engines", **judgement)


def run_queries(part: str, stage: Stage, options: argparse.Namespace, results: Results) -> None:
    names = CURVE_QUERIES if part == "curve" else options.queries.split(",")
    measure: dict[str, Callable[[Stage, str, argparse.Namespace], dict[str, Any]]]
    measure = {"full": full, "changes": changes, "curve": curve}
    for name in names:
        if options.resume and results.has(part, options.scale, name):
            note(f"{part} {name}: known")
            continue
        figures = measure[part](stage, name, options)
        results.add(part, options.scale, name, figures)
        note(f"{part} {name}: {json.dumps(figures)}")


@contextmanager
def tpch_stage(scale: float) -> Iterator[Stage]:
    with tempfile.TemporaryDirectory(prefix="pgtrickle-engines-") as root, engines_bench(root) as line:
        tpch = Tpch(line, scale)
        line.sql("VACUUM ANALYZE")
        build_replicas(line, TABLES)
        tpch.churn(FEW)  # its first call has nothing to bring back
        yield Stage(line, Source(line), tpch.churn)


@contextmanager
def engines_bench(root: str) -> Iterator[Bench]:
    with bench(memory_mb=MEMORY_MB, postgres_settings=POSTGRES, flags={"replica_root": f"{root}/replicas"}) as line:
        line.sql(f"ALTER DATABASE {line.conn.info.dbname} SET statement_timeout = '{STATEMENT_S}s'")
        yield line


# -- parts
# ---------------------------------------------------------------------------------------------------------------------


def full(stage: Stage, name: str, options: argparse.Namespace) -> dict[str, Any]:
    tables = stage.pinned(name, FULL_WAYS)
    tables += [Table(f"{name}_auto{weight}", None, FULL, weight) for weight in WEIGHTS]
    found = measured(stage, QUERIES[name], tables, [FEW], options.rounds, options.learn)[FEW]
    return {
        **{way.engine: _pinned(found[f"{name}_{way.suffix}"], way) for way in FULL_WAYS},
        **{f"auto{weight}": _chosen(found[f"{name}_auto{weight}"]) for weight in WEIGHTS},
    }


def changes(stage: Stage, name: str, options: argparse.Namespace) -> dict[str, Any]:
    tables = [*stage.pinned(name, WAYS), Table(f"{name}_auto", None)]
    found = measured(stage, QUERIES[name], tables, SHARES, options.rounds, options.learn)
    return {f"{share:g}": _of_ways(name, each) for share, each in found.items()}


def curve(stage: Stage, name: str, options: argparse.Namespace) -> dict[str, Any]:
    found = measured(stage, QUERIES[name], stage.pinned(name, WAYS), CURVE_SHARES, options.rounds, 0)
    return {f"{share:g}": _of_ways(name, each) for share, each in found.items()}


def extremes(options: argparse.Namespace) -> dict[str, Any]:
    """Of 100 changed rows, and of 5,000."""
    with tempfile.TemporaryDirectory(prefix="pgtrickle-engines-") as root, engines_bench(root) as line:
        line.sql(
            "CREATE TABLE sample (id int PRIMARY KEY, v int NOT NULL);"
            f"INSERT INTO sample SELECT i, i::int8 * 7919 % 1000003 FROM generate_series(1, {GROUPS * ROWS_OF_GROUP}) i"
        )
        line.sql("VACUUM ANALYZE sample")
        build_replicas(line, ["sample"])
        total, number = GROUPS * ROWS_OF_GROUP, 0

        def change(share: float) -> int:
            """Values move far: some are the least or the greatest of their group before, or after."""
            nonlocal number
            number, count = number + 1, round(share * total)
            line.sql(
                "UPDATE sample SET v = (v + 500001) %% 1000003 WHERE id IN "
                "(SELECT 1 + (i * %s + %s * 101) %% %s FROM generate_series(1, %s) AS i)",
                total // count - 1,
                number,
                total,
                count,
            )
            return count

        stage = Stage(line, Source(line), change)
        tables = [*stage.pinned("extremes", WAYS), Table("extremes_auto", None)]
        shares = [count / total for count in EXTREME_CHANGES]
        found = measured(stage, EXTREME_QUERY, tables, shares, options.rounds, options.learn)
    return {str(round(share * total)): _of_ways("extremes", each) for share, each in found.items()}


def other_benchmark(command: Sequence[str]) -> dict[str, Any]:
    """What another benchmark says in its last line."""
    script = Path(__file__).parent / command[0]
    done = subprocess.run([sys.executable, str(script), *command[1:]], stdout=subprocess.PIPE, text=True, check=False)
    lines = done.stdout.splitlines()
    if not lines:
        raise SystemExit(f"{command[0]} ended with status {done.returncode} and said nothing")
    found: dict[str, Any] = json.loads(lines[-1])
    return found


# -- measuring
# -------------------------------------------------------------------------------------------------------------


def measured(
    stage: Stage, query: str, tables: Sequence[Table], shares: Sequence[float], rounds: int, learn: int
) -> dict[float, dict[str, Measured]]:
    """The tables, all defined by one query, over the same changes, by share and name. A way that fails is left out from
    then on. At the end all of them are compared with their query."""
    line = stage.line
    refused: dict[str, str] = {}
    for table in tables:
        engine = table.way.engine if table.way is not None else "auto"
        if (why := created(line, table.name, query, table.mode, engine)) is not None:
            refused[table.name] = why
    there = [table for table in tables if table.name not in refused]
    found = {share: _rounds(stage, tables, share, rounds, learn, refused) for share in shares}
    for table in there:
        if table.name not in refused:
            line.verify(table.name)
        dropped(line, table.name)
    return found


def _rounds(
    stage: Stage, tables: Sequence[Table], share: float, rounds: int, learn: int, refused: dict[str, str]
) -> dict[str, Measured]:
    """Those that are pinned go `rounds` times after one that warms them up, in the last rounds; AUTO goes `learn`
    times."""
    line, found = stage.line, {table.name: Measured() for table in tables}
    total = max(learn, rounds + 1)
    for number in range(total):
        line.plane.tidy()
        advance_replicas(line)
        stage.change(share)
        for table in rotated([t for t in tables if t.name not in refused], number):
            if table.way is not None and number < total - rounds - 1:
                continue
            weigh(line, table.weight)
            done = refreshed(line, stage.source, table.name)
            if done.error is not None:
                note(f"{table.name} at {share:.2%}: {done.error}")
                refused[table.name] = done.error
            elif table.way is None or number >= total - rounds:
                found[table.name].done.append(done)
        note(f"{share:.2%}, round {number + 1} of {total}: " + _last(found))
    for name, why in refused.items():
        found[name].refused = why
    return found


def _last(found: Mapping[str, Measured]) -> str:
    latest = {name.rpartition("_")[2]: m.done[-1] for name, m in found.items() if m.done}
    return ", ".join(f"{name} {d.ms:.0f} ms ({d.way}, {d.cpu_s:.2f} s CPU)" for name, d in latest.items())


def _of_ways(name: str, found: Mapping[str, Measured]) -> dict[str, Any]:
    figures = {way.name: _pinned(found[f"{name}_{way.suffix}"], way) for way in WAYS}
    return figures | ({"auto": _chosen(found[f"{name}_auto"])} if f"{name}_auto" in found else {})


def _pinned(found: Measured, way: Way) -> dict[str, Any]:
    """Medians; why there are none where the table was refused, failed, or was refreshed in another way."""
    figures = found.figures(way.name)
    if figures is not None and found.refused is None:
        return dict(figures)
    others = sorted({f"{d.way}: {d.reason}" for d in found.done if d.error is None})
    return {"why_not": found.refused or "; ".join(others)}


def _chosen(found: Measured) -> dict[str, Any]:
    settled = found.settled()
    if not settled:
        return {"why_not": found.refused or "nothing but tries"}
    return {
        "way": found.choice(),
        "ms": round(median(d.ms for d in settled), 1),
        "cpu_s": round(median(d.cpu_s for d in settled), 3),
        "reason": settled[-1].reason,
    }


if __name__ == "__main__":
    main()
