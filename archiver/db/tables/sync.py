"""A sync cycle: its session while it runs, its run afterwards, the outbox, imports and dead letters."""

from __future__ import annotations

from datetime import datetime
from uuid import UUID

from sqlalchemy import CheckConstraint, ForeignKey, Index, SmallInteger, text
from sqlalchemy.orm import Mapped, mapped_column

from archiver.db.states import DeadLetterKind, MailboxRunState, RunOutcome, SessionState
from archiver.db.tables.base import Base, Count, CreatedAt, Id, JsonList, JsonObject, one_of


class SyncSessionTable(Base):
    """The running cycle of a source. Its insert is the claim on the source; its id becomes the run's."""

    __tablename__ = "sync_sessions"

    id: Mapped[Id]
    ingestion_source_id: Mapped[UUID] = mapped_column(ForeignKey("ingestion_sources.id", ondelete="CASCADE"))
    state: Mapped[str] = mapped_column(server_default=SessionState.LISTING)
    is_initial_import: Mapped[bool] = mapped_column(server_default=text("false"))
    total_mailboxes: Mapped[Count]
    completed_mailboxes: Mapped[Count]
    failed_mailboxes: Mapped[Count]
    error_messages: Mapped[JsonList]
    rerun_requested: Mapped[bool] = mapped_column(server_default=text("false"))
    listing: Mapped[JsonObject]
    """What the source listed for this cycle: how many mailboxes, how many of them wait, and which are gone."""
    created_at: Mapped[CreatedAt]
    last_activity_at: Mapped[CreatedAt]

    __table_args__ = (
        one_of("state", SessionState),
        CheckConstraint("completed_mailboxes + failed_mailboxes <= total_mailboxes", name="counts"),
        Index(
            "uq_sync_sessions_live",
            "ingestion_source_id",
            unique=True,
            postgresql_where=text("state IN ('listing', 'running')"),
        ),
        Index("ix_sync_sessions_last_activity_at", "last_activity_at"),
    )


class SyncSessionMailboxTable(Base):
    """One mailbox in a session. `slice` fences: only the job that holds the current slice may write."""

    __tablename__ = "sync_session_mailboxes"

    session_id: Mapped[UUID] = mapped_column(ForeignKey("sync_sessions.id", ondelete="CASCADE"), primary_key=True)
    mailbox_id: Mapped[UUID] = mapped_column(ForeignKey("mailboxes.id", ondelete="CASCADE"), primary_key=True)
    state: Mapped[str] = mapped_column(server_default=MailboxRunState.QUEUED)
    slice: Mapped[Count]
    seen: Mapped[Count]
    archived: Mapped[Count]
    duplicates: Mapped[Count]
    skipped: Mapped[Count]
    deleted_here: Mapped[Count]
    """Skipped, because they were deleted from the archive."""
    failed: Mapped[Count]
    missing: Mapped[Count]
    """The gap: listed at the source, but neither archived nor accounted for."""
    bytes: Mapped[Count]
    total: Mapped[int | None]
    """The number of messages to process, if the source reports it."""
    error_message: Mapped[str | None]
    started_at: Mapped[datetime | None]
    finished_at: Mapped[datetime | None]

    __table_args__ = (
        one_of("state", MailboxRunState),
        CheckConstraint("slice >= 0", name="slice"),
        Index("ix_sync_session_mailboxes_mailbox_id", "mailbox_id"),
        Index("ix_sync_session_mailboxes_state", "session_id", "state"),
    )


class SyncRunTable(Base):
    """The permanent history of a cycle. Counts are computed from rows when the cycle ends."""

    __tablename__ = "sync_runs"

    id: Mapped[Id]
    source_id: Mapped[UUID] = mapped_column(ForeignKey("ingestion_sources.id", ondelete="CASCADE"))
    outcome: Mapped[str]
    is_initial_import: Mapped[bool] = mapped_column(server_default=text("false"))
    started_at: Mapped[datetime]
    finished_at: Mapped[CreatedAt]
    total_mailboxes: Mapped[Count]
    completed_mailboxes: Mapped[Count]
    failed_mailboxes: Mapped[Count]
    archived: Mapped[Count]
    duplicates: Mapped[Count]
    skipped: Mapped[Count]
    deleted_here: Mapped[Count]
    failed: Mapped[Count]
    missing: Mapped[Count]
    bytes: Mapped[Count]
    error_messages: Mapped[JsonList]
    detail: Mapped[JsonObject]

    __table_args__ = (
        one_of("outcome", RunOutcome),
        Index("ix_sync_runs_source_id_finished_at", "source_id", text("finished_at DESC")),
    )


