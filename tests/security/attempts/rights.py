"""Rights that the attacker has not, had once, or has only in part."""

from __future__ import annotations

from tests.security.attempt import TICK, As, Attempt, Step, st

LEDGER = As(
    "team",
    "CREATE TABLE app.ledger_{n} (id int PRIMARY KEY, entry text); INSERT INTO app.ledger_{n} VALUES (1, 'early')",
)
MAY = As("team", "GRANT SELECT ON app.ledger_{n} TO mallory")
LATER = As("team", "INSERT INTO app.ledger_{n} VALUES (2, 'WORD-late')")
READ = st("SELECT id, entry FROM app.ledger_{n}")
LOST = "permission|no longer|may not|row security|privilege|SELECT|USAGE|EXECUTE|not read"


def _lost(
    name: str, tries: str, how: tuple[Step, ...], *, first: tuple[Step, ...] = (LEDGER, MAY), query: str = READ
) -> Attempt:
    """Something is lost after the first load, then a secret is written."""
    return Attempt(name, tries, (*first, query, TICK, *how, LATER, TICK), LOST)


REVOKE = As("team", "REVOKE ALL ON app.ledger_{n} FROM mallory")
# A view that is evaluated with the rights of whoever asks, in another way to write a boolean; and a view over it.
LENS = As(
    "team",
    "CREATE VIEW app.lens_{n} WITH (security_invoker = yes) AS SELECT id, entry FROM app.ledger_{n}; "
    "CREATE VIEW app.lenses_{n} AS SELECT id, entry FROM app.lens_{n}; GRANT SELECT ON app.lens_{n}, app.lenses_{n} TO mallory",
)
# Whole rows of a table of the service role itself: its row type belongs to nobody else.
OWN_LEDGER = As(
    "admin",
    "CREATE TABLE app.register_{n} (id int PRIMARY KEY, entry text); INSERT INTO app.register_{n} VALUES (1, 'early'); "
    "ALTER TABLE app.register_{n} OWNER TO {service}; GRANT SELECT (id, entry) ON app.register_{n} TO mallory",
)

