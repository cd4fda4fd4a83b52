"""Sources and their mailboxes."""

from __future__ import annotations

from datetime import datetime
from uuid import UUID

from sqlalchemy import ForeignKey, Index, func, text
from sqlalchemy.orm import Mapped, mapped_column

from archiver.db.states import SourceStatus
from archiver.db.tables.base import Base, Count, CreatedAt, Id, JsonObject, one_of


class IngestionSourceTable(Base):
    __tablename__ = "ingestion_sources"

    id: Mapped[Id]
    kind: Mapped[str]
    name: Mapped[str]
    owner_id: Mapped[UUID | None] = mapped_column(ForeignKey("users.id", ondelete="SET NULL"), index=True)
    credentials: Mapped[bytes | None]
    """Sealed JSON (archiver.secrets), bound to the source's id."""
    settings: Mapped[JsonObject]
    status: Mapped[str] = mapped_column(server_default=SourceStatus.PENDING)
    status_message: Mapped[str | None]
    sync_state: Mapped[JsonObject]
    """State of the source as a whole, such as its last full listing; merged with `||` at the end of each cycle. Never the
    state of its mailboxes."""
    next_due_at: Mapped[datetime | None]
    failures: Mapped[Count]
    """Consecutive failed cycles; each one doubles the pause."""
    last_started_at: Mapped[datetime | None]
    last_finished_at: Mapped[datetime | None]
    created_at: Mapped[CreatedAt]
    updated_at: Mapped[CreatedAt]
    removed_at: Mapped[datetime | None]
    """A removed source whose mail stays also stays as a row, because its mailboxes do."""

    __table_args__ = (
        one_of("status", SourceStatus),
        Index("uq_ingestion_sources_name", func.lower(text("name")), unique=True, postgresql_where=text("removed_at IS NULL")),
        Index("ix_ingestion_sources_due", "next_due_at", postgresql_where=text("removed_at IS NULL")),
    )


class MailboxTable(Base):
    __tablename__ = "mailboxes"

    id: Mapped[Id]
    source_id: Mapped[UUID] = mapped_column(ForeignKey("ingestion_sources.id"))
    address: Mapped[str]
    display_name: Mapped[str | None]
    provider_id: Mapped[str | None]
    """The provider's own id of the mailbox, if it has one that survives a change of address."""
    sync_state: Mapped[JsonObject]
    """Where the next fetch begins. Changed only in the transaction that stores what it claims is stored."""
    next_due_at: Mapped[datetime | None]
    failures: Mapped[Count]
    status_message: Mapped[str | None]
    created_at: Mapped[CreatedAt]
    gone_at: Mapped[datetime | None]
    """When the source stopped listing it. Archived mail stays."""
    former_address: Mapped[str | None]
    """The address it had until another mailbox took it. `address` has been a placeholder since then."""
    replaces_id: Mapped[UUID | None]
    """The mailbox that had this address before, with another provider id."""

    __table_args__ = (
        Index("uq_mailboxes_source_id_address", "source_id", func.lower(text("address")), unique=True),
        Index("ix_mailboxes_address", func.lower(text("address"))),
    )
