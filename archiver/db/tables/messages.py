"""Messages, their copies, participants and attachments."""

from __future__ import annotations

from datetime import datetime
from uuid import UUID

from sqlalchemy import CheckConstraint, ForeignKey, Index, Integer, SmallInteger, text
from sqlalchemy.dialects.postgresql import ARRAY
from sqlalchemy.dialects.postgresql import UUID as PG_UUID
from sqlalchemy.orm import Mapped, mapped_column

from archiver.db.states import DateOrigin, ParticipantRole, SearchState, TextState
from archiver.db.tables.base import (
    Base,
    Count,
    CreatedAt,
    Id,
    JsonList,
    JsonObject,
    Texts,
    date_in_range,
    one_of,
    sha256_length,
)


class MessageTable(Base):
    """One mail, byte for byte. The id is derived from the SHA-256 (archiver.db.ids.message_uuid)."""

    __tablename__ = "messages"

    id: Mapped[UUID] = mapped_column(primary_key=True)
    sha256: Mapped[bytes] = mapped_column(unique=True)
    canonical_sha256: Mapped[bytes]
    """Equal for variants of one mail that differ only in line endings and in headers that mail programs add."""
    internet_message_id: Mapped[str | None]
    in_reply_to: Mapped[str | None]
    reference_ids: Mapped[Texts]
    thread_id: Mapped[UUID | None]
    thread_subject: Mapped[UUID | None]
    """Equal for subjects that may belong to one thread (archiver.indexing.threads)."""
    sent_at: Mapped[datetime | None]
    received_at: Mapped[datetime | None]
    sort_at: Mapped[datetime]
    """The Date header if plausible, otherwise the message's own Received, otherwise the server's date of receipt; 1970-01-01 if
    there is none of them (date_origin `none`)."""
    date_origin: Mapped[str]
    sender: Mapped[str | None]
    sender_name: Mapped[str | None]
    subject: Mapped[str | None]
    size_bytes: Mapped[int]
    has_attachments: Mapped[bool] = mapped_column(server_default=text("false"))
    defects: Mapped[JsonList]
    parser_version: Mapped[int] = mapped_column(Integer, server_default=text("0"))
    index_version: Mapped[int] = mapped_column(server_default=text("1"))
    indexed_version: Mapped[Count]
    search_state: Mapped[str] = mapped_column(server_default=SearchState.PENDING)
    search_reasons: Mapped[JsonList]
    first_run_id: Mapped[UUID | None]
    """The session that archived it, later the run with the same id. No foreign key, because the run is written at the end."""
    archived_at: Mapped[CreatedAt]
    indexed_at: Mapped[datetime | None]
    """When its document was last sent: later copies are not in it."""

    __table_args__ = (
        sha256_length("sha256"),
        sha256_length("canonical_sha256"),
        one_of("date_origin", DateOrigin),
        one_of("search_state", SearchState),
        CheckConstraint("indexed_version <= index_version", name="indexed_version"),
        CheckConstraint("size_bytes >= 0", name="size_bytes"),
        date_in_range("sent_at"),
        date_in_range("received_at"),
        date_in_range("sort_at"),
        Index("ix_messages_sort_at", text("sort_at DESC"), text("id DESC")),
        Index("ix_messages_thread_id", "thread_id"),
        # In order of archiving, which is the order of the packs.
        Index("ix_messages_to_index", "archived_at", "id", postgresql_where=text("indexed_version < index_version")),
        Index("ix_messages_to_extract", "archived_at", "id", postgresql_where=text("search_state = 'body'")),
        Index("ix_messages_thread_subject", "thread_subject", "sort_at", postgresql_where=text("thread_subject IS NOT NULL")),
        Index("ix_messages_not_full", "search_state", "id", postgresql_where=text("search_state <> 'full'")),
        Index("ix_messages_first_run_id", "first_run_id", postgresql_where=text("search_state <> 'full'")),
    )


class IndexLeaseTable(Base):
    """Messages that a process is indexing. One row for all of them: marking each message would rewrite it in every index."""

    __tablename__ = "index_leases"

    id: Mapped[Id]
    until: Mapped[datetime]
    message_ids: Mapped[list[UUID]] = mapped_column(ARRAY(PG_UUID(as_uuid=True)))
    stage: Mapped[str] = mapped_column(server_default=text("'body'"))
    reading: Mapped[list[UUID] | None] = mapped_column(ARRAY(PG_UUID(as_uuid=True)))
    """What is being read now: the suspects, if the lease expires because its holder disappeared."""


class ReadingAttemptTable(Base):
    """How often a process disappeared while reading a message. No row means never."""

    __tablename__ = "reading_attempts"

    message_id: Mapped[UUID] = mapped_column(ForeignKey("messages.id", ondelete="CASCADE"), primary_key=True)
    stage: Mapped[str] = mapped_column(primary_key=True)
    attempts: Mapped[int] = mapped_column(Integer)


