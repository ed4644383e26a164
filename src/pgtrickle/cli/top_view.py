"""The screen of `pgtrickle top`: its content, and how keys change it. Uses no terminal and no database."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final, TypeAlias

from pgtrickle.cli import keyboard
from pgtrickle.cli.render import cell

if TYPE_CHECKING:
    from rich.console import Group

Row: TypeAlias = Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class TopColumn:
    """`largest_first`: the initial order of sorting. Unknown values are always last."""

    key: str
    title: str
    shown: Callable[[Row], str]
    largest_first: bool = True


def _seconds(row: Row) -> str:
    lag = row["lag"]
    return "-" if lag is None else f"{lag:.0f} s" if lag < 600 else f"{lag / 60:.0f} min"


def _status(row: Row) -> str:
    if row["rows_done"] and row["rows_estimated"]:
        return f"{row['status']} {100 * row['rows_done'] // row['rows_estimated']}%"
    return str(row["status"])


def _number(key: str) -> Callable[[Row], str]:
    return lambda row: "-" if row[key] is None else f"{row[key]:,.0f}"


COLUMNS: Final = (
    TopColumn("name", "stream table", lambda row: cell(row["name"]), largest_first=False),
    TopColumn("status", "status", _status, largest_first=False),
    TopColumn("mode", "mode", lambda row: cell(row["mode"]), largest_first=False),
    TopColumn("engine", "engine", lambda row: cell(row["engine"]), largest_first=False),
    TopColumn("lag", "lag", _seconds),
    TopColumn("ms", "last ms", _number("ms")),
    TopColumn("refreshes", "refr/min", _number("refreshes")),
    TopColumn("written", "rows/min", _number("written")),
)
_NUMBERS = frozenset({"lag", "ms", "refreshes", "written"})
HELP: Final = "q quit  s sort by next column  r reverse  / filter  ↑↓ select  Enter details  Esc back"
# Columns that a narrow terminal drops, in this order, so that names are complete; the column of the order stays.
LEAST_NEEDED: Final = ("engine", "refreshes", "mode", "written", "ms")
FRAME_LINES = 4  # lines besides the rows: title, head of the table, error, help


@dataclass(slots=True)
class TopView:
    """`detail`: the stream table whose details fill the screen, if any."""

    sorted_by: int = 4
    is_reversed: bool = False
    pattern: str = ""
    is_typing: bool = False
    selected: int = 0
    detail: str | None = None
    scrolled: int = 0
    is_done: bool = False

    def rows(self, rows: Sequence[Row]) -> list[Row]:
        """The rows that match the filter (name, status, mode or engine), sorted."""
        column = COLUMNS[self.sorted_by]
        matching = [row for row in rows if self.pattern.lower() in _searched(row)]
        matching.sort(key=lambda row: row["name"])
        known = [row for row in matching if row[column.key] is not None]
        known.sort(key=lambda row: row[column.key], reverse=column.largest_first != self.is_reversed)
        return known + [row for row in matching if row[column.key] is None]

    def press(self, key: str, rows: Sequence[Row], page: int) -> None:
        """`page`: rows that fit on the screen."""
        if self.is_typing:
            self._type(key)
        elif key == "q":
            self.is_done = True
        elif key in _MOVES:
            self._move(key, rows, page)
        elif self.detail is not None:
            if key in (keyboard.ESCAPE, keyboard.BACKSPACE, keyboard.ENTER):
                self.detail, self.scrolled = None, 0
        else:
            self._press_in_list(key, rows)

    def _press_in_list(self, key: str, rows: Sequence[Row]) -> None:
        if key == "s":
            self.sorted_by, self.is_reversed = (self.sorted_by + 1) % len(COLUMNS), False
        elif key == "r":
            self.is_reversed = not self.is_reversed
        elif key == "/":
            self.is_typing = True
        elif key == keyboard.ESCAPE:
            self.pattern = ""
        elif key == keyboard.ENTER and (matching := self.rows(rows)):
            self.detail = matching[min(self.selected, len(matching) - 1)]["name"]

    def _type(self, key: str) -> None:
        if key in (keyboard.ENTER, keyboard.ESCAPE):
            self.is_typing = False
            self.pattern = "" if key == keyboard.ESCAPE else self.pattern
        elif key == keyboard.BACKSPACE:
            self.pattern = self.pattern[:-1]
        elif len(key) == 1 and key.isprintable():
            self.pattern += key
        self.selected = 0

    def _move(self, key: str, rows: Sequence[Row], page: int) -> None:
        by = {keyboard.UP: -1, "k": -1, keyboard.DOWN: 1, "j": 1, keyboard.PAGE_UP: -page, keyboard.PAGE_DOWN: page}
        far = len(rows) + 1_000_000
        step = by.get(key, -far if key == keyboard.HOME else far)
        if self.detail is not None:
            self.scrolled = max(self.scrolled + step, 0)
        else:
            self.selected = min(max(self.selected + step, 0), max(len(self.rows(rows)) - 1, 0))


_MOVES = frozenset(
    {keyboard.UP, keyboard.DOWN, keyboard.PAGE_UP, keyboard.PAGE_DOWN, keyboard.HOME, keyboard.END, "j", "k"}
)


def _searched(row: Row) -> str:
    return " ".join(str(row[key] or "") for key in ("name", "status", "mode", "engine")).lower()


def page_of(height: int) -> int:
    return max(height - FRAME_LINES, 1)


def columns_that_fit(view: TopView, rows: Sequence[Row], width: int) -> list[TopColumn]:
    chosen = list(COLUMNS)

    def needed() -> int:
        return sum(max(len(c.title) + 1, *(len(c.shown(row)) for row in rows), 0) + 1 for c in chosen) - 1

    for key in LEAST_NEEDED:
        if needed() <= width:
            break
        chosen = [c for c in chosen if c.key != key or c is COLUMNS[view.sorted_by]]
    return chosen


def render_list(view: TopView, rows: Sequence[Row], title: str, height: int, width: int) -> Group:
    from rich.console import Group
    from rich.table import Table
    from rich.text import Text

    matching, page = view.rows(rows), page_of(height)
    selected = min(view.selected, max(len(matching) - 1, 0))
    first = max(0, min(selected - page // 2, len(matching) - page))
    table = Table(box=None, expand=True, pad_edge=False, padding=(0, 1, 0, 0))
    columns = columns_that_fit(view, matching[first : first + page], width)
    for i, column in enumerate(columns):
        is_down = column.largest_first != view.is_reversed
        mark = ("▼" if is_down else "▲") if column is COLUMNS[view.sorted_by] else ""
        is_number = column.key in _NUMBERS
        table.add_column(
            column.title + mark,
            no_wrap=True,
            overflow="ellipsis",
            justify="right" if is_number else "left",
            ratio=1 if i == 0 else None,
        )
    for i, row in enumerate(matching[first : first + page], first):
        style = "red" if row["status"] in ("ERROR", "SUSPENDED") else ""
        style += " reverse" if i == selected else ""
        table.add_row(*(Text(column.shown(row)) for column in columns), style=style.strip())
    error = cell(matching[selected]["error"]) if matching and matching[selected]["error"] else ""
    foot = f"/{view.pattern}_" if view.is_typing else f"filter: {view.pattern}  {HELP}" if view.pattern else HELP
    shown = f"{title}  {len(matching)} of {len(rows)} stream tables"
    lines = [_line(shown, "bold"), table, _line(" ".join(error.split()), "red"), _line(foot, "dim")]
    return Group(*lines)


def render_detail(view: TopView, lines: Sequence[str], height: int) -> Group:
    from rich.console import Group

    page = max(height - 1, 1)
    view.scrolled = min(view.scrolled, max(len(lines) - page, 0))
    shown = [_line(cell(line), "") for line in lines[view.scrolled : view.scrolled + page]]
    return Group(*shown, _line("Esc back  ↑↓ scroll  q quit", "dim"))


def _line(text: str, style: str) -> Any:
    from rich.text import Text

    return Text(text, style=style, no_wrap=True, overflow="ellipsis")
