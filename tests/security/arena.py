"""One database in which all attempts are made, and what is looked at before and after.

Each attempt has a role and a schema of its own (mallory_7, evil_7), so that whatever one of them gains is known to be
its doing.
"""

from __future__ import annotations

import re
import secrets
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import psycopg

from pgtrickle.db.connect import connect
from pgtrickle.db.service import install_as_service
from pgtrickle.errors import PgtrickleError
from pgtrickle.maintain.verify import verify_tables
from pgtrickle.pipeline.engine.spark import SparkEngine
from pgtrickle.refresh.plan_requests import plan_of_table
from pgtrickle.servers.embedded_postgres import EmbeddedPostgres
from pgtrickle.settings import Settings
from tests.line import Line
from tests.security import proofs
from tests.security.attempt import As, Attempt, Do, Report, Tick, named, told

HERE = Path(__file__).parent
DATABASE = "field"
VAULT = "vault"  # another database, with a table that alice may read
OTHERS = ("alice", "team", "admin")
TABLES = ("reports.words", "reports.failing", "reports.counted")  # of alice


@dataclass
class Trial:
    """An attempt in an arena: its role, what it was told, and what is wrong afterwards."""

    attempt: Attempt
    number: int
    conn: psycopg.Connection[Any]
    report: Report = field(default_factory=Report)
    position: int = 0
    found: list[str] = field(default_factory=list)

    @property
    def role(self) -> str:
        return f"mallory_{self.number}"

    @property
    def schema(self) -> str:
        return f"evil_{self.number}"


