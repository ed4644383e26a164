"""Charts as SVG, drawn on the server: no script, and colours from the style sheet. Pure."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

WIDTH, HEIGHT = 640.0, 150.0
LEFT, RIGHT, TOP, BOTTOM = 52.0, 8.0, 10.0, 22.0


@dataclass(frozen=True, slots=True)
class Series:
    """Points (x, y) with the CSS class of their colour; `fill`: the area below it is filled."""

    points: Sequence[tuple[float, float]]
    colour: str
    fill: bool = False


@dataclass(frozen=True, slots=True)
class Bar:
    x: float
    height: float
    colour: str
    title: str


@dataclass(frozen=True, slots=True)
class Axis:
    """A tick: position in the picture and its label."""

    at: float
    label: str


@dataclass(frozen=True, slots=True)
class Chart:
    """Paths and rectangles in the coordinates of the picture; a template writes them."""

    lines: tuple[tuple[str, str], ...]  # path, class
    areas: tuple[tuple[str, str], ...]
    bars: tuple[tuple[float, float, float, float, str, str], ...]  # x, y, width, height, class, title
    x_axis: tuple[Axis, ...]
    y_axis: tuple[Axis, ...]
    width: float = WIDTH
    height: float = HEIGHT
    left: float = LEFT
    right: float = WIDTH - RIGHT


def steps(top: float) -> tuple[float, float]:
    """A round upper end and a round step for an axis from 0."""
    if top <= 0:
        return 1.0, 0.5
    size = 1.0
    while size * 10 <= top:
        size *= 10
    while size > top:
        size /= 10
    step = next(m * size for m in (0.25, 0.5, 1.0, 2.0, 2.5, 5.0, 10.0) if top / (m * size) <= 4)
    count = int(top / step) + (0 if top == int(top / step) * step else 1)
    return step * max(count, 1), step


def chart(
    series: Sequence[Series],
    bars: Sequence[Bar] = (),
    *,
    x_label: Callable[[float], str],
    y_label: Callable[[float], str],
) -> Chart | None:
    """None: there is nothing to draw."""
    xs = [x for s in series for x, _ in s.points] + [bar.x for bar in bars]
    ys = [y for s in series for _, y in s.points] + [bar.height for bar in bars]
    if not xs:
        return None
    first, last = min(xs), max(xs)
    if last <= first:
        first, last = first - 1, last + 1
    top, step = steps(max(ys))

    def px(x: float) -> float:
        return round(LEFT + (x - first) / (last - first) * (WIDTH - LEFT - RIGHT), 1)

    def py(y: float) -> float:
        return round(HEIGHT - BOTTOM - y / top * (HEIGHT - TOP - BOTTOM), 1)

    lines, areas = [], []
    for s in series:
        if not s.points:
            continue
        path = "M" + " L".join(f"{px(x)},{py(y)}" for x, y in s.points)
        lines.append((path, s.colour))
        if s.fill:
            ends = f" L{px(s.points[-1][0])},{py(0)} L{px(s.points[0][0])},{py(0)} Z"
            areas.append((path + ends, s.colour))
    width = max(1.5, min(10.0, (WIDTH - LEFT - RIGHT) / max(len(bars), 1) * 0.7))
    drawn = [
        (px(b.x) - width / 2, py(b.height), width, round(py(0) - py(b.height), 1), b.colour, b.title) for b in bars
    ]
    return Chart(
        tuple(lines),
        tuple(areas),
        tuple(drawn),
        tuple(Axis(px(x), x_label(x)) for x in (first, (first + last) / 2, last)),
        tuple(Axis(py(i * step), y_label(i * step)) for i in range(round(top / step) + 1)),
    )
