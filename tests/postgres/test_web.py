"""The web UI and its JSON: what it shows, to whom, and what it lets them do."""

from __future__ import annotations

import http.client
import re
import shlex
import threading
import time
from collections.abc import Callable, Iterator
from datetime import UTC, datetime
from html import unescape
from html.parser import HTMLParser
from pathlib import Path
from typing import Any
from urllib.parse import quote

import psycopg
import pytest

from pgtrickle.errors import ConfigError
from pgtrickle.ipc.fleet_memory import PoolStatus, ProcessState, SchedulerState, WorkerShare
from pgtrickle.web.graph import THINNEST, stroke
from pgtrickle.web.listen import listen
from tests.conftest import Database, run
from tests.postgres.rows import capture, create, job, loaded, refreshed, replica
from tests.web import HTML, JSON, TOKEN, Site, site

HOSTILE = "<img src=x onerror=alert(1)>'\"&/..%2F?#"
PAGES = ("/", "/tables", "/graph", "/workers", "/sources", "/alerts", "/settings")
BEARER = {"authorization": f"Bearer {TOKEN}"}


class Tags(HTMLParser):
    """The elements and attributes of a page."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.found: list[tuple[str, dict[str, str | None]]] = []
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.found.append((tag, dict(attrs)))


@pytest.fixture
def shop(installed: Database) -> Database:
    installed.sql('CREATE TABLE sales (region text, amount numeric); CREATE SCHEMA "we""ird/x"')
    installed.sql(
        "SELECT pgtrickle.create_stream_table('totals', 'SELECT region, sum(amount) FROM sales GROUP BY 1', '30s')"
    )
    installed.sql(f"""CREATE TABLE "{HOSTILE.replace('"', '""')}" (a int)""")
    installed.sql(
        "SELECT pgtrickle.create_stream_table(%s, %s)",
        f'"we""ird/x"."{HOSTILE.replace(chr(34), chr(34) * 2)}"',
        f"""SELECT a AS "<b>" FROM "{HOSTILE.replace('"', '""')}" """,
    )
    return installed


@pytest.fixture
def ui(shop: Database, tmp_path: Path) -> Iterator[Site]:
    """On loopback with a token: reading is free, changes need the token."""
    with site([shop], tmp_path, token=TOKEN) as found:
        yield found


def fail(database: Database, name: str = "totals") -> None:
    database.sql(
        "UPDATE pgtrickle.pgt_stream_tables SET status = 'ERROR', last_error_code = 'PGT202', consecutive_errors = 1, "
        "last_error_message = 'PGT202: secret row <script>', last_error_detail = "
        '\'{"of": "PGT202: secret row <script>", "text": "row of public.sales (id = secret key)"}\' '
        "WHERE pgt_name = %s",
        name,
    )


def table_path(database: Database, schema: str, name: str) -> str:
    return "/tables/" + "/".join(quote(part, safe="") for part in (database.name, schema, name))


def test_every_page_is_html_and_json_with_safe_headers(ui: Site) -> None:
    for page in PAGES:
        check_page(ui, page)


def check_page(ui: Site, page: str) -> None:
    answer = ui.ask(page)
    assert answer.status == 200
    policy = answer.headers["content-security-policy"]
    assert "default-src 'none'" in policy
    assert "frame-ancestors 'none'" in policy
    assert "unsafe" not in policy
    assert answer.headers["x-content-type-options"] == "nosniff"
    assert answer.headers["referrer-policy"] == "same-origin"
    assert answer.headers["cache-control"] == "no-store"
    # The policy blocks these; a page must not need them.
    assert not [
        tag for tag, found in Tags(answer.text).found if "style" in found or any(a.startswith("on") for a in found)
    ]
    assert "<script>" not in answer.text
    assert isinstance(ui.read(page), dict)
    joint = "&" if "?" in page else "?"
    assert ui.ask(f"{page}{joint}format=json").headers["content-type"] == "application/json"


def test_hostile_names_are_text_and_their_links_work(ui: Site, shop: Database) -> None:
    for page in ("/", "/tables", "/graph", "/sources"):
        answer = ui.ask(page)
        assert not [
            attributes for tag, attributes in Tags(answer.text).found if tag == "img" and "onerror" in attributes
        ]
    hrefs = [
        a["href"] or ""
        for tag, a in Tags(ui.ask("/tables").text).found
        if tag == "a" and "%3Cimg" in (a.get("href") or "")
    ]
    answer = ui.ask(hrefs[0])
    assert answer.status == 200
    assert "&lt;img src=x onerror=alert(1)&gt;" in answer.text
    assert ui.read(hrefs[0])["table"]["name"] == HOSTILE
    assert ui.read(hrefs[0])["columns"][0]["name"] == "<b>"


