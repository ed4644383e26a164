"""`make fuzz N=5000 [SEED=..]`: many random queries, a progress bar, a summary; failures are minimised and written."""

from __future__ import annotations

import argparse
import logging
import sys
from collections import Counter
from dataclasses import replace
from pathlib import Path

import psycopg
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn, TimeRemainingColumn

from pgtrickle.db.install import install
from pgtrickle.pipeline.engine.spark import SparkEngine
from pgtrickle.servers.embedded_postgres import EmbeddedPostgres
from pgtrickle.servers.spark_server import SparkServer
from pgtrickle.settings import Settings
from tests.conftest import create_database, prepare_server
from tests.fuzz import wave
from tests.fuzz.case import QUERIES, Wave, alone, generate, read, script
from tests.fuzz.in_partitions import PartitionedRun
from tests.fuzz.lines import Lines
from tests.fuzz.minimise import minimise
from tests.fuzz.on_spark import SparkRun
from tests.fuzz.report import Report

TEMPLATE = "template_installed"


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.fuzz", description=__doc__)
    parser.add_argument("-n", type=int, default=1000, help="how many queries")
    parser.add_argument("--seed", type=int, default=1, help="the first seed; each stands for 25 queries")
    parser.add_argument("--only", help="only this query of the seed, for example q7")
    parser.add_argument("--out", type=Path, default=Path("/tmp/fuzz-failures"), help="where failing cases are written")
    parser.add_argument("--minimise", type=float, default=60.0, help="seconds for each failure; 0 writes it as it is")
    parser.add_argument("--replay", type=Path, nargs="+", help="run these scripts instead and tell how they fare")
    parser.add_argument("--show", action="store_true", help="print the generated SQL and end")
    parser.add_argument("--renames", action="store_true", help="give tables and columns other names, and back")
    parser.add_argument("--engine", choices=["postgres", "spark"], default="postgres", help="what evaluates refreshes")
    parser.add_argument("--partitions", action="store_true", help="partition each stream table by one of its columns")
    options = parser.parse_args()
    judge = PartitionedRun if options.partitions else SparkRun if options.engine == "spark" else None
    seeds = range(options.seed, options.seed + -(-options.n // QUERIES))
    if options.show:
        for seed in seeds:
            print(script(_only(generate(seed), options.only).case, f"seed {seed}"))
        return 0
    console = Console(stderr=True)
    # A refusal of DIFFERENTIAL is logged as a failed refresh; here it is one of the answers.
    logging.getLogger("pgtrickle").setLevel(logging.ERROR)
    if options.replay:
        return _replay(console, options.replay, judge)
    report, causes = Report(), Counter[str]()
    bar = Progress(
        TextColumn("{task.description}"),
        BarColumn(),
        MofNCompleteColumn(),
        TimeElapsedColumn(),
        TimeRemainingColumn(),
        console=console,
    )
    with _engine(console) as lines, bar:
        task = bar.add_task("queries", total=len(seeds) * QUERIES)
        for seed in seeds:
            made = _only(lines.wave(seed), options.only)
            verdicts = wave.run(lines.open, made.case, renames=options.renames, judge=judge)
            lone, case = alone(made)
            if not verdicts[lone].failed:
                verdicts[lone] = wave.run(lines.open, case, judge=judge)[lone]
            report.add(seed, verdicts)
            for name, verdict in verdicts.items():
                if verdict.failed:
                    cause = verdict.cause()
                    causes[cause] += 1
                    bar.console.print(f"seed {seed} {name}: {verdict.status} {verdict.detail[:300]}", markup=False)
                    # Cases have no renames, so what fails by one is not made smaller.
                    seconds = options.minimise if causes[cause] <= 5 and not options.renames else 0.0
                    _write(lines, made, name, verdict, options.out, seconds, judge)
            on_spark = f", {report.spark_share:.0%} on Spark" if judge is SparkRun else ""
            told = f"queries, {report.share:.0%} differential{on_spark}, {len(report.failures)} failed"
            bar.update(task, advance=len(verdicts), description=told)
            if not console.is_terminal:
                console.print(f"{report.queries} {told}")
    print("\n".join(report.lines()))
    return 0 if report.is_good(on_spark=judge is SparkRun) else 1


def _replay(console: Console, paths: list[Path], judge: type[wave.Run] | None) -> int:
    failed = False
    with _engine(console) as lines:
        for path in paths:
            for name, verdict in wave.run(lines.open, read(path), judge=judge).items():
                failed |= verdict.failed
                told = [verdict.status, verdict.mode, f"engine {verdict.engine}" if verdict.engine else ""]
                print(f"{path.name} {name}: {' '.join(filter(None, told))} round {verdict.round} {verdict.detail}")
                if verdict.reason:
                    print(f"    {verdict.reason}")
    return 1 if failed else 0


def _only(made: Wave, name: str | None) -> Wave:
    if name is None:
        return made
    case = replace(made.case, queries=tuple(q for q in made.case.queries if q[0] == name))
    return replace(made, case=case)


def _write(
    lines: Lines,
    made: Wave,
    name: str,
    verdict: wave.Verdict,
    out: Path,
    seconds: float,
    judge: type[wave.Run] | None = None,
) -> None:
    case = replace(made.case, queries=((name, made.trees[name].query.sql()),))
    if seconds:
        small = minimise(lambda c: wave.run(lines.open, c, judge=judge), made, name, verdict, seconds=seconds)
        case, verdict = small.case, small.verdict
    note = f"seed {made.seed} {name}: {verdict.status} in round {verdict.round} ({verdict.mode}): {verdict.detail}"
    out.mkdir(parents=True, exist_ok=True)
    text = script(case, note)
    (out / f"{verdict.status}-{made.seed}-{name}.sql").write_text(text)
    if seconds:
        print(text, flush=True)


class _engine:  # noqa: N801 - used as a context manager only
    """PostgreSQL and Spark for as long as the run takes."""

    def __init__(self, console: Console) -> None:
        self.console = console

    def __enter__(self) -> Lines:
        self.console.print("starting PostgreSQL and Spark")
        self.spark = SparkServer.start(Settings(spark_driver_memory_mb=2048))
        self.postgres = EmbeddedPostgres.create(durable=False, settings={"max_connections": "200"})
        self.postgres.__enter__()
        prepare_server(self.postgres)
        database = create_database(self.postgres, TEMPLATE)
        with psycopg.connect(database.dsn) as connection:
            install(connection)
        self.spark.wait_ready(180)
        self.engine = SparkEngine(lambda: self.spark.url)
        for _ in self.engine.warm_up(20):
            pass
        return Lines(self.postgres, TEMPLATE, self.engine)

    def __exit__(self, *_: object) -> None:
        self.engine.close()
        self.spark.stop()
        self.postgres.__exit__(None, None, None)


if __name__ == "__main__":
    sys.exit(main())
