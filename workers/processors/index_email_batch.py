"""Brings documents up to date: first bodies, then, as jobs of lower priority, the text of attachments."""

from __future__ import annotations

from typing import Any
from uuid import UUID

from archiver.queue.jobs import Envelope, IndexEmailBatch
from archiver.services import index_jobs
from workers.indexing import ring
from workers.work import Work


def process(job: IndexEmailBatch, work: Work, envelope: Envelope) -> dict[str, Any] | None:
    if not index_jobs.is_open(work.engine, UUID(envelope.id)):
        return None  # somebody who looked later has done it
    return ring(work.index, job)
