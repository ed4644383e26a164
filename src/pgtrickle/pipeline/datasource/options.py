"""The options of the data source, and the sessions that it opens with them."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from pgtrickle.db.connect import TRANSACTION, connect, translated, with_password
from pgtrickle.errors import ConfigError, PgtrickleError

if TYPE_CHECKING:
    from pgtrickle.db.connect import Connection

KNOWN = ("dsn", "password", "table", "columns", "pushFilters", "subscriber", "maxRowsPerBatch")
MAX_BATCH_ROWS = 2**31 - 1


class DataSourceError(Exception):
    """What Spark shows of an error of ours: its code, message and hint, and nothing of the session."""


@dataclass(frozen=True, slots=True)
class Options:
    """`columns` empty: all of them. `subscriber` empty: none was given."""

    dsn: str = field(repr=False)
    password: str = field(repr=False)
    table: str
    columns: tuple[str, ...]
    push_filters: bool
    subscriber: str
    max_rows: int

    @classmethod
    def of(cls, given: Mapping[str, str]) -> Options:
        """Of Spark's options, whose names are in lower case, or in any."""
        options = {name.lower(): value for name, value in given.items()}
        if unknown := sorted(options.keys() - {name.lower() for name in KNOWN} - {"path"}):
            raise ConfigError(f"unknown option {unknown[0]}", hint=f"the options are {', '.join(KNOWN)}")
        for name in ("dsn", "table"):
            if not options.get(name):
                raise ConfigError(f"option {name} is missing", hint=f'.option("{name}", ...)')
        return cls(
            dsn=options["dsn"],
            password=options.get("password", ""),
            table=options["table"],
            columns=tuple(name.strip() for name in options.get("columns", "").split(",") if name.strip()),
            push_filters=_boolean("pushFilters", options.get("pushfilters", "false")),
            subscriber=options.get("subscriber", ""),
            max_rows=_number("maxRowsPerBatch", options.get("maxrowsperbatch", "100000")),
        )

    @contextmanager
    def session(self) -> Iterator[Connection]:
        """As the role of the DSN, whose privileges apply; behind any pooler. Statements commit one by one."""
        with reporting():
            dsn = with_password(self.dsn, self.password) if self.password else self.dsn
            conn = connect(
                dsn, role="spark", autocommit=True, pooler=TRANSACTION, pins={"timezone": "UTC"}, as_service=False
            )
            with conn, translated():
                yield conn


@contextmanager
def reporting() -> Iterator[None]:
    """Errors of ours leave this block as text, without a trace in which a password could stand."""
    try:
        yield
    except PgtrickleError as error:
        raise DataSourceError(error.one_line()) from None


def _boolean(name: str, text: str) -> bool:
    if text.lower() not in ("true", "false"):
        raise ConfigError(f"option {name} is true or false, not {text!r}")
    return text.lower() == "true"


def _number(name: str, text: str) -> int:
    if not text.isdecimal() or not 1 <= int(text) <= MAX_BATCH_ROWS:
        raise ConfigError(f"option {name} is a number from 1 to {MAX_BATCH_ROWS}, not {text!r}")
    return int(text)
