"""Reads one mailbox for one slice: fetch, store, next batch; then the place goes to whoever waits."""

from __future__ import annotations

from collections.abc import Iterator
from uuid import UUID

from archiver.logs import get_logger
from archiver.queue.jobs import Envelope, ProcessMailbox
from archiver.services.ingest import TakenOver
from archiver.store.errors import StoreUnavailable
from archiver.sync import sessions
from connectors.base import Batch
from connectors.errors import AuthFailed, StateLost, Throttled, Unavailable
from workers.gathering import gather
from workers.mailbox import MailboxSlice, load_mailbox, opened
from workers.work import Work

_REFUSED_MINUTES = 60
_LONGEST_PAUSE_SECONDS = 3600.0

log = get_logger("process-mailbox")


def process(job: ProcessMailbox, work: Work, envelope: Envelope) -> None:
    with work.engine.begin() as connection:
        held = sessions.begin_slice(connection, job.session_id, job.mailbox_id, UUID(envelope.id))
        if held is None:
            return  # done before, or cancelled
        loaded = load_mailbox(connection, held.mailbox_id, held.session_id)
    try:
        with opened(work, held, loaded) as mailbox:
            _run(mailbox, work)
    except TakenOver as reason:
        log.info("slice_ended", session=str(job.session_id), mailbox=str(job.mailbox_id), reason=str(reason))


def _run(mailbox: MailboxSlice, work: Work) -> None:
    """Each error of the source has one answer. Any other error is a fault of ours, and the job is tried again."""
    try:
        if not _store_all(mailbox, work, mailbox.batches()):
            return mailbox.give_back()
        missing = mailbox.done()
        if missing:
            if not _store_all(mailbox, work, mailbox.again(missing)):
                return mailbox.give_back()
            mailbox.done(with_gap=True)
    except Throttled as pause:
        mailbox.come_back(after_seconds=min(pause.retry_after_seconds, _LONGEST_PAUSE_SECONDS))
    except StateLost as lost:
        mailbox.start_again(lost.folder, str(lost))
    except AuthFailed as refused:
        mailbox.fail(f"the server refuses the credentials: {refused}", pause_minutes=_REFUSED_MINUTES)
    except (Unavailable, StoreUnavailable) as error:
        if work.stopping.is_set():
            return mailbox.give_back()
        mailbox.fail(mailbox.why(error))
    return None


def _store_all(mailbox: MailboxSlice, work: Work, batches: Iterator[Batch]) -> bool:
    """False: the slice is over before the batches are."""
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
