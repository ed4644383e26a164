"""Definitions in files against real databases: planned, applied, applied again, pruned."""

from __future__ import annotations

import re
import threading
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import psycopg
import pytest

from pgtrickle.db import connect
from pgtrickle.define.cross_database import define_pending
from pgtrickle.definitions import fleet
from pgtrickle.definitions.changes import ApplyResult, Change
from pgtrickle.definitions.export import collect, files_of
from pgtrickle.definitions.read import read_set
from pgtrickle.definitions.tables import Policy
from pgtrickle.origin.sessions import OriginSessions
from tests.conftest import Database
from tests.postgres import rows

TOTALS = "SELECT region, sum(amount) AS total FROM orders GROUP BY region"


@dataclass
class Folder:
    """A folder of definitions, applied as the role of a DSN."""

    path: Path
    dsn: str
    only: Sequence[str] = ()
    policy: dict[str, bool] = field(default_factory=dict)

    def write(self, **texts: str | None) -> Folder:
        for name, text in texts.items():
            path = self.path / f"{name}.sql"
            if text is None:
                path.unlink()
            else:
                path.write_text(text)
        return self

    def toml(self, text: str) -> Folder:
        (self.path / "all.toml").write_text(text)
        return self

    def _visit(self, act: bool, policy: dict[str, bool]) -> dict[str, ApplyResult]:
        wanted, problems = read_set(self.path, "shop")
        assert problems == ()
        allowed = Policy(**policy)
        known = fleet.databases(self.dsn, self.only)
        targets, problems_of_globs = fleet.targets(wanted, known, everywhere=allowed.prune)
        assert problems_of_globs == []
        found = {}
        for target in targets:
            outcome = fleet.plan(self.dsn, wanted, target, allowed)
            if outcome is not None and act and outcome.changes:
                outcome = fleet.carry_out(self.dsn, wanted, target, allowed, outcome)
            if outcome is not None:
                found[target.database] = outcome
        return found

    def plan(self, **policy: bool) -> list[tuple[str, str]]:
        (outcome,) = self._visit(False, policy).values()
        assert outcome.errors == ()
        return actions(outcome.changes)

    def apply(self, **policy: bool) -> list[tuple[str, str]]:
        (outcome,) = self._visit(True, policy).values()
        assert outcome.errors == ()
        assert outcome.status in ("applied", "unchanged")
        return actions(outcome.changes)

    def everywhere(self, **policy: bool) -> dict[str, ApplyResult]:
        return self._visit(True, policy)

    def refused(self, **policy: bool) -> list[str]:
        (outcome,) = self._visit(True, policy).values()
        assert outcome.status == "failed"
        return [error.replace(f"{self.path}/", "") for error in outcome.errors]


def actions(changes: Sequence[Change]) -> list[tuple[str, str]]:
    return [(change.action, change.name) for change in changes]


def names(db: Database) -> list[str]:
    return [name for (name,) in db.sql("SELECT name FROM pgtrickle.pgt_status() ORDER BY 1")]


def control_plane(db: Database) -> None:
    """Does what it was asked for."""
    with connect(db.dsn, role="test", autocommit=True) as conn:
        define_pending(conn, db.dsn, OriginSessions())


@pytest.fixture
def shop(installed: Database) -> Database:
    installed.sql("CREATE TABLE orders (id int PRIMARY KEY, region text, amount numeric)")
    return installed


@pytest.fixture
def folder(shop: Database, tmp_path: Path) -> Folder:
    return Folder(tmp_path, shop.dsn, (shop.name,))


def test_apply_creates_alters_and_then_has_nothing_to_do(shop: Database, folder: Folder) -> None:
    folder.write(totals=f"-- schedule: 1M\n-- tier: cold\n{TOTALS}")
    assert folder.plan() == [("create", "public.totals")]
    assert names(shop) == []
    assert folder.apply() == [("create", "public.totals")]
    assert shop.sql("SELECT schedule, refresh_tier, tier_pinned, applied_from FROM pgtrickle.pgt_stream_tables") == [
        ("1m", "cold", True, "shop")
    ]
    assert folder.apply() == []
    folder.write(totals=f"-- schedule: 5m\n-- max_differential_joins: 4\n-- diamond_consistency: atomic\n{TOTALS}")
    assert folder.apply() == [("alter", "public.totals")]
    assert shop.sql(
        "SELECT schedule, tier_pinned, max_differential_joins, diamond_consistency FROM pgtrickle.pgt_stream_tables"
    ) == [("5m", False, 4, "atomic")]
    folder.write(totals=TOTALS)
    assert folder.apply() == [("alter", "public.totals")]
    assert shop.sql(
        "SELECT schedule, max_differential_joins, diamond_consistency FROM pgtrickle.pgt_stream_tables"
    ) == [("calculated", None, None)]
    assert folder.apply() == []


