"""Reasons: every code has a text, survives the catalog, and is what decisions compare."""

from __future__ import annotations

import ast
import json
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

import pgtrickle
from pgtrickle.errors import InvariantError
from pgtrickle.model.reason_codes import PLACEHOLDER
from pgtrickle.model.reasons import (
    NotDifferentiableError,
    Reason,
    ReasonCode,
    columns,
    named,
    render,
    stored,
)

PACKAGE = Path(pgtrickle.__file__).parent
SQL = PACKAGE / "db" / "sql"
ALTERED = Reason.of(ReasonCode.QUERY_ALTERED)


def sample(code: ReasonCode) -> Reason:
    """A reason of this code; one parameter, if it has any, is a reason itself."""
    params: dict[str, str | int | Reason] = {
        name: (f"<{name}>", 7, ALTERED)[i % 3] for i, name in enumerate(sorted(code.parameters))
    }
    return Reason.of(code, **params)


@pytest.mark.parametrize("code", ReasonCode)
def test_code_has_a_template_and_the_value_of_its_name(code: ReasonCode) -> None:
    assert code.value == code.name.lower()
    assert re.sub(r"\{[a-z_]+\}", "", code.template).isprintable()
    assert not set("{}") & set(re.sub(r"\{[a-z_]+\}", "", code.template))
    assert code.template == code.template.strip() != ""


@pytest.mark.parametrize("code", [c for c in ReasonCode if c.hint])
def test_hint_uses_parameters_of_its_reason(code: ReasonCode) -> None:
    assert set(PLACEHOLDER.findall(code.hint or "")) <= code.parameters
    assert not set("{}") & set(sample(code).hint or "{")


def test_hint_is_that_of_the_code_or_of_a_reason_in_it() -> None:
    ties = Reason.of(ReasonCode.AGGREGATE_TIES, function="array_agg")
    assert ties.hint == "add the columns of a unique key to the ORDER BY of array_agg()"
    undetermined = Reason.of(ReasonCode.UNDETERMINED, what=ties)
    assert Reason.of(ReasonCode.IN_VIEW, view="v", why=undetermined).hint == ties.hint
    assert Reason.of(ReasonCode.NO_FIXPOINT, table="t", why=ties).hint == ReasonCode.NO_FIXPOINT.hint
    assert Reason.of(ReasonCode.NO_TABLE).hint is None
    assert NotDifferentiableError(ties).hint == ties.hint


def test_codes_are_distinct() -> None:
    assert len(ReasonCode.__members__) == len(set(ReasonCode))


@pytest.mark.parametrize("code", ReasonCode)
def test_reason_survives_the_catalog(code: ReasonCode) -> None:
    reason = sample(code)
    found = columns(reason)
    assert found.params is not None
    assert stored(found.code, _loads(found.params)) == reason
    assert Reason.from_json(reason.to_json()) == reason
    assert found.text == render(reason) == str(reason)
    assert "{" not in str(reason)


def test_no_reason_is_stored_as_nulls() -> None:
    assert tuple(columns(None)) == (None, None, None)
    assert named(None) == {"reason_code": None, "reason_params": None, "reason": None}
    assert stored(None, None) is None


def test_parameters_are_those_of_the_template() -> None:
    with pytest.raises(ValueError, match="the parameters are \\[\\], the template has \\['new', 'old'\\]"):
        Reason.of(ReasonCode.TIME_ZONE_CHANGED)
    with pytest.raises(ValueError, match="first_load"):
        Reason.of(ReasonCode.FIRST_LOAD, more=1)
    with pytest.raises(InvariantError, match="unknown code nonsense"):
        stored("nonsense", {})


def test_text_of_a_parameter_is_not_taken_for_a_placeholder() -> None:
    reason = Reason.of(ReasonCode.TIME_ZONE_CHANGED, old="{new}", new="UTC")
    assert str(reason) == "TimeZone changed from {new} to UTC"


def test_reason_in_a_reason_is_rendered() -> None:
    reason = Reason.of(ReasonCode.NO_PREDICTION, rows=3, why=Reason.of(ReasonCode.NO_FULL_KNOWN))
    assert str(reason) == "3 changes, no prediction: no full refresh is known"


def test_error_has_the_reason_and_its_text() -> None:
    error = NotDifferentiableError(ALTERED, hint="no")
    assert (error.reason, error.one_line()) == (ALTERED, "PGT201: the query was altered (hint: no)")


def test_only_what_reads_the_clock_changes_by_itself() -> None:
    assert {code for code in ReasonCode if sample(code).changes_by_itself} == {
        ReasonCode.SESSION_VALUE,
        ReasonCode.STABLE_FUNCTION,
        ReasonCode.TEXT_READS_CLOCK,
        ReasonCode.JSON_READS_CLOCK,
    }


# -- the code that makes reasons
# --------------------------------------------------------------------------------------------------------------


def modules() -> Iterator[tuple[str, ast.Module]]:
    for path in sorted(PACKAGE.rglob("*.py")):
        yield str(path.relative_to(PACKAGE)), ast.parse(path.read_text())


def test_python_gives_every_reason_its_parameters() -> None:
    used = set()
    for name, tree in modules():
        for node in ast.walk(tree):
            if name != "model/reasons.py" and isinstance(node, ast.Call) and ast.unparse(node.func) == "Reason.of":
                code = ReasonCode[ast.unparse(node.args[0]).removeprefix("ReasonCode.")]
                assert {k.arg for k in node.keywords} == code.parameters, f"{name}:{node.lineno}"
                used.add(code)
    assert len(used) > 80


