"""The old state of a table: the state before a window of changes, from the new state and the window.

old = new - inserted + deleted

in:  t, with changes in its buffer c
out: (rows of t) UNION ALL (old rows with a changed key), WHERE not (a row of t with a changed key)
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

from pgtrickle.model.flow import weight_of
from pgtrickle.model.identifiers import quote_ident
from pgtrickle.model.texts import as_text, from_text
from pgtrickle.pipeline.codec import encoded
from pgtrickle.pipeline.differentiate.linear import ChangedSource
from pgtrickle.pipeline.plan.nodes import Scan

NOW_MARK = '"__pgt_now"'  # of a row of the old state: whether it was read from the table


def as_of(
    scan: Scan,
    alias: str,
    change: ChangedSource,
    share: Callable[[str, str], str],
    *,
    surviving_only: bool = False,
    key_filter: tuple[tuple[int, ...], str] | None = None,
) -> tuple[str, str]:
    """The old state of a table under an alias: rows, and a condition that belongs to them.

    The rows are the table's rows, and the old rows of all changed keys. The condition excludes table rows with a
    changed key. It is separate from the rows, because PostgreSQL reads a UNION ALL by the keys of a join only where its
    arms have no conditions.

    The key of a row is the table's key where the changes have it, else the whole row. The old rows of a key are
    new - inserted + deleted, with rows compared as texts: not every type has an equality, and 1.0 must not become 1.00.
    So the key need not be unique.
    `surviving_only`: only rows that are in both states. `key_filter`: columns, and a query of the values that are
    needed. The filter is in each arm: joined to the UNION ALL, PostgreSQL would search all old rows for each key.
    """
    table = f"{quote_ident(scan.relation.schema)}.{quote_ident(scan.relation.name)} AS t"
    names = {c.attnum: quote_ident(c.name) for c in scan.relation.columns}
    stored = {a: f"t.{names[a]}" for a, _ in scan.exposes}
    exposed = {a: f"{alias}.{quote_ident(n)}" for a, n in scan.exposes}
    in_changed_keys = _in_changed_keys(scan, change, share)
    old_rows = _old_rows_of_changed_keys(
        scan,
        change,
        stored,
        f"{table} WHERE ({_key(scan, stored)}) {in_changed_keys}",
        share,
        surviving_only=surviving_only,
    )
    shown = [*(f"{stored[a]} AS {quote_ident(n)}" for a, n in scan.exposes), f"true AS {NOW_MARK}"]
    old_columns = [*(f"b.c{a} AS {quote_ident(n)}" for a, n in scan.exposes), f"false AS {NOW_MARK}"]
    table_filter, old_filter = ("", "")
    if key_filter is not None:
        keys = [stored[a] for a in key_filter[0]], [f"b.c{a}" for a in key_filter[0]]
        table_filter, old_filter = (f" WHERE ({', '.join(columns)}) IN ({key_filter[1]})" for columns in keys)
    return (
        f"SELECT {', '.join(shown)} FROM {table}{table_filter} "
        f"UNION ALL SELECT {', '.join(old_columns)} FROM {isolated(old_rows)} AS b{old_filter}",
        f"(NOT {alias}.{NOW_MARK} OR NOT (({_key(scan, exposed)}) {in_changed_keys}))",
    )


def _row(scan: Scan, columns: Mapping[int, str]) -> str:
    """A row as one text; `columns` has the SQL of each column, by attribute number."""
    bases = {c.attnum: c.base for c in scan.relation.columns}
    return encoded([as_text(sql, bases[a]) for a, sql in columns.items()])


def _key(scan: Scan, columns: Mapping[int, str]) -> str:
    """The key of a row: the table's key where the changes have it, else the text of the row."""
    return ", ".join([columns[a] for a in scan.key] or [_row(scan, columns)])


def _images(scan: Scan) -> dict[int, str]:
    """The columns of a change, by attribute number."""
    return {a: f"c.c{a}" for a, _ in scan.exposes}


def _in_changed_keys(scan: Scan, change: ChangedSource, share: Callable[[str, str], str]) -> str:
    """`IN (keys of the changed rows)`."""
    images = _images(scan)
    changed = [images[a] for a in scan.key] or [_row(scan, images)]
    names = [f"k{i}" for i in range(len(changed))]
    listed = ", ".join(f"{c} AS {n}" for c, n in zip(changed, names, strict=True))
    keys = share(f"SELECT DISTINCT {listed} FROM {change.images} AND c.action <> 'T'", "w")
    return f"IN (SELECT {', '.join(f'w.{n}' for n in names)} FROM {keys} AS w)"


def _old_rows_of_changed_keys(
    scan: Scan,
    change: ChangedSource,
    stored: Mapping[int, str],
    source: str,
    share: Callable[[str, str], str],
    *,
    surviving_only: bool,
) -> str:
    """The name of the WITH item with the old rows of the changed keys: new - inserted + deleted. `source`: FROM and
    WHERE of their new rows."""
    is_new, is_not_new = (", 1 AS m", ", 0") if surviving_only else ("", "")
    new_rows = f"SELECT {_row(scan, stored)} AS r, 1 AS n{is_new} FROM {source}"
    sign = weight_of("c", negated=True)
    undone = f"SELECT {_row(scan, _images(scan))}, {sign}{is_not_new} FROM {change.images} AND c.action <> 'T'"
    count = "least(sum(b.n), sum(b.m))" if surviving_only else "sum(b.n)"
    net = f"SELECT b.r, {count} AS n FROM ({new_rows} UNION ALL {undone}) AS b GROUP BY b.r HAVING {count} > 0"
    typed = ", ".join(_typed(scan, [f"c{a}" for a, _ in scan.exposes])) or "1 AS one"
    return share(f"SELECT {typed} FROM ({net}) AS b, {copies('b.n')}", "b")


def net_changes(scan: Scan, change: ChangedSource, action: str, share: Callable[[str, str], str]) -> str:
    """The name of the WITH item with the net insertions ('I') or deletions ('D') of the window: rows that it inserts
    and deletes equally often are in neither."""
    signed = f"sum({weight_of('c', negated=action == 'D')})"
    image = _row(scan, _images(scan))
    net = f"SELECT {image} AS r, {signed} AS n FROM {change.images} AND c.action <> 'T' GROUP BY 1 HAVING {signed} > 0"
    listed = ", ".join(_typed(scan, [quote_ident(n) for _, n in scan.exposes])) or "1 AS __pgt_one"
    return share(f"SELECT {listed} FROM ({net}) AS b, {copies('b.n')}", "n")


def _typed(scan: Scan, names: Sequence[str]) -> list[str]:
    """The columns of a table from the text of a row, `b.r`."""
    types = {c.attnum: (c.type, c.base) for c in scan.relation.columns}
    exposed = enumerate(zip(scan.exposes, names, strict=True), start=1)
    return [f"{from_text(f'(b.r::text[])[{i}]', *types[a])} AS {name}" for i, ((a, _), name) in exposed]


def copies(count: str) -> str:
    """Repeats each row `count` times. The planner estimates 10 rows for this, and 1000 for generate_series."""
    return f"unnest(array_fill(1, ARRAY[{count}::int4]))"


def isolated(name: str) -> str:
    """A WITH item as a subquery of its own (OFFSET 0): PostgreSQL reads arms of a UNION ALL by key only if they are."""
    return f"(SELECT * FROM {name} OFFSET 0)"
