"""Checks all alert rules, and sends the notices that are due."""

from __future__ import annotations

from dataclasses import asdict

from archiver.alerts.evaluation import evaluate
from archiver.queue.jobs import EvaluateAlerts, JobEnvelope
from workers.context import WorkerContext


def process(_: EvaluateAlerts, work: WorkerContext, __: JobEnvelope) -> dict[str, int]:
    done = evaluate(work.engine, work.settings, work.keyring)
    return {} if done is None else asdict(done)
