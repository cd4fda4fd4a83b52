"""One trace from what announces a job to the job itself, read at a real collector; and every line of a job names it."""

from __future__ import annotations

import gzip
import json
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest
from sqlalchemy import Engine, text

from archiver import tracing
from archiver.logs import get_logger, set_up_logs
from archiver.queue.job_report import JobReport
from archiver.queue.jobs import JobEnvelope, Ping, QueueName, ReindexJob
from archiver.sync import outbox
from archiver.sync.relay import Relay, _envelope
from workers.runtime import WorkerProcess


class Collector(BaseHTTPRequestHandler):
    spans: list[Any] = []  # noqa: RUF012

    def do_POST(self) -> None:
        body = self.rfile.read(int(self.headers["Content-Length"]))
        if self.headers.get("Content-Encoding") == "gzip":
            body = gzip.decompress(body)
        for resource in ExportTraceServiceRequest.FromString(body).resource_spans:
            for scope in resource.scope_spans:
                self.spans.extend(scope.spans)
        self.send_response(200)
        self.end_headers()

    def log_message(self, *_: Any) -> None: ...


@pytest.fixture
def collector(monkeypatch: pytest.MonkeyPatch) -> Iterator[type[Collector]]:
    with ThreadingHTTPServer(("127.0.0.1", 0), Collector) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        monkeypatch.setenv(tracing.ENDPOINT, f"http://127.0.0.1:{server.server_address[1]}")
        assert tracing.set_up_tracing("test")
        yield Collector
        server.shutdown()


def run(envelope: JobEnvelope, process: Any) -> None:
    worker = WorkerProcess(QueueName.INDEXING, "redis://unused", 1, {})
    worker._call(process, envelope, JobReport())


def test_the_trace_goes_on_through_the_outbox(engine: Engine, collector: type[Collector]) -> None:
    with tracing.span("tick"), engine.begin() as connection:
        outbox.announce(connection, ReindexJob())
    with engine.connect() as connection:
        (row,) = Relay(engine, "", "", 1, 10, 1).pick(connection, QueueName.INDEXING)
    envelope = _envelope(row)
    assert envelope is not None
    sent = JobEnvelope.decode(ReindexJob.name, json.loads(json.dumps(envelope.encode())))
    run(sent, lambda *_: None)
    tracing.stop_tracing()
    tick, job = (next(span for span in collector.spans if span.name == name) for name in ("tick", ReindexJob.name))
    assert job.trace_id == tick.trace_id
    assert job.parent_span_id == tick.span_id
    assert {one.key: one.value.string_value for one in job.attributes}["archiver.correlation_id"] == sent.correlation_id


def test_without_a_collector_nothing_is_written_and_a_stop_is_quick(engine: Engine, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv(tracing.ENDPOINT, raising=False)
    assert not tracing.set_up_tracing("test")
    with tracing.span("tick"), engine.begin() as connection:
        row = outbox.announce(connection, ReindexJob())
    with engine.connect() as connection:
        assert "trace" not in connection.execute(text("SELECT payload FROM outbox WHERE id = :id"), {"id": row}).scalar_one()
    tracing.stop_tracing()


def test_every_line_of_a_job_names_it(tmp_path: Path) -> None:
    set_up_logs("test", "info", tmp_path)
    log = get_logger("somewhere")
    run(JobEnvelope.of(Ping("x"), "job-1", correlation_id="session-7"), lambda *_: log.info("inside", n=1))
    log.info("outside")
    lines = {line["event"]: line for line in map(json.loads, (tmp_path / "test.log").read_text().splitlines())}
    assert (lines["inside"]["job"], lines["inside"]["job_id"]) == ("ping", "job-1")
    assert lines["inside"]["correlation_id"] == "session-7"
    assert "correlation_id" not in lines["outside"]
