"""Connections with pinned settings, and the one place that turns SQLSTATEs into our errors.

Settings are pinned after connecting, not by the `options` startup parameter, which poolers refuse: for the session, or
for each transaction behind a pooler (db/pooled.py). Only if a timeout of the role or the database is
so short that it cancels the pinning itself, it must be disabled there.
"""

from __future__ import annotations

import os
import re
import socket
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from json import JSONDecoder
from typing import Any, TypeAlias

import psycopg
from psycopg.conninfo import conninfo_to_dict, make_conninfo
from psycopg.types.json import set_json_loads

from pgtrickle.db.arrays import ListDumper
from pgtrickle.db.pooled import PooledConnection, PooledCursor, SessionPooledConnection
from pgtrickle.db.roundtrip import OwnSession
from pgtrickle.errors import (
    AUTHENTICATION_FAILED,
    NO_SUCH_DATABASE,
    NO_SUCH_ROLE,
    ConfigError,
    DefinitionError,
    InexactValueError,
    InvariantError,
    LostRaceError,
    PgtrickleError,
    SourceChangedError,
    TransientError,
)

Connection: TypeAlias = psycopg.Connection[tuple[Any, ...]]

# The type of pooler between us and the server: the values of connection_pooler_mode.
OFF, SESSION, TRANSACTION = "off", "session", "transaction"
_KINDS: Mapping[str, type[Connection]] = {
    OFF: OwnSession,
    SESSION: SessionPooledConnection,
    TRANSACTION: PooledConnection,
}

# The path of PostgreSQL's maintenance commands: with an empty path temporary objects would be found first.
SAFE_PATH = "pg_catalog, pg_temp"

# name, value, first server version with this setting
_PINNED: tuple[tuple[str, str, int], ...] = (
    ("client_encoding", "UTF8", 0),
    ("array_nulls", "on", 0),  # off turns the NULLs of our array parameters into texts
    ("default_transaction_isolation", "read committed", 0),
    ("default_transaction_read_only", "off", 0),
    ("datestyle", "ISO, MDY", 0),
    ("intervalstyle", "postgres", 0),
    ("extra_float_digits", "1", 0),
    ("bytea_output", "hex", 0),
    ("search_path", SAFE_PATH, 0),
    ("standard_conforming_strings", "on", 0),
    ("quote_all_identifiers", "off", 0),
    ("statement_timeout", "0", 0),
    ("lock_timeout", "0", 0),
    ("idle_in_transaction_session_timeout", "0", 0),
    ("idle_session_timeout", "0", 140000),
    ("transaction_timeout", "0", 170000),
)


# The statement of a process that was killed ends soon, and its locks with it: without this it would run to its end.
# A server on Windows cannot tell that a client has gone, and refuses the setting.
_CHECK_CLIENT = """
    CASE WHEN pg_catalog.version() !~* 'visual c|msvc|mingw|windows'
         THEN pg_catalog.set_config('client_connection_check_interval', '5s', false) END
"""
_CHECKS_CLIENTS = 140000  # the first server version with this setting

# By it the trigger of stream tables that refuses direct writes (install/define/protect.sql) knows our sessions.
_APPLIES = {"pgtrickle.applies": "on"}

# For sessions that run the same statements with a few values each: planned once, as if for ten values. The server
# would otherwise plan each of them five times, which takes longer than running it.
PLANS_KEPT = {"plan_cache_mode": "force_generic_plan"}
MOST_PLANNED_AHEAD = 256  # values of an array; a longer array gets its own plan

_DECODER = JSONDecoder()
_TIMED_OUT = {
    "57014": "-c statement_timeout=0",
    "25P04": "-c transaction_timeout=0",
    "57P05": "-c idle_session_timeout=0",
}
_SHORT_MS = 200  # each transaction behind a pooler begins with our settings, and must reach that point


