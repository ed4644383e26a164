"""Shared memory: sections are read whole or not at all, whoever dies."""

from __future__ import annotations

import multiprocessing
import time
from pathlib import Path

import numpy as np
import pytest

from pgtrickle.errors import ConfigError
from pgtrickle.ipc.fleet_memory import FleetMemory, PoolStatus, ProcessState, SchedulerState, WorkerShare, WorkerState
from pgtrickle.ipc.segment import Layout, Segment

PAIR: Layout = {"pairs": (np.dtype([("a", "i8"), ("b", "i8")]), 512), "other": (np.dtype([("x", "f8")]), 1)}


def _write_pairs(path: str, seconds: float) -> None:
    section = Segment(Path(path), PAIR)["pairs"]
    until, number = time.monotonic() + seconds, 0
    while time.monotonic() < until:
        number += 1

        def change(records: np.ndarray, number: int = number) -> None:
            records["a"] = number
            records["b"] = -number

        section.write(change)
        time.sleep(0.000_1)


def test_reader_never_sees_half_a_write(tmp_path: Path) -> None:
    path = tmp_path / "memory"
    section = Segment(path, PAIR, create=True)["pairs"]
    writer = multiprocessing.get_context("spawn").Process(target=_write_pairs, args=(str(path), 1.5))
    writer.start()
    reads, seen = 0, set[int]()
    while writer.is_alive():
        records = section.read()
        assert records is not None
        assert (records["a"] == -records["b"]).all()
        assert len(set(records["a"].tolist())) == 1
        reads += 1
        seen.add(int(records["a"][0]))
    writer.join()
    assert reads > 100
    assert len(seen) > 10


def test_section_of_a_writer_that_died_half_way_is_refused_until_written_again(tmp_path: Path) -> None:
    segment = Segment(tmp_path / "memory", PAIR, create=True)
    section = segment["pairs"]
    section._sequence[0] = 7
    assert section.read() is None
    section.write(lambda records: records.fill((1, -1)))
    records = section.read()
    assert records is not None
    assert records["a"][0] == 1
    assert section.version % 2 == 0


def test_segment_of_another_layout_is_refused(tmp_path: Path) -> None:
    Segment(tmp_path / "memory", PAIR, create=True)
    with pytest.raises(ConfigError):
        Segment(tmp_path / "memory", {"pairs": (np.dtype([("a", "f8"), ("b", "i8")]), 512), "other": PAIR["other"]})
    with pytest.raises(ConfigError):
        Segment(tmp_path / "memory", {"pairs": PAIR["pairs"]})


def test_segment_is_private(tmp_path: Path) -> None:
    Segment(tmp_path / "memory", PAIR, create=True)
    assert (tmp_path / "memory").stat().st_mode & 0o777 == 0o600


def test_fleet_reads_what_others_wrote(tmp_path: Path) -> None:
    mine, other = FleetMemory(tmp_path / "m", create=True), FleetMemory(tmp_path / "m")
    pool = PoolStatus(12, 3, 4, 100, 50, 5, 6, 7, 8, 1.5)
    shares = [WorkerShare("1/5", "shop", 1, 2, 3, 4), WorkerShare("1/6", 'od"d ß' + "x" * 200, 0, 1, 0, 4)]
    state = SchedulerState("1/5", "shop", 99, "ACTIVE", 1.0, 2.0, 77, 10, 3)
    mine.write_pool(pool)
    mine.write_shares(shares)
    mine.write_slots(4)
    mine.write_scheduler(3, state)
    mine.write_processes([ProcessState("launcher", 1, "ACTIVE", 1.0)])
    assert other.pool() == pool
    assert other.shares()[0] == shares[0]
    assert other.shares()[1].name.startswith('od"d ß')
    assert other.schedulers() == [state]
    assert other.processes() == [ProcessState("launcher", 1, "ACTIVE", 1.0)]
    workers = [WorkerState("shop", 4711, "ACTIVE", 1.0), WorkerState("shop", 0, "IDLE", 2.0)]
    before = other.version()
    mine.write_workers(workers)
    assert other.workers() == workers
    assert other.version() != before
    mine.write_scheduler(3, None)
    assert other.schedulers() == []


def test_two_databases_with_equal_ids_have_sections_of_their_own(tmp_path: Path) -> None:
    memory = FleetMemory(tmp_path / "m", create=True)
    memory.write_slots(2)
    for slot, key in enumerate(("1/5", "2/5")):
        memory.write_scheduler(slot, SchedulerState(key, "shop", slot + 1, "ACTIVE", 1.0, 1.0, slot, 1, 1))
    assert {s.key: s.pid for s in memory.schedulers()} == {"1/5": 1, "2/5": 2}


def test_memory_has_its_space_on_the_disk(tmp_path: Path) -> None:
    """A process that writes to a hole of a mapped file is killed if the disk is full."""
    path = tmp_path / "memory"
    Segment(path, PAIR, create=True)
    assert path.stat().st_blocks * 512 >= path.stat().st_size
