"""One frozen Settings, its sources and their precedence: flag, profile, environment, file, database, default.

`load` is pure: it merges the values of the sources and records the origin of each value. Reading files, environments
and databases is left to the caller. The reference page, `pgtrickle config` and the checks of
`pgtrickle.set_option()` are made from the fields below.
"""

from __future__ import annotations

import copyreg
import difflib
import re
from collections.abc import Iterator, Mapping
from dataclasses import MISSING, dataclass, field, fields
from types import MappingProxyType
from typing import Any

from pgtrickle.errors import ConfigError
from pgtrickle.telemetry import redact

# Settings are sent to other processes.
copyreg.pickle(MappingProxyType, lambda mapping: (MappingProxyType, (dict(mapping),)))

ENV_PREFIX = "PGTRICKLE_"
DATABASE_PREFIX = "pg_trickle."

# PGTRICKLE_ variables of the command line, which are not settings.
COMMAND_VARIABLES = frozenset({"SERVER", "CONFIG", "DEBUG"})
ALIASES: Mapping[str, str] = {"publication_lag_warn_bytes": "publication_lag_warn_lsn"}

# Where a value of the database's level can come from, lowest first. The order of the last four is PostgreSQL's.
OPTION, SERVER, ALL_ROLES, DATABASE, ROLE, ROLE_IN_DATABASE, CONNECTION = (
    "set_option",
    "postgresql.conf",
    "all roles",
    "database",
    "role",
    "role in database",
    "connection",
)
DATABASE_ORIGINS = (OPTION, SERVER, ALL_ROLES, DATABASE, ROLE, ROLE_IN_DATABASE, CONNECTION)

# Origins outside databases, lowest precedence first.
OUTSIDE_ORIGINS = ("file", "env", "profile", "flag")

# Who a setting is for. Each scheduler reads PER_DATABASE from its own database; the others are read once, when
# `pgtrickle run` starts, from the database that --server names. HOST settings decide what is executed on our machine:
# a role that may write to a database must not be able to set them.
PER_DATABASE, FLEET, HOST = "database", "fleet", "host"

# As the scaling guide has them: the same lines work in postgresql.conf, each behind "pg_trickle.".
PROFILES: Mapping[str, Mapping[str, str]] = {
    "low-latency": {
        "scheduler_interval_ms": "200",
        "event_driven_wake": "on",
        "parallel_refresh_mode": "on",
        "max_dynamic_refresh_workers": "8",
        "tiered_scheduling": "on",
    },
    "high-throughput": {
        "scheduler_interval_ms": "500",
        "parallel_refresh_mode": "on",
        "max_dynamic_refresh_workers": "16",
        "max_concurrent_refreshes": "8",
        "per_database_worker_quota": "8",
        "tiered_scheduling": "on",
        "merge_work_mem_mb": "128",
    },
    "resource-constrained": {
        "scheduler_interval_ms": "2000",
        "parallel_refresh_mode": "on",
        "max_dynamic_refresh_workers": "2",
        "max_concurrent_refreshes": "2",
        "tiered_scheduling": "on",
        "delta_work_mem_cap_mb": "256",
        "merge_work_mem_mb": "32",
    },
    "offload": {
        "source_cost_weight": "20",
    },
}

_SECRET = re.compile(r"secret|password|token|access[.]?key|credential", re.IGNORECASE)
_TRUE = frozenset({"on", "true", "yes", "1"})
_FALSE = frozenset({"off", "false", "no", "0"})


def _proxy(items: dict[str, str]) -> MappingProxyType[str, str]:
    return MappingProxyType(items)


# Settings are sent to the schedulers' processes.
copyreg.pickle(MappingProxyType, lambda mapping: (_proxy, (dict(mapping),)))


def _setting(
    default: Any,
    doc: str,
    *,
    low: float | None = None,
    high: float | None = None,
    choices: tuple[str, ...] = (),
    scope: str = PER_DATABASE,
    is_secret: bool = False,
) -> Any:
    """A field with its documentation and its range. A secret is accepted from the environment and the file only."""
    metadata = {"doc": doc, "low": low, "high": high, "choices": choices, "kind": type(default), "scope": scope}
    metadata["is_secret"] = is_secret
    if isinstance(default, Mapping):
        return field(default_factory=lambda: default, metadata=metadata)
    return field(default=default, metadata=metadata)