def test_blanks_and_comments_change_nothing_but_meaning_does(shop: Database, folder: Folder) -> None:
    folder.write(totals=TOTALS).apply()
    ((before,),) = shop.sql("SELECT epoch FROM pgtrickle.pgt_stream_tables")
    folder.write(
        totals="-- Totals\n\nselect /* all */ REGION,\n  sum(amount)  AS total -- all\nfrom public.orders group by 1;"
    )
    assert folder.apply() == []
    assert shop.sql("SELECT epoch FROM pgtrickle.pgt_stream_tables") == [(before,)]
    folder.write(totals=f"{TOTALS} HAVING count(*) > 1")
    (outcome,) = folder._visit(False, {}).values()
    assert [line for line in outcome.changes[0].query_diff() if line.startswith(("+", "-"))] == [
        "--- now",
        f"+++ {folder.path / 'totals.sql'}",
        "+ HAVING (count(*) > 1)",
    ]


def test_altered_query_keeps_the_old_content_until_it_is_loaded(shop: Database, folder: Folder) -> None:
    folder.write(totals=TOTALS).apply()
    shop.sql("SELECT pgtrickle.protect_stream_table('totals', false)")
    shop.sql("INSERT INTO totals (region, total, __pgt_row_id) VALUES ('north', 5, 1)")
    relation = shop.sql("SELECT 'totals'::regclass::oid")
    folder.write(totals="SELECT region, count(*) AS n FROM orders GROUP BY region")
    assert folder.apply() == [("alter", "public.totals")]
    assert shop.sql("SELECT region, total FROM totals") == [("north", 5)]
    assert shop.sql("SELECT 'totals'::regclass::oid") == relation
    assert shop.sql("SELECT needs_reinit FROM pgtrickle.pgt_stream_tables") == [(True,)]


def test_definitions_that_read_one_another_come_in_order(shop: Database, folder: Folder) -> None:
    """The files' order is the wrong one, and `b` is also the name of a column."""
    folder.write(
        a="SELECT region, b FROM c",
        b="SELECT region, total AS b FROM totals",
        c="SELECT * FROM (SELECT region, b FROM b) b",
    )
    folder.write(totals=TOTALS)
    assert folder.apply() == [("create", f"public.{name}") for name in ("totals", "b", "c", "a")]
    assert folder.apply() == []
    folder.write(a=None, b=None, c=None)
    assert folder.plan() == []
    assert folder.apply(prune=True) == [("drop", f"public.{name}") for name in ("a", "c", "b")]
    assert names(shop) == ["public.totals"]


def test_order_that_names_do_not_tell_is_found_by_trying(shop: Database, folder: Folder) -> None:
    """A guess by names sees a circle here: each mentions the other, one of them as a column."""
    folder.write(region="SELECT totals FROM totals AS t(x, totals)", totals=TOTALS)
    assert folder.apply() == [("create", "public.totals"), ("create", "public.region")]


def test_prune_drops_only_what_the_set_has_created(shop: Database, folder: Folder) -> None:
    rows.create(shop, "by_hand", TOTALS)
    folder.write(totals=TOTALS, kept=TOTALS).apply()
    folder.write(totals=None)
    assert folder.apply() == []
    assert folder.apply(prune=True) == [("drop", "public.totals")]
    assert names(shop) == ["public.by_hand", "public.kept"]


def test_table_made_by_hand_is_altered_but_not_pruned_unless_it_is_adopted(shop: Database, folder: Folder) -> None:
    rows.create(shop, "by_hand", TOTALS)
    folder.write(by_hand=f"-- schedule: 1m\n{TOTALS}", other=TOTALS)
    assert folder.apply() == [("alter", "public.by_hand"), ("create", "public.other")]
    folder.write(by_hand=None)
    assert folder.apply(prune=True) == []
    folder.write(by_hand=f"-- schedule: 1m\n{TOTALS}")
    assert folder.apply(adopt=True) == [("adopt", "public.by_hand")]
    assert folder.apply(adopt=True) == []
    folder.write(by_hand=None)
    assert folder.apply(prune=True) == [("drop", "public.by_hand")]


