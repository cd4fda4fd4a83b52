"""Compacts the packs, so that deleted content leaves them without a command."""

from __future__ import annotations

import time
from dataclasses import asdict
from typing import Any

from archiver.logs import get_logger
from archiver.maintenance.compact import CompactionStopped, compact_on_schedule
from archiver.queue.jobs import CompactPacks, JobEnvelope
from archiver.sync.scheduler import advisory_lock
from workers.context import WorkerContext

_LONGEST_SECONDS = 3 * 3600.0
"""Then the rest waits for the next time. Less than the job may take, because a pack that was begun is finished."""

log = get_logger("compact-packs")


def process(_: CompactPacks, work: WorkerContext, __: JobEnvelope) -> dict[str, Any] | None:
    deadline = time.monotonic() + _LONGEST_SECONDS
    with advisory_lock(work.engine, CompactPacks.name) as mine:
        if not mine:
            return None
        try:
            done = compact_on_schedule(
                work.settings,
                work.engine,
                work.ingest.archive,
                lambda: work.stopping.is_set() or time.monotonic() > deadline,
            )
        except CompactionStopped as reason:
            log.info("compaction_stopped", reason=str(reason))
            return None
    log.info("packs_compacted", before=done.packs_before, after=done.packs_after, damage=len(done.damage))
    return {**asdict(done), "damage": len(done.damage)}