ATTEMPTS = (
    Attempt(
        "secret_table",
        "a table that the attacker may not read",
        (st("SELECT word FROM app.secret"), TICK),
        "permission denied",
    ),
    Attempt(
        "secret_view",
        "a view that the attacker may not read",
        (st("SELECT word FROM app.secret_view"), TICK),
        "permission denied",
    ),
    Attempt(
        "secret_copy",
        "a materialized view that the attacker may not read",
        (st("SELECT word FROM app.secret_copy"), TICK),
        "permission denied",
    ),
    Attempt(
        "secret_column",
        "a column that the attacker may not read",
        (st("SELECT id, pay FROM app.people"), TICK),
        "permission denied",
    ),
    Attempt(
        "secret_column_hidden",
        "such a column in a condition alone",
        (st("SELECT id FROM app.people WHERE pay LIKE '%-1'"), TICK),
        "permission denied",
    ),
    Attempt(
        "secret_whole_row",
        "such a column in a whole row",
        (st("SELECT p::text AS t FROM app.people AS p"), TICK),
        "permission denied",
    ),
    Attempt(
        "secret_stream_table",
        "another author's stream table",
        (st("SELECT word FROM reports.words"), TICK),
        "permission denied",
    ),
    Attempt(
        "secret_buffer",
        "a change buffer",
        (st("SELECT c2 FROM pgtrickle_changes.changes_1"), TICK),
        "permission denied|does not exist",
    ),
    Attempt(
        "asker_view",
        "a view that is evaluated with the rights of whoever asks",
        (st("SELECT word FROM app.asker_view"), TICK),
        "permission denied",
    ),
    Attempt(
        "own_view",
        "a view of the attacker over the secret",
        ("CREATE VIEW evil.v AS SELECT word FROM app.secret", st("SELECT word FROM evil.v"), TICK),
        "permission denied",
        trusted=True,
    ),
    Attempt(
        "own_view_over_asker_view",
        "a view of the attacker over one that is evaluated with the rights of whoever asks",
        ("CREATE VIEW evil.v AS SELECT word FROM app.asker_view", st("SELECT word FROM evil.v"), TICK),
        "permission denied",
        trusted=True,
    ),
    Attempt(
        "guarded_rows",
        "rows that row security hides",
        (st("SELECT id, word FROM app.guarded"), TICK),
        "row security",
    ),
    _lost("revoke", "SELECT is revoked after the first load", (REVOKE,)),
    _lost(
        "revoke_full",
        "the same in mode FULL",
        (REVOKE, "SELECT pgtrickle.refresh_stream_table('evil.st')"),
        query=st("SELECT id, entry FROM app.ledger_{n}", mode="FULL"),
    ),
    _lost(
        "revoke_groups",
        "the same of groups",
        (REVOKE,),
        query=st("SELECT entry, count(*) AS c, max(id) AS m FROM app.ledger_{n} GROUP BY entry"),
    ),
    _lost(
        "revoke_column",
        "one column is revoked",
        (As("team", "REVOKE ALL ON app.ledger_{n} FROM mallory; GRANT SELECT (id) ON app.ledger_{n} TO mallory"),),
    ),
    _lost(
        "revoke_below_view",
        "SELECT is revoked on a table below a view that is evaluated with the rights of whoever asks",
        (REVOKE,),
        first=(LEDGER, MAY, LENS),
        query=st("SELECT id, entry FROM app.lens_{n}"),
    ),
    _lost(
        "revoke_below_views",
        "the same below another view over it",
        (REVOKE,),
        first=(LEDGER, MAY, LENS),
        query=st("SELECT id, entry FROM app.lenses_{n}"),
    ),
    Attempt(
        "revoke_column_of_row",
        "a column is revoked of a table whose rows are values",
        (
            OWN_LEDGER,
            st("SELECT l::text AS t FROM app.register_{n} AS l"),
            TICK,
            As("admin", "REVOKE SELECT (entry) ON app.register_{n} FROM mallory"),
            As("admin", "INSERT INTO app.register_{n} VALUES (2, 'WORD-late')"),
            TICK,
        ),
        LOST,
    ),
    Attempt(
        "column_added_to_row",
        "a table whose rows are values gets a column that the attacker may not read",
        (
            OWN_LEDGER,
            st("SELECT l::text AS t FROM app.register_{n} AS l"),
            TICK,
            As("admin", "ALTER TABLE app.register_{n} ADD COLUMN more text DEFAULT 'WORD-more'"),
            TICK,
        ),
        LOST,
    ),
    _lost(
        "revoke_role",
        "the attacker leaves the role that may read",
        (As("admin", "REVOKE readers_{n} FROM mallory"),),
        first=(
            LEDGER,
            As(
                "admin",
                "CREATE ROLE readers_{n}; GRANT readers_{n} TO mallory; GRANT SELECT ON app.ledger_{n} TO readers_{n}",
            ),
        ),
    ),
    Attempt(
        "revoke_schema",
        "USAGE on the schema is revoked",
        (
            As("admin", "CREATE SCHEMA app_{n} AUTHORIZATION team; GRANT USAGE ON SCHEMA app_{n} TO mallory"),
            As("team", "CREATE TABLE app_{n}.ledger (id int, entry text); GRANT SELECT ON app_{n}.ledger TO mallory"),
            st("SELECT id, entry FROM app_{n}.ledger"),
            TICK,
            As(
                "team",
                "REVOKE USAGE ON SCHEMA app_{n} FROM mallory; INSERT INTO app_{n}.ledger VALUES (2, 'WORD-late')",
            ),
            TICK,
        ),
        LOST,
    ),
    _lost(
        "row_security_later",
        "row security is enabled after the first load",
        (
            As(
                "team",
                "ALTER TABLE app.ledger_{n} ENABLE ROW LEVEL SECURITY; CREATE POLICY none ON app.ledger_{n} USING (false)",
            ),
        ),
    ),
    _lost(
        "row_security_policy_later",
        "row security with a policy for the attacker",
        (
            As(
                "team",
                "ALTER TABLE app.ledger_{n} ENABLE ROW LEVEL SECURITY; CREATE POLICY one ON app.ledger_{n} FOR SELECT TO mallory USING (id = 1)",
            ),
        ),
    ),
    _lost(
        "revoke_from_view_owner",
        "the owner of a view loses the right that the view lends",
        (As("admin", "REVOKE SELECT ON app.ledger_{n} FROM carol_{n}"),),
        first=(
            LEDGER,
            As(
                "admin",
                "CREATE ROLE carol_{n}; GRANT carol_{n} TO {service}; GRANT SELECT ON app.ledger_{n} TO carol_{n}; CREATE SCHEMA carols_{n} AUTHORIZATION carol_{n}",
            ),
            As(
                "admin",
                "SET ROLE carol_{n}; CREATE VIEW carols_{n}.v AS SELECT id, entry FROM app.ledger_{n}; GRANT USAGE ON SCHEMA carols_{n} TO mallory; GRANT SELECT ON carols_{n}.v TO mallory; RESET ROLE",
            ),
        ),
        query=st("SELECT id, entry FROM carols_{n}.v"),
    ),
    _lost(
        "revoke_view",
        "the view itself is revoked",
        (As("team", "REVOKE ALL ON app.view_{n} FROM mallory"),),
        first=(
            LEDGER,
            As(
                "team",
                "CREATE VIEW app.view_{n} AS SELECT id, entry FROM app.ledger_{n}; GRANT SELECT ON app.view_{n} TO mallory",
            ),
        ),
        query=st("SELECT id, entry FROM app.view_{n}"),
    ),
    _lost(
        "revoke_upstream",
        "a stream table that is read is revoked by its author",
        (As("alice", "REVOKE ALL ON reports.shared_{n} FROM mallory"),),
        first=(
            LEDGER,
            As("team", "GRANT SELECT ON app.ledger_{n} TO alice"),
            As(
                "alice",
                "SELECT pgtrickle.create_stream_table('reports.shared_{n}', 'SELECT id, entry FROM app.ledger_{n}'); GRANT SELECT ON reports.shared_{n} TO mallory",
            ),
        ),
        query=st("SELECT id, entry FROM reports.shared_{n}"),
    ),
    Attempt(
        "revoke_verify",
        "what verification and plans of a table say that has lost its rights",
        (
            LEDGER,
            MAY,
            st("SELECT id, entry::text || 'x' AS e FROM app.ledger_{n}"),
            TICK,
            REVOKE,
            LATER,
            "SELECT pgtrickle.repair_stream_table('evil.st')",
            TICK,
            "SELECT * FROM pgtrickle.explain_st('evil.st')",
        ),
        LOST,
    ),
    Attempt(
        "revoke_feed",
        "a feed of a stream table that may not be read any more",
        (
            LEDGER,
            As("team", "GRANT SELECT ON app.ledger_{n} TO alice"),
            As(
                "alice",
                "SELECT pgtrickle.create_stream_table('reports.fed_{n}', 'SELECT id, entry FROM app.ledger_{n}'); GRANT SELECT ON reports.fed_{n} TO mallory",
            ),
            "SELECT pgtrickle.create_subscriber('reports.fed_{n}', 'me')",
            TICK,
            "SELECT * FROM pgtrickle.read_changes('reports.fed_{n}', 'me')",
            As("alice", "REVOKE ALL ON reports.fed_{n} FROM mallory"),
            LATER,
            TICK,
            "SELECT * FROM pgtrickle.read_changes('reports.fed_{n}', 'me')",
        ),
        "permission denied",
    ),
    Attempt(
        "alter_after_revoke",
        "the definition is changed by somebody who may not read its sources any more",
        (
            LEDGER,
            MAY,
            READ,
            TICK,
            REVOKE,
            LATER,
            "SELECT pgtrickle.alter_stream_table('evil.st', query => 'SELECT id, entry, 1 AS one FROM app.ledger_{n}')",
            TICK,
        ),
        "permission denied",
    ),
)