def test_table_of_another_set_is_left_to_it(shop: Database, folder: Folder) -> None:
    folder.write(totals=TOTALS).apply()
    shop.sql("UPDATE pgtrickle.pgt_stream_tables SET applied_from = 'other'")
    assert folder.apply() == []
    folder.write(totals=f"-- schedule: 1m\n{TOTALS}")
    (error,) = folder.refused()
    assert "totals.sql:1: public.totals belongs to the set other (hint: " in error
    assert "--adopt" in error
    assert folder.apply(adopt=True) == [("alter", "public.totals")]
    assert shop.sql("SELECT applied_from FROM pgtrickle.pgt_stream_tables") == [("shop",)]


def test_renamed_definition_is_created_and_the_old_one_pruned(shop: Database, folder: Folder) -> None:
    folder.write(totals=TOTALS).apply()
    folder.write(totals=f"-- name: sums\n{TOTALS}")
    assert folder.apply(prune=True) == [("create", "public.sums"), ("drop", "public.totals")]
    (folder.path / "totals.sql").rename(folder.path / "moved.sql")
    assert folder.apply(prune=True) == []


def test_prune_stops_at_what_others_need(shop: Database, folder: Folder) -> None:
    folder.write(totals=TOTALS, kept=TOTALS).apply()
    shop.sql("CREATE VIEW v AS SELECT region FROM totals")
    folder.write(totals=None)
    (error,) = folder.refused(prune=True)
    assert "public.totals is no longer defined in a file, but view v needs it (hint: drop view v first" in error
    shop.sql("DROP VIEW v")
    rows.create(shop, "reader", "SELECT region FROM totals")
    assert "but public.reader needs it" in folder.refused(prune=True)[0]
    assert names(shop) == ["public.kept", "public.reader", "public.totals"]


def test_database_is_changed_whole_or_not_at_all(shop: Database, folder: Folder) -> None:
    folder.write(a=TOTALS, z="-- name: z\n\nSELECT region,\n  nothing\nFROM orders", y="SELECT 1 AS one; SELECT 2")
    y, z = folder.refused()
    assert y.startswith("PGT200: y.sql:1: the query is more than one statement, or none")
    assert z.startswith('PGT202: z.sql:4: the query is not valid: column "nothing" does not exist')
    assert names(shop) == []


def test_only_causes_are_told_not_who_reads_them(shop: Database, folder: Folder) -> None:
    folder.write(a="SELECT nothing FROM orders", b="SELECT * FROM a", c="SELECT * FROM b")
    (error,) = folder.refused()
    assert "a.sql:1" in error


def test_wrong_option_is_told_with_its_line(shop: Database, folder: Folder) -> None:
    folder.write(a=f"-- pooler_compatibility_mode: on\n-- schedule: 5 apples\n{TOTALS}", b=f"-- name: x y\n{TOTALS}")
    assert folder.refused()[0].startswith("PGT200: b.sql:1: 'x y' is not a table name")
    folder.write(b=None)
    assert folder.refused()[0].startswith("PGT200: a.sql:2: '5 apples' is not a schedule")
    folder.write(a=f"-- refresh_mode: FASTER\n{TOTALS}")
    assert "a.sql:1: 'FASTER' is not a refresh_mode" in folder.refused()[0]


def test_same_name_in_two_files_is_refused(shop: Database, folder: Folder) -> None:
    folder.write(a=f"-- name: totals\n{TOTALS}", b=f'-- name: public."totals"\n{TOTALS}')
    (error,) = folder.refused()
    assert "b.sql:1: public.totals is already defined in" in error


def test_columns_that_others_read_are_replaced_only_with_leave(shop: Database, folder: Folder) -> None:
    folder.write(totals=TOTALS, high="SELECT region FROM totals WHERE total > 10").apply()
    wider = "SELECT count(*) AS n, region, sum(amount) AS total FROM orders GROUP BY region"
    folder.write(totals=wider, many="SELECT region FROM totals WHERE n > 3")
    (error,) = folder.refused()
    assert "totals.sql:1: the new query changes the columns of public.totals" in error
    assert "--replace drops public.totals, public.high and creates them again" in error
    assert folder.apply(replace=True) == [
        ("replace", "public.totals"),
        ("replace", "public.high"),
        ("create", "public.many"),
    ]
    assert folder.apply() == []