def test_browsers_find_the_icon_of_pages_that_name_none(ui: Site) -> None:
    """Otherwise the console of a browser that shows JSON or /healthz has an error."""
    found = ui.ask("/favicon.ico")
    assert found.status == 307
    icon = ui.ask(found.headers["location"])
    assert (icon.status, icon.headers["content-type"]) == (200, "image/svg+xml")


def test_long_and_broken_addresses_are_refused(ui: Site) -> None:
    assert ui.ask("/tables?q=" + "x" * 10_000).status == 414
    assert ui.ask("/tables?q=" + "%22%3E%3Cscript%3E" * 100).text.count("<script>") == 0
    assert ui.ask("/tables/" + "x" * 5_000 + "/a/b").status == 404
    assert ui.ask("/tables/%00/%ff/%").status == 404
    assert ui.ask("/nothing").status == 404
    assert ui.ask("/../../etc/passwd").status == 404
    assert ui.ask("/static/%2e%2e/app.py").status == 404


def test_the_state_of_a_table_and_its_definition(ui: Site, shop: Database) -> None:
    found = ui.read(table_path(shop, "public", "totals"))
    assert found["query"] == "SELECT region, sum(amount) FROM sales GROUP BY 1"
    assert found["table"]["schedule"] == "30s"
    assert found["table"]["freshness"] == "loading"
    assert [r["edge"]["name"] for r in found["reads"]] == ["sales"]
    (row,) = [d for d in ui.read("/")["databases"] if d["label"] == shop.name]
    assert (row["stream_tables"], row["scheduler"]) == (2, "STOPPED")
    assert ui.read("/graph")["links"][0]["rate"] == 0


def test_the_plan_names_the_command_that_measures_its_operators(ui: Site, shop: Database) -> None:
    names = {"totals": "public", HOSTILE: 'we"ird/x'}
    for name, schema in names.items():
        where = table_path(shop, schema, name)
        command = ui.read(where)["plan"]["analyze"]
        program, plan, table, option = shlex.split(command)
        assert (program, plan, option) == ("pgtrickle", "plan", "--analyze")
        assert shop.sql("SELECT schema_name, table_name FROM pgtrickle._parse_name(%s)", table) == [(schema, name)]
        assert f"<code>{command}</code>" in unescape(ui.ask(where).text)


def test_the_schedule_bounds_the_lag_before_a_refresh(ui: Site, shop: Database) -> None:
    observer = ui.observer.observer(shop.name)
    assert observer is not None
    for schedule, expected in (("30s", 30.0), ("calculated", 0.0), ("*/5 * * * *", None)):
        shop.sql("UPDATE pgtrickle.pgt_stream_tables SET schedule = %s WHERE pgt_name = 'totals'", schedule)
        detail = observer.detail("public", "totals")
        assert detail is not None
        assert detail.allowed_lag == expected


def test_error_texts_are_for_viewers_with_the_token(ui: Site, shop: Database) -> None:
    fail(shop)
    shop.sql(
        "INSERT INTO pgtrickle.pgt_refresh_history (pgt_id, end_time, action, status, error_message, reason, "
        "reason_code) "
        "SELECT pgt_id, now(), 'FULL', 'FAILED', 'PGT202: secret row', 'secret reason', 'repair_requested' "
        "FROM pgtrickle.pgt_stream_tables WHERE pgt_name = 'totals'"
    )
    where = table_path(shop, "public", "totals")
    for page in (*PAGES, where):
        for accept in (HTML, JSON):
            assert "secret" not in ui.ask(page, headers=accept).text
    assert "PGT202" in ui.ask(where).text
    assert "A source&#39;s columns no longer fit the query." in ui.ask(where).text
    found = ui.ask(where, headers=HTML | BEARER).text
    assert "PGT202: secret row &lt;script&gt;" in found
    assert "<script>" not in found
    assert "secret row" in ui.ask("/alerts", headers=HTML | BEARER).text
    # The key of the bad row, too: the service role may read all rows of all sources.
    for page in (where, "/alerts"):
        assert "(row of public.sales (id = secret key))" in ui.ask(page, headers=HTML | BEARER).text
    assert ui.read(where, **BEARER)["table"]["error"].endswith("(row of public.sales (id = secret key))")
    assert "A source&#39;s columns no longer fit the query." in ui.ask(where, headers=HTML | BEARER).text


NUMBER = 73_918_462
# As JSON and as pages write it, also the sum of two.
NUMBERS = (*(text.format(n) for n in (NUMBER, 2 * NUMBER) for text in ("{}", "{:,}")), "73.9 M", "147.8 M")


