"""`pgtrickle init`: sets up pgtrickle for a database: checks, configuration file, installation."""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from pgtrickle.cli.install import ServiceRole, install_in
from pgtrickle.cli.parameters import Json, print_json
from pgtrickle.telemetry import redact

if TYPE_CHECKING:
    from pgtrickle.maintain.doctor import Finding

DEFAULT_FILE = Path("pgtrickle.toml")
DEFAULT_HTTP = "127.0.0.1:8321"


def init(
    server: Annotated[
        str | None,
        typer.Option("--server", envvar="PGTRICKLE_SERVER", help="postgresql://user@host/database", metavar="DSN"),
    ] = None,
    file: Annotated[
        Path | None, typer.Option("--file", help=f"The configuration file to write; default: {DEFAULT_FILE}.")
    ] = None,
    http: Annotated[
        str | None,
        typer.Option(help="Address of the web UI and metrics, or none.", metavar="HOST:PORT"),
    ] = None,
    service_role: ServiceRole = None,
    overwrite: Annotated[bool, typer.Option("--overwrite", help="Replace an existing configuration file.")] = False,
    yes: Annotated[bool, typer.Option("--yes", "-y", help="Ask nothing: use the options and their defaults.")] = False,
    as_json: Json = False,
) -> None:
    """Set up pgtrickle for a database: check, configure, install.

    Asks for what the options do not say. Without a terminal, and with --yes or --json, it asks nothing. The DSN and its
    password are not written to the file.
    """
    is_interactive = not (yes or as_json) and sys.stdin.isatty()
    dsn = server or (typer.prompt("Database (postgresql://user@host/database)") if is_interactive else None)
    if not dsn:
        raise typer.BadParameter("use --server, or set PGTRICKLE_SERVER")
    findings = _check(dsn, quiet=as_json)
    path = file or (
        Path(typer.prompt("Configuration file", default=str(DEFAULT_FILE))) if is_interactive else DEFAULT_FILE
    )
    address = http or (
        typer.prompt("Web UI and metrics at (or none)", default=DEFAULT_HTTP) if is_interactive else DEFAULT_HTTP
    )
    text = _file_text(address)  # a wrong address is refused before anything is written
    if path.exists() and not overwrite and not (is_interactive and typer.confirm(f"{path} exists. Replace it?")):
        from pgtrickle.errors import ConfigError

        raise ConfigError(f"{path} exists", hint="choose another file with --file, or use --overwrite")
    if is_interactive:
        typer.confirm(f"Install pgtrickle in {redact(dsn)}?", default=True, abort=True)
    installed, _ = install_in(dsn, service_role)
    _write(path, text)
    if as_json:
        print_json({"file": str(path), "checks": findings, "installation": installed})
        return
    typer.echo(f"pgtrickle {installed['version']} is installed, owned by {installed['role']}")
    for line in installed["needed"]:
        typer.echo(f"  to do for the DBA: {line}")
    typer.echo(f"Wrote {path}. Next:")
    typer.echo(f"  export PGTRICKLE_CONFIG={path.resolve()} PGTRICKLE_SERVER='{redact(dsn)}'")
    typer.echo("  pgtrickle run")
    typer.echo("  pgtrickle create NAME --query 'SELECT ...' --wait")


def _check(dsn: str, *, quiet: bool) -> list[dict[str, Any]]:
    """Prints the findings, then raises an error if a requirement is not met."""
    from dataclasses import asdict

    from pgtrickle.db.connect import TRANSACTION, connect
    from pgtrickle.errors import ConfigError
    from pgtrickle.maintain.readiness import readiness

    with connect(dsn, role="install", pooler=TRANSACTION, as_service=False) as conn:
        findings: list[Finding] = readiness(conn)
    if not quiet:
        for finding in findings:
            typer.echo(f"{'ok ' if finding.ok else 'BAD'}  {finding.what}: {finding.detail}")
    if bad := [finding for finding in findings if not finding.ok]:
        raise ConfigError("; ".join(f"{finding.what}: {finding.detail}" for finding in bad))
    return [asdict(finding) for finding in findings]


def _file_text(http: str) -> str:
    """The text of a file for --config. It contains a token if other machines can reach the address."""
    from secrets import token_hex

    from pgtrickle.web.listen import names_loopback, parse_address

    lines = ["# Settings of pgtrickle; `pgtrickle config` lists all of them, with their values and origins.", ""]
    if http.lower() == "none":
        lines.append(f'# http = "{DEFAULT_HTTP}"    # web UI and metrics')
    else:
        host, _ = parse_address(http)
        lines.append(f"http = {json.dumps(http)}    # web UI and metrics")
        if not names_loopback(host):
            lines.append(
                f'http_token = "{token_hex(16)}"    # for changes, and because other machines can reach this address'
            )
    lines += ['log_format = "text"    # or json', '# engine = "auto"    # or postgres, spark', ""]
    return "\n".join(lines)


def _write(path: Path, text: str) -> None:
    """Only the owner may read the file, because it may contain a token."""
    with os.fdopen(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600), "w", encoding="utf-8") as file:
        os.fchmod(file.fileno(), 0o600)
        file.write(text)
