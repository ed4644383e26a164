"""Settings: precedence, origins, ranges, unknown names."""

from __future__ import annotations

import pytest

from pgtrickle.errors import ConfigError
from pgtrickle.settings import Settings, describe, load


def test_load_gives_defaults_and_says_so() -> None:
    loaded = load()
    assert loaded.settings == Settings()
    assert set(loaded.origins.values()) == {"default"}


def test_load_prefers_flag_over_environment_over_file_over_database() -> None:
    sources = {
        "database": {"pg_trickle.scheduler_interval_ms": "101"},
        "file": {"scheduler_interval_ms": 102},
        "environ": {"PGTRICKLE_SCHEDULER_INTERVAL_MS": "103"},
        "flags": {"scheduler_interval_ms": "104"},
    }
    order = ["database", "file", "environ", "flags"]
    origins = ["database", "file", "env", "flag"]
    for count in range(1, 5):
        loaded = load(**{name: sources[name] for name in order[:count]})  # type: ignore[arg-type]
        assert loaded.settings.scheduler_interval_ms == 100 + count
        assert loaded.origins["scheduler_interval_ms"] == origins[count - 1]


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
        {"database": {"pg_trickle.scheduler_intervall_ms": "200"}},
    ],
)
def test_load_refuses_unknown_names_and_suggests_the_near_one(source: dict[str, dict[str, object]]) -> None:
    with pytest.raises(ConfigError) as raised:
        load(**source)  # type: ignore[arg-type]
    assert "did you mean scheduler_interval_ms?" in raised.value.one_line()


def test_load_leaves_other_variables_alone() -> None:
    assert (
        load(environ={"HOME": "/", "PGTRICKLE_SERVER": "postgresql://x", "PGTRICKLE_DEBUG": "1"}).settings == Settings()
    )


def test_load_merges_spark_conf_from_all_sources() -> None:
    loaded = load(
        database={"pg_trickle.spark_conf.spark.a": "database"},
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
