"""From create to drop, as SQL users see it: what is stored, which mode is chosen and why, who may do what."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from typing import Any

import psycopg
import pytest

from tests.conftest import Database

SETUP = """
    CREATE TABLE customers (id int PRIMARY KEY, region text NOT NULL, "Odd Col" varchar(7));
    CREATE TABLE orders (id bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY, customer int, amount numeric(12,
        2), note text,
                         placed timestamptz, local timestamp, v int GENERATED ALWAYS AS (customer * 2) STORED);
    CREATE VIEW big AS SELECT id, customer, amount FROM orders WHERE amount > 100;
    CREATE VIEW totals AS SELECT customer, sum(amount) AS total FROM orders GROUP BY customer;
    CREATE MATERIALIZED VIEW frozen AS SELECT id FROM customers;
    CREATE UNLOGGED TABLE hasty (a int);
    CREATE TABLE parent (a int);
    CREATE TABLE kid () INHERITS (parent);
    CREATE FUNCTION steady(int) RETURNS int LANGUAGE sql IMMUTABLE AS 'SELECT $1 + 1';
    CREATE FUNCTION reads() RETURNS bigint LANGUAGE sql STABLE AS 'SELECT count(*) FROM customers';
    CREATE AGGREGATE last_of(int) (SFUNC = int4larger, STYPE = int);
