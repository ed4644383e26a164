"""The benchmark gate fails when a figure has become worse, and only then."""

from __future__ import annotations

import importlib.util
import json
import sys
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from types import ModuleType

import pytest

ROOT = Path(__file__).parents[2]


@pytest.fixture(scope="module")
def gate() -> Iterator[ModuleType]:
    with pytest.MonkeyPatch.context() as patch:
        patch.syspath_prepend(str(ROOT / "scripts"))
        spec = importlib.util.spec_from_file_location("bench_gate", ROOT / "scripts" / "bench_gate.py")
        assert spec is not None
        assert spec.loader is not None
        module = importlib.util.module_from_spec(spec)
        patch.setitem(sys.modules, "bench_gate", module)
        spec.loader.exec_module(module)
        yield module


class Runs:
    """Gives the results of one run after the other."""

    def __init__(self, *results: Mapping[str, float]) -> None:
        self.results = list(results)

    def __call__(self, _benchmark: str, _arguments: Sequence[str]) -> Mapping[str, float]:
        return self.results.pop(0)


BASELINE = {"time": 2.0, "rate": 0.8}


@pytest.mark.parametrize(
    ("runs", "ok"),
    [
        ([{"ms": 20, "unit": 10, "rate": 0.8}], True),
        ([{"ms": 25, "unit": 10, "rate": 0.7}], True),  # within the tolerance
        ([{"ms": 5, "unit": 10, "rate": 2.0}], True),
        ([{"ms": 27, "unit": 10, "rate": 0.8}, {"ms": 20, "unit": 10, "rate": 0.8}], True),  # noise
        ([{"ms": 27, "unit": 10, "rate": 0.8}, {"ms": 28, "unit": 10, "rate": 0.8}], False),
        ([{"ms": 20, "unit": 10, "rate": 0.5}, {"ms": 20, "unit": 10, "rate": 0.5}], False),
        ([{"ms": 27, "unit": 10, "rate": 0.8}, {"ms": 20, "unit": 10, "rate": 0.5}], True),  # the better one of each
    ],
)
def test_a_figure_is_worse_beyond_its_tolerance(gate: ModuleType, runs: list[Mapping[str, float]], ok: bool) -> None:
    figures = (gate.Figure("time", "ms", 1.3, "unit"), gate.Figure("rate", "rate", 1.3, is_better_high=True))
    left = Runs(*runs)
    assert gate.compare(gate.Gate("some", (), figures), BASELINE, left) is ok
    assert left.results == []


def test_a_figure_without_a_baseline_fails(gate: ModuleType) -> None:
    figures = (gate.Figure("new", "ms", 1.3),)
    assert not gate.compare(gate.Gate("some", (), figures), BASELINE, Runs({"ms": 1}, {"ms": 1}))


def test_the_baseline_has_every_figure_and_no_other(gate: ModuleType) -> None:
    baseline = json.loads(gate.BASELINE.read_text())
    assert {name: set(found) for name, found in baseline.items()} == {
        one.benchmark: {figure.name for figure in one.figures} for one in gate.GATES
    }


@pytest.mark.parametrize(("slower", "status"), [(1.0, 0), (1.3, 0), (1.7, 1)])
def test_the_command_fails_after_a_regression_and_names_the_figure(
    gate: ModuleType,
    slower: float,
    status: int,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    """One benchmark reports what --update has stored, times a factor."""
    figures = (gate.Figure("refresh per job", "ms", 1.4, "unit"), gate.Figure("growth", "growth", 1.4))
    monkeypatch.setattr(gate, "GATES", (gate.Gate("quick", ("--rounds", "3"), figures),))
    stored, asked = tmp_path / "baseline.json", []

    def run(factor: float) -> None:
        def measured(name: str, arguments: Sequence[str]) -> dict[str, float]:
            asked.append((name, tuple(arguments)))
            return {"ms": 20.0 * factor, "unit": 10.0, "growth": 1.1}

        monkeypatch.setattr(gate, "run_benchmark", measured)

    run(1.0)
    assert gate.main(["--update", "--baseline", str(stored)]) == 0
    assert json.loads(stored.read_text()) == {"quick": {"refresh per job": 2.0, "growth": 1.1}}
    run(slower)
    assert gate.main(["--baseline", str(stored)]) == status
    said = capsys.readouterr().out
    assert ("refresh per job" in said, "WORSE" in said) == (True, bool(status))
    assert set(asked) == {("quick", ("--rounds", "3"))}
