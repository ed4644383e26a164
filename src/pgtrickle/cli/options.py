"""Global options and the settings that follow from them."""

from __future__ import annotations

import os
import tomllib
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

from pgtrickle.errors import ConfigError
from pgtrickle.settings import ENV_PREFIX, Loaded, Sources

if TYPE_CHECKING:
    from pgtrickle.db.connect import Connection


@dataclass(slots=True)
class Options:
    """The global options, which precede the name of the command."""

    config: Path | None = None
    profile: str | None = None
    flags: dict[str, object] = field(default_factory=dict)

    def sources(self, **flags: object) -> Sources:
        """All sources except databases; a flag that is None was not given."""
        return Sources(
            flags={**self.flags, **{name: value for name, value in flags.items() if value is not None}},
            profile=self.profile,
            environ={name: value for name, value in os.environ.items() if name.startswith(ENV_PREFIX)},
            file=read_file(self.config) if self.config else {},
            file_name=str(self.config),
        )

    def load(self, connection: Connection | None = None, **flags: object) -> Loaded:
        """All sources merged; the settings of a database only if there is a connection to it."""
        sources = self.sources(**flags)
        if connection is None:
            return sources.load()
        from pgtrickle.db.database_settings import current_settings

        return sources.load(current_settings(connection))


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


options = Options()
