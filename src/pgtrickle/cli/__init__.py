"""The command line: one module per command, one-line errors, exit codes 0, 1, 2 and 75."""

from __future__ import annotations

import os
import sys

EXIT_REFUSED = 1
EXIT_TRY_AGAIN = 75


def main() -> None:
    """The `pgtrickle` command. Errors are printed as one line here, so that no command needs its own handling."""
    from pgtrickle.cli.app import app
    from pgtrickle.errors import PgtrickleError, TransientError

    try:
        app(prog_name="pgtrickle")
    except PgtrickleError as error:
        if _debugging():
            raise
        _print_error(error.one_line())
        # For a running fleet a missing database or role is a lost connection; on the command line it is a typing error.
        again = isinstance(error, TransientError) and not error.message.endswith(" does not exist")
        sys.exit(EXIT_TRY_AGAIN if again else EXIT_REFUSED)
    except BrokenPipeError:
        # The reader (head, a closed terminal) has gone; prevent an error message of the interpreter at exit.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        sys.exit(EXIT_REFUSED)
    except Exception as error:
        if _debugging():
            raise
        text = " ".join(str(error).split()) or type(error).__name__
        _print_error(f"{type(error).__name__}: {text} (hint: --debug prints the traceback)")
        sys.exit(EXIT_REFUSED)


def _debugging() -> bool:
    return "--debug" in sys.argv[1:] or os.environ.get("PGTRICKLE_DEBUG", "") not in ("", "0", "off")


def _print_error(line: str) -> None:
    from pgtrickle.telemetry import redact

    sys.stderr.write(f"pgtrickle: {redact(line)}\n")
