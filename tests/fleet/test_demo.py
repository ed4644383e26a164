"""`make demo` as on a machine that has Python and a shell and nothing else: no Java, no PostgreSQL, nothing in PATH."""

from __future__ import annotations

import json
import os
import re
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path
from urllib.request import urlopen

import pytest

from pgtrickle.demo.run import example

ROOT = Path(__file__).parents[2]
# What make, the shell and Python themselves are, and chmod, by which Hadoop sets permissions of the files that Spark
# writes; anything else that the demo needs has to come from its wheels.
TOOLS = ("sh", "make", "env", "touch", "awk", "chmod")

STREAM_TABLES = set(re.findall(r"create_stream_table\(\s*'(\w+)'", example("stream_tables.sql")))


@pytest.fixture
def bare(tmp_path: Path) -> dict[str, str]:
    """An environment with an almost empty PATH."""
    tools = tmp_path / "bin"
    tools.mkdir()
    for name in TOOLS:
        found = shutil.which(name)
        if found:
            (tools / name).symlink_to(found)
    (tools / "python3").symlink_to(sys.executable)
    return {"PATH": str(tools), "HOME": str(tmp_path)}


def descendants(marker: str) -> list[str]:
    """Command lines of live processes whose environment carries the marker."""
    found = []
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            try:
                if marker.encode() in (entry / "environ").read_bytes():
                    found.append((entry / "cmdline").read_bytes().replace(b"\0", b" ").decode())
            except OSError:
                continue
    return found


def graph_of_the_shop(address: str, demo: subprocess.Popen[str]) -> tuple[set[str], set[str]]:
    """The stream tables in the graph at the address that the demo prints: of the JSON, and of the page."""
    while True:
        try:
            with urlopen(f"{address}graph?format=json", timeout=60) as response:
                nodes = [item["node"] for item in json.load(response)["nodes"]]
            with urlopen(f"{address}graph", timeout=60) as response:
                page = response.read().decode()
        except OSError:
            nodes, page = [], ""  # the web server starts while the address is printed
        in_json = {node["name"] for node in nodes if node["is_stream_table"]}
        in_page = set(re.findall(r'aria-label="public\.(\w+) in shop: ', page))
        if in_json & in_page >= STREAM_TABLES or demo.poll() is not None:
            return in_json, in_page
        time.sleep(0.2)


@pytest.mark.slow
def test_demo_runs_without_java_and_postgresql_and_verifies_itself(bare: dict[str, str]) -> None:
    demo = subprocess.Popen(
        [sys.executable, "-m", "pgtrickle.cli", "demo"],
        env={**bare, "DEMO_SECONDS": "15", "PYTHONUNBUFFERED": "1"},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        cwd=bare["HOME"],
    )
    assert demo.stdout is not None
    assert demo.stderr is not None
    seen, graph = "", None
    with demo.stdout as output, demo.stderr as errors:
        for line in output:
            seen += line
            if found := re.match(r"Watch it in a browser:  (http://\S+/)", line):
                graph = graph_of_the_shop(found[1], demo)
        stderr = errors.read()
    assert demo.wait(800) == 0, seen + stderr
    assert graph is not None, seen
    assert graph[0] >= STREAM_TABLES, seen
    assert graph[1] >= STREAM_TABLES, seen
    assert "7 of 7 stream tables equal the result of their query in PostgreSQL" in seen
    assert "differential refreshes" in seen
    assert "full refreshes on spark" in seen  # the heavy one, from replicas
    assert re.search(r"^  open_orders +\d+ rows  [A-Z]+ +postgres ", seen, re.MULTILINE), seen
    assert re.search(r"^  ok +public.bought_together \(FULL; ", seen, re.MULTILINE), seen
    assert not list(Path(bare["HOME"]).glob("**/*.parquet"))  # replicas lie in the demo's own directory
    assert "log of pgtrickle run" not in seen, seen
    assert stderr == ""


@pytest.mark.slow
def test_demo_ends_with_a_verification_on_interrupt_and_leaves_no_process(bare: dict[str, str]) -> None:
    marker = f"DEMO_MARKER={os.getpid()}-{time.time_ns()}"
    name, _, value = marker.partition("=")
    demo = subprocess.Popen(
        [sys.executable, "-m", "pgtrickle.cli", "demo"],
        env={**bare, name: value, "PYTHONUNBUFFERED": "1"},
        stdout=subprocess.PIPE,
        text=True,
        cwd=bare["HOME"],
    )
    assert demo.stdout is not None
    seen = []
    with demo.stdout as output:
        for line in output:
            seen.append(line)
            if line.startswith("shop:"):
                demo.send_signal(signal.SIGINT)
                break
        seen += output.readlines()
    assert demo.wait(300) == 0, "".join(seen)
    assert "7 of 7 stream tables" in "".join(seen)
    assert descendants(marker) == []


def test_an_unsuitable_configured_java_is_one_line(bare: dict[str, str]) -> None:
    done = subprocess.run(
        [sys.executable, "-m", "pgtrickle.cli", "demo"],
        env={**bare, "PGTRICKLE_JAVA_HOME": "/nowhere", "DEMO_SECONDS": "1"},
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )
    assert done.returncode == 1
    assert done.stderr == (
        "pgtrickle: PGT100: java_home = /nowhere: there is no bin/java in it "
        "(hint: point it at a Java 17 or later, or unset it)\n"
    )


def test_make_demo_is_the_same_command(bare: dict[str, str]) -> None:
    assert (Path(bare["PATH"]) / "make").exists(), "the README's commands need make"
    done = subprocess.run(["make", "-n", "demo"], env=bare, cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.stdout.splitlines()[-1].strip() == ".venv/bin/pgtrickle demo"
