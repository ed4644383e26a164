"""Writers of all kinds, and beside them ALTER TABLE, TRUNCATE and partitions that come and go. No writer fails because
of pgtrickle, and afterwards all tables equal their queries, without help."""

from __future__ import annotations

import random
import threading
import time
from collections.abc import Iterator
from contextlib import suppress

import psycopg
import pytest

from pgtrickle.errors import TransientError
from pgtrickle.pipeline.engine.spark import SparkEngine
from tests.conftest import Database
from tests.line import Line
from tests.postgres.test_restore import no_spark
from tests.spark.test_writers import QUERIES, TABLES

DDL = (
    "ALTER TABLE account ADD COLUMN more int DEFAULT 3",
    "ALTER TABLE account ALTER balance SET DEFAULT 1",
    "TRUNCATE entry",
    "ALTER TABLE account DROP COLUMN more",
    "ALTER TABLE account RENAME balance TO z; ALTER TABLE account RENAME z TO balance",
    "CREATE INDEX ON account (region)",
    "ALTER TABLE entry DETACH PARTITION entry_1; ALTER TABLE entry ATTACH PARTITION entry_1 FOR VALUES IN (1)",
    "ALTER TABLE entry ADD COLUMN note varchar(10)",
    "CREATE TABLE entry_7 PARTITION OF entry FOR VALUES IN (7); INSERT INTO entry VALUES (1, 7, 1, 1)",
    "TRUNCATE account, entry; INSERT INTO account SELECT i, i % 3, 100 FROM generate_series(1, 30) AS i",
    "ALTER TABLE entry ALTER amount TYPE int USING amount + 1",
    "DROP TABLE entry_7",
    "ALTER TABLE entry ALTER amount SET NOT NULL",
)
# What a transaction may run into, with or without pgtrickle.
EXPECTED = (
    psycopg.errors.DeadlockDetected,
    psycopg.errors.SerializationFailure,
    psycopg.errors.ForeignKeyViolation,
    psycopg.errors.UniqueViolation,
)
STATEMENTS = (
    "INSERT INTO account VALUES ({a}, {r}, {n}) ON CONFLICT (id) DO UPDATE SET balance = EXCLUDED.balance",
    "INSERT INTO account VALUES ({a}, {r}, {n}) ON CONFLICT DO NOTHING",
    "MERGE INTO account AS t USING (VALUES ({a}, {r}, {n})) AS s (id, region, balance) ON t.id = s.id "
    "WHEN MATCHED AND s.region = 0 THEN DELETE WHEN MATCHED THEN UPDATE SET balance = s.balance "
    "WHEN NOT MATCHED THEN INSERT (id, region, balance) VALUES (s.id, s.region, s.balance)",
    "UPDATE entry SET region = (region + 1) % 5 WHERE id % 7 = {r}",
    "DELETE FROM entry WHERE id % 11 = {r}",
    "WITH gone AS (DELETE FROM entry WHERE id = {a} RETURNING id, region, account, amount) "
    "INSERT INTO entry (id, region, account, amount) SELECT id, 1 - region % 2, account, amount FROM gone",
    "SAVEPOINT a; UPDATE account SET balance = 1; ROLLBACK TO a; UPDATE account SET balance = 5 WHERE id = {a}",
    "DELETE FROM account WHERE id = {a} AND NOT EXISTS (SELECT FROM entry WHERE account = {a})",
)


@pytest.fixture
def line(installed: Database) -> Iterator[Line]:
    engine = SparkEngine(no_spark)
    line = Line(installed.dsn, engine)
    line.sql(TABLES)
    for name, query in QUERIES.items():
        line.create(name, query, mode="DIFFERENTIAL")
    yield line
    line.close()
    engine.close()


class Writer:
    def __init__(self, database: Database, seed: int) -> None:
        self.error: psycopg.Error | None = None
        self.committed = 0
        self._rng = random.Random(seed)
        self._database = database
        self._name = f"{database.name}_{seed}"
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run)
        self._thread.start()

    def stop(self) -> None:
        self._stop.set()
        self._thread.join()

    def _run(self) -> None:
        session = self._database.connect(autocommit=False)
        while not self._stop.is_set():
            try:
                self._transaction(session)
                self.committed += 1
            except EXPECTED:
                session.rollback()
            except psycopg.Error as error:
                self.error = error
                return

    def _transaction(self, session: psycopg.Connection[object]) -> None:
        rng = self._rng
        if rng.random() < 0.3:
            session.execute("SET TRANSACTION ISOLATION LEVEL SERIALIZABLE")
        for _ in range(rng.randint(1, 3)):
            text = rng.choice(STATEMENTS).format(a=rng.randint(1, 60), r=rng.randint(0, 3), n=rng.randint(1, 99))
            session.execute(text)
        # The foreign key is checked at the end.
        with session.cursor().copy("COPY entry (id, region, account, amount) FROM STDIN") as copy:
            for i in range(rng.randint(1, 20)):
                copy.write_row((rng.randint(1, 300), i % 5, rng.randint(1, 30), i))
        session.execute("INSERT INTO account SELECT account, 0, 1 FROM entry ON CONFLICT DO NOTHING")
        if rng.random() < 0.2:
            session.execute(f"PREPARE TRANSACTION '{self._name}'")
            session.rollback()
            session.autocommit = True
            time.sleep(0.02)
            session.execute(f"{rng.choice(('COMMIT', 'ROLLBACK'))} PREPARED '{self._name}'")
            session.autocommit = False
        elif rng.random() < 0.1:
            session.rollback()
        else:
            session.commit()


def test_writers_and_ddl_at_the_same_time(line: Line, installed: Database) -> None:
    writers = [Writer(installed, seed) for seed in range(3)]
    try:
        for ddl in DDL:
            for _ in range(20):
                with suppress(psycopg.errors.DeadlockDetected):
                    installed.sql(ddl)
                    break
            for _ in range(2):
                with suppress(TransientError):
                    line.tick()
    finally:
        for writer in writers:
            writer.stop()
    for writer in writers:
        assert writer.error is None, writer.error
        assert writer.committed > 5
    for _ in range(4):
        time.sleep(0.5)  # a refresh that failed is tried again after a second
        with suppress(TransientError):
            line.tick()
    for name in QUERIES:
        line.equal(name)
        assert line.rows(name) != []
    assert line.sql("SELECT DISTINCT status FROM pgtrickle.pgt_stream_tables") == [("ACTIVE",)]
