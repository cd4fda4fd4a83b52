"""Goes on with one run of a workflow for a slice. Its steps, their attempts and their results are rows in Postgres."""

from __future__ import annotations

import time
from typing import Any
from uuid import UUID

from archiver.queue.jobs import AdvanceWorkflow, JobEnvelope
from archiver.workflows import advance
from archiver.workflows.step_run import WorkflowResources
from workers.context import WorkerContext, is_outage
from workers.workflows import WORKFLOWS


def process(job: AdvanceWorkflow, work: WorkerContext, envelope: JobEnvelope) -> None:
    resources = WorkflowResources(work.settings, work.engine, work.ingest.archive, work.keyring, WORKFLOWS, work.stopping)
    deadline = time.monotonic() + work.settings.slice_seconds
    advance.advance(resources, job.run_id, UUID(envelope.id), lambda: time.monotonic() > deadline, is_outage)


def give_up(connection: Any, job: Any, doorbell: UUID, reason: str) -> None:
    advance.give_up(connection, job.run_id, doorbell, reason)