# If the objects of pgtrickle belong to a service role to which this session may SET ROLE, it does: what a
# superuser's session runs by mistake, or is made to run, has the service role's privileges only.
_SERVICE_ROLE = """
    SELECT r.rolname
    FROM pg_catalog.pg_namespace AS n
    JOIN pg_catalog.pg_roles AS r ON r.oid = n.nspowner
    WHERE n.nspname = 'pgtrickle' AND NOT r.rolsuper AND r.rolname <> session_user
      AND pg_catalog.pg_has_role(session_user, r.oid, '{}')
"""


def connect(
    dsn: str,
    *,
    role: str,
    autocommit: bool = False,
    pooler: str = OFF,
    pins: Mapping[str, str] | None = None,
    as_service: bool = True,
) -> Connection:
    """A session of pgtrickle. `role` is its purpose (scheduler, pipeline...), shown in application_name.

    `pooler`: the type of pooler. TRANSACTION always works and costs some microseconds per transaction: for
    callers that do not know the mode. `pins`: additional or different settings of this session. `as_service`: as
    the service role if we may SET ROLE to it; otherwise as the role of the DSN, like authors.
    """
    with translated():
        _require_valid(dsn)
        for _ in _TIMED_OUT:
            try:
                return _connect(dsn, role, autocommit, pooler, pins or {}, as_service)
            except psycopg.Error as error:
                options = error.options if isinstance(error, _CutOffError) else _TIMED_OUT.get(error.sqlstate or "")
                if not options:
                    raise
                given = conninfo_to_dict(dsn).get("options") or ""
                dsn = make_conninfo(dsn, options=f"{given} {options}".strip())
        return _connect(dsn, role, autocommit, pooler, pins or {}, as_service)


def with_password(dsn: str, password: str) -> str:
    """The connection string with another password."""
    _require_valid(dsn)
    return make_conninfo(dsn, password=password)


def _require_valid(dsn: str) -> None:
    try:
        conninfo_to_dict(dsn)
    except psycopg.ProgrammingError as error:
        reason = " ".join(str(error).split())
        raise ConfigError(
            f"invalid connection string: {reason}", hint="write postgresql://user@host/database"
        ) from None


def _json(data: str | bytes) -> Any:
    """Parses JSON without checking the encoding, which takes as long as parsing."""
    return _DECODER.decode(data if isinstance(data, str) else data.decode())


class _CutOffError(psycopg.OperationalError):
    """The server ended the session before its first statement, and its message is lost: it may be a short time-out."""

    def __init__(self, message: str, version: int) -> None:
        super().__init__(message)
        known = ["25P04"] * (version >= 170000) + ["57P05"] * (version >= 140000)
        self.options = " ".join(_TIMED_OUT[code] for code in known)


def _connect(
    dsn: str, role: str, autocommit: bool, pooler: str, pins: Mapping[str, str], as_service: bool
) -> Connection:
    conn = _KINDS[pooler].connect(
        # Poolers keep the encoding per client, from its first message on; the driver has to know it, too.
        make_conninfo(dsn, client_encoding="UTF8") if pooler == TRANSACTION else dsn,
        autocommit=True,
        application_name=f"pgtrickle/{role}",
        connect_timeout=10,
        keepalives=1,
        keepalives_idle=30,
        keepalives_interval=10,
        keepalives_count=3,
        tcp_user_timeout=60000,
        # Statements that the driver prepares stay in the session, under names that other clients use as well.
        prepare_threshold=5 if pooler == OFF else None,
        cursor_factory=PooledCursor if pooler == TRANSACTION else None,
    )
    conn.adapters.register_dumper(list, ListDumper)
    set_json_loads(_json, conn)
    try:
        settings = {name: value for name, value, since in _PINNED if conn.info.server_version >= since} | dict(pins)
        find_role = _SERVICE_ROLE.format("SET" if conn.info.server_version >= 160000 else "MEMBER")
        if as_service:
            settings |= _APPLIES
        if "role" in pins or not as_service:
            find_role = ""
        if isinstance(conn, PooledConnection):
            _check_time_outs(conn)
            del settings["client_encoding"]
            if find_role:
                row = psycopg.Cursor(conn).execute(find_role).fetchone()
                settings |= {} if row is None else {"role": row[0]}
            conn.pin(settings)
            return conn
        calls = ["pg_catalog.set_config(%s, %s, false)" for _ in settings]
        if conn.info.server_version >= _CHECKS_CLIENTS:
            calls.append(_CHECK_CLIENT)
        if find_role:
            calls.append(f"(SELECT pg_catalog.set_config('role', s.rolname, false) FROM ({find_role}) AS s)")
        values = [item for pin in settings.items() for item in pin]
        conn.execute(f"SELECT {', '.join(calls)}", values, prepare=False)
        conn.autocommit = autocommit
    except psycopg.OperationalError as error:
        is_lost, version = conn.broken, conn.info.server_version
        conn.close()
        if is_lost and error.sqlstate is None:
            raise _CutOffError(str(error), version) from error
        raise
    except BaseException:
        conn.close()
        raise
    return conn