@dataclass(frozen=True, slots=True)
class Settings:
    """Read by the main program and passed as an argument. An empty text means "not set"."""

    enabled: bool = _setting(True, "Per database: off stops refreshes; capture continues.")
    scheduler_interval_ms: int = _setting(
        1000, "Time between two ticks of a scheduler, in milliseconds.", low=100, high=600_000
    )
    event_driven_wake: bool = _setting(
        True, "Wake the scheduler when a request or a change would make a table due, in addition to its ticks."
    )
    wake_debounce_ms: int = _setting(
        10, "How long to collect wake-ups after a tick before the next one, in milliseconds.", low=1, high=5000
    )
    parallel_refresh_mode: str = _setting(
        "on", "Whether independent refreshes run in parallel.", choices=("off", "dry_run", "on")
    )
    max_dynamic_refresh_workers: int = _setting(
        4, "Number of refresh workers of the fleet.", low=1, high=64, scope=FLEET
    )
    max_concurrent_refreshes: int = _setting(4, "Concurrent refreshes in a database without a quota.", low=1, high=32)
    per_database_worker_quota: int = _setting(0, "Workers that are guaranteed to a database; 0 = none.", low=0, high=64)
    worker_pool_size: int = _setting(
        0, "Persistent worker threads; 0 = one thread is started per lease.", low=0, high=64, scope=FLEET
    )
    tiered_scheduling: bool = _setting(True, "Refresh tables less often whose sources change rarely.")
    enable_refresh_broker: bool = _setting(
        False, "Count the changes of a table that several databases mirror once for all databases with this setting on."
    )
    adaptive_batch_coalescing: bool = _setting(
        True, "Use the broker's counts while they are fresh; off: poll other databases directly."
    )
    engine: str = _setting(
        "auto",
        "What evaluates stream tables without an engine of their own: auto chooses by cost, spark refuses queries that "
        "Spark cannot evaluate exactly.",
        choices=("auto", "spark", "postgres"),
    )
    source_cost_weight: float = _setting(
        1.0,
        "How much a second that the source server spends on a refresh counts beside a second of waiting, when AUTO "
        "chooses mode and engine; 0 = only the elapsed time counts.",
        low=0.0,
        high=1000.0,
    )
    max_databases: int = _setting(
        0, "Expected number of databases, for the budget of pgtrickle doctor; 0 = unknown.", low=0, scope=FLEET
    )
    template_cache_max_entries: int = _setting(
        2048,
        "Number of compiled templates of all databases in the memory of the pipeline; the least recently used is "
        "evicted.",
        low=0,
        high=65_536,
        scope=FLEET,
    )
    template_cache_dir: str = _setting(
        "",
        "Directory of compiled templates that all databases and processes share and that survive restarts; default: "
        "pgtrickle/templates in XDG_CACHE_HOME, or in ~/.cache.",
        scope=HOST,
    )
    template_cache_max_mb: int = _setting(
        256,
        "Size of the files in template_cache_dir, in MB; the least recently used are removed. 0 = nothing is stored.",
        low=0,
        high=65_536,
        scope=HOST,
    )
    differential_max_change_ratio: float = _setting(
        0.15, "Ratio of changed rows to rows of the source above which a refresh is FULL.", low=0, high=1
    )
    prediction_window: int = _setting(60, "Period of history that the cost model uses, in minutes.", low=1, high=10_080)
    prediction_ratio: float = _setting(
        1.5, "Ratio of predicted differential cost to last full cost above which FULL is chosen.", low=0.1, high=100
    )
    prediction_min_samples: int = _setting(
        5, "Number of refreshes that the cost model needs before it decides.", low=1, high=1000
    )
    max_buffer_rows: int = _setting(
        1_000_000, "Number of pending changes above which a refresh is FULL; 0 = no limit.", low=0, high=100_000_000
    )
    compact_threshold: int = _setting(
        100_000, "Number of changes that a reader has not read above which a buffer is compacted; 0 = never.", low=0
    )
    publication_lag_warn_lsn: int = _setting(
        0,
        "Lag of a subscriber in bytes above which a warning is logged; 0 = off (alias publication_lag_warn_bytes).",
        low=0,
    )
    merge_work_mem_mb: int = _setting(64, "work_mem of the statements of a refresh, in MB.", low=1, high=65_536)
    delta_work_mem_cap_mb: int = _setting(
        0,
        "Memory of the rows of a delta, in MB, above which AUTO refreshes in FULL mode; also the upper limit "
        "of merge_work_mem_mb; 0 = no limit.",
        low=0,
        high=65_536,
    )
    connection_pooler_mode: str = _setting(
        "off",
        "Type of pooler between pgtrickle and PostgreSQL; with transaction no session state is kept.",
        choices=("off", "transaction", "session"),
    )
    max_consecutive_errors: int = _setting(
        3,
        "Number of consecutive internal errors after which a stream table is suspended. Other failures are retried.",
        low=1,
        high=100,
    )
    allow_circular: bool = _setting(
        False, "Allow stream tables that read one another in a cycle. SQL functions read it, too."
    )
    trusted_extensions: str = _setting(
        "btree_gin, btree_gist, citext, cube, dict_int, dict_xsyn, earthdistance, fuzzystrmatch, hstore, intarray, "
        "isn, ltree, pg_trgm, pgcrypto, seg, tsm_system_rows, tsm_system_time, unaccent, uuid-ossp, vector",
        "Extensions whose functions and types a query may use when it runs with the privileges of the role that "
        "installed pgtrickle. SQL functions read it: only set_option, ALTER DATABASE and ALTER ROLE set it.",
    )
    run_as_author: str = _setting(
        "needed",
        "When a query is evaluated with the privileges of its author, if the installing role may SET ROLE "
        "to the author: needed (it calls code that is not trusted) or always, which is slower. Applies when a stream "
        "table is created or its query altered; set it like trusted_extensions.",
        choices=("needed", "always"),
    )
    on_lost_privilege: str = _setting(
        "keep",
        "What happens to the rows of a stream table whose author may no longer read its sources.",
        choices=("keep", "empty"),
    )
    max_fixpoint_iterations: int = _setting(
        100, "Maximum number of rounds of a cycle of stream tables; more are an error.", low=1, high=10_000
    )
    history_retention_days: int = _setting(90, "Retention of the refresh history, in days.", low=1, high=36_500)
    spark_master: str = _setting("local[*]", "Master of the Spark Connect server that pgtrickle starts.", scope=HOST)
    spark_driver_host: str = _setting(
        "127.0.0.1",
        "Address of this machine at which executors on other machines reach the Spark server that pgtrickle starts. "
        "Clients connect to it on loopback, whatever this is.",
        scope=HOST,
    )
    spark_python: str = _setting(
        "",
        "Python of Spark's Python processes, at the same path on this machine and on all workers; default: the one "
        "that runs pgtrickle.",
        scope=HOST,
    )
    spark_remote: str = _setting(
        "", "sc://host:port of a running Spark Connect server; pgtrickle then starts none.", scope=HOST
    )
    spark_conf: Mapping[str, str] = _setting(
        MappingProxyType({}),
        "Additional Spark settings for the server that pgtrickle starts (spark_conf.<name>).",
        scope=HOST,
    )
    spark_driver_memory_mb: int = _setting(
        2048, "Heap of the Spark Connect server that pgtrickle starts, in MB.", low=512, high=1_048_576, scope=HOST
    )
    spark_start_timeout_s: int = _setting(
        120, "Time limit for the start of Spark, in seconds.", low=5, high=3600, scope=HOST
    )
    replica_root: str = _setting(
        "",
        "Directory of columnar replicas that Spark's executors can write, or a URL in an object store (s3a://, s3://, "
        "abfss://, gs://, hdfs://) without credentials; default: pgtrickle/replicas in XDG_STATE_HOME, or in "
        "~/.local/state.",
        scope=HOST,
    )
    standby_check_s: int = _setting(
        30,
        "Time between two checks whether a standby server was promoted, in seconds.",
        low=1,
        high=3600,
        scope=FLEET,
    )
    java_home: str = _setting(
        "", "Java 17 or later to use for Spark; default: JAVA_HOME, then the one in the wheel.", scope=HOST
    )
    http: str = _setting(
        "",
        "host:port where pgtrickle run serves its web UI and metrics; default: it serves none. An address that is not "
        "of the loopback interface requires http_token.",
        scope=HOST,
    )
    http_token: str = _setting(
        "",
        "Secret of at least 16 characters that permits changes and shows error texts in the web UI. Environment or "
        "file only.",
        scope=HOST,
        is_secret=True,
    )
    metrics_max_tables: int = _setting(
        1000, "Number of stream tables that have metrics of their own.", low=0, high=100_000, scope=HOST
    )
    otlp_endpoint: str = _setting(
        "",
        "Address of an OpenTelemetry collector (OTLP over HTTP), such as http://127.0.0.1:4318, for traces with one "
        "span per stage; needs the extra otel. Default: no traces.",
        scope=HOST,
    )
    log_level: str = _setting(
        "info", "Minimum level of log messages.", choices=("debug", "info", "warning", "error"), scope=HOST
    )
    log_format: str = _setting("text", "Format of log messages.", choices=("text", "json"), scope=HOST)


