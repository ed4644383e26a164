"""Optional OpenTelemetry traces: one span per stage of the work of a lease.

Off unless the setting otlp_endpoint is set; then, and only then, OpenTelemetry is imported (extra `otel`). Spans have
names, durations, numbers and error codes: no error text, which may quote rows, and no SQL.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING

from pgtrickle.errors import ConfigError, PgtrickleError

if TYPE_CHECKING:
    from opentelemetry.trace import Tracer

Attribute = str | int | float | bool | Sequence[str]

_tracer: Tracer | None = None


def use(tracer: Tracer | None) -> None:
    """The tracer of this process from now on; None: no spans."""
    global _tracer
    _tracer = tracer


def start(endpoint: str, version: str) -> Callable[[], None]:
    """Sends the spans of this process to `endpoint` (OTLP over HTTP), if it is not empty. Returns what ends it: sends
    the last spans."""
    if not endpoint:
        return lambda: None
    if not endpoint.startswith(("http://", "https://")):
        raise ConfigError(f"otlp_endpoint = {endpoint}: not an http:// or https:// address")
    try:
        from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
        from opentelemetry.sdk.resources import Resource
        from opentelemetry.sdk.trace import TracerProvider
        from opentelemetry.sdk.trace.export import BatchSpanProcessor
    except ImportError as error:
        raise ConfigError(
            f"otlp_endpoint is set, and OpenTelemetry is not installed ({error.name})",
            hint="pip install 'pgtrickle[otel]', or unset it",
        ) from error
    # The usual variables of OpenTelemetry add attributes, or another name.
    resource = Resource.create({"service.name": "pgtrickle", "service.version": version})
    provider = TracerProvider(resource=resource)
    address = endpoint.rstrip("/") + "/v1/traces"
    provider.add_span_processor(BatchSpanProcessor(OTLPSpanExporter(endpoint=address)))
    use(provider.get_tracer("pgtrickle", version))

    def end() -> None:
        use(None)
        provider.shutdown()

    return end


@contextmanager
def span(name: str, attributes: Callable[[], Mapping[str, Attribute]] | None = None) -> Iterator[None]:
    """A stage. `attributes` is called only if there are spans; `pgtrickle.` is put before the names."""
    tracer = _tracer
    if tracer is None:
        yield
        return
    from opentelemetry.trace import Status, StatusCode

    found = {f"pgtrickle.{key}": value for key, value in (attributes() if attributes else {}).items()}
    with tracer.start_as_current_span(
        name, attributes=found, record_exception=False, set_status_on_exception=False
    ) as current:
        try:
            yield
        except BaseException as error:
            code = error.code if isinstance(error, PgtrickleError) else type(error).__name__
            current.set_attribute("error.type", code)
            current.set_status(Status(StatusCode.ERROR))
            raise