def test_partitions_are_changed_only_with_leave(shop: Database, folder: Folder) -> None:
    folder.write(totals=f"-- partition_by: LIST(region)\n{TOTALS}", high="SELECT total FROM totals").apply()
    assert folder.apply() == []
    for text in (f"-- partition_by: HASH(region, 4)\n{TOTALS}", TOTALS):
        folder.write(totals=text)
        (error,) = folder.refused()
        assert re.search(r"totals\.sql:\d: partition_by .*cannot be changed", error)
        assert "--replace drops public.totals, public.high and creates them again" in error
        assert folder.apply(replace=True) == [("replace", "public.totals"), ("replace", "public.high")]
        assert folder.apply() == []


def test_new_column_that_a_new_definition_reads_is_there_after_a_load(shop: Database, folder: Folder) -> None:
    folder.write(totals=TOTALS).apply()
    wider = "SELECT region, sum(amount) AS total, count(*) AS n FROM orders GROUP BY region"
    folder.write(totals=wider, many="SELECT region,\n n FROM totals")
    (error,) = folder.refused()
    assert 'many.sql:2: the query is not valid: column "n" does not exist' in error
    assert "--replace drops public.totals and" in error
    assert folder.apply(replace=True) == [("replace", "public.totals"), ("create", "public.many")]


def test_replace_does_not_touch_readers_of_other_people(shop: Database, folder: Folder) -> None:
    folder.write(totals=TOTALS).apply()
    rows.create(shop, "reader", "SELECT region FROM totals")
    folder.write(totals="SELECT region FROM orders")
    (error,) = folder.refused(replace=True)
    assert "hint: public.reader is not defined by this set" in error


def test_set_goes_to_databases_by_name_and_by_glob(
    make_installed: Callable[[], Database], database: Database, tmp_path: Path
) -> None:
    one, two, broken = make_installed(), make_installed(), make_installed()
    for db in (one, two):
        db.sql("CREATE TABLE orders (id int PRIMARY KEY, region text, amount numeric)")
    folder = Folder(tmp_path, one.dsn)
    folder.write(a=f"-- databases: test_*\n{TOTALS}", b=f"-- database: {two.name}\n{TOTALS}")
    done = folder.everywhere()
    assert actions(done[one.name].changes) == [("create", "public.a")]
    assert actions(done[two.name].changes) == [("create", "public.a"), ("create", "public.b")]
    assert done[broken.name].errors[0].startswith("PGT202")  # there is no orders; the others went on
    assert done[database.name].warnings == ("pgtrickle is not installed here, nothing is applied",)
    folder.write(a=f"-- databases: {one.name}\n{TOTALS}", b=None)
    done = folder.everywhere(prune=True)
    assert actions(done[two.name].changes) == [("drop", "public.b"), ("drop", "public.a")]
    assert names(one) == ["public.a"]
    assert names(two) == []
    folder.write(a=f"-- databases: {database.name}, nowhere\n{TOTALS}")
    done = folder.everywhere()
    assert "pgtrickle is not installed (hint: " in done[database.name].errors[0]
    assert 'database "nowhere" does not exist' in done["nowhere"].errors[0]


def test_odd_names_are_only_names(shop: Database, folder: Folder) -> None:
    schema, table = 'Odd "schema";', 'x"; DROP TABLE orders; --'
    quoted = ".".join('"' + part.replace('"', '""') + '"' for part in (schema, table))
    shop.sql(f'CREATE SCHEMA "{schema.replace(chr(34), chr(34) * 2)}"')
    folder.write(odd=f"-- name: {quoted}\n{TOTALS}", over=f"SELECT region FROM {quoted}")
    assert folder.apply() == [("create", quoted), ("create", "public.over")]
    assert folder.apply() == []
    folder.write(odd=f"-- name: {quoted}\n-- schedule: 1m\n{TOTALS}", over=None)
    assert folder.apply(prune=True) == [("alter", quoted), ("drop", "public.over")]
    shop.sql("SELECT * FROM orders")