class ImportTable(Base):
    """One import of mail files. What it reads is written here once and never changes; its job names this row.

    Without an outcome and a session it is waiting: only one import of a source runs at a time.
    """

    __tablename__ = "imports"

    id: Mapped[Id]
    source_id: Mapped[UUID] = mapped_column(ForeignKey("ingestion_sources.id", ondelete="CASCADE"))
    number: Mapped[int]
    """Ascending within its source: the order of the queue, and part of the sync state that this import writes."""
    mailbox: Mapped[str]
    settings: Mapped[JsonObject]
    """The settings of the connector, including paths."""
    requested_by: Mapped[str]
    user_id: Mapped[UUID | None] = mapped_column(ForeignKey("users.id", ondelete="SET NULL"), index=True)
    upload_folder: Mapped[str | None]
    """In ARCHIVER_DATA/uploads, for an import of uploaded files: removed after success, or when it is discarded."""
    upload_removed_at: Mapped[datetime | None]
    session_id: Mapped[UUID | None] = mapped_column(unique=True)
    """Its session while it runs, later its run."""
    outcome: Mapped[str | None]
    message: Mapped[str | None]
    tally: Mapped[JsonList]
    """The progress of each mailbox, saved when the import ends, because the next import overwrites it there."""
    created_at: Mapped[CreatedAt]
    started_at: Mapped[datetime | None]
    finished_at: Mapped[datetime | None]
    discarded_at: Mapped[datetime | None]

    __table_args__ = (
        one_of("outcome", RunOutcome),
        Index("uq_imports_source_id_number", "source_id", "number", unique=True),
        Index("ix_imports_open", "source_id", "number", postgresql_where=text("outcome IS NULL")),
        Index("ix_imports_listed", text("created_at DESC"), text("id DESC")),
        Index("ix_imports_kept", "id", postgresql_where=text("upload_folder IS NOT NULL AND upload_removed_at IS NULL")),
    )


class OutboxTable(Base):
    """Announces a job. Inserted with the data it announces, deleted with the effect of the job; its id is the job's."""

    __tablename__ = "outbox"

    id: Mapped[Id]
    queue: Mapped[str]
    job: Mapped[str]
    payload: Mapped[JsonObject]
    priority: Mapped[int] = mapped_column(SmallInteger, server_default=text("10"))
    source_id: Mapped[UUID | None] = mapped_column(ForeignKey("ingestion_sources.id", ondelete="CASCADE"))
    session_id: Mapped[UUID | None]
    available_at: Mapped[CreatedAt]
    sent_at: Mapped[datetime | None]
    created_at: Mapped[CreatedAt]

    __table_args__ = (
        Index("ix_outbox_pending", "queue", "source_id", "priority", "id", postgresql_where=text("sent_at IS NULL")),
        Index("ix_outbox_sent_at", "sent_at", postgresql_where=text("sent_at IS NOT NULL")),
        Index("ix_outbox_session_id", "session_id"),
        Index("ix_outbox_source_id", "source_id"),
    )


class DeadLetterTable(Base):
    """What failed permanently, with everything needed to retry it."""

    __tablename__ = "dead_letters"

    id: Mapped[Id]
    kind: Mapped[str]
    source_id: Mapped[UUID | None] = mapped_column(ForeignKey("ingestion_sources.id", ondelete="CASCADE"))
    mailbox_id: Mapped[UUID | None] = mapped_column(ForeignKey("mailboxes.id", ondelete="CASCADE"))
    message_id: Mapped[UUID | None] = mapped_column(ForeignKey("messages.id", ondelete="CASCADE"))
    provider_key: Mapped[str | None]
    folder: Mapped[str | None]
    queue: Mapped[str | None]
    job: Mapped[str | None]
    job_id: Mapped[str | None]
    payload: Mapped[JsonObject]
    raw_sha256: Mapped[bytes | None]
    """The bytes, if they were fetched: an object in the store."""
    reason: Mapped[str]
    attempts: Mapped[int] = mapped_column(server_default=text("1"))
    created_at: Mapped[CreatedAt]
    last_failed_at: Mapped[CreatedAt]
    next_try_at: Mapped[datetime | None]
    discarded_at: Mapped[datetime | None]

    __table_args__ = (
        one_of("kind", DeadLetterKind),
        CheckConstraint(
            "(kind = 'message' AND mailbox_id IS NOT NULL AND provider_key IS NOT NULL)"
            " OR (kind = 'document' AND message_id IS NOT NULL)"
            " OR (kind = 'job' AND queue IS NOT NULL AND job IS NOT NULL AND job_id IS NOT NULL)",
            name="complete",
        ),
        Index("uq_dead_letters_message", "mailbox_id", "provider_key", unique=True, postgresql_where=text("kind = 'message'")),
        Index("uq_dead_letters_document", "message_id", unique=True, postgresql_where=text("kind = 'document'")),
        Index("uq_dead_letters_job", "queue", "job_id", unique=True, postgresql_where=text("kind = 'job'")),
        Index("ix_dead_letters_source_id", "source_id"),
        Index("ix_dead_letters_due", "next_try_at", postgresql_where=text("discarded_at IS NULL")),
        Index("ix_dead_letters_listed", text("last_failed_at DESC"), text("id DESC")),
        Index("ix_dead_letters_message_id", "message_id"),
    )
