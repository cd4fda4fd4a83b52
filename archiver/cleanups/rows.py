"""Clean-ups as stored in Postgres."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from uuid import UUID

from archiver.db.states import CleanupOutcome, CleanupState
from archiver.retention.mail_check import MailUnit


@dataclass(frozen=True, slots=True)
class CleanupJob:
    id: UUID
    source_id: UUID
    source_name: str
    requested_by: str
    user_id: UUID | None
    after_days: int
    needs_backup: bool
    state: CleanupState
    messages: int
    """Old enough when the dry run began."""
    bytes: int
    ready: int
    """Messages that fulfil every condition, as the dry run found them."""
    deleted: int
    """Moved to the server's trash."""
    gone: int
    """Messages that were no longer there."""
    kept: int
    """Messages that may not be deleted; the list says why."""
    error: str | None
    created_at: datetime
    started_at: datetime | None
    finished_at: datetime | None

    @property
    def is_open(self) -> bool:
        return self.state in (CleanupState.CHECKING, CleanupState.DELETING)


@dataclass(frozen=True, slots=True)
class CleanupCopy:
    """A copy in a mailbox of the source, with what the conditions are about."""

    number: int
    message_id: UUID
    mailbox_id: UUID
    provider_key: str
    sha256: bytes | None
    is_there: bool
    """It is still in the archive, and not known to be gone from the source."""
    is_old: bool
    was_restored: bool
    is_verified: bool
    """Every pack that it needs was verified after it was archived."""
    pack_ids: tuple[UUID, ...]
    ends: tuple[int, ...]
    """Where its frames end in those packs."""

    @property
    def unit(self) -> MailUnit:
        return MailUnit(self.message_id, self.mailbox_id)


@dataclass(frozen=True, slots=True)
class CleanupEntry:
    """One line of the log."""

    number: int
    message_id: UUID
    subject: str | None
    folder: str
    outcome: CleanupOutcome
    reason: str | None
    at: datetime | None


@dataclass(frozen=True, slots=True)
class CleanupCount:
    outcome: CleanupOutcome
    copies: int


@dataclass(frozen=True, slots=True)
class NumberedOutcome:
    number: int
    outcome: CleanupOutcome
