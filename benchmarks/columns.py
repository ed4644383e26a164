"""What columns cost: the identity of rows of 5, 50 and 300 columns, and refreshes that use 5 of 300 columns.

* Identity: all rows of a table, by the hash of the values as refreshes compute it, and by the hash of the row's text,
  which would have to be concatenated first; the quickest of several rounds. Bars: the values take at most half the time
  of the text at each width, and 300 columns at most 1.5 x as much per column as 50. One column of a type that is hashed
  by its text does not change that: 50 columns with an interval have the same bar.
* Used columns: the same five columns of a table that has five and of one that has 300. 500 rows are updated and
  refreshed in turn. Bar: the refresh for 300 columns takes at most 1.3 x as long as that for five (median). What
  capture adds to the writer's statement, which copies a row of 300 columns anyway, is reported.
"""

from __future__ import annotations

import argparse
import time

from common.harness import Bench, bench, note, percentile, report

from pgtrickle.apply.target import Target, text_hash
from pgtrickle.db import catalog
from pgtrickle.pipeline.engine.spark import SparkEngine

WIDTHS = (5, 50, 300)
# The types take turns.
TYPES = (
    ("int", "i % 1000"),
    ("numeric(12, 2)", "i * 0.25"),
    ("text", "'value ' || i"),
    ("timestamptz", "'2024-01-01'::timestamptz + i * interval '1 s'"),
    ("bigint", "i * 4711::int8"),
)
CHANGED = 500
MOST_ROWS = 100_000
PER_COLUMN, BY_TEXT, WIDE = 1.5, 0.5, 1.3


BY_ITS_TEXT = ("interval", "i * interval '1 s'")


def create_table(line: Bench, name: str, width: int, rows: int, *, has_text: bool = False) -> None:
    """`has_text`: the last column is of a type whose values are hashed by their texts."""
    kinds = [TYPES[number % len(TYPES)] for number in range(width - 1)]
    if has_text:
        kinds[-1] = BY_ITS_TEXT
    columns = "".join(f", c{number} {kind}" for number, (kind, _) in enumerate(kinds))
    values = "".join(f", {value}" for _, value in kinds)
    line.sql(f"CREATE TABLE {name} (id int PRIMARY KEY{columns})")
    line.sql(f"INSERT INTO {name} SELECT i{values} FROM generate_series(1, {rows}) AS i; ANALYZE {name}")


def target_of(line: Bench, name: str) -> Target:
    worker = line.plane.worker
    (table,) = (t for t in catalog.load_stream_tables(worker.writer) if t.name == name)
    compiled = worker.cache.get(table)
    if compiled is None:
        raise SystemExit(f"{name} is not compiled")
    return compiled.target


def identity(line: Bench, width: int, rows: int, rounds: int, *, has_text: bool = False) -> dict[str, float]:
    """Microseconds per row, without what reading the table takes."""
    name = f"{width}{'_text' if has_text else ''}"
    create_table(line, f"t{name}", width, rows, has_text=has_text)
    line.create(f"s{name}", f"SELECT * FROM t{name}")
    target = target_of(line, f"s{name}")
    values = [f"r.c{i}" for i in range(width)]
    columns = ", ".join(f"{c.name} AS c{i}" for i, c in enumerate(target.columns))
    relation = f"(SELECT {columns} FROM t{name} OFFSET 0) AS r"
    text = target.encoded_content("r")
    asked = {
        "nothing": "r.c0",
        "values": target.identity(values, text),
        "text": text_hash(text),
    }
    found: dict[str, list[float]] = {what: [] for what in asked}
    line.sql("SET max_parallel_workers_per_gather = 0; SET jit = off")
    for _ in range(rounds):
        for what, expression in asked.items():
            begun = time.perf_counter()
            line.sql(f"SELECT max({expression}) FROM {relation}")
            found[what].append((time.perf_counter() - begun) * 1e6 / rows)
    by_values, by_text = (min(found[what]) - min(found["nothing"]) for what in ("values", "text"))
    return {
        "values_us": round(by_values, 3),
        "text_us": round(by_text, 3),
        "values_per_text": round(by_values / by_text, 3),
        "values_us_per_column": round(by_values / width, 4),
    }


def used(line: Bench, rows: int, rounds: int) -> dict[str, float]:
    """Medians, in milliseconds."""
    widths = (WIDTHS[0], WIDTHS[-1])
    for width in widths:
        create_table(line, f"free{width}", width, rows)
        create_table(line, f"of{width}", width, rows)
        line.create(f"used{width}", f"SELECT id, c0, c1, c2, c3 FROM of{width}")
    found: dict[str, list[float]] = {f"{what}_{width}": [] for what in ("refresh", "of", "free") for width in widths}
    for number in range(rounds + 3):
        for width in widths:
            for table in ("of", "free"):
                first = number * 977 % (rows - CHANGED)
                begun = time.perf_counter()
                line.sql(f"UPDATE {table}{width} SET c0 = c0 + 1 WHERE id BETWEEN {first + 1} AND {first + CHANGED}")
                if number >= 3:
                    found[f"{table}_{width}"].append((time.perf_counter() - begun) * 1000)
            begun = time.perf_counter()
            line.tick(f"used{width}")
            if number >= 3:
                found[f"refresh_{width}"].append((time.perf_counter() - begun) * 1000)
    for width in widths:
        line.verify(f"used{width}")
    medians = {name: percentile(by, 0.5) for name, by in found.items()}
    few, many = widths
    return {
        "refresh_5_ms": medians[f"refresh_{few}"],
        "refresh_300_ms": medians[f"refresh_{many}"],
        "refresh_ratio": round(medians[f"refresh_{many}"] / medians[f"refresh_{few}"], 3),
        "update_5_ratio": round(medians[f"of_{few}"] / medians[f"free_{few}"], 2),
        "update_300_ratio": round(medians[f"of_{many}"] / medians[f"free_{many}"], 2),
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rows", type=int, default=5_000)
    parser.add_argument("--rounds", type=int, default=15)
    given = parser.parse_args()
    with bench(spark=False) as line:
        line.engine = SparkEngine(lambda: "sc://127.0.0.1:1")  # which refreshes as small as these do not need
        widths = {}
        for width in WIDTHS:
            rows = min(MOST_ROWS, given.rows * WIDTHS[-1] // width)  # few columns take long enough, too
            widths[str(width)] = identity(line, width, rows, given.rounds)
            note(f"identity of {width} columns: {widths[str(width)]}")
        rows = given.rows * WIDTHS[-1] // 50
        widths["50_with_text"] = identity(line, 50, rows, given.rounds, has_text=True)
        note(f"identity of 50 columns, one of them by its text: {widths['50_with_text']}")
        found = used(line, given.rows, given.rounds)
        note(f"5 columns of 5 and of 300: {found}")
    growth = round(widths["300"]["values_us_per_column"] / widths["50"]["values_us_per_column"], 3)
    ok = growth <= PER_COLUMN and found["refresh_ratio"] <= WIDE
    ok = ok and all(each["values_per_text"] <= BY_TEXT for each in widths.values())
    report("columns", ok, identity=widths, per_column_300_per_50=growth, used=found)


if __name__ == "__main__":
    main()