class MessageCopyTable(Base):
    """A copy of a message in a mailbox. The row stays when the copy is deleted, so that no sync brings it back."""

    __tablename__ = "message_copies"

    id: Mapped[Id]
    message_id: Mapped[UUID | None] = mapped_column(index=True)
    mailbox_id: Mapped[UUID]
    """No foreign keys, which would look up and lock the message and mailbox of each row separately: a batch does so once for
    all of its rows, and deleting a message clears it in its copies."""
    provider_key: Mapped[str]
    folder: Mapped[str] = mapped_column(server_default=text("''"))
    flags: Mapped[Texts]
    labels: Mapped[Texts]
    received_at: Mapped[datetime | None]
    run_id: Mapped[UUID | None]
    created_at: Mapped[CreatedAt]
    gone_at: Mapped[datetime | None]
    deleted_at: Mapped[datetime | None]
    deleted_reason: Mapped[str | None]
    deleted_sha256: Mapped[bytes | None]
    """The hash of the deleted message, whose row may be gone: in this mailbox it stays deleted under every key."""
    recipients: Mapped[Texts]
    """As a journal recorded them: `role:address`. Visible to readers of this copy, not of others."""

    __table_args__ = (
        CheckConstraint("message_id IS NOT NULL OR deleted_at IS NOT NULL", name="has_message"),
        date_in_range("received_at"),
        Index("uq_message_copies_mailbox_id_provider_key", "mailbox_id", "provider_key", unique=True),
        # Partial, so that it serves only queries by folder: for a mailbox without statistics Postgres expects one row, and
        # would use this index to search all of its copies for a key.
        Index("ix_message_copies_folder", "mailbox_id", "folder", postgresql_where=text("folder IS NOT NULL")),
        Index(
            "ix_message_copies_deleted",
            "mailbox_id",
            "deleted_sha256",
            postgresql_where=text("deleted_sha256 IS NOT NULL"),
        ),
        Index("ix_message_copies_labelled", "mailbox_id", postgresql_where=text("labels <> '{}'")),
    )


class ParticipantTable(Base):
    """Inserted and deleted with its message. No foreign key: checking it per row would cost more than the insert."""

    __tablename__ = "participants"

    message_id: Mapped[UUID] = mapped_column(primary_key=True)
    position: Mapped[int] = mapped_column(Integer, primary_key=True)
    role: Mapped[str]
    address: Mapped[str]
    """Lowercase; text that is not an address is stored unchanged."""
    name: Mapped[str | None]

    __table_args__ = (
        one_of("role", ParticipantRole),
        Index("ix_participants_address", text("""left(address, 320) COLLATE "C\""""), "role"),
    )


class AttachmentTable(Base):
    """The content of attachments, once per hash, and the state of its text."""

    __tablename__ = "attachments"

    sha256: Mapped[bytes] = mapped_column(primary_key=True)
    size_bytes: Mapped[int]
    media_type: Mapped[str]
    text_state: Mapped[str] = mapped_column(server_default=TextState.PENDING)
    text_reason: Mapped[str | None]
    text_sha256: Mapped[bytes | None]
    """The extracted text, an object in the store."""
    pages: Mapped[JsonList]
    """The offset of each page in the text, in characters."""
    extractor_version: Mapped[int] = mapped_column(Integer, server_default=text("0"))
    needs_ocr: Mapped[bool] = mapped_column(server_default=text("false"))
    """It holds pictures that may hold text, and nothing has read them."""
    created_at: Mapped[CreatedAt]

    __table_args__ = (
        sha256_length("sha256"),
        one_of("text_state", TextState),
        Index("ix_attachments_text_sha256", "text_sha256", postgresql_where=text("text_sha256 IS NOT NULL")),
        Index("ix_attachments_pending", "sha256", postgresql_where=text("text_state = 'pending'")),
        Index("ix_attachments_needs_ocr", "sha256", postgresql_where=text("needs_ocr")),
        Index("ix_attachments_extractor_version", "extractor_version", postgresql_where=text("extractor_version > 0")),
    )


class MessageAttachmentTable(Base):
    __tablename__ = "message_attachments"

    message_id: Mapped[UUID] = mapped_column(ForeignKey("messages.id", ondelete="CASCADE"), primary_key=True)
    position: Mapped[int] = mapped_column(SmallInteger, primary_key=True)
    attachment_sha256: Mapped[bytes] = mapped_column(ForeignKey("attachments.sha256"), index=True)
    name: Mapped[str | None]
    media_type: Mapped[str]
    is_inline: Mapped[bool] = mapped_column(server_default=text("false"))
    content_id: Mapped[str | None]
    detail: Mapped[JsonObject]
