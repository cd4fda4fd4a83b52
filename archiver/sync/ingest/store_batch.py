"""Archives a batch of mail: the bytes go into the packs, then everything about them into Postgres in one transaction.

The order is the promise. The bytes are on disk before Postgres refers to them; sync state, ledger, counts and the announcement
for the index commit with the rows, or not at all; and a batch that is delivered again finds everything known.
"""

from __future__ import annotations

import time
from collections.abc import Collection
from contextlib import ExitStack
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from uuid import UUID

from sqlalchemy import Connection, Engine

from archiver.access import audit
from archiver.access.principal import Principal
from archiver.db import sql
from archiver.errors import ArchiverError, UsageError
from archiver.logs import get_logger
from archiver.queue.jobs import IndexEmailBatch
from archiver.store.archive import Archive
from archiver.store.backend import Written
from archiver.store.journal import BEFORE_STAMPS, Origin, Stamp
from archiver.sync import ledger, outbox
from archiver.sync.ingest import plan as planning
from archiver.sync.ingest import statements
from archiver.sync.ingest.batch_pipeline import BatchPipeline
from archiver.sync.ingest.known_keys import known_keys
from archiver.sync.ingest.origin import load_origin as load_origin
from archiver.sync.ingest.provider_keys import fit_key
from connectors.base import Batch

_log = get_logger(__name__)
_KEYS_PER_QUERY = 1000
_HEARTBEAT_SECONDS = 15.0
_PORTION = 200


class TakenOver(ArchiverError):
    """Another worker holds this mailbox now. Nothing was changed; the caller stops."""


@dataclass(frozen=True, slots=True)
class Fence:
    """The slice that the caller holds. A batch is stored only while no later slice of the mailbox has begun."""

    session_id: UUID
    slice: int


@dataclass(frozen=True, slots=True)
class BatchResult:
    archived: int = 0
    """New copies."""
    duplicates: int = 0
    """Copies that were already known."""
    failed: int = 0
    skipped: int = 0
    deleted_here: int = 0
    """Skipped because they were deleted from the archive, whatever key they have now."""
    changed: int = 0
    bytes: int = 0
    """Original size of the new copies."""


class Ingest:
    """One per process; thread-safe."""

    def __init__(self, engine: Engine, archive: Archive) -> None:
        self._engine, self.archive = engine, archive

    def store_batch(
        self, origin: Origin, batch: Batch, fence: Fence | None = None, *, submitted_by: Principal | None = None
    ) -> BatchResult:
        """Archives the whole batch, or raises and changes nothing. Storing the same batch again changes nothing.

        Raises StoreUnavailable if a later attempt may succeed, and TakenOver if the caller must stop. `submitted_by`: whoever
        handed the messages in; the audit log says so.
        """
        started = time.monotonic()
        with ExitStack() as opened:
            intake = planning.read_batch(batch, opened)
            with self._engine.begin() as connection:
                result = _Transaction(connection, self.archive, origin, batch, fence).run(intake)
                if submitted_by:
                    _record_submission(connection, submitted_by, origin.mailbox_id, intake)
        ids = {"source": str(origin.source_id), "mailbox": str(origin.mailbox_id)}
        _log.info("batch_stored", **ids, **asdict(result), seconds=round(time.monotonic() - started, 3))
        return result

    def known(self, mailbox_id: UUID, provider_keys: Collection[str]) -> set[str]:
        """checkDuplicate: the keys that need no fetch, having a copy, a deleted copy, or a dead letter that is not yet due."""
        with self._engine.connect() as connection:
            return known_keys(connection, mailbox_id, provider_keys)


def _record_submission(connection: Connection, principal: Principal, mailbox_id: UUID, intake: planning.Intake) -> None:
    for item in intake.items:
        audit.record(connection, principal, "message.handed_in", "mailbox", mailbox_id, sha256=item.sha256.hex())


