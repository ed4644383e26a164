"""The templates of reasons and hints as SQL functions, so that PostgreSQL can render them.

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

CREATE OR REPLACE FUNCTION pgtrickle._hint_template(code text) RETURNS text
LANGUAGE sql IMMUTABLE STRICT SET search_path = pg_catalog, pg_temp AS $$
    SELECT CASE code
{hints}
    END
$$;
COMMENT ON FUNCTION pgtrickle._hint_template(text) IS
'Internal. What the author of a query can do about a reason, with its parameters in braces; NULL: nothing general.';

CREATE OR REPLACE FUNCTION pgtrickle._reason(code text, VARIADIC params text[] DEFAULT '{{}}') RETURNS jsonb
LANGUAGE sql IMMUTABLE STRICT SET search_path = pg_catalog, pg_temp AS $$
    SELECT jsonb_build_object('code', code, 'params', jsonb_object(params))
$$;
COMMENT ON FUNCTION pgtrickle._reason(text, text[]) IS
'Internal. A reason: its code, then names and values of its parameters by turns.';

CREATE OR REPLACE FUNCTION pgtrickle._filled(template text, params jsonb) RETURNS text
LANGUAGE sql IMMUTABLE STRICT SET search_path = pg_catalog, pg_temp AS $$
    -- Outside of braces, inside, outside, ...: one pass, so that braces in a value are only text.
    SELECT string_agg(CASE WHEN p.i % 2 = 1 THEN p.part
                           WHEN jsonb_typeof(params -> p.part) = 'object' THEN pgtrickle._reason_text(params -> p.part)
                           ELSE coalesce(params ->> p.part, '{{' || p.part || '}}') END, '' ORDER BY p.i)
    FROM regexp_split_to_table(template, '[{{}}]') WITH ORDINALITY AS p(part, i)
$$;
COMMENT ON FUNCTION pgtrickle._filled(text, jsonb) IS 'Internal. A template with the values of its parameters.';

CREATE OR REPLACE FUNCTION pgtrickle._reason_text(code text, params jsonb) RETURNS text
LANGUAGE sql IMMUTABLE STRICT SET search_path = pg_catalog, pg_temp AS $$
    SELECT pgtrickle._filled(pgtrickle._reason_template(code), params)
$$;
COMMENT ON FUNCTION pgtrickle._reason_text(text, jsonb) IS
'Internal. The text of a reason, given by its code and its parameters.';

CREATE OR REPLACE FUNCTION pgtrickle._reason_text(reason jsonb) RETURNS text
LANGUAGE sql IMMUTABLE STRICT SET search_path = pg_catalog, pg_temp AS $$
    SELECT pgtrickle._reason_text(reason ->> 'code', reason -> 'params')
$$;
COMMENT ON FUNCTION pgtrickle._reason_text(jsonb) IS 'Internal. The same for a reason as _reason() makes it.';

CREATE OR REPLACE FUNCTION pgtrickle._reason_hint(code text, params jsonb) RETURNS text
LANGUAGE sql IMMUTABLE STRICT SET search_path = pg_catalog, pg_temp AS $$
    SELECT coalesce(
        pgtrickle._filled(pgtrickle._hint_template(code), params),
        (SELECT h.hint
         FROM jsonb_each(params) AS p
         CROSS JOIN LATERAL (SELECT pgtrickle._reason_hint(p.value ->> 'code', p.value -> 'params')) AS h(hint)
         WHERE jsonb_typeof(p.value) = 'object' AND h.hint IS NOT NULL
         ORDER BY p.key COLLATE "C"
         LIMIT 1))
$$;
COMMENT ON FUNCTION pgtrickle._reason_hint(text, jsonb) IS
'Internal. What the author of a query can do about a reason: a hint of its code, or of a reason in it; else NULL.';
"""


def reasons_script() -> str:
    texts = [_branch(code, code.template) for code in ReasonCode]
    hints = [_branch(code, code.hint) for code in ReasonCode if code.hint is not None]
    return _SCRIPT.format(branches="\n".join(texts), hints="\n".join(hints))


def _branch(code: ReasonCode, template: str) -> str:
    # PostgreSQL concatenates literals that are separated by a line break.
    lines = wrap(template.replace("'", "''"), _WIDTH, drop_whitespace=False, break_long_words=False)
    text = "\n            ".join(f"'{line}'" for line in lines)
    return f"        WHEN '{code}' THEN {text}"
