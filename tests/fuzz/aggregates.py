"""Random aggregates whose results do not depend on the order of the rows."""

from __future__ import annotations

from dataclasses import dataclass
from random import Random

from tests.fuzz.expressions import Expressions, Scope
from tests.fuzz.tree import BOOL, DATE, INT, NUM, TEXT, TYPES, Expr


@dataclass
class Aggregates:
    random: Random
    expressions: Expressions
    used: set[str]

    def any(self, type_: str, scope: Scope) -> Expr:
        """Its arguments are columns of this SELECT only, else it would belong to one around it."""
        random = self.random
        own = Scope(tuple(c for c in scope.own if c.type in TYPES))

        def value(wanted: str) -> Expr:
            return self.expressions.any(wanted, own, random.choice((0, 0, 1)))

        distinct = random.choice(("", "", "", "DISTINCT "))
        type_of = random.choice((INT, NUM))
        other = random.choice((INT, TEXT, DATE))
        choices: tuple[tuple[str, tuple[str, ...]], ...]
        match type_:
            case "int":
                choices = (
                    ("count(*)", ()),
                    (f"count({distinct}{{}})", (other,)),
                    (f"sum({distinct}{{}})::bigint", (INT,)),
                    ("min({})", (INT,)),
                    ("max({})", (INT,)),
                    (random.choice(("bit_and({})", "bit_or({})", "bit_xor({})")), (INT,)),
                    ("percentile_disc(0.5) WITHIN GROUP (ORDER BY {})", (INT,)),
                    ("mode() WITHIN GROUP (ORDER BY {})", (INT,)),
                    ("rank(2) WITHIN GROUP (ORDER BY {})", (INT,)),
                    ("cardinality(array_agg({}))", (other,)),
                )
            case "numeric":
                choices = (
                    (f"sum({distinct}{{}})", (type_of,)),
                    (f"sum({distinct}{{}})", (NUM,)),
                    (f"avg({distinct}{{}})", (type_of,)),
                    ("min({})", (NUM,)),
                    ("max({})", (NUM,)),
                    (random.choice(("variance({})", "var_pop({})", "stddev({})", "stddev_pop({})")), (type_of,)),
                )
            case "text":
                choices = (
                    ("min({})", (TEXT,)),
                    ("max({})", (TEXT,)),
                    ("string_agg(<1>, ',' ORDER BY <1>)", (TEXT,)),
                    ("string_agg(DISTINCT <1>, '|' ORDER BY <1> DESC)", (TEXT,)),
                    ("array_to_string(array_agg(<1> ORDER BY <1>), ',', '*')", (other,)),
                    ("jsonb_agg(<1> ORDER BY <1>)::text", (random.choice((INT, TEXT)),)),
                    ("percentile_disc(0.25) WITHIN GROUP (ORDER BY {})", (TEXT,)),
                )
            case "date":
                choices = (("min({})", (DATE,)), ("max({})", (DATE,)), ("mode() WITHIN GROUP (ORDER BY {})", (DATE,)))
            case _:
                choices = (
                    ("bool_and({})", (BOOL,)),
                    ("bool_or({})", (BOOL,)),
                    ("every({})", (BOOL,)),
                    ("(count(*) > 2)", ()),
                )
        template, wants = random.choice(choices)
        self.used.add(template.partition("(")[0].strip("(") or "count")
        args = tuple(value(t) for t in wants)
        if "<1>" in template:
            args *= template.count("<1>")
            template = template.replace("<1>", "{}")
        if "DISTINCT" in template:
            self.used.add("DISTINCT aggregate")
        if random.random() < 0.15 and template.endswith(")") and not template.startswith(("(", "array_to", "cardin")):
            self.used.add("FILTER")
            condition = self.expressions.condition(own, 1)
            return Expr(template + " FILTER (WHERE {})", type_, (*args, condition))
        return Expr(template, type_, args)
