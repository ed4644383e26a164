"""The settings of one database: what it says itself, under what pgtrickle was started with."""

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
    """(value, origin) of what the database says, as a session has it that begins now; `connection` is such a one."""
    return read_settings(connection, options=has_options(connection), further=names_in_files(connection)).winners()


def find_pooler(dsn: str, sources: Sources) -> str:
    """connection_pooler_mode of a database, asked in a way that is right behind any pooler."""
    given = sources.load()
    if given.origins["connection_pooler_mode"] != "default":
        return given.settings.connection_pooler_mode
    with connect(dsn, role="settings", pooler=TRANSACTION) as conn:
        said = read_settings(conn, options=has_options(conn))
    return sources.load(said.winners()).settings.connection_pooler_mode


def report(loaded: Loaded, *, database: str, before: Loaded | None = None) -> None:
    """Logs what is wrong in a database's settings, once, and what has changed."""
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
    """Notices changed settings from a session that stays open: one cheap statement per look.

    A session goes on seeing what was stored for it when it began. What is stored now is read from the catalog instead.
    When something stored is taken away, the server's own value comes back, and only another session can tell it: one is
    opened for that moment, and again whenever the server's files are read anew.
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

    def look(self, connection: Connection) -> Loaded:
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
        """Behind a pooler each look may be another session's, and an older one may still have what was stored when it
        began. The server's own values are those of the latest that was seen, so that they do not go to and fro."""
        if self._seen is None or said.as_of >= self._seen.as_of:
            self._seen = said
            return said
        return said.with_server(frozenset(said.values) | frozenset(self._seen.values), self._seen)

    def _ask(self, hidden: frozenset[str], files_read_at: str) -> StoredSettings:
        """What a new session sees, kept while it cannot have changed."""
        if self._asked is not None and self._asked[:2] == (hidden, files_read_at):
            return self._asked[2]
        with self.connect() as fresh:
            other = read_settings(fresh, options=False)
        # Stored again this moment: then this is not the server's own value, and good for one look only.
        self._asked = None if hidden & other.stored() else (hidden, files_read_at, other)
        return other
