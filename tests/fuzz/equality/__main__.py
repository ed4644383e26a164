"""`make fuzz-types N=3000 [SEED=..]`: random queries over types with their own equality, as their authors see them."""

from __future__ import annotations

import argparse
import logging
import sys
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import cast

from pgtrickle.pipeline.engine.spark import SparkEngine
from pgtrickle.servers.embedded_postgres import EmbeddedPostgres
from pgtrickle.servers.spark_server import SparkServer
from pgtrickle.settings import Settings
from tests.conftest import prepare_server
from tests.fuzz.case import alone
from tests.fuzz.equality import wave
from tests.fuzz.equality.case import QUERIES, TypesCase, generate, only, read, script
from tests.fuzz.equality.minimise import smallest
from tests.fuzz.equality.server import TypesServer
from tests.fuzz.report import Report

SETTINGS = {"max_connections": "200", "jit": "off"}  # compiling takes longer than all else here


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.fuzz.equality", description=__doc__)
    parser.add_argument("-n", type=int, default=1000, help="how many queries")
    parser.add_argument("--seed", type=int, default=1, help=f"the first seed; each stands for {QUERIES} queries")
    parser.add_argument("--only", help="only this query of the seed, for example q7")
    parser.add_argument("--out", type=Path, default=Path("/tmp/fuzz-types-failures"), help="where failing cases go")
    parser.add_argument("--minimise", type=float, default=45.0, help="seconds for each failure; 0 writes it as it is")
    parser.add_argument("--each", type=int, default=3, help="how many failures of one cause are made smaller")
    parser.add_argument("--replay", type=Path, nargs="+", help="run these scripts instead and tell how they fare")
    parser.add_argument("--home", type=Path, help="another PostgreSQL (bin, lib, share); one with ICU has collations")
    parser.add_argument("--show", action="store_true", help="print the generated SQL and end")
    options = parser.parse_args()
    seeds = range(options.seed, options.seed + -(-options.n // QUERIES))
    if options.show:
        for seed in seeds:
            case = generate(seed, frozenset({"vector"})).types_case
            print(script(only(case, options.only) if options.only else case, f"seed {seed}"))
        return 0
    logging.getLogger("pgtrickle").setLevel(logging.CRITICAL)
    with _server(options.home) as server:
        print(f"this server has {', '.join(sorted(server.features)) or 'nothing special'}", flush=True)
        if options.replay:
            return _replay(server, options.replay)
        return _run(server, seeds, options)


def _run(server: TypesServer, seeds: range, options: argparse.Namespace) -> int:
    report, causes, begun = Report(), Counter[str](), time.monotonic()
    for seed in seeds:
        made = server.wave(seed)
        case = only(made.types_case, options.only) if options.only else made.types_case
        verdicts = wave.run(server, case)
        if not options.only:
            # By itself: what the others need can hide what it lacks.
            lone, by_itself = alone(made)
            if not verdicts[lone].failed:
                verdicts[lone] = wave.run(server, cast("TypesCase", by_itself))[lone]
        report.add(seed, verdicts)
        for name, verdict in verdicts.items():
            if not verdict.failed:
                continue
            cause = f"{verdict.mode} {verdict.cause()[:90]} {'as in no table' in verdict.detail}"
            causes[cause] += 1
            print(f"seed {seed} {name}: {verdict.status} {verdict.detail[:300]}", flush=True)
            small, said = only(made.types_case, name), verdict
            seconds = options.minimise if causes[cause] <= options.each else 0.0
            if seconds:
                small, said = smallest(lambda c: wave.run(server, c), made, name, verdict, seconds=seconds)
            note = f"seed {seed} {name}: {said.status} in round {said.round} ({said.mode}): {said.detail}"
            options.out.mkdir(parents=True, exist_ok=True)
            (options.out / f"{said.status}-{seed}-{name}.sql").write_text(script(small, note))
            if seconds:
                print(script(small, note), flush=True)
        rate = report.queries / (time.monotonic() - begun)
        told = f"{report.share:.0%} differential, {len(report.failures)} failed, {rate:.1f}/s"
        print(f"{report.queries} queries (seed {seed}), {told}", flush=True)
    print("\n".join(report.lines()))
    return 1 if report.failures or report.rejected_share > 0.02 else 0


def _replay(server: TypesServer, paths: list[Path]) -> int:
    failed = False
    for path in paths:
        for name, verdict in wave.run(server, read(path)).items():
            failed |= verdict.failed
            print(f"{path.name} {name}: {verdict.status} {verdict.mode} round {verdict.round} {verdict.detail}")
            if verdict.reason:
                print(f"    {verdict.reason}")
    return 1 if failed else 0


@contextmanager
def _server(home: Path | None) -> Iterator[TypesServer]:
    spark = SparkServer.start(Settings(spark_driver_memory_mb=1536))
    try:
        with EmbeddedPostgres.create(durable=False, settings=SETTINGS, home=home) as postgres:
            prepare_server(postgres)
            spark.wait_ready(180)
            engine = SparkEngine(lambda: spark.url)
            for _ in engine.warm_up(20):
                pass
            try:
                yield TypesServer(postgres, engine)
            finally:
                engine.close()
    finally:
        spark.stop()


if __name__ == "__main__":
    sys.exit(main())