@pytest.fixture
def counted(shop: Database) -> Database:
    """Every number of rows that SQL hides from strangers is NUMBER, and a replica has failed."""
    relid = capture(shop, "sales")
    replica(shop, relid, row_count=NUMBER, snapshot=None, last_error="the disk is full")
    shop.sql(f"""
        SELECT pgtrickle.set_option('max_buffer_rows', '7');
        INSERT INTO pgtrickle.pgt_refresh_history (pgt_id, start_time, end_time, data_timestamp, action, status, engine,
                                                   rows_inserted, rows_deleted, delta_row_count, operator_rows, timings)
        SELECT pgt_id, now(), now(), now(), 'DIFFERENTIAL', 'COMPLETED', 'postgres', {NUMBER}, {NUMBER}, {NUMBER},
               '{{"changes": {{"{relid}": {NUMBER}}}, "read": {NUMBER}, "netted": {NUMBER}}}', '{{"net": 1}}'
        FROM pgtrickle.pgt_stream_tables;
        CREATE OR REPLACE FUNCTION pgtrickle._buffer_sizes(me text DEFAULT pgtrickle._me())
        RETURNS TABLE (source_relid oid, pgt_id bigint, reader_key text, mirror_id bigint, subscriber text,
            cdc_mode text, pending_rows bigint, buffer_bytes bigint, row_count bigint)
        LANGUAGE sql STABLE AS $$
            SELECT d.source_relid, d.pgt_id, NULL, NULL::bigint, NULL, 'trigger', {NUMBER}::bigint, 0::bigint,
                   {NUMBER}::bigint
            FROM pgtrickle.pgt_dependencies AS d
        $$
    """)
    return shop


def test_numbers_that_sql_hides_from_strangers_are_for_viewers_with_the_token(
    ui: Site, counted: Database, make_role: Callable[[Database], psycopg.Connection[Any]]
) -> None:
    where = table_path(counted, "public", "totals")
    for page in (*PAGES, where):
        for accept in (HTML, JSON):
            text = ui.ask(page, headers=accept).text
            assert not [number for number in NUMBERS if number in text], page
            assert "replica of" not in text, page
            assert "disk" not in text, page
    for page in ("/", "/tables", "/sources", "/alerts", where):
        for accept in (HTML, JSON):
            text = ui.ask(page, headers=accept | BEARER).text
            assert [number for number in NUMBERS if number in text], page
    assert ui.read("/sources")["replicas"] == []
    assert ui.read("/sources", **BEARER)["replicas"][0]["replica"]["rows"] == NUMBER
    # The number of alerts in the navigation is that of the page.
    for headers in ({}, BEARER):
        count = len(ui.read("/alerts", **headers)["alerts"])
        assert f'id="alert-count">{count}</span>' in ui.ask("/", headers=HTML | headers).text
    stranger = make_role(counted)
    history = "SELECT rows_inserted, rows_deleted, delta_row_count, operator_rows, error_message FROM "
    assert run(stranger, history + "pgtrickle.get_refresh_history('totals')") == [(None,) * 5]
    assert run(stranger, "SELECT * FROM pgtrickle.replicas()") == []
    shown = ui.read(where)["refreshes"][0]
    assert [shown[name] for name in ("inserted", "deleted", "changes", "operator_rows", "error_code")] == [None] * 5


def rows_of(page: str, section: str) -> list[list[str]]:
    """The texts of a table, its header first, in the section of this id."""
    (part,) = re.findall(rf'<section[^>]* id="{section}".*?</section>', page, re.DOTALL)
    rows = [re.findall(r"<t[hd][ >].*?</t[hd]>", row, re.DOTALL) for row in re.findall(r"<tr.*?</tr>", part, re.DOTALL)]
    return [[" ".join(re.sub("<[^>]*>", " ", cell).split()) for cell in row] for row in rows]


def record(page: str, section: str) -> dict[str, str]:
    """The only row of a table, by its header."""
    header, row = rows_of(page, section)
    return dict(zip(header, row, strict=True))


