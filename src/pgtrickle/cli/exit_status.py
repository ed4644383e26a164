"""Exit statuses of the commands. docs/howto/command-line.md explains them to users."""

from __future__ import annotations

from typing import Final

DONE: Final = 0
FAILED: Final = 1
USAGE: Final = 2
CHANGES: Final = 2  # of `apply --plan`
TRY_AGAIN: Final = 75  # EX_TEMPFAIL of sysexits.h
INTERRUPTED: Final = 130  # 128 + SIGINT

MEANINGS: Final = {
    DONE: "Done. What was checked is in order.",
    FAILED: "Refused, failed, or not in order: a stream table in ERROR or SUSPENDED, a difference, a failed check, an "
    "error of the server.",
    USAGE: "Wrong usage: unknown command or option, missing argument. Of `apply --plan`: there are changes to apply.",
    TRY_AGAIN: "The same command may succeed later: the server does not answer, a lock was not available, a wait timed "
    "out.",
    INTERRUPTED: "Interrupted by Ctrl-C.",
}
