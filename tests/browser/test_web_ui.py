"""The web UI in a browser: every page is complete, readable in light and dark, wide and narrow, usable by keyboard, and
follows the fleet without being loaded again. One file: all tests share one fleet."""

from __future__ import annotations

import json
from collections.abc import Iterator
from urllib.error import HTTPError
from urllib.parse import quote
from urllib.request import Request, urlopen

import pytest

from tests.browser.browser import NARROW, WIDE, Browser
from tests.browser.conftest import TOKEN, Fleet, create, table_path
from tests.fleet.conftest import wait_for

TAB, ENTER, RIGHT = "\ue004", "\ue007", "\ue014"
TABLE = table_path("shop", "sales_by_country")
PAGES = {  # the address, the heading, something that the page shows when it works
    "fleet": ("/", "Fleet", "#databases tbody tr:nth-child(2)"),
    "graph": ("/graph", "Graph", "#graph:has(.link.remote) .flow"),
    "tables": ("/tables", "Stream tables", "#tables tbody tr:nth-child(9)"),
    "table": (TABLE, "public.sales_by_country", "#durations .bar"),
    "workers": ("/workers", "Workers", "#processes tbody tr:nth-child(4)"),
    "sources": ("/sources", "Sources", "main:has(#mirrors tbody tr) #broker tbody tr"),
    "alerts": ("/alerts", "Alerts", "#passed tbody tr:nth-child(2)"),
    "settings": ("/settings", "Settings", "#s-http"),
}


@pytest.mark.parametrize("name", PAGES)
def test_a_page_is_complete_and_readable_everywhere(trusted: Browser, name: str) -> None:
    browser, (path, heading, content) = trusted, PAGES[name]
    browser.open(path)
    assert browser.text("h1") == heading
    browser.wait(lambda: browser.count(content) > 0)
    browser.go_live()
    check_looks(browser)
    browser.picture(f"web-{name}")
    browser.prefer("dark")
    assert browser.js("return matchMedia('(prefers-color-scheme: dark)').matches")
    assert is_dark(browser)
    check_looks(browser)
    browser.picture(f"web-{name}-dark")
    browser.resize(*NARROW)
    browser.open(path)
    check_looks(browser)
    browser.picture(f"web-{name}-narrow-dark")
    browser.prefer("light")
    assert not is_dark(browser)
    browser.picture(f"web-{name}-narrow")


def is_dark(browser: Browser) -> bool:
    background = browser.js("return getComputedStyle(document.body).backgroundColor.match(/\\d+/g).map(Number)")
    return bool(sum(background[:3]) < 3 * 128)


def check_looks(browser: Browser) -> None:
    assert browser.low_contrasts() == {}
    assert browser.overflow() == [0, []]


@pytest.mark.parametrize("name", ["refresh", "suspend", "schedule"])
def test_a_confirmation_is_readable_everywhere(trusted: Browser, name: str) -> None:
    trusted.open(f"{TABLE}/{name}")
    check_looks(trusted)
    trusted.prefer("dark")
    trusted.resize(*NARROW)
    check_looks(trusted)


def test_a_page_that_does_not_exist_and_the_log_in_are_readable(browser: Browser) -> None:
    for path in ("/nothing", "/login"):
        for scheme in ("light", "dark"):
            browser.prefer(scheme)
            browser.open(path)
            check_looks(browser)
    browser.problems()  # the status 404 of the first one


def test_all_pages_are_reached_by_keyboard(browser: Browser) -> None:
    browser.open("/")
    browser.press(TAB)
    browser.wait(lambda: browser.focused(".skip"))
    browser.press(ENTER)
    browser.wait(lambda: browser.focused("main"))
    for _, heading, _ in (PAGES[n] for n in ("graph", "tables", "workers", "sources", "alerts", "settings")):
        browser.open("/")
        presses = 0
        while not browser.js("return document.activeElement.innerText?.startsWith(arguments[0])", heading):
            browser.press(TAB)
            presses += 1
            assert presses < 15, heading
        outline = browser.js("return getComputedStyle(document.activeElement).outlineStyle")
        assert outline != "none", heading
        browser.press(ENTER)
        browser.wait(lambda heading=heading: browser.text("h1") == heading)  # type: ignore[misc]


