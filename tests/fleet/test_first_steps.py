"""The tutorial, step by step, on a control plane that runs as in a container: ordinary user, read-only file system."""

from __future__ import annotations

import os
import re
import shutil
import signal
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from urllib.error import HTTPError
from urllib.request import urlopen

import pytest

from pgtrickle.servers.embedded_postgres import EmbeddedPostgres
from pgtrickle.servers.server_process import free_port
from tests.conftest import Database, create_database
from tests.fleet.conftest import PATIENCE_S, wait_for

TUTORIAL = Path(__file__).parents[2] / "docs" / "tutorial.md"
USER = "10001"  # of deploy/container/Containerfile
# Everything is mounted read-only except the directory of temporary files, as `--read-only --tmpfs /tmp` does.
CONTAINED = """
set -e
mount --make-rprivate /
mount -t tmpfs -o mode=1777 tmpfs "$TMPDIR"
as_user="setpriv --reuid $CONTAINER_USER --regid $CONTAINER_USER --clear-groups --no-new-privs --bounding-set=-all"
if ! $as_user test -x "$INTERPRETER/bin"; then
    # It belongs to a Python in the home directory of root: shown alone, in a directory that the user may enter.
    top=/$(echo "$INTERPRETER" | cut -d/ -f2)
    mkdir "$TMPDIR/python"
    mount --bind "$INTERPRETER" "$TMPDIR/python"
    mount -t tmpfs -o mode=755 tmpfs "$top"
    mkdir -p "$INTERPRETER"
    mount --bind "$TMPDIR/python" "$INTERPRETER"
    umount "$TMPDIR/python"
fi
kept='^(proc|sysfs|devpts|cgroup2?|mqueue)$'
for place in $(awk '$2 !~ "^/dev" && $2 != ENVIRON["TMPDIR"] && $3 !~ "'$kept'" {print $2}' /proc/mounts); do
    mount -o remount,bind,ro "$place" 2>/dev/null || true
done
exec $as_user "$@"
"""


@pytest.fixture
def database(own_server: EmbeddedPostgres) -> Database:
    return create_database(own_server, "shop")


@pytest.fixture
def contained(database: Database, spark_url: str, tmp_path: Path) -> Iterator[tuple[subprocess.Popen[bytes], int]]:
    """`pgtrickle run` and its port."""
    if os.geteuid() != 0 or not shutil.which("unshare") or not shutil.which("setpriv"):
        pytest.skip("only root may make a mount namespace with unshare and setpriv")
    if subprocess.run(["unshare", "--mount", "true"], capture_output=True, check=False).returncode != 0:
        pytest.skip("this machine permits no mount namespace")
    if Path(sys.prefix).is_relative_to(Path(*Path(sys.base_prefix).parts[:2])):
        pytest.skip("the environment lies beside its Python, where an ordinary user may not go")
    port = free_port()
    temporary = Path(tempfile.mkdtemp(prefix="pgt-", dir="/tmp"))  # short: it has sockets, and pytest's are too long
    temporary.chmod(0o755)
    environ = {k: v for k, v in os.environ.items() if not k.startswith("PGTRICKLE_")}
    environ |= {
        "TMPDIR": str(temporary),
        "HOME": str(temporary),
        "CONTAINER_USER": USER,
        "INTERPRETER": sys.base_prefix,
        "PYTHONDONTWRITEBYTECODE": "1",
        "PGTRICKLE_SERVER": database.dsn,
        "PGTRICKLE_HTTP": f"127.0.0.1:{port}",
        "PGTRICKLE_SPARK_REMOTE": spark_url,
    }
    command = ["unshare", "--mount", "sh", "-c", CONTAINED, "sh", sys.executable, "-m", "pgtrickle.cli", "run"]
    with (tmp_path / "run.log").open("wb") as log:
        process = subprocess.Popen(command, env=environ, stdin=subprocess.DEVNULL, stdout=log, stderr=log)
    yield process, port
    if process.poll() is None:
        process.kill()
        process.wait(PATIENCE_S)
    shutil.rmtree(temporary, ignore_errors=True)


def status(port: int, path: str) -> int:
    try:
        with urlopen(f"http://127.0.0.1:{port}{path}", timeout=30) as response:
            return int(response.status)
    except HTTPError as error:
        return error.code
    except OSError:
        return 0


def pgtrickle(*arguments: str) -> str:
    done = subprocess.run(
        [sys.executable, "-m", "pgtrickle.cli", *arguments], capture_output=True, text=True, timeout=300, check=False
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def test_the_tutorial_works_with_an_ordinary_user_and_a_read_only_file_system(
    database: Database, contained: tuple[subprocess.Popen[bytes], int], tmp_path: Path
) -> None:
    process, port = contained
    text = TUTORIAL.read_text()
    assert "pgtrickle install postgresql://" in text
    pgtrickle("install", database.dsn)
    wait_for(lambda: process.poll() is not None or status(port, "/readyz") == 200)
    assert process.poll() is None, (tmp_path / "run.log").read_text()
    assert status(port, "/healthz") == 200
    (written,) = re.findall(
        r"^(?:Uid|CapEff):\s+(\S+).*\n(?:.*\n)*?CapEff:\s+(\S+)", state_of(process.pid), re.MULTILINE
    )
    assert written == (USER, "0" * 16)
    psql = database.server.program("psql")
    blocks = re.findall(r"```sql\n(.*?)```", text, re.DOTALL)
    assert blocks
    for block in blocks:
        done = subprocess.run(
            [psql, "-X", "-v", "ON_ERROR_STOP=1", database.dsn],
            input=block,
            capture_output=True,
            text=True,
            timeout=300,
            check=False,
        )
        assert done.returncode == 0, done.stderr
    wanted = database.sql("SELECT region, count(*), sum(amount) FROM orders GROUP BY region ORDER BY 1")
    assert ("west", 1) in [row[:2] for row in wanted]
    wait_for(lambda: database.sql("SELECT region, orders, total FROM sales ORDER BY 1") == wanted)
    for command, shown in (("plan sales", "Scan public.orders"), ("verify --all", "public.sales")):
        assert f"`pgtrickle {command} --server ...`" in text
        assert shown in pgtrickle(*command.split(), "--server", database.dsn)
    for call in re.findall(r"`SELECT \* FROM (pgtrickle\.\w+\('sales'\))`", text):
        assert database.sql(f"SELECT * FROM {call}")
    process.send_signal(signal.SIGTERM)
    assert process.wait(PATIENCE_S) == 0, (tmp_path / "run.log").read_text()


def state_of(pid: int) -> str:
    return Path(f"/proc/{pid}/status").read_text()
