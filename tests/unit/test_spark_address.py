"""Where Spark is found, and how long those who need it wait for it together."""

from __future__ import annotations

import threading
import time
from concurrent.futures import ThreadPoolExecutor

import pytest

from pgtrickle.errors import EngineLostError
from pgtrickle.servers.spark_address import RemoteSparkAddress, SparkAddress, SparkUrlWaiter


def failed_after(url: SparkUrlWaiter) -> float:
    began = time.monotonic()
    with pytest.raises(EngineLostError):
        url()
    return time.monotonic() - began


def test_those_who_ask_later_do_not_wait_again() -> None:
    address = SparkAddress()
    url = SparkUrlWaiter(address, 30, 0.3, threading.Event())
    address.set("sc://one")
    assert url() == "sc://one"
    address.set(None)
    assert 0.3 <= failed_after(url) < 2
    assert failed_after(url) < 0.1
    address.set("sc://two")
    assert url() == "sc://two"
    address.set(None)
    assert 0.3 <= failed_after(url) < 2  # it was there in between


def test_first_start_is_waited_for_by_all() -> None:
    address = SparkAddress()
    url = SparkUrlWaiter(address, 30, 0, threading.Event())
    with ThreadPoolExecutor(3) as threads:
        asked = [threads.submit(url) for _ in range(3)]
        time.sleep(0.2)
        assert not any(a.done() for a in asked)
        address.set("sc://one")
        assert [a.result(120) for a in asked] == ["sc://one"] * 3


def test_end_of_the_run_ends_the_waiting() -> None:
    stop = threading.Event()
    address = SparkAddress()
    url = SparkUrlWaiter(address, 30, 30, stop)
    with ThreadPoolExecutor(1) as threads:
        asked = threads.submit(url)
        time.sleep(0.1)
        stop.set()
        with pytest.raises(EngineLostError):
            asked.result(120)


def told(followed: RemoteSparkAddress, expected: str | None) -> bool:
    deadline = time.monotonic() + 120
    while followed() != expected and time.monotonic() < deadline:
        time.sleep(0.01)
    return followed() == expected


def test_other_processes_are_told_what_holds_now_and_what_changes() -> None:
    address = SparkAddress()
    address.set("sc://one")
    first = RemoteSparkAddress(address.follow())
    assert told(first, "sc://one")
    address.set(None)
    assert told(first, None)
    second = RemoteSparkAddress(address.follow())
    address.set("sc://two")
    assert told(first, "sc://two")
    assert told(second, "sc://two")


def test_those_who_have_ended_are_forgotten() -> None:
    address = SparkAddress()
    address.follow().close()
    living = RemoteSparkAddress(address.follow())
    address.set("sc://one")
    assert told(living, "sc://one")
    assert len(address._senders) == 1