def test_tables_are_filtered_and_sorted_by_keyboard(browser: Browser) -> None:
    browser.open("/tables")
    browser.press("/")
    browser.wait(lambda: browser.focused("input[type=search]"))
    browser.press("Accounts_by")
    shown = "return [...document.querySelectorAll('#tables tbody tr')].filter(r => !r.hidden).map(r => r.dataset.text)"
    assert browser.js(shown) == ["crm.public.accounts_by_segment"]
    browser.press(ENTER)
    browser.wait(lambda: "q=Accounts_by" in browser.driver.current_url and browser.count("#tables tbody tr") == 1)
    browser.open("/tables")
    browser.js("document.querySelector('#tables thead button').focus()")
    for wanted, reverse in (("descending", True), ("ascending", False)):
        browser.press(ENTER)
        assert browser.count(f"#tables th[aria-sort={wanted}]") == 1
        names = browser.js("return [...document.querySelectorAll('#tables tbody th')].map(c => c.textContent.trim())")
        assert names == sorted(names, key=str.lower, reverse=reverse)


def test_the_graph_moves_and_zooms_by_keyboard(browser: Browser) -> None:
    browser.open("/graph")
    browser.go_live()
    browser.js("document.querySelector('#canvas').focus()")
    box = "return document.querySelector('#graph').getAttribute('viewBox').split(' ').map(Number)"
    first = browser.js(box)
    browser.press("+")
    assert browser.js(box)[2] == pytest.approx(first[2] / 1.25)
    before = browser.js(box)
    browser.press(RIGHT)
    assert browser.js(box)[0] == pytest.approx(before[0] + before[2] / 10)
    browser.press("0")
    assert browser.js(box) == pytest.approx(first)
    node = "#graph a[aria-label^='public.open_orders in shop']"
    browser.js("document.querySelector(arguments[0]).focus()", node)
    assert (
        float(
            browser.js(
                "return getComputedStyle(document.querySelector(arguments[0])).strokeWidth.replace('px', '')",
                f"{node} .node",
            )
        )
        > 2
    )
    browser.press(ENTER)
    browser.wait(lambda: browser.text("h1") == "public.open_orders")


def test_the_graph_finds_tables_and_shows_what_they_are_made_of(browser: Browser) -> None:
    emphasised = (
        "return [...document.querySelectorAll('#graph.marked g[data-name].on')].map(g => g.dataset.name.split('.')[2])"
    )
    stay(browser, "/graph")
    browser.press("/")
    browser.wait(lambda: browser.focused("#find"))
    browser.press("By_Segment")
    assert sorted(browser.js(emphasised)) == ["accounts_by_segment", "orders_by_segment"]
    browser.press("\ue00c")  # Escape
    assert browser.js(emphasised) == []
    browser.js("document.querySelector('[data-state=source]').focus()")
    browser.press(ENTER)
    sources = ["accounts", "customers", "order_items", "orders", "products", "regions"]
    assert sorted(browser.js(emphasised)) == sources
    assert browser.count("#states [aria-pressed=true]") == 1
    browser.press(ENTER)
    assert browser.js(emphasised) == []
    # With the focus, and under the pointer: all that a table is made of and that is made of it, across databases.
    node = "#graph a[aria-label^='public.sales_by_country in shop']"
    browser.js("document.querySelector(arguments[0]).focus()", node)
    lineage = [
        "customers",
        "order_items",
        "orders",
        "sales_by_country",
        "sales_by_region",
    ]  # not what its reader also reads
    browser.wait(lambda: sorted(browser.js(emphasised)) == lineage)
    assert browser.count("#graph g[data-from].on") == 4
    browser.js("document.activeElement.blur()")
    browser.point_at("#graph a[aria-label^='public.orders_by_segment'] .node")
    browser.wait(lambda: sorted(browser.js(emphasised)) == ["accounts", "orders", "orders_by_segment"])
    changes = browser.js("return document.querySelector('#graph .flow')?.outerHTML")
    browser.wait(lambda: browser.js("return document.querySelector('#graph .flow')?.outerHTML") != changes)
    assert sorted(browser.js(emphasised)) == ["accounts", "orders", "orders_by_segment"]  # it survives live updates
    check_stayed(browser)


