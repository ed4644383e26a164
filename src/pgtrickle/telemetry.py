"""Event names and how they are written.

A log call is a fixed sentence with `extra=event(NAME, field=value, ...)`: the sentence is for people, the name and
the fields are for machines. Names are `stage.what_happened`. Fields never hold secrets: a DSN is logged through
`redact`.
"""

from __future__ import annotations

import json
import logging
import re
import sys
from datetime import UTC, datetime
from typing import Any, Final, TextIO

RUN_STARTED: Final = "runtime.started"
RUN_STOPPED: Final = "runtime.stopped"
DATABASE_LOST: Final = "runtime.database_lost"
DATABASE_BACK: Final = "runtime.database_back"
SETTING_REFUSED: Final = "runtime.setting_refused"
SETTING_CHANGED: Final = "runtime.setting_changed"
JAVA_PASSED_OVER: Final = "runtime.java_passed_over"
SPARK_STARTED: Final = "runtime.spark_started"
SPARK_LOST: Final = "runtime.spark_lost"
CAPTURE_INSTALLED: Final = "capture.installed"
CAPTURE_REMOVED: Final = "capture.removed"
CAPTURE_TRIMMED: Final = "capture.trimmed"
PLAN_COMPILED: Final = "pipeline.compiled"
RENAME_FOLLOWED: Final = "runtime.rename_followed"
PLAN_REFUSED: Final = "pipeline.refused"
BULK_LOAD: Final = "pipeline.bulk_load"
BULK_REFUSED: Final = "pipeline.bulk_refused"
REFRESH_DONE: Final = "pipeline.refresh_done"
REFRESH_FAILED: Final = "pipeline.refresh_failed"
REFRESH_FENCED: Final = "apply.fenced"
TABLE_SUSPENDED: Final = "scheduler.suspended"
TABLE_ERROR: Final = "scheduler.error"

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


def set_up_logging(level: str, form: str, stream: TextIO | None = None) -> None:
    """Configures our own loggers; libraries log from WARNING on."""
    handler = logging.StreamHandler(stream or sys.stderr)
    handler.setFormatter(_Json() if form == "json" else _Text())
    root = logging.getLogger()
    root.handlers[:] = [handler]
    root.setLevel(logging.WARNING)
    # For a lost session it logs that the rollback failed; the error itself is raised anyway.
    logging.getLogger("psycopg").setLevel(logging.ERROR)
    logging.getLogger("pgtrickle").setLevel(level.upper())
