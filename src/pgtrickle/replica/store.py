"""The replicas of a fleet: opened, built, advanced, compared and dropped."""

from __future__ import annotations

import logging
from collections.abc import Collection, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING

from pgtrickle.capture.fingerprint import fingerprints_for_others
from pgtrickle.capture.install import ensure_capture
from pgtrickle.db import catalog, statement, translated
from pgtrickle.db.connect import begin
from pgtrickle.db.handover import hand_over
from pgtrickle.errors import (
    DefinitionError,
    PgtrickleError,
    ReplicaUnavailableError,
    SourceChangedError,
    TransientError,
    UnfitValueError,
)
from pgtrickle.model.fingerprint import unchanged
from pgtrickle.model.flow import Cut, Position, Window
from pgtrickle.model.identifiers import buffer_name, qualified
from pgtrickle.pipeline.relational.computed import columns_read
from pgtrickle.replica import advance as advancing
from pgtrickle.replica import build as building
from pgtrickle.replica import files, layers, log, rows
from pgtrickle.replica.columns import Layout, key_of, layout
from pgtrickle.replica.drop import drop
from pgtrickle.replica.netting import net
from pgtrickle.replica.roots import Root, storage_of
from pgtrickle.replica.states import TableStates, states
from pgtrickle.replica.storage import FileChecker, Storage
from pgtrickle.replica.values import CatalogRow, Computed, DamagedError, ReplicaId, ReplicaNeed, ReplicaVersion
from pgtrickle.replica.window import WINDOW, read_window, rendered_alike
from pgtrickle.telemetry import REPLICA_ADVANCED, REPLICA_BUILT, event

if TYPE_CHECKING:
    from pgtrickle.db.connect import Connection
    from pgtrickle.model.catalog import Relation
    from pgtrickle.pipeline.engine.columnar import Frame, Session
    from pgtrickle.pipeline.engine.spark import SparkEngine

log_ = logging.getLogger(__name__)

# A refresh on Spark reads the changes since its replicas' cuts; below these limits that costs less than an advance.
DUE_SHARE, DUE_ROWS, DUE_SECONDS = 0.05, 10_000, 600.0

MOST_STEPS_BACK = 8  # versions that were committed since the snapshot of a transaction


@dataclass(frozen=True, slots=True)
class Comparison:
    """A replica at a cut, compared with the table at the same cut."""

    rows: int
    missing: int  # rows that only the table has
    extra: int  # rows that only the replica has

    @property
    def ok(self) -> bool:
        return not self.missing and not self.extra


