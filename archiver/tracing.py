"""Traces, where OTEL_EXPORTER_OTLP_ENDPOINT is set and `archiver[otel]` is installed; otherwise nothing happens here.

A span for each job and for each batch, never for a message. The context travels in the outbox row and the job's envelope, so
that one trace leads from the tick to the indexed document.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from importlib.util import find_spec
from typing import Any

from archiver import __version__
from archiver.logs import get_logger

ENDPOINT = "OTEL_EXPORTER_OTLP_ENDPOINT"
_STOP_SECONDS = 1.0
"""Without a collector, the library itself takes much longer to give up."""

log = get_logger("tracing")
_tracers: list[Any] = []
"""The tracer of this process, once it is set up."""


def set_up_tracing(process: str, environ: Mapping[str, str] = os.environ) -> bool:
    """Call once per process. False if traces are not wanted, or can't be written."""
    if not environ.get(ENDPOINT):
        return False
    if find_spec("opentelemetry.sdk") is None:
        log.warning("no_traces", reason=f"{ENDPOINT} is set, but 'archiver[otel]' is not installed")
        return False
    from opentelemetry import trace
    from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
    from opentelemetry.sdk.resources import Resource
    from opentelemetry.sdk.trace import TracerProvider
    from opentelemetry.sdk.trace.export import BatchSpanProcessor

    resource = Resource.create({"service.name": f"archiver-{process}", "service.version": __version__})
    provider = TracerProvider(resource=resource)
    provider.add_span_processor(BatchSpanProcessor(OTLPSpanExporter(timeout=_STOP_SECONDS * 5)))
    trace.set_tracer_provider(provider)
    _tracers[:] = [provider.get_tracer("archiver", __version__)]
    return True


def stop_tracing() -> None:
    """Sends what is left, within a second."""
    if not _tracers:
        return
    from opentelemetry import trace

    provider: Any = trace.get_tracer_provider()
    thread = threading.Thread(target=provider.shutdown, daemon=True, name="tracing-stop")
    thread.start()
    thread.join(_STOP_SECONDS)
    _tracers.clear()


@contextmanager
def span(name: str, parent: str | None = None, **attributes: str | int | float) -> Iterator[None]:
    """`parent`: what `current_trace` returned elsewhere. An error is recorded and raised."""
    if not _tracers:
        yield
        return
    from opentelemetry.propagate import extract

    context = extract({"traceparent": parent}) if parent else None
    named = {f"archiver.{key}": value for key, value in attributes.items()}
    with _tracers[0].start_as_current_span(name, context=context, attributes=named):
        yield


def current_trace() -> str | None:
    """The W3C `traceparent` of the current span."""
    if not _tracers:
        return None
    from opentelemetry.propagate import inject

    carrier: dict[str, str] = {}
    inject(carrier)
    return carrier.get("traceparent")
