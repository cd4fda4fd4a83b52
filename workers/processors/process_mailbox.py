"""Reads one mailbox for one slice: fetch, store, next batch; then the place goes to whoever waits."""

from __future__ import annotations

from uuid import UUID

from archiver.logs import get_logger
from archiver.queue.jobs import Envelope, ProcessMailbox
from archiver.services.ingest import TakenOver
from archiver.store.errors import StoreUnavailable
from archiver.sync import sessions
from connectors.errors import AuthFailed, StateLost, Throttled, Unavailable
from workers.mailbox import MailboxSlice, opened
from workers.work import Work

_REFUSED_MINUTES = 60
_SHORT_PAUSE_SECONDS = 900.0

log = get_logger("process-mailbox")


def process(job: ProcessMailbox, work: Work, envelope: Envelope) -> None:
    with work.engine.begin() as connection:
        held = sessions.begin_slice(connection, job.session_id, job.mailbox_id, UUID(envelope.id))
    if held is None:
        return  # done before, or cancelled
    try:
        with opened(work, held) as mailbox:
            _run(mailbox, work)
    except TakenOver as reason:
        log.info("slice_ended", session=str(job.session_id), mailbox=str(job.mailbox_id), reason=str(reason))


def _run(mailbox: MailboxSlice, work: Work) -> None:
    """Each error of the source has one answer. Any other error is a fault of ours, and the job is tried again."""
    try:
        for source in (mailbox.batches, mailbox.missing):
            batches = source()
            while True:
                with work.in_flight:
                    batch = next(batches, None)
                    if batch is None:
                        break
                    mailbox.store(batch)
                if mailbox.is_over():
                    return mailbox.give_back()
        mailbox.done()
    except Throttled as pause:
        mailbox.give_back(after_seconds=min(pause.retry_after_seconds, _SHORT_PAUSE_SECONDS))
    except StateLost as lost:
        mailbox.start_again(lost.folder, str(lost))
    except AuthFailed as refused:
        mailbox.fail(f"the server refuses the credentials: {refused}", pause_minutes=_REFUSED_MINUTES)
    except (Unavailable, StoreUnavailable) as error:
        if work.stopping.is_set():
            return mailbox.give_back()
        mailbox.fail(mailbox.why(error))
    return None
