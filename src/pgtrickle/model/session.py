"""Which session settings of an author apply when the author's query is evaluated.

Values are sent as texts, in fixed formats: dates in ISO, intervals in style postgres, floats with all
digits, bytea in hex. Another format of the author is used only if the query itself converts values to text.
"""

from __future__ import annotations

from collections.abc import Mapping

_FORMATS = {"IntervalStyle": "postgres", "bytea_output": "hex", "array_nulls": "on", "quote_all_identifiers": "off"}
# The formats of our sessions.
USUAL = {"DateStyle": "ISO, MDY", "extra_float_digits": "1", **_FORMATS}
_OURS = frozenset({"search_path", "extra_float_digits", *_FORMATS})


def evaluated(kept: Mapping[str, str]) -> dict[str, str]:
    """The settings under which a query of this author is evaluated, in our formats."""
    found = {name: value for name, value in kept.items() if name not in _OURS}
    if "DateStyle" in found:
        found["DateStyle"] = f"ISO, {found['DateStyle'].rpartition(', ')[2]}"
    return found


def other_formats(kept: Mapping[str, str]) -> dict[str, str]:
    """The author's formats that differ from ours."""
    found = {n: kept[n] for n, ours in _FORMATS.items() if kept.get(n, ours) != ours}
    if not kept.get("DateStyle", "ISO").startswith("ISO"):
        found["DateStyle"] = kept["DateStyle"]
    if int(kept.get("extra_float_digits", "1")) < 1:
        found["extra_float_digits"] = kept["extra_float_digits"]
    return found


def without_formats(settings: Mapping[str, tuple[str, str]]) -> dict[str, tuple[str, str]]:
    """Without those that decide how values are written as texts: for statements that write and read texts of values."""
    return {name: values for name, values in settings.items() if name not in USUAL}


def apart(wanted: Mapping[str, str], session: Mapping[str, str]) -> dict[str, tuple[str, str]]:
    """Settings that the session must change: the required and the current value."""
    usual = {**USUAL, **session}
    return {n: (value, usual[n]) for n, value in wanted.items() if n in usual and usual[n] != value}