def _check_time_outs(conn: PooledConnection) -> None:
    """Raises the error that the server would raise later."""
    names = "('statement_timeout'), ('transaction_timeout'), ('idle_session_timeout')"
    text = f"SELECT pg_catalog.current_setting(n, true) FROM (VALUES {names}) AS names (n)"
    errors: tuple[type[psycopg.Error], ...] = (
        psycopg.errors.QueryCanceled,
        psycopg.errors.TransactionTimeout,
        psycopg.errors.IdleSessionTimeout,
    )
    for error, (value,) in zip(errors, psycopg.Cursor(conn).execute(text).fetchall(), strict=True):
        if value is not None and value.endswith("ms") and int(value[:-2]) < _SHORT_MS:
            raise error(f"a time-out of {value} is too short")


def pooler_of(conn: Connection) -> str:
    """The mode that the session was opened for."""
    return next((mode for mode in (TRANSACTION, SESSION) if isinstance(conn, _KINDS[mode])), OFF)


def backend_pid(conn: Connection) -> int | None:
    """As in pg_stat_activity. Clients of a transaction pooler have no backend of their own."""
    return None if isinstance(conn, PooledConnection) else conn.info.backend_pid


def cut_off(conn: Connection) -> None:
    """Closes a session whose server does not answer. The thread that waits for it gets a transient error."""
    try:
        with socket.socket(fileno=os.dup(conn.fileno())) as line:
            line.shutdown(socket.SHUT_RDWR)
    except (OSError, psycopg.Error):
        pass  # it has ended by itself


def begin(conn: Connection, how: str, *, snapshot: str | None = None) -> None:
    """A transaction that COMMIT or rollback() ends. `snapshot`: one that another session has exported."""
    if isinstance(conn, PooledConnection):
        conn.begin(how, snapshot=snapshot)
    else:
        # Takes no parameter; the server named it.
        conn.execute(f"BEGIN {how}" + ("" if snapshot is None else f"; SET TRANSACTION SNAPSHOT '{snapshot}'"))


@contextmanager
def at_snapshot(conn: Connection, snapshot: str) -> Iterator[None]:
    """A transaction at a snapshot that another session exported; commits at the end."""
    begin(conn, "ISOLATION LEVEL REPEATABLE READ READ WRITE", snapshot=snapshot)
    try:
        yield
        conn.execute("COMMIT")
    finally:
        if not conn.closed:
            conn.rollback()


def plan_for_many(conn: Connection) -> None:
    """Until the transaction ends, statements are planned for their actual values (see PLANS_KEPT)."""
    conn.execute("SET LOCAL plan_cache_mode = auto")


