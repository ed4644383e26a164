"""Partitioned stream tables: creates partitions before rows are inserted, and finds rows by partition and ctid."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pgtrickle.db.roundtrip import Query, Steps, ask
from pgtrickle.model.identifiers import quote_ident
from pgtrickle.model.texts import from_text

if TYPE_CHECKING:
    from collections.abc import Sequence
    from typing import Any

    from pgtrickle.apply.target import Target
    from pgtrickle.db.connect import Connection


def add_partitions(target: Target, rows: str, key: str, values: Sequence[Any] = ()) -> Steps[None]:
    """Creates the missing partitions for the rows of a FROM clause with the partition key `key`, whose parameters are
    `values`. Nothing happens if the table is not partitioned."""
    if target.partition_column is not None:
        keys = f"ARRAY(SELECT DISTINCT {key} FROM {rows})"
        yield Query(f"SELECT pgtrickle._add_partitions({target.pgt_id}, {keys})", tuple(values))


def add_partitions_now(conn: Connection, target: Target, rows: str, key: str) -> None:
    ask(conn, add_partitions(target, rows, key))


def position(target: Target) -> int:
    """Of the partition column, from 0."""
    return next(i for i, c in enumerate(target.columns) if c.name == target.partition_column)


def key_of_array(target: Target, array: str) -> str:
    """The partition key of an encoded row, given as an array of texts. Without a partition column: not used."""
    if target.partition_column is None:
        return "NULL"
    index = position(target)
    column = target.columns[index]
    collate = f" COLLATE {target.partition_collation}" if target.partition_collation is not None else ""
    return from_text(f"{array}[{index + 1}]", column.type, column.base) + collate


def key_of_output(target: Target, alias: str) -> str:
    """The partition key of a row with the columns c0, c1, ..."""
    return "NULL" if target.partition_column is None else f"{alias}.c{position(target)}"


def same_partition(target: Target, stored: str, key: str) -> str:
    """A condition by which PostgreSQL reads only the partition of `key`; true for a table without partitions."""
    if target.partition_column is None:
        return "true"
    column = f"{stored}.{quote_ident(target.partition_column)}"
    return f"({column} = {key} OR ({column} IS NULL AND {key} IS NULL))"


def delete_at(target: Target, places: str) -> str:
    """Deletes the rows at the places that a query returns: (part, place, key), see `place_of`."""
    if target.partition_column is None:
        return f"DELETE FROM {target.table} WHERE ctid = ANY (ARRAY(SELECT p.place FROM ({places}) AS p))"
    return (
        f"DELETE FROM {target.table} AS t USING ({places}) AS p "
        f"WHERE t.ctid = p.place AND t.tableoid = p.part AND {same_partition(target, 't', 'p.key')}"
    )


def place_of(target: Target, stored: str) -> str:
    """The columns by which `delete_at` finds a stored row. A ctid is unique within a partition only."""
    if target.partition_column is None:
        return f"{stored}.ctid AS place"
    return f"{stored}.ctid AS place, {stored}.tableoid AS part, {stored}.{quote_ident(target.partition_column)} AS key"
