"""What the history says of the time of each refresh, although stream tables of a lease are refreshed together."""

from __future__ import annotations

from tests.line import Line

SLOW = "SELECT id, (SELECT count(*) FROM generate_series(1, 1500000) AS g WHERE g > a) AS n FROM t"

# As the scaling guide asks, without its period.
LONGEST = """
SELECT st.pgt_name, AVG(EXTRACT(EPOCH FROM (h.end_time - h.start_time)))::float8 AS avg_sec
FROM pgtrickle.pgt_refresh_history h
JOIN pgtrickle.pgt_stream_tables st ON st.pgt_id = h.pgt_id
WHERE h.refresh_id > %s AND h.status = 'COMPLETED'
GROUP BY st.pgt_schema, st.pgt_name
ORDER BY avg_sec DESC
LIMIT 20
"""


def test_the_slow_table_of_a_lease_is_the_one_that_takes_the_longest(line: Line) -> None:
    line.sql("CREATE TABLE t (id int PRIMARY KEY, a int); INSERT INTO t VALUES (1, 1), (2, 2)")
    create = "SELECT pgtrickle.create_stream_table(%s, %s, refresh_mode => 'DIFFERENTIAL')"
    line.sql(create, "slow", SLOW)
    for i in range(9):
        line.sql(create, f"quick_{i}", f"SELECT id, a + {i} AS b FROM t")
    line.tick()
    before = 0
    for action in ("FULL", "DIFFERENTIAL"):
        rows = line.sql(LONGEST, before)
        assert len(rows) == 10
        slow, next_one = rows[0], rows[1]
        assert slow[0] == "slow"
        reading = line.sql(
            "SELECT (SELECT sum(ms::float8) FROM jsonb_each_text(h.timings) AS e (part, ms) "
            "WHERE part <> 'spark') / 1000 FROM pgtrickle.pgt_refresh_history AS h "
            "JOIN pgtrickle.pgt_stream_tables USING (pgt_id) WHERE pgt_name = 'slow' AND refresh_id > %s",
            before,
        )[0][0]
        assert slow[1] - next_one[1] > reading / 2  # whoever waited beside it, or after it, is not charged
        waves = line.sql(
            "SELECT sum(share_ms), extract(epoch FROM max(end_time) - min(wave_start_time)) * 1000, "
            "bool_and(start_time >= wave_start_time), array_agg(DISTINCT action) "
            "FROM pgtrickle.pgt_refresh_history WHERE refresh_id > %s",
            before,
        )
        shares, wave, are_inside, actions = waves[0]
        assert (are_inside, actions) == (True, [action])
        assert shares <= float(wave) * 1.01
        before = line.sql("SELECT max(refresh_id) FROM pgtrickle.pgt_refresh_history")[0][0]
        line.sql("INSERT INTO t VALUES (%s, 3)", 10 + before)
        line.tick()
