"""Restores as stored in Postgres."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from typing import Any
from uuid import UUID

from archiver.db.states import RestoreOutcome, RestoreState
from archiver.store.pack import PackLocation


@dataclass(frozen=True, slots=True)
class RestoreJob:
    id: UUID
    user_id: UUID | None
    requested_by: str
    selection: dict[str, Any]
    destination: dict[str, Any]
    destination_name: str
    state: RestoreState
    messages: int
    bytes: int
    restored: int
    present: int
    """Messages that were already there."""
    absent: int
    """Messages that the dry run did not find there."""
    refused: int
    """Messages that could not be restored; the report names them."""
    error: str | None
    created_at: datetime
    started_at: datetime | None
    finished_at: datetime | None
    done: int
    total: int
    """How far the run is, while there is one."""

    @property
    def is_open(self) -> bool:
        return self.state in (RestoreState.CHECKING, RestoreState.RESTORING)

    @property
    def can_start(self) -> bool:
        """After the dry run; and again after a failure, which continues where it stopped."""
        return self.state is RestoreState.READY or (
            self.state in (RestoreState.FAILED, RestoreState.CANCELLED) and self.messages > 0
        )


@dataclass(frozen=True, slots=True)
class PendingCopy:
    number: int
    message_id: UUID
    sha256: bytes | None
    """None if the message was deleted from the archive."""
    is_visible: bool
    folder: str
    flags: tuple[str, ...]
    labels: tuple[str, ...]
    received_at: datetime | None
    pack_id: UUID | None
    position: int | None
    stored_bytes: int | None

    @property
    def place(self) -> PackLocation | None:
        if self.pack_id is None or self.position is None or self.stored_bytes is None:
            return None
        return PackLocation(self.pack_id, self.position, self.stored_bytes)


@dataclass(frozen=True, slots=True)
class ReportedCopy:
    number: int
    message_id: UUID
    subject: str | None
    folder: str
    outcome: RestoreOutcome
    reason: str | None


@dataclass(frozen=True, slots=True)
class RestoreCounts:
    outcome: RestoreOutcome
    copies: int


@dataclass(frozen=True, slots=True)
class SealedPassword:
    credentials: bytes | None


@dataclass(frozen=True, slots=True)
class RestoreTotal:
    messages: int
    bytes: int


@dataclass(frozen=True, slots=True)
class RestoreAccount:
    """A mailbox that mail is restored to."""

    id: UUID
    address: str
    provider_id: str | None
    source_id: UUID
