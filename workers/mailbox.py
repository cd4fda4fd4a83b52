"""One mailbox during one slice: what it has to fetch, how a batch is stored, and how the slice ends."""

from __future__ import annotations

import contextlib
import shutil
import time
from collections.abc import Iterator
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from functools import partial
from typing import Any
from uuid import UUID

from sqlalchemy import Connection, text

from archiver.logs import get_logger
from archiver.queue.jobs import SHORT_PAUSE_SECONDS, Later
from archiver.services import imports
from archiver.services.ingest import Fence, TakenOver
from archiver.services.intake import MAX_FOLDER_CHARS
from archiver.services.provider_keys import VERSION_MARK, FittedKeys, fit_key
from archiver.services.source_access import open_source
from archiver.services.source_rows import Source, load_with, with_mailbox
from archiver.store.errors import StoreUnavailable
from archiver.store.journal import Origin
from archiver.sync import ledger, sessions
from archiver.sync.sessions import Slice
from connectors.base import NOT_FOUND, Batch, ChangeKind, Connector, CopyChange, FolderListing, MailboxRef, Skipped
from workers.gathering import cleaned, join
from workers.work import HEARTBEAT_SECONDS, ConnectorContext, Watch, Work

_REFETCH_AT_MOST = 10_000
_LONGEST_SLICES = 10
"""Even if nobody waits, a slice ends after this many times SLICE_SECONDS: attempts and locks stay short."""
_PAUSE_MINUTES_AT_MOST = 60
_CHANGES_AT_ONCE = 5_000
_NOT_FOUND_TWICE = "deleted at the source before it could be fetched"

log = get_logger("mailbox")

_SOMEBODY_WAITS = text("""
    SELECT EXISTS (SELECT 1 FROM outbox o WHERE o.queue = 'ingestion' AND o.id <> :row AND o.available_at <= now()
        AND (o.job <> 'process-mailbox' OR EXISTS (
            SELECT 1 FROM sync_session_mailboxes m WHERE m.session_id = o.session_id AND m.state = 'queued'
            AND m.mailbox_id = CAST(o.payload->'data'->>'mailbox_id' AS uuid))))""")

_LOAD = with_mailbox("""m.address, m.display_name, m.provider_id, m.sync_state,
    m.failures > 0 OR m.next_due_at IS NOT NULL OR m.status_message IS NOT NULL AS has_failed,
    ARRAY(SELECT coalesce(payload->>'provider_key', provider_key) FROM dead_letters WHERE kind = 'message'
          AND mailbox_id = :id AND discarded_at IS NULL AND next_try_at <= now() ORDER BY next_try_at LIMIT :most) AS due""")
_SET_TOTAL = text("UPDATE sync_session_mailboxes SET total = :total WHERE session_id = :session AND mailbox_id = :mailbox")
_SET_MISSING = text(
    "UPDATE sync_session_mailboxes SET missing = :missing WHERE session_id = :session AND mailbox_id = :mailbox"
)
_RECOVERED = text("UPDATE mailboxes SET failures = 0, next_due_at = NULL, status_message = NULL WHERE id = :mailbox")


@dataclass(frozen=True, slots=True)
class LoadedMailbox:
    """What Postgres knows when a slice begins."""

    source: Source
    origin: Origin
    state: dict[str, Any]
    has_failed: bool
    due: list[str]
    """Dead letters whose next try is due, by provider key."""


def load_mailbox(connection: Connection, mailbox_id: UUID, session_id: UUID) -> LoadedMailbox:
    source, row = load_with(connection, _LOAD, id=mailbox_id, most=_REFETCH_AT_MOST)
    source = imports.as_read_by(connection, source, session_id)
    origin = Origin(source.id, source.kind, source.name, mailbox_id, row.address, row.display_name, row.provider_id)
    return LoadedMailbox(source, origin, dict(row.sync_state), row.has_failed, row.due)