def test_the_plan_shows_the_rows_of_the_last_refresh(trusted: Browser, fleet: Fleet) -> None:
    """Three new accounts in two segments: three changes, three rows that are read, two groups, which are replaced."""
    browser, path = trusted, table_path("crm", "accounts_by_segment")
    stay(browser, path)
    browser.wait(lambda: fleet.refreshes(fleet.crm, "accounts_by_segment") > 0)
    before = fleet.refreshes(fleet.crm, "accounts_by_segment")
    fleet.crm.sql("INSERT INTO accounts VALUES (701, 's1', 1), (702, 's1', 1), (703, 's2', 1)")
    browser.wait(lambda: fleet.refreshes(fleet.crm, "accounts_by_segment") > before)
    shown = "return [...document.querySelectorAll('#plan dd')].map(e => e.innerText)"
    browser.wait(lambda: browser.js(shown) == ["3", "3", "2", "+2 \N{MINUS SIGN}2"])
    tags = "return [...document.querySelectorAll('#plan .tag.rows')].map(e => e.innerText)"
    assert browser.js(tags) == ["2 after netting", "3 delta rows", "3 changes"]
    fleet.crm.sql("DELETE FROM accounts WHERE id BETWEEN 701 AND 703")
    check_stayed(browser)


def test_hostile_names_are_text(browser: Browser, fleet: Fleet) -> None:
    name = "<img src=x onerror=alert(1)>'\"& and a name as long as PG permits"[:63]
    quoted = '"' + name.replace('"', '""') + '"'
    create(fleet.crm, f"public.{quoted}", "SELECT id FROM accounts")
    browser.wait(lambda: fleet.refreshes(fleet.crm, name) == 1)
    for path in ("/", "/tables", "/graph", "/sources", table_path("crm", quote(name, safe=""))):
        browser.open(path)
        assert browser.count("img[onerror]") == 0
        browser.resize(*NARROW)
        check_looks(browser)
    assert browser.text("h1") == f"public.{name}"
    fleet.crm.sql("SELECT pgtrickle.drop_stream_table(%s)", f"public.{quoted}")


def test_long_texts_do_not_break_pages(trusted: Browser, fleet: Fleet) -> None:
    """Names of 63 bytes without a place to break them, a query of 10 kB, and its error."""
    schema, name, column = ("wide_" + letter * 58 for letter in "sno")
    word = "<b>" + "x" * 10_000
    page = f"/tables/crm/{schema}/{name}"
    fleet.crm.sql(f"CREATE SCHEMA {schema}; CREATE TABLE {schema}.{column} ({column} int PRIMARY KEY)")
    try:
        fleet.crm.sql(
            "SELECT pgtrickle.create_stream_table(%s, %s, 'calculated')",
            f"{schema}.{name}",
            f"SELECT {column}, length('{word}') / ({column} - 7) AS {name} FROM {schema}.{column}",
        )
        fleet.crm.sql(f"INSERT INTO {schema}.{column} VALUES (7)")
        # The error has the expression if it is found in time.
        trusted.wait(lambda: '"freshness": "stopped"' in fetch(trusted.base + page, "application/json", TOKEN))
        for path in (page, f"{page}/schedule", "/", "/tables", "/graph", "/sources", "/alerts", "/workers"):
            trusted.open(path)
            assert trusted.count("main b") == 0
            for size in (WIDE, NARROW):
                trusted.resize(*size)
                assert trusted.overflow() == [0, []], (path, size)
            shown = fetch(trusted.base + path, "application/json", TOKEN)
            assert schema in shown, path
        assert word in json.loads(fetch(trusted.base + page, "application/json", TOKEN))["query"]
    finally:
        fleet.crm.sql("SELECT pgtrickle.drop_stream_table(%s)", f"{schema}.{name}")
        fleet.crm.sql(f"DROP SCHEMA {schema} CASCADE")


