"""A folder of definition files as one set."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path, PurePath

from pgtrickle.definitions.definition import Definition, DefinitionProblem, DefinitionSet, FilePosition
from pgtrickle.definitions.sqlfile import read_sql
from pgtrickle.definitions.tomlfile import OutsideError, TomlFile, read_toml
from pgtrickle.errors import ConfigError

_KINDS = (".sql", ".toml")
LINK_HINT = "only files below the folder of -f are read: put the file there"


def read_set(root: Path, name: str | None = None) -> tuple[DefinitionSet, tuple[DefinitionProblem, ...]]:
    """The set in a folder or in a single file, and all problems.

    `name` overrides the name in a TOML file, which overrides the name of the folder.
    """
    if not root.exists():
        raise ConfigError(f"{root} does not exist", hint="name a folder or a file with definitions: -f DIR")
    problems: list[DefinitionProblem] = []
    files = [root] if root.is_file() else list(_files(root, root.resolve(), problems))
    if not files and not problems:
        raise ConfigError(f"there is no .sql or .toml file in {root}", hint="see docs/howto/definitions.md")
    tomls = _read_tomls([path for path in files if path.suffix == ".toml"], problems)
    sqls = list(_read_sqls(_definition_files(files, tomls), problems))
    names = _set_names(tomls)
    if len(names) > 1:
        first, *_, last = names
        problems.append(DefinitionProblem(names[last], f"the set is named {last} here and {first} in {names[first]}"))
    resolved = root.resolve()
    set_name = name or next(iter(names), resolved.stem if root.is_file() else resolved.name)
    return _merged(set_name, tomls, sqls), tuple(sorted(problems, key=lambda problem: problem.at))


def _merged(name: str, tomls: Sequence[_ReadToml], sqls: Sequence[Definition]) -> DefinitionSet:
    definitions = [*(definition for toml in tomls for definition in toml.content.definitions), *sqls]
    return DefinitionSet(
        name,
        tuple(sorted(definitions, key=lambda definition: definition.at)),
        tuple(group for toml in tomls for group in toml.content.groups),
        tuple(database for toml in tomls for database in toml.content.databases),
    )


@dataclass(frozen=True, slots=True)
class _ReadToml:
    """A TOML file; `queries` are the files that hold queries of its definitions."""

    content: TomlFile
    queries: frozenset[Path]


def _read_tomls(paths: Iterable[Path], problems: list[DefinitionProblem]) -> list[_ReadToml]:
    read = []
    for path in paths:
        text = _text(path, problems)
        if text is not None:
            content = read_toml(str(path), text, _Queries(path.parent))
            problems += content.problems
            below = (file for file in content.query_files if is_below(path.parent, file))
            read.append(_ReadToml(content, frozenset((path.parent / file).resolve() for file in below)))
    return read


def _definition_files(files: Iterable[Path], tomls: Iterable[_ReadToml]) -> Iterator[Path]:
    """SQL files that define a table by themselves."""
    queries = {query for toml in tomls for query in toml.queries}
    return (path for path in files if path.suffix == ".sql" and path.resolve() not in queries)


def _read_sqls(paths: Iterable[Path], problems: list[DefinitionProblem]) -> Iterator[Definition]:
    for path in paths:
        text = _text(path, problems)
        if text is not None:
            definition, sql_problems = read_sql(str(path), text)
            problems += sql_problems
            if definition is not None:
                yield definition


def _set_names(tomls: Iterable[_ReadToml]) -> dict[str, FilePosition]:
    """The names that the files give to the set, each with its first position."""
    names: dict[str, FilePosition] = {}
    for toml in tomls:
        if toml.content.set_name is not None and toml.content.set_at is not None:
            names.setdefault(toml.content.set_name, toml.content.set_at)
    return names


def _files(folder: Path, root: Path, problems: list[DefinitionProblem]) -> Iterator[Path]:
    """In the order of their names, including subfolders; names that begin with a dot are ignored."""
    for path in sorted(folder.iterdir()):
        if path.name.startswith("."):
            continue
        if path.is_symlink() and (path.is_dir() or path.suffix in _KINDS):
            target = path.resolve()
            if not target.is_relative_to(root) or path.parent.resolve().is_relative_to(target):
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
    """Reads the file that a `query_file` names, relative to the folder of the TOML file."""

    folder: Path

    def __call__(self, file: str) -> str:
        if not is_below(self.folder, file):
            raise OutsideError(f"{file} is not below the folder of this file")
        path = self.folder / file
        if path.exists() and not path.is_file():  # a pipe or a device would be read endlessly
            raise OSError(None, "it is not a file")
        return path.read_text(encoding="utf-8-sig")
