"""Reads of the catalog and of PostgreSQL's own catalogs, as model values."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import TYPE_CHECKING, Any

from pgtrickle.db.statements import statement
from pgtrickle.errors import SourceChangedError
from pgtrickle.model.catalog import Column, Mirror, Relation, RemoteSource, Source, StreamTable
from pgtrickle.model.flow import Cut, Instance
from pgtrickle.model.reasons import stored

if TYPE_CHECKING:
    from pgtrickle.db.connect import Connection


@dataclass(frozen=True, slots=True)
class ReadPoint:
    """The database and the snapshot of a read transaction."""

    cut: Cut
    instance: Instance
    time: datetime
    session: Mapping[str, str]  # settings from the role or the database

    @property
    def time_zone(self) -> str:
        return self.session["TimeZone"]


def read_moment(conn: Connection) -> ReadPoint:
    row = conn.execute(statement("cut")).fetchone()
    assert row is not None
    return moment_of(row)


def moment_of(row: Sequence[Any]) -> ReadPoint:
    return ReadPoint(Cut.parse(row[0]), Instance(row[1], row[2]), row[3], row[4])


def load_stream_tables(conn: Connection, ids: Sequence[int] | None = None) -> list[StreamTable]:
    text = statement("stream_tables")
    # Two statements: a shared generic plan would read the whole catalog for a few rows.
    rows = (
        conn.execute(f"{text} ORDER BY st.pgt_id")
        if ids is None
        else conn.execute(f"{text} WHERE st.pgt_id = ANY (%(ids)s::int8[]) ORDER BY st.pgt_id", {"ids": list(ids)})
    )
    return [_stream_table(row) for row in rows.fetchall()]


def load_mirrors(conn: Connection, origins: Sequence[str]) -> list[StreamTable]:
    """The mirrors of these origins (keys), also those without rows."""
    text = (
        f"{statement('stream_tables')} WHERE st.status IN ('INITIALIZING', 'ACTIVE') AND st.pgt_id IN (SELECT m.pgt_id "
        "FROM pgtrickle.pgt_mirrors AS m WHERE m.origin_key = ANY (%(keys)s::text[])) ORDER BY st.pgt_id"
    )
    return [_stream_table(row) for row in conn.execute(text, {"keys": list(origins)}).fetchall()]


def _stream_table(row: tuple[Any, ...]) -> StreamTable:
    bases = row[39] or {}
    columns = tuple(
        Column(position, c["name"], c["type"], int(c["typid"]), int(c["typmod"]), basis=bases.get(str(c["typid"]), 0))
        for position, c in enumerate(row[5], start=1)
    )
    dependencies = row[21]
    sources = tuple(
        Source(int(d["relid"]), d["type"], frozenset(d["columns"] or ()), frozenset(d["virtual"] or ()))
        for d in dependencies
    )
    fingerprints = {int(d["relid"]): d["fingerprint"] for d in dependencies}
    mirror = row[26] and Mirror(**{**row[26], "columns": tuple(row[26]["columns"])})
    fields = [
        *row[:5],
        columns,
        *row[6:8],
        stored(*row[8]),
        *row[9:15],
        stored(*row[15]),
        *row[16:21],
        sources,
        fingerprints,
        *row[22:26],
        mirror,
        *row[27:33],
        tuple(row[33]),
        *row[34:39],
        *row[40:43],
        tuple(_remote(each) for each in row[43] or ()),
        row[44],
    ]
    return StreamTable(*fields)


def _remote(document: Mapping[str, Any]) -> RemoteSource:
    named = {name: document[name] for name in ("key", "server", "database", "schema", "table", "fingerprint")}
    mirror = Mirror(**named, relid=int(document["origin_relid"]), columns=tuple(document["columns"]), is_stored=False)
    return RemoteSource(int(document["relid"]), int(document["mirror_id"]), mirror)


def is_keeper(conn: Connection) -> bool:
    """Whether the session has the privileges of the role that installed pgtrickle."""
    row = conn.execute(statement("is_keeper")).fetchone()
    return bool(row and row[0])


def relations(conn: Connection, relids: Collection[int]) -> list[Relation]:
    """Those that exist, in any order."""
    rows = conn.execute(statement("relations"), {"relids": list(relids)}).fetchall()
    return [_relation(row) for row in rows]


def _relation(row: tuple[Any, ...]) -> Relation:
    relid, schema, name, kind, query, has_children, listed, key, indexed, is_barrier = row
    columns = tuple(
        Column(
            c["attnum"], c["name"], c["type"], c["typid"], c["typmod"], c["not_null"], c["base"],
            None if c["virtual"] is None else tuple(c["virtual"]),
        )
        for c in listed
    )  # fmt: skip
    return Relation(
        relid, schema, name, kind, columns, query, has_children, tuple(key or ()), frozenset(indexed), is_barrier
    )


def find_relation(conn: Connection, schema: str, name: str) -> Relation:
    row = conn.execute(
        "SELECT to_regclass(format('%%I.%%I', %s::text, %s::text))::oid::int8", (schema, name)
    ).fetchone()
    found = relations(conn, [row[0]]) if row is not None and row[0] is not None else []
    if not found:
        raise SourceChangedError(f"relation {schema}.{name} does not exist")
    return found[0]


def origin_names(conn: Connection, relids: Collection[int]) -> list[tuple[str, str, bool]]:
    """Each mirror among the relations: its name, the table at the origin, and whether the mirror has rows."""
    return conn.execute(statement("origin_names"), {"relids": list(relids)}).fetchall()


def function_names(conn: Connection) -> tuple[frozenset[str], frozenset[str]]:
    """The names of all aggregates and of all set-returning functions of the database."""
    rows = conn.execute(statement("functions")).fetchall()
    return frozenset(n for n, is_set in rows if not is_set), frozenset(n for n, is_set in rows if is_set)


def keywords(conn: Connection) -> frozenset[str]:
    """Keywords that cannot be an alias without AS, in upper case."""
    return frozenset(r[0] for r in conn.execute(statement("keywords")).fetchall())


def describe(conn: Connection, query: str) -> list[tuple[int, int, str, int, str, int, str | None]]:
    """(typid, typmod, name, base type, kind of the base, element type, collation) of each column of a query.

    The query is not run. The collation is None where it is the database's, or where the type has none.
    """
    found = plan(conn, query)
    rows = _types(conn, found)
    collations = _collations(conn, query, [row[-1] for row in rows])
    return [(*pair, *row[:-1], c) for pair, row, c in zip(found, rows, collations, strict=True)]


def typed(
    conn: Connection, columns: Sequence[tuple[int, int, int]]
) -> list[tuple[int, int, str, int, str, int, str | None]]:
    """The same for columns with known (typid, typmod, collation)."""
    found = [(t, m) for t, m, _ in columns]
    collations = conn.execute(statement("collations"), {"collations": [c for *_, c in columns]}).fetchall()
    rows = zip(found, _types(conn, found), collations, strict=True)
    return [(*pair, *row[:-1], c) for pair, row, (c,) in rows]


def _types(conn: Connection, found: Sequence[tuple[int, int]]) -> list[tuple[Any, ...]]:
    return conn.execute(
        statement("types"), {"typids": [t for t, _ in found], "typmods": [m for _, m in found]}
    ).fetchall()


def plan(conn: Connection, query: str) -> list[tuple[int, int]]:
    """Has PostgreSQL plan the query without running it; returns (typid, typmod) of each column."""
    with conn.cursor() as cursor:
        cursor.execute(f"SELECT * FROM ({query}) AS described LIMIT 0")
        result = cursor.pgresult
        assert result is not None
        return [(result.ftype(i), result.fmod(i)) for i in range(result.nfields)]


def _collations(conn: Connection, query: str, collatable: Sequence[bool]) -> list[str | None]:
    """Evaluated for one row of NULLs, so that the query is planned once for any number of columns."""
    if not any(collatable):
        return [None] * len(collatable)
    names = ", ".join(f"c{i}" for i in range(len(collatable)))
    columns = ", ".join(f"pg_collation_for(d.c{i})" if yes else "NULL" for i, yes in enumerate(collatable))
    row = conn.execute(
        f"SELECT {columns} FROM (SELECT) AS one LEFT JOIN (SELECT * FROM ({query}) AS q({names}) LIMIT 0) AS d ON true"
    ).fetchone()
    assert row is not None
    return [None if c == '"default"' else c for c in row]