def test_workers_quota_and_queue_of_each_database(ui: Site, shop: Database) -> None:
    now = time.time()
    key = shop.sql("SELECT pgtrickle._origin()")[0][0]
    ui.memory.write_pool(PoolStatus(active=3, most=8, spark_jobs=21, leases=22, cache_hits=3, cache_misses=1))
    ui.memory.write_shares([WorkerShare(key, shop.name, used=3, quota=4, queued=5, cap=6)])
    ui.memory.write_slots(1)
    ui.memory.write_scheduler(0, SchedulerState(key, shop.name, 11, "ACTIVE", now, now, 17, 2, 1))
    share = {"database": shop.name, "used": 3, "quota": 4, "queued": 5, "cap": 6}
    found = ui.read("/")
    assert [database["share"] for database in found["databases"]] == [share]
    assert [found["fleet"]["pool"][name] for name in ("active", "most", "queued")] == [3, 8, 5]
    page = ui.ask("/").text
    shown = record(page, "databases")
    assert (shown["Workers"], shown["Queue"], shown["Stream tables"]) == ("3 of 6 quota 4", "5", "2")
    assert '<p class="big">3<small> of 8 busy</small></p><p class="small">5 units wait</p>' in page
    found = ui.read("/workers")
    assert found["shares"] == [share]
    assert (found["schedulers"][0]["ticks"], found["pool"]["spark_jobs"]) == (17, 21)
    shown = record(ui.ask("/workers").text, "shares")
    assert [shown[c] for c in ("Used", "May use", "Quota", "Waiting", "Ticks")] == ["3", "6", "4", "5", "17"]


def test_units_that_run_wait_and_have_finished(ui: Site, shop: Database) -> None:
    ids = [pgt_id for (pgt_id,) in shop.sql("SELECT pgt_id FROM pgtrickle.pgt_stream_tables ORDER BY pgt_name DESC")]
    now = datetime.now(UTC)
    running = job(shop, ids[:1], "RUNNING", started_at=now, worker_pid=7, tier="hot")
    waiting = job(shop, ids, "QUEUED", unit_kind="fused_chain", attempt_no=2)
    done = job(shop, ids[:1], "SUCCEEDED", age="5 s", started_at=now, finished_at=now)
    found = ui.read("/workers")
    assert [u["unit"]["job_id"] for u in found["current"]] == [waiting, running]
    assert [u["unit"]["job_id"] for u in found["finished"]] == [done]
    assert found["current"][1]["members"] == [{"schema": "public", "name": "totals", "is_mirror": False}]
    page = ui.ask("/workers").text
    header, *rows = rows_of(page, "current")
    shown = [dict(zip(header, row, strict=True)) for row in rows]
    assert [(r["Kind"], r["State"], r["Tier"], r["Attempt"]) for r in shown] == [
        ("fused chain", "queued", shown[0]["Tier"], "2"),
        ("singleton", "running", "hot", "1"),
    ]
    assert shown[1]["Stream tables"] == "totals"
    assert "totals" in shown[0]["Stream tables"]
    assert [record(page, "finished")[c] for c in ("Stream tables", "Result")] == ["totals", "succeeded"]


def test_charts_of_workers_show_what_was_sampled(ui: Site, monkeypatch: pytest.MonkeyPatch) -> None:
    assert "Nothing to show yet." in ui.ask("/workers").text
    monkeypatch.setattr("pgtrickle.observe.fleet.SAMPLE_SECONDS", 0.01)
    ui.memory.write_pool(PoolStatus(active=3, most=8))
    ui.memory.write_shares([WorkerShare("k", "d", used=3, quota=0, queued=5, cap=6)])
    stop = threading.Event()
    sampler = threading.Thread(target=ui.observer.sample_until, args=(stop,))
    sampler.start()
    wait_until(lambda: len(ui.read("/workers")["samples"]) > 1)
    stop.set()
    sampler.join()
    samples = ui.read("/workers")["samples"]
    assert {(s["active"], s["most"], s["queued"]) for s in samples} == {(3, 8, 5)}
    for path in ("/workers", "/"):
        page = ui.ask(path).text
        drawn = [a.get("aria-label") for tag, a in Tags(page).found if tag == "svg" and a.get("class") == "chart"]
        assert drawn == ["Busy workers over time", "Units that wait over time"]
        assert page.count('<path class="line c-accent"') == page.count('<path class="line c-lagging"') == 1


def test_the_graph_is_coloured_by_freshness(ui: Site, shop: Database) -> None:
    loaded(shop, shop.sql("SELECT pgt_id FROM pgtrickle.pgt_stream_tables WHERE pgt_name = 'totals'")[0][0])
    for state, change in (("fresh", ""), ("stopped", "SELECT pgtrickle.suspend_stream_table('totals')")):
        if change:
            shop.sql(change)
        wait_until(lambda state=state: ui.read("/graph")["states"][state] == 1)  # type: ignore[misc]
        found = {(n["node"]["schema"], n["node"]["name"]): n["node"]["state"] for n in ui.read("/graph")["nodes"]}
        assert found == {
            ("public", "sales"): "source",
            ("public", "totals"): state,
            ("public", HOSTILE): "source",
            ('we"ird/x', HOSTILE): "loading",
        }
        page = ui.ask("/graph").text
        (node,) = re.findall(r'data-name="[^"]*\.public\.totals">.*?</g>', page, re.DOTALL)
        assert f'<rect class="node {state}"' in node
        assert page.count('<rect class="node source"') == page.count('<rect class="node loading"') + 1


