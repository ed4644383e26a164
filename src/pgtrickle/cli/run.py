"""`pgtrickle run`: the processes that refresh stream tables."""

from __future__ import annotations

import os
from typing import Annotated

import typer

from pgtrickle import __version__
from pgtrickle.cli.options import options
from pgtrickle.telemetry import set_up_logging


def run(
    server: Annotated[
        list[str] | None,
        typer.Option(help="postgresql://user@host/database; repeat for further servers.", metavar="DSN"),
    ] = None,
    spark_remote: Annotated[str | None, typer.Option(help="sc://host:port of a running Spark Connect server.")] = None,
    http: Annotated[
        str | None,
        typer.Option(help="Serve the web UI and metrics here, for example 127.0.0.1:8321.", metavar="HOST:PORT"),
    ] = None,
) -> None:
    """Refresh stream tables continuously, until stopped.

    Serves every database with pgtrickle on one server or several servers.
    """
    from pgtrickle.db.connect import TRANSACTION, connect
    from pgtrickle.db.database_settings import report
    from pgtrickle.process.launcher import run_forever
    from pgtrickle.tracing import start as start_traces
    from pgtrickle.web.listen import listen

    # A single DSN, which may contain blanks: typer would split it at them.
    servers = server or [dsn for dsn in (os.environ.get("PGTRICKLE_SERVER"),) if dsn]
    if not servers:
        raise typer.BadParameter("use --server, or set PGTRICKLE_SERVER")
    with connect(servers[0], role="run", pooler=TRANSACTION) as connection:
        loaded = options.load(connection, spark_remote=spark_remote, http=http)
        name = connection.info.dbname
    settings = loaded.settings
    set_up_logging(settings.log_level, settings.log_format)
    report(loaded, database=name)  # an invalid setting of one database must not stop the others
    sources = options.sources(spark_remote=spark_remote, http=http)
    # A setting of a database must not open a port of this machine.
    own_settings = sources.load().settings
    start_traces(own_settings.otlp_endpoint, __version__)()  # reports an invalid endpoint here, not in each process
    listener = listen(own_settings.http, own_settings.http_token) if own_settings.http else None
    run_forever(settings, sources, servers, listener, home=name)
