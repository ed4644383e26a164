"""Values of replicas: names in files, bounds of files, where they are."""

from __future__ import annotations

from pathlib import Path

import pytest

from pgtrickle.errors import ConfigError, DefinitionError
from pgtrickle.pipeline.engine.object_files import ObjectFiles, options_for_executors
from pgtrickle.replica.advance import may_contain, must_contain
from pgtrickle.replica.files import private
from pgtrickle.replica.objects import ObjectStorage
from pgtrickle.replica.roots import root_of, storage_of
from pgtrickle.replica.values import Computed, ReplicaFile, physical_names


def test_names_in_files_are_those_that_every_engine_can_read() -> None:
    names = [("c1", "id"), ("c2", "A"), ("c3", "a"), ("c4", "sp ace"), ("c5", "c4"), ("c6", "ünï"), ("total", "total")]
    assert physical_names(names) == ["id", "c2", "c3", "c4_", "c4", "c6", "total"]


@pytest.mark.parametrize("name", ["c1", "C22", "a b", "", 'x"', "1a"])
def test_computed_columns_cannot_be_confused_with_columns(name: str) -> None:
    with pytest.raises(DefinitionError):
        Computed(name, "1", ())


@pytest.mark.parametrize(
    ("low", "high", "keys", "expected"),
    [
        (10, 20, [5, 15, 30], True),
        (10, 20, [10], True),
        (10, 20, [20], True),
        (10, 20, [5, 21], False),
        (10, 20, [], False),
        (None, None, [5], True),
        (10, 20, None, True),
        ("b", "d", ["a", "e"], False),
        ("b", "d", ["ba"], True),
    ],
)
def test_bounds_exclude_files(low: int | None, high: int | None, keys: list[int] | None, expected: bool) -> None:
    assert may_contain(ReplicaFile("f", 1, 1, low, high), keys) is expected


def test_file_is_certain_to_have_a_key_that_only_its_bounds_include() -> None:
    files = [ReplicaFile(n, 1, 1, low, high) for n, low, high in [("a", 1, 10), ("b", 10, 20), ("c", 15, 18)]]
    assert must_contain(files, [5, 10, 16]) == [True, False, False]
    assert must_contain(files, [5, 11, 16]) == [True, True, False]
    assert must_contain(files[:2], [2, 20]) == [True, True]
    assert must_contain([*files[:2], ReplicaFile("d", 1, 1)], [2, 20]) == [False, False, False]


def test_root_is_configured_or_below_the_state_directory() -> None:
    assert root_of("/data/replicas", {}) == Path("/data/replicas")
    assert root_of("", {"XDG_STATE_HOME": "/state"}) == Path("/state/pgtrickle/replicas")
    assert root_of("", {}) == Path.home() / ".local/state/pgtrickle/replicas"


@pytest.mark.parametrize("name", ["relative", "/tmp/a{b}", "/tmp/a*", "/tmp/[x]"])
def test_directories_that_spark_would_not_take_literally_are_refused(name: str) -> None:
    with pytest.raises(ConfigError, match="cannot be used"):
        private(Path(name))


@pytest.mark.parametrize(
    "url", ["s3a://bucket/r", "s3://bucket", "abfss://c@a.dfs.core.windows.net/r", "gs://b/r/", "hdfs://h:8020/r"]
)
def test_root_may_be_in_an_object_store(url: str) -> None:
    root = root_of(url, {})
    assert root == url.rstrip("/")
    assert isinstance(storage_of(root), ObjectStorage)


@pytest.mark.parametrize(
    "url",
    [
        "s3a://key:geheim@bucket/r",
        "s3://key@bucket/geheim",
        "s3a://bucket/r?sig=geheim",
        "abfss://user:geheim@a.dfs.core.windows.net/r",
        "abfss://a.dfs.core.windows.net/geheim",
        "gs://b/geheim dir",
        "gs://b/%67eheim",
        "hdfs://user@h:8020/geheim",
        "s3a://bucket/../geheim",
        "s3a://bucket/a*/geheim",
        "ftp://geheim@host/r",
    ],
)
def test_urls_with_secrets_and_unclear_names_are_refused_without_repeating_them(url: str) -> None:
    """The catalog and the log contain the location of a replica."""
    with pytest.raises(ConfigError, match="replica_root") as refused:
        storage_of(root_of(url, {}))
    assert "geheim" not in refused.value.one_line()


def test_executors_get_credentials_but_no_names_of_files() -> None:
    environ = {
        "AWS_ACCESS_KEY_ID": "k",
        "AWS_SECRET_ACCESS_KEY": "s",
        "AWS_PROFILE": "p",
        "AWS_CONTAINER_CREDENTIALS_RELATIVE_URI": "/of/this/machine",
        "AWS_WEB_IDENTITY_TOKEN_FILE": "/token",
        "AWS_REGION": "",
        "AZURE_STORAGE_ACCOUNT_KEY": "a",
        "PGPASSWORD": "x",
    }
    options = options_for_executors("s3a://bucket", environ)
    assert options == (("AWS_ACCESS_KEY_ID", "k"), ("AWS_SECRET_ACCESS_KEY", "s"))
    assert options_for_executors("abfss://c@a/r", environ) == (("AZURE_STORAGE_ACCOUNT_KEY", "a"),)
    assert options_for_executors("hdfs://h/r", environ) == ()
    assert "AWS" not in repr(ObjectFiles("s3a://bucket", options))


def test_errors_of_stores_are_one_line_without_secrets() -> None:
    files = ObjectFiles("s3a://bucket", (("AWS_SECRET_ACCESS_KEY", "geheim"),))
    error = OSError("Generic S3 error\n \x1b[31m↳\x1b[0m GET http://h/b?sig=abc failed: geheim was refused")
    assert files.clean(error) == "Generic S3 error - GET http://h/b failed: ... was refused"


def test_directory_is_made_private(tmp_path: Path) -> None:
    (tmp_path / "open").mkdir(mode=0o755)
    assert private(tmp_path / "open").stat().st_mode & 0o777 == 0o700
