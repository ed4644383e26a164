"""The command line: one module per command, one-line errors, exit statuses as in exit_status.py."""

from __future__ import annotations

import os
import sys

from pgtrickle.cli.exit_status import FAILED, TRY_AGAIN


def main() -> None:
    """The `pgtrickle` command. Errors are printed as one line here, so that no command needs its own handling."""
    from pgtrickle.cli.app import app
    from pgtrickle.errors import NO_SUCH_DATABASE, NO_SUCH_ROLE, PgtrickleError, TransientError

    try:
        app(prog_name="pgtrickle")
    except PgtrickleError as error:
        if _debugging():
            raise
        _print_error(error.one_line())
        # For a running fleet a missing database or role is a lost connection; on the command line it is a typing error.
        again = isinstance(error, TransientError) and error.sqlstate not in (NO_SUCH_DATABASE, NO_SUCH_ROLE)
        sys.exit(TRY_AGAIN if again else FAILED)
    except BrokenPipeError:
        # The reader (head, a closed terminal) has gone; prevent an error message of the interpreter at exit.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        sys.exit(FAILED)
    except Exception as error:
        if _debugging():
            raise
        text = " ".join(str(error).split()) or type(error).__name__
        _print_error(f"{type(error).__name__}: {text} (hint: --debug prints the traceback)")
        sys.exit(FAILED)


def _debugging() -> bool:
    return "--debug" in sys.argv[1:] or os.environ.get("PGTRICKLE_DEBUG", "") not in ("", "0", "off")


def _print_error(line: str) -> None:
    from pgtrickle.telemetry import COMMAND_FAILED, event, logs_json, redact

    if logs_json():
        import logging

        logging.getLogger(__name__).error(redact(line), extra=event(COMMAND_FAILED))
    else:
        sys.stderr.write(f"pgtrickle: {redact(line)}\n")
