"""The rows that indexing reads."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from typing import NamedTuple
from uuid import UUID

from archiver.store.pack import PackLocation


@dataclass(frozen=True, slots=True)
class DueMessage:
    """A message whose document is to be built, with its location in the packs."""

    id: UUID
    sha256: bytes
    version: int
    """Of the document."""
    internet_message_id: str | None
    in_reply_to: str | None
    reference_ids: list[str]
    subject: str | None
    sender: str | None
    sort_at: datetime
    size_bytes: int
    parser_version: int
    """Which parser its attachments are known from; 0 if they are not."""
    thread_id: UUID | None
    pack_id: UUID | None
    position: int | None
    stored_bytes: int | None
    attempts: int
    """How often the process that read it disappeared."""

    @property
    def place(self) -> PackLocation | None:
        return pack_location(self.pack_id, self.position, self.stored_bytes)


def pack_location(pack_id: UUID | None, position: int | None, stored_bytes: int | None) -> PackLocation | None:
    """None if the object is not known to be in any pack."""
    if pack_id is None or position is None or stored_bytes is None:
        return None
    return PackLocation(pack_id, position, stored_bytes)


@dataclass(frozen=True, slots=True)
class StoredPart:
    part_sha256: bytes
    pack_id: UUID
    position: int
    stored_bytes: int


@dataclass(frozen=True, slots=True)
class AttachmentText:
    sha256: bytes
    text_state: str
    text_reason: str | None
    text_sha256: bytes | None
    pages: list[tuple[int, int, str]]
    pack_id: UUID | None
    position: int | None
    stored_bytes: int | None


class CopyValues(NamedTuple):
    """A tuple, because the child process gets it as it is."""

    message_id: str
    mailbox_id: UUID
    source_id: UUID
    folder: str
    labels: list[str]
    recipients: list[str]


class LabelValues(NamedTuple):
    message_id: str
    label: str


class PersonValues(NamedTuple):
    message_id: str
    role: str
    address: str
    name: str | None


@dataclass(frozen=True, slots=True)
class SubjectReply:
    """A reply without ids, which goes by its subject."""

    id: UUID
    internet_message_id: str | None
    subject: str | None
    sort_at: datetime


@dataclass(frozen=True, slots=True)
class AnsweredMessage:
    reply: UUID
    id: UUID
    """Of the message that the reply answers."""
    internet_message_id: str | None


@dataclass(frozen=True, slots=True)
class ThreadMember:
    id: UUID
    thread_id: UUID | None
    internet_message_id: str | None
    in_reply_to: str | None
    reference_ids: list[str]
    subject: str | None
    sort_at: datetime
    mailboxes: list[UUID]


class ThreadLink(NamedTuple):
    key: UUID
    thread_id: UUID
