"""The allow-list: every function, operator, cast and construct that Spark evaluates with PostgreSQL's result.

Each entry has a case in tests/spark/test_conformance.py, which compares both engines over the boundary values of its
types. Entries whose results differ are not listed: casts from float to numeric and text (Spark prints other digits).
Entries that depend on DateStyle or TimeZone require ISO or UTC.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial

from pgtrickle.pipeline.expressions import comparisons, division, numbers, texts, time_bins, time_texts, times
from pgtrickle.pipeline.expressions.entries import Entry
from pgtrickle.pipeline.expressions.types import FLOATS, INTEGERS, ORDERED, SCALE_HISTOGRAM, TEXTS, TIMES

ROUND_DIGITS = tuple(range(-6, 19))
TYPES = (*ORDERED, "opaque")
CARRIED = (*TYPES, "jsonb")


def _comparisons() -> Iterator[Entry]:
    for name in comparisons.COMPARISONS:
        build = comparisons.compared(name)
        equality = name in comparisons.EQUALITY
        for type_ in TYPES if equality else ORDERED:
            if type_ == "varchar":  # compared as text
                continue
            is_text = type_ in TEXTS
            yield Entry("operator", name, (type_, type_), "bool", build, reads=is_text, orders=is_text and not equality)
        for pair in (("date", "timestamp"), ("timestamp", "date")):
            yield Entry("operator", name, pair, "bool", build, repeats=True)


def _constructs() -> Iterator[Entry]:
    for name, (count, build) in comparisons.LOGIC.items():
        yield Entry("construct", name, ("bool",) * count, "bool", build)
    for type_ in CARRIED:
        yield Entry("construct", "IS NULL", (type_,), "bool", comparisons.is_null)
        yield Entry("construct", "IS NOT NULL", (type_,), "bool", comparisons.is_not_null)
        yield Entry("construct", "CASE", ("bool", type_, type_), type_, note="any number of branches")
        yield Entry("construct", "COALESCE", (type_, type_), type_, note="any number of arguments")
        if type_ not in ("varchar", "jsonb"):  # varchar is compared and returned as text
            yield Entry("construct", "NULLIF", (type_, type_), type_, reads=type_ in TEXTS)
        if type_ in ORDERED:
            for name in ("GREATEST", "LEAST"):
                is_text = type_ in TEXTS
                yield Entry(
                    "construct",
                    name,
                    (type_, type_),
                    type_,
                    reads=is_text,
                    orders=is_text,
                    note="any number of arguments",
                )


def _arithmetic() -> Iterator[Entry]:
    for type_ in INTEGERS:
        pair = (type_, type_)
        for name, build in numbers.INT_OPERATORS.items():
            note = "also mod()" if name == "%" else ""
            yield Entry("operator", name, pair, type_, build, may_fail=True, note=note)
        yield Entry("operator", "-", (type_,), type_, numbers.negated, may_fail=True)
        yield Entry("function", "abs", (type_,), type_, numbers.absolute, may_fail=True)
    for type_ in FLOATS:
        for name, build in numbers.FLOAT_OPERATORS.items():
            yield Entry("operator", name, (type_, type_), type_, build, repeats=True, may_fail=True)
        yield Entry("operator", "-", (type_,), type_, numbers.negated)
        yield Entry("function", "abs", (type_,), type_, numbers.absolute)
    for name, build in {
        "round": numbers.float_round,
        "floor": numbers.float_floor,
        "ceil": numbers.float_ceil,
        "trunc": numbers.float_trunc,
        "sign": numbers.float_sign,
    }.items():
        yield Entry("function", name, ("float8",), "float8", build, repeats=True)


def _numerics() -> Iterator[Entry]:
    pair = ("numeric", "numeric")
    sums, larger, own = numbers.sum_shape, numbers.larger_scale, numbers.own_scale
    yield Entry("operator", "+", pair, "numeric", numbers.numeric_sum, sums, larger, may_fail=True)
    yield Entry("operator", "-", pair, "numeric", numbers.numeric_difference, sums, larger, may_fail=True)
    yield Entry(
        "operator",
        "*",
        pair,
        "numeric",
        numbers.numeric_product,
        numbers.product_shape,
        numbers.added_scale,
        may_fail=True,
    )
    rest, remainder = numbers.remainder_shape, numbers.numeric_remainder
    yield Entry("operator", "%", pair, "numeric", remainder, rest, larger, may_fail=True, note="also mod()")
    yield Entry(
        "operator",
        "/",
        pair,
        "numeric",
        division.quotient,
        division.quotient_shape,
        division.quotient_scale,
        repeats=True,
        may_fail=True,
    )
    one, same, whole = ("numeric",), numbers.same_shape, numbers.whole_shape
    yield Entry("operator", "-", one, "numeric", numbers.numeric_negated, same, own)
    yield Entry("function", "abs", one, "numeric", numbers.numeric_absolute, same, own, repeats=True)
    yield Entry("function", "sign", one, "numeric", numbers.numeric_sign, whole, repeats=True)
    yield Entry("function", "scale", one, "int4", numbers.display_scale, repeats=True)
    histogram, note = numbers.scale_histogram, "('1e' || 12 * scale(...))::numeric, in states of groups"
    yield Entry("function", SCALE_HISTOGRAM, one, "numeric", histogram, numbers.histogram_shape, note=note)
    yield Entry("function", "floor", one, "numeric", numbers.numeric_floor, whole, may_fail=True)
    yield Entry("function", "ceil", one, "numeric", numbers.numeric_ceil, whole, may_fail=True)
    for name in ("round", "trunc"):
        for digits in (None, *ROUND_DIGITS):
            shape, build = numbers.rounded(digits or 0, truncate=name == "trunc")
            parameter = None if digits is None else str(digits)
            yield Entry(
                "function",
                name,
                one,
                "numeric",
                build,
                shape,
                parameter=parameter,
                repeats=name == "trunc",
                may_fail=True,
            )


def _texts() -> Iterator[Entry]:
    function = partial(Entry, "function", repeats=True)

    yield Entry("operator", "||", ("text", "text"), "text", texts.joined)
    yield Entry("function", "concat", ("text", "text"), "text", texts.concat, note="any number of arguments")
    yield function("length", ("text",), "int4", texts.length)
    yield function("octet_length", ("text",), "int4", texts.octet_length)
    yield function("reverse", ("text",), "text", texts.reverse)
    yield function("substring", ("text", "int4"), "text", texts.substring)
    yield function("substring", ("text", "int4", "int4"), "text", texts.substring, may_fail=True)
    yield function("left", ("text", "int4"), "text", texts.left)
    yield function("right", ("text", "int4"), "text", texts.right)
    yield function("position", ("text", "text"), "int4", texts.position, reads=True, note="(string, substring)")
    yield function("replace", ("text", "text", "text"), "text", texts.replace, reads=True)
    yield function("starts_with", ("text", "text"), "bool", texts.starts_with, reads=True)
    yield function("split_part", ("text", "text", "int4"), "text", texts.split_part, reads=True, may_fail=True)
    for name, build in {"btrim": texts.btrim, "ltrim": texts.ltrim, "rtrim": texts.rtrim}.items():
        yield function(name, ("text",), "text", build)
        yield function(name, ("text", "text"), "text", build)
    for name, build in {"lower": texts.lower, "upper": texts.upper}.items():
        yield function(name, ("text",), "text", build, reads=True, orders=True)
    for name, build in {"LIKE": texts.like, "NOT LIKE": texts.not_like}.items():
        pair, second = ("text", "text"), frozenset({1})
        yield Entry("operator", name, pair, "bool", build, constants=second, reads=True, note="constant pattern")


def _times() -> Iterator[Entry]:
    for pair in (("date", "int4"), ("int4", "date")):
        yield Entry("operator", "+", pair, "date", times.date_plus, repeats=True, may_fail=True)
    yield Entry("operator", "-", ("date", "int4"), "date", times.date_minus, repeats=True, may_fail=True)
    yield Entry("operator", "-", ("date", "date"), "int4", times.date_difference, repeats=True, may_fail=True)
    second = frozenset({1})
    for type_ in ("timestamp", "timestamptz"):
        pair = (type_, "interval")
        note = "constant interval" if type_ == "timestamp" else "constant interval of hours and less"
        for name, moved in {"+": times.plus_interval, "-": times.minus_interval}.items():
            yield Entry("operator", name, pair, type_, moved, constants=second, repeats=True, may_fail=True, note=note)
    fields = {"date": times.DATE_FIELDS, "timestamp": times.TIMESTAMP_FIELDS, "timestamptz": times.TIMESTAMP_FIELDS}
    for type_ in TIMES:
        for field in fields[type_]:
            utc = type_ == "timestamptz" and field != "epoch"
            shape = numbers.digits_shape(times.field_scale(field, type_))
            build = times.field(field, as_float=False)
            yield Entry(
                "function",
                "extract",
                (type_,),
                "numeric",
                build,
                shape,
                parameter=field,
                repeats=True,
                may_fail=True,
                utc=utc,
            )
            if type_ != "date":  # date_part of a date is that of the timestamp
                build = times.field(field, as_float=True)
                yield Entry("function", "date_part", (type_,), "float8", build, parameter=field, repeats=True, utc=utc)
    yield from _shown_times()
    for type_ in ("timestamp", "timestamptz"):
        function = partial(Entry, "function", repeats=True, may_fail=True)
        for unit in times.TRUNC_UNITS:
            build, utc = times.truncated(unit), type_ == "timestamptz"
            yield function("date_trunc", (type_,), type_, build, parameter=unit, utc=utc)
        constants, note = frozenset({0, 2}), "constant interval and origin"
        yield function("date_bin", ("interval", type_, type_), type_, time_bins.binned, constants=constants, note=note)
    for pair in (("timestamp", "timestamptz"), ("timestamptz", "timestamp")):
        yield Entry("function", "timezone", pair[:1], pair[1], texts.same, parameter="UTC", note="AT TIME ZONE 'UTC'")


def _shown_times() -> Iterator[Entry]:
    function = partial(Entry, "function", "to_char", result="text", repeats=True)
    for format_ in time_texts.DATE_FORMATS:
        build = time_texts.formatted(format_)
        yield function(("date",), build=build, parameter=format_, may_fail=True, note="cast to timestamptz")
    for format_ in time_texts.FORMATS:
        build = time_texts.formatted(format_)
        yield function(("timestamp",), build=build, parameter=format_)
        yield function(("timestamptz",), build=build, parameter=format_, utc=True)


def _casts() -> Iterator[Entry]:
    for source in INTEGERS:
        for target in INTEGERS:
            if source != target:
                yield Entry("cast", "cast", (source,), target, numbers.widened, may_fail=True)
        yield Entry("cast", "cast", (source,), "numeric", numbers.integer_to_numeric)
        yield Entry("cast", "cast", ("numeric",), source, numbers.numeric_to_integer, repeats=True, may_fail=True)
        for target in FLOATS:
            yield Entry("cast", "cast", (source,), target, numbers.widened)
            yield Entry("cast", "cast", (target,), source, numbers.float_to_integer, repeats=True, may_fail=True)
        yield Entry("cast", "cast", (source,), "text", texts.from_bool_or_integer)
        yield Entry("cast", "cast", ("text",), source, texts.to_integer, repeats=True, may_fail=True)
    yield Entry("cast", "cast", ("numeric",), "numeric", numbers.to_numeric, repeats=True, may_fail=True)
    for target in FLOATS:
        yield Entry("cast", "cast", ("numeric",), target, numbers.numeric_to_float, repeats=True, may_fail=True)
    yield Entry("cast", "cast", ("float4",), "float8", numbers.widened)
    yield Entry("cast", "cast", ("float8",), "float4", numbers.float8_to_float4, repeats=True, may_fail=True)
    yield Entry("cast", "cast", ("numeric",), "text", comparisons.as_text, repeats=True)
    yield Entry("cast", "cast", ("bool",), "text", texts.from_bool_or_integer)
    yield Entry("cast", "cast", ("bool",), "int4", comparisons.from_bool)
    yield Entry("cast", "cast", ("int4",), "bool", comparisons.to_bool)
    for source in TEXTS:
        yield Entry("cast", "cast", (source,), "text", texts.same)
        yield Entry("cast", "cast", (source,), "varchar", texts.to_varchar)
        yield Entry("cast", "cast", (source,), "bpchar", texts.to_bpchar)
    yield Entry("cast", "cast", ("date",), "timestamp", times.date_to_timestamp, repeats=True, may_fail=True)
    yield Entry("cast", "cast", ("timestamp",), "date", times.timestamp_to_date, repeats=True)
    yield Entry("cast", "cast", ("uuid",), "text", texts.same)
    yield Entry(
        "cast", "cast", ("date",), "timestamptz", times.date_to_timestamp, repeats=True, may_fail=True, utc=True
    )
    yield Entry("cast", "cast", ("timestamptz",), "date", times.timestamp_to_date, repeats=True, utc=True)
    yield Entry("cast", "cast", ("timestamp",), "timestamptz", texts.same, utc=True)
    yield Entry("cast", "cast", ("timestamptz",), "timestamp", texts.same, utc=True)
    yield Entry("cast", "cast", ("date",), "text", time_texts.date_text, repeats=True, iso=True)
    shown = time_texts.timestamp_text
    yield Entry("cast", "cast", ("timestamp",), "text", shown, repeats=True, iso=True)
    yield Entry("cast", "cast", ("timestamptz",), "text", shown, repeats=True, iso=True, utc=True)


ENTRIES = (*_comparisons(), *_constructs(), *_arithmetic(), *_numerics(), *_texts(), *_times(), *_casts())
BY_KEY = {entry.key: entry for entry in ENTRIES if entry.kind != "cast"}
CASTS = {(entry.arguments[0], entry.result): entry for entry in ENTRIES if entry.kind == "cast"}
assert len(BY_KEY) + len(CASTS) == len(ENTRIES)
