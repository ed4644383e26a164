"""The second read of a fold: groups whose value cannot be had by adding, evaluated by PostgreSQL in the same snapshot.

A deleted MIN or MAX matters only when it was the extreme, which the state tells; so the state is asked first, and
only the groups that lost their extreme are read. A group that the state does not know, or knows without a value, is
read as well: the terms of a join may bring and take a value that was never in the group, and only together they cancel.
"""

from __future__ import annotations

from collections.abc import Sequence
from decimal import Decimal
from typing import TYPE_CHECKING, Any

from pgtrickle.apply.groups import Groups
from pgtrickle.apply.target import escape
from pgtrickle.errors import InvariantError
from pgtrickle.model.flow import Delta
from pgtrickle.pipeline.templates import FoldTemplate

if TYPE_CHECKING:
    from pgtrickle.db.connect import Connection


def delta_arrays(conn: Connection, template: FoldTemplate, groups: Groups, delta: Delta) -> list[Sequence[Any]]:
    """The delta in the order of Groups.delta_columns, with rereads done and groups that did not change left out."""
    kept = [i for i in range(len(delta)) if _matters(template, delta, i)]
    columns = {name: [values[i] for i in kept] for name, values in delta.columns.items()}
    again = _again(conn, template, groups, columns, len(kept))
    values = _values(conn, template, columns["k"], again) if again else {}
    arrays: list[Sequence[Any]] = [columns["h"], columns["n"], columns["k"]]
    for measure in template.measures.measures:
        if measure.kind == "add":
            arrays.append([str(n) for n in columns[f"s{measure.slot}_n"]])
            if len(measure.state) > 1:
                arrays.append([_at_scale(total, measure.scale) for total in columns[f"s{measure.slot}_s"]])
            continue
        position = template.rereads.index(measure)
        reread = [values[g][position] if g in values else None for g in range(len(kept))]
        if measure.kind == "reread":
            arrays.append(reread)
        else:
            is_set = [g in again for g in range(len(kept))]
            came = columns[f"x{measure.slot}_i"]
            arrays.append([r if s else c for r, s, c in zip(reread, is_set, came, strict=True)])
            arrays.append(is_set)
    return arrays


def _matters(template: FoldTemplate, delta: Delta, i: int) -> bool:
    if delta.columns["n"][i] != 0 or any(m.kind == "reread" for m in template.measures.measures):
        return True
    if any(delta.columns[f"s{m.slot}_{what}"][i] for m in template.sums for what in "ns"):
        return True
    return any(delta.columns[f"x{m.slot}_{what}"][i] is not None for m in template.extremes for what in "id")


def _again(
    conn: Connection, template: FoldTemplate, groups: Groups, columns: dict[str, list[Any]], count: int
) -> set[int]:
    """Positions of the groups to read again."""
    if any(m.kind == "reread" for m in template.measures.measures):
        return set(range(count))
    gone = {m: columns[f"x{m.slot}_d"] for m in template.extremes}
    suspects = [g for g in range(count) if any(values[g] is not None for values in gone.values())]
    if not suspects:
        return set()
    names = ", ".join(["h", "k", *(m.name("d") for m in gone)])
    arrays = ", ".join(["%s::int8[]", "%s::text[]", *("%s::text[]" for _ in gone)])
    lost = " OR ".join(
        f"(d.{m.name('d')} IS NOT NULL AND "
        f"d.{m.name('d')}::{m.state[0][1]} {'<=' if m.kind == 'least' else '>='} s.{m.name('v')})"
        for m in gone
    )
    params = [[values[g] for g in suspects] for values in (columns["h"], columns["k"], *gone.values())]
    rows = conn.execute(
        f"SELECT d.ord FROM unnest({arrays}) WITH ORDINALITY AS d({names}, ord) LEFT JOIN {groups.target.state} AS s "
        f'ON s.h = d.h AND s.k = d.k COLLATE "C" WHERE ({escape(lost)}) IS NOT FALSE',
        params,
    ).fetchall()
    return {suspects[ord_ - 1] for (ord_,) in rows}


def _values(
    conn: Connection, template: FoldTemplate, keys: Sequence[str], again: set[int]
) -> dict[int, tuple[Any, ...]]:
    """Reread values by position; a group that is gone has none."""
    positions = sorted(again)
    if not template.key_types:
        row = conn.execute(template.reread_all_statement()).fetchone()
        return {} if row is None else {positions[0]: row[1:]}
    wanted = [keys[g] for g in positions]
    statement = template.reread_statement(may_be_null=any("NULL" in k for k in wanted))
    # Planned each time: a plan that was kept would not see how the query's tables have grown.
    rows = conn.execute(statement, [wanted], prepare=False).fetchall()
    return {positions[row[0] - 1]: row[1:] for row in rows}


def _at_scale(total: Decimal | None, scale: int) -> str | None:
    """A sum comes back with all digits that it could have had; PostgreSQL's own has as many as its operands."""
    if total is None:
        return None
    text = format(total, "f")
    whole, _, digits = text.partition(".")
    if digits[scale:].strip("0"):
        raise InvariantError(f"the sum {text} has more than {scale} digits after the point")
    return f"{whole}.{digits[:scale]}" if scale else whole
