"""Every entry of the allow-list in both engines over the edges of its types: equal values, NULLs and failures."""

from __future__ import annotations

import random
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pyarrow as pa
import pytest

from pgtrickle.pipeline.expressions import Call, PgType, Reference, column, decode_value, encode_value, join_keys
from pgtrickle.pipeline.expressions.listed import ENTRIES
from pgtrickle.pipeline.expressions.resolve import operator
from pgtrickle.pipeline.expressions.types import NUMERIC
from tests.conftest import Database
from tests.spark.conformance import Case, Oracle, Sheet, Suite, cases, comparable, mixed, sheets
from tests.spark.edges import KINDS, Kind
from tests.spark.random_expressions import COLUMNS, ROWS, Expressions


@pytest.fixture
def oracle(database: Database) -> Oracle:
    connection = database.connect()
    connection.execute("CREATE TYPE public.mood AS ENUM ('sad', 'ok', 'happy')")
    return Oracle(connection)


def test_every_entry_has_a_case_that_uses_it() -> None:
    for entry in ENTRIES:
        made = list(cases(entry))
        assert made, entry.label
        assert any(isinstance(n := case.node(), Call) and n.entry is entry for case in made), entry.label


def test_values_come_back_as_they_left(oracle: Oracle) -> None:
    oracle.connection.execute("SET timezone = 'Europe/Berlin'")
    for kind in (kind for kinds in KINDS.values() for kind in kinds):
        oracle.load(Sheet((kind,)))
        back = decode_value(encode_value("a", kind.type), kind.type)
        wrong = f"SELECT a::text, ({back})::text FROM sheet WHERE ({back})::text IS DISTINCT FROM a::text"
        assert oracle.connection.execute(wrong).fetchall() == [], kind.sql


def check(suite: Suite, tried: list[Case]) -> None:
    suite.run(sheets(tried))
    assert not suite.wrong, f"{len(suite.wrong)} disagreements\n" + "\n".join(suite.wrong[:60])


def test_every_entry_gives_what_postgresql_gives(oracle: Oracle, interpreted: Any) -> None:
    check(Suite(oracle, interpreted), [case for entry in ENTRIES for case in cases(entry)])


@pytest.mark.soak
def test_every_entry_gives_the_same_when_it_is_compiled(oracle: Oracle, compiled: Any) -> None:
    check(Suite(oracle, compiled, with_failures=False), [case for entry in ENTRIES for case in cases(entry)])


def test_types_that_meet_by_implicit_casts_give_what_postgresql_gives(oracle: Oracle, interpreted: Any) -> None:
    check(Suite(oracle, interpreted), list(mixed()))


def test_keys_are_equal_exactly_when_postgresql_says_so(oracle: Oracle, compiled: Any) -> None:
    """For joins, and by hash for grouping: all pairs of edge values of all pairs of comparable types."""
    from pyspark.sql import functions as f

    def ask(pair: tuple[Kind, Kind], table: Any) -> list[Any]:
        left, right = join_keys(Reference("a", pair[0].type), Reference("b", pair[1].type))
        hashes = f.when(left.isNotNull() & right.isNotNull(), f.xxhash64(left) == f.xxhash64(right))
        frame = compiled.createDataFrame(table).coalesce(1).orderBy("n")
        return list(frame.select((left == right).alias("e"), hashes.alias("h")).collect())

    compared = 0
    with ThreadPoolExecutor(4) as pool:
        asked = []
        for pair in comparable():
            table = oracle.load(Sheet(pair))
            asked.append((pair, oracle.plain("(a = b)", PgType("bool")), pool.submit(ask, pair, table)))
        for pair, wanted, job in asked:
            for row, want, got in zip(Sheet(pair).rows(), wanted, job.result(), strict=True):
                compared += 1
                assert (got.e, got.h) == (want, want), (pair[0].sql, pair[1].sql, row, want, got)
    assert compared > 5000


def test_random_nested_expressions_give_what_postgresql_gives(oracle: Oracle, interpreted: Any) -> None:
    """A hundred and fifty in three jobs. Rows on which PostgreSQL fails are left out: one would end its job."""
    seed = random.randrange(1 << 30)
    makers = Expressions(random.Random(seed))
    tried = [makers.case() for _ in range(150)]
    suite = Suite(oracle, interpreted)
    table = oracle.rows(COLUMNS, ROWS)
    questions = [suite.question(table, case) for case in tried]
    frame = interpreted.createDataFrame(table).coalesce(1)
    unfit = [sql for at in range(0, len(questions), 50) for sql in suite.batch(frame, questions[at : at + 50])]
    assert not suite.wrong, f"seed {seed}: {len(suite.wrong)} disagreements\n" + "\n".join(suite.wrong[:30])
    assert suite.compared > 500
    assert len(unfit) < 30, unfit


def test_quotients_have_postgresqls_digits(oracle: Oracle, compiled: Any) -> None:
    """Numbers of all sizes; divisors that are powers of two and five, whose quotients may lie between two digits."""
    rng = random.Random(seed := random.randrange(1 << 30))

    def number(whole: int, digits: int) -> str:
        sign, places = rng.choice(("", "-")), rng.randint(0, digits)
        return f"{sign}{rng.randrange(10 ** rng.randint(1, whole))}" + (
            f".{rng.randrange(10**places):0{places}}" if places else ""
        )

    def divisor() -> str:
        if rng.random() < 0.4:
            return str(rng.choice((2, 5)) ** rng.randint(1, 15) * rng.randint(1, 9))
        found = number(9, 8)
        return found if float(found) else "7"

    pairs = [(number(13, 10), divisor()) for _ in range(3000)]
    kinds = {n: Kind(NUMERIC, "numeric", ()) for n in "ab"}
    table = oracle.rows(kinds, pairs)
    wanted = oracle.plain("a / b", NUMERIC)
    # A quotient of more digits than there is room for is refused; those have tests of their own.
    asked = [w is not None and len(w.partition(".")[2]) <= 24 and len(w.partition(".")[0]) <= 13 for w in wanted]
    quotient = column(operator("/", Reference("a", NUMERIC), Reference("b", NUMERIC)))
    frame = compiled.createDataFrame(table.append_column("asked", pa.array(asked))).where("asked")
    found = {row.n: row.q for row in frame.select("n", quotient.alias("q")).collect()}
    wrong = [(seed, *pairs[n], wanted[n], q) for n, q in found.items() if q != wanted[n]]
    assert not wrong, wrong[:10]
    assert len(found) > 2000