def test_privileges_are_those_of_the_role_that_applies(
    shop: Database, tmp_path: Path, make_role: Callable[[Database], psycopg.Connection[Any]]
) -> None:
    connection = make_role(shop)
    dsn = shop.server.dsn(shop.name, user=connection.info.user, password="x")
    folder = Folder(tmp_path, dsn, (shop.name,)).write(totals=f"-- name: public.totals\n\n{TOTALS}")
    (error,) = folder.refused()
    assert error.startswith("PGT100: totals.sql:1: permission denied for table orders")
    shop.sql(f"GRANT SELECT ON orders TO {connection.info.user}")
    assert "permission denied for schema public" in folder.refused()[0]
    shop.superuser_sql(f"GRANT CREATE ON SCHEMA public TO {connection.info.user}")
    assert folder.apply() == [("create", "public.totals")]
    assert folder.apply() == []
    # what somebody else has made is not theirs to alter, nor to adopt
    rows.create(shop, "owned", TOTALS)
    folder.write(owned=f"-- name: public.owned\n-- schedule: 1m\n{TOTALS}")
    assert "must be the creator of stream table public.owned" in folder.refused()[0]
    folder.write(owned=f"-- name: public.owned\n{TOTALS}")
    assert "must be the creator" in folder.refused(adopt=True)[0]
    shop.superuser_sql(f"REVOKE USAGE ON SCHEMA pgtrickle FROM {connection.info.user}")
    assert "permission denied for schema pgtrickle" in folder.refused()[0]
    shop.superuser_sql(f"GRANT USAGE ON SCHEMA pgtrickle TO {connection.info.user}")
    shop.sql("SELECT pgtrickle.drop_stream_table('totals')")


def test_plan_that_is_out_of_date_is_not_carried_out(shop: Database, folder: Folder) -> None:
    folder.write(totals=TOTALS)
    wanted, _ = read_set(folder.path, "shop")
    (target,), _ = fleet.targets(wanted, fleet.databases(shop.dsn, folder.only), everywhere=False)
    planned = fleet.plan(shop.dsn, wanted, target, Policy())
    assert planned is not None
    rows.create(shop, "totals", TOTALS)
    done = fleet.carry_out(shop.dsn, wanted, target, Policy(), planned)
    assert done.transient
    assert "has changed since the plan was made" in done.errors[0]


