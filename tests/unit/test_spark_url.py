"""Where Spark is found, and how long those who need it wait for it together."""

from __future__ import annotations

import threading
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from pgtrickle.errors import EngineLostError
from pgtrickle.runtime.sparkurl import SparkUrl, write_url


def failed_after(url: SparkUrl) -> float:
    began = time.monotonic()
    with pytest.raises(EngineLostError):
        url()
    return time.monotonic() - began


def test_those_who_ask_later_do_not_wait_again(tmp_path: Path) -> None:
    url = SparkUrl(tmp_path, 30, 0.3, threading.Event())
    write_url(tmp_path, "sc://one")
    assert url() == "sc://one"
    write_url(tmp_path, None)
    assert 0.3 <= failed_after(url) < 2
    assert failed_after(url) < 0.1
    write_url(tmp_path, "sc://two")
    assert url() == "sc://two"
    write_url(tmp_path, None)
    assert 0.3 <= failed_after(url) < 2  # it was there in between


def test_first_start_is_waited_for_by_all(tmp_path: Path) -> None:
    url = SparkUrl(tmp_path, 30, 0, threading.Event())
    with ThreadPoolExecutor(3) as threads:
        asked = [threads.submit(url) for _ in range(3)]
        time.sleep(0.2)
        assert not any(a.done() for a in asked)
        write_url(tmp_path, "sc://one")
        assert [a.result(5) for a in asked] == ["sc://one"] * 3


def test_end_of_the_run_ends_the_waiting(tmp_path: Path) -> None:
    stop = threading.Event()
    url = SparkUrl(tmp_path, 30, 30, stop)
    with ThreadPoolExecutor(1) as threads:
        asked = threads.submit(url)
        time.sleep(0.1)
        stop.set()
        with pytest.raises(EngineLostError):
            asked.result(5)
