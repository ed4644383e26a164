"""The broker's ledger: counts that only grow, generations, what is pending."""

from __future__ import annotations

import itertools

from pgtrickle.broker.ledger import MOST_COUNTS, Ledger, SourceCount, SourceScan
from pgtrickle.broker.scan import lsn_number, lsn_text
from pgtrickle.model.flow import Cut


def ledger(*relids: int) -> Ledger:
    numbers = itertools.count(100)
    made = Ledger(lambda: next(numbers))
    made.set_sources(relids)
    return made


def seen(xmax: int, *counted: tuple[int, int, int, int]) -> SourceScan:
    """source, changes, lsn, horizon"""
    return SourceScan("1/5", Cut(xmax, xmax, ()), {r: SourceCount(c, lsn, h) for r, c, lsn, h in counted})


def test_first_look_is_news_and_counts_nothing() -> None:
    book = ledger(7)
    assert book.scan_ranges() == [(7, None)]
    assert book.note(seen(50, (7, 3, 900, 40)), {}) == {7}
    entry = book.entries[7]
    assert (entry.count, entry.pending, entry.max_lsn) == (0, 3, 900)
    assert book.scan_ranges() == [(7, Cut(50, 50, ()))]


def test_count_only_grows_and_says_what_is_news() -> None:
    book = ledger(7, 8)
    book.note(seen(50, (7, 0, 0, 50), (8, 0, 0, 50)), {})
    assert book.note(seen(60, (7, 2, 10, 50), (8, 0, 0, 50)), {}) == {7}
    # a late commit: its LSN is older than what was seen
    assert book.note(seen(70, (7, 1, 4, 50), (8, 0, 0, 50)), {}) == {7}
    assert book.note(seen(80, (7, 0, 0, 50), (8, 0, 0, 50)), {}) == set()
    assert (book.entries[7].count, book.entries[7].max_lsn, book.entries[8].count) == (3, 10, 0)


def test_what_is_pending_goes_when_the_slowest_reader_has_passed_it() -> None:
    book = ledger(7)
    book.note(seen(50, (7, 0, 0, 50)), {})
    book.note(seen(60, (7, 2, 0, 50)), {})
    book.note(seen(70, (7, 3, 0, 50)), {})
    assert book.entries[7].pending == 5
    book.note(seen(80, (7, 0, 0, 59)), {})
    assert book.entries[7].pending == 5
    book.note(seen(90, (7, 0, 0, 60)), {})
    assert book.entries[7].pending == 3
    book.note(seen(90, (7, 0, 0, 90)), {})
    assert book.entries[7].pending == 0


def test_a_reader_that_never_moves_costs_bounded_memory() -> None:
    book = ledger(7)
    for tick in range(3 * MOST_COUNTS):
        book.note(seen(50 + tick, (7, 1, 0, 1)), {})
    entry = book.entries[7]
    assert entry.pending == 3 * MOST_COUNTS
    assert len(entry._counts) <= MOST_COUNTS
    book.note(seen(10_000, (7, 0, 0, 10_000)), {})
    assert entry.pending == 0


def test_counting_anew_is_another_generation() -> None:
    book = ledger(7)
    book.note(seen(50, (7, 0, 0, 50)), {})
    first = book.entries[7].generation
    book.set_sources([8])
    book.set_sources([7, 8])
    assert book.entries[7].generation != first
    # without a buffer, and with another one of the same name
    book.note(seen(60, (7, 0, 0, 50)), {})
    second = book.entries[7].generation
    book.note(seen(70), {})
    book.note(seen(80, (7, 0, 0, 50)), {})
    assert book.entries[7].generation != second
    # a server that was restored
    third = book.entries[7].generation
    assert book.note(seen(40, (7, 5, 0, 40)), {}) == {7}
    assert book.entries[7].generation != third
    assert book.entries[7].count == 0


def test_after_a_silence_counting_begins_anew() -> None:
    """A promoted standby may have given ids before our cut to other transactions."""
    book = ledger(7)
    book.note(seen(50, (7, 0, 0, 50)), {7: 3.0})
    generation = book.entries[7].generation
    book.forget()
    assert book.scan_ranges() == [(7, None)]
    assert book.note(seen(60, (7, 0, 0, 60)), {7: 3.0}) == {7}
    entry = book.entries[7]
    assert entry.generation != generation
    assert (entry.scans_done, entry.scans_saved) == (2, 4.0)


def test_saved_scans_are_those_that_others_did_not_make() -> None:
    book = ledger(7)
    for tick in range(10):
        book.note(seen(50 + tick, (7, 0, 0, 50)), {7: 2.5})  # three readers, one of which looks every second tick
    assert (book.entries[7].scans_done, book.entries[7].scans_saved) == (10, 15)


def test_lsns_go_to_and_fro() -> None:
    assert lsn_number("1/16B3748") == (1 << 32) + 0x16B3748
    assert lsn_text(lsn_number("1/16B3748")) == "1/16B3748"
    assert lsn_number(None) == 0