class _Transaction:
    """One batch, from the first lock to the last row. All batches take the same steps in the same order: none deadlock."""

    def __init__(self, connection: Connection, archive: Archive, origin: Origin, batch: Batch, fence: Fence | None) -> None:
        self.connection, self.archive, self.origin, self.batch, self.fence = connection, archive, origin, batch, fence
        self.run_id = fence.session_id if fence else None
        self.at = datetime.now(UTC)
        self.stamp = BEFORE_STAMPS
        self.rows = BatchPipeline(connection, origin, self.run_id, self.at)

    def run(self, intake: planning.Intake) -> BatchResult:
        """Postgres works on the rows while we write the bytes; the commit comes after both."""
        with self.rows:
            known = self._look_up(intake)
            plan = planning.plan_batch(self.batch, intake, known)
            self.rows.add_deleted_copies(plan.buried, known.deleted)
            stored = self.rows.find_objects({*plan.hashes, *intake.failed_hashes})
            messages = self.rows.add_messages(plan.prepared)
            copies = self.rows.add_copies(plan.copies)
            changes = self.rows.change_copies(plan.changes)
            self.rows.add_dead_letters(intake.failed)
            self.rows.merge_state(self.batch.state)
            # The statements above are in flight: Postgres inserts rows while the disk writes bytes.
            written = self._append(intake, plan, stored)
            changed = self._announce(plan, known, messages, copies, changes)
            result = self._result(intake, plan, changed)
            if self.fence:
                seen = len(self.batch.messages) + len(self.batch.failed) + len(self.batch.skipped)
                self.rows.send(statements.COUNT, seen=seen, **asdict(result))
            extended = self.rows.extend_pack(written) if written else None
        if written and extended:
            statements.record_pack(self.connection, written, self.rows.fetch(extended, UUID))
        ledger.record_batch(self.connection, self.origin.mailbox_id, self.batch)
        return result

    def _look_up(self, intake: planning.Intake) -> planning.KnownContent:
        """Takes the locks: on the slice, on the mailbox, and on the messages that the archive already has."""
        keys = {item.key for item in intake.items} | {fit_key(change.provider_key) for change in self.batch.changes}
        asked = {"hashes": sql.hashes({item.sha256 for item in intake.items}), "keys": sql.rows(sorted(keys))}
        # In this order in every batch: slice, mailbox, copies, messages. Two batches that lock in different orders would
        # deadlock.
        fence = self.rows.send(statements.FENCE, slice=self.fence.slice) if self.fence else None
        mailbox = self.rows.send(statements.HOLD_MAILBOX)
        copies = self.rows.send(statements.FIND_COPIES, **asked)
        changed = statements.FIND_MESSAGES_AND_CHANGED if self.batch.changes else statements.FIND_MESSAGES
        messages = self.rows.send(changed, **asked)
        deleted = self.rows.send(statements.FIND_DELETED, **asked)
        stamp = self.rows.send(statements.NEXT_STAMP)
        if fence and not self.rows.fetch(fence, int):
            raise TakenOver(f"another worker has taken over mailbox {self.origin.address} (session {self.run_id})")
        if not self.rows.fetch(mailbox, int):
            raise UsageError(f"there is no mailbox {self.origin.mailbox_id}")
        known = {copy.provider_key: copy for copy in self.rows.fetch(copies, planning.KnownCopy)}
        known_messages = set(self.rows.fetch(messages, bytes))
        (self.stamp,) = self.rows.fetch(stamp, Stamp)
        versions = sorted(planning.version_keys(intake.items, known))
        if versions:
            found = self.rows.ask(statements.FIND_COPIES, planning.KnownCopy, keys=sql.rows(versions))
            known |= {copy.provider_key: copy for copy in found}
        return planning.KnownContent(known, known_messages, dict(self.rows.fetch(deleted, planning.DeletedContent)))

    def _append(self, intake: planning.Intake, plan: planning.BatchPlan, stored: set[planning.StoredObject]) -> Written | None:
        """The journal is written before and after the messages: damage that destroys both copies destroys the messages too."""
        records = [record for one in plan.prepared for record in one.records(stored)] + intake.failed_records(stored)
        journal = plan.journal(self.at, self.origin, self.run_id, self.stamp)
        if not records and not journal:
            return None
        written = self.archive.append([*journal, *records, *journal])
        self.rows.add_objects(written)
        return written

    def _announce(
        self, plan: planning.BatchPlan, known: planning.KnownContent, messages: sql.Sent, copies: sql.Sent, changes: sql.Sent
    ) -> int:
        """Announces to the index what is new or has changed. Returns the number of changed copies."""
        if not known.messages and not plan.changes and self.rows.count(messages) == len(plan.prepared):
            # The usual batch: all its messages are new, so that none is to be held, and no version is to be raised.
            is_due, changed = bool(self.rows.count(copies)), set[UUID]()
        else:
            inserted = self.rows.fetch_ids(messages)
            self.rows.hold_messages(plan.prepared, inserted)
            touched, changed = self.rows.fetch_ids(copies), self.rows.fetch_ids(changes)
            self.rows.raise_versions((touched | changed) - inserted)
            is_due = bool(touched or changed)
        if is_due:
            outbox.announce(self.rows, IndexEmailBatch(), source_id=self.origin.source_id, session_id=self.run_id)
        return len(changed)

    def _result(self, intake: planning.Intake, plan: planning.BatchPlan, changed: int) -> BatchResult:
        return BatchResult(
            archived=len(plan.copies),
            duplicates=len(intake.items) - len(plan.copies) - len(plan.left_out),
            failed=len(intake.failed),
            skipped=len(self.batch.skipped),
            deleted_here=len(plan.left_out),
            changed=changed,
            bytes=sum(item.raw.size for item in plan.copies),
        )
