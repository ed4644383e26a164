"""Runs a case through the line: all its queries as stream tables of one database, one turn per round of changes.

After each turn every table is compared with its query, both ways, by PostgreSQL itself; and its history with the mode
that it claims. A table is created DIFFERENTIAL; when that is refused the reason is kept and AUTO takes over.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from typing import Any
from unittest.mock import patch

import psycopg
from psycopg import sql

from pgtrickle.errors import PgtrickleError
from pgtrickle.model.reasons import NotDifferentiableError
from pgtrickle.pipeline.differentiate import states
from pgtrickle.pipeline.render import statement_cache
from pgtrickle.pipeline.templates import template as templates
from pgtrickle.pipeline.templates import topk
from pgtrickle.refresh import deltas
from pgtrickle.refresh.job import Outcome
from tests.fuzz.case import Case
from tests.fuzz.schema import ROLLBACK, Round, renamed_columns, renamed_tables
from tests.line import Line

HEAVY_MS = 1500  # a query that PostgreSQL itself takes so long for says nothing about us
HEAVY_ROWS = 5000
STATEMENT_MS = 300_000  # a refresh statement that takes this long over tables of a dozen rows never ends
SPARE_ROWS = 1  # of a LIMIT: with as many as usual, tables of a dozen rows would be kept whole

OK, MISMATCH, ERROR, UNFAITHFUL = "ok", "mismatch", "error", "unfaithful"
REJECTED, HEAVY = "rejected", "heavy"
FAILURES = frozenset({MISMATCH, ERROR, UNFAITHFUL})

OpenLine = Callable[[], "contextlib.AbstractContextManager[Line]"]


@dataclass(slots=True)
class Verdict:
    """The outcome of one query: the first thing that went wrong, in which round (0: the first load)."""

    status: str = OK
    mode: str = ""
    reason: str | None = None
    detail: str = ""
    round: int = 0
    actions: list[str] = field(default_factory=list)
    engine: str = ""  # of a run on Spark: spark, or why not

    @property
    def failed(self) -> bool:
        return self.status in FAILURES

    def cause(self) -> str:
        """Short, and the same for the same trouble."""
        return f"{self.status} {self.detail.splitlines()[0] if self.status == ERROR and self.detail else ''}".strip()

    def fail(self, status: str, detail: str, turn: int) -> None:
        if self.status == OK:
            self.status, self.detail, self.round = status, detail, turn


class WaveBroken(Exception):
    """A turn raised instead of reporting the failure of a table."""


def run(
    open_line: OpenLine, case: Case, *, renames: bool = False, judge: Callable[[Line, Any], Run] | None = None
) -> dict[str, Verdict]:
    """Every query of the case. When a turn itself raises, halves are run until one query stands alone.

    `renames`: after its rounds tables get other names, then columns, each there and back. `judge`: another kind of run.
    """
    try:
        with open_line() as line, patch.object(topk, "SPARE_ROWS", SPARE_ROWS), _sizes(case):
            return (judge or Run)(line, case).run(renames=renames)
    except WaveBroken as broken:
        if len(case.queries) == 1:
            verdict = Verdict()
            verdict.fail(ERROR, f"the turn raised {broken}", 0)
            return {case.queries[0][0]: verdict}
        middle = len(case.queries) // 2
        halves = (case.queries[:middle], case.queries[middle:])
        found: dict[str, Verdict] = {}
        for queries in halves:
            found |= run(open_line, replace(case, queries=queries), renames=renames, judge=judge)
        return found


class Run:
    """All queries are asked by the session that owns the tables; a subclass may have others ask."""

    def __init__(self, line: Line, case: Case) -> None:
        self.line = line
        self.case = case
        self.queries = dict((*case.bases, *case.queries))
        self.verdicts = {name: Verdict() for name in self.queries}

    def run(self, *, renames: bool) -> dict[str, Verdict]:
        self._set_up()
        bases = self._made([name for name, _ in self.case.bases])
        usable = bases + self._made([name for name, _ in self.case.queries])
        self._judge(usable, 0)
        for number, changes in enumerate(self.case.rounds, 1):
            apply(self._owner(), changes)
            self._turn(number, may_load=_empties(changes))
            self._judge(usable, number)
        if renames:
            self._rename([name for name in usable if self.verdicts[name].status == OK])
        return self.verdicts

    def _set_up(self) -> None:
        for statement in (*self.case.setup, *self.case.views):
            self._owner().execute(statement)

    def _owner(self) -> psycopg.Connection[Any]:
        """Makes the tables and changes them."""
        return self.line.conn

    def _ask(self, name: str, text: str, *, timeout_ms: int = 0) -> list[tuple[Any, ...]]:
        """As whoever the query belongs to."""
        if not timeout_ms:
            return self.line.sql(text)
        with _timeout(self.line.conn, timeout_ms):
            return self.line.sql(text)

    def _table(self, name: str) -> str:
        """The stream table of the query."""
        return name

    def _rename(self, names: Sequence[str]) -> None:
        """PostgreSQL's own answer is that of a view, which follows names. Columns are loaded anew, and so are the few
        queries that PostgreSQL writes otherwise when it reads them again."""
        for name in names:
            self.line.sql(f"CREATE VIEW named_{name} AS {self.queries[name]}")
            self.queries[name] = f"TABLE named_{name}"
        moves = [renamed_tables(back=False), renamed_tables(back=True)]
        moves += [renamed_columns(back=False), renamed_columns(back=True)]
        for number, move in enumerate(moves, len(self.case.rounds) + 1):
            apply(self.line.conn, (move,))
            self._turn(number, may_load=True)
            self._judge(names, number)

    def _made(self, names: Sequence[str]) -> list[str]:
        """Those of these tables that could be made, loaded for the first time."""
        usable = [name for name in names if self._usable(name)]
        for name in usable:
            self._create(name)
        if usable:
            self._turn(0)
            self._fall_back(usable)
        return usable

    def _usable(self, name: str) -> bool:
        try:
            ((count,),) = self._ask(name, f"SELECT count(q) FROM ({self.queries[name]}) AS q", timeout_ms=HEAVY_MS)
        except psycopg.errors.QueryCanceled:
            self.verdicts[name].fail(HEAVY, "slow", 0)
            return False
        except psycopg.Error as error:
            self.verdicts[name].fail(REJECTED, str(error), 0)
            return False
        if count > HEAVY_ROWS:
            self.verdicts[name].fail(HEAVY, f"{count} rows", 0)
            return False
        return True

    def _create(self, name: str) -> None:
        verdict = self.verdicts[name]
        for mode in ("DIFFERENTIAL", "AUTO"):
            try:
                self._define(name, mode)
            except psycopg.Error as error:
                if mode == "AUTO" or "is not possible" not in str(error):
                    verdict.fail(ERROR, f"create: {error}", 0)
                    return
                verdict.reason = (error.diag.message_primary or "").partition(": ")[2]
            else:
                return

    def _define(self, name: str, mode: str) -> None:
        self.line.sql("SELECT pgtrickle.create_stream_table(%s, %s, 'calculated', %s)", name, self.queries[name], mode)

    def _turn(self, number: int, *, may_load: bool = False) -> None:
        try:
            outcomes = self.line.tick()
        except PgtrickleError as error:
            raise WaveBroken(error.one_line()) from error
        except Exception as error:  # whatever it is, it is what we look for
            raise WaveBroken(f"{type(error).__name__}: {error}") from error
        for outcome in outcomes:
            verdict = self.verdicts[outcome.table.name]
            if not number and self._is_refusal(outcome):
                continue  # it falls back
            if outcome.error is not None:
                verdict.fail(ERROR, outcome.error.one_line(), number)
            elif number and outcome.action != "NO_DATA":
                verdict.actions.append(outcome.action)
                if verdict.mode == "DIFFERENTIAL" and outcome.action != "DIFFERENTIAL" and not may_load:
                    verdict.fail(UNFAITHFUL, f"{outcome.action}: {outcome.reason}", number)

    def _is_refusal(self, outcome: Outcome) -> bool:
        return isinstance(outcome.error, NotDifferentiableError)

    def _is_known(self, message: str) -> bool:
        """Whether a table may have stopped with this message."""
        return False

    def _fall_back(self, names: Sequence[str]) -> None:
        """Tables that the control plane refused to maintain differentially become AUTO."""
        again = []
        for name, status, message in self.line.sql(
            "SELECT pgt_name, status, last_error_message FROM pgtrickle.pgt_stream_tables WHERE status <> 'ACTIVE'"
        ):
            if name in names and NotDifferentiableError.code in (message or ""):
                self.verdicts[name].reason = message
                again.append(name)
            elif name in names and not self._is_known(message or ""):
                self.verdicts[name].fail(ERROR, f"status {status}: {message}", 0)
        for name in again:
            self.line.sql("SELECT pgtrickle.drop_stream_table(%s)", self._table(name))
            self._define(name, "AUTO")
        if again:
            self._turn(0)
        rows = self.line.sql("SELECT pgt_name, effective_refresh_mode, mode_reason FROM pgtrickle.pgt_stream_tables")
        for name, mode, reason in rows:
            self.verdicts[name].mode = mode
            self.verdicts[name].reason = self.verdicts[name].reason or reason

    def _judge(self, names: Sequence[str], number: int) -> None:
        for name in names:
            verdict = self.verdicts[name]
            if verdict.status in FAILURES or verdict.status == REJECTED:
                # The turn's error may be the query's own: then PostgreSQL raises it as well.
                if verdict.status == ERROR and verdict.round == number and (own := self._raises(name)):
                    verdict.status, verdict.detail = REJECTED, own
                continue
            try:
                difference = self._difference(name)
            except psycopg.Error as error:
                own = self._raises(name)
                verdict.fail(REJECTED if own else ERROR, own or str(error), number)
                continue
            if difference is not None:
                verdict.fail(MISMATCH, difference, number)

    def _raises(self, name: str) -> str | None:
        try:
            # Whole rows: a column that nobody asks for is not evaluated.
            text = f"SELECT count(q) FROM (SELECT * FROM ({self.queries[name]}) AS q OFFSET 0) AS q"
            self._ask(name, text, timeout_ms=STATEMENT_MS)
        except psycopg.Error as error:
            return str(error)
        return None

    def _columns(self, name: str) -> list[str]:
        columns = self.line.sql(
            "SELECT array_agg(attname::text ORDER BY attnum) FROM pg_attribute "
            "WHERE attrelid = %s::regclass AND attnum > 0 AND NOT attisdropped",
            self._table(name),
        )[0][0]
        visible = [str(c) for c in columns if not c.startswith("__pgt_")]
        assert columns[: len(visible)] == visible, columns
        return visible

    def _difference(self, name: str) -> str | None:
        """In words; None: it is what its query answers."""
        listed = ", ".join(self._columns(name))
        ((missing, extra),) = self.line.sql(
            f"WITH wanted AS MATERIALIZED ({self.queries[name]}), have AS MATERIALIZED (SELECT {listed} FROM {name}) "
            "SELECT (SELECT count(*) FROM (TABLE wanted EXCEPT ALL TABLE have) AS m), "
            "(SELECT count(*) FROM (TABLE have EXCEPT ALL TABLE wanted) AS e)"
        )
        return f"{missing} rows missing, {extra} too many" if missing or extra else None


def _empties(changes: Round) -> bool:
    """TRUNCATE may have tables loaded anew."""
    return any(s.startswith("TRUNCATE") for statements in changes for s in statements)


def apply(conn: psycopg.Connection[Any], changes: Round) -> None:
    for statements in changes:
        with conn.transaction():
            for statement in statements:
                if statement == ROLLBACK:
                    raise psycopg.Rollback
                conn.execute(statement)


@contextlib.contextmanager
def _sizes(case: Case) -> Iterator[None]:
    """As many: leaves are added up by PostgreSQL and copied, deltas staged, groups behind IN not asked one by one."""
    with contextlib.ExitStack() as stack:
        if case.as_many:
            for module, name in (
                (templates, "ADDED_FROM"),
                (deltas, "SMALL_ROWS"),
                (statement_cache, "MAX_CACHED_ROWS"),
                (states, "FEWEST_ROWS"),
                (states, "FEW_ROWS"),
            ):
                stack.enter_context(patch.object(module, name, 0))
        yield


@contextlib.contextmanager
def _timeout(conn: psycopg.Connection[Any], milliseconds: int) -> Iterator[None]:
    conn.execute(sql.SQL("SET statement_timeout = {}").format(sql.Literal(milliseconds)))
    try:
        yield
    finally:
        conn.execute("RESET statement_timeout")
