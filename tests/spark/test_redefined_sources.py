"""Sources that are redefined or dropped: no row is captured, and the next tick notices it, whatever the schedule."""

from __future__ import annotations

import pytest

from pgtrickle.model.reasons import Reason, ReasonCode
from tests.line import Line

TABLES = """
CREATE TYPE mood AS ENUM ('calm', 'glad');
CREATE TABLE item (id int PRIMARY KEY, price numeric(8, 2), kind text, mood mood DEFAULT 'calm');
INSERT INTO item SELECT i, i * 1.5, 'k' || i % 3 FROM generate_series(1, 20) AS i;
CREATE TABLE other (id int PRIMARY KEY, v int);
INSERT INTO other SELECT i, i FROM generate_series(1, 5) AS i;
CREATE FUNCTION taxed(numeric) RETURNS numeric LANGUAGE sql IMMUTABLE AS 'SELECT $1 * 1.2';
CREATE VIEW cheap AS SELECT id, price FROM item WHERE price < 10;
CREATE TABLE part (id int, v int) PARTITION BY RANGE (id);
CREATE TABLE part_1 PARTITION OF part FOR VALUES FROM (0) TO (10) PARTITION BY RANGE (id);
CREATE TABLE part_1a PARTITION OF part_1 FOR VALUES FROM (0) TO (5);
INSERT INTO part SELECT i, i FROM generate_series(0, 4) AS i;
CREATE TABLE part_1b (id int, v int);
INSERT INTO part_1b SELECT i, i FROM generate_series(5, 9) AS i
"""
UNRELATED = "SELECT id, v FROM other"


def status(line: Line, name: str) -> tuple[str, str | None]:
    rows = line.sql("SELECT status, last_error_message FROM pgtrickle.pgt_stream_tables WHERE pgt_name = %s", name)
    return rows[0][0], rows[0][1]


@pytest.mark.parametrize(
    ("query", "mode", "change", "code"),
    [
        (
            "SELECT id, taxed(price) AS p FROM item",
            "AUTO",
            "CREATE OR REPLACE FUNCTION taxed(numeric) RETURNS numeric LANGUAGE sql IMMUTABLE AS 'SELECT $1 * 1.19'",
            ReasonCode.FUNCTION_REPLACED,
        ),
        (
            "SELECT count(*) AS n, sum(price) AS s FROM cheap",
            "AUTO",
            "CREATE OR REPLACE VIEW cheap AS SELECT id, price FROM item WHERE price < 20",
            ReasonCode.DEFINITION_CHANGED,  # the text of the view is part of its statements
        ),
        (
            "SELECT count(*) AS n, sum(price) AS s FROM cheap",
            "FULL",
            "CREATE OR REPLACE VIEW cheap AS SELECT id, price FROM item WHERE price < 20",
            ReasonCode.SOURCE_CHANGED,
        ),
        (
            "SELECT count(*) AS n, sum(v) AS s FROM part",
            "AUTO",
            "ALTER TABLE part_1 ATTACH PARTITION part_1b FOR VALUES FROM (5) TO (10)",
            ReasonCode.SOURCE_CHANGED,
        ),
        (
            "SELECT count(*) AS n, sum(v) AS s FROM part",
            "AUTO",
            "ALTER TABLE part_1 DETACH PARTITION part_1a",
            ReasonCode.SOURCE_CHANGED,
        ),
        (
            "SELECT mood, count(*) AS n FROM item GROUP BY mood",
            "AUTO",
            "ALTER TYPE mood RENAME VALUE 'calm' TO 'quiet'",
            ReasonCode.SOURCE_CHANGED,
        ),
        (
            "SELECT kind, count(*) AS n FROM item GROUP BY kind",
            "AUTO",
            "ALTER TABLE item DISABLE TRIGGER ALL; UPDATE item SET kind = 'x' WHERE id = 1",
            ReasonCode.SOURCE_CHANGED,
        ),
    ],
)
def test_a_redefinition_is_followed_at_the_next_tick(
    line: Line, query: str, mode: str, change: str, code: ReasonCode
) -> None:
    line.sql(TABLES)
    line.create("st", query, mode=mode, schedule="1d")
    line.create("unrelated", UNRELATED)
    line.tick()
    line.sql(change)
    line.tick()
    line.check("st", "REINITIALIZE")
    assert line.reason("st") == Reason.of(code)
    assert line.refreshes("unrelated") == 1
    done = line.refreshes("st")
    line.tick()
    line.tick()
    assert line.refreshes("st") == done  # noticed once


