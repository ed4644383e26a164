"""Cuts and windows, against the definition of visibility."""

from __future__ import annotations

import itertools
import re
from decimal import Decimal
from functools import cache
from types import CodeType

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pgtrickle.model.flow import Cut, Delta, ExtremeDelta, Frontier, Position, SumDelta, Timings, Window


@st.composite
def cuts(draw: st.DrawFn, low: int = 1, high: int = 40) -> Cut:
    xmax = draw(st.integers(low, high))
    running = draw(st.sets(st.integers(low, xmax - 1), max_size=6)) if xmax > low else set()
    return Cut(min(running, default=xmax), xmax, tuple(sorted(running)))


@st.composite
def histories(draw: st.DrawFn) -> tuple[Cut, Cut]:
    """Two snapshots of one server: of what started before the earlier one, the later has open only what that had."""
    first = draw(cuts())
    xmax = draw(st.integers(first.xmax, 50))
    still = draw(st.sets(st.sampled_from(first.open_xids))) if first.open_xids else set()
    later = draw(st.sets(st.integers(first.xmax, xmax - 1), max_size=6)) if xmax > first.xmax else set()
    running = still | later
    return first, Cut(min(running, default=xmax), xmax, tuple(sorted(running)))


def visible(xid: int, snapshot: str) -> bool:
    """pg_visible_in_snapshot, by its definition."""
    xmin, xmax, running = snapshot.split(":")
    if xid < int(xmin):
        return True
    return xid < int(xmax) and str(xid) not in running.split(",")


def holds(predicate: str, xid: int) -> bool:
    """The SQL of a predicate, evaluated in Python."""
    return bool(eval(_in_python(predicate), {"x": xid}))


@cache
def _in_python(predicate: str) -> CodeType:
    python = re.sub(r"= ANY \('\{([\d,]*)\}'::xid8\[\]\)", r"in [\1]", predicate)
    python = re.sub(r"<> ALL \('\{([\d,]*)\}'::xid8\[\]\)", r"not in [\1]", python)
    python = re.sub(r"'(\d+)'::xid8", r"\1", python)
    python = python.replace(" AND ", " and ").replace(" OR ", " or ")
    return compile(python, predicate, "eval")


@settings(max_examples=500)
@given(histories())
def test_window_is_what_became_visible(history: tuple[Cut, Cut]) -> None:
    since, upto = history
    window = Window(since, upto)
    predicate = window.predicate("x")
    filled = window.parameterised("x")
    for number, value in enumerate(window.parameters(), start=1):
        filled = filled.replace(f"${number}", f"'{value}'")
    for xid in range(1, 55):
        became = visible(xid, str(upto)) and not visible(xid, str(since))
        assert holds(predicate, xid) == holds(filled, xid) == became, (xid, since, upto)


@given(cuts(), st.integers(0, 20))
def test_cut_with_an_own_transaction_sees_it_and_nothing_else_more(cut: Cut, later: int) -> None:
    own = cut.xmax + later
    extended = cut.with_own(own)
    for xid in range(1, own + 5):
        assert extended.sees(xid) == (cut.sees(xid) or xid == own)
        assert visible(xid, str(extended)) == extended.sees(xid)


@settings(max_examples=200)
@given(st.data())
def test_every_transaction_falls_in_exactly_one_window(data: st.DataObject) -> None:
    chain = [data.draw(cuts(high=10))]
    for _ in range(4):
        last = chain[-1]
        xmax = data.draw(st.integers(last.xmax, last.xmax + 10))
        still = data.draw(st.sets(st.sampled_from(last.open_xids))) if last.open_xids else set()
        later = data.draw(st.sets(st.integers(last.xmax, xmax - 1), max_size=4)) if xmax > last.xmax else set()
        running = still | later
        chain.append(Cut(min(running, default=xmax), xmax, tuple(sorted(running))))
    windows = [Window(a, b).predicate("x") for a, b in itertools.pairwise(chain)]
    for xid in range(1, 60):
        times = sum(holds(w, xid) for w in windows)
        assert times == (chain[-1].sees(xid) and not chain[0].sees(xid))


