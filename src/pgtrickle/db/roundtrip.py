"""Runs several statements in one round trip, below the driver's cursors, which take 50 us of CPU each.

In a session of our own, a statement that is repeated is prepared, and so planned once. Only inside a transaction: an
error fails all statements, and the caller handles it.
"""

from __future__ import annotations

import time
from collections import OrderedDict
from collections.abc import Callable, Generator, Iterator, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from select import POLLIN, POLLOUT, poll
from typing import TYPE_CHECKING, Any, TypeAlias, TypeVar

import psycopg
from psycopg.adapt import Transformer
from psycopg.errors import error_from_result
from psycopg.pq import ConnStatus, ExecStatus, PipelineStatus, TransactionStatus

from pgtrickle.db.arrays import literal
from pgtrickle.errors import InvariantError

if TYPE_CHECKING:
    from psycopg.abc import PQGen
    from psycopg.pq.abc import PGconn, PGresult

# Prepared statements per session. A stream table has a handful, and a wave has dozens of tables.
MOST_PREPARED = 1_000
CHUNK_ROWS = 500  # of a result that is streamed to `on_rows`
_CANCEL_SECONDS = 5.0

Rows: TypeAlias = list[tuple[Any, ...]]
Result = TypeVar("Result")


@dataclass(frozen=True, slots=True)
class Query:
    """A statement with $1, $2 ... and their values. Their types are in the text, or the server can infer them."""

    text: str
    values: Sequence[Any] = ()
    is_kept: bool = True
    # A cached plan ignores growing tables until they are analysed; with another mark the statement is prepared again.
    mark: tuple[int, ...] = ()
    on_rows: Callable[[Rows], None] | None = None  # called with each chunk of rows; may raise if there are too many


@dataclass(frozen=True, slots=True)
class QueryResult:
    rows: Rows
    ms: float  # approximate time in the server


# Statements that depend on the results of earlier ones.
Steps: TypeAlias = Generator[Query, Rows, Result]


class OwnSession(psycopg.Connection[tuple[Any, ...]]):
    """A server session that is not shared through a pooler: prepared statements persist."""

    def __init__(self, *args: Any, **named: Any) -> None:
        super().__init__(*args, **named)
        self.prepared: OrderedDict[str, tuple[bytes, tuple[int, ...]]] = (
            OrderedDict()
        )  # names, least recently used first
        self.once: OrderedDict[int, None] = OrderedDict()  # hashes of statements that ran once
        self.unwanted: list[bytes] = []
        self._named = 0

    def _deallocate(self, name: bytes | None) -> PQGen[None]:
        """The driver deallocates all prepared statements after a DROP or a ROLLBACK, including ours."""
        if name is None:
            self.prepared.clear()
            self.unwanted.clear()
        return super()._deallocate(name)

    def name_for(self, ask: Query) -> tuple[bytes | None, bool]:
        """The name of the prepared statement, and whether it still has to be prepared. None: first execution."""
        text = ask.text
        name, mark = self.prepared.get(text, (None, ()))
        if name is not None:
            self.prepared.move_to_end(text)
            if mark == ask.mark:
                return name, False
            self.unwanted.append(name)
        elif hash(text) not in self.once:
            self.once[hash(text)] = None
            if len(self.once) > MOST_PREPARED:
                self.once.popitem(last=False)
            return None, False
        self._named += 1
        name = b"pgtrickle_%d" % self._named
        self.prepared[text] = (name, ask.mark)
        if len(self.prepared) > MOST_PREPARED:
            self.unwanted.append(self.prepared.popitem(last=False)[1][0])
        return name, True

    def failed(self, text: str) -> None:
        """Drops the prepared statement, because its meaning may have changed."""
        if text in self.prepared:
            self.unwanted.append(self.prepared.pop(text)[0])


def ask(conn: psycopg.Connection[Any], steps: Steps[Result]) -> Result:
    """Runs the statements one after the other."""
    ((result, _),) = ask_together(conn, [steps])
    return result


def ask_together(
    conn: psycopg.Connection[Any], several: Sequence[Steps[Result]], *, apart: bool = False
) -> list[tuple[Result, float]]:
    """Runs the first statements of all in one round trip, then the second ones, and so on. Returns each result with its
    time in ms, see `run_queries`."""
    results: dict[int, Result] = {}
    spent = [0.0] * len(several)
    asked: list[tuple[int, Query]] = []

    def go_on(position: int, rows: Rows | None) -> None:
        try:
            asked.append((position, next(several[position]) if rows is None else several[position].send(rows)))
        except StopIteration as end:
            results[position] = end.value

    for position in range(len(several)):
        go_on(position, None)
    while asked:
        now, asked = asked, []
        for (position, _), answer in zip(now, run_queries(conn, [a for _, a in now], apart=apart), strict=True):
            spent[position] += answer.ms
            go_on(position, answer.rows)
    return [(results[position], spent[position]) for position in range(len(several))]


def run_queries(conn: psycopg.Connection[Any], asks: Sequence[Query], *, apart: bool = False) -> list[QueryResult]:
    """Returns the result of each query. Raises the error of the first one that failed; the transaction has then failed.

    `apart`: the server sends each result as soon as it has it, which gives the time of each; otherwise the total time
    is divided equally.
    """
    if not asks:
        return []
    pgconn = conn.pgconn
    if pgconn.transaction_status != TransactionStatus.INTRANS:
        raise InvariantError("a batch of statements was sent outside a transaction")
    own = conn if isinstance(conn, OwnSession) else None
    pgconn.enter_pipeline_mode()
    try:
        messages = _send(pgconn, own, asks, apart=apart)
        stream = _results(pgconn, [m.ask.on_rows if m.ask is not None else None for m in messages])
        received = _Received(conn, messages)
        try:
            received.take(stream)
        except BaseException as error:
            _drain(conn, stream, is_over=isinstance(error, psycopg.Error))
            if own is not None:
                received.forget(own)
            raise
    finally:
        if pgconn.status == ConnStatus.OK:
            pgconn.exit_pipeline_mode()
    if own is not None:
        own.unwanted.clear()
    if apart:
        return list(_apart(messages))
    share = sum(m.ms for m in messages) / len(asks)
    return [QueryResult(m.rows, share) for m in messages if m.ask is not None]


