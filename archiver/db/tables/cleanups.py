"""Clean-ups at the source, and the log of each message."""

from __future__ import annotations

from datetime import datetime
from uuid import UUID

from sqlalchemy import CheckConstraint, ForeignKey, Index, text
from sqlalchemy.orm import Mapped, mapped_column

from archiver.db.states import CleanupOutcome, CleanupState
from archiver.db.tables.base import Base, Count, CreatedAt, Id, one_of

_OUTCOMES = ", ".join(f"'{one}'" for one in CleanupOutcome)


class CleanupTable(Base):
    __tablename__ = "cleanups"

    id: Mapped[Id]
    source_id: Mapped[UUID] = mapped_column(ForeignKey("ingestion_sources.id"), index=True)
    user_id: Mapped[UUID | None]
    """Without a foreign key: the log outlives the person. None for the local operator."""
    requested_by: Mapped[str]
    after_days: Mapped[int]
    needs_backup: Mapped[bool]
    run_id: Mapped[UUID]
    """The workflow's run: of the dry run, then of the deletion."""
    state: Mapped[str] = mapped_column(server_default=CleanupState.CHECKING)
    messages: Mapped[Count]
    bytes: Mapped[Count]
    ready: Mapped[Count]
    deleted: Mapped[Count]
    gone: Mapped[Count]
    kept: Mapped[Count]
    error: Mapped[str | None]
    created_at: Mapped[CreatedAt]
    started_at: Mapped[datetime | None]
    finished_at: Mapped[datetime | None]

    __table_args__ = (one_of("state", CleanupState),)


class CleanupMessageTable(Base):
    """One line for each message that was old enough. Without foreign keys: it outlives the message."""

    __tablename__ = "cleanup_messages"

    cleanup_id: Mapped[UUID] = mapped_column(ForeignKey("cleanups.id", ondelete="CASCADE"), primary_key=True)
    number: Mapped[int] = mapped_column(primary_key=True, autoincrement=False)
    mailbox_id: Mapped[UUID]
    message_id: Mapped[UUID]
    provider_key: Mapped[str]
    folder: Mapped[str]
    outcome: Mapped[str | None]
    reason: Mapped[str | None]
    at: Mapped[datetime | None]

    __table_args__ = (
        CheckConstraint(f"outcome IN ({_OUTCOMES})", name="outcome"),
        Index(
            "ix_cleanup_messages_ready",
            "cleanup_id",
            "mailbox_id",
            "number",
            postgresql_where=text("outcome IN ('ready', 'deleting')"),
        ),
    )
