"""Compares ratios of the quick benchmarks with benchmarks/baseline.json; exit status 1 if one has become worse.

Every figure is a ratio of two measurements of one run, so that the baseline of one machine serves another one. A figure
that is worse than its baseline by more than its tolerance is measured once more, and the better one counts.

    .venv/bin/python scripts/bench_gate.py            # compare
    .venv/bin/python scripts/bench_gate.py --update   # write the baseline
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from benchmark_output import ROOT, run_benchmark

BASELINE = ROOT / "benchmarks" / "baseline.json"


@dataclass(frozen=True, slots=True)
class Figure:
    """`part / whole`, or `part` alone if it is a ratio. `tolerance`: by which factor it may become worse."""

    name: str
    part: str
    tolerance: float
    whole: str = ""
    is_better_high: bool = False

    def value(self, numbers: Mapping[str, float]) -> float:
        return round(numbers[self.part] / (numbers[self.whole] if self.whole else 1.0), 3)

    def better(self, one: float, other: float) -> float:
        return max(one, other) if self.is_better_high else min(one, other)

    def worse_by(self, value: float, baseline: float) -> float:
        return baseline / value if self.is_better_high else value / baseline


@dataclass(frozen=True, slots=True)
class Gate:
    """A benchmark, the arguments of its quick run, and its figures."""

    benchmark: str
    arguments: tuple[str, ...]
    figures: tuple[Figure, ...]


GATES = (
    Gate(
        "latency",
        (),
        tuple(
            figure
            for query in ("aggregate", "join_aggregate")
            for figure in (Figure(f"{query}: refresh per trivial Spark job", f"{query}/ratio", 1.4),)
        ),
    ),
    Gate("proportional", (), (Figure("2,000,000 rows per 20,000", "ratio", 1.25),)),
    Gate(
        "tick",
        ("--sizes", "1000", "10000", "--databases", "2", "--ticks", "100"),
        (
            Figure("quiet tick per unit of Python", "one_database/1000/quiet_cpu_ms", 1.5, "python_unit_ms"),
            Figure("waiting tick per unit of Python", "one_database/1000/waiting_cpu_ms", 1.5, "python_unit_ms"),
            Figure("quiet tick of 10,000 per 1,000", "growth/quiet", 1.5),
        ),
    ),
    Gate(
        "loads",
        ("--engine", "postgres"),
        tuple(
            Figure(f"{query} per CREATE TABLE AS", f"postgres/{query}/first/times", 1.35)
            for query in ("projection", "join", "groups")
        ),
    ),
    Gate(
        "columns",
        (),
        (
            *(
                Figure(f"identity of {width} columns per hash of the text", f"identity/{width}/values_per_text", 1.5)
                for width in (5, 50, 300)
            ),
            Figure("identity per column, 300 per 50", "per_column_300_per_50", 1.4),
            Figure("refresh of 5 of 300 columns per 5 of 5", "used/refresh_ratio", 1.18),
        ),
    ),
    Gate(
        "capture",
        (),
        (
            Figure("statement of 100,000 rows per uncaptured", "bulk_ratio/insert/statement", 1.3),
            Figure(
                "transactions per second per uncaptured",
                "single_row_share_unflushed/insert/statement",
                1.3,
                is_better_high=True,
            ),
        ),
    ),
)


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("benchmarks", nargs="*", metavar="benchmark", help="all, if none is named")
    parser.add_argument("--update", action="store_true", help="write the baseline instead of comparing with it")
    parser.add_argument("--baseline", type=Path, default=BASELINE)
    given = parser.parse_intermixed_args(arguments)
    unknown = set(given.benchmarks) - {gate.benchmark for gate in GATES}
    if unknown:
        parser.error(
            f"no such benchmark: {', '.join(sorted(unknown))} (known: {', '.join(g.benchmark for g in GATES)})"
        )
    gates = [gate for gate in GATES if not given.benchmarks or gate.benchmark in given.benchmarks]
    baseline: dict[str, dict[str, float]] = json.loads(given.baseline.read_text()) if given.baseline.exists() else {}
    if given.update:
        baseline |= {gate.benchmark: measure(gate) for gate in gates}
        given.baseline.write_text(json.dumps(baseline, indent=2, sort_keys=True) + "\n")
        print(f"{given.baseline} is written")
        return 0
    missing = [gate.benchmark for gate in gates if gate.benchmark not in baseline]
    if missing:
        parser.error(f"{given.baseline} has no {', '.join(missing)}; write it with --update")
    results = [compare(gate, baseline[gate.benchmark]) for gate in gates]  # all are told
    return 0 if all(results) else 1


def measure(gate: Gate, run: Callable[[str, Sequence[str]], Mapping[str, float]] | None = None) -> dict[str, float]:
    numbers = (run or run_benchmark)(gate.benchmark, gate.arguments)
    return {figure.name: figure.value(numbers) for figure in gate.figures}


def compare(
    gate: Gate,
    baseline: Mapping[str, float],
    run: Callable[[str, Sequence[str]], Mapping[str, float]] | None = None,
) -> bool:
    """Whether no figure is worse than its tolerance allows."""
    best = measure(gate, run)
    if any(is_worse(figure, best, baseline) for figure in gate.figures):
        again = measure(gate, run)
        best = {figure.name: figure.better(best[figure.name], again[figure.name]) for figure in gate.figures}
    for figure in gate.figures:
        said = f"WORSE than {figure.tolerance} x" if is_worse(figure, best, baseline) else "ok"
        value, before = best[figure.name], baseline.get(figure.name)
        print(f"{gate.benchmark}: {figure.name}: {value} (baseline {before}): {said}", flush=True)
    return not any(is_worse(figure, best, baseline) for figure in gate.figures)


def is_worse(figure: Figure, values: Mapping[str, float], baseline: Mapping[str, float]) -> bool:
    """A figure without a baseline is worse: a new one has to be measured before it can be compared."""
    before = baseline.get(figure.name)
    return before is None or figure.worse_by(values[figure.name], before) > figure.tolerance


if __name__ == "__main__":
    sys.exit(main())
