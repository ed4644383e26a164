"""Whether a process id still belongs to the same process."""

from __future__ import annotations

from pathlib import Path


def start_time(pid: int) -> str | None:
    """Distinguishes a process from a later one with the same id; None if it has ended."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[19]
    except OSError:
        return None
