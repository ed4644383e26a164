"""The settings of one database: its own values, overridden by the configuration of pgtrickle."""

from __future__ import annotations

import logging
from collections.abc import Callable
from dataclasses import fields
from typing import TYPE_CHECKING

from pgtrickle.db.connect import TRANSACTION, connect, pooler_of
from pgtrickle.db.settings import StoredSettings, has_options, names_in_files, read_settings
from pgtrickle.settings import Loaded, Settings, Sources
from pgtrickle.telemetry import SETTING_CHANGED, SETTING_REFUSED, event

if TYPE_CHECKING:
    from pgtrickle.db.connect import Connection

log = logging.getLogger(__name__)


def current_settings(connection: Connection) -> dict[str, tuple[str, str]]:
    """(value, origin) of the settings in the database, as a new session sees them; `connection` is a new session."""
    return read_settings(connection, options=has_options(connection), further=names_in_files(connection)).winners()


def find_pooler(dsn: str, sources: Sources) -> str:
    """connection_pooler_mode of a database, queried in a way that works behind any pooler."""
    given = sources.load()
    if given.origins["connection_pooler_mode"] != "default":
        return given.settings.connection_pooler_mode
    with connect(dsn, role="settings", pooler=TRANSACTION) as conn:
        said = read_settings(conn, options=has_options(conn))
    return sources.load(said.winners()).settings.connection_pooler_mode


def report(loaded: Loaded, *, database: str, before: Loaded | None = None) -> None:
    """Logs invalid settings of a database once, and changed settings."""
    known = set(before.problems) if before is not None else set()
    for problem in loaded.problems:
        if problem not in known:
            log.warning(
                "An invalid setting of the database was ignored",
                extra=event(SETTING_REFUSED, database=database, name=problem.name, detail=problem.message),
            )
    if before is None:
        return
    for name in (f.name for f in fields(Settings)):
        value, old = getattr(loaded.settings, name), getattr(before.settings, name)
        if value != old:
            log.info(
                "A setting was changed",
                extra=event(
                    SETTING_CHANGED, database=database, name=name, value=value, old=old, origin=loaded.origins[name]
                ),
            )


class SettingsWatch:
    """Detects changed settings from a session that stays open, by one cheap statement per check.

    A session keeps the values that were stored when it began. Current values are read from the catalog instead.
    When a stored value is removed, the server's own value applies, and only a new session shows it: one is
    opened for this, and whenever the server's configuration files are reloaded.
    """

    def __init__(self, database: str, sources: Sources, connect: Callable[[], Connection]) -> None:
        self.database = database
        self.sources = sources
        self.connect = connect
        self.loaded: Loaded | None = None
        self._session: Connection | None = None
        self._options = False
        self._born: frozenset[str] = frozenset()
        self._said: dict[str, tuple[str, str]] = {}
        self._asked: tuple[frozenset[str], str, StoredSettings] | None = None
        self._seen: StoredSettings | None = None

    def read(self, connection: Connection) -> Loaded:
        """The settings as they are now. Wrong values are logged, listed in `problems`, and change nothing."""
        begins = connection is not self._session
        if begins:
            self._options = has_options(connection)
        said = read_settings(connection, options=self._options)
        if begins:
            self._session, self._born, self._asked = connection, said.stored(), None
        is_pooled = pooler_of(connection) == TRANSACTION
        if is_pooled:
            said = self._latest(said)
        hidden = self._born - said.stored() if not is_pooled else frozenset()
        if hidden:
            said = said.with_server(hidden, self._ask(hidden, said.files_read_at))
        else:
            self._asked = None
        winners = said.winners()
        if self.loaded is None or winners != self._said:
            before = self.loaded
            self.loaded = self.sources.load(winners, previous=before.settings if before is not None else None)
            self._said = winners
            report(self.loaded, database=self.database, before=before)
        return self.loaded

    def _latest(self, said: StoredSettings) -> StoredSettings:
        """Behind a pooler each check may use another session, and an older one may still have the values that were
        stored when it began. The server's own values are those of the latest session, so that they do not alternate."""
        if self._seen is None or said.as_of >= self._seen.as_of:
            self._seen = said
            return said
        return said.with_server(frozenset(said.values) | frozenset(self._seen.values), self._seen)

    def _ask(self, hidden: frozenset[str], files_read_at: str) -> StoredSettings:
        """What a new session sees, cached while it cannot have changed."""
        if self._asked is not None and self._asked[:2] == (hidden, files_read_at):
            return self._asked[2]
        with self.connect() as fresh:
            other = read_settings(fresh, options=False)
        # Stored again in between: then this is not the server's own value, and valid for one check only.
        self._asked = None if hidden & other.stored() else (hidden, files_read_at, other)
        return other
