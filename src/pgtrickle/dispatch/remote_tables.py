"""Stream tables over replicas of other databases: prepared at their origins, and refreshed at a snapshot of each."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import ExitStack, suppress
from functools import partial
from typing import TYPE_CHECKING

from pgtrickle.capture.fingerprint import fingerprints_for_others
from pgtrickle.db import catalog
from pgtrickle.db.connect import begin, translated
from pgtrickle.db.discover import origin_dsn, server_label
from pgtrickle.db.statements import statement
from pgtrickle.define.prepare import MirrorReader, capture_source, register_reader, same_types
from pgtrickle.dispatch.replica_advancer import ReplicaAdvancer
from pgtrickle.errors import PgtrickleError
from pgtrickle.mirror.remote import OriginAt, RemoteRefresher
from pgtrickle.model.catalog import Mirror, RemoteSource, StreamTable
from pgtrickle.model.fingerprint import unchanged
from pgtrickle.model.flow import Cut, Frontier
from pgtrickle.model.reasons import Reason, ReasonCode, named
from pgtrickle.origin.changes import known_readings, note_reading, positions
from pgtrickle.origin.sessions import OriginSessions
from pgtrickle.refresh.job import Outcome
from pgtrickle.refresh.spark_load import needed_together
from pgtrickle.refresh.spark_query import SparkQuery, located

if TYPE_CHECKING:
    from pgtrickle.db.connect import Connection
    from pgtrickle.replica import ReplicaStore

# Creates the refresher of a worker, over its connections, for sessions at the origins.
MakeRefresher = Callable[[dict[str, OriginAt], str], RemoteRefresher]


class RemoteTables:
    """Shared by the workers of a database."""

    def __init__(self, dsn: str, origins: OriginSessions) -> None:
        self._dsn = dsn
        self._origins = origins
        self._reader: MirrorReader | None = None
        self._advancers: dict[str, ReplicaAdvancer] = {}  # by origin

    def prepare(
        self, home: Connection, table: StreamTable, query: SparkQuery, store: ReplicaStore, setting: str
    ) -> None:
        """Registers it at the origins of its sources, where they are captured and their replicas are built.

        It is registered first, so that a buffer or a replica is not dropped before the load. Raises OriginAwayError if
        an origin does not answer, and an error that stops the table if a source is not as it was defined.
        """
        reader, found = self._as_reader(home), dict[int, str | None]()
        inputs = {each.need.relid: each for each in query.inputs.values()}
        mirrors = {t.pgt_id: t for t in catalog.load_stream_tables(home, [r.mirror_id for r in table.remotes])}
        for remote in table.remotes:
            mirror = remote.mirror
            with self._origins.session(self._dsn, mirror) as conn, translated():
                same_types(conn, mirrors[remote.mirror_id], mirror)
                register_reader(conn, reader, remote.mirror_id, mirror)
                found[remote.mirror_id] = capture_source(
                    conn, mirror.relid, frozenset(mirror.columns), fingerprints_for_others
                )
                if (source := inputs.get(remote.relid)) is not None:
                    store.ensure(conn, needed_together(conn, located(source, remote).need, setting))
        self._expect(home, table, found)

    def _expect(self, home: Connection, table: StreamTable, found: dict[int, str | None]) -> None:
        """Stores the fingerprints. One that differs from that of the content has it loaded again."""
        changed = [
            r for r in table.remotes if not unchanged(r.mirror.fingerprint, found[r.mirror_id], r.mirror.columns)
        ]
        if not changed:
            return
        with translated(), home.transaction():
            if table.is_populated:
                reason = named(Reason.of(ReasonCode.SOURCE_CHANGED))
                home.execute(statement("reinit_marked"), {"id": table.pgt_id, **reason})
            ids = [remote.mirror_id for remote in changed]
            home.execute(statement("mirror_fingerprints"), {"ids": ids, "fingerprints": [found[i] for i in ids]})

    def refresh(self, home: Connection, table: StreamTable, make: MakeRefresher) -> list[Outcome]:
        """Raises OriginAwayError if an origin does not answer: the table waits, and others do not."""
        reader = self._as_reader(home)
        with ExitStack() as stack:
            at = {key: self._at(stack, remote.mirror, table) for key, remote in _by_origin(table).items()}
            outcomes = make(at, reader.key).wave([table.pgt_id])
            cuts = {key: each.moment.cut for key, each in at.items()}
        if all(outcome.error is None for outcome in outcomes):
            self._report(home, table, reader, cuts)
        return outcomes

    def _at(self, stack: ExitStack, mirror: Mirror, table: StreamTable) -> OriginAt:
        conn = stack.enter_context(self._origins.session(self._dsn, mirror))
        with translated():
            begin(conn, "ISOLATION LEVEL REPEATABLE READ READ ONLY")
            moment = catalog.read_moment(conn)
            readings = known_readings(conn, [Frontier.reading_at(table.frontier, mirror.key)])
            return OriginAt(conn, moment, positions(conn), readings, partial(self._note, mirror, moment.cut))

    def _note(self, mirror: Mirror, cut: Cut) -> str:
        """Over another session: that of the snapshot only reads."""
        with self._origins.session(self._dsn, mirror) as origin:
            return note_reading(origin, cut)

    def _report(self, home: Connection, table: StreamTable, reader: MirrorReader, cuts: dict[str, Cut]) -> None:
        """Reports the committed cuts to the origins, so that buffers can be trimmed; retried if that fails."""
        with translated():
            (stored,) = catalog.load_stream_tables(home, [table.pgt_id]) or (None,)
        if stored is None:
            return
        for key, remote in _by_origin(table).items():
            if Frontier.cut_at(stored.frontier, key) != cuts[key]:
                continue  # without changes nothing was committed
            ids = [r.mirror_id for r in table.remotes if r.key == key]
            self._origins.note(key, reader.key, ids, cuts[key])
            with suppress(PgtrickleError), self._origins.session(self._dsn, remote.mirror) as conn:
                self._origins.tell(conn, key)

    def advance(self, table: StreamTable, store: ReplicaStore) -> None:
        """Advances replicas at its origins in the background if they are due: no worker may serve those databases."""
        for key, remote in _by_origin(table).items():
            mirror = remote.mirror
            with suppress(PgtrickleError), self._origins.session(self._dsn, mirror) as conn:
                if key not in self._advancers:
                    dsn = origin_dsn(self._dsn, self._origins.servers, mirror.server, mirror.database)
                    self._advancers[key] = ReplicaAdvancer(mirror.database, dsn)
                self._advancers[key].advance_due(conn, store)

    def _as_reader(self, home: Connection) -> MirrorReader:
        if self._reader is None:
            with translated():
                instance = catalog.read_moment(home).instance
            self._reader = MirrorReader(instance.key, server_label(self._dsn), home.info.dbname)
        return self._reader


def _by_origin(table: StreamTable) -> dict[str, RemoteSource]:
    """One source of each origin."""
    return {remote.key: remote for remote in reversed(table.remotes)}
