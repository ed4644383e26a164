"""Definition files as people write them: what is read, and what is said about what cannot be."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from pgtrickle.definitions.definition import Definition
from pgtrickle.definitions.export import Exported, files_of
from pgtrickle.definitions.read import read_set
from pgtrickle.definitions.sqlfile import joined_names, read_sql, split_names
from pgtrickle.errors import ConfigError


def written(folder: Path, **files: str) -> Path:
    for name, text in files.items():
        path = folder / name.replace("__", ".")
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    return folder


def problems(folder: Path) -> list[str]:
    return [problem.one_line().replace(f"{folder}/", "") for problem in read_set(folder)[1]]


def one(text: str) -> Definition:
    definition, wrong = read_sql("x/sales.totals.sql", text)
    assert wrong == []
    assert definition is not None
    return definition


def test_sql_file_has_a_header_and_a_query() -> None:
    found = one(
        "-- Totals of all regions: for the board\n"
        "-- name: sales.by_region\n"
        "--schedule:  */5 * * * *\n"
        "-- Refresh_Mode: DIFFERENTIAL\n"
        "-- append_only: yes\n"
        "-- max_delta_fraction: 0.25\n"
        "-- max_differential_joins: 3\n"
        '-- databases: crm, tenant_*, "odd, name"\n'
        "\n"
        "-- note: this is the query's own comment\n"
        "SELECT region\n"
        "FROM orders;\n\n"
    )
    assert found.name == "sales.by_region"
    assert found.query == "-- note: this is the query's own comment\nSELECT region\nFROM orders"
    assert found.databases == ("crm", "tenant_*", "odd, name")
    assert found.options == {
        "schedule": "*/5 * * * *",
        "refresh_mode": "DIFFERENTIAL",
        "append_only": True,
        "max_delta_fraction": 0.25,
        "max_differential_joins": 3,
    }
    assert (found.at.line, found.query_at.line, found.place_of("schedule").line) == (2, 10, 3)


def test_sql_file_without_a_header_is_named_after_the_file() -> None:
    found = one("SELECT 1 AS a")
    assert (found.name, found.query, found.query_at.line) == ("sales.totals", "SELECT 1 AS a", 1)


@pytest.mark.parametrize("end", ["", ";", "; ;", ";;\n", " ;\n\t;\n ; "])
def test_semicolons_at_the_end_are_not_part_of_the_query(end: str) -> None:
    definition, problems = read_sql("a.sql", f"-- schedule: 5s\n\nSELECT 1{end}")
    assert problems == []
    assert definition is not None
    assert definition.query == "SELECT 1"


def test_header_ends_at_the_query_without_an_empty_line() -> None:
    found = one("-- name: a\nSELECT 1 AS a\n-- name: b\n")
    assert (found.name, found.query_at.line) == ("a", 2)
    assert "-- name: b" in found.query


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("-- shedule: 1m\nSELECT 1", "x.sql:1: unknown key shedule (hint: did you mean schedule?"),
        ("-- name: a\n-- colour: red\nSELECT 1", "x.sql:2: unknown key colour (hint: valid keys: append_only"),
        ("-- name: a\n-- name: b\nSELECT 1", "x.sql:2: name is set twice (hint: see line 1)"),
        ("-- database: a\n-- databases: b\nSELECT 1", "x.sql:2: databases is set twice (hint: see line 1)"),
        ("-- name:\nSELECT 1", "x.sql:1: name has no value"),
        ("-- append_only: maybe\nSELECT 1", "x.sql:1: append_only is not true or false: maybe"),
        ("-- max_differential_joins: 1.5\nSELECT 1", "x.sql:1: max_differential_joins is not a whole number: 1.5"),
        ("-- max_delta_fraction: half\nSELECT 1", "x.sql:1: max_delta_fraction is not a number: half"),
        ("-- name: a\n", "x.sql:1: there is no query"),
        ("", "x.sql:1: there is no query"),
    ],
)
def test_wrong_sql_file_says_where_and_what_helps(tmp_path: Path, text: str, said: str) -> None:
    (first, *_) = problems(written(tmp_path, x__sql=text))
    assert first.startswith(said)


def test_toml_file_holds_several_definitions_and_groups(tmp_path: Path) -> None:
    folder = written(
        tmp_path,
        all__toml=(
            'set = "sales"\n'
            'databases = "crm"\n'
            "[[stream_table]]\n"
            'name = "a"\n'
            'query = """\n\nSELECT 1 AS x\nschedule = "not this one"\n"""\n'
            "schedule = 90\n"
            "[[stream_table]]\n"
            'name = "b"\n'
            'query_file = "queries/b.sql"\n'
            'databases = ["tenant_*"]\n'
            "tier = 'cold'\n"
            "[[refresh_group]]\n"
            'name = "both"\n'
            'members = ["a", "b"]\n'
            'isolation = "repeatable_read"\n'
        ),
    )
    (folder / "queries").mkdir()
    (folder / "queries" / "b.sql").write_text("SELECT 2 AS y;\n")
    found, wrong = read_set(folder)
    assert wrong == ()
    assert (found.name, found.databases) == ("sales", ("crm",))
    first, second = found.definitions
    assert (first.name, first.query, first.options) == (
        "a",
        'SELECT 1 AS x\nschedule = "not this one"',
        {"schedule": "90"},
    )
    assert (first.at.line, first.query_at.line, first.place_of("schedule").line) == (4, 7, 10)
    assert (second.query, second.databases, second.options) == ("SELECT 2 AS y", ("tenant_*",), {"tier": "cold"})
    assert (second.at.line, second.query_at.path) == (12, str(folder / "queries" / "b.sql"))
    (group,) = found.groups
    assert (group.members, group.isolation, group.at.line) == (("a", "b"), "repeatable_read", 17)


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("stream_tables = 1\n", "x.toml:1: unknown key stream_tables (hint: did you mean stream_table?)"),
        (
            "[stream_table]\nname = 'a'\n",
            "x.toml:1: stream_table is not a list of tables (hint: write [[stream_table]])",
        ),
        ("\n[[stream_table]]\nquery = 'SELECT 1'\n", "x.toml:2: name is missing"),
        ("[[stream_table]]\nname = 'a'\n", "x.toml:1: one of query and query_file is needed"),
        ("[[stream_table]]\nname = 'a'\nquery = ' '\n", "x.toml:3: query is not a text: ' '"),
        ("[[stream_table]]\nname = 'a'\nquery = 'SELECT 1'\nquery_file = 'a.sql'\n", "x.toml:3: query is set twice"),
        ("[[stream_table]]\nname = 'a'\nquery_file = 'no.sql'\n", "x.toml:3: cannot read no.sql: No such file"),
        ("[[stream_table]]\nname = 'a'\nquery = 'SELECT 1'\ntier = 3.5\n", "x.toml:4: tier is not a text: 3.5"),
        (
            "[[stream_table]]\nname = 'a'\nquery = 'q'\nappend_only = 7\n",
            "x.toml:4: append_only is not true or false: 7",
        ),
        ("[[stream_table]]\nname = 'a'\nquery = 'q'\ndatabases = []\n", "x.toml:4: databases is not a name or a list"),
        (
            "[[refresh_group]]\nname = 'g'\nmembers = ['a', 'a']\n",
            "x.toml:3: a refresh group needs at least two members",
        ),
        ("a = 1\n\nb = = 2\n", "x.toml:3: not valid TOML"),
    ],
)
def test_wrong_toml_file_says_where_and_what_helps(tmp_path: Path, text: str, said: str) -> None:
    (first, *_) = problems(written(tmp_path, x__toml=text))
    assert first.startswith(said)


def test_all_problems_of_a_folder_are_told_at_once(tmp_path: Path) -> None:
    written(tmp_path, a__sql="-- nam: a\nSELECT 1", b__sql="-- tire: a\nSELECT 1", c__toml="x = 1")
    assert [line.split(":")[0] for line in problems(tmp_path)] == ["a.sql", "b.sql", "c.toml"]


def test_set_is_named_after_its_folder_unless_somebody_says_otherwise(tmp_path: Path) -> None:
    folder = written(tmp_path / "sales", a__sql="SELECT 1 AS a")
    assert read_set(folder)[0].name == "sales"
    assert read_set(folder / "a.sql")[0].name == "a"
    written(folder, set__toml='set = "revenue"')
    assert read_set(folder)[0].name == "revenue"
    assert read_set(folder, "other")[0].name == "other"
    written(folder, other__toml='set = "cost"')
    assert "the set is named revenue here and cost in" in problems(folder)[0]


def test_hidden_and_other_files_are_left_alone(tmp_path: Path) -> None:
    written(tmp_path, a__sql="SELECT 1 AS a", README__md="# x", _git__sql="SELECT 2 AS b")
    (tmp_path / ".git").mkdir()
    (tmp_path / ".git" / "x.sql").write_text("no query: at all")
    (tmp_path / "below").mkdir()
    (tmp_path / "below" / "c.sql").write_text("\ufeffSELECT 3 AS c\r\n", newline="")
    found, wrong = read_set(tmp_path)
    assert wrong == ()
    assert {definition.name for definition in found.definitions} == {"a", "_git", "c"}


def test_folder_without_definitions_is_refused(tmp_path: Path) -> None:
    """With --prune it would drop everything."""
    with pytest.raises(ConfigError, match="no \\.sql or \\.toml"):
        read_set(tmp_path)
    with pytest.raises(ConfigError, match="does not exist"):
        read_set(tmp_path / "nothing")


def test_file_that_is_not_utf8_is_a_problem(tmp_path: Path) -> None:
    (tmp_path / "a.sql").write_bytes(b"-- name: a\nSELECT '\xff' AS a")
    assert problems(tmp_path) == ["a.sql:2: is not UTF-8"]


def test_names_with_commas_and_quotes_survive() -> None:
    names = ("plain", "a,b", 'with "quotes"', " blank ", "tenant_*")
    assert split_names(joined_names(names)) == names


def test_exported_files_are_read_as_they_were(tmp_path: Path) -> None:
    odd = '"Odd ""Name"";--".x'
    items = [
        Exported(odd, "-- name: not_me\nSELECT 1 AS a", (("append_only", True), ("schedule", "1m")), (), ("a", "b,c")),
        Exported('public."line\nbreak"', "SELECT '\x7f\r\n' AS a", (("tier", "cold"),), (), ("a",)),
        Exported("s.t", "SELECT 1 AS a", (), (), ("a",)),
        Exported("s.t", "SELECT 2 AS a", (), (), ("b,c",)),
        Exported("g", "", (("isolation", "repeatable_read"),), ("s.t", "s.u"), ("a",)),
    ]
    files = files_of(items, {"sales"}, name_databases=True)
    assert {"s.t.a.sql", "s.t.b_c.sql", "pgtrickle.toml"} < files.keys()
    for name, text in files.items():
        (tmp_path / name).write_text(text, newline="\n")
    found, wrong = read_set(tmp_path)
    assert wrong == ()
    assert found.name == "sales"
    assert {(d.name, d.query, tuple(sorted(d.options.items())), d.databases) for d in found.definitions} == {
        (item.name, item.query, item.options, item.databases) for item in items if item.query
    }
    assert [(g.name, g.members, g.isolation, g.databases) for g in found.groups] == [
        ("g", ("s.t", "s.u"), "repeatable_read", ("a",))
    ]


TOML = """
[[stream_table]]
name = "a"
query_file = "{}"
"""


@pytest.mark.parametrize(
    "file",
    [
        "/etc/passwd",
        "../secret.sql",
        "queries/../../secret.sql",
        "./../secret.sql",
        "link.sql",
        "away/secret.sql",
        "..",
    ],
)
def test_query_file_is_below_the_definition(tmp_path: Path, file: str) -> None:
    (tmp_path / "secret.sql").write_text("SELECT 'secret' AS s")
    folder = tmp_path / "set"
    (folder / "queries").mkdir(parents=True)
    (folder / "link.sql").symlink_to(tmp_path / "secret.sql")
    (folder / "away").symlink_to(tmp_path)
    path = folder / "a.toml"
    path.write_text(TOML.format(file))
    found, wrong = read_set(path)
    assert found.definitions == ()
    (problem,) = wrong
    assert "secret'" not in problem.one_line()
    assert f"{file} is not below the folder of this file" in problem.message
    assert problem.hint


def test_query_file_below_is_read_also_through_a_link(tmp_path: Path) -> None:
    (tmp_path / "q").mkdir()
    (tmp_path / "q" / "real.query").write_text("SELECT 1 AS one")
    (tmp_path / "q" / "link.query").symlink_to("real.query")
    for file in ("q/real.query", "./q/real.query", "q/link.query"):
        (tmp_path / "a.toml").write_text(TOML.format(file))
        found, wrong = read_set(tmp_path)
        assert not wrong
        assert [d.query for d in found.definitions] == ["SELECT 1 AS one"]


def test_query_file_that_is_a_pipe_is_not_waited_for(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "q")
    (tmp_path / "a.toml").write_text(TOML.format("q"))
    assert "it is not a file" in problems(tmp_path)[0]


def test_links_out_of_the_folder_are_not_followed(tmp_path: Path) -> None:
    (tmp_path / "secret.sql").write_text("SELECT 'secret' AS s")
    folder = tmp_path / "set"
    folder.mkdir()
    (folder / "good.sql").write_text("SELECT 1 AS one")
    (folder / "alias.sql").symlink_to("good.sql")
    (folder / "bad.sql").symlink_to(tmp_path / "secret.sql")
    (folder / "away").symlink_to(tmp_path)
    (folder / "loop").symlink_to(folder)
    (folder / "other").symlink_to("/nowhere")  # no definition, so nobody cares
    found, wrong = read_set(folder)
    assert sorted(d.name for d in found.definitions) == ["alias", "good"]
    assert [(Path(p.at.path).name, "symbolic link" in p.message) for p in wrong] == [
        ("away", True), ("bad.sql", True), ("loop", True),
    ]  # fmt: skip
