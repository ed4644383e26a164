"""Settings of the author's session: whatever the control plane's sessions have, results are those of the author."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from pgtrickle.model.reasons import ReasonCode
from pgtrickle.settings import Settings
from tests.conftest import Database
from tests.line import Line

MakeLine = Callable[..., Line]

TABLE = """
CREATE TABLE t (id int PRIMARY KEY, at timestamptz, f float8, span interval, b bytea, d date, note text);
INSERT INTO t SELECT i, timestamptz '2026-01-01 22:30Z' + i * interval '7 hours', i / 3.0, i * interval '36 hours',
    decode('00ff', 'hex'), date '2026-02-03' + i, CASE i % 3 WHEN 0 THEN '03/04/2026' WHEN 1 THEN '1.5' ELSE 'x' END
FROM generate_series(1, 20) AS i
"""
# By their own settings; the last ones make texts of values.
QUERIES = {
    "days": "SELECT at::date AS day, count(*) AS n, max(at) AS last FROM t GROUP BY 1",
    "hours": "SELECT id, extract(hour FROM at) AS h, to_char(at, 'YYYY-MM-DD HH24:MI TZ') AS c FROM t",
    "joined": "SELECT a.id, b.id AS other FROM t AS a JOIN t AS b ON a.at::date = b.d + 1",
    "first_ones": "SELECT id, at, date_trunc('day', at) AS day FROM t ORDER BY at::date DESC, id LIMIT 5",
    "parsed": "SELECT id, to_date(note, 'DD/MM/YYYY') AS d, date '03/04/2026' AS e FROM t WHERE note LIKE '%/%'",
    "numbered": "SELECT id, at, row_number() OVER (PARTITION BY at::date ORDER BY id) AS n FROM t",
    "values_": "SELECT id, at, f, span, b, d FROM t",
    "texts": "SELECT id, at::text AS a, f::text AS f, span::text AS s, b::text AS b, d::text AS d, f AS g, span FROM t",
    "glued": "SELECT id, concat(d, ' ', f) AS c, span FROM t",
    "money_": "SELECT id, to_char(f, 'L9G999D99') AS m FROM t",
}
SETTINGS = {
    "zone": {"TimeZone": "Asia/Kolkata"},
    "order": {"DateStyle": "ISO, DMY", "TimeZone": "America/St_Johns"},
    "formats": {
        "DateStyle": "German, DMY",
        "IntervalStyle": "sql_standard",
        "extra_float_digits": "-3",
        "bytea_output": "escape",
    },
    "intervals": {"IntervalStyle": "iso_8601", "TimeZone": "Pacific/Auckland"},
}
CHANGES = (
    "INSERT INTO t VALUES (30, '2026-01-03 18:45Z', 0.1, '-1 day 02:00', '\\x01', '2026-03-04', '05/06/2026')",
    "UPDATE t SET at = at + interval '5 hours 30 minutes', f = f / 7 WHERE id % 2 = 0",
    "DELETE FROM t WHERE id % 5 = 0",
)


@pytest.mark.parametrize("how", SETTINGS)
def test_results_are_those_of_the_author(installed: Database, make_line: MakeLine, how: str) -> None:
    line = make_line(installed)
    line.sql(TABLE)
    # Some of each, so that tables of several settings go in one wave.
    for name, query in QUERIES.items():
        line.sql("SELECT pgtrickle.create_stream_table(%s, %s)", f"usual_{name}", query)
    for setting, value in SETTINGS[how].items():
        line.sql("SELECT set_config(%s, %s, false)", setting, value)
    for name, query in QUERIES.items():
        line.sql("SELECT pgtrickle.create_stream_table(%s, %s)", name, query)
    line.sql("RESET ALL")
    line.tick()
    for change in ("SELECT", *CHANGES):
        line.sql(change)
        line.tick()
        for name in QUERIES:
            line.equal(name)
            line.equal(f"usual_{name}")
    modes = dict(line.sql("SELECT pgt_name, effective_refresh_mode FROM pgtrickle.pgt_stream_tables"))
    assert {m for n, m in modes.items() if n.startswith("usual_")} == {"DIFFERENTIAL"}
    whole = {n for n, m in modes.items() if m == "FULL"}
    if how in ("zone", "order"):
        assert whole == set()
    else:
        assert {"texts", "glued"} <= whole
        assert "values_" not in whole
        code = line.sql("SELECT mode_reason_code FROM pgtrickle.pgt_stream_tables WHERE pgt_name = 'texts'")
        assert code == [(ReasonCode.AUTHOR_FORMATS,)]


@pytest.mark.parametrize("pooled", [False, True])
def test_later_loads_keep_all_digits_of_arrays(line: Line, pooled: bool) -> None:
    """The content is computed with the formats of the author; comparing and writing it must not use them."""
    line.sql(TABLE)
    line.sql("SET extra_float_digits = -3")
    query = "SELECT d::text AS d, array_agg(f ORDER BY id) AS f, array_agg(span ORDER BY id) AS s FROM t GROUP BY 1"
    line.sql("SELECT pgtrickle.create_stream_table('listed', %s)", query)
    line.sql("RESET extra_float_digits")
    line.sql("SELECT pgtrickle.alter_stream_table('listed', pooler_compatibility_mode => %s)", pooled)
    line.tick()
    for change in CHANGES:
        line.sql(change)
        line.tick()
        line.equal("listed")
    assert line.sql("SELECT effective_refresh_mode FROM pgtrickle.pgt_stream_tables") == [("FULL",)]


def test_another_time_zone_of_the_database_changes_nothing(installed: Database, make_line: MakeLine) -> None:
    line = make_line(installed)
    line.sql(TABLE)
    line.create("days", QUERIES["days"])
    installed.superuser_sql(f"ALTER DATABASE {installed.name} SET timezone = 'America/Los_Angeles'")
    line.close()
    moved = make_line(installed)
    moved.tick()
    assert moved.refreshes("days") == 1
    moved.sql(CHANGES[1])
    moved.tick()
    moved.check("days")


def test_a_new_query_takes_the_settings_of_its_session(line: Line) -> None:
    line.sql(TABLE)
    line.create("days", QUERIES["days"])
    line.sql("SET timezone = 'Asia/Tokyo'")
    line.sql("SELECT pgtrickle.alter_stream_table('days', query => %s)", QUERIES["days"] + " ORDER BY 1")
    line.sql("RESET timezone")
    line.tick()
    line.equal("days")
    ((zone,),) = line.sql("SELECT session_settings ->> 'TimeZone' FROM pgtrickle.pgt_stream_tables")
    assert zone == "Asia/Tokyo"
    line.sql(CHANGES[0])
    line.tick()
    line.check("days")


def test_chains_of_several_settings(line: Line) -> None:
    line.sql(TABLE)
    line.create("base", "SELECT id, at, at::date AS day FROM t")
    line.sql("SET timezone = 'Asia/Tokyo'")
    line.create("above", "SELECT b.day, b.at::date AS there, count(*) AS n FROM base AS b GROUP BY 1, 2")
    line.sql("RESET timezone")
    for change in CHANGES:
        line.sql(change)
        line.tick()
        line.check("base")
        line.check("above")


def test_a_cycle_under_other_settings(installed: Database, make_line: MakeLine) -> None:
    line = make_line(installed, Settings(allow_circular=True, differential_max_change_ratio=1.0))
    line.sql("SELECT pgtrickle.set_option('allow_circular', 'on')")
    line.sql("CREATE TABLE t (id int, at timestamptz); INSERT INTO t VALUES (1, '2026-01-01 23:30Z')")
    line.sql("CREATE TABLE step (a int, b int); INSERT INTO step SELECT i, i + 1 FROM generate_series(1, 5) AS i")
    line.create("reached", "SELECT id, at::date AS day FROM t")
    line.sql("SET timezone = 'Asia/Tokyo'")
    line.sql(
        "SELECT pgtrickle.alter_stream_table('reached', query => %s)",
        "SELECT id, at::date AS day FROM t UNION SELECT s.b, r.day FROM reached AS r JOIN step AS s ON s.a = r.id",
    )
    line.sql("RESET timezone")
    assert [o.error for o in line.tick() if o.error is not None] == []
    line.sql("INSERT INTO t VALUES (3, '2026-01-05 20:00Z')")
    assert [o.error for o in line.tick() if o.error is not None] == []
    assert ("2026-01-06",) in [(str(r[1]),) for r in line.rows("reached")]
