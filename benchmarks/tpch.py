"""TPC-H: each of the 22 queries by PostgreSQL, by FULL refresh, and by DIFFERENTIAL refresh at three shares of changes.

Each query has three stream tables, one for each mode, that are refreshed on request only, one at a time, in changing
order, over the same changes. AUTO's choice is what it took in most of the last three rounds of a share, tries left out:
before, it learns. Its first minute is skipped.

Bars: DIFFERENTIAL at most 1.2 x FULL wherever AUTO chooses it; AUTO chooses the faster one (or one within 10 %) in 90 %
of the cases; at 0.1 % DIFFERENTIAL ahead of FULL for 18 of 22; no query takes more than 50 ms to compile, not even in a
session that was opened for it (cold: PostgreSQL has none of its catalog in that process's memory yet).

    python benchmarks/tpch.py [--scale 1] [--queries q01,q02] [--rounds 7]
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from statistics import median
from typing import Any

import psycopg
from common.harness import Bench, bench, note, report
from common.tpch import QUERIES, Tpch
from rich.console import Console
from rich.table import Table

from pgtrickle.db import catalog
from pgtrickle.db.connect import Connection, connect
from pgtrickle.define.compile import compile_table
from pgtrickle.model.catalog import StreamTable
from pgtrickle.model.reasons import Reason, ReasonCode

SHARES = (0.0001, 0.001, 0.01)
JUDGED_SHARE = 0.001
SLOWER_AT_MOST = 1.2
AUTO_RIGHT = 0.9
AS_GOOD = 1.1
AHEAD = 18
COMPILE_MS = 50.0
STATEMENT_MS = 300_000  # a differential refresh may lose, but not for hours
LOADED_S = 120.0
UNLOADED = "SELECT FROM pgtrickle.pgt_stream_tables WHERE NOT is_populated AND status <> 'ERROR'"
MODES = ("FULL", "DIFFERENTIAL", "AUTO")
TRIES = (ReasonCode.TRIED_UNKNOWN, ReasonCode.TRIED_DIFFERENTIAL, ReasonCode.TRIED_FULL)
SETTLED = 3
WARM_COMPILATIONS = 10
COMPILATIONS = 7


@dataclass
class Measured:
    """Milliseconds. `differential` is None where it was refused (`reason`) or failed (`errors`)."""

    query_ms: float = 0.0
    cold_ms: float | None = None  # to compile
    warm_ms: float | None = None
    reason: str | None = None
    full: dict[float, float] = field(default_factory=dict)
    differential: dict[float, float] = field(default_factory=dict)
    auto: dict[float, str] = field(default_factory=dict)
    errors: list[str] = field(default_factory=list)

    def ahead(self, share: float) -> bool:
        return share in self.differential and self.differential[share] < self.full[share]

    def is_right(self, share: float) -> bool:
        """AUTO took the faster way; where only FULL is possible there is nothing to choose."""
        if share not in self.differential:
            return self.auto.get(share) == "FULL"
        both = {"FULL": self.full[share], "DIFFERENTIAL": self.differential[share]}
        return both.get(self.auto.get(share, ""), float("inf")) <= AS_GOOD * min(both.values())

    def loses(self, share: float) -> bool:
        """AUTO chose DIFFERENTIAL where it is much slower."""
        chosen = self.auto.get(share) == "DIFFERENTIAL"
        return chosen and self.differential.get(share, 0.0) > SLOWER_AT_MOST * self.full[share]


def milliseconds_of(line: Bench, query: str, repeats: int) -> float:
    times = []
    for _ in range(repeats):
        begun = time.perf_counter()
        line.sql(query)
        times.append((time.perf_counter() - begun) * 1000)
    return median(times)


@dataclass(frozen=True)
class Refreshed:
    """One refresh of a table alone."""

    ms: float
    action: str = ""
    reason: Reason | None = None
    error: str | None = None


def refreshed(line: Bench, name: str) -> Refreshed:
    line.sql(
        "UPDATE pgtrickle.pgt_stream_tables SET refresh_requested_at = clock_timestamp() WHERE pgt_name = %s", name
    )
    begun = time.perf_counter()
    outcomes = [o for o in line.plane.tick() if o.table.name == name]
    took = (time.perf_counter() - begun) * 1000
    if len(outcomes) != 1:
        return Refreshed(took, error=f"{len(outcomes)} outcomes")
    error = outcomes[0].error
    return Refreshed(took, outcomes[0].action, outcomes[0].reason, error.one_line() if error is not None else None)


def created(line: Bench, name: str, query: str) -> tuple[list[str], str | None]:
    """The modes in which the table can be kept, and why DIFFERENTIAL is not one of them."""
    modes, reason = [], None
    for mode in MODES:
        try:
            line.sql("SELECT pgtrickle.create_stream_table(%s, %s, '24h', %s)", f"{name}_{mode.lower()}", query, mode)
            modes.append(mode)
        except psycopg.Error as error:
            reason = error.diag.message_primary
    until = time.monotonic() + LOADED_S
    line.plane.tick()
    while time.monotonic() < until and line.sql(UNLOADED):  # capture waits for no lock, and vacuum has one for long
        time.sleep(1)
        line.plane.tick()
    for table, status, message in line.sql(
        "SELECT pgt_name, status, last_error_message FROM pgtrickle.pgt_stream_tables WHERE status <> 'ACTIVE'"
    ):
        mode = table.removeprefix(f"{name}_").upper()
        modes.remove(mode)
        reason = f"{status}: {message}"
        line.sql("SELECT pgtrickle.drop_stream_table(%s)", table)
    line.sql("UPDATE pgtrickle.pgt_stream_tables SET created_at = created_at - interval '1 min'")
    return modes, reason


def compile_milliseconds(line: Bench, name: str) -> tuple[float, float]:
    """In a fresh session each, and in one that has prepared what every compilation asks, as that of a loop has."""
    (table,) = [t for t in catalog.load_stream_tables(line.conn) if t.name == name]
    cold, warm = [], []
    for _ in range(COMPILATIONS):
        with connect(line.dsn, role="bench", autocommit=True) as conn:
            cold.append(_compiled_in(conn, table))
    with connect(line.dsn, role="bench", autocommit=True) as conn:
        for _ in range(WARM_COMPILATIONS + COMPILATIONS):
            warm.append(_compiled_in(conn, table))
    return median(cold), median(warm[WARM_COMPILATIONS:])


def _compiled_in(conn: Connection, table: StreamTable) -> float:
    begun = time.perf_counter()
    compile_table(conn, table)
    return (time.perf_counter() - begun) * 1000


def measured(line: Bench, tpch: Tpch, name: str, query: str, rounds: int) -> Measured:
    found = Measured()
    found.query_ms = milliseconds_of(line, query, rounds)
    modes, found.reason = created(line, name, query)
    if "DIFFERENTIAL" in modes:
        found.cold_ms, found.warm_ms = compile_milliseconds(line, f"{name}_differential")
    for share in SHARES:
        times: dict[str, list[float]] = {mode: [] for mode in modes}
        actions: list[str | None] = []
        reasons = []
        for number in range(rounds):
            line.plane.tidy()
            tpch.change(share)
            first = number % len(modes)
            for mode in (*modes[first:], *modes[:first]):
                done = refreshed(line, f"{name}_{mode.lower()}")
                if done.error is not None:
                    found.errors.append(f"{mode} at {share:.2%}: {done.error}")
                elif mode == "AUTO":
                    reasons.append(f"{done.action} in {done.ms:.0f} ms: {done.reason}")
                    is_try = done.reason is not None and done.reason.code in TRIES  # to try is not to choose
                    actions.append(None if is_try else done.action)
                elif done.action == mode:
                    times[mode].append(done.ms)
        if times["FULL"]:
            found.full[share] = median(times["FULL"])
        if times.get("DIFFERENTIAL"):
            found.differential[share] = median(times["DIFFERENTIAL"])
        if (choice := settled(actions)) is not None:
            found.auto[share] = choice
        note(f"{name} at {share:.2%}: { ({m: [round(t) for t in ts] for m, ts in times.items()}) } AUTO {actions}")
        if not found.is_right(share):
            note("\n".join(f"    {reason}" for reason in reasons))
    for mode in modes:
        if not found.errors:
            line.verify(f"{name}_{mode.lower()}")
        line.sql("SELECT pgtrickle.drop_stream_table(%s)", f"{name}_{mode.lower()}")
    return found


def settled(actions: Sequence[str | None]) -> str | None:
    """What was taken most in the last rounds, the latest of those; where they were tries alone, the choice before."""
    chosen = [a for a in actions[-SETTLED:] if a is not None] or [a for a in actions if a is not None][-1:]
    return max(reversed(chosen), key=chosen.count, default=None)


def show(results: dict[str, Measured]) -> None:
    table = Table(
        title="milliseconds (cold, warm: to compile); * = AUTO's choice was not the faster one", title_justify="left"
    )
    for title in ("query", "PostgreSQL", "FULL", *(f"DIFF {s:.2%}" for s in SHARES), "AUTO", "cold", "warm", "note"):
        table.add_column(title, justify="left" if title in ("query", "AUTO", "note") else "right")
    for name, r in results.items():
        full = median(r.full.values()) if r.full else None
        choices = " ".join(r.auto.get(s, "-")[:4] + ("" if r.is_right(s) else "*") for s in SHARES)
        table.add_row(
            name,
            _shown(r.query_ms),
            _shown(full),
            *(_shown(r.differential.get(s)) for s in SHARES),
            choices,
            _shown(r.cold_ms),
            _shown(r.warm_ms),
            "; ".join([*r.errors[:1], *([r.reason] if r.reason else [])])[:60],
        )
    Console(width=180).print(table)


def _shown(value: float | None) -> str:
    return "-" if value is None else f"{value:.1f}" if value < 100 else f"{value:.0f}"


def _rounded(value: float | None) -> float | None:
    return None if value is None else round(value, 1)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--scale", type=float, default=0.1)
    parser.add_argument("--queries", help="some of them, separated by commas")
    parser.add_argument("--rounds", type=int, default=7)
    options = parser.parse_args()
    wanted = options.queries.split(",") if options.queries else list(QUERIES)
    results: dict[str, Measured] = {}
    with bench() as line:
        line.sql(f"ALTER DATABASE {line.conn.info.dbname} SET statement_timeout = {STATEMENT_MS}")
        tpch = Tpch(line, options.scale)
        for name in wanted:
            results[name] = measured(line, tpch, name, QUERIES[name], options.rounds)
    show(results)
    judgement = judged(results, options.scale, tpch.rows["lineitem"])
    for sentence in sentences(judgement):
        note(sentence)
    report("tpch", **judgement)


def sentences(judgement: dict[str, Any]) -> list[str]:
    """The verdicts, a line each."""
    bars, cases = judgement["bars"], len(SHARES) * judgement["queries"]
    slower = ", ".join(judgement["differential_slower_where_auto_chooses_it"]) or "none"
    behind = ", ".join(judgement["behind_at_0.1%"]) or "none"
    said = {
        "differential_not_slower": f"slower than {SLOWER_AT_MOST} x FULL where AUTO chooses DIFFERENTIAL: {slower}",
        "auto_right": f"AUTO took the faster way in {judgement['auto_right_share']:.0%} of {cases} cases",
        "ahead_at_0.1%": f"at 0.1 % DIFFERENTIAL is ahead of FULL in {judgement['ahead_at_0.1%']} of "
        f"{judgement['queries']}, behind in: {behind}",
        "compile": f"the slowest query compiles in {judgement['compile_ms_cold']} ms in a fresh session, "
        f"in {judgement['compile_ms_warm']} ms in one that is used",
    }
    return [f"{'yes' if bars[bar] else 'NO '}  {sentence}" for bar, sentence in said.items()]


def judged(results: dict[str, Measured], scale: float, items: int) -> dict[str, Any]:
    cases = [(name, share) for name, r in results.items() for share in r.full]
    loses = [f"{name} at {share:.2%}" for name, share in cases if results[name].loses(share)]
    right = sum(results[name].is_right(share) for name, share in cases) / max(len(cases), 1)
    ahead = [name for name, r in results.items() if r.ahead(JUDGED_SHARE)]
    cold = [r.cold_ms for r in results.values() if r.cold_ms is not None]
    warm = [r.warm_ms for r in results.values() if r.warm_ms is not None]
    bars = {
        "differential_not_slower": not loses,
        "auto_right": right >= AUTO_RIGHT,
        "ahead_at_0.1%": len(ahead) >= AHEAD * len(results) / len(QUERIES),
        "compile": max(cold + warm, default=0.0) <= COMPILE_MS,
        "all_differential": len(cold) == len(results),
        "no_errors": not any(r.errors for r in results.values()),
    }
    return {
        "ok": all(bars.values()),
        "scale": scale,
        "line_items": items,
        "queries": len(results),
        "bars": bars,
        "differential_slower_where_auto_chooses_it": loses,
        "auto_right_share": round(right, 3),
        "ahead_at_0.1%": len(ahead),
        "behind_at_0.1%": sorted(set(results) - set(ahead)),
        "compile_ms_cold": round(max(cold, default=0.0), 1),
        "compile_ms_warm": round(max(warm, default=0.0), 1),
        "per_query": {
            name: {
                "postgresql_ms": round(r.query_ms, 1),
                "full_ms": {f"{s:.2%}": round(t, 1) for s, t in r.full.items()},
                "differential_ms": {f"{s:.2%}": round(t, 1) for s, t in r.differential.items()},
                "auto": {f"{s:.2%}": a for s, a in r.auto.items()},
                "compile_ms": {"cold": _rounded(r.cold_ms), "warm": _rounded(r.warm_ms)},
                "full_because": r.reason,
                "errors": r.errors,
            }
            for name, r in results.items()
        },
    }


if __name__ == "__main__":
    main()