def test_postgresql_gives_every_reason_its_parameters() -> None:
    used = set()
    for path in sorted(SQL.rglob("*.sql")):
        text = path.read_text()
        if path.stem != "reasons":
            for call in re.finditer(r"pgtrickle\._reason\(", text):
                first, *rest = _arguments(text[call.end() :])
                for word in re.findall(r"(?:THEN|ELSE|^)\s*'(\w+)'", first):
                    code = ReasonCode[word.upper()]
                    assert {a.strip("'") for a in rest[::2]} == code.parameters, f"{path.name}: {code}"
                    used.add(code)
            for word in re.findall(r"(?:_code = |_reason_text\()'(\w+)'", text):
                used.add(ReasonCode[word.upper()])
    assert {ReasonCode.STABLE_FUNCTION, ReasonCode.SEQUENCE, ReasonCode.QUERY_ALTERED} < used


def test_every_code_is_used() -> None:
    text = "".join(p.read_text() for p in PACKAGE.rglob("*.py") if p.name != "reason_codes.py")
    sql = "".join(p.read_text() for p in SQL.rglob("*.sql") if p.stem != "reasons")
    unused = [c.name for c in ReasonCode if f"ReasonCode.{c.name}" not in text and f"'{c}'" not in sql]
    assert unused == []


# -- the code that decides
# --------------------------------------------------------------------------------------------------------------

# Other programs' words: they have no codes.
FOREIGN_WORDS = {
    "db/connect.py",  # refused connections, errors of PostgreSQL that share one SQLSTATE
    "definitions/tomlfile.py",  # an exception of Python
    "pipeline/executor_errors.py",  # the same, in the text of an exception of Spark
    "servers/embedded_postgres.py",  # the log of PostgreSQL
    "servers/spark_server.py",  # the log of Java
}
PROSE = re.compile(r"\b[a-z]{2,} [a-z]{2,}\b")
LOOKS = {"startswith", "endswith", "find", "index", "count", "partition", "removeprefix", "removesuffix"}
LOOKS |= {"search", "match", "fullmatch", "findall"}
_TEXT = r"(?:reason|_message|obstacle)"  # columns end like this
COMPARED = re.compile(
    rf"{_TEXT}\s*(?:<>|!=|!?~\*?|(?:NOT )?I?LIKE|(?:NOT )?IN|IS (?:NOT )?DISTINCT FROM)\s*\(?'"
    rf"|(?:WHERE|AND|OR|WHEN|NOT|ON|\()\s+[\w.]*{_TEXT}\s*=\s*'"
    rf"|(?:starts_with|strpos|position|regexp_match(?:es)?)\([^()]*{_TEXT}"
)


def _compared(tree: ast.Module) -> Iterator[ast.expr]:
    """What comparisons compare, and what comprehensions of comparisons go over."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Compare):
            yield from (node.left, *node.comparators)
        elif isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr in LOOKS:
            yield from node.args
        elif isinstance(node, ast.MatchValue):
            yield node.value
        elif isinstance(node, ast.GeneratorExp | ast.ListComp | ast.SetComp) and isinstance(node.elt, ast.Compare):
            yield from (generator.iter for generator in node.generators)


def _prose(tree: ast.Module) -> Iterator[ast.Constant]:
    for compared in _compared(tree):
        for part in ast.walk(compared):
            if isinstance(part, ast.Constant) and isinstance(part.value, str) and PROSE.search(part.value):
                yield part


def test_no_python_compares_prose() -> None:
    found = [
        f"{name}:{part.lineno}: {part.value!r}"
        for name, tree in modules()
        if name not in FOREIGN_WORDS
        for part in _prose(tree)
    ]
    assert found == []


def test_no_sql_compares_the_texts_of_reasons_and_errors() -> None:
    found = [
        f"{path.name}: {match[0]}"
        for path in sorted(SQL.rglob("*.sql"))
        if path != SQL / "migrations" / "0002_reasons_post.sql"  # gives codes to texts from before there were any
        for match in COMPARED.finditer(path.read_text())
    ]
    assert found == []


@pytest.mark.parametrize(
    "text",
    [
        "reason == 'first load'",
        "message.endswith(' does not exist')",
        "any(w in reason for w in ('the stable function', 'reads the clock'))",
        "re.search('waits for stream table', message)",
    ],
)
def test_comparison_of_prose_is_seen(text: str) -> None:
    assert list(_prose(ast.parse(text)))


@pytest.mark.parametrize(
    ("text", "is_seen"),
    [
        ("WHERE st.mode_reason ~ 'the stable function|CURRENT_DATE'", True),
        ("OR starts_with(st.last_error_message, 'waits for stream table ')", True),
        ("WHERE action = 'REINITIALIZE' OR reason = 'first load'", True),
        ("CASE WHEN m.error_message LIKE '%gone' THEN 1 END", True),
        ("UPDATE t SET last_error_message = 'it is gone'", False),
    ],
)
def test_comparison_of_texts_in_sql_is_seen(text: str, is_seen: bool) -> None:
    assert bool(COMPARED.search(text)) == is_seen


def _loads(text: str) -> dict[str, object]:
    found = json.loads(text)
    assert isinstance(found, dict)
    return found


def _arguments(text: str) -> list[str]:
    """Of a call whose text begins after its parenthesis."""
    found, depth = [""], 0
    for character in text:
        if character == ")" and not depth:
            return [a.strip() for a in found]
        depth += {"(": 1, ")": -1}.get(character, 0)
        if character == "," and not depth:
            found.append("")
        else:
            found[-1] += character
    raise AssertionError(text)
