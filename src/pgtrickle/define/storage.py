"""Where a result is stored: the stream table, and a state table for groups or top-k rows."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, assert_never

from pgtrickle.apply.groups import Groups, KeyType, StateColumn
from pgtrickle.apply.target import Target
from pgtrickle.model.catalog import REGION, REGION_COLUMN, ObjectId, StreamTable
from pgtrickle.model.identifiers import quote_ident
from pgtrickle.pipeline.codec import SqlType
from pgtrickle.pipeline.plan.measures import Measure
from pgtrickle.pipeline.templates.recursive import RecursionTemplate
from pgtrickle.pipeline.templates.template import BagTemplate, FoldTemplate, RegionTemplate, Template
from pgtrickle.pipeline.templates.topk import TopKTemplate

if TYPE_CHECKING:
    from pgtrickle.db.connect import Connection

RECORD_HASH_SINCE = 140000  # the version of PostgreSQL that has hash_record_extended


def target_of(
    conn: Connection, table: StreamTable, template: Template | None = None, *, portable: bool = False
) -> Target:
    """The stream table. A template may add a hidden column, or indexes on columns by which it finds rows."""
    columns = table.columns
    if isinstance(template, RegionTemplate) and template.has_column:
        columns = (*columns, REGION_COLUMN)
    lookups = template.lookups if isinstance(template, RecursionTemplate) else ()
    return Target(
        ObjectId(table.pgt_id) if portable else table.pgt_id,
        table.schema,
        table.name,
        columns,
        lookups,
        table.mirror is not None,
        has_record_hash=conn.info.server_version >= RECORD_HASH_SINCE,
        partition_column=table.partition_column,
        partition_collation=table.partition_collation,
    )


def on_storage(template: Template, target: Target) -> Template:
    """The same over a partitioned table, in which `ctid` alone does not identify a row."""
    if target.partition_column is None or not isinstance(template, RecursionTemplate):
        return template
    place = "s.tableoid::pg_catalog.text || s.ctid::pg_catalog.text AS ctid"
    return replace(template, stored=f"(SELECT s.*, {place} FROM {target.table} AS s) AS stored")


def groups_of(template: Template, target: Target) -> Groups | None:
    """The state table; None for templates without state."""
    if not isinstance(template, FoldTemplate | TopKTemplate):
        return None
    key_types = tuple(KeyType(t.declared, t.base) for t in _key_types(template))
    is_limited = isinstance(template, FoldTemplate) and template.plan.is_limited
    return Groups(target, key_types, tuple(_state_columns(template)), template.output_statement, is_limited)


def without_storage(template: Template) -> Template:
    """The same over an empty relation, because the table gets its new columns only with its load."""
    match template:
        case TopKTemplate():
            return replace(template, state=f"(SELECT {null_state(template)} WHERE false)")
        case RecursionTemplate():
            return replace(template, stored=_no_rows(template, "NULL::tid AS ctid"))
        case RegionTemplate():
            hidden = [f'NULL::text AS "{REGION}"'] if template.has_column else []
            return replace(template, stored=_no_rows(template, *hidden))
        case BagTemplate() | FoldTemplate():
            return template
        case _:
            assert_never(template)


def _no_rows(template: RegionTemplate | RecursionTemplate, *more: str) -> str:
    columns = [*(f"NULL::{c.type} AS {quote_ident(c.name)}" for c in template.columns), *more]
    return f"(SELECT {', '.join(columns)} WHERE false) AS stored"


def null_state(template: FoldTemplate | TopKTemplate) -> str:
    """The columns of the state, as NULLs."""
    columns = [f"NULL::{t.declared} AS k{i}" for i, t in enumerate(_key_types(template))]
    columns += [f"NULL::{c.type} AS {c.name}" for c in _state_columns(template)]
    return ", ".join(["NULL::int8 AS gid", "NULL::int8 AS h", "NULL::text AS k", "NULL::int8 AS n", *columns])


def _key_types(template: FoldTemplate | TopKTemplate) -> tuple[SqlType, ...]:
    return template.key_types if isinstance(template, FoldTemplate) else template.types


def _state_columns(template: FoldTemplate | TopKTemplate) -> list[StateColumn]:
    if isinstance(template, TopKTemplate):
        return []
    return [
        StateColumn(m.name(suffix), type_, _fold(m, suffix), m.base)
        for m in template.measures.measures
        for suffix, type_ in m.state
    ]


def _fold(measure: Measure, suffix: str) -> str:
    if suffix in ("n", "s"):
        return "add"
    return measure.kind if measure.kind in ("least", "greatest") else "set"
