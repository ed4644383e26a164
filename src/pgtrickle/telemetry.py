"""Event names and how they are written.

A log call is a fixed sentence with `extra=event(NAME, field=value, ...)`: the sentence is for people, the name and
the fields are for machines. Names are `stage.what_happened`. Fields never hold secrets: a DSN is logged through
`redact`.
"""

from __future__ import annotations

import copy
import json
import logging
import os
import re
import sys
import threading
from collections.abc import Iterator
from datetime import UTC, datetime
from types import TracebackType
from typing import Any, Final, TextIO

COMMAND_FAILED: Final = "cli.failed"
UNCAUGHT: Final = "runtime.uncaught"
RUN_STARTED: Final = "runtime.started"
RUN_STOPPED: Final = "runtime.stopped"
CHILD_ENDED: Final = "runtime.child_ended"
LOOP_ENDED: Final = "runtime.loop_ended"
NOTHING_INSTALLED: Final = "runtime.nothing_installed"
CHILD_HUNG: Final = "runtime.child_hung"
OTHER_OWNER: Final = "runtime.other_owner"
OTHER_VERSION: Final = "runtime.other_version"
WEB_LISTENING: Final = "web.listening"
WEB_ACTION: Final = "web.action"
WEB_REFUSED: Final = "web.refused"
UNINSTALLED: Final = "runtime.uninstalled"
SUPERUSER_SESSION: Final = "runtime.superuser_session"
SERVER_ACTIVE: Final = "runtime.server_active"
SERVER_WAITING: Final = "runtime.server_waiting"
SERVER_RECOVERY: Final = "runtime.server_recovery"
SERVER_LOST: Final = "runtime.server_lost"
DATABASE_LOST: Final = "runtime.database_lost"
DATABASE_BACK: Final = "runtime.database_back"
ORIGIN_LOST: Final = "runtime.origin_lost"
ORIGIN_BACK: Final = "runtime.origin_back"
POLL_BROKEN: Final = "runtime.look_broken"
SETTING_REFUSED: Final = "runtime.setting_refused"
SETTING_CHANGED: Final = "runtime.setting_changed"
JAVA_PASSED_OVER: Final = "runtime.java_passed_over"
SPARK_STARTED: Final = "runtime.spark_started"
SPARK_LOST: Final = "runtime.spark_lost"
SPARK_HUNG: Final = "runtime.spark_hung"
SPARK_STUCK: Final = "runtime.spark_stuck"
SPARK_COLD: Final = "runtime.spark_cold"
LEASE_FAILED: Final = "runtime.lease_failed"
LEASE_BROKEN: Final = "runtime.lease_broken"
DATABASE_RESTORED: Final = "runtime.database_restored"
RENAME_FOLLOWED: Final = "runtime.rename_followed"
COLUMNS_WIDENED: Final = "define.columns_widened"
STATEMENT_REFUSED: Final = "define.statement_refused"
DEFINER_FAILED: Final = "definer.failed"
DEFINITION_REFUSED: Final = "definer.refused"
DEFINITION_KEPT: Final = "definer.stays"
PLAN_REFUSED: Final = "planner.refused"
BROKER_FULL: Final = "broker.full"
BROKER_ORIGIN_LOST: Final = "broker.origin_lost"
BUFFERS_FAILED: Final = "capture.buffers_failed"
BUFFER_COMPACTED: Final = "capture.compacted"
BUFFER_RELEASED: Final = "runtime.buffer_released"
DRY_RUN: Final = "scheduler.dry_run"
PLAN_COMPILED: Final = "pipeline.compiled"
TEMPLATE_STORE_FAILED: Final = "pipeline.template_store_failed"
BULK_LOAD: Final = "pipeline.bulk_load"
BULK_REFUSED: Final = "pipeline.bulk_refused"
STAGE_LEFT: Final = "apply.stage_left"
REPLICA_BUILT: Final = "replica.built"
REPLICA_ADVANCED: Final = "replica.advanced"
REPLICA_FAILED: Final = "replica.failed"
REPLICA_READ_BY: Final = "replica.read_by"
REFRESH_DONE: Final = "pipeline.refresh_done"
REFRESH_FAILED: Final = "pipeline.refresh_failed"
CULPRIT_UNKNOWN: Final = "pipeline.culprit_unknown"
REFRESH_FENCED: Final = "apply.fenced"
SUBSCRIBER_LAG: Final = "publish.subscriber_lag"
FEED_CAPTURE_FAILED: Final = "publish.capture_failed"

REPEAT_SECONDS = 60.0
MOST_REPEATS = 1000  # lines that are remembered

_EVENT_KEY = "pgt_event"
_FIELDS_KEY = "pgt_fields"
_SECRET = re.compile(
    r"(://[^:/@\s]*):[^@\s]*@|(password\s*=\s*)('(?:[^'\\]|\\.)*'|\S+)|(token=)[^;&\s]+", re.IGNORECASE
)


def event(name: str, /, **fields: Any) -> dict[str, Any]:
    """What to pass as `extra`."""
    return {_EVENT_KEY: name, _FIELDS_KEY: fields}


def redact(text: str) -> str:
    """Takes passwords and tokens out of a DSN or a Spark URL."""

    def without(match: re.Match[str]) -> str:
        if match[1] is not None:
            return f"{match[1]}:***@"
        return f"{match[2] or match[4]}***"

    return _SECRET.sub(without, text)


