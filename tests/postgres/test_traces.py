"""Traces: a span per stage, without anything that may quote rows, sent to a collector."""

from __future__ import annotations

import subprocess
import sys
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

import pytest

from pgtrickle import tracing
from pgtrickle.errors import ConfigError, PgtrickleError
from pgtrickle.pipeline.engine.spark import SparkEngine
from tests.conftest import Database
from tests.line import Line

otel = pytest.importorskip("opentelemetry.sdk.trace", reason="OpenTelemetry is not installed (extra otel)")
SECRET = "4111 1111 1111 1111"


def no_spark() -> str:
    raise AssertionError("a small refresh needs no Spark")


@pytest.fixture
def line(installed: Database) -> Iterator[Line]:
    found = Line(installed.dsn, SparkEngine(no_spark))
    yield found
    found.close()


@pytest.fixture
def spans() -> Iterator[Any]:
    """What is exported from now on."""
    from opentelemetry.sdk.trace.export import SimpleSpanProcessor
    from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter

    exporter, provider = InMemorySpanExporter(), otel.TracerProvider()
    provider.add_span_processor(SimpleSpanProcessor(exporter))
    tracing.use(provider.get_tracer("test"))
    yield exporter
    tracing.use(None)
    provider.shutdown()


def test_each_stage_of_a_lease_has_a_span(line: Line, spans: Any) -> None:
    line.sql("CREATE TABLE t (k text, v int); INSERT INTO t VALUES ('a', 1)")
    line.create("sums", "SELECT k, sum(v) AS s FROM t GROUP BY k", mode="DIFFERENTIAL")
    assert {"lease", "prepare", "plan", "apply"} <= {span.name for span in spans.get_finished_spans()}
    line.create("copies", "SELECT k, v FROM t", mode="DIFFERENTIAL")
    spans.clear()
    line.sql("INSERT INTO t VALUES ('a', 2)")
    line.tick()
    found = spans.get_finished_spans()
    by_id = {span.context.span_id: span for span in found}
    (lease,) = [span for span in found if span.parent is None]
    assert lease.name == "lease"
    assert dict(lease.attributes) == {"pgtrickle.database": "test", "pgtrickle.units": 2}
    below = [span for span in found if span.parent is not None and by_id[span.parent.span_id] is lease]
    assert [span.name for span in sorted(below, key=lambda s: s.start_time)] == [
        *("plan", "read", "net", "net", "arrange", "apply"),
    ]
    assert sorted(below[0].attributes["pgtrickle.tables"]) == ["public.copies", "public.sums"]
    for span in found:
        assert lease.start_time <= span.start_time <= span.end_time <= lease.end_time
        assert span.status.is_ok or span.status.is_unset


def test_a_failed_stage_is_marked_without_its_text(line: Line, spans: Any) -> None:
    line.sql("CREATE TABLE t (k text)")
    line.create("numbers", "SELECT k::int AS n FROM t")
    line.sql("INSERT INTO t VALUES (%s)", SECRET)
    assert SECRET in str(line.tick()[0].error)
    found = spans.get_finished_spans()
    failed = [span for span in found if not span.status.is_ok and not span.status.is_unset]
    assert {span.attributes["error.type"] for span in failed} == {"InvalidTextRepresentation", "PGT200"}
    assert {"read"} <= {span.name for span in failed}
    assert not [span for span in found if SECRET in span.to_json()]


def test_spans_are_sent_to_a_collector() -> None:
    from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest

    received: list[Any] = []

    class Collector(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            body = self.rfile.read(int(self.headers["content-length"]))
            received.append((self.path, ExportTraceServiceRequest.FromString(body)))
            self.send_response(200)
            self.end_headers()

        def log_message(self, *_: object) -> None:
            pass

    with ThreadingHTTPServer(("127.0.0.1", 0), Collector) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        end = tracing.start(f"http://127.0.0.1:{server.server_port}/", "1.2.3")
        with pytest.raises(PgtrickleError), tracing.span("outer"), tracing.span("inner", lambda: {"tables": ["a"]}):
            raise PgtrickleError(SECRET)
        end()
        server.shutdown()
    ((path, request),) = received
    assert path == "/v1/traces"
    (resource,) = request.resource_spans
    named = {a.key: a.value.string_value for a in resource.resource.attributes}
    assert (named["service.name"], named["service.version"]) == ("pgtrickle", "1.2.3")
    inner, outer = resource.scope_spans[0].spans
    assert (inner.name, outer.name, inner.parent_span_id) == ("inner", "outer", outer.span_id)
    assert SECRET not in str(request)
    with tracing.span("afterwards"):  # of which nobody hears
        pass
    assert len(received) == 1


def test_nothing_is_imported_without_an_endpoint() -> None:
    code = (
        "import sys; import pgtrickle.dispatch.dispatcher; from pgtrickle import tracing\n"
        "tracing.start('', '1')()\n"
        "with tracing.span('x', lambda: 1 / 0): pass\n"
        "print([name for name in sys.modules if name.startswith('opentelemetry')])"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout == "[]\n"


def test_run_says_what_is_missing_or_wrong(installed: Database, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "opentelemetry.exporter.otlp.proto.http.trace_exporter", None)
    with pytest.raises(ConfigError, match="OpenTelemetry is not installed"):
        tracing.start("http://127.0.0.1:1", "1")
    done = subprocess.run(
        [sys.executable, "-m", "pgtrickle.cli", "--set", "otlp_endpoint=nowhere", "run", "--server", installed.dsn],
        capture_output=True, text=True, timeout=120, check=False,
    )  # fmt: skip
    assert done.returncode == 1
    assert done.stderr == "pgtrickle: PGT100: otlp_endpoint = nowhere: not an http:// or https:// address\n"
