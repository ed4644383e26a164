"""Draws the time of a refresh by the share of changes, from the results of `engines.py --part curve`.

python benchmarks/engines_plot.py engines.jsonl docs/explain/engines.png [--scale 1]
"""

from __future__ import annotations

import argparse
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from common.engine_bars import WAYS
from common.results import Results
from matplotlib.figure import Figure

WIDTH, HEIGHT, DPI = 4.2, 3.8, 120  # inches of a panel, dots per inch
LABELS = {
    "differential postgres": ("DIFFERENTIAL, PostgreSQL", "tab:blue", "-"),
    "full postgres": ("FULL, PostgreSQL", "tab:blue", "--"),
    "differential spark": ("DIFFERENTIAL, Spark", "tab:orange", "-"),
    "full spark": ("FULL, Spark", "tab:orange", "--"),
}


def points(query: Mapping[str, Any], way: str) -> list[tuple[float, float]]:
    """(Share of changes in per cent, seconds), where the refresh was done in this way."""
    shares = {share: ways for share, ways in query.items() if isinstance(ways, Mapping)}
    return sorted((float(s) * 100, w[way]["ms"] / 1000) for s, w in shares.items() if "ms" in w.get(way, {}))


def draw(queries: Mapping[str, Mapping[str, Any]], scale: float, path: Path) -> None:
    figure = Figure(figsize=(WIDTH * len(queries), HEIGHT), dpi=DPI, layout="constrained")
    first = None
    for number, (name, query) in enumerate(sorted(queries.items()), start=1):
        axes = figure.add_subplot(1, len(queries), number, sharey=first)
        first = first or axes
        for way in WAYS:
            if found := points(query, way):
                label, color, style = LABELS[way]
                axes.plot(*zip(*found, strict=True), style, color=color, marker="o", markersize=3, label=label)
        axes.set_xscale("log")
        axes.set_yscale("log")
        axes.set_title(f"TPC-H {name}, scale {scale:g}", fontsize="medium")
        axes.set_xlabel("changed rows, % of orders and lineitem")
        axes.grid(visible=True, which="both", alpha=0.25)
        if number == 1:
            axes.set_ylabel("seconds")
            axes.legend(fontsize="x-small")
    path.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(path)


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("results", type=Path)
    parser.add_argument("picture", type=Path)
    parser.add_argument("--scale", type=float, default=1.0)
    options = parser.parse_args()
    found = Results(options.results).of("curve", options.scale)
    if not found:
        raise SystemExit(f"{options.results} has no curve at scale {options.scale:g}")
    draw(found, options.scale, options.picture)


if __name__ == "__main__":
    main()
