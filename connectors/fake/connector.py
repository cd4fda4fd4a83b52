"""The fake's connector."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from dataclasses import replace

from connectors.base import Batch, Context, Json, Known, MailboxRef
from connectors.errors import AuthFailed, StateLost, Throttled, Unavailable
from connectors.fake.company.organisation import SampleMail
from connectors.fake.fetching import FakeMailbox
from connectors.fake.generated import GeneratedMail
from connectors.fake.line import FakeConnection
from connectors.fake.mail import Mail
from connectors.fake.memory import CallCounter, Journal
from connectors.fake.settings import Failure, FakeSettings, Trouble
from connectors.selection import mailbox_rule
from connectors.spool import Spool


class FakeConnector:
    def __init__(self, settings: FakeSettings, context: Context) -> None:
        self._settings = settings
        self._context = context
        self._mail = open_mail(settings)
        self._line = FakeConnection(settings.down_path)
        self._spool = Spool("fake")
        self._memory = CallCounter(settings.memory_path)
        self._journal = Journal(settings.journal_path)

    def check(self) -> None:
        self._line.ensure_open()
        self._fail("check", self._settings.check_fails)

    def mailboxes(self) -> Iterator[MailboxRef]:
        """All except those that a rule excludes."""
        fails = self._settings.listing_fails
        self._line.ensure_open()
        if fails and fails.after == 0:
            self._fail("listing", fails)
        for number, box in enumerate(self._mail.mailboxes()):
            if fails and number == fails.after > 0:
                self._fail("listing", fails)
            if mailbox_rule(self._settings, box.address) is None:
                yield box
                if self._settings.same_mailbox_twice:
                    yield box
                    yield replace(box, address=box.address.upper())

    def fetch(self, box: MailboxRef, state: Mapping[str, Json], known: Known) -> Iterator[Batch]:
        self._line.ensure_open()
        mailbox = self._open(box)
        trouble = mailbox.trouble
        if trouble.auth_failed:
            raise AuthFailed(f"the server rejected the password of {mailbox.address}")
        if trouble.state_lost and state and self._memory.take(f"state lost {mailbox.address}", 1):
            raise StateLost("the server has renumbered its messages", trouble.state_lost_folder)
        total = sum(folder.count() for folder in mailbox.folders)
        self._context.progress(0, total)
        batches = mailbox.batches(state, known)
        given = 0
        while True:
            self._disturb(mailbox.address, trouble, given)
            self._context.wait_for_turn()
            batch = next(batches, None)
            if batch is None:
                return
            yield self._record(mailbox.address, batch, total)
            if trouble.same_batch_twice:
                yield replace(batch, messages=tuple(message for message in batch.messages if message.path is None))
            given += 1

    def refetch(self, box: MailboxRef, keys: Collection[str]) -> Iterator[Batch]:
        self._line.ensure_open()
        mailbox = self._open(box)
        for batch in mailbox.refetch(keys):
            self._context.wait_for_turn()
            yield self._record(mailbox.address, batch, None)
            self._line.ensure_open()

    def close(self) -> None:
        self._line.close()
        self._spool.close()

    def _open(self, box: MailboxRef) -> FakeMailbox:
        address = box.address.lower()
        folders = tuple(self._mail.folders(address))
        if not folders:
            raise Unavailable(f"the mailbox {address} no longer exists")
        return FakeMailbox(address, folders, self._settings, self._settings.trouble_of(address), self._spool)

    def _record(self, address: str, batch: Batch, total: int | None) -> Batch:
        with_bytes = [failed.provider_key for failed in batch.failed if failed.data is not None]
        self._journal.note(address, [*(message.provider_key for message in batch.messages), *with_bytes])
        self._context.progress(len(batch.messages) + len(batch.failed) + len(batch.skipped), total)
        return batch

    def _disturb(self, address: str, trouble: Trouble, given: int) -> None:
        """Raises the trouble that is configured for this number of batches."""
        throttle = trouble.throttle
        if throttle and given == throttle.after and self._memory.take(f"throttle {address}", throttle.times):
            raise Throttled("the server asks for a pause", throttle.seconds)
        if given == trouble.unavailable_after and self._memory.take(f"unavailable {address}", trouble.unavailable_times):
            raise Unavailable("the server has closed the connection")
        if trouble.hang and given == trouble.hang_after and self._memory.take(f"hang {address}", trouble.hang_times):
            self._line.hang()
        if trouble.hold_path:
            self._line.wait_while_exists(trouble.hold_path, self._context.should_stop)
        self._line.wait(trouble.slow_seconds, self._context.should_stop)

    def _fail(self, where: str, failure: Failure | None) -> None:
        if failure is None or not self._memory.take(where, failure.times):
            return
        match failure.error:
            case "auth_failed":
                raise AuthFailed("the server rejected the password")
            case "throttled":
                raise Throttled("the server asks for a pause", failure.seconds)
            case "unavailable":
                raise Unavailable("the server does not answer")


def open_mail(settings: FakeSettings) -> Mail:
    """The mail to fetch."""
    if settings.mode == "sample":
        return SampleMail(settings.size, settings.seed)
    return GeneratedMail(
        mailboxes_count=settings.mailboxes,
        messages_per_mailbox=settings.messages_per_mailbox,
        folder_names=settings.folders,
        bytes_per_message=settings.bytes_per_message,
        seed=settings.seed,
    )
