"""A query in both engines: PostgreSQL's answer, and the rows of the DataFrame that it is compiled to."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import psycopg
import pyarrow as pa
from psycopg import sql

from pgtrickle.pipeline.codec import SqlType
from pgtrickle.pipeline.expressions import PgType, encode_value
from pgtrickle.pipeline.relational import (
    CompiledQuery,
    ComputedColumn,
    InputColumn,
    StoredColumn,
    compile_query,
    stored_column,
)
from tests.spark.conformance import ARROW, bits

_COLUMNS = """
SELECT a.attname, a.atttypid, a.atttypmod, pg_catalog.format_type(a.atttypid, a.atttypmod),
       b.oid, b.typtype, b.typelem, c.collname, c.collisdeterministic
FROM pg_catalog.pg_attribute a
JOIN pg_catalog.pg_type t ON t.oid = a.atttypid
JOIN pg_catalog.pg_type b ON b.oid = CASE WHEN t.typtype = 'd' THEN t.typbasetype ELSE t.oid END
LEFT JOIN pg_catalog.pg_collation c ON c.oid = a.attcollation
WHERE a.attrelid = %s::pg_catalog.regclass AND a.attnum > 0 AND NOT a.attisdropped ORDER BY a.attnum
"""
_LOCALE = """
SELECT COALESCE(to_jsonb(d) ->> 'datlocale', datcollate) FROM pg_catalog.pg_database d
WHERE datname = current_database()
"""


@dataclass
class Both:
    """`native`: numerics with a declared scale are inputs as decimals. `computes`: what Spark does not evaluate is
    computed by PostgreSQL for each row of an input, where that is possible."""

    connection: psycopg.Connection[Any]
    session: Any = None
    native: bool = False
    computes: bool = False
    _frames: dict[tuple[str, str, tuple[ComputedColumn, ...]], Any] = field(default_factory=dict)
    _columns: dict[str, list[tuple[str, StoredColumn]]] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.connection.execute("SET timezone = 'UTC'; SET extra_float_digits = 3")
        self.locale = str(self.connection.execute(_LOCALE).fetchall()[0][0])

    # -- PostgreSQL

    def text(self, query: str, name: str = "probe") -> str:
        """The query as PostgreSQL prints it."""
        execute = self.connection.execute
        execute(f"DROP VIEW IF EXISTS public.{name}; CREATE VIEW public.{name} AS {query}".encode())
        execute("SET search_path = pg_catalog, pg_temp")
        try:
            return str(execute("SELECT pg_get_viewdef(%s::regclass)", (f"public.{name}",)).fetchall()[0][0])
        finally:
            execute("RESET search_path")

    def types(self, relation: str) -> list[tuple[str, PgType | None]]:
        rows = self.connection.execute(_COLUMNS, (relation,)).fetchall()
        return [(row[0], self._stored(row).type) for row in rows]

    def wanted(self, query: str, types: Sequence[PgType]) -> Counter[tuple[Any, ...]]:
        """The query's rows, each value in the form in which it travels."""
        names = [f"c{i}" for i in range(len(types))]
        shown = ", ".join(encode_value(f"q.{n}", t) for n, t in zip(names, types, strict=True))
        text = f"SELECT {shown} FROM ({query.strip().removesuffix(';')}) q({', '.join(names)})"
        return _bag(self.connection.execute(text.encode()).fetchall())

    # -- Spark

    def catalog(self, schema: str, name: str) -> list[InputColumn] | str:
        quoted = f"{_ident(schema)}.{_ident(name)}"
        (kind,) = self.connection.execute("SELECT relkind FROM pg_class WHERE oid = %s::regclass", (quoted,)).fetchall()
        if kind[0] == "v":
            self.connection.execute("SET search_path = pg_catalog, pg_temp")
            (text,) = self.connection.execute("SELECT pg_get_viewdef(%s::regclass)", (quoted,)).fetchall()
            self.connection.execute("RESET search_path")
            return str(text[0])
        return [stored.input(n) for n, stored in self.columns(quoted)]

    def columns(self, quoted: str) -> list[tuple[str, StoredColumn]]:
        if quoted not in self._columns:
            rows = self.connection.execute(_COLUMNS, (quoted,)).fetchall()
            self._columns[quoted] = [(row[0], self._stored(row)) for row in rows]
        return self._columns[quoted]

    def compile(self, query: str) -> CompiledQuery:
        return compile_query(
            self.text(query),
            self.catalog,
            collation=self.locale,
            date_style="ISO, MDY",
            time_zone="UTC",
            computed=self.stored if self.computes else None,
        )

    def stored(self, schema: str, name: str, expression: str) -> StoredColumn | None:
        """How the expression's value is stored; None unless PostgreSQL would store it itself, in a generated column."""
        quoted = f"{_ident(schema)}.{_ident(name)}"
        probe = f"CREATE TEMP TABLE stored_probe (LIKE {quoted}); CREATE TEMP VIEW stored_view AS "
        try:
            with self.connection.transaction(force_rollback=True):
                self.connection.execute(f"{probe} SELECT {expression} AS c FROM stored_probe".encode())
                (row,) = self.connection.execute(_COLUMNS, ("stored_view",)).fetchall()
                stored = self._stored(row)
                add = f"ALTER TABLE stored_probe ADD c {row[3]} GENERATED ALWAYS AS ({expression}) STORED"
                self.connection.execute(add.encode())
        except psycopg.Error:
            return None
        return stored

    def _stored(self, row: Sequence[Any]) -> StoredColumn:
        _, typid, typmod, shown, base, kind, element, collation, deterministic = row
        of = self.locale if collation == "default" else collation or ""
        type_ = SqlType(typid, typmod, shown, base, kind, element)
        return stored_column(type_, collation=of, deterministic=deterministic is not False, as_text=not self.native)

    def frame(self, schema: str, name: str, computed: tuple[ComputedColumn, ...] = ()) -> Any:
        """The relation's rows in Spark, in their stored form."""
        if (schema, name, computed) not in self._frames:
            rows, fields = self.rows(schema, name, computed)
            self._frames[schema, name, computed] = self.made(rows, fields)
        return self._frames[schema, name, computed]

    def rows(self, schema: str, name: str, computed: tuple[ComputedColumn, ...] = ()) -> tuple[list[Any], list[Any]]:
        """The relation's rows in their stored form, and names and Spark's types of their columns."""
        quoted = f"{_ident(schema)}.{_ident(name)}"
        read = [(n, s, s.read(_ident(n))) for n, s in self.columns(quoted)]
        read += [(c.name, c.stored, c.stored.read(f"({c.expression})")) for c in computed]
        shown = ", ".join(f"{sql_} AS {_ident(n)}" for n, _, sql_ in read)
        rows = self.connection.execute(f"SELECT {shown} FROM {quoted}".encode()).fetchall()
        return rows, [(n, s.ddl) for n, s, _ in read]

    def give(self, schema: str, name: str, frame: Any) -> None:
        """The relation's rows, made elsewhere."""
        self._frames[schema, name, ()] = frame

    def arrow(self, ddl: str) -> pa.DataType:
        return _arrow(ddl)

    def made(self, rows: Sequence[Sequence[Any]], fields: Sequence[tuple[str, str]]) -> Any:
        arrays = [pa.array([r[i] for r in rows], _arrow(ddl)) for i, (_, ddl) in enumerate(fields)]
        data = pa.Table.from_arrays(arrays, names=[n for n, _ in fields]) if rows else []
        return self.session.createDataFrame(data, ", ".join(f"`{n}` {ddl}" for n, ddl in fields))

    def forget(self) -> None:
        """Tables have changed."""
        self._frames.clear()
        self._columns.clear()

    def given(self, compiled: CompiledQuery) -> Counter[tuple[Any, ...]]:
        def frame(schema: str, name: str) -> Any:
            return self.frame(schema, name, compiled.computed.get((schema, name), ()))

        return _bag(compiled.build(self.session, frame).collect())

    def check(self, query: str) -> CompiledQuery:
        """The same rows, and the types that PostgreSQL reports."""
        compiled = self.compile(query)
        types = [c.type for c in compiled.columns]
        reported = self.types("public.probe")
        assert [n for n, _ in reported] == [c.name for c in compiled.columns]
        assert [t.name for _, t in reported if t is not None] == [t.name for t in types], (reported, types)
        wanted, given = self.wanted(query, types), self.given(compiled)
        assert given == wanted, f"{query}\nmissing {wanted - given}\nspurious {given - wanted}"
        return compiled


def _arrow(ddl: str) -> pa.DataType:
    if not ddl.startswith("decimal"):
        return ARROW[ddl]
    precision, scale = ddl.removeprefix("decimal(").removesuffix(")").split(",")
    return pa.decimal128(int(precision), int(scale))


def _bag(rows: Sequence[Sequence[Any]]) -> Counter[tuple[Any, ...]]:
    return Counter(tuple(bits(v) for v in row) for row in rows)


def _ident(name: str) -> str:
    return sql.Identifier(name).as_string(None)
