"""date_bin: the start of the bin that contains a timestamp; all bins have the same constant width."""

from __future__ import annotations

from collections.abc import Sequence

from pgtrickle.pipeline.expressions.failures import refused
from pgtrickle.pipeline.expressions.times import Interval, checked_timestamp, is_infinite
from pgtrickle.pipeline.expressions.types import DAY, Column, Functions, PgType
from pgtrickle.pipeline.expressions.values import Value

_WIDE = "decimal(38,0)"


def binned(f: Functions, a: Sequence[Value], _t: PgType) -> Column:
    """(width, timestamp, origin)."""
    width = a[0].constant
    assert isinstance(width, Interval)
    x, origin = a[1].column, a[2].column
    known = x.isNotNull() & origin.isNotNull()
    start = f.when(is_infinite(x, a[1].type.name), x).when(
        is_infinite(origin, a[2].type.name), refused(f, "origin out of range")
    )
    return f.when(known, start.otherwise(_finite(f, width, x.cast(_WIDE), origin.cast(_WIDE))))


def _finite(f: Functions, width: Interval, x: Column, origin: Column) -> Column:
    size = width.days * DAY + width.microseconds
    if width.months:
        return refused(f, "timestamps cannot be binned into intervals containing months or years")
    if size <= 0:
        return refused(f, "stride must be greater than zero")
    distance = x - origin
    too_far = (distance >= f.lit(str(1 << 63)).cast(_WIDE)) | (distance < f.lit(str(-(1 << 63))).cast(_WIDE))
    inside = f.pmod(distance, f.lit(str(size)).cast(_WIDE))
    return f.when(too_far, refused(f, "interval out of range")).otherwise(checked_timestamp(f, x - inside))
