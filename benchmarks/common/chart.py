"""Lines over time as PNG."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from matplotlib.figure import Figure

WIDTH, HEIGHT, DPI = 8.0, 2.8, 110  # inches of a panel, dots per inch


@dataclass(frozen=True, slots=True)
class Panel:
    """One picture: a line per name, from (seconds, value)."""

    title: str
    lines: Mapping[str, Sequence[tuple[float, float]]]
    top: float | None = None  # of the scale; None: the largest value


def draw(panels: Sequence[Panel], path: Path) -> None:
    figure = Figure(figsize=(WIDTH, HEIGHT * len(panels)), dpi=DPI, layout="constrained")
    for number, panel in enumerate(panels, start=1):
        axes = figure.add_subplot(len(panels), 1, number)
        for name, points in panel.lines.items():
            axes.plot([x for x, _ in points], [y for _, y in points], label=name)
        axes.set_title(panel.title, loc="left", fontsize="medium")
        axes.set_xlabel("seconds")
        axes.set_xlim(left=0)
        axes.set_ylim(0, panel.top)
        axes.grid(visible=True, alpha=0.3)
        axes.legend(loc="center left", bbox_to_anchor=(1.0, 0.5))
    path.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(path)
