"""One mailbox during one slice: what to fetch, how a batch is stored, and how the slice ends."""

from __future__ import annotations

import shutil
import time
from collections.abc import Callable, Collection, Iterator
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from typing import Any
from uuid import UUID

from sqlalchemy import Connection, Engine, text

from archiver import tracing
from archiver.db.sql import query_one
from archiver.logs import get_logger
from archiver.queue.jobs import SHORT_PAUSE_SECONDS, Later
from archiver.store.errors import StoreUnavailable
from archiver.store.journal import Origin
from archiver.sync import ledger, sessions
from archiver.sync.batching import clean_batch, join
from archiver.sync.connector_context import ConnectorContext
from archiver.sync.idle_guard import GuardedConnector
from archiver.sync.ingest.plan import MAX_FOLDER_CHARS
from archiver.sync.ingest.provider_keys import VERSION_MARK, FittedKeys, fit_key
from archiver.sync.ingest.store_batch import Fence, TakenOver
from archiver.sync.resources import SyncResources
from archiver.sync.sessions import Slice
from connectors.base import NOT_FOUND, Batch, ChangeKind, Connector, CopyChange, FolderListing, MailboxRef, Skipped

REFETCH_LIMIT = 10_000
"""More missing messages are left to the next cycle, so that one mailbox does not refetch forever."""
_LONGEST_SLICES = 10
"""Even if no other mailbox waits, a slice ends after this many times SLICE_SECONDS, so that attempts and locks stay short."""
_PAUSE_MINUTES_AT_MOST = 60
_CHANGES_AT_ONCE = 5_000
_NOT_FOUND_TWICE = "deleted at the source before it could be fetched"

log = get_logger("mailbox")

# Outbox rows of mailboxes that are running do not count: they are at work, not waiting.
_OTHERS_WAIT = """
    SELECT EXISTS (SELECT 1 FROM outbox o WHERE o.queue = 'ingestion' AND o.id <> :row AND o.available_at <= now()
        AND (o.job <> 'process-mailbox' OR EXISTS (
            SELECT 1 FROM sync_session_mailboxes m WHERE m.session_id = o.session_id AND m.state = 'queued'
            AND m.mailbox_id = CAST(o.payload->'data'->>'mailbox_id' AS uuid))))"""

_SET_MISSING = text(
    "UPDATE sync_session_mailboxes SET missing = :missing WHERE session_id = :session AND mailbox_id = :mailbox"
)
_RECOVERED = text("UPDATE mailboxes SET failures = 0, next_due_at = NULL, status_message = NULL WHERE id = :mailbox")


@dataclass(frozen=True, slots=True)
class LoadedMailbox:
    """What Postgres knows about a mailbox when a slice begins."""

    origin: Origin
    state: dict[str, Any]
    has_failed: bool
    due: list[str]
    """Provider keys of dead letters whose next attempt is due."""
    deleted_keys: Callable[[Connection, UUID, list[str]], set[str]] | None = None
    """For an import, which reports messages that were deleted here as such: finds them among known keys."""