@dataclass(slots=True)
class MailboxSlice:
    """Made by `opened`; every method that ends the slice does it in one transaction, guarded by the fence."""

    work: Work
    held: Slice
    loaded: LoadedMailbox
    connector: Connector
    context: ConnectorContext
    watch: Watch
    started: float

    @property
    def source(self) -> Source:
        return self.loaded.source

    @property
    def origin(self) -> Origin:
        return self.loaded.origin

    @property
    def _ref(self) -> MailboxRef:
        return MailboxRef(self.origin.address, self.origin.display_name, self.origin.provider_id)

    def batches(self) -> Iterator[Batch]:
        """Dead letters that are due, then everything new. What is known is not downloaded."""
        if self.loaded.due:
            yield from self.connector.refetch(self._ref, self.loaded.due)
        known = partial(self.work.ingest.known, self.held.mailbox_id)
        yield from self.connector.fetch(self._ref, self.loaded.state, known)

    def again(self, keys: list[str]) -> Iterator[Batch]:
        """What was listed and neither came nor is explained: asked for once more."""
        yield from self.connector.refetch(self._ref, keys[:_REFETCH_AT_MOST])

    def store(self, batches: list[Batch]) -> None:
        """Together, in their order; what has changes comes after what was before it."""
        if batches:
            self._check_disk()
        together: list[Batch] = []
        for batch in map(self._judged, map(cleaned, batches)):
            if batch.changes or self._tells_what_is_gone(batch):
                self._store(together)
                together = []
                self._store_differences(batch)
            together.append(batch)
        self._store(together)

    def _judged(self, batch: Batch) -> Batch:
        """What the source could not find twice, in two cycles, counts as deleted there: a rule, and no failure any more."""
        lost = [fit_key(failed.provider_key) for failed in batch.failed if failed.is_not_found]
        if not lost:
            return batch
        with self.work.engine.connect() as connection:
            again = ledger.not_found_before(connection, self.held.mailbox_id, lost, NOT_FOUND)
        counts = {failed.provider_key: again[key] for failed in batch.failed if (key := fit_key(failed.provider_key)) in again}
        return replace(
            batch,
            failed=tuple(failed for failed in batch.failed if failed.provider_key not in counts),
            skipped=(*batch.skipped, *(Skipped(key, _NOT_FOUND_TWICE, folder) for key, folder in counts.items())),
        )

    def _tells_what_is_gone(self, batch: Batch) -> bool:
        """A part of a listing says nothing about the rest; and at first nothing is held that could be gone."""
        return bool(self.loaded.state) and any(listing.is_whole for listing in batch.listings)

    def _store_differences(self, batch: Batch) -> None:
        """Before the batch itself, so that its state is true in the end."""
        if self._tells_what_is_gone(batch):
            told = {fit_key(change.provider_key) for change in batch.changes}
            for listing in batch.listings:
                if listing.is_whole:
                    for changes in self._differences(listing, told):
                        self._store([Batch(changes=changes)])

    def _differences(self, listing: FolderListing, told: set[str]) -> Iterator[tuple[CopyChange, ...]]:
        """`told`: keys whose changes the connector has told itself."""
        with self.work.engine.begin() as connection:
            keys = FittedKeys(listing.provider_keys)
            folder = listing.folder[:MAX_FOLDER_CHARS]
            found = ledger.differences(connection, self.held.mailbox_id, folder, keys, VERSION_MARK)
        changes = [CopyChange(ChangeKind.GONE, key) for key in found.gone if key not in told]
        changes += [CopyChange(ChangeKind.BACK, key) for key in found.back if key not in told]
        for start in range(0, len(changes), _CHANGES_AT_ONCE):
            yield tuple(changes[start : start + _CHANGES_AT_ONCE])

    def _store(self, batches: list[Batch]) -> None:
        if not batches:
            return
        fence, batch = Fence(self.held.session_id, self.held.number), join(batches)
        self.work.ingest.store_batch(self.origin, batch, fence, also=lambda connection, _: self._book(connection, batch))
        self.context.progress()
        for message in batch.messages:
            if message.path is not None:
                message.path.unlink(missing_ok=True)

    def _check_disk(self) -> None:
        """A full disk is met before it stops Postgres too."""
        free, wanted = shutil.disk_usage(self.work.settings.archiver_data).free, self.work.settings.disk_min_free_bytes
        if free < wanted:
            raise StoreUnavailable(f"only {free >> 20:,} MiB are free, less than DISK_MIN_FREE_BYTES ({wanted >> 20:,} MiB)")

    def _book(self, connection: Connection, batch: Batch) -> None:
        """The ledger's lines commit with the batch that they belong to."""
        if batch.skipped:
            lines = [(fit_key(item.provider_key), item.folder, item.rule) for item in batch.skipped]
            ledger.record_skipped(connection, self.held.mailbox_id, lines)
        listings = [ledger.Listing(one.folder, FittedKeys(one.provider_keys), one.is_continued) for one in batch.listings]
        ledger.record_listings(connection, self.held.mailbox_id, listings)

    def is_over(self) -> bool:
        """The slice has had its time and somebody waits, or the process is stopping."""
        used = time.monotonic() - self.started
        if self.work.stopping.is_set() or used > _LONGEST_SLICES * self.work.settings.slice_seconds:
            return True
        if used < self.work.settings.slice_seconds:
            return False
        with self.work.engine.connect() as connection:
            return bool(connection.execute(_SOMEBODY_WAITS, {"row": self.held.row_id}).scalar())

    # --- the ends

    def give_back(self, after_seconds: float = 0.0) -> None:
        at = datetime.now(UTC) + timedelta(seconds=after_seconds) if after_seconds else None
        with self.work.engine.begin() as connection:
            self._fenced(sessions.give_back(connection, self.held, self.source.id, at))

    def come_back(self, after_seconds: float) -> None:
        """Throttled: the place is free meanwhile. A short pause is spent in the queue, a long one in the outbox."""
        if after_seconds > SHORT_PAUSE_SECONDS:
            return self.give_back(after_seconds)
        at = datetime.now(UTC) + timedelta(seconds=after_seconds)
        with self.work.engine.begin() as connection:
            self._fenced(sessions.put_off(connection, self.held, at))
        raise Later(after_seconds)

    def start_again(self, folder: str | None, reason: str) -> None:
        """The server no longer knows where we were. Costly in traffic, not in storage; and only once in a cycle."""
        marker = str(self.held.session_id)
        if self.loaded.state.get("restarted_in") == marker:
            return self.fail(f"its state was lost twice in one cycle: {reason}")
        forget = "sync_state - ARRAY(SELECT k FROM jsonb_object_keys(sync_state) k WHERE k = :folder OR k LIKE :suffix)"
        kept = "'{}'::jsonb" if folder is None else forget
        with self.work.engine.begin() as connection:
            self._fenced(sessions.give_back(connection, self.held, self.source.id))
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

    def done(self, *, with_gap: bool = False) -> list[str]:
        """Ends the mailbox, unless listed messages are missing and that is not accepted. Returns the missing ones."""
        values = {"session": self.held.session_id, "mailbox": self.held.mailbox_id}
        with self.work.engine.begin() as connection:
            ended = sessions.end_mailbox(connection, self.held, self.source.id, if_explained=True)
            missing = [] if ended else ledger.gap(connection, self.held.mailbox_id)
            if missing and not with_gap:
                return missing
            if missing:
                connection.execute(_SET_MISSING, {**values, "missing": len(missing)})
            if not ended:
                self._fenced(sessions.end_mailbox(connection, self.held, self.source.id))
            if self.loaded.has_failed:
                connection.execute(_RECOVERED, values)
        return missing

    def fail(self, reason: str, *, pause_minutes: int | None = None) -> None:
        """The mailbox ends as failed, and waits 1, 2, 4 … 60 minutes before its next turn; the others go on."""
        end_as_failed(self.work, self.held, self.source.id, reason, pause_minutes=pause_minutes)

    def why(self, error: Exception) -> str:
        """A connection that we closed says so, whatever the connector made of it."""
        if self.watch.timed_out:
            return f"no progress for {self.work.settings.connector_idle_seconds} s, so the connection was closed ({error})"
        return str(error)

    def _fenced(self, held: bool) -> None:
        if not held:
            raise TakenOver(f"the mailbox {self.origin.address} is in other hands")