def stay(browser: Browser, path: str) -> None:
    """Opens a page that must not be loaded again."""
    browser.open(path)
    browser.js("window.loadedOnce = true")
    browser.go_live()


def check_stayed(browser: Browser) -> None:
    assert browser.js("return window.loadedOnce === true")


def test_a_commit_appears_without_a_reload(browser: Browser, fleet: Fleet) -> None:
    stay(browser, table_path("crm", "accounts_by_segment"))
    before = browser.count("#history tbody tr")
    number = fleet.crm.sql("INSERT INTO accounts SELECT max(id) + 1, 'new', 5 FROM accounts RETURNING id")[0][0]
    browser.wait(lambda: browser.count("#history tbody tr") > before)
    browser.wait(lambda: "differential" in browser.text("#history tbody tr"))
    fleet.crm.sql("DELETE FROM accounts WHERE id = %s", number)
    browser.wait(lambda: browser.count("#history tbody tr") > before + 1)
    check_stayed(browser)


def test_a_table_that_is_created_and_dropped_appears_and_disappears(browser: Browser, fleet: Fleet) -> None:
    stay(browser, "/tables")
    browser.press("/")
    browser.press("passing")
    fleet.crm.sql("SELECT pgtrickle.create_stream_table('passing_by', 'SELECT id FROM accounts', '1h')")
    shown = "return [...document.querySelectorAll('#tables tbody tr')].filter(r => !r.hidden).map(r => r.dataset.text)"
    browser.wait(lambda: browser.js(shown) == ["crm.public.passing_by"])
    browser.wait(lambda: browser.focused("input[type=search]"))  # the filter is kept, and so is the focus
    browser.wait(lambda: fleet.refreshes(fleet.crm, "passing_by") == 1)
    fleet.crm.sql("SELECT pgtrickle.drop_stream_table('passing_by')")
    browser.wait(lambda: browser.js(shown) == [])
    check_stayed(browser)


def test_an_error_appears_and_disappears(trusted: Browser, fleet: Fleet) -> None:
    page = table_path("crm", "share_of_employees")
    stay(trusted, page)
    assert trusted.count("#error .problem") == 0
    fleet.crm.sql("INSERT INTO accounts VALUES (900, 'broken', 0)")
    trusted.wait(lambda: "division by zero" in trusted.text("#error"))
    trusted.wait(lambda: trusted.text("#state") == "stopped")
    assert trusted.low_contrasts() == {}
    trusted.picture("web-error")
    check_stayed(trusted)
    stay(trusted, "/alerts")
    trusted.wait(lambda: "share_of_employees" in trusted.text("#alerts"))
    trusted.wait(lambda: trusted.text("nav .count") == str(trusted.count("#alerts li")))
    assert trusted.low_contrasts() == {}
    trusted.picture("web-alerts-with-error")
    fleet.crm.sql("DELETE FROM accounts WHERE id = 900")
    fleet.crm.sql("SELECT pgtrickle.resume_stream_table('share_of_employees')")
    trusted.wait(lambda: "share_of_employees" not in trusted.text("#alerts"))
    trusted.wait(
        lambda: trusted.text("nav .count") == (str(trusted.count("#alerts li")) if trusted.count("#alerts li") else "")
    )
    check_stayed(trusted)
    stay(trusted, page)
    trusted.wait(lambda: trusted.text("#state") in ("fresh", "lagging") and trusted.count("#error .problem") == 0)


