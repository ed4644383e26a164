"""Relations of a small shop, as the catalog would describe them, and texts as pg_get_viewdef prints them."""

from __future__ import annotations

from collections.abc import Sequence

from pgtrickle.errors import SourceChangedError
from pgtrickle.model.catalog import Column, Relation
from pgtrickle.pipeline.parse.query import parse
from pgtrickle.pipeline.parse.reader import Functions
from pgtrickle.pipeline.plan.nodes import Plan
from pgtrickle.pipeline.templates.canonical import Describe, canonical
from pgtrickle.pipeline.templates.template import Template, template_of

_OIDS = {
    "integer": 23,
    "text": 25,
    "numeric(10,2)": 1700,
    "timestamp with time zone": 1184,
    "text[]": 1009,
    "boolean": 16,
}
_MODS = {"numeric(10,2)": ((10 << 16) | 2) + 4}
FUNCTIONS = Functions(
    frozenset({"count", "sum", "avg", "min", "max", "string_agg", "array_agg", "bool_and"}),
    frozenset({"unnest", "generate_series"}),
)


def _relation(
    relid: int,
    name: str,
    *columns: tuple[str, str],
    kind: str = "r",
    query: str | None = None,
    key: tuple[int, ...] = (),
) -> Relation:
    described = tuple(
        Column(i, n, t, _OIDS[t], _MODS.get(t, -1), not_null=i in key) for i, (n, t) in enumerate(columns, start=1)
    )
    return Relation(relid, "shop", name, kind, described, query, key=key)


RELATIONS = {
    r.name: r
    for r in (
        _relation(
            1,
            "sale",
            ("id", "integer"),
            ("customer_id", "integer"),
            ("qty", "integer"),
            ("price", "numeric(10,2)"),
            ("at", "timestamp with time zone"),
            ("note", "text"),
            ("tags", "text[]"),
            ("ok", "boolean"),
            key=(1,),
        ),
        _relation(2, "customer", ("id", "integer"), ("name", "text"), ("region", "text")),
        _relation(
            3, "Odd Table", ("group", "integer"), ("Mixed Case", "text"), ('quo"te', "integer"), ("select", "integer")
        ),
        _relation(
            4,
            "big",
            ("id", "integer"),
            ("amount", "integer"),
            ("customer_id", "integer"),
            kind="v",
            query=" SELECT id,\n    qty AS amount,\n    customer_id\n   FROM shop.sale\n  WHERE (qty > 10);",
        ),
        _relation(
            5,
            "named",
            ("c", "integer"),
            ("n", "text"),
            kind="v",
            query=" SELECT id AS c,\n    name AS n\n   FROM shop.customer;",
        ),
        _relation(
            6,
            "nested",
            ("amount", "integer"),
            ("n", "text"),
            kind="v",
            query=" SELECT b.amount,\n    n.n\n   FROM (shop.big b\n"
            "     JOIN shop.named n ON ((n.c = b.customer_id)));",
        ),
    )
}


def find(schema: str, name: str) -> Relation:
    if schema != "shop" or name not in RELATIONS:
        raise SourceChangedError(f"relation {schema}.{name} does not exist any more")
    return RELATIONS[name]


def plan_of(text: str) -> Plan:
    """The plan of a text, with every column of every table captured."""
    used = {r.relid: frozenset(c.attnum for c in r.columns) for r in RELATIONS.values()}
    return parse(text, find, used, FUNCTIONS)


def compile_plan(plan: Plan, columns: Sequence[Column], describe: Describe) -> Template:
    """The last two passes of the compiler: canonical texts, then the template."""
    return template_of(canonical(plan, describe), columns, describe, "shop.stored", "shop.state")
