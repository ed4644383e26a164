"""Settings: precedence, origins, ranges, unknown names."""

from __future__ import annotations

import pickle
from typing import Any

import pytest

from pgtrickle.errors import ConfigError
from pgtrickle.settings import DATABASE_ORIGINS, PROFILES, Loaded, Settings, Sources, describe, shown_value


def load(database: dict[str, tuple[str, str]] | None = None, **sources: Any) -> Loaded:
    return Sources(**sources).load(database)


def test_load_gives_defaults_and_says_so() -> None:
    loaded = load()
    assert loaded.settings == Settings()
    assert set(loaded.origins.values()) == {"default"}


def test_load_prefers_flag_over_profile_over_environment_over_file_over_database() -> None:
    sources: dict[str, Any] = {
        "database": {"scheduler_interval_ms": ("101", "role")},
        "file": {"scheduler_interval_ms": 102},
        "environ": {"PGTRICKLE_SCHEDULER_INTERVAL_MS": "103"},
        "profile": "low-latency",
        "flags": {"scheduler_interval_ms": "105"},
    }
    expected = [(101, "role"), (102, "file"), (103, "env"), (200, "profile"), (105, "flag")]
    for count, (value, origin) in enumerate(expected, 1):
        loaded = load(**dict(list(sources.items())[:count]))
        assert loaded.settings.scheduler_interval_ms == value
        assert loaded.origins["scheduler_interval_ms"] == origin


@pytest.mark.parametrize("text", ["on", "ON", "true", "yes", "1", True])
def test_load_reads_booleans_as_postgresql_writes_them(text: object) -> None:
    assert load(file={"allow_circular": text}).settings.allow_circular is True


@pytest.mark.parametrize(
    ("name", "value", "expected"),
    [
        ("scheduler_interval_ms", "99", "100..600000"),
        ("scheduler_interval_ms", "600001", "100..600000"),
        ("scheduler_interval_ms", "soon", "100..600000"),
        ("scheduler_interval_ms", "1.5", "100..600000"),
        ("differential_max_change_ratio", "nan", "0..1"),
        ("differential_max_change_ratio", "1.01", "0..1"),
        ("parallel_refresh_mode", "maybe", "off, dry_run, on"),
        ("enabled", "perhaps", "on, off"),
        ("compact_threshold", "-1", "0 or more"),
    ],
)
def test_load_names_the_range_when_a_value_is_outside(name: str, value: str, expected: str) -> None:
    with pytest.raises(ConfigError) as raised:
        load(environ={f"PGTRICKLE_{name.upper()}": value})
    assert f"it must be {expected}" in raised.value.one_line()
    assert f"PGTRICKLE_{name.upper()}" in raised.value.one_line()


def test_load_refuses_a_number_where_toml_has_a_boolean() -> None:
    with pytest.raises(ConfigError, match="max_databases"):
        load(file={"max_databases": True})


@pytest.mark.parametrize(
    "source",
    [
        {"environ": {"PGTRICKLE_SCHEDULER_INTERVALL_MS": "200"}},
        {"file": {"scheduler_intervall_ms": 200}},
        {"flags": {"scheduler_intervall_ms": "200"}},
    ],
)
def test_load_refuses_unknown_names_and_suggests_the_near_one(source: dict[str, dict[str, object]]) -> None:
    with pytest.raises(ConfigError) as raised:
        load(**source)  # type: ignore[arg-type]
    assert "did you mean scheduler_interval_ms?" in raised.value.one_line()


@pytest.mark.parametrize("origin", DATABASE_ORIGINS)
def test_what_is_wrong_in_a_database_is_said_and_not_used(origin: str) -> None:
    said = {
        "scheduler_interval_ms": ("99", origin),
        "scheduler_intervall_ms": ("200", origin),
        "wake_debounce_ms": ("7", origin),
    }
    loaded = load(said)
    assert loaded.settings == Settings(wake_debounce_ms=7)
    assert [(p.name, p.value, p.origin) for p in loaded.problems] == [
        ("scheduler_interval_ms", "99", origin),
        ("scheduler_intervall_ms", "200", origin),
    ]
    assert f"pg_trickle.scheduler_interval_ms, {origin}" in loaded.problems[0].message
    assert "it must be 100..600000" in loaded.problems[0].message
    assert "did you mean scheduler_interval_ms?" in loaded.problems[1].message


