"""Reads one mailbox for one slice: fetch, store, next batch; then the slot goes to the next mailbox in the queue."""

from __future__ import annotations

from collections.abc import Iterator
from uuid import UUID

from archiver.logs import get_logger
from archiver.queue.jobs import JobEnvelope, ProcessMailbox
from archiver.sources.mailboxes import load_mailbox, open_mailbox
from archiver.store.errors import StoreUnavailable
from archiver.sync import sessions
from archiver.sync.batching import gather
from archiver.sync.ingest.store_batch import TakenOver
from archiver.sync.mailbox_slice import MailboxSlice
from connectors.base import Batch
from connectors.errors import AuthFailed, StateLost, Throttled, Unavailable
from workers.context import WorkerContext

_REFUSED_MINUTES = 60  # rarely, because more attempts with rejected credentials may lock the account
_LONGEST_PAUSE_SECONDS = 3600.0

log = get_logger("process-mailbox")


def process(job: ProcessMailbox, work: WorkerContext, envelope: JobEnvelope) -> None:
    with work.engine.begin() as connection:
        held = sessions.begin_slice(connection, job.session_id, job.mailbox_id, UUID(envelope.id))
        if held is None:
            return  # already done, or cancelled
        source, loaded = load_mailbox(connection, held.mailbox_id, held.session_id)
    try:
        with open_mailbox(work, held, source, loaded) as mailbox:
            _run(mailbox, work)
    except TakenOver as reason:
        log.info("slice_ended", session=str(job.session_id), mailbox=str(job.mailbox_id), reason=str(reason))


def _run(mailbox: MailboxSlice, work: WorkerContext) -> None:
    """Each error of the source has one outcome. Any other error is our own fault, and BullMQ retries the job."""
    try:
        if not _store_all(mailbox, work, mailbox.batches()):
            return mailbox.requeue()
        missing = mailbox.finish()
        if missing:
            if not _store_all(mailbox, work, mailbox.refetch_missing(missing)):
                return mailbox.requeue()
            mailbox.finish(with_gap=True)
    except Throttled as pause:
        mailbox.defer(after_seconds=min(pause.retry_after_seconds, _LONGEST_PAUSE_SECONDS))
    except StateLost as lost:
        mailbox.restart(lost.folder, str(lost))
    except AuthFailed as refused:
        mailbox.fail(f"the server rejected the credentials: {refused}", pause_minutes=_REFUSED_MINUTES)
    except (Unavailable, StoreUnavailable) as error:
        if work.stopping.is_set():
            return mailbox.requeue()
        mailbox.fail(mailbox.failure_reason(error))
    return None


def _store_all(mailbox: MailboxSlice, work: WorkerContext, batches: Iterator[Batch]) -> bool:
    """False if the slice ended before the batches did."""
    while True:
        with work.in_flight:
            gathered = gather(batches)
            mailbox.store(gathered.batches)
        if gathered.error is not None:
            raise gathered.error
        if gathered.is_all:
            return True
        if mailbox.is_over():
            return False
