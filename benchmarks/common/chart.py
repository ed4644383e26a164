"""Lines over time as SVG: what a browser shows needs no library."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from html import escape
from pathlib import Path

WIDTH, HEIGHT, MARGIN = 640, 200, 50
COLOURS = ("#1f77b4", "#d95f02", "#2ca02c", "#9467bd")


@dataclass(frozen=True, slots=True)
class Panel:
    """One picture: a line per name, from (seconds, value)."""

    title: str
    lines: Mapping[str, Sequence[tuple[float, float]]]
    top: float | None = None  # of the scale; None: the largest value


def draw(panels: Sequence[Panel], path: Path) -> None:
    height = len(panels) * (HEIGHT + 2 * MARGIN)
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{WIDTH + 3 * MARGIN}" height="{height}" '
        'font-family="sans-serif" font-size="12"><rect width="100%" height="100%" fill="white"/>'
    ]
    for number, panel in enumerate(panels):
        parts.append(f'<g transform="translate({MARGIN},{number * (HEIGHT + 2 * MARGIN) + MARGIN})">')
        parts += _panel(panel)
        parts.append("</g>")
    parts.append("</svg>\n")
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("\n".join(parts))


def _panel(panel: Panel) -> list[str]:
    points = [point for line in panel.lines.values() for point in line]
    right = max((x for x, _ in points), default=0) or 1.0
    top = panel.top or max((y for _, y in points), default=0) or 1.0
    parts = [f'<text y="-12" font-weight="bold">{escape(panel.title)}</text>']
    for share in (0, 0.25, 0.5, 0.75, 1):
        y = HEIGHT * (1 - share)
        parts.append(f'<line x2="{WIDTH}" y1="{y}" y2="{y}" stroke="#ddd"/>')
        parts.append(f'<text x="-8" y="{y + 4}" text-anchor="end">{top * share:g}</text>')
        x = WIDTH * share
        parts.append(f'<text x="{x}" y="{HEIGHT + 18}" text-anchor="middle">{right * share:.0f} s</text>')
    for colour, line in zip(COLOURS, panel.lines.values(), strict=False):
        dots = " ".join(f"{x / right * WIDTH:.1f},{HEIGHT * (1 - min(y / top, 1)):.1f}" for x, y in line)
        parts.append(f'<polyline points="{dots}" fill="none" stroke="{colour}" stroke-width="2"/>')
    for number, (colour, name) in enumerate(zip(COLOURS, panel.lines, strict=False)):
        parts.append(f'<text x="{WIDTH + 10}" y="{12 + 16 * number}" fill="{colour}">{escape(name)}</text>')
    return parts
