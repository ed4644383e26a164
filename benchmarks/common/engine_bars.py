"""What engines.py judges: its bars, over the results of all runs of one scale, and the tables that show them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from statistics import median
from typing import Any

from rich.console import Console
from rich.table import Table

from common.results import Results

AUTO_TOTAL, AUTO_RIGHT, AS_GOOD = 0.85, 0.9, 1.1
AUTO_CPU, SPARK_TOTAL, SPARK_CPU = 0.5, 1.5, 0.25
CHOSEN = 1.2
MISSING = 1e9  # a ratio to nothing: no bar holds
WAYS = ("differential postgres", "full postgres", "differential spark", "full spark")
Figures = Mapping[str, Any]


def judged(results: Results, scale: float, parts: Sequence[str]) -> dict[str, Any]:
    """The last line: `bars` says which of them hold, for the parts that were asked for."""
    found: dict[str, Any] = {"scale": scale}
    bars: dict[str, bool] = {}
    if "full" in parts:
        found["full"] = of_full(results.of("full", scale))
        bars |= found["full"].pop("bars")
    for part in ("changes", "extremes"):
        if part in parts:
            found[part] = of_changes(results.of(part, scale))
            bars[f"{part}_chosen"] = not found[part]["behind"]
    for part in ("loads", "replica"):
        if part in parts:
            known = results.of(part, scale).get(part, {})
            found[part], bars[part] = known, bool(known.get("ok"))
    return {"ok": all(bars.values()), "bars": bars, **found}


def of_full(queries: Mapping[str, Figures]) -> dict[str, Any]:
    """Totals are of queries that have both figures; a bar over all of them does not hold where one is missing."""
    spark, missing = _pairs(queries, "spark")
    auto = {weight: _pairs(queries, f"auto{weight}") for weight in (0, 1)}
    auto_ratio = _total(auto[0][0], "ms")
    auto_cpu = _total(auto[1][0], "cpu_s")
    spark_ratio = _total(spark, "ms")
    shares = [_ratio(one["cpu_s"], base["cpu_s"]) for one, base in spark]
    spark_cpu = median(shares) if shares else MISSING
    right = [n for n, q in queries.items() if is_right(q)]
    right_share = len(right) / max(len(queries), 1)
    return {
        "queries": len(queries),
        "postgres_s": round(sum(q["postgres"].get("ms", 0.0) for q in queries.values()) / 1000, 2),
        "auto_weight_0_ratio": round(auto_ratio, 3),
        "auto_right_share": round(right_share, 3),
        "auto_wrong": sorted(set(queries) - set(right)),
        "auto_weight_1_cpu_ratio": round(auto_cpu, 3),
        "spark_ratio": round(spark_ratio, 3),
        "spark_cpu_ratio_median": round(spark_cpu, 3),
        "not_on_spark": missing,
        "auto_failed": auto[0][1] | auto[1][1],
        "bars": {
            "auto_weight_0_total": auto_ratio <= AUTO_TOTAL and not auto[0][1],
            "auto_weight_0_right": right_share >= AUTO_RIGHT,
            "auto_weight_1_cpu": auto_cpu <= AUTO_CPU and not auto[1][1],
            "spark_total": spark_ratio <= SPARK_TOTAL and not missing,
            "spark_cpu": spark_cpu <= SPARK_CPU,
        },
    }


def _pairs(queries: Mapping[str, Figures], what: str) -> tuple[list[tuple[Figures, Figures]], dict[str, Any]]:
    """Figures beside those of PostgreSQL alone; and why they are missing, by query."""
    found, missing = [], {}
    for name, query in queries.items():
        if "ms" in query[what] and "ms" in query["postgres"]:
            found.append((query[what], query["postgres"]))
        else:
            missing[name] = query[what].get("why_not") or query["postgres"].get("why_not")
    return found, missing


def _total(pairs: Sequence[tuple[Figures, Figures]], what: str) -> float:
    return _ratio(sum(one[what] for one, _ in pairs), sum(base[what] for _, base in pairs))


def is_right(query: Figures) -> bool:
    """AUTO with weight 0 took the faster engine, or one within 10 %."""
    times = {f"full {engine}": query[engine]["ms"] for engine in ("postgres", "spark") if "ms" in query[engine]}
    chosen = query["auto0"].get("way")
    return chosen in times and times[chosen] <= AS_GOOD * min(times.values())


def of_changes(queries: Mapping[str, Figures]) -> dict[str, Any]:
    """Cases in which the chosen way takes more than 1.2 x the best."""
    ratios = {
        f"{name} at {share}": chosen_ratio(ways)
        for name, query in queries.items()
        for share, ways in query.items()
        if isinstance(ways, Mapping)
    }
    return {
        "cases": len(ratios),
        "behind": {case: ratio for case, ratio in ratios.items() if ratio is None or ratio > CHOSEN},
        "worst": max((r for r in ratios.values() if r is not None), default=None),
    }


def chosen_ratio(ways: Figures) -> float | None:
    """None: AUTO has chosen nothing, or a way that failed when it was asked for."""
    times = {way: ways[way]["ms"] for way in WAYS if "ms" in ways.get(way, {})}
    chosen = ways["auto"].get("way")
    return round(_ratio(times[chosen], min(times.values())), 2) if chosen in times else None


def _ratio(value: float, base: float) -> float:
    return value / base if base else MISSING


def show(results: Results, scale: float) -> None:
    console = Console(stderr=True, width=170)
    if full := results.of("full", scale):
        console.print(_full_table(full))
    for part in ("changes", "extremes", "curve"):
        if found := results.of(part, scale):
            console.print(_ways_table(part, found))


def _full_table(queries: Mapping[str, Figures]) -> Table:
    table = Table(title="FULL: milliseconds, and CPU seconds of the source's server; * = AUTO was not right")
    for title in (
        "query",
        "PostgreSQL",
        "CPU",
        "Spark",
        "CPU",
        "AUTO (0)",
        "chose",
        "AUTO (1)",
        "CPU",
        "chose",
        "note",
    ):
        table.add_column(title, justify="left" if title in ("query", "chose", "note") else "right")
    for name, q in sorted(queries.items()):
        zero, one = q["auto0"], q["auto1"]
        table.add_row(
            name,
            *(_shown(q[engine].get(what)) for engine in ("postgres", "spark") for what in ("ms", "cpu_s")),
            _shown(zero.get("ms")),
            f"{zero.get('way', '-')}{'' if is_right(q) else '*'}".removeprefix("full "),
            *(_shown(one.get(what)) for what in ("ms", "cpu_s")),
            str(one.get("way", "-")).removeprefix("full "),
            str(q["spark"].get("why_not", ""))[:40],
        )
    return table


def _ways_table(part: str, queries: Mapping[str, Figures]) -> Table:
    table = Table(title=f"{part}: milliseconds by share or number of changes")
    for title in ("query", "changes", *WAYS, "AUTO", "chose", "x best"):
        table.add_column(title, justify="left" if title in ("query", "chose") else "right")
    for name, query in sorted(queries.items()):
        for share, ways in query.items():
            if isinstance(ways, Mapping):
                auto = ways.get("auto", {})
                ratio = chosen_ratio(ways) if auto else None
                times = [_shown(ways.get(way, {}).get("ms")) for way in WAYS]
                table.add_row(name, share, *times, _shown(auto.get("ms")), auto.get("way", "-"), _shown(ratio))
    return table


def _shown(value: float | None) -> str:
    return "-" if value is None else f"{value:.2f}" if value < 10 else f"{value:.0f}"
