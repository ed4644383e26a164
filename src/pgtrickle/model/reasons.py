"""Why something was decided: a code with parameters. Decisions compare codes; the text is for people. Pure."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, NamedTuple

from pgtrickle.errors import DefinitionError, InvariantError
from pgtrickle.model.reason_codes import CHANGES_BY_ITSELF, PLACEHOLDER, ReasonCode

__all__ = ["NotDifferentiableError", "Reason", "ReasonCode", "ReasonColumns", "columns", "named", "render", "stored"]

_BY_VALUE = {code.value: code for code in ReasonCode}


@dataclass(frozen=True, slots=True)
class Reason:
    """`params` has one value for each placeholder of the code's template, sorted by name; a value may be a reason."""

    code: ReasonCode
    params: tuple[tuple[str, str | int | Reason], ...] = ()

    @staticmethod
    def of(code: ReasonCode, **params: str | int | Reason) -> Reason:
        if params.keys() != code.parameters:
            raise ValueError(f"{code}: the parameters are {sorted(params)}, the template has {sorted(code.parameters)}")
        return Reason(code, tuple(sorted(params.items())))

    @property
    def changes_by_itself(self) -> bool:
        return self.code in CHANGES_BY_ITSELF

    @property
    def hint(self) -> str | None:
        """What the author of a query can do: a hint of this code, or of a reason in it. PostgreSQL: _reason_hint()."""
        if self.code.hint is not None:
            return _filled(self.code.hint, self)
        return next((value.hint for _, value in self.params if isinstance(value, Reason) and value.hint), None)

    def __str__(self) -> str:
        return render(self)

    def to_json(self) -> dict[str, Any]:
        return {"code": self.code.value, "params": self.params_json()}

    def params_json(self) -> dict[str, Any]:
        return {name: value.to_json() if isinstance(value, Reason) else value for name, value in self.params}

    @staticmethod
    def from_json(found: Mapping[str, Any]) -> Reason:
        return _decoded(found["code"], found["params"])


class ReasonColumns(NamedTuple):
    """The columns of a reason in the catalog. Code and parameters are authoritative, the text is for people."""

    code: str | None
    params: str | None  # jsonb
    text: str | None


def render(reason: Reason) -> str:
    """The text. PostgreSQL renders the same from the same template: pgtrickle._reason_text()."""
    return _filled(reason.code.template, reason)


def _filled(template: str, reason: Reason) -> str:
    params = dict(reason.params)
    return PLACEHOLDER.sub(lambda match: str(params[match[1]]), template)


def columns(reason: Reason | None) -> ReasonColumns:
    if reason is None:
        return ReasonColumns(None, None, None)
    return ReasonColumns(reason.code.value, json.dumps(reason.params_json()), render(reason))


def named(reason: Reason | None) -> dict[str, str | None]:
    """The same as parameters of a statement."""
    found = columns(reason)
    return {"reason_code": found.code, "reason_params": found.params, "reason": found.text}


def stored(code: str | None, params: Mapping[str, Any] | None) -> Reason | None:
    """From the columns of the catalog."""
    return None if code is None else _decoded(code, params or {})


def _decoded(code: str, params: Mapping[str, Any]) -> Reason:
    known = _BY_VALUE.get(code)
    if known is None:
        raise InvariantError(f"the catalog has a reason with the unknown code {code}")
    values = {k: Reason.from_json(v) if isinstance(v, Mapping) else v for k, v in params.items()}
    return Reason.of(known, **values)


class NotDifferentiableError(DefinitionError):
    """The query cannot be maintained from changes; AUTO turns this into FULL with its reason."""

    code = "PGT201"

    def __init__(self, reason: Reason, *, hint: str | None = None) -> None:
        super().__init__(render(reason), hint=hint or reason.hint)
        self.reason = reason
