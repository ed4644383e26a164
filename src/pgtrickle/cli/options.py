"""Global options and the settings that follow from them."""

from __future__ import annotations

import os
import tomllib
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

from pgtrickle.errors import ConfigError
from pgtrickle.settings import Loaded, load

if TYPE_CHECKING:
    from pgtrickle.db.connect import Connection


@dataclass(slots=True)
class Options:
    """What stands before the command's name."""

    config: Path | None = None
    flags: dict[str, object] = field(default_factory=dict)

    def load(self, connection: Connection | None = None, **flags: object) -> Loaded:
        """All sources merged; the database's own settings only when there is a connection."""
        database = None
        if connection is not None:
            from pgtrickle.runtime.configure import database_settings

            database = database_settings(connection)
        given = {**self.flags, **{name: value for name, value in flags.items() if value is not None}}
        return load(
            flags=given,
            environ=os.environ,
            file=read_file(self.config) if self.config else None,
            file_name=str(self.config),
            database=database,
        )


def read_file(path: Path) -> dict[str, object]:
    try:
        return tomllib.loads(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise ConfigError(f"cannot read {path}: {error.strerror}", hint="see --config and PGTRICKLE_CONFIG") from error
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise ConfigError(f"{path} is not valid TOML: {error}") from error


def parse_assignments(pairs: list[str]) -> dict[str, object]:
    """`--set name=value`."""
    flags: dict[str, object] = {}
    for pair in pairs:
        name, equals, value = pair.partition("=")
        if not equals:
            raise ConfigError(f"--set {pair} has no value", hint="write --set name=value")
        flags[name.strip()] = value.strip()
    return flags