class ReplicaStore:
    """Thread-safe."""

    def __init__(self, root: Root, engine: SparkEngine) -> None:
        self.root = root
        self._engine = engine
        self._checker = FileChecker()
        self._refused: dict[ReplicaId, tuple[str, str]] = {}  # token of an unusable version, and the reason

    @property
    def _storage(self) -> Storage:
        """Raises ConfigError if the root cannot be one."""
        return storage_of(self.root)

    def open(self, conn: Connection, need: ReplicaNeed) -> ReplicaVersion:
        """The latest version that a reader can use now. Raises ReplicaUnavailableError with the reason.

        In a REPEATABLE READ transaction, the version is not later than its snapshot.
        """
        try:
            return self._usable(conn, need)[0]
        except DamagedError as error:
            raise ReplicaUnavailableError(f"the replica of table {need.relid} cannot be used: {error}") from error

    def ensure(
        self, conn: Connection, need: ReplicaNeed, *, reader: int | None = None, requested: bool = False
    ) -> ReplicaVersion:
        """The replica with at least these columns; it is built if no usable one exists. `conn` is idle."""
        try:
            version, row = self._usable(conn, need)
        except DamagedError as error:
            return self._build(conn, need, str(error), reader, requested)
        if version.token != row.committed and not rows.record(conn, version):
            return self._build(conn, need, "its changes were compacted", reader, requested)
        if reader is not None and reader not in row.readers:
            self.read_by(conn, need.relid, reader, reads=True)
        if requested and not row.is_requested:
            with translated():
                conn.execute(statement("request_replica"), {"relid": need.relid})
        return version

    @contextmanager
    def at_cut(
        self, spark: Session, conn: Connection, version: ReplicaVersion, used: Collection[str] | None = None
    ) -> Iterator[Frame]:
        """The table at the snapshot of `conn`, which is in a REPEATABLE READ transaction. `used`: names of the columns
        that the caller will use; None: all.

        The DataFrame can be used until the block ends. Raises ReplicaUnavailableError if the replica cannot be used at
        this cut: the table was altered or truncated, or has a value without columnar representation. The next `ensure`
        builds it again.
        """
        from pgtrickle.pipeline.engine import columnar

        storage = self._storage
        staged = storage.staging(version.directory)
        try:
            chosen, window = self._window(conn, version)
            window_read = read_window(conn, chosen, window, storage, f"{staged}/{WINDOW}")
            read = layers.with_layers(storage, version, window_read)
            shape = storage.used_columns(building.shape_of(version), used)
            base = columnar.stored(spark, version.base_paths, shape, storage.scan)
            if not read.rows:
                yield base
            else:
                yield columnar.changed(base, net(spark, storage, read, shape, staged).frame(spark), shape)
        except (DamagedError, UnfitValueError) as error:
            raise ReplicaUnavailableError(
                f"the replica of table {version.id.relid} cannot be used: {self._refuse(version, error)}"
            ) from error
        finally:
            storage.discard(staged)

    @contextmanager
    def between(
        self, spark: Session, conn: Connection, version: ReplicaVersion, since: Cut | None, used: Collection[str]
    ) -> Iterator[TableStates]:
        """The table at the cut `since` and at the snapshot of `conn`, and the changes of the columns `used` between
        both. `since` None: no changes. Otherwise like `at_cut`; the replica may be before or after `since`."""
        from pgtrickle.pipeline.engine import columnar

        storage = self._storage
        staged = storage.staging(version.directory)
        try:
            chosen, window = self._window(conn, version)
            read = read_window(conn, chosen, window, storage, f"{staged}/{WINDOW}")
            changes = None if since is None else read
            if since is not None and since != version.cut:
                changes = read_window(conn, chosen, Window(since, window.upto), storage, f"{staged}/since_{WINDOW}")
            shape = storage.used_columns(building.shape_of(version), used)
            base = columnar.stored(spark, version.base_paths, shape, storage.scan)
            later = layers.with_layers(storage, version, read)
            yield states(spark, storage, base, shape, later, changes, used, staged)
        except (DamagedError, UnfitValueError) as error:
            raise ReplicaUnavailableError(
                f"the replica of table {version.id.relid} cannot be used: {self._refuse(version, error)}"
            ) from error
        finally:
            storage.discard(staged)

    def pending(self, conn: Connection, version: ReplicaVersion) -> int:
        """Changes that the replica does not contain."""
        with translated():
            window = Window(version.cut, catalog.read_moment(conn).cut)
            buffer = buffer_name(version.id.relid)
            row = conn.execute(f"SELECT count(*) FROM {buffer} AS b WHERE {window.predicate('b.xid')}").fetchone()
        return 0 if row is None else int(row[0])

    def due(self, conn: Connection) -> list[int]:
        """Sources whose replicas should advance, because their pending changes are many or old."""
        params = {"share": DUE_SHARE, "rows": DUE_ROWS, "seconds": DUE_SECONDS}
        with translated():
            return [row[0] for row in conn.execute(statement("replicas_due"), params).fetchall()]

    def advance(self, conn: Connection, relid: int) -> ReplicaVersion:
        """Advances the replica to the current cut; builds it again if that is impossible. `conn` is idle."""
        need = self._known_need(conn, relid)
        version: ReplicaVersion | None = None
        try:
            with rows.changing(conn, relid) as writer:
                version, row = self._usable(conn, need)
                if version.token != row.committed and not rows.record(conn, version):
                    raise DamagedError("its changes were compacted")
                advanced = self._advance(conn, writer, version)
        except (DamagedError, UnfitValueError) as error:
            why = str(error) if version is None else self._refuse(version, error)
            return self._build(conn, need, why, None, requested=False)
        self._sweep(advanced)
        return advanced

    def drop(self, conn: Connection, relid: int) -> bool:
        """Removes the replica, its files at once. False: there was none. `conn` is idle."""
        return drop(conn, self.root, relid)

    def read_by(self, conn: Connection, relid: int, pgt_id: int, *, reads: bool) -> None:
        """Records that a stream table reads a replica, or no longer does."""
        with translated():
            conn.execute(statement("replica_read_by"), {"relid": relid, "pgt_id": pgt_id, "reads": reads})

    def verify(self, conn: Connection, relid: int) -> Comparison:
        """Compares the replica with its changes with the table, in both directions, at one snapshot. `conn` is idle."""
        from pgtrickle.pipeline.engine import columnar

        version = self.open(conn, self._known_need(conn, relid))
        with translated():
            begin(conn, "ISOLATION LEVEL REPEATABLE READ READ ONLY")
        try:
            with (
                rendered_alike(conn),
                self._engine.bulk_session() as spark,
                self.at_cut(spark, conn, version) as frame,
            ):
                chosen, _ = self._window(conn, version)
                statements = building.parts_of(conn, self._engine, chosen)
                shape = building.shape_of(version)
                table = columnar.table(spark, columnar.TableRead(hand_over(conn), statements), shape)
                missing, extra = columnar.difference(table, frame, shape)
        finally:
            conn.rollback()
        return Comparison(version.rows, missing, extra)

    def _build(
        self, conn: Connection, need: ReplicaNeed, why: str, reader: int | None, requested: bool
    ) -> ReplicaVersion:
        with translated():
            relation = _relation(conn, need.relid)
            row = rows.find(conn, need.relid)
        plan = _plan(conn, need, relation, row, reader, requested)
        ensure_capture(conn, need.relid, plan.attnums)
        with rows.changing(conn, need.relid) as writer:
            try:
                version, _ = self._usable(conn, need)  # another process may have built it meanwhile
            except DamagedError:
                try:
                    version = building.build(conn, writer, self._engine, self._storage, plan)
                except PgtrickleError as error:
                    with suppress(TransientError):  # the session may be the problem
                        rows.fail(conn, need.relid, error.one_line())
                    raise
        if row is not None:
            self._remove_generations(version)
        log_.info(
            "Built a replica",
            extra=event(REPLICA_BUILT, table=relation.name, reason=why, rows=version.rows, bytes=version.bytes),
        )
        return version

    def _advance(self, conn: Connection, writer: Connection, version: ReplicaVersion) -> ReplicaVersion:
        token = advancing.new_token()
        rows.announce(conn, version, token)
        with translated():
            begin(conn, "ISOLATION LEVEL REPEATABLE READ READ ONLY")
        try:
            chosen, window = self._window(conn, version)
            fingerprint = fingerprints_for_others(conn, [version.id.relid])[version.id.relid]
            latest = advancing.advance(
                conn, writer, self._engine, self._storage, version, chosen, window, token, fingerprint
            )
        finally:
            conn.rollback()
        log_.info(
            "Advanced a replica",
            extra=event(REPLICA_ADVANCED, table=version.id.relid, rows=latest.rows, version=latest.version),
        )
        return latest

    def _usable(self, conn: Connection, need: ReplicaNeed) -> tuple[ReplicaVersion, CatalogRow]:
        """Raises DamagedError with the reason why the replica has to be built."""
        with translated():
            row = rows.find(conn, need.relid)
            if row is None:
                raise DamagedError("there is none")
            moment = catalog.read_moment(conn)
            relation = _relation(conn, need.relid)
            fingerprint = fingerprints_for_others(conn, [need.relid]).get(need.relid)
        version, row = self._known_version(conn, ReplicaId(moment.instance, need.relid), row)
        token, why = self._refused.get(version.id, ("", ""))
        if version.token == token:
            raise DamagedError(why)
        _check_position(version, row)
        if not unchanged(version.fingerprint, fingerprint, version.attnums):
            raise DamagedError("the table was altered, or its server restored")
        if tuple(f"c{a}" for a in key_of(relation)) != version.key:
            raise DamagedError("the table has another key")
        if not version.has(_all_columns(need, relation)):
            raise DamagedError("it lacks columns that are needed")
        if not version.cut.precedes(moment.cut):
            raise DamagedError("its cut is later than this one, or of another server")
        self._checker.check(self._storage, version)
        return version, row

    def _known_version(self, conn: Connection, id_: ReplicaId, row: CatalogRow) -> tuple[ReplicaVersion, CatalogRow]:
        """The latest version that the database knows.

        In a transaction its row is as old as the snapshot, and a later version may have been committed; otherwise one
        may have been announced just now.
        """
        directory = f"{self._storage.location(id_)}/{row.generation}"
        version = log.load(self._storage, id_, directory, row.generation)
        if conn.info.transaction_status.name == "IDLE":
            if not row.knows(version.token):
                row = rows.find(conn, id_.relid) or row
        else:
            for _ in range(MOST_STEPS_BACK):
                if row.knows(version.token) or not version.version:
                    break
                version = log.load(self._storage, id_, directory, row.generation, version.version - 1)
        if not row.knows(version.token):
            raise DamagedError("its latest commit is unknown to the database")
        return version, row

    def _window(self, conn: Connection, version: ReplicaVersion) -> tuple[Layout, Window]:
        """The read of the changes since the version, in this transaction. Raises DamagedError."""
        with translated():
            moment = catalog.read_moment(conn)
            fingerprint = fingerprints_for_others(conn, [version.id.relid]).get(version.id.relid)
            if not unchanged(version.fingerprint, fingerprint, version.attnums):
                raise DamagedError("the table was altered, or its server restored")
            relation = _relation(conn, version.id.relid)
            row = rows.find(conn, version.id.relid)
        if row is None or row.generation != version.generation:
            raise DamagedError("it was dropped or built again")
        _check_position(version, row)
        with translated():
            computed = row.computed
            as_text = {c.name for c in version.columns if c.ddl == "string"}
            own = version.computed
            chosen = layout(conn, relation, version.attnums, [c for c in computed if c.name in own], as_text)
        if chosen.columns != version.columns or chosen.key != version.key:
            raise DamagedError("the table was altered")
        if not version.cut.precedes(moment.cut):
            raise DamagedError("its cut is later than this one, or of another server")
        return chosen, Window(version.cut, moment.cut)

    def _refuse(self, version: ReplicaVersion, error: DamagedError | UnfitValueError) -> str:
        """Records that a version is unusable for any later cut, so that it is built again. Returns the reason."""
        why = f"it must store column {error.column} as text" if isinstance(error, UnfitValueError) else str(error)
        self._refused[version.id] = (version.token, why)
        return why

    def _known_need(self, conn: Connection, relid: int) -> ReplicaNeed:
        row = rows.find(conn, relid)
        if row is None:
            raise ReplicaUnavailableError(f"table {relid} has no replica")
        return ReplicaNeed(relid, row.attnums, row.computed)

    def _sweep(self, version: ReplicaVersion) -> None:
        """Deletes the files that no version of the last hour contains, and those of killed processes."""
        unused = log.removable(self._storage, version.directory, files.GRACE_HOURS)
        self._storage.sweep(version, unused, files.GRACE_HOURS)

    def _remove_generations(self, version: ReplicaVersion) -> None:
        """Removes directories of earlier builds, except those of the last hour, which may still be read."""
        location = self._storage.location(version.id)
        self._storage.remove_old(location, {version.generation}, files.GRACE_HOURS)