def outside(conn: Connection, text: str) -> None:
    """A statement that cannot run in a transaction, such as CREATE INDEX CONCURRENTLY. `conn` is in autocommit
    mode; behind a transaction pooler the current settings of the session apply."""
    if isinstance(conn, PooledConnection):
        conn.outside(text)
    else:
        conn.execute(text)


def chunk_size() -> int:
    """Rows per chunk of a streamed result: one if libpq is older than PostgreSQL 17."""
    return 500 if psycopg.capabilities.has_stream_chunked() else 1


_MISSING = frozenset({"42P01", "42703", "42883", "42704", "3F000", "42P10", "42804", "42846"})
_OUT_OF_RANGE = frozenset({"22003", "22008", "22009", "22P03", "22P05", "2200H"})
_TRANSIENT = frozenset(
    {
        "40P01",
        "40003",
        "55P03",
        "55006",
        "57014",
        "57P01",
        "57P02",
        "57P03",
        "57P05",
        "25006",
        "25P03",
        "25P04",
    }
)
_TRANSIENT_CLASSES = ("08", "53", "58")
# internal errors that mean "concurrent DDL"
_RACES = ("tuple concurrently", "cache lookup failed", "could not open relation", "cached plan must not change")


def translate(exc: psycopg.Error) -> PgtrickleError:
    """Our error for a driver error; the class follows from its SQLSTATE alone."""
    state = exc.sqlstate
    diag = exc.diag
    message = " ".join((diag.message_primary or str(exc) or type(exc).__name__).split())
    hint = diag.message_hint
    kind: type[PgtrickleError]
    if state is None:
        # No answer from a server: refused, lost, or misuse of the driver.
        lost = isinstance(exc, psycopg.OperationalError | psycopg.InterfaceError)
        kind = TransientError if lost else InvariantError
        state = _refused_state(message)
        if state == AUTHENTICATION_FAILED:
            kind = ConfigError
        return kind(message, hint=hint, sqlstate=state)
    message = f"{message} [{state}]"
    if state == "40001":
        kind = LostRaceError
    elif state in _TRANSIENT or state[:2] in _TRANSIENT_CLASSES or any(race in message for race in _RACES):
        kind = TransientError
    elif state[:2] in ("28", "3D") or state == "42501":
        kind = ConfigError
    elif state in _MISSING:
        kind = SourceChangedError
    elif state in _OUT_OF_RANGE:
        kind = InexactValueError
    elif state[:2] in ("XX", "26", "34", "24", "25", "2D", "3B"):
        kind = InvariantError
    else:
        # 42* and 0A: the text; 22*, 23*, 54*, P0001: what the query does with its data
        kind = DefinitionError
    return kind(message, hint=hint, sqlstate=state)


def detail_of(error: PgtrickleError) -> str | None:
    """The detail that PostgreSQL gave with an error that was translated."""
    return error.__cause__.diag.message_detail if isinstance(error.__cause__, psycopg.Error) else None


def without_values(error: PgtrickleError) -> str:
    """The message without values of rows, which PostgreSQL quotes in errors of class 22 (data exception): instead the
    name of the state, in words."""
    state = error.sqlstate
    if state is None or not state.startswith("22"):
        return error.message
    try:
        name = psycopg.errors.lookup(state).__name__
    except KeyError:
        name = "DataException"
    words = re.sub(r"(?<!^)(?=[A-Z])", " ", name).lower()
    return f"{words} [{state}]"


def _refused_state(message: str) -> str | None:
    """Why a server refused a connection. The driver provides only the message, without its SQLSTATE."""
    if "password authentication failed" in message or "no password supplied" in message:
        return AUTHENTICATION_FAILED
    if message.endswith(" does not exist"):
        return NO_SUCH_ROLE if 'role "' in message else NO_SUCH_DATABASE
    return None


@contextmanager
def translated() -> Iterator[None]:
    """Translates driver errors that leave this block."""
    try:
        yield
    except psycopg.Error as exc:
        raise translate(exc) from exc