class _Json(logging.Formatter):
    def format(self, record: logging.LogRecord) -> str:
        line: dict[str, Any] = {
            "time": datetime.fromtimestamp(record.created, UTC).isoformat(timespec="milliseconds"),
            "level": record.levelname.lower(),
            "logger": record.name,
            "event": getattr(record, _EVENT_KEY, None),
            "message": record.getMessage(),
            **getattr(record, "context", {}),  # of Spark's loggers
            **getattr(record, _FIELDS_KEY, {}),
        }
        if record.exc_info:
            line["traceback"] = self.formatException(record.exc_info)
        return json.dumps(line, default=str, ensure_ascii=False)


class _Text(logging.Formatter):
    def format(self, record: logging.LogRecord) -> str:
        stamp = datetime.fromtimestamp(record.created, UTC).strftime("%Y-%m-%dT%H:%M:%S.%f")[:-3]
        parts = [f"{stamp}Z {record.levelname:<7} {record.getMessage()}"]
        name = getattr(record, _EVENT_KEY, None)
        if name:
            parts.append(f"[{name}]")
        parts += [f"{key}={value}" for key, value in getattr(record, _FIELDS_KEY, {}).items()]
        line = " ".join(" ".join(part.split()) for part in parts)
        return f"{line}\n{self.formatException(record.exc_info)}" if record.exc_info else line


class _Repeats:
    """Finds lines that say the same again. The first is written; those of the next REPEAT_SECONDS are counted, and the
    last of them is written with their number afterwards. A refresh is never a repetition of another one."""

    def __init__(self) -> None:
        self._seen: dict[tuple[object, ...], tuple[float, int, logging.LogRecord]] = {}  # until, repetitions, the last

    def written(self, record: logging.LogRecord) -> Iterator[logging.LogRecord]:
        """What is to be written when this record arrives."""
        if getattr(record, _EVENT_KEY, None) == REFRESH_DONE:
            yield record
            return
        error = repr(record.exc_info[1]) if record.exc_info else ""
        key = (record.name, record.levelno, record.getMessage(), repr(getattr(record, _FIELDS_KEY, None)), error)
        yield from self._ended(record.created)
        if key in self._seen:
            until, count, _ = self._seen[key]
            self._seen[key] = until, count + 1, record
            return
        self._seen[key] = record.created + REPEAT_SECONDS, 0, record
        yield record

    def rest(self) -> Iterator[logging.LogRecord]:
        yield from self._ended(float("inf"))

    def _ended(self, now: float) -> Iterator[logging.LogRecord]:
        ended = [key for key, (until, _, _) in self._seen.items() if until <= now]
        if len(self._seen) - len(ended) >= MOST_REPEATS:
            ended = list(self._seen)
        for key in ended:
            _, count, last = self._seen.pop(key)
            if count:
                summary = copy.copy(last)
                summary.exc_info = None
                setattr(summary, _FIELDS_KEY, {**getattr(last, _FIELDS_KEY, {}), "repeated": count})
                yield summary


class _Log(logging.StreamHandler[TextIO]):
    """Writes what is not a repetition. `emit` and `close` are called with the lock of the handler."""

    def __init__(self, stream: TextIO, form: str) -> None:
        super().__init__(stream)
        self.form = form
        self._repeats = _Repeats()
        self.setFormatter(_Json() if form == "json" else _Text())

    def emit(self, record: logging.LogRecord) -> None:
        for each in self._repeats.written(record):
            super().emit(each)

    def close(self) -> None:
        for each in self._repeats.rest():
            super().emit(each)
        super().close()


def set_up_logging(level: str, form: str, stream: TextIO | None = None) -> None:
    """Configures our own loggers; libraries log from WARNING on. Warnings and uncaught exceptions of Python become
    lines of the log, so that a log in JSON contains nothing else."""
    # Spark's client says on its own what our errors say, and not in the form of the log.
    os.environ.setdefault("GRPC_VERBOSITY", "NONE")
    root = logging.getLogger()
    root.handlers[:] = [_Log(stream or sys.stderr, form)]
    root.setLevel(logging.WARNING)
    # For a lost session it logs that the rollback failed; the error itself is raised anyway.
    logging.getLogger("psycopg").setLevel(logging.ERROR)
    logging.getLogger("pgtrickle").setLevel(level.upper())
    if form == "json":
        logging.captureWarnings(True)
        sys.excepthook = _uncaught
        threading.excepthook = _uncaught_in_thread


def logs_json() -> bool:
    """Whether the log of this process is in JSON."""
    return any(isinstance(handler, _Log) and handler.form == "json" for handler in logging.getLogger().handlers)


def _uncaught(kind: type[BaseException], error: BaseException, trace: TracebackType | None) -> None:
    if not issubclass(kind, KeyboardInterrupt):
        logging.getLogger(__name__).error("Uncaught error", exc_info=(kind, error, trace), extra=event(UNCAUGHT))


def _uncaught_in_thread(found: threading.ExceptHookArgs) -> None:
    if found.exc_value is not None and not issubclass(found.exc_type, SystemExit):
        _uncaught(found.exc_type, found.exc_value, found.exc_traceback)


def _new_logger(name: str) -> logging.Logger:
    """Spark replaces the class of new loggers for a moment, in all threads, by one that writes lines of its own and
    drops our fields. A module of ours that is imported in that moment must not get one; and what Spark logs goes
    through our handler."""
    if name.partition(".")[0] == "pgtrickle":
        return logging.Logger(name)  # noqa: LOG001  -- this is what getLogger calls
    made = logging.getLoggerClass()(name)
    made.handlers.clear()
    return made


logging.Logger.manager.loggerClass = _new_logger  # type: ignore[assignment]  # it is only called
