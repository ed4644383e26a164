"""A table as it was before a window of changes, from what it is and what the window has."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

from pgtrickle.model.identifiers import quote_ident
from pgtrickle.model.texts import as_text, from_text
from pgtrickle.pipeline.codec import encoded
from pgtrickle.pipeline.differentiate.linear import ChangedSource
from pgtrickle.pipeline.plan.nodes import Scan

NOW_MARK = '"__pgt_now"'  # of a row of a table as it was: whether it is there now


def as_of(
    scan: Scan,
    alias: str,
    change: ChangedSource,
    share: Callable[[str, str], str],
    *,
    kept: bool = False,
    only: tuple[tuple[int, ...], str] | None = None,
) -> tuple[str, str]:
    """The table before the window, under an alias: rows, and the condition that belongs to them.

    The rows are those that the table has, and for what the window touched what there was. The condition leaves out
    of the former what the window touched. It stands beside the rows, not in them: PostgreSQL reads a UNION ALL by
    the keys of a join only where its arms have no conditions of their own.

    Rows are touched that share their key with a changed one, where changes have a key of the table, else that are
    equal to one. What there was of them is what there is minus what came plus what went, row by row as texts: not
    every type has an equality, and 1.0 must not stand for 1.00. So the key need not be unique.
    `kept`: only what there was and still is. `only`: rows whose columns are among the keys that a query has. In each
    arm by itself: joined to both, PostgreSQL would look for each key through all that was given back.
    """
    table = f"{quote_ident(scan.relation.schema)}.{quote_ident(scan.relation.name)} AS t"
    names = {c.attnum: quote_ident(c.name) for c in scan.relation.columns}
    stored = {a: f"t.{names[a]}" for a, _ in scan.exposes}
    exposed = {a: f"{alias}.{quote_ident(n)}" for a, n in scan.exposes}
    touched = _touched(scan, change, share)
    back = _given_back(scan, change, stored, f"{table} WHERE ({_key(scan, stored)}) {touched}", share, kept=kept)
    shown = [*(f"{stored[a]} AS {quote_ident(n)}" for a, n in scan.exposes), f"true AS {NOW_MARK}"]
    given = [*(f"b.c{a} AS {quote_ident(n)}" for a, n in scan.exposes), f"false AS {NOW_MARK}"]
    here, given_back = ("", "")
    if only is not None:
        wanted = [stored[a] for a in only[0]], [f"b.c{a}" for a in only[0]]
        here, given_back = (f" WHERE ({', '.join(columns)}) IN ({only[1]})" for columns in wanted)
    return (
        f"SELECT {', '.join(shown)} FROM {table}{here} "
        f"UNION ALL SELECT {', '.join(given)} FROM {apart(back)} AS b{given_back}",
        f"(NOT {alias}.{NOW_MARK} OR NOT (({_key(scan, exposed)}) {touched}))",
    )


def _row(scan: Scan, columns: Mapping[int, str]) -> str:
    """A row as one text; `columns` has the SQL of each column, by attribute number."""
    bases = {c.attnum: c.base for c in scan.relation.columns}
    return encoded([as_text(sql, bases[a]) for a, sql in columns.items()])


def _key(scan: Scan, columns: Mapping[int, str]) -> str:
    """What tells rows apart: the key of the table where the changes have it, else the text of the row."""
    return ", ".join([columns[a] for a in scan.key] or [_row(scan, columns)])


def _images(scan: Scan) -> dict[int, str]:
    """The columns of a change, by attribute number."""
    return {a: f"c.c{a}" for a, _ in scan.exposes}


def _touched(scan: Scan, change: ChangedSource, share: Callable[[str, str], str]) -> str:
    """`IN (keys of the changed rows)`."""
    images = _images(scan)
    changed = [images[a] for a in scan.key] or [_row(scan, images)]
    names = [f"k{i}" for i in range(len(changed))]
    listed = ", ".join(f"{c} AS {n}" for c, n in zip(changed, names, strict=True))
    keys = share(f"SELECT DISTINCT {listed} FROM {change.images} AND c.action <> 'T'", "w")
    return f"IN (SELECT {', '.join(f'w.{n}' for n in names)} FROM {keys} AS w)"


def _given_back(
    scan: Scan,
    change: ChangedSource,
    stored: Mapping[int, str],
    source: str,
    share: Callable[[str, str], str],
    *,
    kept: bool,
) -> str:
    """The name of what there was of the touched rows, from what there is of them, `source`."""
    there, not_there = (", 1 AS m", ", 0") if kept else ("", "")
    now = f"SELECT {_row(scan, stored)} AS r, 1 AS n{there} FROM {source}"
    sign = "CASE c.action WHEN 'I' THEN -1 ELSE 1 END"
    undone = f"SELECT {_row(scan, _images(scan))}, {sign}{not_there} FROM {change.images} AND c.action <> 'T'"
    count = "least(sum(b.n), sum(b.m))" if kept else "sum(b.n)"
    net = f"SELECT b.r, {count} AS n FROM ({now} UNION ALL {undone}) AS b GROUP BY b.r HAVING {count} > 0"
    typed = ", ".join(_typed(scan, [f"c{a}" for a, _ in scan.exposes])) or "1 AS one"
    return share(f"SELECT {typed} FROM ({net}) AS b, {copies('b.n')}", "b")


def netted(scan: Scan, change: ChangedSource, action: str, share: Callable[[str, str], str]) -> str:
    """The name of the rows that have come ('I') or gone ('D') for good: not those that did both in the window."""
    signed = f"sum(CASE c.action WHEN '{action}' THEN 1 ELSE -1 END)"
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
    """So many rows of each; the planner takes this for 10, generate_series for 1000."""
    return f"unnest(array_fill(1, ARRAY[{count}::int4]))"


def apart(name: str) -> str:
    """A WITH item as an arm of a UNION ALL that a join may read by key, which PostgreSQL does with subqueries alone."""
    return f"(SELECT * FROM {name} OFFSET 0)"
