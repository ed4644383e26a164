"""The templates of reasons as an SQL function, so that PostgreSQL can render reasons.

The result is sql/install/reasons/reasons.sql: `make golden` writes it, a test compares it.
"""

from __future__ import annotations

from textwrap import wrap

from pgtrickle.model.reason_codes import ReasonCode

_WIDTH = 100

_SCRIPT = """\
-- Reasons are codes with parameters; what is stored as text beside them is rendered from them.
-- Written by `make golden` from model/reason_codes.py: do not edit.
CREATE OR REPLACE FUNCTION pgtrickle._reason_template(code text) RETURNS text
LANGUAGE sql IMMUTABLE STRICT SET search_path = pg_catalog, pg_temp AS $$
    SELECT CASE code
{branches}
        ELSE code
    END
$$;
COMMENT ON FUNCTION pgtrickle._reason_template(text) IS
'Internal. The text of a reason, with its parameters in braces.';

CREATE OR REPLACE FUNCTION pgtrickle._reason(code text, VARIADIC params text[] DEFAULT '{{}}') RETURNS jsonb
LANGUAGE sql IMMUTABLE STRICT SET search_path = pg_catalog, pg_temp AS $$
    SELECT jsonb_build_object('code', code, 'params', jsonb_object(params))
$$;
COMMENT ON FUNCTION pgtrickle._reason(text, text[]) IS
'Internal. A reason: its code, then names and values of its parameters by turns.';

CREATE OR REPLACE FUNCTION pgtrickle._reason_text(code text, params jsonb) RETURNS text
LANGUAGE sql IMMUTABLE STRICT SET search_path = pg_catalog, pg_temp AS $$
    -- Outside of braces, inside, outside, ...: one pass, so that braces in a value are only text.
    SELECT string_agg(CASE WHEN p.i % 2 = 1 THEN p.part
                           WHEN jsonb_typeof(params -> p.part) = 'object' THEN pgtrickle._reason_text(params -> p.part)
                           ELSE coalesce(params ->> p.part, '{{' || p.part || '}}') END, '' ORDER BY p.i)
    FROM regexp_split_to_table(pgtrickle._reason_template(code), '[{{}}]') WITH ORDINALITY AS p(part, i)
$$;
COMMENT ON FUNCTION pgtrickle._reason_text(text, jsonb) IS
'Internal. The text of a reason, given by its code and its parameters.';

CREATE OR REPLACE FUNCTION pgtrickle._reason_text(reason jsonb) RETURNS text
LANGUAGE sql IMMUTABLE STRICT SET search_path = pg_catalog, pg_temp AS $$
    SELECT pgtrickle._reason_text(reason ->> 'code', reason -> 'params')
$$;
COMMENT ON FUNCTION pgtrickle._reason_text(jsonb) IS 'Internal. The same for a reason as _reason() makes it.';
"""


def reasons_script() -> str:
    return _SCRIPT.format(branches="\n".join(map(_branch, ReasonCode)))


def _branch(code: ReasonCode) -> str:
    # PostgreSQL concatenates literals that are separated by a line break.
    lines = wrap(code.template.replace("'", "''"), _WIDTH, drop_whitespace=False, break_long_words=False)
    text = "\n            ".join(f"'{line}'" for line in lines)
    return f"        WHEN '{code}' THEN {text}"
