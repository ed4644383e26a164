"""What capture costs the writers: no trigger, our statement-level triggers, row-level triggers with the same rows.

Bars: inserting 100k rows in one statement <= 2.0 x no trigger; single-row transactions >= 70 % of no trigger's
throughput with synchronous_commit off, where no flush hides the trigger. The same with flushed commits is reported;
there the disk's noise is larger than what is measured. The variants take short turns; medians.
"""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable

from common.harness import Bench, bench, note, report

from pgtrickle.capture.install import ensure_capture
from pgtrickle.db.connect import connect

VARIANTS = ("none", "statement", "row")
BULK_ROWS = 100_000
BULK_ROUNDS = 7
SINGLE_SECONDS = 0.25
SINGLE_ROUNDS = 30


def prepare(line: Bench) -> None:
    for name in VARIANTS:
        line.sql(f"CREATE TABLE w_{name} (id int PRIMARY KEY, k int, amount numeric(10, 2), note text)")
    relid, columns = line.sql("SELECT 'w_statement'::regclass::oid::int8, ARRAY[1, 2, 3, 4]")[0]
    with connect(line.dsn, role="bench", autocommit=True) as conn:
        ensure_capture(conn, relid, columns)
    line.sql("""
        CREATE TABLE row_buffer (xid xid8, lsn pg_lsn, action "char", c1 int, c2 int, c3 numeric, c4 text);
        CREATE FUNCTION capture_row() RETURNS trigger LANGUAGE plpgsql AS $f$
        BEGIN
            IF TG_OP <> 'INSERT' THEN
                INSERT INTO row_buffer VALUES
                    (pg_current_xact_id(), pg_current_wal_insert_lsn(), 'D', OLD.id, OLD.k, OLD.amount, OLD.note);
            END IF;
            IF TG_OP <> 'DELETE' THEN
                INSERT INTO row_buffer VALUES
                    (pg_current_xact_id(), pg_current_wal_insert_lsn(), 'I', NEW.id, NEW.k, NEW.amount, NEW.note);
            END IF;
            RETURN NULL;
        END $f$;
        CREATE TRIGGER capture AFTER INSERT OR UPDATE OR DELETE ON w_row FOR EACH ROW EXECUTE FUNCTION capture_row();
    """)


def bulk(line: Bench) -> dict[str, dict[str, float]]:
    statements = {
        "insert": "INSERT INTO w_%s SELECT i, i %% 100, i * 0.01, 'note ' || i "
        f"FROM generate_series(1, {BULK_ROWS}) AS i",
        "update": "UPDATE w_%s SET amount = amount + 1",
        "delete": "DELETE FROM w_%s",
    }
    times: dict[str, dict[str, list[float]]] = {s: {v: [] for v in VARIANTS} for s in statements}
    for _ in range(BULK_ROUNDS):
        for variant in VARIANTS:
            for what, text in statements.items():
                begun = time.perf_counter()
                line.sql(text % variant)
                times[what][variant].append((time.perf_counter() - begun) * 1000)
        empty(line)
    return {what: {v: round(statistics.median(t), 1) for v, t in by.items()} for what, by in times.items()}


def single(line: Bench) -> dict[str, dict[str, float]]:
    """Transactions per second of one session that inserts, then updates, one row per transaction."""
    inserts: dict[str, list[float]] = {v: [] for v in VARIANTS}
    updates: dict[str, list[float]] = {v: [] for v in VARIANTS}
    next_id = {v: line.sql(f"SELECT coalesce(max(id), 0) FROM w_{v}")[0][0] for v in VARIANTS}
    for _ in range(SINGLE_ROUNDS):
        for variant in VARIANTS:

            def insert(number: int, variant: str = variant) -> None:
                next_id[variant] += 1
                line.conn.execute(
                    f"INSERT INTO w_{variant} VALUES (%s, %s, 1.5, 'note')", (next_id[variant], number % 100)
                )

            def update(number: int, variant: str = variant) -> None:
                line.conn.execute(
                    f"UPDATE w_{variant} SET amount = amount + 1 WHERE id = %s",
                    (1 + number % max(next_id[variant], 1),),
                )

            inserts[variant].append(rate(insert))
            updates[variant].append(rate(update))
    return {
        "insert": {v: round(statistics.median(t)) for v, t in inserts.items()},
        "update": {v: round(statistics.median(t)) for v, t in updates.items()},
    }


def rate(action: Callable[[int], None]) -> float:
    begun, count = time.perf_counter(), 0
    while time.perf_counter() - begun < SINGLE_SECONDS:
        action(count)
        count += 1
    return count / (time.perf_counter() - begun)


def empty(line: Bench) -> None:
    buffer = line.sql("SELECT 'pgtrickle_changes.changes_' || 'w_statement'::regclass::oid")[0][0]
    line.sql(f"TRUNCATE {buffer}, row_buffer")
    for variant in VARIANTS:
        line.sql(f"VACUUM w_{variant}")


def main() -> None:
    with bench(spark=False, durable=True) as line:
        prepare(line)
        bulk_ms = bulk(line)
        note(f"100k-row statements, ms: {bulk_ms}")
        rates = single(line)
        note(f"single-row transactions per second: {rates}")
        line.sql("SET synchronous_commit = off")
        unflushed = single(line)
        note(f"the same, synchronous_commit off: {unflushed}")
    ratios = {w: {v: round(ms[v] / ms["none"], 2) for v in VARIANTS[1:]} for w, ms in bulk_ms.items()}
    shares, unflushed_shares = (
        {w: {v: round(tps[v] / tps["none"], 2) for v in VARIANTS[1:]} for w, tps in measured.items()}
        for measured in (rates, unflushed)
    )
    ok = ratios["insert"]["statement"] <= 2.0 and unflushed_shares["insert"]["statement"] >= 0.7
    report(
        "capture",
        ok,
        bulk_ratio=ratios,
        single_row_share=shares,
        single_row_share_unflushed=unflushed_shares,
        bulk_ms=bulk_ms,
        single_row_tps=rates,
        single_row_tps_unflushed=unflushed,
    )


if __name__ == "__main__":
    main()
