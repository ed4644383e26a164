"""The broker process: a thread and a connection per origin, which poll once for all schedulers."""

from __future__ import annotations

import logging
import secrets
import sys
import threading
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from pgtrickle.broker.ledger import Ledger
from pgtrickle.db.discover import origin_dsn
from pgtrickle.errors import PgtrickleError
from pgtrickle.ipc.registry import Interest, Registry, SourceStatus
from pgtrickle.ipc.wake_socket import bell_path, ring
from pgtrickle.origin.poll_session import BACKOFF_SECONDS, STATEMENT_SECONDS, OriginSession
from pgtrickle.process.parent import end_with_parent, stop_on_signals
from pgtrickle.settings import Sources
from pgtrickle.telemetry import BROKER_ORIGIN_LOST, event, set_up_logging

log = logging.getLogger(__name__)

LOOK_SECONDS = 0.2  # between two reads of the registered sources
ALIVE_SECONDS = 1.0  # between two checks for processes that have ended
HANG_SECONDS = 2.0 * STATEMENT_SECONDS


@dataclass(frozen=True, slots=True)
class BrokerTask:
    """Arguments from the launcher."""

    directory: Path
    sources: Sources
    servers: tuple[str, ...]


def registry_path(directory: Path) -> Path:
    return directory / "registry"


def main(task: BrokerTask) -> None:
    settings = task.sources.load().settings
    set_up_logging(settings.log_level, settings.log_format)
    end_with_parent()
    stop = threading.Event()
    stop_on_signals(stop)
    Broker(task.directory, task.sources, task.servers, stop).run()
    sys.exit(0)


class AnswerBook:
    """The position of each count in the registry. The threads of all origins write through it."""

    def __init__(self, registry: Registry) -> None:
        self._registry = registry
        self._lock = threading.Lock()
        self._positions: dict[tuple[str, int], int] = {}
        self._used = 0
        registry.write_answers({}, 0)  # counts of an earlier process

    def write(self, origin: str, answers: Mapping[int, SourceStatus]) -> None:
        """Replaces all counts of the origin."""
        with self._lock:
            changes: dict[int, SourceStatus | None] = {}
            for key in [k for k in self._positions if k[0] == origin and k[1] not in answers]:
                changes[self._positions.pop(key)] = None
            taken = set(self._positions.values())
            free = (p for p in range(len(taken) + len(answers)) if p not in taken)
            for relid, answer in answers.items():
                if (origin, relid) not in self._positions:
                    self._positions[origin, relid] = next(free)
                changes[self._positions[origin, relid]] = answer
            self._used = max(self._used, 1 + max(self._positions.values(), default=-1))
            self._registry.write_answers(changes, self._used)


@dataclass(frozen=True, slots=True)
class Wanted:
    """The registered sources of one origin, with their readers."""

    server: str
    database: str
    readers: Mapping[int, tuple[Interest, ...]]  # by source

    @property
    def tick(self) -> float:
        """The shortest interval of the readers."""
        return min(i.interval_ms for interests in self.readers.values() for i in interests) / 1000

    def shares(self) -> dict[int, float]:
        """How many polls of readers one poll of the broker replaces."""
        ms = self.tick * 1000
        return {relid: sum(ms / i.interval_ms for i in interests) for relid, interests in self.readers.items()}


