"""Results of a benchmark of several parts, one JSON line each, so that runs can be resumed and drawn together."""

from __future__ import annotations

import json
import os
import subprocess
from datetime import UTC, datetime
from pathlib import Path
from typing import Any


class Results:
    """Lines of a file; the latest with the same part, scale and name counts."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._commit = _commit()

    def add(self, part: str, scale: float, name: str, figures: dict[str, Any]) -> None:
        found = {
            "part": part,
            "scale": scale,
            "name": name,
            "at": datetime.now(UTC).isoformat(timespec="seconds"),
            "commit": self._commit,
            "load": round(os.getloadavg()[0], 1),  # above the number of cores: others were working, too
            **figures,
        }
        self.path.parent.mkdir(parents=True, exist_ok=True)
        with self.path.open("a", encoding="utf-8") as file:
            file.write(json.dumps(found) + "\n")

    def of(self, part: str, scale: float) -> dict[str, dict[str, Any]]:
        """By name."""
        return {e["name"]: e for e in self._all() if (e["part"], e["scale"]) == (part, scale)}

    def has(self, part: str, scale: float, name: str) -> bool:
        return name in self.of(part, scale)

    def _all(self) -> list[dict[str, Any]]:
        if not self.path.exists():
            return []
        return [json.loads(line) for line in self.path.read_text(encoding="utf-8").splitlines()]


def _commit() -> str:
    try:
        done = subprocess.run(["git", "rev-parse", "--short", "HEAD"], capture_output=True, text=True, check=True)
    except (OSError, subprocess.CalledProcessError):
        return "unknown"
    return done.stdout.strip()
