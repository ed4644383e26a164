"""Compiled templates in files of the operating-system user that runs pgtrickle: the level below the memory.

They survive restarts, and all processes and databases share them. No database can write them (ADR 34). A file is used
only after its checksum and its content were checked; nothing but values of the compiler can be in it.
"""

from __future__ import annotations

import contextlib
import dataclasses
import hashlib
import io
import logging
import os
import pickle
import secrets
import threading
import time
from collections.abc import Iterable, Mapping
from dataclasses import replace
from enum import Enum
from pathlib import Path
from types import MethodType
from typing import Any

from pgtrickle.define.compile import Compiled, Once
from pgtrickle.define.template_key import COMPILER, NUMBERED, TemplateKey, compiler_version
from pgtrickle.model.catalog import ObjectId
from pgtrickle.pipeline.render.statement_cache import StatementCache
from pgtrickle.pipeline.templates.template import FoldTemplate
from pgtrickle.pipeline.templates.topk import TopKTemplate
from pgtrickle.telemetry import TEMPLATE_STORE_FAILED, event

log = logging.getLogger(__name__)

MAGIC = b"pgtrickle template 1\n"
SUFFIX = ".template"
PRUNED_TO = 0.9  # of the maximum, so that not every new file causes a scan
_DIGEST_BYTES = 32
_SETTLED_NS = 1_000_000_000  # a folder that changed later than this may change again without another time of change


class _NotPortableError(Exception):
    """A value has a number of this database that cannot be replaced."""


class TemplateStore:
    """`root` is a private directory; `max_bytes` bounds the files of all versions in it, 0: nothing is stored."""

    def __init__(self, root: Path, max_bytes: int) -> None:
        self._root = root
        self._max_bytes = max_bytes
        self._lock = threading.Lock()
        self._bytes = 0  # in files of all versions, about: other processes write, too
        self.entries = 0  # of this version, about
        self._listed: frozenset[str] = frozenset()
        self._listed_at = 0  # the folder's time of change when it was listed
        self.hits = 0
        self.misses = 0
        self.evictions = 0
        self.is_usable = max_bytes > 0 and self._is_private()
        if self.is_usable:
            self._prune()

    @property
    def folder(self) -> Path:
        return self._root / compiler_version()

    def get(self, key: TemplateKey) -> Compiled | None:
        if not self.is_usable:
            return None
        stored = self.stored(key)
        with self._lock:
            self.hits += stored is not None
            self.misses += stored is None
        return stored

    def stored(self, key: TemplateKey) -> Compiled | None:
        """The same, without being counted."""
        return self._read(self.folder / (key.digest + SUFFIX), key)

    def put(self, key: TemplateKey, compiled: Compiled) -> Compiled | None:
        """As it was stored. None: it names numbers of its database in an unknown way, or there is no room."""
        if not self.is_usable:
            return None
        try:
            payload = _dumped(compiled, key.ids)
        except (_NotPortableError, pickle.PicklingError, TypeError, AttributeError) as error:
            log.debug("A template is not stored: %s", error)
            return None
        content = MAGIC + hashlib.sha256(payload).digest() + payload
        if len(content) > self._max_bytes:
            return None
        try:
            self.folder.mkdir(mode=0o700, exist_ok=True)
            path = self.folder / (key.digest + SUFFIX)
            draft = path.with_suffix(f".{os.getpid()}.{secrets.token_hex(4)}")
            draft.touch(mode=0o600, exist_ok=False)
            try:
                draft.write_bytes(content)
                draft.replace(path)
            except OSError:  # of a full disk, for example
                draft.unlink(missing_ok=True)
                raise
        except OSError as error:
            self._failed(error)
            return None
        with self._lock:
            self._bytes += len(content)
            self.entries += 1
            if self._bytes > self._max_bytes:
                self._prune()
        return self.stored(key)

    def digests(self) -> frozenset[str]:
        """Of the files of this version. Other processes add and remove some, too; the folder is listed again only after
        that."""
        if not self.is_usable:
            return frozenset()
        with self._lock:
            try:
                changed_at = self.folder.stat().st_mtime_ns
                if changed_at != self._listed_at:
                    with os.scandir(self.folder) as found:
                        names = (entry.name for entry in found)
                        self._listed = frozenset(n.removesuffix(SUFFIX) for n in names if n.endswith(SUFFIX))
                    self._listed_at = changed_at if time.time_ns() - changed_at > _SETTLED_NS else 0
            except OSError:  # of this version there are none
                self._listed, self._listed_at = frozenset(), 0
            return self._listed

    def remove(self, digests: Iterable[str]) -> int:
        """How many of them there were."""
        removed = 0
        with self._lock:
            for digest in digests:
                with contextlib.suppress(OSError):
                    (self.folder / (digest + SUFFIX)).unlink()
                    removed += 1
            self.entries = max(self.entries - removed, 0)
        return removed

    def _read(self, path: Path, key: TemplateKey) -> Compiled | None:
        try:
            content = path.read_bytes()
            os.utime(path)
        except OSError:
            return None
        digest, payload = content[len(MAGIC) :][:_DIGEST_BYTES], content[len(MAGIC) + _DIGEST_BYTES :]
        if content.startswith(MAGIC) and hashlib.sha256(payload).digest() == digest:
            try:
                return _loaded(payload, key.ids)
            except Exception as error:  # noqa: BLE001 - whatever is wrong with it, it is compiled again
                self._failed(error)
        else:
            self._failed(ValueError(f"{path.name} is damaged"))
        with contextlib.suppress(OSError):
            path.unlink()
        return None

    def _prune(self) -> None:
        """Looks at all files, and removes the least recently used ones if there are too many bytes. Other processes may
        do the same at the same time."""
        found = []
        for path in self._root.glob(f"*/*{SUFFIX}"):
            with contextlib.suppress(OSError):
                stat = path.stat()
                found.append((stat.st_mtime_ns, stat.st_size, path))
        found.sort()
        total, number = sum(size for _, size, _ in found), 0
        if total > self._max_bytes:
            while number < len(found) and total > self._max_bytes * PRUNED_TO:
                _, size, path = found[number]
                with contextlib.suppress(OSError):
                    path.unlink()
                    self.evictions += 1
                total, number = total - size, number + 1
            for folder in self._root.iterdir():  # of versions without files
                with contextlib.suppress(OSError):
                    folder.rmdir()
        self._bytes = total
        self.entries = sum(path.parent == self.folder for _, _, path in found[number:])

    def _is_private(self) -> bool:
        try:
            self._root.mkdir(mode=0o700, parents=True, exist_ok=True)
            status = self._root.stat()
            if status.st_uid != os.geteuid():
                raise PermissionError(f"{self._root} belongs to another user")
            if status.st_mode & 0o077:
                self._root.chmod(0o700)
        except OSError as error:
            self._failed(error)
            return False
        return True

    def _failed(self, error: Exception) -> None:
        detail = f"{type(error).__name__}: {error}"
        log.warning("A stored template was not used", extra=event(TEMPLATE_STORE_FAILED, detail=detail))


