"""Cases whose stream tables are partitioned, each by one of its columns."""

from __future__ import annotations

from random import Random

from psycopg import sql

from tests.fuzz.wave import Run

_DATE, _NUMERIC, _DISCRETE = 1082, 1700, (16, 20, 23, 25)  # boolean, bigint, integer, text


class PartitionedRun(Run):
    """The way depends on the query, so that a script repeats it."""

    def _define(self, name: str, mode: str) -> None:
        self.line.sql(
            "SELECT pgtrickle.create_stream_table(%s, %s, 'calculated', %s, partition_by => %s)",
            name,
            self.queries[name],
            mode,
            self._partitioning(self.queries[name]),
        )

    def _partitioning(self, query: str) -> str:
        random = Random(query)
        columns = self.line.conn.execute(f"SELECT * FROM ({query}) AS q LIMIT 0").description or []
        column = random.choice(columns)
        name = sql.Identifier(column.name).as_string(self.line.conn)
        ways = [f"HASH({name}, 3)"]
        if column.type_code in (_DATE, *_DISCRETE):
            ways.append(f"LIST({name})")
        if column.type_code == _DATE:
            ways += [f"RANGE({name})", f"RANGE({name}, 3 days)"]
        if column.type_code in (_NUMERIC, 20, 23):
            ways.append(f"RANGE({name}, 2)")
        return random.choice(ways)
