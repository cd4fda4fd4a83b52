"""Sends the pending copies of one mailbox: pauses where the server asks for it, and reconnects where a connection is lost."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from functools import partial
from uuid import UUID

import orjson

from archiver.access.scope import MailScope
from archiver.errors import UsageError
from archiver.logs import get_logger
from archiver.restores import statements as sql
from archiver.restores.destination import RestoreDestination
from archiver.restores.rows import PendingCopy
from archiver.sources import access, rows
from archiver.store.frames import FrameKind
from archiver.store.pack import PackLocation
from archiver.store.reader import ObjectReader
from archiver.workflows.step_run import StepRun
from connectors.base import MailboxRef
from connectors.errors import AuthFailed, ConnectorError, Throttled
from connectors.target import DeliveredCopy, DeliveryResult, MailTarget, Outgoing, TargetFull

_PAGE = 500
_BARREN_FAILURES = 5
_LONGEST_PAUSE_SECONDS = 3600.0
_STEP_SECONDS = 0.5

log = get_logger("restores")


class RestoreStopped(UsageError):
    """The mailbox can't receive mail now, and trying again at once would not help. A new start continues where it stopped."""


@dataclass(slots=True)
class AccountDelivery:
    run: StepRun
    restore_id: UUID
    account_id: UUID
    destination: RestoreDestination
    scope: MailScope
    dry_run: bool
    _failures: int = 0
    """Connections lost in a row without an outcome in between."""
    _places: dict[bytes, PackLocation] = field(default_factory=dict)
    """Of the messages of a page, which saves a query for each."""

    def run_to_end(self) -> None:
        while True:
            try:
                with self._open() as target:
                    self._deliver(target)
                return
            except UsageError as error:
                self._refuse_all(str(error))
                return
            except Throttled as error:
                self._pause(min(error.retry_after_seconds, _LONGEST_PAUSE_SECONDS))
            except (AuthFailed, TargetFull) as error:
                raise RestoreStopped(str(error)) from error
            except ConnectorError as error:
                self._failures += 1
                log.warning("restore_interrupted", restore=str(self.restore_id), error=str(error), failures=self._failures)
                if self._failures >= _BARREN_FAILURES:
                    raise RestoreStopped(str(error)) from error
                self._pause(float(2**self._failures))

    def _open(self) -> AbstractContextManager[MailTarget]:
        resources = self.run.resources
        with resources.engine.connect() as connection:
            if self.destination.imap:
                sealed = sql.credentials(connection, self.restore_id)
                secrets = orjson.loads(resources.keyring.unseal(sealed, self.restore_id.bytes)) if sealed else {}
                return access.open_account(self.destination.imap, secrets)
            box = sql.load_account(connection, self.account_id)
            source = rows.load(connection, box.source_id) if box else None
        if box is None or source is None:
            raise UsageError("the mailbox is no longer known")
        ref = MailboxRef(box.address, provider_id=box.provider_id)
        return access.open_target(resources.engine, resources.keyring, source, ref)

    def _deliver(self, target: MailTarget) -> None:
        for deliveries in target.deliver(self._outgoing(), dry_run=self.dry_run):
            if deliveries:
                self._failures = 0
                self._record(deliveries)
            self._report()

    def _outgoing(self) -> Iterator[Outgoing]:
        """What has no outcome yet. What was deleted meanwhile, or may no longer be read, is refused here."""
        after = 0
        while page := self._page(after):
            after = page[-1].number
            self._report()
            self._places = {copy.sha256: copy.place for copy in page if copy.sha256 and copy.place}
            missing = [(copy, reason) for copy in page if (reason := _missing(copy))]
            if missing:
                self._record([DeliveredCopy(str(copy.number), DeliveryResult.REFUSED, reason) for copy, reason in missing])
            yield from (self._prepare(copy) for copy in page if not _missing(copy))

    def _page(self, after: int) -> list[PendingCopy]:
        with self.run.resources.engine.connect() as connection:
            return sql.pending(connection, self.restore_id, self.account_id, self.scope, after, _PAGE)

    def _prepare(self, copy: PendingCopy) -> Outgoing:
        assert copy.sha256 is not None
        return Outgoing(
            id=str(copy.number),
            folder=copy.folder,
            pieces=partial(ObjectReader(self.run.resources.archive.frames, self._find).stream, copy.sha256),
            flags=copy.flags,
            received_at=copy.received_at,
            labels=copy.labels,
            sha256=copy.sha256.hex(),
            parent=self.destination.below,
        )

    def _find(self, sha256: bytes, kind: FrameKind) -> PackLocation | None:
        """A second question for the same message goes to the database: a compaction may have moved it."""
        known = self._places.pop(sha256, None) if kind is FrameKind.MESSAGE else None
        return known or self.run.resources.archive.objects.find(sha256, kind)

    def _record(self, deliveries: list[DeliveredCopy]) -> None:
        with self.run.resources.engine.begin() as connection:
            sql.record(connection, self.restore_id, deliveries)

    def _refuse_all(self, reason: str) -> None:
        with self.run.resources.engine.begin() as connection:
            sql.refuse_account(connection, self.restore_id, self.account_id, reason)

    def _report(self) -> None:
        with self.run.resources.engine.connect() as connection:
            job = sql.load(connection, self.restore_id)
        if job is not None:
            self.run.report(job.restored + job.present + job.absent + job.refused, job.messages)

    def _pause(self, seconds: float) -> None:
        """Ends early, with an exception, if the run is cancelled or the process stops."""
        until = time.monotonic() + seconds
        while time.monotonic() < until:
            time.sleep(min(_STEP_SECONDS, seconds))
            self._report()


def _missing(copy: PendingCopy) -> str:
    if copy.sha256 is None:
        return "it was deleted from the archive"
    return "" if copy.is_visible else "the person who asked for this restore may no longer read it"