def test_links_of_the_graph_are_as_wide_as_their_rate(
    ui: Site, shop: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    capture(shop, "sales")

    def is_changing() -> bool:
        shop.sql("INSERT INTO sales SELECT 'a', g FROM generate_series(1, 1000) AS g")
        (database,) = ui.observer.read(0.0).databases
        return any(source.rate for source in database.sources)

    monkeypatch.setattr("pgtrickle.observe.database.RATE_SECONDS", 0.0)
    wait_until(is_changing)
    monkeypatch.setattr("pgtrickle.observe.database.RATE_SECONDS", 1e9)  # from here on it stays
    slow, fast = sorted(ui.read("/graph")["links"], key=lambda link: link["rate"])
    assert (slow["rate"], stroke(slow["rate"])) == (0, THINNEST)
    assert fast["rate"] > 0
    links = [a for tag, a in Tags(ui.ask("/graph").text).found if tag == "path" and "link" in (a["class"] or "")]
    assert sorted((a["class"], a["stroke-width"]) for a in links) == [
        ("link fresh", str(THINNEST)),
        ("link fresh moving", str(stroke(fast["rate"]))),
    ]


def test_costs_by_mode_and_engine(ui: Site, shop: Database) -> None:
    where = table_path(shop, "public", "totals")
    assert "No refresh has completed yet." in ui.ask(where).text
    totals = shop.sql("SELECT pgt_id FROM pgtrickle.pgt_stream_tables WHERE pgt_name = 'totals'")[0][0]
    for ms in (10, 20, 30):
        refreshed(shop, totals, "DIFFERENTIAL", ms, engine="postgres", source_ms=ms / 2, delta_row_count=ms)
    refreshed(shop, totals, "FULL", 400, engine="spark", source_ms=100)
    refreshed(shop, totals, "FULL", 9000, "FAILED", engine="spark")
    refreshed(shop, totals, "NO_DATA", 1)
    found = ui.read(where, **BEARER)["costs"]
    numbers = ("refreshes", "median_ms", "p95_ms", "median_source_ms", "median_changes")
    assert [(c["action"], c["engine"], *(round(c[n]) for n in numbers)) for c in found] == [
        ("DIFFERENTIAL", "postgres", 3, 20, 29, 10, 20),
        ("FULL", "spark", 1, 400, 400, 100, 3),
    ]
    assert rows_of(ui.ask(where, headers=HTML | BEARER).text, "lag") == [
        ["Mode", "Engine", "Refreshes", "Median", "95 %", "On the server", "Changes"],
        ["differential", "postgres", "3", "20 ms", "29 ms", "10 ms", "20"],
        ["full", "spark", "1", "400 ms", "400 ms", "100 ms", "3"],
    ]
    assert [c["median_changes"] for c in ui.read(where)["costs"]] == [None, None]


def test_sources_show_how_far_each_reader_is(shop: Database, tmp_path: Path) -> None:
    """Of a stream table: another stream table, a subscriber, a mirror of another database and a replica."""
    loaded(shop, create(shop, "copies", "SELECT region FROM sales"))
    relid = capture(shop, "copies")
    shop.sql("SELECT pgtrickle.create_subscriber('copies', 'billing')")
    shop.sql("INSERT INTO copies (region, __pgt_row_id) VALUES ('a', 1), ('b', 2)")
    replica(shop, relid)
    shop.sql("INSERT INTO copies (region, __pgt_row_id) VALUES ('c', 3)")
    loaded(shop, create(shop, "regions", "SELECT region FROM copies"))
    shop.sql("INSERT INTO copies (region, __pgt_row_id) VALUES ('d', 4)")
    shop.sql(
        "INSERT INTO pgtrickle.pgt_readers (reader_key, mirror_id, reader_server, reader_database, source_relid, "
        "snapshot) VALUES ('7/7', 2, '', 'crm', %s, pg_current_snapshot())",
        relid,
    )
    with site([shop], tmp_path, token=TOKEN) as found:

        def source(**headers: str) -> dict[str, Any]:
            (row,) = [
                r["source"] for r in found.read("/sources", **headers)["sources"] if r["source"]["relid"] == relid
            ]
            return dict(row)

        assert [(r["kind"], r["name"], r["pending_rows"]) for r in source(**BEARER)["read_by"]] == [
            ("subscriber", "billing", 4),
            ("replica", "public.copies", 2),
            ("stream table", "public.regions", 1),
            ("mirror", "crm: pgtrickle_changes.mirror_2", 0),
        ]
        assert source(**BEARER)["pending_rows"] == 4
        text = re.sub(r"<[^>]*>", " ", found.ask("/sources", headers=HTML | BEARER).text)
        shown = re.findall(r"(\S+)\s+(stream table|subscriber|mirror|replica)\s+(\d+) pending", text)
        assert ("billing", "subscriber", "4") in shown
        assert ("public.regions", "stream table", "1") in shown
        # The number of readers alone is for everyone.
        assert (source()["readers"], source()["read_by"], source()["pending_rows"]) == (1, [], None)
        assert "billing" not in found.ask("/sources").text


def test_live_updates_show_no_hidden_number(ui: Site, counted: Database) -> None:
    connection = http.client.HTTPConnection("127.0.0.1", ui.port, timeout=60)
    for page in ("/", table_path(counted, "public", "totals")):
        connection.request("GET", f"/events?for={quote(page, safe='')}&digest=none")
        seen = next_event(connection.getresponse())
        assert seen.startswith("event: content")
        assert not [number for number in NUMBERS if number in seen]
        connection.close()


def test_an_error_is_an_alert_until_it_is_resolved(ui: Site, shop: Database) -> None:
    fail(shop)
    kinds = {(a["kind"], a["table"] and a["table"][1]) for a in ui.read("/alerts")["alerts"]}
    assert ("stopped", "totals") in kinds
    shop.sql("SELECT pgtrickle.resume_stream_table('totals')")
    wait_until(lambda: not [a for a in ui.read("/alerts")["alerts"] if a["kind"] == "stopped"])


def wait_until(condition: Callable[[], Any]) -> None:
    deadline = time.monotonic() + 60
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.1)