@dataclass(slots=True)
class _Message:
    """A query; or, without one, a Parse or Close message."""

    ask: Query | None
    prepares: str | None = None
    rows: Rows = field(default_factory=list)
    ms: float = 0.0


def _apart(messages: Sequence[_Message]) -> Iterator[QueryResult]:
    """Adds the time of a Parse to its query: the server sends both results together."""
    preparing = 0.0
    for message in messages:
        if message.ask is None:
            preparing += message.ms
        else:
            yield QueryResult(message.rows, preparing + message.ms)
            preparing = 0.0


def _send(pgconn: PGconn, own: OwnSession | None, asks: Sequence[Query], *, apart: bool) -> list[_Message]:
    messages: list[_Message] = []
    for each in asks:
        values = [_dumped(value) for value in each.values]
        name, is_new = own.name_for(each) if own is not None and each.is_kept else (None, False)
        if name is None:
            pgconn.send_query_params(each.text.encode(), values)
        else:
            if is_new:
                pgconn.send_prepare(name, each.text.encode())
                messages.append(_Message(None, each.text))
            pgconn.send_query_prepared(name, values)
        messages.append(_Message(each))
        if apart:
            pgconn.send_flush_request()
    for name in own.unwanted if own is not None else ():
        pgconn.send_query_params(b"DEALLOCATE " + name, None)
        messages.append(_Message(None))
    pgconn.pipeline_sync()
    return messages


class _Received:
    """The results received so far."""

    def __init__(self, conn: psycopg.Connection[Any], messages: Sequence[_Message]) -> None:
        self._transformer = Transformer(conn)
        self._messages = messages
        self._place = 0

    def take(self, stream: Iterator[PGresult | None]) -> None:
        since = time.perf_counter()
        for result in stream:
            if result is None:
                now = time.perf_counter()
                self._messages[self._place].ms = (now - since) * 1000
                self._place, since = self._place + 1, now
                continue
            status = result.status
            if status == ExecStatus.FATAL_ERROR:
                raise error_from_result(result)
            if status != ExecStatus.PIPELINE_SYNC and result.ntuples:
                message = self._messages[self._place]
                assert message.ask is not None
                self._transformer.set_pgresult(result)
                rows = self._transformer.load_rows(0, result.ntuples, tuple)
                message.rows += rows
                if message.ask.on_rows is not None:
                    message.ask.on_rows(rows)

    def forget(self, own: OwnSession) -> None:
        """After an error: statements prepared before it persist, later ones do not."""
        at_fault = self._messages[self._place]
        if at_fault.ask is not None:
            own.failed(at_fault.ask.text)
        for message in self._messages[self._place :]:
            if message.prepares is not None:
                own.prepared.pop(message.prepares, None)


def _results(pgconn: PGconn, looks: Sequence[Callable[[Rows], None] | None]) -> Generator[PGresult | None]:
    """All results up to the Sync; None ends the results of each message."""
    line = poll()
    line.register(pgconn.socket, POLLIN)
    position = 0
    _in_parts(pgconn, looks[0])
    is_unsent = bool(pgconn.flush())
    while True:
        while pgconn.is_busy():
            if is_unsent:
                line.modify(pgconn.socket, POLLIN | POLLOUT)
            line.poll()
            pgconn.consume_input()
            if is_unsent and not (is_unsent := bool(pgconn.flush())):
                line.modify(pgconn.socket, POLLIN)
        result = pgconn.get_result()
        if result is None:
            position += 1
            if position < len(looks):
                _in_parts(pgconn, looks[position])
        yield result
        if result is not None and result.status == ExecStatus.PIPELINE_SYNC:
            return


def _in_parts(pgconn: PGconn, on_rows: Callable[[Rows], None] | None) -> None:
    if on_rows is None or pgconn.pipeline_status == PipelineStatus.ABORTED:  # then there are no rows
        return
    if psycopg.capabilities.has_stream_chunked():
        pgconn.set_chunked_rows_mode(CHUNK_ROWS)
    else:
        pgconn.set_single_row_mode()


def _drain(conn: psycopg.Connection[Any], stream: Iterator[PGresult | None], *, is_over: bool) -> None:
    """After an error, which it must not hide: makes the session usable, or closes it. `is_over`: the server failed."""
    try:
        if conn.pgconn.status == ConnStatus.OK:
            if not is_over:
                conn.cancel_safe(timeout=_CANCEL_SECONDS)
            for _ in stream:
                pass
    except (psycopg.Error, OSError):
        conn.close()


def _dumped(value: Any) -> bytes | None:
    if value is None:
        return None
    if isinstance(value, str):
        return value.encode()
    if isinstance(value, list | tuple):
        return literal(value).encode()
    if isinstance(value, bool):
        return b"t" if value else b"f"
    if isinstance(value, int | float):
        return str(value).encode()
    if isinstance(value, datetime):
        return value.isoformat().encode()
    raise InvariantError(f"a value of type {type(value).__name__} as a parameter")
