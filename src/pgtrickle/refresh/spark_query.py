"""The query that Spark evaluates for a stream table: compiled, with its delta and the replicas that it reads."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from pgtrickle.db import catalog
from pgtrickle.db.connect import translated
from pgtrickle.db.statements import statement
from pgtrickle.define.operators import view_explicit
from pgtrickle.errors import DefinitionError, SparkUnsupportedError
from pgtrickle.model.identifiers import qualified
from pgtrickle.model.reasons import Reason, ReasonCode
from pgtrickle.pipeline.codec import SqlType
from pgtrickle.pipeline.expressions import from_staged
from pgtrickle.pipeline.relational import CompiledQuery, InputColumn, StoredColumn, compile_query, stored_column
from pgtrickle.pipeline.relational.storable import storable
from pgtrickle.pipeline.templates.load_query import EngineQuery, rows_of_engine
from pgtrickle.pipeline.templates.template import FoldTemplate, RegionTemplate, Template
from pgtrickle.pipeline.templates.topk import TopKTemplate
from pgtrickle.refresh.spark_changes import SparkChanges, staged_columns
from pgtrickle.replica import Computed, ReplicaNeed

if TYPE_CHECKING:
    from pgtrickle.db.connect import Connection
    from pgtrickle.define.compile import Compiled
    from pgtrickle.model.catalog import Relation, RemoteSource, StreamTable


@dataclass(frozen=True, slots=True)
class SparkInput:
    """A table that a query reads: the columns that it needs of the replica.

    `names` and `types` are by the name in the replica (c1, c2, ..., and computed columns): the name in the query, and
    the type that it expects, in Spark's DDL.
    """

    need: ReplicaNeed
    names: Mapping[str, str]
    types: Mapping[str, str]


_STORABLE = {25: "text", 1043: "text", 3802: "jsonb"}  # varchar, too, by its base

# Where an input is read: a session in the database of its table, and the table as that database knows it.
Place = Callable[[SparkInput], "tuple[Connection, SparkInput]"]


def all_at(conn: Connection) -> Place:
    """Every input is a table of this session's database."""
    return lambda source: (conn, source)


def located(source: SparkInput, remote: RemoteSource) -> SparkInput:
    """The input as the origin of a remote source knows it."""
    assert source.need.attnums is not None
    at_origin = {f"c{attnum}": remote.mirror.columns[attnum - 1] for attnum in source.need.attnums}
    names = {f"c{at_origin[column]}": name for column, name in source.names.items()}
    types = {f"c{at_origin[column]}": ddl for column, ddl in source.types.items()}
    return SparkInput(ReplicaNeed(remote.mirror.relid, frozenset(at_origin.values())), names, types)


@dataclass(frozen=True, slots=True)
class SparkQuery:
    """The query of a load and the tables that it reads. `changes`: its delta, or why Spark cannot evaluate it."""

    query: CompiledQuery = field(repr=False)
    engine_query: EngineQuery
    inputs: Mapping[tuple[str, str], SparkInput]
    changes: SparkChanges | Reason

    @property
    def staged(self) -> tuple[tuple[str, str], ...]:
        """Name and type of each column of the staging table that executors fill."""
        return staged_columns([c.type for c in self.query.columns])

    def content(self, stage: str) -> str:
        """A relation with the columns of the load query, from the staging table."""
        listed = ", ".join(
            f'{from_staged(f"t.s{i}", c.type)} AS "{name}"'
            for i, (c, name) in enumerate(zip(self.query.columns, self.engine_query.columns, strict=True))
        )
        return self.engine_query.content(f"(SELECT {listed} FROM {stage} AS t)")


def spark_query(conn: Connection, table: StreamTable, compiled: Compiled) -> SparkQuery | Reason:
    """The compiled query, or the reason why Spark cannot evaluate it."""
    if table.runs_as_author:
        return Reason.of(ReasonCode.ENGINE_AUTHOR)
    try:
        engine_query = _engine_query(table, compiled)
        sources = _Sources(conn, table)

        def compiled_query(sql: str) -> CompiledQuery:
            return compile_query(
                sql,
                sources.columns,
                collation=sources.locale,
                date_style=compiled.settings.get("DateStyle", ""),
                time_zone=compiled.settings.get("TimeZone", ""),
                computed=sources.computed if not table.remotes else None,
            )

        query = compiled_query(engine_query.sql)
        changes = _changes(compiled.template, query, engine_query, compiled_query)
        queries = [query, changes.query] if isinstance(changes, SparkChanges) else [query]
        inputs = {place: sources.input(*place, queries) for place in query.inputs}
        result = SparkQuery(query, engine_query, inputs, changes)
        result.content("stage")  # refuses a result that cannot be decoded
    except (SparkUnsupportedError, DefinitionError) as error:
        return Reason.of(ReasonCode.ENGINE_UNSUPPORTED, construct=error.message)
    return result


def _engine_query(table: StreamTable, compiled: Compiled) -> EngineQuery:
    template = compiled.template
    if compiled.cycle:
        raise SparkUnsupportedError("a cycle of stream tables")
    if isinstance(template, FoldTemplate | RegionTemplate | TopKTemplate):
        return template.engine_query()
    return rows_of_engine(table.query, table.columns)