def test_what_becomes_wrong_in_a_database_keeps_its_previous_value() -> None:
    before = load({"scheduler_interval_ms": ("300", "database")}).settings
    wrong = {"scheduler_interval_ms": ("soon", "database")}
    loaded = Sources().load(wrong, previous=before)
    assert (loaded.settings.scheduler_interval_ms, loaded.origins["scheduler_interval_ms"]) == (300, "previous")
    over = Sources(flags={"scheduler_interval_ms": 400}).load(wrong, previous=before)
    assert (over.settings.scheduler_interval_ms, over.origins["scheduler_interval_ms"]) == (400, "flag")


@pytest.mark.parametrize("name", ["spark_conf.spark.driver.extraJavaOptions", "spark_conf", "java_home", "log_level"])
def test_an_option_of_a_database_does_not_reach_our_machine(name: str) -> None:
    value = "debug" if name == "log_level" else "x=y"
    loaded = load({name: (value, "set_option")})
    assert loaded.settings == Settings()
    assert "concerns the machine" in loaded.problems[0].message
    assert load({name: (value, "database")}).problems == ()


def test_an_unknown_profile_names_those_that_exist() -> None:
    with pytest.raises(ConfigError) as raised:
        load(profile="fast")
    assert "low-latency, high-throughput, resource-constrained" in raised.value.one_line()


@pytest.mark.parametrize("name", PROFILES)
def test_a_profile_sets_what_it_says_and_nothing_else(name: str) -> None:
    loaded = load(profile=name)
    assert {n for n, origin in loaded.origins.items() if origin == "profile"} == set(PROFILES[name])
    as_lines = load({n: (value, "postgresql.conf") for n, value in PROFILES[name].items()})
    assert as_lines.problems == ()
    assert as_lines.settings == loaded.settings


def test_settings_and_sources_travel_to_other_processes() -> None:
    loaded = load(flags={"spark_conf.spark.x": "1"})
    assert pickle.loads(pickle.dumps(loaded)) == loaded
    sources = Sources(profile="low-latency", environ={"PGTRICKLE_ENABLED": "off"})
    assert pickle.loads(pickle.dumps(sources)) == sources


def test_load_leaves_other_variables_alone() -> None:
    assert (
        load(environ={"HOME": "/", "PGTRICKLE_SERVER": "postgresql://x", "PGTRICKLE_DEBUG": "1"}).settings == Settings()
    )


def test_load_merges_spark_conf_from_all_sources() -> None:
    loaded = load(
        {"spark_conf.spark.a": ("database", "database")},
        file={"spark_conf": {"spark.b": 2}},
        environ={"PGTRICKLE_SPARK_CONF": "spark.c=3; spark.d=x=y"},
        flags={"spark_conf.spark.a": "flag"},
    )
    assert loaded.settings.spark_conf == {"spark.a": "flag", "spark.b": "2", "spark.c": "3", "spark.d": "x=y"}
    with pytest.raises(ConfigError, match="spark_conf"):
        load(environ={"PGTRICKLE_SPARK_CONF": "nonsense"})


def test_load_knows_the_alias_of_the_lag_warning() -> None:
    assert load(file={"publication_lag_warn_bytes": 5}).settings.publication_lag_warn_lsn == 5


def test_describe_documents_every_setting() -> None:
    rows = describe()
    assert all(row["doc"].endswith(".") for row in rows)
    assert {row["name"] for row in rows} == set(Settings.__dataclass_fields__)


def test_defaults_are_inside_their_own_ranges() -> None:
    given = {row["name"]: row["default"] for row in describe() if row["name"] != "spark_conf"}
    assert load(flags=given).settings == Settings()


def test_a_secret_comes_from_the_environment_or_the_file_and_is_never_shown() -> None:
    with pytest.raises(ConfigError, match="visible to other users"):
        Sources(flags={"http_token": "a secret of this test"}).load()
    loaded = Sources(environ={"PGTRICKLE_HTTP_TOKEN": "a secret of this test"}).load()
    assert loaded.settings.http_token == "a secret of this test"
    assert shown_value("http_token", loaded.settings.http_token) == "***"
    found = Sources().load({"http_token": ("a secret of this test", "database")})
    assert found.settings.http_token == ""
    assert "a secret" not in str(found.problems)
