"""The second read of a fold: groups whose value cannot be had by adding, evaluated by PostgreSQL in the same snapshot.

A deleted MIN or MAX matters only when it was the extreme, which the state tells; so the state is asked first, and
only the groups that lost their extreme are read. A group that the state does not know, or knows without a value, is
read as well: the terms of a join may bring and take a value that was never in the group, and only together they cancel.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from pgtrickle.apply.groups import Groups
from pgtrickle.apply.target import escape
from pgtrickle.model.flow import Delta
from pgtrickle.pipeline.templates import FoldTemplate

if TYPE_CHECKING:
    from pgtrickle.db.connect import Connection


def delta_arrays(conn: Connection, template: FoldTemplate, groups: Groups, delta: Delta) -> list[Sequence[Any]]:
    """The delta in the order of Groups.delta_names, with rereads done and groups that did not change left out."""
    kept = [i for i in range(len(delta)) if _matters(template, delta, i)]
    columns = {name: [values[i] for i in kept] for name, values in delta.columns.items()}
    again = _again(conn, template, groups, columns, len(kept))
    values = _values(conn, template, columns, again) if again else {}
    arrays: list[Sequence[Any]] = [columns["h"], columns["n"], *(columns[f"k{i}"] for i in range(len(template.keys)))]
    for measure in template.measures.measures:
        if measure.kind in ("count", "sum"):
            arrays += [[_text(v) for v in columns[measure.name(suffix)]] for suffix, _ in measure.state]
            continue
        position = template.rereads.index(measure)
        reread = [values[g][position] if g in values else None for g in range(len(kept))]
        if measure.kind == "recompute":
            arrays.append(reread)
        else:
            is_set = [g in again for g in range(len(kept))]
            came = columns[measure.name("i")]
            arrays.append([r if s else c for r, s, c in zip(reread, is_set, came, strict=True)])
            arrays.append(is_set)
    return arrays


def _matters(template: FoldTemplate, delta: Delta, i: int) -> bool:
    if delta.columns["n"][i] != 0:
        return True
    for measure in template.measures.measures:
        if measure.kind == "recompute":
            return True
        if any(delta.columns[measure.name(s)][i] for s in {"count": "n", "sum": "ns"}.get(measure.kind, "")):
            return True
        if measure.kind in ("min", "max") and any(delta.columns[measure.name(s)][i] is not None for s in "id"):
            return True
    return False


def _again(
    conn: Connection, template: FoldTemplate, groups: Groups, columns: dict[str, list[Any]], count: int
) -> set[int]:
    """Positions of the groups to read again."""
    if any(m.kind == "recompute" for m in template.measures.measures):
        return set(range(count))
    extremes = [m for m in template.measures.measures if m.kind in ("min", "max")]
    suspects = [g for g in range(count) if any(columns[m.name("d")][g] is not None for m in extremes)]
    if not suspects:
        return set()
    names = ["h", *(f"k{i}" for i in range(len(template.keys))), *(m.name("d") for m in extremes)]
    types = ["int8", *("text" for _ in template.keys), *("text" for _ in extremes)]
    arrays = ", ".join(f"%s::{t}[]" for t in types)
    match = " AND ".join(
        ["s.h = d.h", *(f"s.k{i} IS NOT DISTINCT FROM d.k{i}::{t.name}" for i, t in enumerate(template.key_types))]
    )
    lost = " OR ".join(
        f"(d.{m.name('d')} IS NOT NULL AND "
        f"d.{m.name('d')}::{m.state[0][1]} {'<=' if m.kind == 'min' else '>='} s.{m.name('v')})"
        for m in extremes
    )
    params = [[_text(columns[n][g]) if n != "h" else columns[n][g] for g in suspects] for n in names]
    rows = conn.execute(
        f"SELECT d.ord FROM unnest({arrays}) WITH ORDINALITY AS d({', '.join(names)}, ord) "
        f"LEFT JOIN {groups.target.state} AS s ON {escape(match)} WHERE ({escape(lost)}) IS NOT FALSE",
        params,
    ).fetchall()
    return {suspects[ord_ - 1] for (ord_,) in rows}


def _values(
    conn: Connection, template: FoldTemplate, columns: dict[str, list[Any]], again: set[int]
) -> dict[int, tuple[Any, ...]]:
    """Reread values by position; a group that is gone has none."""
    positions = sorted(again)
    if not template.keys:
        row = conn.execute(template.reread_all_statement()).fetchone()
        return {} if row is None else {positions[0]: row[1:]}
    params = [[_text(columns[f"k{i}"][g]) for g in positions] for i in range(len(template.keys))]
    statement = template.reread_statement([any(v is None for v in values) for values in params])
    return {positions[row[0] - 1]: row[1:] for row in conn.execute(statement, params).fetchall()}


def _text(value: Any) -> str | None:
    if value is None:
        return None
    if isinstance(value, bool):
        return "true" if value else "false"
    return format(value, "f") if hasattr(value, "as_tuple") else str(value)
