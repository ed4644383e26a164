"""Rows without a key: weight n is n rows. A row to delete is found by its identity (that of a mirror by its key, if it
has one) and confirmed by its whole text."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from pgtrickle.apply.stage import stage_columns
from pgtrickle.apply.target import Target, own_identity
from pgtrickle.db.roundtrip import Query, Steps
from pgtrickle.errors import InvariantError

if TYPE_CHECKING:
    from pgtrickle.db.connect import Connection

# (name, type) of a delta: identity, weight, row
DELTA_COLUMNS = (("h", "int8"), ("n", "int8"), ("k", "text"))
# and of a load: each row with its identity
LOAD_COLUMNS = (("k", "text"), ("h", "int8"))
# The array of a row is made once: merged into the outer query, it would be made again for each of its columns.
_ONCE = "OFFSET 0"


@dataclass(frozen=True, slots=True)
class BagDelta:
    """Rows that come and go, in their texts. `identities` is None for a mirror, whose rows get theirs in the apply; its
    small deltas are not netted either: a row may be there more than once, with weights that cancel out."""

    identities: Sequence[int] | None
    weights: Sequence[int]
    rows: Sequence[str]

    def __len__(self) -> int:
        return len(self.rows)

    def columns(self) -> list[Sequence[Any]]:
        """In the order of `delta_columns`."""
        return [*([self.identities] if self.identities is not None else []), self.weights, self.rows]


def delta_columns(target: Target) -> Sequence[tuple[str, str]]:
    """What has to be carried of a delta: a mirror's rows get their identity here."""
    return DELTA_COLUMNS[1:] if target.is_mirror else DELTA_COLUMNS


def load_columns(target: Target) -> Sequence[tuple[str, str]]:
    return LOAD_COLUMNS[:1] if target.is_mirror else LOAD_COLUMNS


def apply_arrays(target: Target, delta: BagDelta) -> Steps[tuple[int, int]]:
    """A small delta, as array parameters. Returns rows inserted and deleted. That of a mirror is netted by the
    statement."""
    text = target.text("bag", lambda: _arrays_text(target))
    ((inserted, deleted, expected),) = yield Query(text, delta.columns())
    _check(target, deleted, expected)
    return inserted, deleted


def _arrays_text(target: Target) -> str:
    rows = "SELECT d.h, d.n, d.k FROM unnest($1::int8[], $2::int8[], $3::text[]) AS d(h, n, k)"
    if target.is_mirror:
        netted = (
            'SELECT s.k COLLATE "C", sum(s.n)::int8 FROM unnest($1::int8[], $2::text[]) AS s(n, k) '
            'GROUP BY s.k COLLATE "C" HAVING sum(s.n) <> 0'
        )
        rows = f"SELECT {own_identity('d.k')} AS h, d.n, d.k FROM ({netted}) AS d(k, n)"
    a = "d.k::text[]" if target.key else "CASE WHEN d.n > 0 THEN d.k::text[] END"
    # Rows come only when others have gone: a unique index of the user's may know both.
    return (
        f"WITH d AS MATERIALIZED (SELECT d.*, {a} AS a, row_number() OVER () AS ord FROM ({rows}) AS d), "
        f"gone AS ({_delete(target, 'd')} RETURNING 1), "
        f"come AS ({_insert(target, 'd')} WHERE (SELECT count(*) FROM gone) >= 0 RETURNING 1) "
        "SELECT (SELECT count(*) FROM come), (SELECT count(*) FROM gone), "
        "(SELECT coalesce(-sum(d.n), 0)::int8 FROM d WHERE d.n < 0)"
    )


def apply_staged(conn: Connection, target: Target, delta: BagDelta) -> tuple[int, int]:
    """A large delta, netted, through a staging table with `delta_columns`."""
    stage = stage_columns(conn, delta_columns(target), delta.columns())
    if target.is_mirror:
        stage = f"(SELECT {own_identity('s.k')} AS h, s.n, s.k FROM {stage} AS s)"
    return _apply_rows(conn, target, stage)


