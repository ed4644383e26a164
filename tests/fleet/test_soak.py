"""Many databases for a long time: changes, loads, DDL and kills. What the product holds does not grow: memory, file
descriptors, sessions, change buffers, disk. Logs are appended to, so what counts is how much per second.

SOAK_MINUTES (default 60) says how long. A plot and its numbers are written to SOAK_OUTPUT (default `build`): soak.png
and soak.json.
"""

from __future__ import annotations

import json
import os
import random
import signal
import statistics
import tempfile
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

import psycopg
import pytest

from pgtrickle.servers.embedded_postgres import EmbeddedPostgres
from tests.conftest import prepare_server
from tests.fleet.conftest import Run, Small, make_small, wait_for
from tests.postgres.test_cli_commands import pgtrickle

MINUTES = float(os.environ.get("SOAK_MINUTES", "60"))
DATABASES = 20
SAMPLE_SECONDS = 5.0
SEED = 20261118
# What may come on top of the median of the first third: caches that fill, a moment of many changes.
ALLOWED = {
    "memory_mb": 1.15, "descriptors": 1.15, "sessions": 1.2, "buffer_mb": 1.5, "disk_mb": 1.3, "log_kb_per_second": 1.5,
}  # fmt: skip
SLACK = {
    "memory_mb": 60.0, "descriptors": 30.0, "sessions": 8.0, "buffer_mb": 80.0, "disk_mb": 100.0,
    "log_kb_per_second": 20.0,
}  # fmt: skip
# Where `pgtrickle run` stores templates (cache), replicas (state) and temporary files: a folder for each, of this test.
FOLDERS = {"XDG_CACHE_HOME": "cache", "XDG_STATE_HOME": "state", "TMPDIR": "tmp"}
DDL = (
    "ALTER TABLE t ADD COLUMN IF NOT EXISTS extra int",
    "ALTER TABLE t DROP COLUMN IF EXISTS extra",
    "ALTER TABLE t ALTER v SET DEFAULT 1",
    "CREATE INDEX IF NOT EXISTS t_k ON t (k)",
    "DROP INDEX IF EXISTS t_k",
    "ALTER TABLE t RENAME TO renamed; ALTER TABLE renamed RENAME TO t",
    "SELECT pgtrickle.repair_stream_table('s')",
    "SELECT pgtrickle.create_or_replace_stream_table('more', 'SELECT k, count(*) AS n FROM t GROUP BY k')",
    "SELECT pgtrickle.drop_stream_table('more')",
    "TRUNCATE t",
)


@dataclass(frozen=True, slots=True)
class Sample:
    seconds: float
    memory_mb: float
    descriptors: int
    sessions: int
    buffer_mb: float
    disk_mb: float
    log_kb_per_second: float


def occupied(*places: Path) -> int:
    """Bytes of all files below; files come and go meanwhile."""
    size = 0
    for place in places:
        for folder, _, names in os.walk(place):
            for name in names:
                with suppress(OSError):
                    size += Path(folder, name).lstat().st_size
    return size


def sampled(run: Run, server: EmbeddedPostgres, databases: Sequence[Small], own: Path, seconds: float) -> Sample:
    """`own`: the parent of FOLDERS."""
    memory = descriptors = 0
    for pid in run.processes():
        with suppress(OSError):
            pages = Path(f"/proc/{pid}/smaps_rollup").read_text()
            memory += int(next(line for line in pages.splitlines() if line.startswith("Pss:")).split()[1])
            descriptors += sum(1 for _ in Path(f"/proc/{pid}/fd").iterdir())
    buffers = sum(
        int(each.sql("SELECT coalesce(sum(pg_total_relation_size(c.oid)), 0)::int8 FROM pg_class AS c "
                     "WHERE c.relnamespace = 'pgtrickle_changes'::regnamespace AND c.relname ~ '^changes_'")[0][0])
        for each in databases
    )  # fmt: skip
    sessions = databases[0].sql("SELECT count(*) FROM pg_stat_activity WHERE application_name ~ '^pgtrickle/'")[0][0]
    disk = occupied(server.data, own)  # with WAL
    log = sum(path.stat().st_size for path in (run.log, server.log)) / max(seconds, 60.0)
    return Sample(seconds, memory / 1024, descriptors, int(sessions), buffers / 2**20, disk / 2**20, log / 2**10)


