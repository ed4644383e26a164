"""Interests of many processes and answers of one, in shared memory."""

from __future__ import annotations

import multiprocessing
import os
import signal
import time
from dataclasses import replace
from pathlib import Path

from pgtrickle.ipc.registry import CAPACITY, Interest, Registry, SourceStatus

ONE = Interest("1/5", "1/6", "far:5432", 'od"d ß', 4_000_000_000, 1000, 3)
ANSWER = SourceStatus("1/6", 7, 99, 5, 6, 2**63 + 1, 2**40, 8, 1.5, 1.6, 10, 20, 3)


def test_interests_are_those_that_each_reader_said_last(tmp_path: Path) -> None:
    mine, other = Registry(tmp_path / "r", create=True), Registry(tmp_path / "r")
    assert not other.has_interests()
    assert mine.register("1/5", [ONE, replace(ONE, relid=8)]) == 0
    version = other.version
    assert other.register("1/9", [replace(ONE, reader="1/9")]) == 0
    assert mine.version != version
    assert mine.register("1/5", [ONE]) == 0
    assert set(other.interests()) == {ONE, replace(ONE, reader="1/9")}
    mine.register("1/5", [])
    assert other.interests() == [replace(ONE, reader="1/9")]


def _register(path: str, reader: str, count: int, ready: str) -> None:
    registry = Registry(Path(path))
    registry.register(reader, [replace(ONE, reader=reader, relid=i) for i in range(count)])
    Path(ready).touch()
    time.sleep(60)


def test_interests_of_a_killed_reader_are_not_heard_and_make_room(tmp_path: Path) -> None:
    registry = Registry(tmp_path / "r", create=True)
    child = multiprocessing.get_context("spawn").Process(
        target=_register, args=(str(tmp_path / "r"), "1/9", CAPACITY, str(tmp_path / "ready"))
    )
    child.start()
    while not (tmp_path / "ready").exists():
        time.sleep(0.01)
    assert len(registry.interests()) == CAPACITY
    assert registry.register("1/5", [ONE]) == 1  # full
    child.kill()
    child.join()
    assert registry.interests() == []
    assert registry.register("1/5", [ONE]) == 0
    assert registry.interests() == [ONE]


def test_what_does_not_fit_is_told(tmp_path: Path) -> None:
    registry = Registry(tmp_path / "r", create=True)
    assert registry.register("1/5", [replace(ONE, relid=i) for i in range(CAPACITY + 5)]) == 5
    assert len(registry.interests()) == CAPACITY
    assert registry.register("1/5", [replace(ONE, server="x" * 300), ONE]) == 1


def _hold(path: str, ready: str) -> None:
    with Registry(Path(path))._locked():
        Path(ready).touch()
        time.sleep(60)


def test_a_stopped_writer_stops_nobody_and_a_killed_one_leaves_no_lock(tmp_path: Path) -> None:
    registry = Registry(tmp_path / "r", create=True)
    child = multiprocessing.get_context("spawn").Process(target=_hold, args=(str(tmp_path / "r"), str(tmp_path / "x")))
    child.start()
    while not (tmp_path / "x").exists():
        time.sleep(0.01)
    assert child.pid is not None
    os.kill(child.pid, signal.SIGSTOP)
    assert registry.register("1/5", [ONE]) is None  # not now: it does not wait for the stopped one
    child.kill()
    child.join()
    assert registry.register("1/5", [ONE]) == 0


def test_a_record_that_was_written_half_is_nobodys(tmp_path: Path) -> None:
    registry = Registry(tmp_path / "r", create=True)
    section = registry._segment["interests"]
    section._sequence[0] = 1  # somebody died while writing
    section.unlocked[0]["reader"] = b"1/7"
    assert registry.interests() == []
    assert registry.register("1/5", [ONE]) == 0
    assert registry.interests() == [ONE]


def test_answers_are_found_by_origin(tmp_path: Path) -> None:
    broker, reader = Registry(tmp_path / "r", create=True), Registry(tmp_path / "r")
    assert reader.answers(["1/6"]) == {}
    broker.write_answers({0: ANSWER, 2: replace(ANSWER, origin="1/8")}, 3)
    assert reader.answers(["1/6"]) == {("1/6", 7): ANSWER}
    assert reader.answers(["1/6", "1/8"]).keys() == {("1/6", 7), ("1/8", 7)}
    broker.write_answers({0: None}, 3)
    assert reader.answers(["1/6"]) == {}


def test_answers_of_a_writer_that_stopped_half_way_are_not_waited_for(tmp_path: Path) -> None:
    registry = Registry(tmp_path / "r", create=True)
    registry.write_answers({0: ANSWER}, 1)
    registry._segment["answers"]._sequence[0] = 7
    assert registry.answers(["1/6"]) == {}