def store_root(configured: str, environ: Mapping[str, str]) -> Path:
    """As configured (`template_cache_dir`), or below the cache directory of the user."""
    if configured:
        return Path(configured)
    cache = environ.get("XDG_CACHE_HOME") or str(Path.home() / ".cache")
    return Path(cache) / "pgtrickle" / "templates"


# -- values to bytes and back
# --------------------------------------------------------------------------------------------------------------


def _dumped(compiled: Compiled, ids: Mapping[str, int]) -> bytes:
    """Without what a process has found out by using it. Numbers become names."""
    buffer = io.BytesIO()
    _Writer(buffer, {number: name for name, number in ids.items()}).dump(
        replace(compiled, texts=StatementCache(), on_spark=Once())
    )
    return buffer.getvalue()


def _loaded(payload: bytes, ids: Mapping[str, int]) -> Compiled:
    found = _Reader(io.BytesIO(payload), ids).load()
    if not isinstance(found, Compiled):
        raise pickle.UnpicklingError("not a template")
    return found


class _Writer(pickle.Pickler):
    def __init__(self, file: io.BytesIO, names: Mapping[int, str]) -> None:
        super().__init__(file, protocol=5)
        self._names = names

    def persistent_id(self, obj: Any) -> tuple[str, Any] | None:
        if type(obj) is ObjectId:
            return "id", self._name(int(obj))
        if type(obj) is str and NUMBERED.search(obj):
            pieces = NUMBERED.split(obj)  # text, prefix, number, text, ...
            named = [self._name(int(piece)) if i % 3 == 2 else piece for i, piece in enumerate(pieces)]
            return "text", tuple(named)
        if type(obj) is int and obj in self._names and obj >= _SURE:
            raise _NotPortableError(f"{obj} is a number of {self._names[obj]}, or not")
        return None

    def reducer_override(self, obj: Any) -> Any:
        if isinstance(obj, MethodType):
            return _output_statement, (obj.__self__,)
        return NotImplemented

    def _name(self, number: int) -> str:
        if number not in self._names:
            raise _NotPortableError(f"the number {number} is not known")
        return self._names[number]


_SURE = 16_384  # relations of users have at least this number; a smaller plain number is something else


class _Reader(pickle.Unpickler):
    """Makes values of the compiler's own classes, and nothing else."""

    def __init__(self, file: io.BytesIO, ids: Mapping[str, int]) -> None:
        super().__init__(file)
        self._ids = ids

    def persistent_load(self, pid: Any) -> Any:
        kind, value = pid
        if kind == "id":
            return int(self._ids[value])
        return "".join(str(self._ids[piece]) if i % 3 == 2 else piece for i, piece in enumerate(value))

    def find_class(self, module: str, name: str) -> Any:
        package = module.split(".")
        if (module, name) in _BUILT_IN:
            return super().find_class(module, name)
        if (module, name) == (__name__, "_output_statement"):
            return _output_statement
        if package[0] == "pgtrickle" and len(package) > 1 and package[1] in COMPILER and "." not in name:
            kind = super().find_class(module, name)
            if isinstance(kind, type) and (dataclasses.is_dataclass(kind) or issubclass(kind, Enum | Once | tuple)):
                return kind
        raise pickle.UnpicklingError(f"{module}.{name} is not part of a template")


_BUILT_IN = frozenset({("builtins", "frozenset"), ("builtins", "set")})


def _output_statement(template: object) -> Any:
    if not isinstance(template, FoldTemplate | TopKTemplate):
        raise pickle.UnpicklingError(f"{type(template).__name__} has no output statement")
    return template.output_statement
