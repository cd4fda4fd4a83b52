"""The processors, one file per job. A processor is a plain function that runs in a thread and must be safe to run twice."""

from collections.abc import Callable
from typing import Any

from archiver.queue.jobs import (
    AdvanceWorkflow,
    ApplyRetention,
    CompactPacks,
    ContinuousSync,
    EvaluateAlerts,
    IndexEmailBatch,
    InitialImport,
    Ping,
    ProcessMailbox,
    ReconcileIndex,
    ReindexJob,
    RethreadJob,
    ScheduleContinuousSync,
    SyncCycleFinished,
)
from workers.processors import (
    advance_workflow,
    apply_retention,
    compact_packs,
    continuous_sync,
    evaluate_alerts,
    index_email_batch,
    ping,
    process_mailbox,
    reconcile_index,
    reindex,
    rethread,
    schedule_continuous_sync,
    sync_cycle_finished,
)

Processor = Callable[[Any, Any, Any], Any]
"""(job, work, envelope) → the job's result, as JSON."""

PROCESSORS: dict[str, Processor] = {
    Ping.name: ping.process,
    ScheduleContinuousSync.name: schedule_continuous_sync.process,
    ContinuousSync.name: continuous_sync.process,
    InitialImport.name: continuous_sync.process,
    ProcessMailbox.name: process_mailbox.process,
    SyncCycleFinished.name: sync_cycle_finished.process,
    IndexEmailBatch.name: index_email_batch.process,
    ReindexJob.name: reindex.process,
    RethreadJob.name: rethread.process,
    ReconcileIndex.name: reconcile_index.process,
    ApplyRetention.name: apply_retention.process,
    CompactPacks.name: compact_packs.process,
    AdvanceWorkflow.name: advance_workflow.process,
    EvaluateAlerts.name: evaluate_alerts.process,
}
