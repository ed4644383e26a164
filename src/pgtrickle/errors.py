"""The error tree. It answers one question: who has to act?

Retry is decided by branch alone: only TransientError is retried. Every error has a stable code and, where it
helps, a hint; the command line prints both on one line.
"""

from __future__ import annotations

from collections.abc import Sequence

# SQLSTATEs of PostgreSQL that callers distinguish.
AUTHENTICATION_FAILED, NO_SUCH_DATABASE, NO_SUCH_ROLE = "28P01", "3D000", "28000"
NO_SUCH_FUNCTION = "42883"  # or operator


class PgtrickleError(Exception):
    """Root of all errors that this package raises on purpose."""

    code = "PGT000"

    def __init__(self, message: str, *, hint: str | None = None, sqlstate: str | None = None) -> None:
        super().__init__(message)
        self.message = message
        self.hint = hint
        self.sqlstate = sqlstate  # of the PostgreSQL error that it translates

    def one_line(self) -> str:
        text = f"{self.code}: {self.message}"
        if self.hint:
            text += f" (hint: {self.hint})"
        return " ".join(text.split())


class ConfigError(PgtrickleError):
    """The operator has to act: settings, environment, privileges of our own role, a missing Java."""

    code = "PGT100"


class CatalogVersionError(ConfigError):
    """A database's catalog has another version than this program needs: upgrade the one or the other."""

    code = "PGT101"


class DefinitionError(PgtrickleError):
    """The author of the query has to act."""

    code = "PGT200"


class SourceChangedError(DefinitionError):
    """A source's columns no longer fit the query."""

    code = "PGT202"


class RefusedError(DefinitionError):
    """Definitions in files that PostgreSQL refuses: all errors that can be found at once."""

    code = "PGT203"

    def __init__(self, errors: Sequence[PgtrickleError]) -> None:
        super().__init__("; ".join(error.message for error in errors), hint=errors[0].hint)
        self.errors = tuple(errors)


class LostPrivilegeError(DefinitionError):
    """The author has lost a privilege that the query needs: nothing is read until it is granted again."""

    code = "PGT204"


class SparkUnsupportedError(DefinitionError):
    """Spark cannot evaluate the query with exactly PostgreSQL's result: `construct` is not supported."""

    code = "PGT205"

    def __init__(self, construct: str, detail: str = "", *, hint: str | None = None) -> None:
        super().__init__(f"{construct} is not evaluated on Spark" + (f": {detail}" if detail else ""), hint=hint)
        self.construct = construct
        self.detail = detail


class TransientError(PgtrickleError):
    """Nobody has to act: the work is retried (connection lost, lock timeout, server starting)."""

    code = "PGT300"


class FencedError(TransientError):
    """Another worker committed this refresh first; nothing was written."""

    code = "PGT301"


class EngineLostError(TransientError):
    """Spark was lost or refused the job; no stream table is at fault and none is counted as failing."""

    code = "PGT302"


class OriginAwayError(TransientError):
    """A database that a stream table reads does not answer: its changes are kept there, nothing counts as failing."""

    code = "PGT304"


class LostRaceError(TransientError):
    """Another transaction wrote the same rows first, and nothing was written: retried, not counted as a failure."""

    code = "PGT305"


class ReplicaUnavailableError(TransientError):
    """A replica cannot be used now: it is being built, must be built first, or another process changes it."""

    code = "PGT306"


class OriginReplacedError(OriginAwayError):
    """Another database has the name of an origin: recreated, restored from a dump, or renamed. Or another table has the
    name of one that was dropped there. The tables of mirrors are searched there by name."""

    code = "PGT307"

    def __init__(self, message: str, *, hint: str | None = None, key: str = "", relid: int | None = None) -> None:
        super().__init__(message, hint=hint)
        self.key = key  # of the database that was there; empty: the caller knows it
        self.relid = relid  # of the table that was dropped; None: of all tables of the database


class InexactValueError(PgtrickleError):
    """A value is out of range in the evaluation of changes; in AUTO the refresh falls back to FULL, with the reason."""

    code = "PGT400"


class TooManyRowsError(PgtrickleError):
    """Few changes touch so many rows that the table is computed in FULL instead."""

    code = "PGT401"


class UnfitValueError(PgtrickleError):
    """The columnar type of a column cannot represent a value: the replica stores that column as text instead."""

    code = "PGT402"

    def __init__(self, column: str, *, hint: str | None = None) -> None:
        super().__init__(column, hint=hint)
        self.column = column


class TooFewKeptError(PgtrickleError):
    """Deletions leave too few stored rows of a LIMIT: the refresh is FULL."""

    code = "PGT403"


class InvariantError(PgtrickleError):
    """We have to act: a guarantee did not hold. The table is reinitialised and the event is recorded."""

    code = "PGT900"
