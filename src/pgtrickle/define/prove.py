"""Has PostgreSQL plan the delta statements of a compiled table, so that a refused one is detected at definition."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from pgtrickle.db.connect import translated
from pgtrickle.define import operators as meaning
from pgtrickle.define.author_query import QueryDescriber
from pgtrickle.define.compile import Compiled, full_refresh
from pgtrickle.define.storage import null_state, without_storage
from pgtrickle.errors import DefinitionError
from pgtrickle.model.catalog import StreamTable
from pgtrickle.model.reasons import NotDifferentiableError, Reason
from pgtrickle.pipeline.templates.explain import sample_statements
from pgtrickle.pipeline.templates.stages import ReadStage
from pgtrickle.pipeline.templates.template import FoldTemplate, Template
from pgtrickle.pipeline.templates.topk import TopKTemplate

if TYPE_CHECKING:
    from pgtrickle.db.connect import Connection


def prove_delta_statements(conn: Connection, table: StreamTable, compiled: Compiled) -> Compiled:
    """The same table after PostgreSQL has planned the statements that read buffers, which exist by now.

    A refused statement means that the query was parsed wrongly: FULL, or the error, as for any other obstacle.
    """
    template = compiled.template
    if template is None:
        return compiled
    statements = _statements(template, are_copied=table.runs_as_author)
    reason: Reason | None = None
    hint: str | None = None
    types = meaning.own_types(conn)
    try:
        with translated(), conn.transaction():
            QueryDescriber(conn, table).explain(list(dict.fromkeys(statements)), sorted(template.relids))
        if types:
            reason = meaning.compared_otherwise(conn, table, types, statements, sorted(template.relids))
    except DefinitionError as error:
        reason, hint = meaning.refused(error, has_own_types=bool(types)), error.hint
    if reason is None:
        return compiled
    if table.refresh_mode in ("DIFFERENTIAL", "IMMEDIATE") or compiled.cycle:
        raise NotDifferentiableError(reason, hint=hint)
    resolved = meaning.meant(conn, table)
    full = full_refresh(conn, meaning.as_meant(table, resolved), reason)
    return replace(full, meant=compiled.meant, settings=compiled.settings)


def _statements(template: Template, *, are_copied: bool) -> list[str]:
    """One statement of each kind that reads changes or state. Those for many and for few changes differ."""
    sampled = without_storage(template)
    statements = [
        *sample_statements(ReadStage(sampled), are_copied=are_copied),
        *sample_statements(ReadStage(sampled), rows=1_000_000, are_copied=are_copied),
    ]
    if isinstance(template, FoldTemplate) and template.key_types:
        reread = template.reread_statement(may_be_null=True, whole=True)
        statements.append(reread.replace("%s::text[]", "NULL::text[]").replace("%%", "%"))
    if isinstance(template, FoldTemplate | TopKTemplate):
        statements.append(template.output_statement(f"(SELECT {null_state(template)}) AS s"))
    return statements