@dataclass(frozen=True, slots=True)
class SettingProblem:
    """An invalid value in a database: reported, and not used."""

    name: str
    value: str
    origin: str
    message: str


@dataclass(frozen=True, slots=True)
class Loaded:
    """Settings and where each value came from."""

    settings: Settings
    origins: Mapping[str, str]
    problems: tuple[SettingProblem, ...] = ()


@dataclass(frozen=True, slots=True)
class Sources:
    """The sources of settings outside databases; merged with those of a database they are its settings."""

    flags: Mapping[str, object] = field(default_factory=dict)
    profile: str | None = None
    environ: Mapping[str, str] = field(default_factory=dict)
    file: Mapping[str, object] = field(default_factory=dict)
    file_name: str = "pgtrickle.toml"

    def load(
        self, database: Mapping[str, tuple[str, str]] | None = None, *, previous: Settings | None = None
    ) -> Loaded:
        """Merges the sources. `database` has (value, one of DATABASE_ORIGINS) by name without its prefix.

        Invalid values in flags, environment or file raise an error: the user who starts pgtrickle can fix them. An
        invalid value in a database becomes a problem, and `previous` or the default stays in effect, so that one
        database cannot stop the others.
        """
        values: dict[str, Any] = {}
        origins: dict[str, str] = {}
        conf: dict[str, str] = {}
        problems: list[SettingProblem] = []
        for name, (value, origin) in (database or {}).items():
            try:
                where = f"{DATABASE_PREFIX}{name}, {origin}"
                if (origin == OPTION and _scope(name) == HOST) or is_secret(name):
                    raise ConfigError(
                        f"{name} ({where}) cannot be set in a database: it concerns the machine that runs pgtrickle",
                        hint="use an environment variable, the TOML file or a flag",
                    )
                _take(values, origins, conf, origin, name, where, value)
            except ConfigError as error:
                problems.append(SettingProblem(name, shown_value(name, value), origin, error.one_line()))
                if previous is not None and name in Settings.__dataclass_fields__:
                    values[name], origins[name] = getattr(previous, name), "previous"
        for origin, given in self._outside():  # lowest precedence first
            for name, where, said in given:
                if origin == "flag" and is_secret(name) and said:
                    raise ConfigError(f"{where} is visible to other users", hint="use the environment or the TOML file")
                _take(values, origins, conf, origin, name, where, said)
        if conf:
            values["spark_conf"] = MappingProxyType(conf)
        named = {f.name: origins.get(f.name, "default") for f in fields(Settings)}
        return Loaded(Settings(**values), MappingProxyType(named), tuple(problems))

    def _outside(self) -> Iterator[tuple[str, list[tuple[str, str, object]]]]:
        if self.profile is not None and self.profile not in PROFILES:
            raise ConfigError(f"unknown profile {self.profile}", hint=f"the profiles are {', '.join(PROFILES)}")
        profile = PROFILES[self.profile] if self.profile is not None else {}
        environ = _from_environment(self.environ)
        yield "file", [(name, f"{name} in {self.file_name}", value) for name, value in self.file.items()]
        yield "env", [(name, ENV_PREFIX + name.upper(), value) for name, value in environ.items()]
        yield "profile", [(name, f"--profile {self.profile}", value) for name, value in profile.items()]
        yield "flag", [(name, f"--set {name}", value) for name, value in self.flags.items()]