def _changes(
    template: Template | None,
    query: CompiledQuery,
    engine_query: EngineQuery,
    compiled_query: Callable[[str], CompiledQuery],
) -> SparkChanges | Reason:
    if template is None:
        return Reason.of(ReasonCode.ENGINE_UNSUPPORTED, construct="the query is refreshed in FULL only")
    if isinstance(template, RegionTemplate) and not template.is_determined:
        what = "the delta of rows that the query does not determine (ties in an order)"
        return Reason.of(ReasonCode.ENGINE_UNSUPPORTED, construct=SparkUnsupportedError(what).message)
    if isinstance(template, TopKTemplate):
        rows = template.rows_query()
        return SparkChanges(template, compiled_query(rows.sql), rows)
    return SparkChanges(template, query, engine_query)


def _is_storable(type_: Sequence[Any], collation: str | None) -> bool:
    """Whether expressions over a column may be stored: its type, not a domain over it, and the usual collation."""
    return type_[0] == type_[3] and type_[3] in _STORABLE and collation in (None, "default")


class _Sources:
    """Looks up the tables and views of a query for the compiler."""

    def __init__(self, conn: Connection, table: StreamTable) -> None:
        self._conn = conn
        self._table = table
        self._used = {s.relid: s for s in table.sources}
        self._types: dict[int, dict[str, str]] = {}
        self._storable: dict[int, dict[str, str]] = {}
        self._attnums: dict[tuple[int, str], int] = {}
        self._known = {(r.schema, r.name): r for r in catalog.relations(conn, self._used)}
        ((self.locale,),) = conn.execute(statement("database_locale")).fetchall()

    def columns(self, schema: str, name: str) -> Sequence[InputColumn] | str:
        relation = self._relation(schema, name)
        if relation.is_barrier:
            raise SparkUnsupportedError(f"{schema}.{name}", "it is a security barrier")
        if relation.kind == "v":
            explicit = view_explicit(self._conn, relation, self._table)
            assert explicit.query is not None
            return explicit.query
        source = self._used.get(relation.relid)
        if source is None or not source.capturable:
            raise SparkUnsupportedError(f"{schema}.{name}", "its changes are not captured")
        if any(c.virtual is not None and c.attnum in source.columns for c in relation.columns):
            raise SparkUnsupportedError(f"{schema}.{name}", "it has virtual generated columns, which replicas lack")
        rows = self._conn.execute(statement("input_columns"), {"relid": relation.relid}).fetchall()
        rows = [row for row in rows if row[0] in source.columns]
        types = catalog.typed(self._conn, [(row[2], row[3], row[4]) for row in rows])
        columns = {row[0]: self._stored(type_, *row[5:]) for row, type_ in zip(rows, types, strict=True)}
        self._types[relation.relid] = {f"c{attnum}": stored.ddl for attnum, stored in columns.items()}
        self._storable[relation.relid] = {
            row[1]: _STORABLE[type_[3]] for row, type_ in zip(rows, types, strict=True) if _is_storable(type_, row[5])
        }
        return [columns[row[0]].input(row[1]) for row in rows]

    def computed(self, schema: str, name: str, expression: str) -> StoredColumn | None:
        """How a replica stores the value of an expression that PostgreSQL computes; None: it must not be stored."""
        relation = self._relation(schema, name)
        found = storable(expression, self._storable[relation.relid])
        if found is None:
            return None
        try:
            with translated(), self._conn.transaction():
                self._conn.execute(found.sample)
                listed = f"SELECT ({expression}) AS c FROM {qualified(schema, name)}"
                (described,) = catalog.describe(self._conn, listed)
        except DefinitionError:  # a constant of it is wrong: PostgreSQL will say so
            return None
        self._attnums[relation.relid, expression] = next(c.attnum for c in relation.columns if c.name == found.column)
        return stored_column(SqlType(*described), collation=self.locale)

    def input(self, schema: str, name: str, queries: Sequence[CompiledQuery]) -> SparkInput:
        relation = self._relation(schema, name)
        used = self._used[relation.relid].columns
        names = {f"c{c.attnum}": c.name for c in relation.columns if c.attnum in used}
        types = dict(self._types[relation.relid])
        computed = {c.name: c for query in queries for c in query.computed.get((schema, name), ())}
        for column in computed.values():
            names[column.name], types[column.name] = column.name, column.stored.ddl
        need = ReplicaNeed(
            relation.relid,
            frozenset(c.attnum for c in relation.columns if c.attnum in used),
            tuple(
                Computed(n, c.expression, (self._attnums[relation.relid, c.expression],)) for n, c in computed.items()
            ),
        )
        return SparkInput(need, names, types)

    def _relation(self, schema: str, name: str) -> Relation:
        return self._known.get((schema, name)) or catalog.find_relation(self._conn, schema, name)

    def _stored(self, type_: Sequence[Any], collation: str | None, is_deterministic: bool | None) -> StoredColumn:
        of = self.locale if collation == "default" else collation or ""
        return stored_column(SqlType(*type_), collation=of, deterministic=is_deterministic is not False)
