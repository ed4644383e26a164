"""Creates .venv and installs the project into it with the tested versions; one clear line when it cannot.

Runs on whatever Python the machine has, before anything is installed: standard library only, and it must parse on
a Python that is too old, in order to say so.
"""

import os
import shutil
import subprocess
import sys

NEEDED_MIB = 2500
# Extras of pyproject.toml that a target of the Makefile needs, and about how much is downloaded for them: the demo has
# no use for the tools of the tests.
MEGABYTES = {"demo": 500, "dev": 600}
ROOT = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
VENV = os.path.join(ROOT, ".venv")

# What pip says -> what to tell the person. First match wins.
CAUSES = (
    (("No space left on device", "Disk quota exceeded"), "the disk is full: free about 2.5 GB and run it again"),
    (
        (
            "Temporary failure in name resolution",
            "Name or service not known",
            "nodename nor servname",
            "Network is unreachable",
            "Connection refused",
            "NewConnectionError",
            "ConnectTimeout",
            "Read timed out",
            "ProxyError",
            "Max retries exceeded",
        ),
        "no network: the package index could not be reached; check the connection or your pip proxy and index settings",
    ),
    (
        ("SSLError", "CERTIFICATE_VERIFY_FAILED"),
        "the package index's certificate is not trusted; check your pip 'cert' setting",
    ),
    (
        ("No matching distribution found", "Could not find a version"),
        "no network, or a pinned version is not offered for this machine (tested: Linux, CPython 3.11 to 3.13)",
    ),
    (("Permission denied", "Read-only file system"), "this folder is not writable"),
)


def fail(message):
    sys.stderr.write("setup: " + message + "\n")
    sys.exit(1)


def explain(output):
    for needles, cause in CAUSES:
        if any(needle in output for needle in needles):
            return cause
    lines = [line for line in output.strip().splitlines() if line.strip()]
    errors = [line for line in lines if line.startswith("ERROR")]
    return (errors or lines or ["no output"])[-1].strip()


def run(what, command):
    """Shows progress while pip works and keeps its output for the diagnosis."""
    environment = dict(os.environ, PIP_DISABLE_PIP_VERSION_CHECK="1", PYTHONUTF8="1")
    environment.setdefault("PIP_RETRIES", "2")
    environment.pop("PYTHONPATH", None)
    environment.pop("PYTHONHOME", None)
    done = []
    try:
        process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, env=environment, cwd=ROOT)
        for raw in process.stdout:
            line = raw.decode("utf-8", "replace").rstrip()
            done.append(line)
            if line.startswith(("Collecting ", "Installing ", "Successfully ")):
                print("  " + line[:110])
                sys.stdout.flush()
        status = process.wait()
    except OSError as error:
        fail(what + " failed: " + str(error))
    if status != 0:
        fail(what + " failed: " + explain("\n".join(done)))


def main(extra="dev"):
    if extra not in MEGABYTES:
        fail("unknown extra " + extra + "; there are " + ", ".join(MEGABYTES))
    if sys.version_info < (3, 11):
        fail(
            "Python 3.11 or later is needed, this is %d.%d; install one and run: make %s PYTHON=python3.12"
            % (sys.version_info[0], sys.version_info[1], os.environ.get("MAKE_GOAL", "setup"))
        )
    free = shutil.disk_usage(ROOT).free // (1 << 20)
    python = os.path.join(VENV, "bin", "python")
    fresh = not os.path.exists(python)
    if fresh and free < NEEDED_MIB:
        fail("no disk: %d MiB free in this folder's file system, about %d MiB are needed" % (free, NEEDED_MIB))
    if fresh:
        try:
            import ensurepip  # noqa: F401  -- Debian ships venv without it
            import venv  # noqa: F401
        except ImportError:
            fail("Python's venv module is missing; on Debian and Ubuntu: apt install python3-venv")
        print("Creating .venv with Python %d.%d" % sys.version_info[:2])
        run("creating .venv", [sys.executable, "-m", "venv", "--clear", VENV])
    print("Installing pgtrickle and its dependencies (the first time about %d MB to download)" % MEGABYTES[extra])
    run(
        "installing",
        [python, "-m", "pip", "install", "-c", "constraints.txt", "-e", ".[" + extra + "]"],
    )


if __name__ == "__main__":
    main(*sys.argv[1:])