def end_as_failed(work: Work, held: Slice, source_id: UUID, reason: str, *, pause_minutes: int | None = None) -> None:
    pause = "least(:most, power(2, least(failures, 10)))" if pause_minutes is None else ":most"
    with work.engine.begin() as connection:
        if not sessions.end_mailbox(connection, held, source_id, error=reason):
            raise TakenOver("the mailbox is in other hands")
        connection.execute(
            text(
                f"UPDATE mailboxes SET status_message = :reason, next_due_at = now() + {pause} * interval '1 minute',"  # noqa: S608
                " failures = failures + 1 WHERE id = :id"
            ),
            {"id": held.mailbox_id, "reason": reason, "most": pause_minutes or _PAUSE_MINUTES_AT_MOST},
        )


@contextlib.contextmanager
def opened(work: Work, held: Slice, loaded: LoadedMailbox) -> Iterator[MailboxSlice]:
    told = _Told(work, held)
    context = ConnectorContext(work, loaded.source, work.settings.slice_seconds, told.progress)
    connector = open_source(loaded.source, work.keyring, context)
    with work.watchman.over(connector, context, work.settings.connector_idle_seconds) as watch:
        yield MailboxSlice(work, held, loaded, connector, context, watch, time.monotonic())


class _Told:
    """Bars and heartbeats. Connectors tell their progress as often as they like; Postgres hears what is new."""

    def __init__(self, work: Work, held: Slice) -> None:
        self._work, self._held = work, held
        self._total = 0
        self._at = time.monotonic()

    def progress(self, total: int | None) -> None:
        is_new = total is not None and total != self._total
        if not is_new and time.monotonic() - self._at < HEARTBEAT_SECONDS:
            return
        self._at = time.monotonic()
        with self._work.engine.begin() as connection:
            if is_new:
                self._total = total or 0
                connection.execute(
                    _SET_TOTAL,
                    {"total": total, "session": self._held.session_id, "mailbox": self._held.mailbox_id},
                )
            sessions.touch(connection, self._held.session_id)