def _take(
    values: dict[str, Any],
    origins: dict[str, str],
    conf: dict[str, str],
    origin: str,
    given: str,
    where: str,
    value: object,
) -> None:
    name, _, key = given.partition(".")
    name = ALIASES.get(name, name)
    if name == "spark_conf":
        conf.update({key: str(value)} if key else _conf(value, where))
    else:
        values[name] = _check(name if not key else given, value, where)
    origins[name] = origin


def _scope(given: str) -> str | None:
    name = given.partition(".")[0]
    found = Settings.__dataclass_fields__.get(ALIASES.get(name, name))
    return None if found is None else str(found.metadata["scope"])


def is_secret(name: str) -> bool:
    found = Settings.__dataclass_fields__.get(name)
    return found is not None and bool(found.metadata["is_secret"])


def shown_value(name: str, value: Any) -> Any:
    """Without secrets, tokens in URLs, and the settings that Spark itself redacts."""
    if isinstance(value, Mapping):
        return {key: "***" if _SECRET.search(key) else shown_value(name, text) for key, text in value.items()}
    if is_secret(name) and value:
        return "***"
    return redact(value) if isinstance(value, str) else value


def set_outside(loaded: Loaded) -> dict[str, dict[str, str]]:
    """Value and origin, as texts, of the settings that pgtrickle was started with and that databases may see."""
    found = {}
    for name, origin in loaded.origins.items():
        if origin in OUTSIDE_ORIGINS and _scope(name) != HOST and not is_secret(name):
            found[name] = {"value": _text(getattr(loaded.settings, name)), "origin": origin}
    return found