def _apply_rows(conn: Connection, target: Target, delta: str) -> tuple[int, int]:
    """`delta`: a relation with DELTA_COLUMNS."""
    row = conn.execute(f"SELECT coalesce(-sum(d.n), 0)::int8 FROM {delta} AS d WHERE d.n < 0").fetchone()
    expected = int(row[0]) if row else 0
    if expected:
        a = ", d.k::text[] AS a" if target.key else ""
        d = f"WITH d AS MATERIALIZED (SELECT d.*{a}, row_number() OVER () AS ord FROM {delta} AS d WHERE d.n < 0) "
        _check(target, conn.execute(d + _delete(target, "d")).rowcount, expected)
    rows = f"(SELECT s.h, s.n, s.k::text[] AS a FROM {delta} AS s WHERE s.n > 0 {_ONCE})"
    return conn.execute(_insert(target, rows)).rowcount, expected


def replace_staged(conn: Connection, target: Target, stage: str) -> tuple[int, int]:
    """Makes the table equal to the staged rows (`load_columns`) by difference: readers and consumers see a delta.

    A row under another identity than it gets now is another row: it goes, and comes.
    """
    h = own_identity("s.k") if target.is_mirror else "s.h"
    row = conn.execute(f"SELECT EXISTS (SELECT FROM {target.table})").fetchone()
    if not (row and row[0]):
        inserted = conn.execute(
            f"INSERT INTO {target.table} ({target.column_list()}) SELECT {target.decoded('d.a')}d.h "
            f"FROM (SELECT {h}, s.k::text[] FROM {stage} AS s {_ONCE}) AS d(h, a)"
        ).rowcount
        # Without it the next refresh would look its rows up by reading all of them.
        conn.execute(f"ANALYZE {target.table}")
        return inserted, 0
    conn.execute("DROP TABLE IF EXISTS pg_temp.__pgt_difference")  # of another table of the same transaction
    conn.execute('CREATE TEMP TABLE __pgt_difference (h int8, n int8, k text COLLATE "C") ON COMMIT DROP')
    conn.execute(
        f"INSERT INTO __pgt_difference SELECT b.h, sum(b.w), b.k FROM ("
        f'SELECT {h}, s.k COLLATE "C", 1 FROM {stage} AS s '
        f"UNION ALL SELECT t.__pgt_row_id, {target.encoded('t')}, -1 FROM {target.table} AS t"
        ") AS b(h, k, w) GROUP BY b.h, b.k HAVING sum(b.w) <> 0"
    )
    conn.execute("ANALYZE __pgt_difference")
    return _apply_rows(conn, target, "__pgt_difference")


def _delete(target: Target, d: str) -> str:
    """Of rows of `d` with a negative weight, as many as that. `d` has (h, n, k, ord); with a key also a, the row's
    array."""
    # IS TRUE: no join by the text, for which that of every row would be made.
    return (
        f"DELETE FROM {target.table} WHERE ctid = ANY (ARRAY(SELECT v.place FROM ("
        f"SELECT t.ctid AS place, d.n, row_number() OVER (PARTITION BY d.ord) AS copy "
        f"FROM {d} AS d JOIN {target.table} AS t ON {target.found_by('t', 'd')} "
        f"AND ({target.encoded('t')} = d.k) IS TRUE "
        f"WHERE d.n < 0) AS v WHERE v.copy <= -v.n))"
    )


def _insert(target: Target, d: str) -> str:
    """`d` has (h, n, a)."""
    return (
        f"INSERT INTO {target.table} ({target.column_list()}) SELECT {target.decoded('d.a')}d.h "
        f"FROM {d} AS d, generate_series(1, d.n)"
    )


def _check(target: Target, deleted: int, expected: int) -> None:
    if deleted != expected:
        raise InvariantError(
            f"{expected} rows were to leave {target.schema}.{target.name} but {deleted} were found",
            hint="was the stream table changed by hand? It is loaded anew",
        )