class OriginThread:
    """Polls one origin once per tick, as long as a scheduler has registered a source of it."""

    def __init__(self, key: str, wanted: Wanted, task: BrokerTask, book: AnswerBook) -> None:
        self._key = key
        self._wanted = wanted
        self._task = task
        self._book = book
        self._session = OriginSession(self._dsn, key, task.sources, "broker")
        self._ledger = Ledger(lambda: secrets.randbits(62))
        self._again = threading.Event()
        self._is_stopped = False
        self._looking_since: float | None = None
        self._tick = 0
        threading.Thread(target=self._run, name=f"origin {key}", daemon=True).start()

    def want(self, wanted: Wanted) -> None:
        before, self._wanted = self._wanted, wanted
        if before.readers.keys() != wanted.readers.keys() or before.tick != wanted.tick:
            self._again.set()

    def stop(self) -> None:
        self._is_stopped = True
        self._again.set()

    def unstick(self) -> None:
        since = self._looking_since
        if since is not None and time.monotonic() - since > HANG_SECONDS:
            self._session.cut_off()

    def _dsn(self) -> str:
        wanted = self._wanted
        return origin_dsn(self._task.servers[0], self._task.servers, wanted.server, wanted.database)

    def _run(self) -> None:
        failures = 0
        while not self._is_stopped:
            wanted, begun = self._wanted, time.monotonic()
            pause = wanted.tick
            self._looking_since = begun
            try:
                self._look(wanted)
                failures = 0
            except PgtrickleError as error:  # its readers get no fresh count and poll for themselves
                if not failures:
                    fields = {"origin": f"{wanted.server}/{wanted.database}", "detail": error.one_line()}
                    log.warning("The broker cannot poll a database", extra=event(BROKER_ORIGIN_LOST, **fields))
                self._ledger.forget()
                pause = max(pause, BACKOFF_SECONDS[min(failures, len(BACKOFF_SECONDS) - 1)])
                failures += 1
            self._looking_since = None
            self._again.wait(max(0.0, begun + pause - time.monotonic()))
            self._again.clear()
        self._session.close()
        self._book.write(self._key, {})

    def _look(self, wanted: Wanted) -> None:
        self._ledger.want(wanted.readers)
        begun = time.time()
        found = self._session.scan(self._ledger.questions())
        done = time.monotonic()
        news = self._ledger.note(found, wanted.shares())
        self._tick += 1
        answers = {
            relid: SourceStatus(
                origin=self._key,
                relid=relid,
                generation=entry.generation,
                count=entry.count,
                pending_rows=entry.pending,
                max_lsn=entry.max_lsn,
                xmin=found.cut.xmin,
                tick=self._tick,
                looked_at=begun,
                done_at=done,
                scans_done=entry.scans_done,
                scans_saved=int(entry.scans_saved),
                consumers=len({i.reader for i in wanted.readers[relid]}),
            )
            for relid, entry in self._ledger.entries.items()
            if entry.since is not None
        }
        self._book.write(self._key, answers)
        for slot in {i.slot for relid in news for i in wanted.readers[relid]}:
            ring(bell_path(self._task.directory, slot))


class Broker:
    """The main thread: runs one thread per origin with registered sources."""

    def __init__(self, directory: Path, sources: Sources, servers: Sequence[str], stop: threading.Event) -> None:
        self._task = BrokerTask(directory, sources, tuple(servers))
        self._registry = Registry(registry_path(directory))
        self._book = AnswerBook(self._registry)
        self._stop = stop
        self._origins: dict[str, OriginThread] = {}

    def run(self) -> None:
        version, looked = -1, -ALIVE_SECONDS
        while not self._stop.is_set():
            now = time.monotonic()
            if self._registry.version != version or now - looked >= ALIVE_SECONDS:
                version, looked = self._registry.version, now
                self._arrange(self._registry.interests())
            for origin in self._origins.values():
                origin.unstick()
            self._stop.wait(LOOK_SECONDS)

    def _arrange(self, interests: Sequence[Interest]) -> None:
        wanted = _by_origin(interests)
        for key in [k for k in self._origins if k not in wanted]:
            self._origins.pop(key).stop()
        for key, wants in wanted.items():
            if key in self._origins:
                self._origins[key].want(wants)
            else:
                self._origins[key] = OriginThread(key, wants, self._task, self._book)


def _by_origin(interests: Sequence[Interest]) -> dict[str, Wanted]:
    readers: dict[str, dict[int, tuple[Interest, ...]]] = {}
    places: dict[str, tuple[str, str]] = {}
    for interest in interests:
        places.setdefault(interest.origin, (interest.server, interest.database))
        own = readers.setdefault(interest.origin, {})
        own[interest.relid] = (*own.get(interest.relid, ()), interest)
    return {key: Wanted(*places[key], own) for key, own in readers.items()}
