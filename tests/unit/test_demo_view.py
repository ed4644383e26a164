"""The output of the demo."""

from __future__ import annotations

from io import StringIO

from rich.console import Console

from pgtrickle.demo.view import TableState, lines, live

STATES = [
    TableState("open_orders", "ACTIVE", True, None, 5022, 1.1, 11, 90, "DIFFERENTIAL", "postgres", 28.6),
    TableState("bought_together", "ACTIVE", True, None, 310, 4.2, 3, 40, "FULL", "spark", 950.0),
    TableState("new", "INITIALIZING", False, None, 0, None, 0, 0, None, None, None),
]


def test_lines_show_the_engine_of_the_latest_refresh() -> None:
    shown = [" ".join(line.split()) for line in lines(STATES, {"open_orders": 3.0})]
    assert shown == [
        "open_orders 5022 rows DIFFERENTIAL postgres 29 ms 11 refreshes 3.0 changes/s lag 1.1 s",
        "bought_together 310 rows FULL spark 950 ms 3 refreshes 0.0 changes/s lag 4.2 s",
        "new 0 rows INITIALIZING - - ms 0 refreshes 0.0 changes/s not loaded",
    ]


def test_live_table_has_an_engine_column() -> None:
    console = Console(width=140, file=StringIO())
    with console.capture() as captured:
        console.print(live(STATES, {}, "head", "foot"))
    text = captured.get()
    rows = [[cell.strip() for cell in line.replace("┃", "│").split("│")] for line in text.splitlines()]
    (head,) = [row for row in rows if "stream table" in row]
    (spark,) = [row for row in rows if "bought_together" in row]
    assert spark[head.index("engine")] == "spark"
