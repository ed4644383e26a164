"""The layout of the graph, charts, and how values are written."""

from __future__ import annotations

import random
from itertools import pairwise

import pytest

from pgtrickle.observe.state import FleetState, Sample
from pgtrickle.web import charts
from pgtrickle.web.charts import Bar, Series, chart, steps
from pgtrickle.web.graph import THICKEST, THINNEST, stroke
from pgtrickle.web.layout import BAND_HEAD, HEIGHT, ROW, WIDTH, layered, without_cycles
from pgtrickle.web.listen import parse_address
from pgtrickle.web.live import parts_of
from pgtrickle.web.render import path, since, size, to_json
from pgtrickle.web.security import is_own_host
from pgtrickle.web.worker_charts import queue_chart, worker_chart


def test_readers_are_to_the_right_of_what_they_read_and_nothing_overlaps() -> None:
    rng = random.Random(5)
    nodes = {str(n): f"db{n % 3}" for n in range(200)}
    edges = [(str(a), str(b)) for a in range(200) for b in rng.sample(range(200), 2) if a < b]
    found = layered(nodes, edges)
    for a, b in edges:
        assert found.positions[a][0] + WIDTH < found.positions[b][0]
    places = sorted(found.positions.values())
    assert len(set(places)) == len(nodes)
    for (x1, y1), (x2, y2) in pairwise(places):
        assert x1 != x2 or y2 - y1 > HEIGHT
    assert [band.group for band in found.bands] == ["db0", "db1", "db2"]
    for node, (x, y) in found.positions.items():
        band = next(b for b in found.bands if b.group == nodes[node])
        assert band.y <= y <= band.y + band.height
        assert x + WIDTH <= found.width


def test_long_edges_have_a_place_of_their_own_in_the_columns_that_they_cross() -> None:
    nodes = dict.fromkeys("abcd", "db")
    found = layered(nodes, [("a", "b"), ("b", "c"), ("c", "d"), ("a", "d")])
    assert list(found.bends) == [("a", "d")]
    assert len(found.bends["a", "d"]) == 2
    assert not set(found.bends["a", "d"]) & set(found.positions.values())


def test_long_edges_from_one_node_share_their_places() -> None:
    """`h` is read by all others: one place in each column, however many edges cross it."""
    names = "habcdef"
    edges = [*pairwise(names), *(("h", name) for name in "bcdef")]
    found = layered(dict.fromkeys(names, "db"), edges)
    by_column = {place for bends in found.bends.values() for place in bends}
    assert len(by_column) == len({x for x, _ in by_column}) == 5
    assert found.bands[0].height < BAND_HEAD + 3 * ROW


def test_nodes_are_beside_what_they_read() -> None:
    """Ten chains: each is straight, although the columns are of different length."""
    edges = [(f"{n}.{level}", f"{n}.{level + 1}") for n in range(10) for level in range(1 + n % 3)]
    found = layered(dict.fromkeys((node for edge in edges for node in edge), "db"), edges)
    for a, b in edges:
        assert found.positions[a][1] == pytest.approx(found.positions[b][1])


def test_cycles_are_drawn_too() -> None:
    edges = [("a", "b"), ("b", "c"), ("c", "a"), ("c", "d"), ("d", "d")]
    assert set(without_cycles("abcd", edges)) == {("a", "b"), ("b", "c"), ("c", "d")}
    found = layered(dict.fromkeys("abcd", "db"), edges)
    assert len(set(found.positions.values())) == 4


def test_a_long_chain_needs_no_recursion() -> None:
    nodes = {str(n): "db" for n in range(3000)}
    found = layered(nodes, [(str(n), str(n + 1)) for n in range(2999)])
    assert found.positions["2999"][0] > found.positions["0"][0]


def test_an_empty_graph_has_a_size() -> None:
    assert layered({}, []).width > 0