def test_two_at_the_same_time_take_turns(shop: Database, folder: Folder) -> None:
    folder.write(**{f"t{n}": TOTALS for n in range(8)})
    wanted, _ = read_set(folder.path, "shop")
    (target,), _ = fleet.targets(wanted, fleet.databases(shop.dsn, folder.only), everywhere=False)
    planned = fleet.plan(shop.dsn, wanted, target, Policy())
    assert planned is not None
    done: list[ApplyResult] = []
    threads = [
        threading.Thread(target=lambda: done.append(fleet.carry_out(shop.dsn, wanted, target, Policy(), planned)))
        for _ in range(4)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sorted(outcome.status for outcome in done) == ["applied", "failed", "failed", "failed"]
    assert all(outcome.transient for outcome in done if outcome.errors)
    assert len(names(shop)) == 8


def test_refresh_groups_follow_their_definition(shop: Database, folder: Folder) -> None:
    folder.write(a=TOTALS, b=TOTALS, c=TOTALS)
    group = '[[refresh_group]]\nname = "g"\nmembers = ["a", "public.b"]\n'
    assert folder.toml(group).apply()[-1] == ("create", "g")
    assert folder.apply() == []
    folder.toml('[[refresh_group]]\nname = "h"\nmembers = ["b", "c"]\nisolation = "repeatable read"\n')
    assert folder.apply(prune=True) == [("create", "h"), ("drop", "g")]
    assert shop.sql("SELECT group_name, isolation, members FROM pgtrickle.refresh_groups()") == [
        ("h", "repeatable_read", ["public.b", "public.c"])
    ]
    folder.toml('[[refresh_group]]\nname = "h"\nmembers = ["c", "a"]\n')
    assert folder.apply() == [("alter", "h")]
    folder.write(c=None)
    assert "all.toml:2: public.c is a member, but no longer defined in a file" in folder.refused(prune=True)[0]
    folder.toml('[[refresh_group]]\nname = "h"\nmembers = ["nothing", "a"]\n')
    assert "all.toml:2: stream table 'nothing' does not exist" in folder.refused()[0]


def test_exported_definitions_have_nothing_to_apply(shop: Database, folder: Folder) -> None:
    shop.sql("CREATE SCHEMA private; CREATE TABLE private.t (a int, b int); CREATE TYPE mood AS ENUM ('fine')")
    rows.create(shop, "totals", f"-- as typed\n{TOTALS};", schedule="1h30m", refresh_mode="DIFFERENTIAL")
    rows.create(shop, '"Odd; name"', "SELECT region, 'fine'::mood AS m FROM orders o", pooler_compatibility_mode=True)
    rows.create(shop, "chained", "SELECT total FROM totals", max_delta_fraction=0.5, diamond_consistency="atomic")
    shop.sql("SELECT pgtrickle.alter_stream_table('chained', tier => 'cold')")
    with shop.connect() as connection:
        connection.execute("SET search_path = private, public")
        connection.execute(
            "SELECT pgtrickle.create_stream_table('public.elsewhere', 'SELECT a FROM t JOIN t u USING (b, a)')"
        )
    shop.sql("SELECT pgtrickle.create_refresh_group('g', ARRAY['totals', 'chained'])")
    found, sets = collect(shop.dsn, fleet.databases(shop.dsn, ()))
    files = files_of(found, sets, name_databases=False)
    assert sorted(files) == [
        "pgtrickle.toml",
        "public._Odd_name.sql",
        "public.chained.sql",
        "public.elsewhere.sql",
        "public.totals.sql",
    ]
    assert "-- as typed" in files["public.totals.sql"]
    assert "private.t" in files["public.elsewhere.sql"]
    for name, text in files.items():
        (folder.path / name).write_text(text)
    assert folder.apply() == []
    assert folder.apply(adopt=True) != []


def test_query_over_another_database_is_asked_for_once(
    shop: Database, folder: Folder, make_installed: Callable[[], Database]
) -> None:
    other = make_installed()
    other.sql("CREATE TABLE customers (id int PRIMARY KEY, name text)")
    query = f"SELECT id, name\nFROM {other.name}.public.customers"
    folder.write(a="SELECT id FROM far", far=f"-- tier: cold\n-- schedule: 1m\n{query}", local=TOTALS)
    (outcome,) = folder.everywhere().values()
    assert actions(outcome.changes) == [("create", "public.far"), ("create", "public.local")]
    assert outcome.changes[0].reason == "it reads other databases and waits for validation by the control plane"
    assert outcome.warnings == ("public.a needs public.far, which does not exist yet: apply again later",)
    assert folder.plan() == []
    control_plane(shop)
    assert shop.sql(
        "SELECT schedule, refresh_tier, tier_pinned, applied_from FROM pgtrickle.pgt_stream_tables "
        "WHERE pgt_name = 'far'"
    ) == [("1m", "cold", True, "shop")]
    assert folder.apply() == [("create", "public.a")]
    assert folder.apply() == []
    folder.write(far=f"-- refresh_mode: FULL\n{query} WHERE id > 1", a="SELECT id FROM far")
    assert folder.apply() == [("alter", "public.far")]
    assert folder.apply() == []
    control_plane(shop)
    assert folder.apply() == []
    found, sets = collect(shop.dsn, fleet.databases(shop.dsn, ()))
    files = files_of(found, sets, name_databases=False)
    assert f"{other.name}.public.customers WHERE id > 1" in files["public.far.sql"]


def test_refused_query_over_another_database_is_asked_for_again(
    shop: Database, folder: Folder, make_installed: Callable[[], Database]
) -> None:
    other = make_installed()
    folder.write(far=f"SELECT id FROM {other.name}.public.customers", kept=TOTALS)
    folder.apply()
    control_plane(shop)
    assert shop.sql("SELECT state FROM pgtrickle.pending_definitions()") == [("REFUSED",)]
    assert folder.apply() == [("create", "public.far")]
    folder.write(far="SELECT id FROM orders")
    assert folder.apply() == [("create", "public.far")]
    assert shop.sql("SELECT * FROM pgtrickle.pending_definitions()") == []
    folder.write(far=None, farther=f"SELECT id FROM {other.name}.public.customers").apply()
    folder.write(farther=None)
    assert folder.apply(prune=True) == [("drop", "public.far"), ("drop", "public.farther")]
    assert shop.sql("SELECT * FROM pgtrickle.pending_definitions()") == []


def test_warning_of_postgresql_is_passed_on(shop: Database, folder: Folder) -> None:
    folder.write(a="SELECT region FROM orders WHERE now() > 'today'::date")
    (outcome,) = folder.everywhere().values()
    assert any("replaced by its value at this moment" in warning for warning in outcome.warnings)


def test_older_installation_is_told_to_install_again(shop: Database, folder: Folder) -> None:
    shop.sql("UPDATE pgtrickle.pgt_schema_version SET version = 1")
    shop.sql("DROP FUNCTION pgtrickle._note_applied(bigint, text, text[], text)")
    assert "pgtrickle install DSN upgrades it" in folder.write(a=TOTALS).refused()[0]