def grown(samples: Sequence[Sample]) -> dict[str, tuple[float, float]]:
    """What is larger at the end than it may be: median of the first and of the last third."""
    third = max(1, len(samples) // 3)
    found = {}
    for name in ALLOWED:
        before = statistics.median(getattr(s, name) for s in samples[:third])
        after = statistics.median(getattr(s, name) for s in samples[-third:])
        if after > before * ALLOWED[name] + SLACK[name]:
            found[name] = (before, after)
    return found


@pytest.mark.parametrize(
    ("name", "first", "last"),
    [
        ("memory_mb", 600.0, 1000.0),
        ("descriptors", 460, 700),
        ("sessions", 60, 100),
        ("buffer_mb", 8.0, 200.0),
        ("disk_mb", 310.0, 700.0),
        ("log_kb_per_second", 10.0, 70.0),
    ],
)
def test_growth_is_found(name: str, first: float, last: float) -> None:
    flat = Sample(
        seconds=0.0, memory_mb=600.0, descriptors=460, sessions=60, buffer_mb=8.0, disk_mb=310.0, log_kb_per_second=10.0
    )
    steps = 30

    def sample(number: int, value: float) -> Sample:
        changed: dict[str, Any] = {"seconds": 5.0 * number, name: value}
        return replace(flat, **changed)

    samples = [sample(i, first + (last - first) * i / (steps - 1)) for i in range(steps)]
    assert list(grown(samples)) == [name]
    # Caches that fill, and a moment of much work, are no growth.
    noisy = [sample(i, last if i in (12, 29) else first * (1 + 0.03 * (i % 4))) for i in range(steps)]
    assert grown(noisy) == {}


def test_every_file_is_counted(tmp_path: Path) -> None:
    for name, size in (("data/pg_wal/1", 1000), ("data/base/5/2", 200), ("own/tmp/spool", 30), ("own/cache/a/b", 4)):
        path = tmp_path / name
        path.parent.mkdir(parents=True)
        path.write_bytes(b"x" * size)
    (tmp_path / "own/gone").symlink_to(tmp_path / "nowhere")
    assert occupied(tmp_path / "data", tmp_path / "own") == 1234 + len(str(tmp_path / "nowhere"))
    assert occupied(tmp_path / "nowhere") == 0


def draw(samples: Sequence[Sample], path: Path) -> None:
    from matplotlib.figure import Figure

    figure = Figure(figsize=(9, 11), dpi=100, layout="constrained")
    for number, name in enumerate(ALLOWED, start=1):
        axes = figure.add_subplot(len(ALLOWED), 1, number)
        axes.plot([s.seconds / 60 for s in samples], [getattr(s, name) for s in samples])
        axes.set_ylim(bottom=0)
        axes.set_ylabel(name)
    axes.set_xlabel("minutes")
    figure.savefig(path)


def disturb(rng: random.Random, run: Run, databases: Sequence[Small]) -> None:
    """One of what happens to a fleet."""
    one = rng.choice(databases)
    chance = rng.random()
    with suppress(
        psycopg.Error, ProcessLookupError
    ):  # DDL may lose a race with other DDL; the end of the test says whether all is right
        if chance < 0.80:
            one.sql(f"INSERT INTO t SELECT i % 7, i FROM generate_series(1, {rng.choice((1, 10, 500))}) AS i")
            one.sql("UPDATE t SET v = v + 1 WHERE k = %s", rng.randrange(7))
            one.sql("DELETE FROM t WHERE ctid IN (SELECT ctid FROM t OFFSET 2000)")
        elif chance < 0.98:
            one.sql(rng.choice(DDL))
        else:
            pid = one.pid(rng.choice(("scheduler", "scheduler", "pipeline")))
            if pid:
                os.kill(pid, signal.SIGKILL)


@pytest.mark.soak
@pytest.mark.slow
@pytest.mark.timeout(int(MINUTES * 60) + 1800)
def test_what_the_product_holds_does_not_grow(spark_url: str, make_run: Callable[..., Run], tmp_path: Path) -> None:
    rng = random.Random(SEED)
    output = Path(os.environ.get("SOAK_OUTPUT", "build"))
    output.mkdir(exist_ok=True)
    # WAL reaches its limit within the first minutes.
    wal = {"max_wal_size": "96MB", "min_wal_size": "64MB", "checkpoint_timeout": "30s"}
    server = EmbeddedPostgres.create(settings={"fsync": "off", "max_connections": "200", **wal})
    # Sockets are among the temporary files, and their paths have to be short.
    with server, tempfile.TemporaryDirectory(prefix="soak-") as own:
        prepare_server(server)
        first = make_small(server, "soak0")
        first.database.close()
        others = [make_small(server, f"soak{i}", template=first.name) for i in range(1, DATABASES)]
        databases = [first, *others]
        run = make_run(server.dsn(user="app", password="app"), spark_url)
        for variable, folder in FOLDERS.items():
            (Path(own) / folder).mkdir()
            run.environ[variable] = str(Path(own) / folder)
        run.start(scheduler_interval_ms=500)
        for each in databases:
            wait_for(each.is_current)
        began, samples = time.monotonic(), []
        due = 0.0
        while (now := time.monotonic() - began) < MINUTES * 60:
            disturb(rng, run, databases)
            if now >= due:
                samples.append(sampled(run, server, databases, Path(own), now))
                due = now + SAMPLE_SECONDS
            time.sleep(0.02)
        (output / "soak.json").write_text(json.dumps([asdict(s) for s in samples]))
        draw(samples, output / "soak.png")
        for each in databases:
            wait_for(each.is_current)
        broken = [
            (each.name, each.sql("SELECT pgt_name, status, last_error_message FROM pgtrickle.pgt_stream_tables"))
            for each in databases
            if each.sql(
                "SELECT count(*) FROM pgtrickle.pgt_stream_tables WHERE status NOT IN ('ACTIVE', 'INITIALIZING')"
            )
            != [(0,)]
        ]
        assert broken == []
        for each in databases:
            done = pgtrickle("verify", "--all", "--server", each.database.dsn)
            assert done.returncode == 0, done.stdout + done.stderr
        assert run.traceback() == ""
        assert grown(samples) == {}
        assert run.end()[0] == 0
        for each in databases:
            each.database.close()