@pytest.mark.parametrize("top", [0.0, 0.003, 0.7, 1, 3, 7.5, 9.99, 10, 99, 12345.6])
def test_axes_end_at_a_round_number_above_the_values(top: float) -> None:
    end, step = steps(top)
    assert end >= top
    assert 1 <= round(end / step) <= 5


def test_charts_stay_inside_their_picture() -> None:
    found = chart([Series([(0, 1), (10, 5)], "c")], [Bar(5, 3, "c", "t")], x_label=str, y_label=str)
    assert found is not None
    for x, y, width, height, _, _ in found.bars:
        assert found.left <= x + width
        assert 0 <= y <= charts.HEIGHT - charts.BOTTOM
        assert y + height <= charts.HEIGHT - charts.BOTTOM + 0.11
    assert chart([], [], x_label=str, y_label=str) is None
    one = chart([Series([(1, 0)], "c")], x_label=str, y_label=str)
    assert one is not None
    assert "nan" not in str(one)


def test_values_are_written_for_people() -> None:
    assert [since(s) for s in (None, 0, 0.02, 3.21, 45, 61, 3600, 90_061)] == [
        "\N{EN DASH}", "0 s", "20 ms", "3.2 s", "45 s", "1 min 1 s", "1 h", "1 d 1 h",
    ]  # fmt: skip
    assert [size(b) for b in (0, 999, 1500, 2_000_000)] == ["0 B", "999 B", "1.5 kB", "2.0 MB"]
    assert path("tables", "a/b", "..", "x y?") == "/tables/a%2Fb/%2E%2E/x%20y%3F"
    assert to_json({"a": float("nan"), "b": (1, "<")}) == '{"a": null, "b": [1, "<"]}'


def test_live_parts_are_found_by_id() -> None:
    html = '<section class="x" id="a" data-live><b>1</b></section><p id="c">no</p><tr id="b" data-live><td>2</td></tr>'
    assert set(parts_of(html)) == {"a", "b"}


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("127.0.0.1:80", ("127.0.0.1", 80)),
        (":0", ("127.0.0.1", 0)),
        ("[::1]:8", ("::1", 8)),
        ("::1", ("::1", 8321)),
        ("localhost", ("localhost", 8321)),
    ],
)
def test_addresses(text: str, found: tuple[str, int]) -> None:
    assert parse_address(text) == found


def test_hosts_of_this_machine() -> None:
    assert all(map(is_own_host, ("localhost:8", "127.0.0.1", "127.9.9.9:1", "[::1]:8")))
    assert not any(map(is_own_host, ("", "x", "127.0.0.1.x", "[::2]", "localhost.x", "10.0.0.1")))


def test_links_are_the_wider_the_more_changes_there_are() -> None:
    rates = [0, 0.5, 1, 10, 100, 1000]
    widths = [stroke(rate) for rate in rates]
    assert widths[0] == THINNEST
    assert widths == sorted(set(widths))
    assert stroke(9) == THINNEST + 1.5
    assert stroke(1e9) == THICKEST > widths[-1]


def test_charts_of_workers_have_a_line_for_each_number() -> None:
    fleet = FleetState(60.0, samples=(Sample(0.0, 1, 8, 6, 0), Sample(60.0, 4, 8, 2, 0)))
    workers, queue = worker_chart(fleet), queue_chart(fleet)
    assert workers is not None
    assert queue is not None
    assert {colour: path for path, colour in workers.lines} == {
        "c-muted": "M52.0,10.0 L632.0,10.0",  # all of them
        "c-accent": "M52.0,113.2 L632.0,69.0",  # those that are busy
    }
    assert [tick.label for tick in workers.y_axis] == ["0", "2", "4", "6", "8"]
    assert [tick.label for tick in workers.x_axis] == ["00:00:00", "00:00:30", "00:01:00"]
    assert [colour for _, colour in queue.lines] == ["c-lagging"]
    assert worker_chart(FleetState(0.0, samples=fleet.samples[:1])) is None