def log_in(ui: Site) -> dict[str, str]:
    answer = ui.ask("/login?next=%2Ftables", "POST", form={"token": TOKEN})
    assert (answer.status, answer.headers["location"]) == (303, "/tables")
    cookie = answer.headers["set-cookie"]
    assert "HttpOnly" in cookie
    assert "samesite=strict" in cookie.lower()
    assert TOKEN not in cookie
    return {"cookie": cookie.partition(";")[0]}


def status(shop: Database) -> str:
    return str(shop.sql("SELECT status FROM pgtrickle.pgt_stream_tables WHERE pgt_name = 'totals'")[0][0])


def test_changes_need_the_token_a_confirmation_and_a_form_of_the_page(ui: Site, shop: Database) -> None:
    where = table_path(shop, "public", "totals")
    assert ui.ask(f"{where}/suspend", "POST", form={}).status == 403
    assert ui.ask(f"{where}/suspend").headers["location"].startswith("/login?next=")
    session = HTML | log_in(ui)
    page = ui.ask(f"{where}/suspend", headers=session).text
    fields = [a for tag, a in Tags(page).found if tag == "input" and a.get("name") == "csrf"]
    csrf = fields[0]["value"] or ""
    for form, headers in (
        ({}, session),
        ({"csrf": csrf[:-1]}, session),
        ({"csrf": csrf}, HTML | log_in(ui)),  # another session's
        ({"csrf": csrf}, session | {"origin": "http://elsewhere.example"}),
        ({"csrf": csrf}, HTML),
    ):
        assert ui.ask(f"{where}/suspend", "POST", headers, form).status == 403
    assert status(shop) == "INITIALIZING"
    done = ui.ask(f"{where}/suspend", "POST", session, {"csrf": csrf})
    assert (done.status, done.headers["location"]) == (303, f"{where}?done=suspend")
    assert status(shop) == "SUSPENDED"
    assert "The stream table is suspended." in ui.ask(f"{where}?done=suspend", headers=session).text
    assert ui.ask(f"{where}/nothing", "POST", session, {"csrf": csrf}).status == 404
    # A refresh of a suspended table is refused by the database, which says why.
    refused = ui.ask(f"{where}/refresh", "POST", session, {"csrf": csrf})
    assert refused.status == 409
    assert "is in status SUSPENDED" in refused.text


def test_programs_send_the_token(ui: Site, shop: Database) -> None:
    where = table_path(shop, "public", "totals")
    program = JSON | BEARER
    assert ui.ask(f"{where}/suspend", "POST", program, {}).json == {"done": "suspend"}
    assert ui.ask(f"{where}/resume", "POST", program, {}).json == {"done": "resume"}
    assert ui.ask(f"{where}/schedule", "POST", program, {"schedule": "5m"}).json == {"done": "schedule"}
    assert shop.sql("SELECT schedule FROM pgtrickle.pgt_stream_tables WHERE pgt_name = 'totals'") == [("5m",)]
    assert ui.ask(f"{where}/schedule", "POST", program, {"schedule": "now and then"}).status == 409
    assert ui.ask(f"{where}/refresh", "POST", program, {}).json == {"done": "refresh"}
    wrong = {"authorization": "Bearer wrong"}
    assert ui.ask(f"{where}/suspend", "POST", JSON | wrong, {}).status == 403


