"""Tasks at several servers: none waits for another that is stuck."""

from __future__ import annotations

import threading
from collections.abc import Callable

import pytest

from pgtrickle.db.run_concurrently import run_concurrently
from pgtrickle.errors import OriginAwayError

Deliver = Callable[[int], None]


def test_what_is_ready_together_is_taken_together() -> None:
    both = threading.Barrier(2)

    def task(number: int) -> Callable[[Deliver], None]:
        def run(deliver: Deliver) -> None:
            both.wait(120)
            deliver(number)

        return run

    ((first, second),) = run_concurrently({"a": task(1), "b": task(2)})
    assert [(key, future.result()) for key, future in (first, second)] == [("a", 1), ("b", 2)]


def test_one_that_is_stuck_comes_last_and_an_error_is_one_of_its_own() -> None:
    goes_on = threading.Event()

    def stuck(deliver: Deliver) -> None:
        goes_on.wait(120)
        deliver(7)

    def away(_deliver: Deliver) -> None:
        raise OriginAwayError("it does not answer")

    coming = run_concurrently({"stuck": stuck, "away": away, "fine": lambda deliver: deliver(1)})
    early = dict(next(coming))
    assert early["fine"].result() == 1
    with pytest.raises(OriginAwayError, match="answer"):
        early["away"].result()
    assert "stuck" not in early
    goes_on.set()
    ((key, late),) = next(coming)
    assert (key, late.result()) == ("stuck", 7)
    assert list(coming) == []


def test_what_is_left_to_do_is_not_waited_for_until_the_end() -> None:
    may_end, ended = threading.Event(), threading.Event()

    def task(deliver: Deliver) -> None:
        deliver(1)
        may_end.wait(120)
        ended.set()

    coming = run_concurrently({"a": task})
    assert next(coming)[0][1].result() == 1
    assert not ended.is_set()
    may_end.set()
    assert list(coming) == []
    assert ended.is_set()


def test_nothing_to_do() -> None:
    assert list(run_concurrently({})) == []