def test_sorting_and_the_focus_survive_live_updates(browser: Browser, fleet: Fleet) -> None:
    stay(browser, "/sources")
    browser.js("document.querySelectorAll('#sources thead button')[3].focus()")
    browser.press(ENTER)
    number = (
        "return Number([...document.querySelectorAll('#sources tbody tr')]"
        ".find(r => r.cells[0].textContent.trim() === 'public.order_items').cells[3].dataset.value)"
    )
    before = browser.js(number)
    browser.wait(lambda: browser.js(number) > before)
    assert browser.count("#sources th[aria-sort=descending] button") == 1
    browser.wait(lambda: browser.focused("#sources th[aria-sort=descending] button"))
    values = browser.js(
        "return [...document.querySelectorAll('#sources tbody tr')].map(r => Number(r.cells[3].dataset.value))"
    )
    assert values == sorted(values, reverse=True)
    check_stayed(browser)


def test_changes_are_made_by_keyboard_after_a_confirmation(trusted: Browser, fleet: Fleet) -> None:
    name = "accounts_by_segment"

    def state() -> tuple[str, str]:
        """Status and schedule."""
        return fleet.crm.sql("SELECT status, schedule FROM pgtrickle.pgt_stream_tables WHERE pgt_name = %s", name)[0]

    def requested() -> list[tuple[str, str]]:
        """Mode and status of refreshes that somebody asked for."""
        return fleet.crm.sql(
            "SELECT h.action, h.status FROM pgtrickle.pgt_refresh_history AS h "
            "JOIN pgtrickle.pgt_stream_tables USING (pgt_id) WHERE pgt_name = %s AND initiated_by = 'MANUAL' "
            "ORDER BY refresh_id",
            name,
        )

    def confirm(action: str) -> None:
        trusted.js("document.querySelector(arguments[0]).focus()", f".tools a[href$='/{action}']")
        trusted.press(ENTER)
        trusted.wait(lambda: trusted.count("form.confirm") == 1)
        trusted.wait(lambda: trusted.focused("form.confirm button"))
        trusted.press(ENTER)
        trusted.wait(lambda: action in trusted.text(".flash"))

    def change_schedule(schedule: str) -> None:
        trusted.open(table_path("crm", name))
        trusted.js("document.querySelector(\".tools a[href$='/schedule']\").focus()")
        trusted.press(ENTER)
        trusted.wait(lambda: trusted.focused("form.confirm input[name=schedule]"))
        trusted.js("document.activeElement.select()")
        trusted.press(schedule, ENTER)

    trusted.open(table_path("crm", name))
    assert state() == ("ACTIVE", "calculated")
    confirm("suspend")
    trusted.wait(lambda: state()[0] == "SUSPENDED")
    confirm("resume")
    trusted.wait(lambda: state()[0] == "ACTIVE")
    trusted.wait(requested)  # resuming requests a refresh, too
    change_schedule("now and then")
    trusted.wait(lambda: trusted.text("h1") == "Not possible")
    trusted.problems()  # the status 409
    assert state() == ("ACTIVE", "calculated")
    try:
        change_schedule("45m")
        trusted.wait(lambda: "schedule" in trusted.text(".flash"))
        assert state() == ("ACTIVE", "45m")
        assert "45m" in trusted.text("#tiles")
        # By its schedule it would be refreshed much later.
        before = len(requested())
        fleet.crm.sql("INSERT INTO accounts VALUES (801, 's1', 1)")
        confirm("refresh")
        trusted.wait(lambda: requested()[before:] == [("DIFFERENTIAL", "COMPLETED")])
        trusted.go_live()
        trusted.wait(lambda: "differential requested" in trusted.text("#history tbody tr"))
        change_schedule("calculated")
        trusted.wait(lambda: "schedule" in trusted.text(".flash"))
        assert state() == ("ACTIVE", "calculated")
    finally:
        fleet.crm.sql("SELECT pgtrickle.alter_stream_table(%s, schedule => 'calculated')", name)
        fleet.crm.sql("DELETE FROM accounts WHERE id = 801")