@dataclass(slots=True)
class MailboxSlice:
    """The work on one mailbox. Every method that ends the slice does so in one transaction, guarded by the fence."""

    resources: SyncResources
    held: Slice
    loaded: LoadedMailbox
    connector: Connector
    context: ConnectorContext
    guarded: GuardedConnector
    started: float

    @property
    def origin(self) -> Origin:
        return self.loaded.origin

    @property
    def _ref(self) -> MailboxRef:
        return MailboxRef(self.origin.address, self.origin.display_name, self.origin.provider_id)

    def batches(self) -> Iterator[Batch]:
        """Dead letters that are due, then everything new. Messages that are already known are not downloaded."""
        if self.loaded.due:
            yield from self.connector.refetch(self._ref, self.loaded.due)
        yield from self.connector.fetch(self._ref, self.loaded.state, self._known)

    def _known(self, keys: Collection[str]) -> set[str]:
        """checkDuplicate. An import reads each of its files once and reports what became of every message: what was deleted
        here is handed over again, left out, and counted as such. It costs no download."""
        known = self.resources.ingest.known(self.held.mailbox_id, keys)
        if self.loaded.deleted_keys is None:
            return known
        with self.resources.engine.connect() as connection:
            deleted = self.loaded.deleted_keys(connection, self.held.mailbox_id, [fit_key(key) for key in known])
        return {key for key in known if fit_key(key) not in deleted}

    def refetch_missing(self, keys: list[str]) -> Iterator[Batch]:
        """Requests the listed messages that neither arrived nor are accounted for once more."""
        yield from self.connector.refetch(self._ref, keys[:REFETCH_LIMIT])

    def store(self, batches: list[Batch]) -> None:
        """Stores the batches in order, combined where possible. A batch with changes is stored after everything before it."""
        if batches:
            self._check_disk()
        together: list[Batch] = []
        for batch in map(self._skip_deleted_at_source, map(clean_batch, batches)):
            if batch.changes or self._shows_deletions(batch):
                self._store(together)
                together = []
                self._store_differences(batch)
            together.append(batch)
        self._store(together)

    def _skip_deleted_at_source(self, batch: Batch) -> Batch:
        """A message that the source could not find in two cycles counts as deleted there: skipped by a rule, not failed."""
        missing = [fit_key(failed.provider_key) for failed in batch.failed if failed.is_not_found]
        if not missing:
            return batch
        with self.resources.engine.connect() as connection:
            twice = ledger.not_found_before(connection, self.held.mailbox_id, missing, NOT_FOUND)
        deleted = {failed.provider_key: twice[key] for failed in batch.failed if (key := fit_key(failed.provider_key)) in twice}
        return replace(
            batch,
            failed=tuple(failed for failed in batch.failed if failed.provider_key not in deleted),
            skipped=(*batch.skipped, *(Skipped(key, _NOT_FOUND_TWICE, folder) for key, folder in deleted.items())),
        )

    def _shows_deletions(self, batch: Batch) -> bool:
        """Only a whole listing shows what is gone, and on the first visit there is nothing that could be."""
        return bool(self.loaded.state) and any(listing.is_whole for listing in batch.listings)

    def _store_differences(self, batch: Batch) -> None:
        """Before the batch itself, whose state is true only once its differences are stored."""
        if self._shows_deletions(batch):
            reported = {fit_key(change.provider_key) for change in batch.changes}
            for listing in batch.listings:
                if listing.is_whole:
                    for changes in self._differences(listing, reported):
                        self._store([Batch(changes=changes)])

    def _differences(self, listing: FolderListing, reported: set[str]) -> Iterator[tuple[CopyChange, ...]]:
        """`reported`: keys whose changes the connector has reported itself."""
        with self.resources.engine.begin() as connection:
            keys = FittedKeys(listing.provider_keys)
            folder = listing.folder[:MAX_FOLDER_CHARS]
            found = ledger.differences(connection, self.held.mailbox_id, folder, keys, VERSION_MARK)
        changes = [CopyChange(ChangeKind.GONE, key) for key in found.gone if key not in reported]
        changes += [CopyChange(ChangeKind.BACK, key) for key in found.back if key not in reported]
        for start in range(0, len(changes), _CHANGES_AT_ONCE):
            yield tuple(changes[start : start + _CHANGES_AT_ONCE])

    def _store(self, batches: list[Batch]) -> None:
        if not batches:
            return
        fence, batch = Fence(self.held.session_id, self.held.number), join(batches)
        with tracing.span("store_batch", messages=len(batch.messages)):
            result = self.resources.ingest.store_batch(self.origin, batch, fence)
        counters, kind = self.resources.counters, self.origin.source_kind
        counters.add("archiver_messages_archived", result.archived, kind=kind)
        counters.add("archiver_bytes_archived", result.bytes, kind=kind)
        counters.add("archiver_message_duplicates", result.duplicates, kind=kind)
        self.context.progress()
        for message in batch.messages:
            if message.path is not None:
                message.path.unlink(missing_ok=True)

    def _check_disk(self) -> None:
        """Stops before the disk is so full that Postgres stops too."""
        free, wanted = (
            shutil.disk_usage(self.resources.settings.archiver_data).free,
            self.resources.settings.disk_min_free_bytes,
        )
        if free < wanted:
            raise StoreUnavailable(f"only {free >> 20:,} MiB are free, less than DISK_MIN_FREE_BYTES ({wanted >> 20:,} MiB)")

    def is_over(self) -> bool:
        """The slice has used its time and other jobs wait, or the process is stopping."""
        used = time.monotonic() - self.started
        if self.resources.stopping.is_set() or used > _LONGEST_SLICES * self.resources.settings.slice_seconds:
            return True
        if used < self.resources.settings.slice_seconds:
            return False
        with self.resources.engine.connect() as connection:
            return query_one(connection, _OTHERS_WAIT, bool, row=self.held.row_id)

    # --- how a slice ends

    def requeue(self, after_seconds: float = 0.0) -> None:
        at = datetime.now(UTC) + timedelta(seconds=after_seconds) if after_seconds else None
        with self.resources.engine.begin() as connection:
            self._check_fence(sessions.requeue(connection, self.held, self.origin.source_id, at))

    def defer(self, after_seconds: float) -> None:
        """Frees the worker's slot during a pause: a short one is spent in the queue, a long one in the outbox."""
        self.resources.counters.add("archiver_provider_throttled", kind=self.origin.source_kind)
        if after_seconds > SHORT_PAUSE_SECONDS:
            return self.requeue(after_seconds)
        at = datetime.now(UTC) + timedelta(seconds=after_seconds)
        with self.resources.engine.begin() as connection:
            self._check_fence(sessions.defer(connection, self.held, at))
        raise Later(after_seconds)

    def restart(self, folder: str | None, reason: str) -> None:
        """The server no longer knows our position. Reading again costs traffic but no storage; allowed once per cycle."""
        marker = str(self.held.session_id)
        if self.loaded.state.get("restarted_in") == marker:
            return self.fail(f"the server lost the sync state twice in one cycle: {reason}")
        forget = "sync_state - ARRAY(SELECT k FROM jsonb_object_keys(sync_state) k WHERE k = :folder OR k LIKE :suffix)"
        kept = "'{}'::jsonb" if folder is None else forget
        with self.resources.engine.begin() as connection:
            self._check_fence(sessions.requeue(connection, self.held, self.origin.source_id))
            connection.execute(
                text(
                    f"UPDATE mailboxes SET sync_state = ({kept}) || jsonb_build_object('restarted_in', CAST(:marker AS text))"  # noqa: S608
                    " WHERE id = :id"
                ),
                {
                    "id": self.held.mailbox_id,
                    "marker": marker,
                    **({} if folder is None else {"folder": folder, "suffix": f"%:{folder}"}),
                },
            )
        log.warning("state_lost", mailbox=str(self.held.mailbox_id), reason=reason)
        return None

    def finish(self, *, with_gap: bool = False) -> list[str]:
        """Ends the mailbox, unless listed messages are missing and `with_gap` is not set. Returns the missing keys."""
        values = {"session": self.held.session_id, "mailbox": self.held.mailbox_id}
        with self.resources.engine.begin() as connection:
            ended = sessions.end_mailbox(connection, self.held, self.origin.source_id, if_explained=True)
            missing = [] if ended else ledger.gap(connection, self.held.mailbox_id)
            if missing and not with_gap:
                return missing
            if missing:
                connection.execute(_SET_MISSING, {**values, "missing": len(missing)})
            if not ended:
                self._check_fence(sessions.end_mailbox(connection, self.held, self.origin.source_id))
            if self.loaded.has_failed:
                connection.execute(_RECOVERED, values)
        return missing

    def fail(self, reason: str, *, pause_minutes: int | None = None) -> None:
        """Ends the mailbox as failed, to be retried in 1, 2, 4 … 60 minutes; the other mailboxes continue."""
        end_as_failed(self.resources.engine, self.held, self.origin.source_id, reason, pause_minutes=pause_minutes)

    def failure_reason(self, error: Exception) -> str:
        """Names the idle timeout if that closed the connection, whatever error the connector raised for it."""
        if self.guarded.timed_out:
            return f"no progress for {self.resources.settings.connector_idle_seconds} s, so the connection was closed ({error})"
        return str(error)

    def _check_fence(self, held: bool) -> None:
        if not held:
            raise TakenOver(f"another worker has taken over mailbox {self.origin.address}")


def end_as_failed(engine: Engine, held: Slice, source_id: UUID, reason: str, *, pause_minutes: int | None = None) -> None:
    pause = "least(:limit, power(2, least(failures, 10)))" if pause_minutes is None else ":limit"
    with engine.begin() as connection:
        if not sessions.end_mailbox(connection, held, source_id, error=reason):
            raise TakenOver("another worker has taken over the mailbox")
        connection.execute(
            text(
                f"UPDATE mailboxes SET status_message = :reason, next_due_at = now() + {pause} * interval '1 minute',"  # noqa: S608
                " failures = failures + 1 WHERE id = :id"
            ),
            {"id": held.mailbox_id, "reason": reason, "limit": pause_minutes or _PAUSE_MINUTES_AT_MOST},
        )