def _text(value: object) -> str:
    if isinstance(value, bool):
        return "on" if value else "off"
    return f"{value:g}" if isinstance(value, float) else str(value)


def describe() -> list[dict[str, Any]]:
    """Every setting with its default, range and documentation."""
    rows = []
    for f in fields(Settings):
        default = f.default_factory() if f.default_factory is not MISSING else f.default
        rows.append({"name": f.name, "default": default, "range": _range(f.metadata), **f.metadata})
    return rows


def _from_environment(environ: Mapping[str, str]) -> dict[str, str]:
    found = {}
    for variable, value in environ.items():
        if variable.startswith(ENV_PREFIX) and variable.removeprefix(ENV_PREFIX) not in COMMAND_VARIABLES:
            found[variable.removeprefix(ENV_PREFIX).lower()] = value
    return found


def _range(metadata: Mapping[str, Any]) -> str:
    if metadata["choices"]:
        return ", ".join(metadata["choices"])
    if metadata["kind"] is bool:
        return "on, off"
    low, high = metadata["low"], metadata["high"]
    if low is None:
        return ""
    return f"{low}..{high}" if high is not None else f"{low} or more"


def _check(name: str, value: object, where: str) -> Any:
    known = {f.name: f.metadata for f in fields(Settings)}
    metadata = known.get(name)
    if metadata is None:
        near = difflib.get_close_matches(name, [*known, *ALIASES], n=1)
        hint = f"did you mean {near[0]}?" if near else "pgtrickle config lists all settings"
        raise ConfigError(f"unknown setting {name} ({where})", hint=hint)
    bad = ConfigError(
        f"{name} = {value} ({where}) is not valid", hint=f"it must be {_range(metadata) or metadata['kind'].__name__}"
    )
    kind = metadata["kind"]
    if kind is str:
        text = str(value)
        if metadata["choices"]:
            text = text.lower() if isinstance(value, str) else {True: "on", False: "off"}.get(value is True, text)
            if text not in metadata["choices"]:
                raise bad
        return text
    if kind is bool:
        text = str(value).lower()
        if text not in _TRUE | _FALSE:
            raise bad
        return text in _TRUE
    if isinstance(value, bool):
        raise bad
    try:
        number = kind(value if isinstance(value, int | float) and kind is float else str(value))
    except ValueError:
        raise bad from None
    low, high = metadata["low"], metadata["high"]
    # In this form, NaN is out of range.
    if not ((low is None or number >= low) and (high is None or number <= high)):
        raise ConfigError(f"{name} = {value} ({where}) is out of range", hint=f"it must be {_range(metadata)}")
    return number


def _conf(value: object, where: str) -> dict[str, str]:
    """`spark_conf` as a table, or as name=value pairs separated by semicolons."""
    if isinstance(value, Mapping):
        return {str(k): str(v) for k, v in value.items()}
    pairs = [pair.partition("=") for pair in str(value).split(";") if pair.strip()]
    if any(not equals or not key.strip() for key, equals, _ in pairs):
        raise ConfigError(f"spark_conf ({where}) is not valid", hint="write name=value;name=value")
    return {key.strip(): text.strip() for key, _, text in pairs}
