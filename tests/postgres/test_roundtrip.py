"""Several statements in one round trip: what each answers, what stays prepared, and what an error leaves behind."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from datetime import UTC, datetime

import psycopg
import pytest
from psycopg.pq import TransactionStatus

from pgtrickle.db import roundtrip
from pgtrickle.db.connect import OFF, SESSION, TRANSACTION, Connection, begin, connect
from pgtrickle.db.roundtrip import Query, Rows, Steps, ask, ask_together, run_queries
from pgtrickle.errors import InvariantError, TooManyRowsError
from tests.conftest import Database

READ = "ISOLATION LEVEL REPEATABLE READ READ ONLY"
DOUBLE = Query("SELECT 2 * x FROM unnest($1::int8[]) AS x", ([1, 2, 3],))
BROKEN = Query("SELECT 1 / $1::int4", (0,))


@pytest.fixture(params=[OFF, SESSION, TRANSACTION])
def conn(database: Database, request: pytest.FixtureRequest) -> Iterator[Connection]:
    with connect(database.dsn, role="test", autocommit=True, pooler=request.param) as found:
        yield found


@pytest.fixture
def own(database: Database) -> Iterator[Connection]:
    with connect(database.dsn, role="test", autocommit=True) as found:
        yield found


def rows(conn: Connection, *asks: Query) -> list[Rows]:
    begin(conn, READ)
    try:
        return [answer.rows for answer in run_queries(conn, asks)]
    finally:
        conn.rollback() if conn.pgconn.transaction_status == TransactionStatus.INERROR else conn.commit()


def prepared(conn: Connection) -> int:
    ((count,),) = conn.execute(
        "SELECT count(*) FROM pg_prepared_statements WHERE starts_with(name, 'pgtrickle_')"
    ).fetchall()
    return int(count)


def test_each_statement_has_its_answer(conn: Connection) -> None:
    moment = datetime(2024, 5, 6, 7, 8, 9, tzinfo=UTC)
    values = ['a"b\\', None, True, 1.5, moment, ["x", None]]
    text = "SELECT $1::text, $2::int4, $3::bool, $4::float8, $5::timestamptz, $6::text[]"
    for _ in range(3):
        found = rows(conn, DOUBLE, Query("SELECT WHERE false"), Query(text, values), Query("SELECT 1 % 2"))
        assert found == [[(2,), (4,), (6,)], [], [tuple(values)], [(1,)]]


def test_what_comes_again_is_prepared_where_the_session_is_ours(own: Connection, database: Database) -> None:
    assert [rows(own, DOUBLE, Query("SELECT 1", is_kept=False)) and prepared(own) for _ in range(3)] == [0, 1, 1]
    with connect(database.dsn, role="test", autocommit=True, pooler=TRANSACTION) as other:
        assert [rows(other, DOUBLE) and prepared(other) for _ in range(3)] == [0, 0, 0]


def test_what_the_driver_forgets_is_prepared_again(own: Connection) -> None:
    own.prepare_threshold = 0
    for _ in range(2):
        rows(own, DOUBLE)
    own.execute("CREATE TEMP TABLE one ()")
    own.execute("DROP TABLE one")  # after which it lets go of all, which are ours as well
    assert prepared(own) == 0
    for _ in range(3):
        assert rows(own, DOUBLE) == [[(2,), (4,), (6,)]]


def test_few_stay_prepared(own: Connection, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(roundtrip, "MOST_PREPARED", 3)
    for _ in range(3):
        for number in range(5):
            rows(own, Query(f"SELECT {number}"), Query(f"SELECT {number}"))
    assert rows(own, DOUBLE) == [[(2,), (4,), (6,)]]
    assert prepared(own) <= 3


def test_another_mark_is_planned_anew_and_only_the_latest_kept(own: Connection) -> None:
    own.execute("SET plan_cache_mode = force_generic_plan")
    for number in (1, 1, 1, 2, 3, 3, 3):
        rows(own, replace(DOUBLE, mark=(number,)))
    (found,) = own.execute(
        "SELECT generic_plans FROM pg_prepared_statements WHERE starts_with(name, 'pgtrickle_')"
    ).fetchall()
    assert found == (3,)


@pytest.mark.parametrize("times", [1, 2, 3])  # unprepared, about to be, prepared
def test_an_error_is_that_of_the_first_and_leaves_the_session_usable(conn: Connection, times: int) -> None:
    for number in range(1, times):
        for good in (DOUBLE, Query("SELECT 1 / $1::int4", (number,)), Query("SELECT 5")):
            rows(conn, good)
    for _ in range(3):
        with pytest.raises(psycopg.errors.DivisionByZero):
            rows(conn, DOUBLE, BROKEN, Query("SELECT nothing"), Query("SELECT 5"))
        assert rows(conn, DOUBLE, Query("SELECT 5")) == [[(2,), (4,), (6,)], [(5,)]]


@pytest.mark.parametrize("place", [0, 1, 2])
def test_an_error_beside_rows_that_are_looked_at_leaves_the_session_usable(conn: Connection, place: int) -> None:
    """Of what comes after it nothing can be asked to come in parts."""
    seen: list[Rows] = []
    asks = [replace(DOUBLE, on_rows=seen.append) for _ in range(3)]
    asks[place] = replace(BROKEN, on_rows=seen.append)
    for _ in range(3):
        with pytest.raises(psycopg.errors.DivisionByZero):
            rows(conn, *asks)
        assert rows(conn, DOUBLE) == [[(2,), (4,), (6,)]]
    assert len(seen) == 3 * place


def test_a_savepoint_holds_an_error_back(conn: Connection) -> None:
    begin(conn, READ)
    with pytest.raises(psycopg.errors.DivisionByZero), conn.transaction():
        run_queries(conn, [BROKEN])
    assert run_queries(conn, [DOUBLE])[0].rows == [(2,), (4,), (6,)]
    conn.commit()


def test_a_plan_that_does_not_fit_any_more_is_made_anew(own: Connection) -> None:
    own.execute("CREATE TEMP TABLE one (a int)")
    for _ in range(3):
        rows(own, Query("SELECT * FROM pg_temp.one"))
    own.execute("ALTER TABLE one ADD b int")
    with pytest.raises(psycopg.errors.FeatureNotSupported):
        rows(own, Query("SELECT * FROM pg_temp.one"))
    assert rows(own, Query("SELECT * FROM pg_temp.one")) == [[]]


def test_rows_are_looked_at_while_they_come(conn: Connection) -> None:
    seen: list[int] = []
    many = Query("SELECT generate_series(1, 3000)", on_rows=lambda some: seen.append(len(some)))
    begin(conn, READ)
    found = [answer.rows for answer in run_queries(conn, [DOUBLE, many, many, DOUBLE], apart=True)]
    conn.commit()
    assert [len(each) for each in found] == [3, 3000, 3000, 3]
    assert sum(seen) == 6000
    assert max(seen) <= roundtrip.CHUNK_ROWS


def test_what_a_statement_takes_is_its_own_when_it_is_prepared_too(conn: Connection) -> None:
    """The second time: that it is prepared is answered together with its rows."""
    begin(conn, READ)
    for _ in range(3):
        quick, slow, _ = run_queries(conn, [DOUBLE, Query("SELECT pg_sleep(0.2)"), DOUBLE], apart=True)
        assert slow.ms > 100
        assert quick.ms < slow.ms
    conn.commit()


def test_too_many_rows_are_not_waited_for(conn: Connection) -> None:
    def refuse(_rows: Rows) -> None:
        raise TooManyRowsError("enough")

    begin(conn, READ)
    with pytest.raises(TooManyRowsError), conn.transaction():
        run_queries(
            conn, [Query("SELECT generate_series(1, 2000000000)", on_rows=refuse), Query("SELECT pg_sleep(1000)")]
        )
    assert run_queries(conn, [DOUBLE])[0].rows == [(2,), (4,), (6,)]
    conn.commit()


def test_large_parameters_and_answers_do_not_wait_for_one_another(conn: Connection) -> None:
    text = "x" * 1_000_000
    same = Query("SELECT $1::text", (text,))
    assert rows(conn, *[same] * 20) == [[(text,)]] * 20


def test_steps_of_several_go_together(own: Connection) -> None:
    def count_down(number: int) -> Steps[list[int]]:
        found = []
        while number:
            ((number,),) = yield Query("SELECT $1::int4 - 1", (number,))
            found.append(number)
        return found

    begin(own, READ)
    assert ask(own, count_down(2)) == [1, 0]
    found = ask_together(own, [count_down(n) for n in (3, 0, 1)])
    assert [result for result, _ in found] == [[2, 1, 0], [], [0]]
    own.commit()


def test_outside_a_transaction_nothing_is_sent(own: Connection) -> None:
    with pytest.raises(InvariantError):
        run_queries(own, [DOUBLE])


def test_a_lost_server_is_an_error(own: Connection) -> None:
    begin(own, READ)
    with pytest.raises(psycopg.OperationalError):
        run_queries(own, [Query("SELECT pg_terminate_backend(pg_backend_pid())"), DOUBLE])
    assert own.broken or own.closed
