"""What runs for each job, one file a job. A processor is a plain function in a thread; being run twice must not matter."""

from collections.abc import Callable
from typing import Any

from archiver.queue.jobs import (
    ContinuousSync,
    IndexEmailBatch,
    InitialImport,
    Ping,
    ProcessMailbox,
    ReconcileIndex,
    Reindex,
    ScheduleContinuousSync,
    SyncCycleFinished,
)
from workers.processors import (
    continuous_sync,
    index_email_batch,
    ping,
    process_mailbox,
    reconcile_index,
    reindex,
    schedule_continuous_sync,
    sync_cycle_finished,
)

Processor = Callable[[Any, Any, Any], Any]
"""(job, work, envelope) → what the job returns, as JSON."""

PROCESSORS: dict[str, Processor] = {
    Ping.name: ping.process,
    ScheduleContinuousSync.name: schedule_continuous_sync.process,
    ContinuousSync.name: continuous_sync.process,
    InitialImport.name: continuous_sync.process,
    ProcessMailbox.name: process_mailbox.process,
    SyncCycleFinished.name: sync_cycle_finished.process,
    IndexEmailBatch.name: index_email_batch.process,
    Reindex.name: reindex.process,
    ReconcileIndex.name: reconcile_index.process,
}
