"""Restores: what was requested, and what became of each copy."""

from __future__ import annotations

from datetime import datetime
from uuid import UUID

from sqlalchemy import CheckConstraint, ForeignKey, Index, text
from sqlalchemy.orm import Mapped, mapped_column

from archiver.db.states import RestoreOutcome, RestoreState
from archiver.db.tables.base import Base, Count, CreatedAt, Id, JsonObject, Texts, one_of

_OUTCOMES = ", ".join(f"'{one}'" for one in RestoreOutcome)


class RestoreTable(Base):
    __tablename__ = "restores"

    id: Mapped[Id]
    user_id: Mapped[UUID | None] = mapped_column(ForeignKey("users.id", ondelete="CASCADE"), index=True)
    """None for the local operator."""
    requested_by: Mapped[str]
    selection: Mapped[JsonObject]
    destination: Mapped[JsonObject]
    destination_name: Mapped[str]
    """As the page and the audit log show it."""
    credentials: Mapped[bytes | None]
    """The password of an IMAP account, sealed (archiver.secrets) for this id; removed when the restore is done."""
    run_id: Mapped[UUID]
    """The workflow's run: of the dry run, then of the restore itself."""
    state: Mapped[str] = mapped_column(server_default=RestoreState.CHECKING)
    messages: Mapped[Count]
    bytes: Mapped[Count]
    restored: Mapped[Count]
    present: Mapped[Count]
    absent: Mapped[Count]
    refused: Mapped[Count]
    error: Mapped[str | None]
    created_at: Mapped[CreatedAt]
    started_at: Mapped[datetime | None]
    finished_at: Mapped[datetime | None]

    __table_args__ = (
        one_of("state", RestoreState),
        Index("ix_restores_open", "run_id", postgresql_where=text("state IN ('checking', 'restoring')")),
    )


class RestoreMessageTable(Base):
    """The frozen selection, one row for each copy. Without foreign keys to messages: a deleted one is reported."""

    __tablename__ = "restore_messages"

    restore_id: Mapped[UUID] = mapped_column(ForeignKey("restores.id", ondelete="CASCADE"), primary_key=True)
    number: Mapped[int] = mapped_column(primary_key=True, autoincrement=False)
    account_id: Mapped[UUID]
    """The mailbox it goes to; for an IMAP account, the id of the restore."""
    message_id: Mapped[UUID]
    size_bytes: Mapped[int]
    folder: Mapped[str]
    flags: Mapped[Texts]
    labels: Mapped[Texts]
    received_at: Mapped[datetime | None]
    outcome: Mapped[str | None]
    reason: Mapped[str | None]

    __table_args__ = (
        CheckConstraint(f"outcome IN ({_OUTCOMES})", name="outcome"),
        Index("ix_restore_messages_account", "restore_id", "account_id", "number"),
    )
