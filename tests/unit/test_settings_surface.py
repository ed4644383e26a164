"""Every setting that was promised, with its default and range, and a module that reads it."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from pgtrickle import settings as module
from pgtrickle.settings import ALIASES, PROFILES, Settings, describe

# setting: default, range. What the SQL surface leaves open is ours to bound; there it says None.
SURFACE: dict[str, tuple[object, str | None]] = {
    "enabled": (True, "on, off"),
    "scheduler_interval_ms": (1000, "100..600000"),
    "event_driven_wake": (True, "on, off"),
    "wake_debounce_ms": (10, "1..5000"),
    "parallel_refresh_mode": ("on", "off, dry_run, on"),
    "max_dynamic_refresh_workers": (4, "1..64"),
    "max_concurrent_refreshes": (4, "1..32"),
    "per_database_worker_quota": (0, "0..64"),
    "worker_pool_size": (0, "0..64"),
    "tiered_scheduling": (True, "on, off"),
    "enable_refresh_broker": (False, "on, off"),
    "adaptive_batch_coalescing": (True, "on, off"),
    "max_databases": (0, None),
    "template_cache_max_entries": (2048, "0..65536"),
    "template_cache_dir": ("", ""),
    "template_cache_max_mb": (256, "0..65536"),
    "differential_max_change_ratio": (0.15, "0..1"),
    "prediction_window": (60, None),
    "prediction_ratio": (1.5, None),
    "prediction_min_samples": (5, None),
    "max_buffer_rows": (1_000_000, "0..100000000"),
    "compact_threshold": (100_000, None),
    "publication_lag_warn_lsn": (0, None),
    "merge_work_mem_mb": (64, None),
    "delta_work_mem_cap_mb": (0, None),
    "connection_pooler_mode": ("off", "off, transaction, session"),
    "max_consecutive_errors": (3, "1..100"),
    "allow_circular": (False, "on, off"),
    "on_lost_privilege": ("keep", "keep, empty"),
    "max_fixpoint_iterations": (100, None),
    "history_retention_days": (90, None),
    "spark_master": ("local[*]", None),
    "spark_driver_host": ("127.0.0.1", None),
    "spark_python": ("", None),
    "spark_remote": ("", None),
    "spark_conf": ({}, None),
    "http": ("", None),
    "http_token": ("", None),
    "metrics_max_tables": (1000, "0..100000"),
    "otlp_endpoint": ("", None),
}

# Of the scaling guide, as its readers paste them into postgresql.conf.
GUIDE = {
    "low-latency": """
        pg_trickle.scheduler_interval_ms = 200
        pg_trickle.event_driven_wake = on
        pg_trickle.parallel_refresh_mode = 'on'
        pg_trickle.max_dynamic_refresh_workers = 8
        pg_trickle.tiered_scheduling = on
    """,
    "high-throughput": """
        pg_trickle.scheduler_interval_ms = 500
        pg_trickle.parallel_refresh_mode = 'on'
        pg_trickle.max_dynamic_refresh_workers = 16
        pg_trickle.max_concurrent_refreshes = 8
        pg_trickle.per_database_worker_quota = 8
        pg_trickle.tiered_scheduling = on
        pg_trickle.merge_work_mem_mb = 128
    """,
    "resource-constrained": """
        pg_trickle.scheduler_interval_ms = 2000
        pg_trickle.parallel_refresh_mode = 'on'
        pg_trickle.max_dynamic_refresh_workers = 2
        pg_trickle.max_concurrent_refreshes = 2
        pg_trickle.tiered_scheduling = on
        pg_trickle.delta_work_mem_cap_mb = 256
        pg_trickle.merge_work_mem_mb = 32
    """,
    "offload": "pg_trickle.source_cost_weight = 20",
}

# Known, checked and shown, but nothing acts on them yet. A setting leaves this list when a module reads it.
NOT_ACTING: dict[str, str] = {}


@pytest.mark.parametrize("name", SURFACE)
def test_every_promised_setting_has_its_default_and_range(name: str) -> None:
    default, allowed = SURFACE[name]
    row = {row["name"]: row for row in describe()}[name]
    assert row["default"] == default
    assert allowed in (None, row["range"])


def test_the_alias_of_the_lag_warning_is_known() -> None:
    assert ALIASES["publication_lag_warn_bytes"] == "publication_lag_warn_lsn"


def lines_of(text: str) -> dict[str, str]:
    return dict(re.findall(r"pg_trickle\.(\w+) = '?(\w+)'?", text))


def test_profiles_are_those_of_the_scaling_guide_and_of_the_howto() -> None:
    assert {name: dict(values) for name, values in PROFILES.items()} == {
        name: lines_of(lines) for name, lines in GUIDE.items()
    }
    howto = (Path(__file__).parents[2] / "docs" / "howto" / "settings.md").read_text(encoding="utf-8")
    for name in PROFILES:
        (block,) = re.findall(rf"(?m)^# {name}.*\n((?:pg_trickle.*\n)+)", howto)
        assert lines_of(block) == PROFILES[name]


# Modules that only tell people about settings, and the setting that is for people only.
REPORTS = {"maintain/budget.py", "maintain/doctor.py"}
INFORMATIONAL = {"max_databases"}


def readers() -> dict[str, list[str]]:
    """Modules that act on a setting: `settings.x`, or `.x` of something that is named after settings."""
    root = Path(module.__file__).parent
    found: dict[str, list[str]] = {name: [] for name in Settings.__dataclass_fields__}
    for path in sorted(root.rglob("*.py")):
        if path == Path(module.__file__):
            continue
        relative, text = path.relative_to(root).as_posix(), path.read_text(encoding="utf-8")
        for name in set(re.findall(r"settings\b\.(\w+)", text)) & set(found):
            if relative not in REPORTS or name in INFORMATIONAL:
                found[name].append(relative)
    for path in sorted(root.rglob("*.sql")):  # settings that the database itself acts on
        for name in set(re.findall(r"_security_setting\('(\w+)'\)", path.read_text(encoding="utf-8"))):
            found[name].append(path.relative_to(root).as_posix())
    return found


def test_every_setting_is_read_somewhere_or_listed_with_its_reason() -> None:
    found = readers()
    table = "\n".join(f"{name}: {', '.join(files) or NOT_ACTING.get(name, '???')}" for name, files in found.items())
    unread = {name for name, files in found.items() if not files}
    assert unread - set(NOT_ACTING) == set(), f"nothing reads these:\n{table}"
    assert set(NOT_ACTING) - unread == set(), f"these are read now, take them off the list:\n{table}"