def test_a_wrong_token_is_refused_and_a_forged_or_old_session_is_none(
    ui: Site, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert ui.ask("/login", "POST", form={"token": "wrong"}).status == 403
    assert (
        ui.ask(
            "/login", "POST", form={"token": TOKEN + "\udcff".encode("utf-8", "surrogatepass").decode("latin-1")}
        ).status
        == 403
    )
    session = log_in(ui)
    assert "Log out" in ui.ask("/", headers=HTML | session).text
    forged = re.sub("=[0-9]+", "=9999999999", session["cookie"])
    for cookie in (forged, "pgtrickle_session=", "pgtrickle_session=1.2.3", "\x01=;;"):
        assert "Log out" not in ui.ask("/", headers=HTML | {"cookie": cookie}).text
    assert ui.ask("/login?next=https://elsewhere.example", "POST", form={"token": TOKEN}).headers["location"] == "/"
    assert ui.ask("/login?next=//elsewhere.example", "POST", form={"token": TOKEN}).headers["location"] == "/"
    now = time.time()
    monkeypatch.setattr("pgtrickle.web.auth.time.time", lambda: now + 13 * 3600)
    assert "Log out" not in ui.ask("/", headers=HTML | session).text


def test_another_name_for_this_machine_is_not_answered(ui: Site) -> None:
    """A site that points its own name at 127.0.0.1 must not read the pages."""
    for host, expected in (
        ("evil.example", 421),
        ("localhost:1", 200),
        ("[::1]", 200),
        ("127.0.0.1.evil.example", 421),
    ):
        assert ui.ask("/", headers=HTML | {"host": host}).status == expected


def test_an_address_for_other_machines_needs_a_token_for_everything(shop: Database, tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="needs a token"):
        listen("0.0.0.0:0", "")
    with pytest.raises(ConfigError, match="shorter than 16"):
        listen("127.0.0.1:0", "short")
    with site([shop], tmp_path, token=TOKEN, address="0.0.0.0:0") as found:
        for path in (*PAGES, "/metrics", "/events?for=/"):
            assert found.ask(path).headers["location"].startswith("/login")
            assert found.ask(path, headers=JSON).status == 401
        assert found.ask("/", headers=HTML | BEARER).status == 200
        assert found.ask("/metrics", headers=BEARER).status == 200
        assert found.ask("/healthz").status == 200
        assert found.ask("/readyz").status == 200


def test_readiness_follows_the_launcher_and_its_schedulers(ui: Site) -> None:
    assert ui.ask("/readyz").status == 200
    ui.memory.write_slots(1)
    ui.memory.write_scheduler(0, SchedulerState("k", "d", 1, "ACTIVE", 0.0, time.time() - 60, 1, 1, 1))
    assert (ui.ask("/readyz").status, ui.ask("/healthz").status) == (503, 200)
    ui.memory.write_scheduler(0, None)
    ui.memory.write_processes([ProcessState("launcher", 1, "WAITING", 0.0)])
    assert ui.ask("/readyz").text == "this launcher is waiting\n"


def test_a_database_that_cannot_be_read_is_shown_and_comes_back(ui: Site, shop: Database) -> None:
    assert ui.read("/")["databases"][0]["health"] == "critical"  # nobody runs a scheduler here
    shop.superuser_sql(f'ALTER DATABASE "{shop.name}" CONNECTION LIMIT 0')
    shop.superuser_sql(
        "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE application_name = 'pgtrickle/observe' "
        "AND datname = current_database()"
    )
    wait_until(lambda: ui.read("/")["databases"][0]["health"] == "unknown")
    assert ui.ask("/").status == 200
    assert 'pgtrickle_database_up{database="' + shop.name + '"} 0.0' in ui.ask("/metrics", headers={}).text
    shop.superuser_sql(f'ALTER DATABASE "{shop.name}" CONNECTION LIMIT -1')
    wait_until(lambda: ui.read("/")["databases"][0]["health"] == "critical")


def test_live_updates_send_what_has_changed(ui: Site, shop: Database) -> None:
    digest = re.search('data-digest="([^"]+)"', ui.ask("/tables").text)
    assert digest is not None
    connection = http.client.HTTPConnection("127.0.0.1", ui.port, timeout=60)
    connection.request("GET", f"/events?for=%2Ftables&digest={digest[1]}")
    response = connection.getresponse()
    assert response.getheader("content-type", "").startswith("text/event-stream")
    fail(shop)
    seen = next_event(response)
    assert seen.startswith("event: patch")
    assert "PGT202" in seen
    assert "secret" not in seen
    shop.sql("SELECT pgtrickle.create_stream_table('more', 'SELECT region FROM sales')")
    while not seen.startswith("event: content"):
        seen = next_event(response)
    assert "more" in seen
    connection.close()


def next_event(response: http.client.HTTPResponse) -> str:
    lines: list[str] = []
    while True:
        line = response.readline().decode().rstrip("\n")
        if not line and lines and lines[0].startswith("event:"):
            return "\n".join(lines)
        lines = [*lines, line] if line else []


def test_settings_show_their_origin_and_no_secret(
    shop: Database, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    shop.sql("SELECT pgtrickle.set_option('max_buffer_rows', '7')")
    with site([shop], tmp_path, token=TOKEN) as found:
        rows = {s["name"]: s for s in found.read(f"/settings?database={shop.name}")["settings"]}
        assert (rows["max_buffer_rows"]["value"], rows["max_buffer_rows"]["origin"]) == (7, "set_option")
        assert rows["enabled"]["origin"] == "default"
        assert TOKEN not in found.ask("/settings").text
        assert found.ask("/settings?database=none").status == 404


def test_metrics_have_names_units_and_bounded_labels(shop: Database, tmp_path: Path) -> None:
    with site([shop], tmp_path) as found:
        found.memory.write_pool(PoolStatus(1, 2, 4, 10, 9, 8, 7, 6, 5, 0.0))
        found.memory.write_shares([WorkerShare("k", "d", 2, 4, 3, 6)])
        first = found.ask("/metrics", headers={})
        assert first.headers["content-type"].startswith("text/plain")
        shop.sql(
            "INSERT INTO pgtrickle.pgt_refresh_history (pgt_id, start_time, end_time, action, status, engine, "
            "rows_inserted, rows_deleted, delta_row_count, timings, error_message) "
            "SELECT pgt_id, now() - interval '0.3 s', now(), a, s, e, 5, 2, 100, '{\"read\": 200}', m "
            "FROM pgtrickle.pgt_stream_tables, (VALUES ('DIFFERENTIAL', 'COMPLETED', 'spark', NULL), "
            "('FULL', 'FAILED', NULL, 'PGT300: lost')) AS v(a, s, e, m) WHERE pgt_name = 'totals'"
        )
        name = f'database="{shop.name}"'
        for _ in range(2):  # a second read counts nothing twice
            found.observer.read(0.0)
        lines = set(found.ask("/metrics", headers={}).text.splitlines())
        for line in (
            f'pgtrickle_refresh_duration_seconds_count{{{name},engine="spark",mode="differential"}} 1.0',
            f'pgtrickle_refresh_duration_seconds_bucket{{{name},engine="spark",le="0.5",mode="differential"}} 1.0',
            f'pgtrickle_refreshes_total{{{name},engine="none",mode="full",status="failed"}} 1.0',
            f'pgtrickle_refresh_errors_total{{code="PGT300",{name}}} 1.0',
            f"pgtrickle_rows_inserted_total{{{name}}} 5.0",
            f'pgtrickle_refresh_stage_seconds_total{{{name},stage="read"}} 0.2',
            f'pgtrickle_stream_tables{{{name},state="loading"}} 2.0',
            "pgtrickle_workers_busy 2.0",
            "pgtrickle_spark_jobs_total 10.0",
            "pgtrickle_waves_total 9.0",
            'pgtrickle_units_queued{database="d"} 3.0',
            "pgtrickle_stream_tables_without_metrics 0.0",
        ):
            assert any(sorted(line) == sorted(seen) for seen in lines), line
        text = found.ask("/metrics", headers={"accept": "application/openmetrics-text; version=1.0.0"})
        assert text.headers["content-type"].startswith("application/openmetrics-text")
        assert text.text.rstrip().endswith("# EOF")
        from prometheus_client.openmetrics import parser

        parse: Callable[[str], Any] = parser.text_string_to_metric_families
        families = {family.name: family for family in parse(text.text)}
        assert all(family.documentation for family in families.values())
        hostile = {s.labels["table"] for s in families["pgtrickle_stream_table_up"].samples}
        assert hostile == {"totals", HOSTILE}


def test_metrics_of_single_tables_have_a_limit(shop: Database, tmp_path: Path) -> None:
    with site([shop], tmp_path) as found:
        from pgtrickle.observe.metrics import exposition

        text = exposition(found.observer.read(), {}, 1, "")[0].decode()
        assert text.count("pgtrickle_stream_table_up{") == 1
        assert "pgtrickle_stream_tables_without_metrics 1.0" in text