def test_a_partition_that_came_later_is_watched_too(line: Line) -> None:
    line.sql(TABLES)
    line.create("st", "SELECT count(*) AS n, sum(v) AS s FROM part", schedule="1d")
    line.sql("CREATE TABLE part_2 PARTITION OF part FOR VALUES FROM (10) TO (20) PARTITION BY RANGE (id)")
    line.tick()
    line.sql("CREATE TABLE part_2a (id int, v int); INSERT INTO part_2a VALUES (10, 100)")
    line.sql("ALTER TABLE part_2 ATTACH PARTITION part_2a FOR VALUES FROM (10) TO (15)")
    line.tick()
    line.check("st", "REINITIALIZE")
    assert line.rows("st") == [(6, 110)]


def test_changes_that_do_not_matter_do_not_bring_a_refresh_forward(line: Line) -> None:
    line.sql(TABLES)
    line.create("st", "SELECT kind, count(*) AS n FROM item GROUP BY kind", schedule="1d")
    line.tick()
    before = line.refreshes("st")
    line.sql("UPDATE item SET kind = 'k9' WHERE id = 1")
    line.sql(
        "ALTER TABLE item ADD COLUMN more int DEFAULT 7; CREATE INDEX ON item (kind); COMMENT ON TABLE item IS 'x'; "
        "ALTER TABLE item ALTER id SET STATISTICS 10; ANALYZE item; GRANT SELECT ON item TO PUBLIC"
    )
    line.sql("VACUUM item")
    line.tick()
    assert line.refreshes("st") == before


@pytest.mark.parametrize("mode", ["AUTO", "FULL"])
def test_a_dropped_column_is_reported_at_the_next_tick(line: Line, mode: str) -> None:
    line.sql(TABLES)
    line.create("st", "SELECT id, kind FROM item", mode=mode, schedule="1d")
    line.create("others", "SELECT id, price FROM item", mode=mode, schedule="1d")
    line.sql("ALTER TABLE item DROP COLUMN kind")
    line.tick()
    state, message = status(line, "st")
    assert state == "ERROR", message
    assert "kind" in str(message)
    assert status(line, "others") == ("ACTIVE", None)


def test_a_dropped_column_that_a_full_query_does_not_name_is_followed(line: Line) -> None:
    line.sql(TABLES)
    line.create("st", "SELECT item::text AS whole FROM item", mode="FULL", schedule="1d")
    line.sql("ALTER TABLE item DROP COLUMN kind")
    line.tick()
    line.check("st", "REINITIALIZE")
    line.tick()
    assert line.refreshes("st") == 2


def test_row_security_is_noticed_at_the_next_tick(line: Line) -> None:
    """Here it holds for the owner of the table, who is the author and the service role."""
    line.sql(TABLES)
    line.create("st", "SELECT id, kind FROM item", schedule="1d")
    line.sql("ALTER TABLE item ENABLE ROW LEVEL SECURITY")  # for others only
    line.tick()
    assert status(line, "st") == ("ACTIVE", None)
    line.sql("ALTER TABLE item FORCE ROW LEVEL SECURITY")
    line.tick()
    state, message = status(line, "st")
    assert state == "ERROR"
    assert "row" in str(message)
    assert "security" in str(message)


