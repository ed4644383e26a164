"""SQL of the package, by name. Each query file opens with a comment: what it does, its parameters and its result."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from functools import cache
from importlib.resources import files
from importlib.resources.abc import Traversable

from pgtrickle.errors import InvariantError

# The scripts of sql/install, in the order in which they run: tables before the functions that use their row types,
# functions before the views and default values that call them, privileges after the objects that they are granted on.
INSTALL_ORDER = (
    "catalog/schemas",
    "catalog/stream_tables",
    "catalog/control",
    "catalog/mirrors",
    "catalog/subscribers",
    "catalog/definitions",
    "catalog/settings",
    "catalog/replicas",
    "reasons/reasons",
    "names/names",
    "names/session",
    "names/texts",
    "trust/inspect",
    "trust/trust",
    "trust/hold",
    "define/cycles",
    "define/partitions",
    "define/define",
    "define/paths",
    "mirrors/mirrors",
    "mirrors/definitions",
    "mirrors/shared_sources",
    "define/lifecycle",
    "define/requests",
    "define/protect",
    "capture/triggers",
    "define/plans",
    "settings/options",
    "status/visible",
    "status/due",
    "status/status",
    "status/loads",
    "feeds/readers",
    "status/replicas",
    "feeds/publications",
    "feeds/feeds",
    "define/restored",
    "status/graph",
    "status/workers",
    "define/groups",
    "status/health",
    "status/costs",
    "capture/broker",
    "define/applied",
    "privileges",
)


def statement(name: str) -> str:
    """The statement in sql/queries/<stage>/<name>.sql; names are unique across stages."""
    try:
        text = _queries()[name]
    except KeyError:
        raise InvariantError(f"no SQL statement named {name}") from None
    if not text.startswith("--"):
        raise InvariantError(f"SQL statement {name} has no header comment")
    return text


def install_scripts() -> list[str]:
    """The texts of the install scripts, in their order."""
    folder = _sql("install")
    return [folder.joinpath(f"{name}.sql").read_text(encoding="utf-8") for name in INSTALL_ORDER]


def migrations(since: int, stage: str) -> list[str]:
    """The texts of sql/migrations/<version>_<subject>_<stage>.sql above a version, in the order of their names."""
    found = [f for f in _sql_files(_sql("migrations")) if f.name.endswith(f"_{stage}.sql")]
    later = [f for f in found if int(f.name.split("_", 1)[0]) > since]
    return [f.read_text(encoding="utf-8") for f in sorted(later, key=lambda f: f.name)]


@cache
def _queries() -> Mapping[str, str]:
    found: dict[str, str] = {}
    for file in _sql_files(_sql("queries")):
        name = file.name.removesuffix(".sql")
        if name in found:
            raise InvariantError(f"two SQL statements are named {name}")
        found[name] = file.read_text(encoding="utf-8")
    return found


def _sql(folder: str) -> Traversable:
    return files("pgtrickle.db").joinpath("sql", folder)


def _sql_files(folder: Traversable) -> Iterator[Traversable]:
    for entry in folder.iterdir():
        if entry.is_dir():
            yield from _sql_files(entry)
        elif entry.name.endswith(".sql"):
            yield entry
