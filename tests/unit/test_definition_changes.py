"""Order, databases and differences of definitions."""

from __future__ import annotations

import itertools

import pytest

from pgtrickle.cli.apply_output import outcome_lines, planned, summary
from pgtrickle.definitions.changes import ALTER, CREATE, DROP, REFRESH_GROUP, ApplyResult, Change, OptionChange
from pgtrickle.definitions.definition import Definition, DefinitionSet, FilePosition, GroupDefinition
from pgtrickle.definitions.fleet import Databases, targets
from pgtrickle.definitions.order import mentions, upstream_first

NAMES = {("public", "a"), ("sales", "b"), ("public", "Odd"), ("sales", "a")}


@pytest.mark.parametrize(
    ("query", "found"),
    [
        ("SELECT * FROM a", {("public", "a"), ("sales", "a")}),
        ("SELECT * FROM sales . B", {("sales", "b")}),
        ("SELECT b.x FROM t AS z", {("sales", "b")}),
        ("SELECT * FROM \"Odd\" WHERE x = 'a'", {("public", "Odd")}),
        ("SELECT * FROM Odd -- a\n/* b */", set()),
        ("SELECT $t$ a $t$ FROM other.a", set()),
    ],
)
def test_mentions_finds_names_outside_of_texts_and_comments(query: str, found: set[tuple[str, str]]) -> None:
    assert mentions(query, NAMES) == found


def test_upstream_first_keeps_the_order_where_it_can() -> None:
    a, b, c, d = (("s", name) for name in "abcd")
    assert upstream_first([a, b, c, d], {a: {c}, c: {d}}) == [d, c, a, b]
    assert upstream_first([a, b, c], {}) == [a, b, c]
    assert sorted(upstream_first([a, b, c], {a: {b}, b: {a}, c: {("s", "elsewhere")}})) == [a, b, c]


def test_upstream_first_takes_long_chains() -> None:
    names = [("s", f"t{n:05}") for n in range(5000)]
    reads = {name: {after} for name, after in itertools.pairwise(names)}
    assert upstream_first(names, reads) == names[::-1]


def defined(name: str, *databases: str) -> Definition:
    return Definition(
        name, "SELECT 1 AS a", FilePosition(f"{name}.sql", 1), FilePosition(f"{name}.sql", 2), {}, databases
    )


def test_databases_of_a_set_are_names_globs_or_that_of_the_dsn() -> None:
    known = Databases(("crm", "erp", "odd[1]", "tenant_1", "tenant_2"), "crm")
    wanted = DefinitionSet("x", (defined("a"), defined("b", "tenant_*", "erp"), defined("c", "odd[1]", "gone")))
    found, wrong = targets(wanted, known, everywhere=False)
    assert wrong == []
    assert {t.database: ([d.name for d in t.definitions], t.named) for t in found} == {
        "crm": (["a"], True),
        "erp": (["b"], True),
        "gone": (["c"], True),
        "odd[1]": (["c"], True),
        "tenant_1": (["b"], False),
        "tenant_2": (["b"], False),
    }


def test_database_option_narrows_and_stands_in() -> None:
    known = Databases(("crm", "tenant_1", "tenant_2"), "crm", ("tenant_1",))
    wanted = DefinitionSet("x", (defined("a"), defined("b", "tenant_*"), defined("c", "crm")))
    found, _ = targets(wanted, known, everywhere=True)
    assert [(t.database, [d.name for d in t.definitions]) for t in found] == [("tenant_1", ["a", "b"])]


def test_databases_of_the_whole_set_hold_for_definitions_without_their_own() -> None:
    known = Databases(("crm", "erp"), "crm")
    group = GroupDefinition("g", ("a", "b"), FilePosition("g.toml", 1), databases=("crm",))
    found, _ = targets(DefinitionSet("x", (defined("a"),), (group,), ("erp",)), known, everywhere=False)
    assert [(t.database, len(t.definitions), len(t.groups)) for t in found] == [("crm", 0, 1), ("erp", 1, 0)]


def test_prune_looks_everywhere() -> None:
    found, _ = targets(DefinitionSet("x", (defined("a"),)), Databases(("crm", "erp"), "crm"), everywhere=True)
    assert [(t.database, t.concerned) for t in found] == [("crm", True), ("erp", False)]


def test_glob_that_fits_nothing_is_a_problem() -> None:
    _, (wrong,) = targets(DefinitionSet("x", (defined("a", "tenant*"),)), Databases(("crm",), "crm"), everywhere=False)
    assert wrong.one_line() == "a.sql:1: no database matches tenant* (hint: there are crm)"


ALTERED = Change(
    ALTER,
    "public.s",
    file="s.sql",
    options=(OptionChange("schedule", "1m", None), OptionChange("append_only", False, True)),
    query_before=" SELECT a,\n    b\n   FROM t",
    query_after=" SELECT a,\n    c\n   FROM t",
    mode="FULL",
    reason="the query reads no table",
)


def test_changes_are_told_in_words_and_as_a_diff() -> None:
    outcome = ApplyResult(
        "crm",
        (
            Change(CREATE, "public.n", file="n.sql", query_after=" SELECT 1\n   FROM t", mode="DIFFERENTIAL"),
            ALTERED,
            Change(DROP, "public.o", query_before="SELECT 2"),
            Change(CREATE, "g", REFRESH_GROUP, "g.toml", (OptionChange("members", None, "a, b"),)),
        ),
        left=("public.p",),
        warnings=("careful",),
    )
    assert [line.plain for line in outcome_lines(outcome)] == [
        "  + public.n  create  (n.sql)",
        "      mode: DIFFERENTIAL",
        "      +  SELECT 1",
        "      +    FROM t",
        "  ~ public.s  alter  (s.sql)",
        "      schedule: 1m -> not set",
        "      append_only: off -> on",
        "      mode: FULL, because the query reads no table",
        "      --- now",
        "      +++ s.sql",
        "      @@ -1,3 +1,3 @@",
        "        SELECT a,",
        "      -    b",
        "      +    c",
        "          FROM t",
        "  - public.o  drop, no longer defined in a file",
        "  + refresh group g  create  (g.toml)",
        "      members: a, b",
        "  ? public.p  no longer defined in a file; --prune drops it",
        "  warning: careful",
    ]


def test_tally_counts_changes_databases_and_failures() -> None:
    done = ApplyResult("a", (ALTERED, Change(DROP, "public.o")), applied=True)
    failed = ApplyResult("b", errors=("PGT200: no",))
    assert planned([ApplyResult("a", (ALTERED,)), ApplyResult("c", (ALTERED,)), failed]) == (
        "Plan: 2 to alter, in 2 databases, 1 database failed"
    )
    assert planned([ApplyResult("a", unchanged=3)]) == "Plan: no changes"
    assert summary([done, failed]) == "Done: 1 altered, 1 dropped, in 1 database, 1 database failed"


def test_json_has_everything_of_a_change() -> None:
    shown = ApplyResult("crm", (ALTERED,), left=("public.p",)).as_json()
    assert (shown["database"], shown["status"], shown["not_defined"]) == ("crm", "planned", ["public.p"])
    (change,) = shown["changes"]
    assert change["options"]["schedule"] == {"before": "1m", "after": None}
    assert (change["action"], change["mode"], change["query_after"]) == ("alter", "FULL", ALTERED.query_after)
