"""Reasons in the catalog: PostgreSQL renders the same texts, and those from before there were codes get one."""

from __future__ import annotations

import json

import pytest
from psycopg import sql

from pgtrickle.db import connect, install
from pgtrickle.model.reasons import Reason, ReasonCode, render, stored
from tests.conftest import Database
from tests.unit.test_reasons import sample


def test_postgresql_renders_every_reason_as_python_does(installed: Database) -> None:
    reasons = [sample(code) for code in ReasonCode]
    reasons.append(Reason.of(ReasonCode.TIME_ZONE_CHANGED, old="{new} and '{old}' \\\\1 %s", new="\n"))
    rows = installed.sql(
        "SELECT pgtrickle._reason_text(r), pgtrickle._reason_text(r ->> 'code', r -> 'params') "
        "FROM unnest(%s::jsonb[]) WITH ORDINALITY AS t(r, i) ORDER BY i",
        [json.dumps(r.to_json()) for r in reasons],
    )
    assert rows == [(render(r), render(r)) for r in reasons]
    assert installed.sql("SELECT pgtrickle._reason_text(NULL), pgtrickle._reason_text('nonsense', '{}')") == [
        (None, "nonsense")
    ]


def test_postgresql_gives_the_hints_of_python(installed: Database) -> None:
    reasons = [sample(code) for code in ReasonCode]
    ties = Reason.of(ReasonCode.AGGREGATE_TIES, function="{x}")
    reasons += [
        Reason.of(ReasonCode.UNDETERMINED, what=ties),
        Reason.of(ReasonCode.IN_VIEW, view="v", why=Reason.of(ReasonCode.UNDETERMINED, what=ties)),
        Reason.of(ReasonCode.NO_FIXPOINT, table="t", why=ties),
    ]
    rows = installed.sql(
        "SELECT pgtrickle._reason_hint(r ->> 'code', r -> 'params') "
        "FROM unnest(%s::jsonb[]) WITH ORDINALITY AS t(r, i) ORDER BY i",
        [json.dumps(r.to_json()) for r in reasons],
    )
    assert rows == [(r.hint,) for r in reasons]


def test_reason_of_postgresql_is_one_of_python(installed: Database) -> None:
    ((found,),) = installed.sql("SELECT pgtrickle._reason('time_zone_changed', 'old', 'A', 'new', 'B')")
    assert Reason.from_json(found) == Reason.of(ReasonCode.TIME_ZONE_CHANGED, old="A", new="B")
    ((found,),) = installed.sql("SELECT pgtrickle._reason('first_load')")
    assert Reason.from_json(found) == Reason.of(ReasonCode.FIRST_LOAD)


def test_definition_stores_code_parameters_and_text(installed: Database) -> None:
    installed.sql("CREATE TABLE t (a int)")
    installed.sql("SELECT pgtrickle.create_stream_table('st', 'SELECT a, current_setting(''x'', true) AS s FROM t')")
    read = "SELECT mode_reason_code, mode_reason_params, mode_reason FROM pgtrickle.pgt_stream_tables"
    ((code, params, text),) = installed.sql(read)
    reason = Reason.of(ReasonCode.STABLE_FUNCTION, function="pg_catalog.current_setting(text, boolean)")
    assert (stored(code, params), text) == (reason, render(reason))
    installed.sql("SELECT pgtrickle.alter_stream_table('st', query => 'SELECT a FROM t')")
    assert installed.sql(read) == [(None, None, None)]
    assert installed.sql("SELECT reinit_reason_code, reinit_reason FROM pgtrickle.pgt_stream_tables") == [
        ("query_altered", "the query was altered")
    ]


@pytest.mark.parametrize(
    ("text", "code", "params"),
    [
        (
            "the query calls the stable function public.f(a integer), whose result may change while no source does",
            ReasonCode.STABLE_FUNCTION,
            {"function": "public.f(a integer)"},
        ),
        (
            "the query casts text to date, which reads the clock for values such as 'now'",
            ReasonCode.TEXT_READS_CLOCK,
            {"type": "date"},
        ),
        (
            "the query reads date out of JSON, for which values such as 'now' read the clock",
            ReasonCode.JSON_READS_CLOCK,
            {"type": "date"},
        ),
        (
            "the query uses CURRENT_DATE, CURRENT_USER or the like",
            ReasonCode.SESSION_VALUE,
            {"function": "CURRENT_DATE, CURRENT_USER or the like"},
        ),
        ("the query uses\nDISTINCT", ReasonCode.EARLIER, {"text": "the query uses\nDISTINCT"}),
    ],
)
def test_text_from_before_there_were_codes_gets_one(
    installed: Database, text: str, code: ReasonCode, params: dict[str, str]
) -> None:
    installed.sql("CREATE TABLE t (a int)")
    installed.sql("SELECT pgtrickle.create_stream_table('st', 'SELECT a FROM t')")
    columns = (
        "mode_reason_code",
        "mode_reason_params",
        "reinit_reason_code",
        "reinit_reason_params",
        "last_error_code",
    )
    gone = sql.SQL(", ").join(sql.SQL("DROP COLUMN {}").format(sql.Identifier(c)) for c in columns)
    installed.sql(sql.SQL("ALTER TABLE pgtrickle.pgt_stream_tables {}").format(gone).as_string())
    installed.sql(
        "UPDATE pgtrickle.pgt_stream_tables SET effective_refresh_mode = 'FULL', mode_reason = %s, "
        "reinit_reason = 'because', last_error_message = 'waits for stream table x: ERROR'",
        text,
    )
    installed.sql("UPDATE pgtrickle.pgt_schema_version SET version = 1")
    with connect(installed.dsn, role="test", autocommit=True) as conn:
        install(conn)
    listed = ", ".join((*columns, "mode_reason", "reinit_reason"))
    assert installed.sql(f"SELECT {listed} FROM pgtrickle.pgt_stream_tables") == [
        (
            code,
            params,
            "earlier",
            {"text": "because"},
            "waits_for_stream_table",
            render(Reason.of(code, **params)),
            "because",
        )
    ]