@given(cuts())
def test_cut_reads_what_it_prints_and_sees_what_postgresql_sees(cut: Cut) -> None:
    assert Cut.parse(str(cut)) == cut
    assert all(cut.sees(xid) == visible(xid, str(cut)) for xid in range(1, 45))


@given(histories())
def test_earlier_cut_precedes_the_later_one(history: tuple[Cut, Cut]) -> None:
    assert history[0].precedes(history[1])


def test_cut_of_a_restored_server_does_not_precede() -> None:
    assert not Cut(100, 110, ()).precedes(Cut(90, 95, ()))
    assert not Cut(100, 110, ()).precedes(Cut(100, 105, ()))
    # between the same bounds: what was open there and is not here has ended meanwhile, never the other way round
    assert Cut(5, 10, (5, 7)).precedes(Cut(5, 10, (5,)))
    assert not Cut(5, 10, (5,)).precedes(Cut(5, 10, (5, 7)))


@given(histories(), st.integers(1, 60))
def test_a_cut_precedes_what_sees_all_that_it_sees(history: tuple[Cut, Cut], xid: int) -> None:
    first, second = history
    assert first.precedes(second)
    assert second.sees(xid) or not first.sees(xid)
    assert second.precedes(first) == (str(first) == str(second))


def test_predicate_names_the_open_transactions_only_when_there_are_some() -> None:
    assert "ANY" not in Window(Cut(5, 5, ()), Cut(9, 9, ())).predicate()
    assert "xid = ANY ('{3,4}'::xid8[])" in Window(Cut(3, 5, (3, 4)), Cut(9, 9, ())).predicate()


def test_frontier_survives_the_catalog() -> None:
    frontier = Frontier({"1/2": Cut(3, 5, (4,))})
    assert Frontier.cut_at(frontier.to_json(), "1/2") == Cut(3, 5, (4,))
    assert Frontier.cut_at(frontier.to_json(), "1/3") is None
    assert Frontier.cut_at(None, "1/2") is None


def test_rows_of_a_delta_keep_all_that_belongs_to_them() -> None:
    sums = SumDelta([1, 0, 2], [Decimal(5), None, Decimal(7)])
    extremes = ExtremeDelta(["a", None, "c"], [None, "b", None])
    delta = Delta([1, -1, 2], ["{a}", "{b}", "{c}"], (sums,), (extremes,), frozenset({"{b}"}))
    assert len(delta) == 3
    assert delta.at([2, 0]) == Delta(
        [2, 1],
        ["{c}", "{a}"],
        (SumDelta([2, 1], [Decimal(7), Decimal(5)]),),
        (ExtremeDelta(["c", "a"], [None, None]),),
        frozenset({"{b}"}),
    )


def test_timings_add_up() -> None:
    timings = Timings()
    timings.add("read", 1.0)
    timings.add("read", 0.25)
    assert timings.to_json() == pytest.approx({"read": 1.25})


def test_a_table_has_a_share_of_what_was_done_for_several() -> None:
    timings = Timings()
    timings.add("plan", 10.0, 5)
    timings.add("spark", 400.0, 100)
    timings.add("read", 1.0)
    timings.add("net", 0.5)  # by the worker: the source server does not spend it
    assert timings.total_ms == pytest.approx(411.5)
    assert timings.share_ms == pytest.approx(2.0 + 4.0 + 1.0 + 0.5)
    assert timings.source_ms == pytest.approx(2.0 + 1.0)


def test_a_mirror_goes_on_from_the_cut_that_its_origin_knew_or_from_after_what_was_netted() -> None:
    known, between, after = Cut(10, 10, ()), Cut(15, 25, (15,)), Cut(20, 30, (20,))
    assert all(Position(known).allows(cut) for cut in (known, between, after))
    assert [Position(known, 20).allows(cut) for cut in (known, between, after)] == [True, False, True]
    assert not Position(None, 20).allows(between)
