"""Workers that wait for Spark, and those that begin meanwhile."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable

from pgtrickle.dispatch.slots import WorkerSlots


def wait_until(condition: Callable[[], bool]) -> None:
    deadline = time.monotonic() + 120
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.002)


def test_token_is_lent_while_its_holder_waits() -> None:
    woken = threading.Event()
    tokens = WorkerSlots(1, 5.0, woken.set)
    tokens.take()
    with tokens.lent():
        assert (tokens.used, tokens.aside, woken.is_set()) == (0, 1, True)
    assert (tokens.used, tokens.aside) == (1, 0)
    tokens.give_back()
    assert tokens.used == 0


def test_who_comes_back_waits_for_its_turn_and_goes_before_the_new() -> None:
    tokens = WorkerSlots(1, 5.0, lambda: None)
    tokens.take()
    back, go = threading.Event(), threading.Event()

    def lender() -> None:
        with tokens.lent():
            go.wait(120)
        back.set()

    thread = threading.Thread(target=lender)
    thread.start()
    wait_until(lambda: tokens.aside == 1)
    tokens.take()  # somebody new
    go.set()
    assert not back.wait(0.05)
    tokens.give_back()
    assert back.wait(120)
    thread.join()
    assert (tokens.used, tokens.aside) == (1, 0)


def test_who_has_waited_long_goes_on_without_a_token() -> None:
    tokens = WorkerSlots(1, 0.01, lambda: None)
    tokens.take()
    with tokens.lent():
        tokens.take()  # and hangs
    assert (tokens.used, tokens.aside) == (2, 0)
    tokens.give_back()
    tokens.give_back()
    assert tokens.used == 0