@pytest.mark.parametrize("mode", ["AUTO", "FULL"])
def test_a_dropped_source_stops_its_readers_and_is_adopted_when_it_is_there_again(line: Line, mode: str) -> None:
    line.sql(TABLES)
    line.create("st", "SELECT id, v FROM other", mode=mode, schedule="1d")
    line.create("reader", "SELECT sum(v) AS s FROM st")
    line.create("joined", "SELECT i.id, o.v FROM item AS i JOIN other AS o USING (id)", mode=mode, schedule="1d")
    line.create("unrelated", "SELECT id, kind FROM item")
    line.sql("DROP TABLE other CASCADE")
    line.tick()
    for name in ("st", "joined"):
        state, message = status(line, name)
        assert (state, "public.other was dropped" in str(message)) == ("ERROR", True), message
        assert "repair_stream_table" in str(message)
    assert len(line.rows("st")) == 5  # the last content stays
    assert line.sql("SELECT status FROM pgtrickle.quick_health")[0][0] == "CRITICAL"
    line.sql("UPDATE item SET kind = 'k9' WHERE id = 1")
    line.tick()
    line.check("unrelated")
    # With its columns in another order: a query goes by their names.
    line.sql("CREATE TABLE other (more text, v int, id int); INSERT INTO other VALUES ('a', 10, 1), ('b', 20, 30)")
    for name in ("st", "joined"):
        line.sql("SELECT pgtrickle.repair_stream_table(%s)", name)
    line.tick()
    line.tick()
    assert line.rows("st") == [(1, 10), (30, 20)]
    assert line.rows("reader") == [(30,)]
    for name in ("st", "joined", "reader"):
        line.equal(name)
        assert status(line, name) == ("ACTIVE", None)
    line.sql("INSERT INTO other VALUES ('c', 5, 2); DELETE FROM other WHERE id = 30")
    line.tick()
    line.sql("SELECT pgtrickle.refresh_stream_table('st'), pgtrickle.refresh_stream_table('joined')")
    line.tick()
    for name in ("st", "joined", "reader"):
        line.equal(name)
    assert line.rows("reader") == [(15,)]


def test_a_source_that_is_replaced_in_one_transaction_is_reported_with_the_command(line: Line) -> None:
    line.sql(TABLES)
    line.sql('CREATE SCHEMA "Odd ""one"; CREATE TABLE "Odd ""one"."it\'s" (id int, v int)')
    line.sql('SET search_path = "Odd ""one", public')
    line.create("st", 'SELECT id, v FROM "it\'s"', schedule="1d")
    line.sql("RESET search_path")
    ((name,),) = line.sql("SELECT format('%I.%I', pgt_schema, pgt_name) FROM pgtrickle.pgt_stream_tables")
    line.sql(
        'BEGIN; DROP TABLE "Odd ""one"."it\'s" CASCADE; CREATE TABLE "Odd ""one"."it\'s" (id int, v int); '
        'INSERT INTO "Odd ""one"."it\'s" VALUES (1, 2); COMMIT'
    )
    line.tick()
    state, message = status(line, "st")
    assert state == "ERROR"
    assert message is not None
    assert "was dropped and created again" in message
    command = message[message.index("SELECT pgtrickle.repair_stream_table") :].rstrip(")") + ")"
    line.sql(command)  # as it is printed, by a session with another path
    line.tick()
    assert line.rows(name) == [(1, 2)]
    assert status(line, "st") == ("ACTIVE", None)


def test_a_recreated_source_without_the_columns_is_refused_by_the_command(line: Line) -> None:
    line.sql(TABLES)
    line.create("st", "SELECT id, v FROM other")
    line.sql("DROP TABLE other CASCADE; CREATE TABLE other (id int)")
    line.tick()
    assert status(line, "st")[0] == "ERROR"
    with pytest.raises(Exception, match=r"column .*v.* does not exist"):
        line.sql("SELECT pgtrickle.repair_stream_table('st')")
    assert status(line, "st")[0] == "ERROR"