class Arena:
    """`by_superuser`: who installed pgtrickle. The control plane works as the role that it says."""

    def __init__(self, server: EmbeddedPostgres, engine: SparkEngine, *, by_superuser: bool) -> None:
        self.server = server
        self.word = f"S3krit{secrets.token_hex(6)}"
        self.version = 0
        self.trials: list[Trial] = []
        self.found: list[str] = []  # wrong, and not to be attributed to one attempt
        self.heard: list[str] = []
        self._log_from = server.log.stat().st_size
        self._opened: list[psycopg.Connection[Any]] = []
        with psycopg.connect(server.dsn(), autocommit=True) as conn:
            conn.execute("CREATE ROLE app LOGIN PASSWORD 'app'")
            conn.execute(f"CREATE DATABASE {DATABASE} OWNER app")
        self.admin_conn = self.session("postgres")
        self.version = self.admin_conn.info.server_version // 10000
        self.name = f"{self.version}-{'superuser' if by_superuser else 'ordinary'}"
        self.admin((HERE / "ground.sql").read_text())
        self.line_dsn = self._install(by_superuser=by_superuser)
        ((self.service,),) = self.admin("SELECT nspowner::regrole::text FROM pg_namespace WHERE nspname = 'pgtrickle'")
        text = (HERE / "ground_installed.sql").read_text()
        self.admin(
            text.replace("{service}", self.service).replace("{port}", str(server.port)).replace("{database}", DATABASE)
        )
        self._plant()
        self._make_vault(by_superuser=by_superuser)
        settings = Settings(replica_root=str(server.data.parent / "replicas"))
        self.line = Line(self.line_dsn, engine, settings)
        self.alice = self.session("alice")
        self._alice_works()

    def _install(self, *, by_superuser: bool, database: str = DATABASE) -> str:
        """As `pgtrickle install` does it."""
        dsn = self.server.dsn(database) if by_superuser else self.server.dsn(database, user="app", password="app")
        with connect(dsn, role="install", autocommit=True, as_service=False) as conn:
            install_as_service(conn)
        return dsn

    def _make_vault(self, *, by_superuser: bool) -> None:
        self.admin(f"CREATE DATABASE {VAULT} OWNER app")
        self.vault_conn = self.session("postgres", VAULT)
        self.vault(
            "CREATE SCHEMA app AUTHORIZATION team; GRANT USAGE ON SCHEMA app TO PUBLIC; "
            "CREATE TABLE app.vaulted (id int PRIMARY KEY, word text); ALTER TABLE app.vaulted OWNER TO team; "
            "INSERT INTO app.vaulted SELECT i, 'WORD-' || i FROM generate_series(1, 5) AS i; "
            "GRANT SELECT ON app.vaulted TO alice"
        )
        self._install(by_superuser=by_superuser, database=VAULT)

    def _plant(self) -> None:
        """Secrets that are no rows."""
        self.admin(f"SELECT lo_from_bytea(4711, '{self.word}-large'::bytea)")
        (self.server.data / "canary.txt").write_text(f"{self.word}-file\n")
        (self.server.data / "canary.txt").chmod(0o644)
        self.admin(f"ALTER SYSTEM SET primary_conninfo = 'password={self.word}-conninfo'")
        self.admin("SELECT pg_reload_conf()")

    def _alice_works(self) -> None:
        run = self.alice.execute
        run("SELECT pgtrickle.create_stream_table('reports.words', 'SELECT id, word FROM app.secret')")
        run("SELECT pgtrickle.create_stream_table('reports.failing', 'SELECT id, word::int AS n FROM app.broken')")
        run(
            "SELECT pgtrickle.create_stream_table('reports.counted', "
            "'SELECT n, count(*) AS c FROM app.secret GROUP BY n')"
        )
        run("SELECT pgtrickle.create_refresh_group('hers', '{reports.words,reports.counted}')")
        self.line.tick()
        run("SELECT pgtrickle.create_subscriber('reports.words', 'her consumer')")
        query = f"SELECT id, word FROM {VAULT}.app.vaulted"
        run("SELECT pgtrickle.create_stream_table('reports.vaulted', %s, engine => 'spark')", (query,))
        query = f"SELECT word FROM nowhere.app.secret WHERE word = '{self.word}-pending'"
        run("SELECT pgtrickle.create_stream_table('reports.far', %s)", (query,))
        self.line.tick()
        self.line.plane.tidy()  # captures for the feed
        self.admin("INSERT INTO app.broken VALUES (2, 'WORD-broken')")
        run(f"SELECT '{self.word}-activity'")
        state = self.admin("SELECT pgt_name, status FROM pgtrickle.pgt_stream_tables WHERE pgt_schema = 'reports'")
        assert dict(state) == dict.fromkeys(("words", "failing", "counted", "vaulted"), "ACTIVE"), state
        assert self.admin("SELECT count(*) FROM reports.vaulted") == [(5,)]

    # -- statements

    def dsn(self, user: str, database: str = DATABASE) -> str:
        return self.server.dsn(database) if user == "postgres" else self.server.dsn(database, user=user, password="x")

    def session(self, user: str, database: str = DATABASE) -> psycopg.Connection[Any]:
        conn: psycopg.Connection[Any] = psycopg.connect(self.dsn(user, database), autocommit=True)
        self._opened.append(conn)
        return conn

    def vault(self, sql: str) -> list[tuple[Any, ...]]:
        """As a superuser, in the other database."""
        return _run(self.vault_conn, re.sub(r"\bWORD\b", self.word, sql))

    def admin(self, sql: str, *params: Any) -> list[tuple[Any, ...]]:
        return _run(self.admin_conn, re.sub(r"\bWORD\b", self.word, sql), *params)

    # -- attempts

    def play(self, attempts: Sequence[Attempt]) -> None:
        for number, attempt in enumerate(attempts, start=1):
            if attempt.is_made(self.version, self.name):
                self.trials.append(self._enter(attempt, number))
        self._listen()
        before = proofs.snapshot(self.admin_conn)
        while True:
            for trial in self.trials:
                self._advance(trial)
            if all(t.position >= len(t.attempt.steps) for t in self.trials):
                break
            self._turn()
        self._turn()
        self._service_looks()
        self._judge(before)

    def _enter(self, attempt: Attempt, number: int) -> Trial:
        self.admin(
            f"CREATE ROLE mallory_{number} LOGIN PASSWORD 'x'; GRANT USAGE ON SCHEMA pgtrickle TO mallory_{number}; "
            f"CREATE SCHEMA evil_{number} AUTHORIZATION mallory_{number}"
        )
        if attempt.trusted:
            self.admin(f"GRANT mallory_{number} TO {self.service}")
        conn = self.session(f"mallory_{number}")
        trial = Trial(attempt, number, conn)
        conn.add_notice_handler(
            lambda d: trial.report.notices.append(f"{d.message_primary} {d.message_detail} {d.message_hint}")
        )
        conn.execute("SET statement_timeout = '300s'")
        _run(conn, named((HERE / "payload.sql").read_text(), number, self.service))
        return trial

    def _listen(self) -> None:
        self._ear = self.session(self.trials[-1].role)
        self._ear.add_notify_handler(lambda n: self.heard.append(f"{n.channel} {n.payload}"))
        for channel in ("pg_trickle_alert", "pgtrickle_wake", "loot"):
            self._ear.execute(f"LISTEN {channel}")

    def _advance(self, trial: Trial) -> None:
        """Up to its next tick."""
        while trial.position < len(trial.attempt.steps):
            step = trial.attempt.steps[trial.position]
            trial.position += 1
            if isinstance(step, Tick):
                return
            if isinstance(step, Do):
                step.run(self, trial)
            elif isinstance(step, As):
                text = named(step.sql, trial.number, self.service)
                if step.who == "alice":
                    _run(self.alice, text)
                else:
                    self.admin(f"SET ROLE team; {text}; RESET ROLE" if step.who == "team" else text)
            else:
                self.attack(trial, step)

    def attack(self, trial: Trial, sql: str, *params: Any) -> list[tuple[Any, ...]]:
        """As the attacker, who remembers all that it is told."""
        text = named(sql, trial.number, self.service)
        if trial.conn.closed:
            trial.conn = self.session(trial.role)
        try:
            rows = _run(trial.conn, text, *params)
        except psycopg.Error as error:
            trial.report.errors.append((error.sqlstate or "", told(error), text))
            if not trial.conn.closed:
                trial.conn.rollback()
            return []
        trial.report.results += rows
        return rows

    def _turn(self) -> None:
        """What keeps the control plane busy besides the attackers, and its turn. Who is done is not kept current."""
        now = time.time_ns() % 1_000_000_000
        self.admin(
            f"INSERT INTO app.open VALUES ({now}, 'later', 1); INSERT INTO app.secret VALUES ({now}, 'WORD-new', 1)"
        )
        self.line.tick()
        over = [t.schema for t in self.trials if t.position >= len(t.attempt.steps)]
        self.admin(
            "UPDATE pgtrickle.pgt_stream_tables SET status = 'SUSPENDED' "
            "WHERE status = 'ACTIVE' AND pgt_schema = ANY (%s)",
            over,
        )

    def _service_looks(self) -> None:
        """All else that evaluates a query: plans, verification, housekeeping."""
        # Who is done was suspended, and what is suspended is not verified.
        over = (
            "UPDATE pgtrickle.pgt_stream_tables SET status = %s "
            "WHERE status = %s AND is_populated AND pgt_schema ~ '^evil_'"
        )
        self.admin(over, "ACTIVE", "SUSPENDED")
        names = self.admin(
            "SELECT format('%s.%s', pgt_schema, pgt_name), is_populated FROM pgtrickle.pgt_stream_tables "
            "WHERE pgt_schema ~ '^evil_' AND pgt_name ~ '^st'"
        )
        for name, is_populated in names:
            try:
                if is_populated:
                    verify_tables(self.line_dsn, [name], timeout_seconds=0.1)
                else:
                    plan_of_table(self.line_dsn, name)
            except PgtrickleError as error:
                self.heard.append(f"verify {name}: {error.one_line()}")
        self.admin(over, "SUSPENDED", "ACTIVE")
        self.line.plane.tidy()
        self.line.tick()

    # -- afterwards

    def _judge(self, before: proofs.State) -> None:
        self._ear.execute("SELECT 1")
        log = self._log()
        after = proofs.snapshot(self.admin_conn)
        self.found += proofs.differences(before, after, self.service)
        self.found += [f"everybody hears: {h}" for h in self.heard if self.word in h and not h.startswith("verify ")]
        stored = self.admin(
            "SELECT pgt_schema, pgt_name, status, last_error_message, pgt_id FROM pgtrickle.pgt_stream_tables"
        )
        own = {name: status for schema, name, status, *_ in stored if schema == "reports"}
        if not own.keys() >= {"counted", "failing", "words"}:
            self.found.append(f"alice's stream tables are {own}")
        rights = proofs.of_roles(self.admin_conn, {t.role: t.schema for t in self.trials}, self.service)
        for trial in self.trials:
            self._judge_one(trial, log, stored, rights)

    def _judge_one(
        self,
        trial: Trial,
        log: Sequence[tuple[int, str, str, str, str]],
        stored: Sequence[tuple[Any, ...]],
        rights: Mapping[str, list[str]],
    ) -> None:
        attempt, found = trial.attempt, trial.found
        for number, what, who, session, got in log:
            if number == trial.number and (who != trial.role or got):
                found.append(f"its {what} ran as {who} in a session of {session}{': ' + got if got else ''}")
        mine = [s for s in stored if s[0] == trial.schema]
        texts = [text for _, text, _ in trial.report.errors] + [s[3] for s in mine if s[3]]
        found += rights.get(trial.role, [])
        if not trial.conn.closed:
            trial.conn.close()
        try:
            trial.conn = self.session(trial.role)
        except psycopg.OperationalError:
            pass  # the attempt renamed or dropped its role
        else:
            # To those who have no stream table it looks as to the last one.
            if mine or trial is self.trials[-1]:
                found += proofs.of_values(trial.conn, self.word, [s[:2] for s in mine], whole=trial is self.trials[-1])
        for text in (*texts, *trial.report.notices, *map(str, trial.report.results)):
            if self.word in text or "SCRAM-SHA-256$" in text:
                found.append(f"it was told {text[:300]}")
        if attempt.check is not None:
            attempt.check(self, trial)
        trial.conn.close()
        self._well_written(trial, texts)
        trial.found = list(dict.fromkeys(found))

    def _well_written(self, trial: Trial, texts: Sequence[str]) -> None:
        attempt = trial.attempt
        patterns = [named(p, trial.number, self.service) for p in (attempt.refused, attempt.maybe) if p is not None]
        for state, text, sql in trial.report.errors:
            if not any(re.search(p, text, re.S) for p in patterns):
                trial.found.append(f"badly written? {state} {text} -- {sql[:200]}")
        if attempt.refused is not None and not any(re.search(patterns[0], text, re.S) for text in texts):
            trial.found.append(f"nothing was refused with {patterns[0]!r}; it was told {texts}")

    def _log(self) -> list[tuple[int, str, str, str, str]]:
        with self.server.log.open("rb") as file:
            file.seek(self._log_from)
            text = file.read().decode(errors="replace")
        found = re.findall(r"LOG:  CANARY\|(\d+)\|(.*?)\|(.*?)\|(.*?)\|(.*)", text)
        return [(int(n), what, who, session, got) for n, what, who, session, got in dict.fromkeys(found)]

    def close(self) -> None:
        self.line.close()
        for conn in self._opened:
            conn.close()


def _run(conn: psycopg.Connection[Any], sql: str, *params: Any) -> list[tuple[Any, ...]]:
    cursor = conn.execute(sql, params or None)
    rows: list[tuple[Any, ...]] = []
    while True:
        if cursor.description is not None:
            rows = cursor.fetchall()
        if not cursor.nextset():
            return rows
