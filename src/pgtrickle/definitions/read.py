"""A folder of definition files as one set."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path, PurePath

from pgtrickle.definitions.sqlfile import read_sql
from pgtrickle.definitions.tomlfile import OutsideError, read_toml
from pgtrickle.definitions.wanted import Definition, DefinitionProblem, DefinitionSet, FilePosition, GroupDefinition
from pgtrickle.errors import ConfigError

_KINDS = (".sql", ".toml")
LINK_HINT = "only files below the folder of -f are read: put the file there"


def read_set(root: Path, name: str | None = None) -> tuple[DefinitionSet, tuple[DefinitionProblem, ...]]:
    """The set in a folder or in a single file, and all problems.

    `name` overrides the name in a TOML file, which overrides the name of the folder.
    """
    if not root.exists():
        raise ConfigError(f"{root} does not exist", hint="name a folder or a file with definitions: -f DIR")
    definitions: list[Definition] = []
    groups: list[GroupDefinition] = []
    problems: list[DefinitionProblem] = []
    files = [root] if root.is_file() else list(_files(root, root.resolve(), problems))
    if not files and not problems:
        raise ConfigError(f"there is no .sql or .toml file in {root}", hint="see docs/howto/definitions.md")
    named: dict[str, FilePosition] = {}
    databases: tuple[str, ...] = ()
    queries: set[Path] = set()
    for path in (path for path in files if path.suffix == ".toml"):
        text = _text(path, problems)
        if text is None:
            continue
        found = read_toml(str(path), text, _Queries(path.parent))
        definitions += found.definitions
        groups += found.groups
        problems += found.problems
        queries |= {(path.parent / file).resolve() for file in found.query_files if is_below(path.parent, file)}
        if found.set_name is not None and found.set_at is not None:
            named.setdefault(found.set_name, found.set_at)
        databases += found.databases
    for path in files:
        if path.suffix == ".sql" and path.resolve() not in queries:
            text = _text(path, problems)
            if text is not None:
                definition, wrong = read_sql(str(path), text)
                definitions += [definition] if definition is not None else []
                problems += wrong
    if len(named) > 1:
        first, *_, last = named
        problems.append(DefinitionProblem(named[last], f"the set is named {last} here and {first} in {named[first]}"))
    own = root.resolve()
    given = name or next(iter(named), own.stem if root.is_file() else own.name)
    result = DefinitionSet(given, tuple(sorted(definitions, key=lambda d: d.at)), tuple(groups), databases)
    return result, tuple(sorted(problems, key=lambda problem: problem.at))


def _files(folder: Path, root: Path, problems: list[DefinitionProblem]) -> Iterator[Path]:
    """In the order of their names, including subfolders; names that begin with a dot are ignored."""
    for path in sorted(folder.iterdir()):
        if path.name.startswith("."):
            continue
        if path.is_symlink() and (path.is_dir() or path.suffix in _KINDS):
            there = path.resolve()
            if not there.is_relative_to(root) or path.parent.resolve().is_relative_to(there):
                problem = DefinitionProblem(
                    FilePosition(str(path), 1), "is a symbolic link to a file outside the folder", LINK_HINT
                )
                problems.append(problem)
                continue
        if path.is_dir():
            yield from _files(path, root, problems)
        elif path.suffix in _KINDS:
            yield path


def is_below(folder: Path, file: str) -> bool:
    """Whether the file that a definition names is in the folder of that definition or below."""
    return (
        not PurePath(file).is_absolute()
        and ".." not in PurePath(file).parts
        and (folder / file).resolve().is_relative_to(folder.resolve())
    )


def _text(path: Path, problems: list[DefinitionProblem]) -> str | None:
    try:
        if not path.is_file():
            raise OSError(None, "it is not a file")
        return path.read_text(encoding="utf-8-sig")
    except OSError as error:
        problems.append(DefinitionProblem(FilePosition(str(path), 1), f"cannot be read: {error.strerror}"))
    except UnicodeDecodeError as error:
        line = error.object.count(b"\n", 0, error.start) + 1
        problems.append(DefinitionProblem(FilePosition(str(path), line), "is not UTF-8"))
    return None


@dataclass(frozen=True, slots=True)
class _Queries:
    """Files that hold the query of a definition, by their names beside it."""

    folder: Path

    def __call__(self, file: str) -> str:
        if not is_below(self.folder, file):
            raise OutsideError(f"{file} is not below the folder of this file")
        path = self.folder / file
        if path.exists() and not path.is_file():  # a pipe or a device would be read endlessly
            raise OSError(None, "it is not a file")
        return path.read_text(encoding="utf-8-sig")
