"""Compares the quick benchmarks of this checkout with those of an earlier commit, in one run.

Both checkouts are measured alternately, so that both see the same machine. The ratio of the medians (new / old, by
time: above 1 is slower) is printed for each figure; the exit status is 1 if one of them is above --most.

    .venv/bin/python scripts/compare_benchmarks.py 1da9332 --rounds 3 latency waves
"""

from __future__ import annotations

import argparse
import json
import re
import statistics
import subprocess
import sys
import tempfile
from pathlib import Path

from benchmark_output import ROOT, run_benchmark

# Arguments of a quick run; figures by a pattern of their path in the last line of output; whether more is better.
BENCHMARKS: dict[str, tuple[list[str], str, bool]] = {
    "latency": ([], r"\w+/p50_ms", False),
    "waves": (["--share", "0.15", "--rounds", "2"], r"[ab]/tables_per_second", True),
    "tick": (["--sizes", "1000", "10000", "--ticks", "100"], r"one_database/\d+/(waiting|quiet)_cpu_ms", False),
    "idle": (["--databases", "4", "--seconds", "30"], r"cpu/percent", False),
    "broker": (["--small", "--ticks", "20"], r"10x5/with/(statements|tick_cpu_ms)", False),
    "freshness": (["--probes", "60"], r"(idle|under_load)/\w+/p50_ms", False),
}


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("old", help="a commit")
    parser.add_argument("benchmarks", nargs="*", default=list(BENCHMARKS), metavar="benchmark")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--most", type=float, default=1.1)
    given = parser.parse_intermixed_args()
    unknown = set(given.benchmarks) - set(BENCHMARKS)
    if unknown:
        parser.error(f"no such benchmark: {', '.join(sorted(unknown))} (known: {', '.join(BENCHMARKS)})")
    with tempfile.TemporaryDirectory(prefix="pgtrickle-old-") as folder:
        old = Path(folder) / "checkout"
        _git("worktree", "add", "--detach", str(old), given.old)
        try:
            ratios = {name: _compare(name, old, given.rounds) for name in given.benchmarks}
        finally:
            _git("worktree", "remove", "--force", str(old))
    worst = max(ratio for found in ratios.values() for ratio in found.values())
    print(json.dumps({"old": given.old, "rounds": given.rounds, "ok": worst <= given.most, "ratios": ratios}))
    return 0 if worst <= given.most else 1


def _compare(name: str, old: Path, rounds: int) -> dict[str, float]:
    found: dict[Path, list[dict[str, float]]] = {old: [], ROOT: []}
    for number in range(rounds):
        for checkout in (old, ROOT) if number % 2 else (ROOT, old):
            found[checkout].append(_measure(name, checkout))
    ratios = {}
    for figure in found[ROOT][0]:
        new_value, old_value = (statistics.median(one[figure] for one in found[c]) for c in (ROOT, old))
        is_rate = BENCHMARKS[name][2]
        ratios[figure] = round(old_value / new_value if is_rate else new_value / old_value, 3)
        print(f"{name} {figure}: old {old_value:.2f}, new {new_value:.2f}, ratio {ratios[figure]}", flush=True)
    return ratios


def _measure(name: str, checkout: Path) -> dict[str, float]:
    arguments, pattern, _ = BENCHMARKS[name]
    figures = run_benchmark(name, arguments, checkout)
    found = {path: value for path, value in figures.items() if re.fullmatch(pattern, path)}
    print(f"{name} {'new' if checkout == ROOT else 'old'}: {found}", flush=True)
    return found


def _git(*arguments: str) -> None:
    subprocess.run(["git", "-C", str(ROOT), *arguments], check=True, capture_output=True)


if __name__ == "__main__":
    sys.exit(main())