def _check_position(version: ReplicaVersion, row: CatalogRow) -> None:
    """Raises DamagedError unless the buffer still contains all changes since the version."""
    if row.cut is not None and not row.cut.precedes(version.cut):
        raise DamagedError("its changes were trimmed")
    if row.cut is not None and not Position(row.cut, row.netted).allows(version.cut):
        raise DamagedError("its changes were compacted")


def _relation(conn: Connection, relid: int) -> Relation:
    relations = catalog.relations(conn, [relid])
    if not relations:
        raise SourceChangedError(f"table {relid} does not exist")
    return relations[0]


def _all_columns(need: ReplicaNeed, relation: Relation) -> ReplicaNeed:
    """The needed columns that the table still has, at least one."""
    present = frozenset(c.attnum for c in relation.columns)
    attnums = present if need.attnums is None else need.attnums & present
    return ReplicaNeed(need.relid, attnums or frozenset(sorted(present)[:1]), need.computed)


def _plan(
    conn: Connection,
    need: ReplicaNeed,
    relation: Relation,
    row: CatalogRow | None,
    reader: int | None,
    requested: bool,
) -> building.BuildPlan:
    """The union of what all readers need, including those of the existing replica."""
    need = _all_columns(need, relation)
    assert need.attnums is not None
    present = frozenset(c.attnum for c in relation.columns)
    known = {c.name: c for c in (*(() if row is None else row.computed), *need.computed)}
    computed = tuple(c for c in known.values() if _is_current(conn, relation, c))
    attnums = need.attnums | (frozenset() if row is None else row.attnums & present) | set(key_of(relation))
    attnums |= {a for c in computed for a in c.attnums}
    return building.BuildPlan(
        need.relid, attnums, computed, frozenset() if row is None else row.as_text, reader, requested
    )


def _is_current(conn: Connection, relation: Relation, column: Computed) -> bool:
    """Whether the expression still reads the columns that it was made for: one of another name or type would make
    every later build fail, for all readers."""
    names = frozenset(c.name for c in relation.columns if c.attnum in column.attnums)
    if columns_read(column.expression) != names:
        return False
    try:
        with translated(), conn.transaction():
            catalog.plan(conn, f"SELECT {column.expression} FROM {qualified(relation.schema, relation.name)} AS t")
    except DefinitionError:
        return False
    return True
