"""Compares the index with Postgres, and repairs what differs."""

from __future__ import annotations

from dataclasses import asdict
from typing import Any

from archiver.queue.jobs import Envelope, ReconcileIndex
from archiver.services.reconcile import reconcile
from archiver.sync import tick
from workers.work import Work


def process(_: ReconcileIndex, work: Work, __: Envelope) -> dict[str, Any] | None:
    with tick.exclusive(work.engine, ReconcileIndex.name) as mine:
        return asdict(reconcile(work.engine, work.index.server)) if mine else None
