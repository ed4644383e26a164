"""Calls of several threads run together, fail alone, and wait only for those who are coming."""

from __future__ import annotations

import threading
import time
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor

import pytest

from pgtrickle.pipeline.engine.batcher import Batcher


class Doubling:
    """Holds its first batch until it is let go."""

    def __init__(self) -> None:
        self.batches: list[list[int]] = []
        self.begun = threading.Event()
        self.go = threading.Event()

    def __call__(self, items: Sequence[int]) -> list[int]:
        self.batches.append(list(items))
        if len(self.batches) == 1:
            self.begun.set()
            assert self.go.wait(120)
        if 13 in items:
            raise ValueError("13")
        return [2 * item for item in items]


def test_lone_call_goes_at_once() -> None:
    work = Doubling()
    work.go.set()
    assert Batcher(work, 1)([1, 2]) == [2, 4]
    assert work.batches == [[1, 2]]


def test_calls_that_came_meanwhile_go_as_one() -> None:
    work = Doubling()
    gather = Batcher(work, 1)
    with ThreadPoolExecutor(9) as threads:
        first = threads.submit(gather, [0])
        assert work.begun.wait(120)
        others = [threads.submit(gather, [i, i + 100]) for i in range(1, 9)]
        while len(gather._waiting) < 8:
            pass
        work.go.set()
        assert first.result(120) == [0]
        assert [f.result(120) for f in others] == [[2 * i, 2 * i + 200] for i in range(1, 9)]
    assert len(work.batches) == 2


def test_failure_is_the_failing_call_s_alone() -> None:
    work = Doubling()
    gather = Batcher(work, 1)
    with ThreadPoolExecutor(4) as threads:
        first = threads.submit(gather, [0])
        assert work.begun.wait(120)
        good, bad = threads.submit(gather, [1]), threads.submit(gather, [13])
        while len(gather._waiting) < 2:
            pass
        work.go.set()
        assert first.result(120) == [0]
        assert good.result(120) == [2]
        with pytest.raises(ValueError, match="13"):
            bad.result(120)


def test_failure_that_no_item_is_to_blame_for_is_tried_once() -> None:
    work = Doubling()
    gather = Batcher(work, 1, ValueError)
    with ThreadPoolExecutor(4) as threads:
        first = threads.submit(gather, [0])
        assert work.begun.wait(120)
        others = [threads.submit(gather, [13]), threads.submit(gather, [1])]
        while len(gather._waiting) < 2:
            pass
        work.go.set()
        assert first.result(120) == [0]
        for other in others:
            with pytest.raises(ValueError, match="13"):
                other.result(120)
    assert len(work.batches) == 2


def test_no_more_batches_side_by_side_than_allowed() -> None:
    lock, running, most = threading.Lock(), [0], [0]

    def work(items: Sequence[int]) -> list[int]:
        with lock:
            running[0] += 1
            most[0] = max(most[0], running[0])
        threading.Event().wait(0.005)
        with lock:
            running[0] -= 1
        return list(items)

    gather = Batcher(work, 2)
    with ThreadPoolExecutor(16) as threads:
        assert list(threads.map(lambda i: gather([i])[0], range(200))) == list(range(200))
    assert most[0] == 2


def test_waits_for_those_who_are_coming_as_long_as_its_own_way_took() -> None:
    work = Doubling()
    work.go.set()
    gather = Batcher(work, 2)
    reading, read = threading.Event(), threading.Event()

    def late() -> Sequence[int]:
        with gather.announce():
            reading.set()
            assert read.wait(120)
            return gather([2])

    def early() -> Sequence[int]:
        with gather.announce():
            time.sleep(0.1)
            return gather([1])

    with ThreadPoolExecutor(2) as threads:
        other = threads.submit(late)
        assert reading.wait(120)
        first = threads.submit(early)
        while not gather._waiting:
            pass
        read.set()
        assert (first.result(120), other.result(120)) == ([2], [4])
        assert work.batches == [[1, 2]]

        def none() -> None:
            with gather.announce():
                gather.withdraw()
                reading.set()
                assert read.wait(120)

        read.clear()
        reading.clear()
        other_none = threads.submit(none)
        assert reading.wait(120)
        assert gather._announced == 0  # nobody waits for a call that was withdrawn
        read.set()
        other_none.result(120)

        read.clear()
        reading.clear()
        other = threads.submit(late)
        assert reading.wait(120)
        assert gather([3]) == [6]  # it comes from nowhere
        begun = time.monotonic()
        assert threads.submit(early).result(120) == [2]
        assert time.monotonic() - begun >= 0.2
        read.set()
        assert other.result(120) == [4]
    assert work.batches[1:] == [[3], [1], [2]]


def test_who_was_coming_and_does_not_call_keeps_nobody_waiting() -> None:
    work = Doubling()
    work.go.set()
    gather = Batcher(work, 1)
    with gather.announce():
        pass
    with gather.announce():
        assert gather([1]) == [2]
    with gather.announce():  # of the same thread: what is over does not count
        assert gather([2]) == [4]