KEPT, BAD = "kept-4d1f09c7", "bad-8e2b57aa"


@pytest.fixture
def secret_rows(fleet: Fleet) -> Iterator[None]:
    """Two stream tables over a table with secret values; one of them has failed on a row."""
    fleet.crm.sql(
        "CREATE TABLE notes (id text PRIMARY KEY, amount text);"
        f"INSERT INTO notes VALUES ('{KEPT}', '17'), ('{KEPT}-2', '18')"
    )
    create(fleet.crm, "note_ids", "SELECT id, amount::int AS amount FROM notes")
    create(fleet.crm, "note_copies", "SELECT id || 'x' AS id, amount FROM note_ids")
    wait_for(lambda: fleet.crm.sql("SELECT count(*) FROM note_copies") == [(2,)])
    fleet.crm.sql(f"INSERT INTO notes VALUES ('{BAD}-key', '{BAD}-value')")
    wait_for(
        lambda: fleet.crm.sql(
            "SELECT j.job_id FROM pgtrickle.pgt_scheduler_jobs AS j JOIN pgtrickle.pgt_stream_tables AS st "
            "ON st.pgt_id = ANY (j.members) WHERE pgt_name = 'note_ids' AND detail IS NOT NULL AND st.status = 'ERROR'"
        )
    )
    yield
    fleet.crm.sql("SELECT pgtrickle.drop_stream_table('note_copies'); SELECT pgtrickle.drop_stream_table('note_ids')")
    fleet.crm.sql("DROP TABLE notes")


@pytest.mark.usefixtures("secret_rows")
def test_no_page_shows_values_of_rows(trusted: Browser) -> None:
    """Not even those of the row that a refresh has failed on, except in the error that is shown with the token."""
    page = table_path("crm", "note_ids")
    addresses = [address for address, _, _ in PAGES.values()]
    addresses += ["/settings?database=crm", "/tables?q=note", f"/events?for={page}&digest=x", "/metrics", "/nothing"]
    addresses += [
        f"{table_path('crm', name)}{action}"
        for name in ("note_ids", "note_copies")
        for action in ("", "/refresh", "/suspend", "/schedule")
    ]
    shows_error = {*(a for a in addresses if "note_ids" in a), "/", "/alerts", "/tables", "/tables?q=note"}
    for address in addresses:
        for accept in ("text/html", "application/json"):
            assert not {KEPT, BAD} & secrets_in(fetch(trusted.base + address, accept, "")), address
            seen = secrets_in(fetch(trusted.base + address, accept, TOKEN))
            assert not seen - ({BAD} if address in shows_error else set()), address
    # What the browser shows, after live updates too.
    for address in (page, "/alerts", "/", "/workers", "/tables"):
        trusted.open(address)
        trusted.go_live()
        trusted.js("document.querySelectorAll('#error, .message').forEach(e => e.remove())")
        assert secrets_in(trusted.js("return document.documentElement.outerHTML")) == set(), address


def secrets_in(text: str) -> set[str]:
    return {secret for secret in (KEPT, BAD) if secret in text}


def fetch(url: str, accept: str, token: str) -> str:
    """A page; of live updates the first one."""
    headers = {"accept": accept, **({"authorization": f"Bearer {token}"} if token else {})}
    try:
        with urlopen(Request(url, headers=headers), timeout=60) as response:
            if response.headers["content-type"].startswith("text/event-stream"):
                return "".join(response.readline().decode() for _ in range(5))
            return str(response.read().decode())
    except HTTPError as error:
        return error.read().decode()
