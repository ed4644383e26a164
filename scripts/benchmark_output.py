"""Runs a benchmark and reads the figures of its last line."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parent.parent


def run_benchmark(name: str, arguments: Sequence[str], checkout: Path = ROOT) -> dict[str, float]:
    """Numbers by their path ("aggregate/p50_ms"). A benchmark that misses its own bars is measured nevertheless."""
    command = [sys.executable, str(checkout / "benchmarks" / f"{name}.py"), *arguments]
    environ = {**os.environ, "PYTHONPATH": str(checkout / "src")}
    done = subprocess.run(command, cwd=checkout, env=environ, capture_output=True, text=True, check=False)
    lines = done.stdout.strip().splitlines()
    if not lines or not lines[-1].startswith("{"):
        raise SystemExit(f"{name} of {checkout} failed:\n{done.stdout[-2000:]}{done.stderr[-4000:]}")
    return numbers(json.loads(lines[-1]))


def numbers(value: Any, path: str = "") -> dict[str, float]:
    if isinstance(value, dict):
        found: dict[str, float] = {}
        for key, each in value.items():
            found |= numbers(each, f"{path}/{key}" if path else str(key))
        return found
    is_number = isinstance(value, int | float) and not isinstance(value, bool)
    return {path: float(value)} if is_number else {}
