"""The memory of a process, as the inventory of processes shows it."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from pgtrickle.observe import status


@pytest.mark.parametrize("page_size", [4096, 16384, 65536])
def test_memory_is_counted_in_pages_of_the_machine(page_size: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Path, "read_text", lambda _path: "900 70 30 1 0 40 0\n")
    monkeypatch.setattr(os, "sysconf", {"SC_PAGE_SIZE": page_size}.__getitem__)
    assert status.resident_bytes(1) == 70 * page_size