"""


@pytest.fixture
def db(installed: Database) -> Database:
    installed.sql(SETUP)
    return installed


@pytest.fixture
def other(db: Database) -> Iterator[psycopg.Connection[Any]]:
    """A role that may use pgtrickle and create in public, and owns nothing."""
    name = f"other_{db.name}"
    db.superuser_sql(f"CREATE ROLE {name} LOGIN PASSWORD 'x'")
    db.superuser_sql(f"GRANT CREATE, USAGE ON SCHEMA public TO {name}; GRANT USAGE ON SCHEMA pgtrickle TO {name}")
    conn = psycopg.connect(db.server.dsn(db.name, user=name, password="x"), autocommit=True)
    yield conn
    conn.close()
    db.superuser_sql(f"DROP OWNED BY {name}; DROP ROLE {name}")


def _create(db: Database, query: str, **arguments: Any) -> tuple[str, str | None]:
    given = {"name": "s", "query": query, **arguments}
    db.sql(f"SELECT pgtrickle.create_stream_table({', '.join(f'{k} => %s' for k in given)})", *given.values())
    ((mode, reason),) = db.sql(
        "SELECT effective_refresh_mode, mode_reason FROM pgtrickle.pgt_stream_tables WHERE pgt_name = %s", given["name"]
    )
    return mode, reason


def test_create_stores_a_typed_empty_table_and_its_dependencies(db: Database) -> None:
    db.sql('CREATE DOMAIN code AS varchar(3) COLLATE "C"')
    mode, reason = _create(
        db,
        """ -- totals per region
        SELECT c.region, c."Odd Col" AS "Odd Col", c.region::code AS code, count(*) AS n, sum(o.amount) AS total,
               max(o.amount) AS biggest, c.region COLLATE "C" AS r
        FROM orders AS o JOIN customers AS c ON c.id = o.customer WHERE o.placed >= '2024-02-01' GROUP BY
            c.region, c."Odd Col"; """,
        schedule="1h30m",
    )
    assert (mode, reason) == ("DIFFERENTIAL", None)
    columns = db.sql(
        "SELECT attname, format_type(atttypid, atttypmod), attcollation::regcollation::text FROM pg_attribute "
        "WHERE attrelid = 's'::regclass AND attnum > 0 ORDER BY attnum"
    )
    assert columns == [
        ("region", "text", '"default"'),
        ("Odd Col", "character varying(7)", '"default"'),
        ("code", "code", '"C"'),
        ("n", "bigint", "-"),
        ("total", "numeric", "-"),
        ("biggest", "numeric", "-"),
        ("r", "text", '"C"'),
        ("__pgt_row_id", "bigint", "-"),
    ]
    assert db.sql("SELECT count(*) FROM s") == [(0,)]
    assert db.sql("SELECT source_table, source_type, columns_used FROM pgtrickle.list_sources('s')") == [
        ("public.customers", "TABLE", ["id", "region", "Odd Col"]),
        ("public.orders", "TABLE", ["customer", "amount", "placed"]),
    ]
    ((status, populated, schedule, requested, creator, text),) = db.sql(
        "SELECT status, is_populated, schedule, refresh_requested_at IS NOT NULL, created_by, "
        "defining_query FROM pgtrickle.pgt_stream_tables"
    )
    assert (status, populated, schedule, requested, creator) == ("INITIALIZING", False, "1h30m", True, "app")
    assert "public.orders" in text
    assert not text.endswith(";")
    assert db.sql("SELECT count(*) FROM pg_class WHERE relname ~ '^__pgt_probe'") == [(0,)]


@pytest.mark.parametrize(
    "schedule",
    [
        "30s",
        "1h30m",
        "1 d",
        "90",
        "500ms",
        "calculated",
        "CALCULATED",
        "2 hours 5 min",
        "*/5 * * * *",
        "0 9-17 * jan-mar mon-fri",
        "*/10 * * * * *",
        "0 0 1,15 * 7",
        "@hourly",
        "@DAILY",
    ],
)
def test_schedules_that_are_fine(db: Database, schedule: str) -> None:
    _create(db, "SELECT id FROM orders", schedule=schedule)


@pytest.mark.parametrize(
    "query",
    [
        "SELECT id, amount * 2 AS a FROM orders WHERE note IS NOT NULL ORDER BY id",
        "SELECT o.id, c.region FROM orders o, customers c WHERE o.customer = c.id AND o.amount > c.id",
        "SELECT a.id AS x, b.id AS y FROM customers a JOIN customers b USING (region)",
        "SELECT id FROM big UNION ALL SELECT customer FROM orders",
        "WITH c AS (SELECT * FROM customers WHERE id > 1) SELECT c.region, count(DISTINCT o.note) "
        "FILTER (WHERE o.id > 1) AS n "
        "FROM c JOIN orders o ON o.customer = c.id GROUP BY c.region HAVING sum(o.amount) > 5",
        "SELECT q.region, avg(q.amount) AS a FROM (SELECT c.region, o.amount FROM customers c JOIN "
        "big o ON o.customer = c.id) q GROUP BY 1",
        "SELECT count(*) AS n, min(placed) AS first, max(note) AS last FROM orders",
        "SELECT region FROM customers GROUP BY region",
        "SELECT steady(id) AS s, v FROM (SELECT id, id AS v FROM customers) q",
        "SELECT v FROM orders",
        "SELECT date_trunc('day', placed) AS day, placed::date AS d, to_char(placed, 'YYYY') AS y, "
        "placed + interval '1 day' AS p, "
        "local::timestamptz AS l, placed::text AS t, concat(id, note) AS c, extract(hour FROM "
        "placed) AS h, format('%s', id) AS f, "
        "to_jsonb(amount) AS j, array_to_string(ARRAY[id], ',') AS arr FROM orders WHERE placed > local",
        "SELECT id, CASE WHEN amount > 1 THEN 'x' ELSE note END AS k, coalesce(note, '') || 'z' AS z FROM orders "
        "WHERE (id, customer) > (1, 2) AND customer = ANY (ARRAY[1, 2]) AND note LIKE 'a%%'",
        "SELECT note::int AS n, note::numeric AS m, note::jsonb AS j FROM orders",
        "SELECT id, row_number() OVER () AS n FROM customers",
        "SELECT DISTINCT region FROM customers",
        "SELECT DISTINCT ON (region) region, id FROM customers ORDER BY 1, 2",
        "SELECT o.id FROM orders o LEFT JOIN customers c ON c.id = o.customer",
        "SELECT o.id FROM orders o FULL JOIN customers c ON c.id = o.customer",
        "SELECT id FROM orders ORDER BY id LIMIT 3",
        "SELECT id FROM orders OFFSET 3",
        "SELECT id FROM orders UNION SELECT id FROM customers",
        "SELECT id FROM orders EXCEPT ALL SELECT id FROM customers",
        "SELECT id FROM orders INTERSECT SELECT id FROM customers",
        "SELECT region, count(*) AS n FROM customers GROUP BY ROLLUP (region)",
        "WITH RECURSIVE r AS (SELECT 1 AS n UNION ALL SELECT n + 1 FROM r WHERE n < 3) SELECT n FROM r, customers",
        "SELECT id FROM orders o WHERE EXISTS (SELECT FROM customers c WHERE c.id = o.customer)",
        "SELECT id FROM orders WHERE customer IN (SELECT id FROM customers)",
        "SELECT id, (SELECT max(id) FROM customers) AS m FROM orders",
        "SELECT o.id, x.n FROM orders o, LATERAL (SELECT o.id + 1 AS n) x",
        "SELECT g FROM customers, generate_series(1, 3) AS g",
        "SELECT generate_series(1, id) AS g FROM customers",
        "SELECT c.id FROM customers c JOIN (VALUES (1)) AS v(x) ON v.x = c.id",
        "SELECT percentile_cont(0.5) WITHIN GROUP (ORDER BY id) AS p FROM customers",
        "SELECT string_agg(region, ',' ORDER BY id) AS s FROM customers",
        "SELECT string_agg(region, ',') AS s FROM customers",
        "SELECT last_of(id) AS s FROM customers",
        "SELECT t.total FROM totals t JOIN customers c ON c.id = t.customer",
        "SELECT q.n FROM (SELECT count(*) AS n FROM customers) q, orders",
        "SELECT max(q.n) FROM (SELECT count(*) AS n FROM customers GROUP BY region) q",
        "SELECT count(*) AS n FROM customers UNION ALL SELECT id FROM customers",
        "SELECT a FROM ONLY kid",
        "SELECT a FROM parent",
        "SELECT c.id, c.region, count(*) AS n FROM customers c JOIN orders o ON o.customer = c.id GROUP BY c.id",
    ],
)
def test_query_is_differential(db: Database, query: str) -> None:
    assert _create(db, query.replace("%%", "%"), refresh_mode="AUTO") == ("DIFFERENTIAL", None)


@pytest.mark.parametrize(
    ("query", "reason"),
    [
        ("SELECT id FROM customers TABLESAMPLE system (10) REPEATABLE (1)", "TABLESAMPLE"),
        ("SELECT c AS whole FROM customers c", "whole row"),
        ("SELECT ctid AS c, id FROM customers", "system column"),
        ("SELECT id, now() AS n FROM customers", "pg_catalog.now()"),
        ("SELECT id, age(placed) AS n FROM orders", "pg_catalog.age(timestamp with time zone)"),
        ("SELECT id, current_date AS d FROM customers", "CURRENT_DATE"),
        ("SELECT id, current_user AS d FROM customers", "CURRENT_USER"),
        ("SELECT id, current_setting('datestyle') AS d FROM customers", 'current_setting'),
        ("SELECT id, reads() AS r FROM customers", "public.reads()"),
        ("SELECT note::timestamptz AS t FROM orders", "casts text to timestamp with time zone"),
        ("SELECT note::date[] AS t FROM orders", "casts text to date[]"),
        ("SELECT id FROM frozen", "materialized view"),
        ("SELECT a FROM hasty", "unlogged"),
        ("SELECT a FROM ONLY parent", "FROM ONLY"),
        ("SELECT 1 AS one", "reads no table"),
    ],
)  # fmt: skip
def test_query_is_full_with_the_reason_and_differential_raises(db: Database, query: str, reason: str) -> None:
    before = db.sql("SELECT count(*) FROM pg_class")
    for mode in ("DIFFERENTIAL", "IMMEDIATE"):
        with pytest.raises(psycopg.errors.FeatureNotSupported) as caught:
            _create(db, query, refresh_mode=mode)
        assert reason in str(caught.value)
    assert db.sql("SELECT count(*) FROM pg_class") == before
    effective, stored = _create(db, query)
    assert effective == "FULL"
    assert reason in (stored or "")
    ((explained,),) = db.sql("SELECT downgrade_reason FROM pgtrickle.explain_refresh_mode('s')")
    assert explained == stored
    checks = db.sql("SELECT check_name, result FROM pgtrickle.validate_query(%s) WHERE check_name <> 'source'", query)
    rows = dict(checks)
    assert rows["refresh_mode"] == "FULL"
    assert rows["reason"] == stored


@pytest.mark.parametrize(
    ("query", "named"),
    [
        ("SELECT id FROM customers TABLESAMPLE system (9) REPEATABLE (1)", "TABLESAMPLE of public.customers"),
        ("SELECT c AS whole FROM customers c", "whole row of public.customers"),
        (
            "SELECT n FROM (SELECT count(x) AS n FROM big JOIN customers x USING (id)) q",
            "whole row of public.customers",
        ),
        ("SELECT (SELECT max(o::text) FROM customers) AS m FROM big JOIN orders o USING (id)", "row of public.orders"),
        ('SELECT row_to_json("a \\ {RTE") AS j FROM (SELECT id FROM orders) "a \\ {RTE"', 'whole row of "a \\ {RTE"'),
        ("WITH w AS (SELECT id FROM orders) SELECT to_json(w) AS j FROM big JOIN w USING (id)", "whole row of w"),
        ("SELECT ctid AS c, id FROM customers", "system column ctid of public.customers"),
        ("SELECT q.x FROM customers c, LATERAL (SELECT c.xmin::text AS x FROM orders) q", "xmin of public.customers"),
        ("SELECT a FROM ONLY parent", "FROM ONLY public.parent"),
        ("SELECT id, localtime(2) AS d FROM customers", "uses LOCALTIME,"),
        ("SELECT id, session_user AS d FROM customers", "uses SESSION_USER,"),
        ("SELECT id, current_schema AS d FROM customers", "uses CURRENT_SCHEMA,"),
        ("SELECT xmlconcat(note::xml)::text AS x FROM orders", "XML expression XMLCONCAT"),
        ("SELECT id, note::xml IS DOCUMENT AS x FROM orders", "XML expression IS DOCUMENT"),
    ],
)
def test_reason_names_the_table_the_column_and_the_function(db: Database, query: str, named: str) -> None:
    db.sql(f"CREATE VIEW over AS {query}")
    for text in (query, "SELECT * FROM over"):
        mode, reason = _create(db, text)
        assert mode == "FULL"
        assert named in (reason or "")
        db.sql("SELECT pgtrickle.drop_stream_table('s')")


def test_virtual_generated_column_is_an_obstacle(db: Database) -> None:
    db.require_version(18, "virtual generated columns")
    db.sql("CREATE TABLE g (a text, v varchar(3) GENERATED ALWAYS AS (a) VIRTUAL)")
    mode, reason = _create(db, "SELECT v FROM g")
    assert mode == "FULL"
    assert "virtual generated column" in (reason or "")


def test_nondeterministic_collation_is_an_obstacle(db: Database) -> None:
    """Only ICU has such collations, and the embedded server is built without it: mark one as if it were."""
    db.sql("CREATE COLLATION loose (provider = libc, locale = 'C')")
    db.superuser_sql("UPDATE pg_collation SET collisdeterministic = false WHERE collname = 'loose'")
    db.sql("CREATE TABLE n (a text COLLATE loose)")
    assert "nondeterministic" in (_create(db, "SELECT a FROM n")[1] or "")
    assert _create(db, "SELECT region, count(*) AS n FROM customers GROUP BY region", name="plain")[0] == "DIFFERENTIAL"
    query = "SELECT region COLLATE loose AS r, count(*) AS n FROM customers GROUP BY region COLLATE loose"
    assert "nondeterministic collation loose" in (_create(db, query, name="expression")[1] or "")


@pytest.mark.parametrize(
    "query",
    [
        "SELECT n FROM (SELECT count(*) AS n FROM customers) q WHERE n > 1",
        "SELECT r FROM (SELECT region AS r FROM customers GROUP BY region) q",
        "WITH t AS (SELECT region, count(*) AS n FROM customers GROUP BY region HAVING count(*) > 1) "
        "SELECT n + 1 AS m FROM t",
        "SELECT t.total * 2 AS twice FROM totals t",
    ],
)
def test_projection_and_filter_over_groups_are_differential(db: Database, query: str) -> None:
    assert _create(db, query) == ("DIFFERENTIAL", None)


def test_view_is_followed_to_its_tables(db: Database) -> None:
    db.sql("CREATE VIEW bigger AS SELECT b.id, c.region FROM big b JOIN customers c ON c.id = b.customer")
    assert _create(db, "SELECT region, count(*) AS n FROM bigger GROUP BY region")[0] == "DIFFERENTIAL"
    assert db.sql("SELECT source_table, source_type FROM pgtrickle.list_sources('s')") == [
        ("public.big", "VIEW"), ("public.bigger", "VIEW"), ("public.customers", "TABLE"), ("public.orders", "TABLE"),
    ]  # fmt: skip


def test_text_does_not_depend_on_the_session(db: Database) -> None:
    conn = db.connect()
    conn.execute(
        'CREATE SCHEMA "Mine"; SET search_path = "Mine", public; SET datestyle = \'SQL, DMY\'; SET '
        "intervalstyle = 'iso_8601'"
    )
    conn.execute("CREATE TABLE things (a date, i interval)")
    conn.execute(
        "SELECT pgtrickle.create_stream_table('s', $$SELECT a FROM things WHERE a > '03/02/2024' AND i > 'P1DT2H'$$)"
    )
    ((schema, text),) = db.sql("SELECT pgt_schema, defining_query FROM pgtrickle.pgt_stream_tables")
    assert schema == "Mine"
    assert '"Mine".things' in text
    assert "'2024-02-03'::date" in text
    assert "'1 day 02:00:00'::interval" in text


def test_names_are_parsed_as_postgresql_does(db: Database) -> None:
    db.sql('CREATE SCHEMA "Odd Schema"')
    db.sql("""SELECT pgtrickle.create_stream_table('"Odd Schema"."Odd.Name"', 'SELECT id FROM orders')""")
    db.sql("SELECT pgtrickle.create_stream_table('UPPER', 'SELECT id FROM orders')")
    assert db.sql("SELECT name FROM pgtrickle.pgt_status()") == [('"Odd Schema"."Odd.Name"',), ("public.upper",)]
    conn = db.connect()
    conn.execute('SET search_path = public, "Odd Schema"')
    conn.execute("""SELECT pgtrickle.drop_stream_table('"Odd.Name"')""")
    conn.execute("SELECT pgtrickle.drop_stream_table('public.\"upper\"')")
    assert db.sql("SELECT count(*) FROM pgtrickle.pgt_status()") == [(0,)]


def test_stream_table_over_stream_table(db: Database) -> None:
    _create(db, "SELECT id, region FROM customers")
    db.sql("SELECT pgtrickle.create_stream_table('s2', 'SELECT region FROM s', refresh_mode => 'DIFFERENTIAL')")
    assert db.sql("SELECT source_type FROM pgtrickle.list_sources('s2')") == [("STREAM_TABLE",)]
    db.sql("SELECT pgtrickle.drop_stream_table('s', cascade => true)")
    assert db.sql("SELECT count(*) FROM pgtrickle.pgt_status()") == [(0,)]
    assert db.sql("SELECT to_regclass('s'), to_regclass('s2')") == [(None, None)]


def test_if_not_exists_and_or_replace(db: Database) -> None:
    _create(db, "SELECT id FROM customers")
    db.sql("SELECT pgtrickle.create_stream_table_if_not_exists('s', 'SELECT region FROM customers')")
    assert db.sql("SELECT original_query, definition_version FROM pgtrickle.pgt_stream_tables") == [
        ("SELECT id FROM customers", 1)
    ]
    db.sql("SELECT pgtrickle.create_or_replace_stream_table('s', 'SELECT id FROM customers', schedule => '5s')")
    assert db.sql("SELECT schedule, definition_version, needs_reinit FROM pgtrickle.pgt_stream_tables") == [
        ("5s", 1, False)
    ]
    db.sql("SELECT pgtrickle.create_or_replace_stream_table('s', 'SELECT region FROM customers')")
    assert db.sql("SELECT definition_version, needs_reinit, epoch FROM pgtrickle.pgt_stream_tables") == [(2, True, 2)]
    db.sql("SELECT pgtrickle.create_or_replace_stream_table('fresh', 'SELECT region FROM customers')")
    assert db.sql("SELECT count(*) FROM pgtrickle.pgt_status()") == [(2,)]


def test_alter_query_with_the_same_columns_keeps_content(db: Database) -> None:
    _create(db, "SELECT id FROM customers")
    db.sql("SELECT pgtrickle.protect_stream_table('s', false); INSERT INTO s VALUES (1, 1)")
    relid = db.sql("SELECT 's'::regclass::oid")
    db.sql(
        "SELECT pgtrickle.alter_stream_table('s', query => 'SELECT id FROM customers WHERE id > 5', schedule => '9s')"
    )
    assert db.sql("SELECT id FROM s") == [(1,)]
    db.sql("GRANT SELECT ON s TO PUBLIC")
    db.sql("SELECT pgtrickle.alter_stream_table('s', query => 'SELECT region, v FROM customers, orders')")
    assert db.sql("SELECT id FROM s") == [(1,)]  # until the new content is ready
    assert db.sql("SELECT 's'::regclass::oid") == relid
    assert db.sql("SELECT has_table_privilege('pg_monitor', 's', 'SELECT')") == [(True,)]
    rows = db.sql("SELECT definition_version, epoch, needs_reinit, status, schedule FROM pgtrickle.pgt_stream_tables")
    assert rows == [(3, 2, True, "INITIALIZING", "9s")]
    assert db.sql("SELECT source_table FROM pgtrickle.list_sources('s')") == [("public.customers",), ("public.orders",)]


def test_alter_mode_checks_the_stored_query(db: Database) -> None:
    _create(db, "SELECT region, current_date AS d FROM customers")
    with pytest.raises(psycopg.errors.FeatureNotSupported):
        db.sql("SELECT pgtrickle.alter_stream_table('s', refresh_mode => 'DIFFERENTIAL')")
    db.sql("SELECT pgtrickle.alter_stream_table('s', refresh_mode => 'FULL', tier => 'cold', status => 'SUSPENDED')")
    assert db.sql("SELECT refresh_mode, refresh_tier, status FROM pgtrickle.pgt_stream_tables") == [
        ("FULL", "cold", "SUSPENDED")
    ]


def test_requests_wake_the_control_plane(db: Database) -> None:
    _create(db, "SELECT id FROM customers")
    listener = db.connect()
    listener.execute("LISTEN pgtrickle_wake")
    db.sql("SELECT pgtrickle.refresh_stream_table('s')")
    db.sql("SELECT pgtrickle.manual_refresh('s')")
    db.sql("SELECT pgtrickle.alter_stream_table('s', schedule => '7s')")
    db.sql("SELECT pgtrickle.drop_stream_table('s')")
    heard = [n.payload.split()[0] for n in listener.notifies(timeout=120, stop_after=4)]
    assert heard == ["refresh", "refresh", "alter", "drop"]


def test_refresh_of_a_failed_table_says_so_until_resumed(db: Database) -> None:
    _create(db, "SELECT id FROM customers")
    db.sql(
        "UPDATE pgtrickle.pgt_stream_tables SET status = 'ERROR', last_error_message = "
        "E'it\\nbroke', consecutive_errors = 3"
    )
    db.sql("SELECT pgtrickle.refresh_stream_table('s')")  # tries again, now
    assert db.sql("SELECT status, last_error_message, consecutive_errors FROM pgtrickle.pgt_stream_tables") == [
        ("INITIALIZING", None, 0)
    ]


def test_refresh_and_wait_returns_when_done(db: Database) -> None:
    db.require_version(13, "a procedure notifies when it commits, not when it returns", minor=5)
    _create(db, "SELECT id FROM customers")
    plane = db.connect()
    plane.execute("LISTEN pgtrickle_wake")

    def refresh() -> None:
        for _ in plane.notifies(timeout=120, stop_after=1):
            pass
        plane.execute("UPDATE pgtrickle.pgt_stream_tables SET refresh_done_at = refresh_requested_at")

    thread = threading.Thread(target=refresh)
    thread.start()
    db.sql("CALL pgtrickle.refresh_and_wait('s', '10 s')")
    thread.join()
    with pytest.raises(psycopg.errors.ObjectNotInPrerequisiteState, match="no control plane serves this database"):
        db.sql("CALL pgtrickle.refresh_and_wait('s', '1 hour')")
    db.connect(application_name="pgtrickle/scheduler")
    with pytest.raises(psycopg.errors.QueryCanceled, match="no refresh of 's' within"):
        db.sql("CALL pgtrickle.refresh_and_wait('s', '0.1 s')")
    db.sql("INSERT INTO pgtrickle.pgt_runtime (state) VALUES ('{\"enabled\": false}')")
    with pytest.raises(psycopg.errors.ObjectNotInPrerequisiteState, match="pgtrickle is disabled for this database"):
        db.sql("CALL pgtrickle.refresh_and_wait('s', '1 hour')")
    with (
        db.connect(autocommit=False) as conn,
        pytest.raises(psycopg.errors.InvalidTransactionTermination) as raised,
    ):
        conn.execute("CALL pgtrickle.refresh_and_wait('s')")
    assert "not_possible_inside_a_transaction_block" in (raised.value.diag.context or "")


def test_repair_restores_a_dropped_storage_table(db: Database) -> None:
    _create(db, "SELECT id, region FROM customers")
    db.sql("DROP TABLE s")
    assert db.sql("SELECT pgtrickle.repair_stream_table('s')")[0][0].startswith("storage table created again")
    assert db.sql("SELECT * FROM s") == []
    assert db.sql("SELECT needs_reinit, pgt_relid = 's'::regclass FROM pgtrickle.pgt_stream_tables") == [(True, True)]


def test_export_definition_creates_the_same_again(db: Database) -> None:
    _create(db, "SELECT id, 'it''s' AS q FROM customers", schedule="7s", max_delta_fraction=0.25)
    columns = "defining_query, schedule, refresh_mode, max_delta_fraction, output_columns"
    stored = f"SELECT {columns} FROM pgtrickle.pgt_stream_tables"
    before = db.sql(stored)
    ((text,),) = db.sql("SELECT pgtrickle.export_definition('s')")
    db.sql("SELECT pgtrickle.drop_stream_table('s')")
    db.sql(text)
    assert db.sql(stored) == before


def test_status_functions_work_on_an_empty_and_a_full_catalog(db: Database) -> None:
    calls = ("pgt_status()", "health_summary()", "change_buffer_sizes()", "trigger_inventory()")
    for call in calls:
        db.sql(f"SELECT * FROM pgtrickle.{call}")
    _create(db, "SELECT id FROM customers")
    for call in (
        *calls,
        "explain_st('s')",
        "get_refresh_history('s', 5)",
        "get_refresh_history('s')",
        "get_staleness('s')",
    ):
        db.sql(f"SELECT * FROM pgtrickle.{call}")
    columns = [d[0] for d in db.connect().execute("SELECT * FROM pgtrickle.health_summary()").description or []]
    assert columns == [
        "total_stream_tables", "active_count", "error_count", "suspended_count", "stale_count", "reinit_pending",
        "max_staleness_seconds", "scheduler_status", "cache_hit_rate",
    ]  # fmt: skip


def test_drop_respects_views_unless_cascade(db: Database) -> None:
    _create(db, "SELECT id FROM customers")
    db.sql("CREATE VIEW over AS SELECT id FROM s; CREATE TABLE pgtrickle_changes.state_x (a int)")
    db.sql(
        "DO $$ BEGIN EXECUTE format('CREATE TABLE pgtrickle_changes.state_%s (a int)', (SELECT "
        "pgt_id FROM pgtrickle.pgt_stream_tables)); END $$"
    )
    with pytest.raises(psycopg.errors.DependentObjectsStillExist, match=r"depend on public\.s"):
        db.sql("SELECT pgtrickle.drop_stream_table('s')")
    db.sql("SELECT pgtrickle.drop_stream_table('s', true)")
    assert db.sql("SELECT to_regclass('over')") == [(None,)]
    assert db.sql("SELECT relname FROM pg_class WHERE relname ~ '^state_'") == [("state_x",)]


# -- privileges


def test_nothing_without_usage(db: Database) -> None:
    db.superuser_sql("DROP ROLE IF EXISTS stranger; CREATE ROLE stranger")
    try:
        with pytest.raises(psycopg.errors.InsufficientPrivilege):
            db.superuser_sql("SET ROLE stranger; SELECT pgtrickle.pgt_status()")
    finally:
        db.superuser_sql("DROP ROLE stranger")


def test_caller_needs_select_on_sources(db: Database, other: psycopg.Connection[Any]) -> None:
    call = "SELECT pgtrickle.create_stream_table('s', 'SELECT id, region FROM public.customers')"
    with pytest.raises(psycopg.errors.InsufficientPrivilege, match="permission denied for table customers"):
        other.execute(call)
    db.sql(f"GRANT SELECT (id) ON customers TO {other.info.user}")
    with pytest.raises(psycopg.errors.InsufficientPrivilege, match="permission denied for table customers"):
        other.execute(call)
    db.sql(f"GRANT SELECT (region) ON customers TO {other.info.user}")
    other.execute(call)
    assert db.sql("SELECT created_by FROM pgtrickle.pgt_stream_tables") == [(other.info.user,)]
    assert other.execute("SELECT * FROM s").fetchall() == []
    other.execute("GRANT SELECT ON s TO PUBLIC")
    with pytest.raises(psycopg.errors.InsufficientPrivilege):
        other.execute("INSERT INTO s VALUES (1, 'x', 1)")


def test_internal_function_trusts_nobody(db: Database, other: psycopg.Connection[Any]) -> None:
    call = "SELECT pgtrickle._register(%s, 'public', 'stolen', 'x', '{}')"
    ((view,),) = db.sql("SELECT 'big'::regclass::oid::int8")
    with pytest.raises(psycopg.errors.InsufficientPrivilege, match="internal"):
        other.execute(call, [view])
    # a view may be made over what one may not read
    other.execute("CREATE TEMPORARY VIEW __pgt_probe AS SELECT id, region FROM public.customers")
    row = other.execute("SELECT '__pgt_probe'::regclass::oid::int8").fetchone()
    with pytest.raises(psycopg.errors.InsufficientPrivilege, match=r"permission denied for public\.customers"):
        other.execute(call, list(row or ()))
    with pytest.raises(psycopg.errors.InsufficientPrivilege):
        other.execute("UPDATE pgtrickle.pgt_stream_tables SET status = 'ERROR'")


def test_only_creator_and_owner_may_change(db: Database, other: psycopg.Connection[Any]) -> None:
    _create(db, "SELECT id FROM customers")
    for call in (
        "drop_stream_table('s')",
        "refresh_stream_table('s')",
        "alter_stream_table('s', schedule => '1s')",
        "resume_stream_table('s')",
    ):
        with pytest.raises(psycopg.errors.InsufficientPrivilege, match="must be the creator"):
            other.execute(f"SELECT pgtrickle.{call}")
    with pytest.raises(psycopg.errors.InsufficientPrivilege, match="must be the creator"):
        other.execute("SELECT pgtrickle._drop(pgtrickle._find('s'), true)")
    db.sql(f"GRANT SELECT ON customers TO {other.info.user}")
    other.execute("SELECT pgtrickle.create_stream_table('theirs', 'SELECT id FROM customers')")
    db.sql("SELECT pgtrickle.alter_stream_table('theirs', schedule => '1s')")
    other.execute("SELECT pgtrickle.refresh_stream_table('theirs')")
    other.execute("SELECT pgtrickle.drop_stream_table('theirs')")


def test_caller_needs_create_on_the_schema(db: Database, other: psycopg.Connection[Any]) -> None:
    db.sql(
        f"CREATE SCHEMA closed; GRANT USAGE ON SCHEMA closed TO {other.info.user}; GRANT SELECT ON "
        f"customers TO {other.info.user}"
    )
    with pytest.raises(psycopg.errors.InsufficientPrivilege, match="permission denied for schema closed"):
        other.execute("SELECT pgtrickle.create_stream_table('closed.s', 'SELECT id FROM public.customers')")


def test_source_of_another_owner_is_refused(db: Database, other: psycopg.Connection[Any]) -> None:
    other.execute(
        "CREATE TABLE theirs (a int); CREATE FUNCTION evil(int) RETURNS int LANGUAGE sql IMMUTABLE AS 'SELECT 1'"
    )
    with pytest.raises(psycopg.errors.InsufficientPrivilege, match="not owned by app") as caught:
        other.execute("SELECT pgtrickle.create_stream_table('s', 'SELECT a FROM theirs')")
    assert f"GRANT {other.info.user} TO app" in (caught.value.diag.message_hint or "")
    db.sql(f"GRANT SELECT ON customers TO {other.info.user}")
    with pytest.raises(psycopg.errors.InsufficientPrivilege, match="whose code app does not run"):
        other.execute("SELECT pgtrickle.create_stream_table('s', 'SELECT evil(id) AS e FROM customers')")


def test_view_is_read_with_its_owners_rights(db: Database, other: psycopg.Connection[Any]) -> None:
    db.require_version(15, "views with security_invoker")
    db.sql(f"GRANT SELECT ON big TO {other.info.user}")
    other.execute("SELECT pgtrickle.create_stream_table('s', 'SELECT id FROM big')")
    other.execute("SELECT pgtrickle.drop_stream_table('s')")
    db.sql("ALTER VIEW big SET (security_invoker = true)")
    with pytest.raises(psycopg.errors.InsufficientPrivilege):
        other.execute("SELECT pgtrickle.create_stream_table('s', 'SELECT id FROM big')")


def test_author_adopts_a_recreated_source_only_if_it_may_read_it(db: Database, other: psycopg.Connection[Any]) -> None:
    """By repair_stream_table, along the search_path of the definition and not along that of the call."""
    db.sql("CREATE SCHEMA away; CREATE TABLE away.orders_kept (id int, v int)")
    db.sql(f"GRANT USAGE ON SCHEMA away TO {other.info.user}; GRANT SELECT ON away.orders_kept TO {other.info.user}")
    other.execute("SET search_path = away, public")
    other.execute("SELECT pgtrickle.create_stream_table('public.s', 'SELECT id, v FROM orders_kept')")
    other.execute("SET search_path = public")
    db.sql("DROP TABLE away.orders_kept CASCADE; CREATE TABLE away.orders_kept (v int, id int)")
    with pytest.raises(psycopg.errors.InsufficientPrivilege):
        other.execute("SELECT pgtrickle.repair_stream_table('s')")
    db.sql(f"GRANT SELECT ON away.orders_kept TO {other.info.user}")
    ((message,),) = other.execute("SELECT pgtrickle.repair_stream_table('s')").fetchall()
    assert "adopted" in message
    assert db.sql(
        "SELECT source_relid = 'away.orders_kept'::regclass, columns_used FROM pgtrickle.pgt_dependencies"
    ) == [(True, [1, 2])]
    assert other.execute("SHOW search_path").fetchone() == ("public",)
    ((status, author),) = db.sql("SELECT status, created_by FROM pgtrickle.pgt_stream_tables")
    assert (status, author) == ("INITIALIZING", other.info.user)
    ((message,),) = other.execute("SELECT pgtrickle.repair_stream_table('s')").fetchall()
    assert "adopted" not in message


def test_row_security_is_refused(db: Database, other: psycopg.Connection[Any]) -> None:
    db.sql(f"GRANT SELECT ON customers TO {other.info.user}; ALTER TABLE customers ENABLE ROW LEVEL SECURITY")
    with pytest.raises(psycopg.errors.InsufficientPrivilege, match=r"row security of public\.customers is active"):
        other.execute("SELECT pgtrickle.create_stream_table('s', 'SELECT id FROM customers')")
    _create(db, "SELECT id FROM customers")
    db.sql("ALTER TABLE customers FORCE ROW LEVEL SECURITY")
    with pytest.raises(psycopg.errors.InsufficientPrivilege, match="is active for app"):
        db.sql("SELECT pgtrickle.create_stream_table('s2', 'SELECT id FROM customers')")


def test_hostile_search_path_cannot_reach_definer_functions(db: Database, other: psycopg.Connection[Any]) -> None:
    db.sql(f"GRANT SELECT ON customers TO {other.info.user}")
    other.execute(
        "CREATE FUNCTION public.format(text, VARIADIC text[]) RETURNS text LANGUAGE sql AS 'SELECT "
        "1/0; SELECT NULL::text'"
    )
    other.execute("SET search_path = public, pg_catalog")
    other.execute("SELECT pgtrickle.create_stream_table('s', 'SELECT id FROM customers')")
    assert db.sql("SELECT pgt_schema FROM pgtrickle.pgt_stream_tables") == [("public",)]
    other.execute("DROP FUNCTION public.format(text, VARIADIC text[])")


def test_creating_says_when_nobody_will_load_it(db: Database) -> None:
    connection = db.connect()
    heard: list[str] = []
    connection.add_notice_handler(lambda diag: heard.append(f"{diag.message_primary} {diag.message_hint}"))
    connection.execute("SELECT pgtrickle.create_stream_table('lonely', 'SELECT 1 AS a')")
    assert heard == ["public.lonely is empty until a scheduler serves this database Start pgtrickle run."]
    db.connect(application_name="pgtrickle/scheduler")
    connection.execute("SELECT pgtrickle.create_stream_table('served', 'SELECT 1 AS a')")
    assert len(heard) == 1
