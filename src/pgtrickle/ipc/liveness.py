"""Whether a process is still the one that it was."""

from __future__ import annotations

from pathlib import Path


def start_time(pid: int) -> str | None:
    """Tells a process from a later one with the same id; None when it is gone."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[19]
    except OSError:
        return None
