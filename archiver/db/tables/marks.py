"""What people add to mail: tags, notes, and the changes that they made to many messages at once."""

from __future__ import annotations

from datetime import datetime
from uuid import UUID

from sqlalchemy import ForeignKey, Index, false, func
from sqlalchemy import text as sql_text
from sqlalchemy.orm import Mapped, mapped_column

from archiver.db.tables.base import Base, Count, CreatedAt, Id


class TagTable(Base):
    """Of one user, or shared by all who can read the message that it is on."""

    __tablename__ = "tags"

    id: Mapped[Id]
    name: Mapped[str]
    owner_id: Mapped[UUID | None] = mapped_column(ForeignKey("users.id", ondelete="CASCADE"), index=True)
    """None: shared."""
    created_by: Mapped[str]
    created_by_id: Mapped[UUID | None]
    created_at: Mapped[CreatedAt]

    __table_args__ = (
        Index("uq_tags_name", func.lower(sql_text("name")), "owner_id", unique=True, postgresql_nulls_not_distinct=True),
    )


class MessageTagTable(Base):
    """No foreign key to messages: after a rebuild, the rows are there before the messages."""

    __tablename__ = "message_tags"

    tag_id: Mapped[UUID] = mapped_column(ForeignKey("tags.id", ondelete="CASCADE"), primary_key=True)
    message_id: Mapped[UUID] = mapped_column(primary_key=True, index=True)


class NoteTable(Base):
    __tablename__ = "notes"

    id: Mapped[Id]
    message_id: Mapped[UUID] = mapped_column(index=True)
    owner_id: Mapped[UUID | None] = mapped_column(ForeignKey("users.id", ondelete="SET NULL"), index=True)
    author: Mapped[str]
    text: Mapped[str]
    is_shared: Mapped[bool] = mapped_column(server_default=false())
    created_at: Mapped[CreatedAt]
    updated_at: Mapped[datetime | None]


class MailChangeTable(Base):
    """One change of several messages by one user: how far it is, and what it takes to undo it."""

    __tablename__ = "mail_changes"

    id: Mapped[Id]
    owner_id: Mapped[UUID] = mapped_column(ForeignKey("users.id", ondelete="CASCADE"), index=True)
    action: Mapped[str]
    subject: Mapped[str]
    """The tag, or the reason."""
    tag_id: Mapped[UUID | None]
    chosen: Mapped[Count]
    changed: Mapped[Count]
    refused: Mapped[Count]
    """Messages that a hold or a policy keeps."""
    error: Mapped[str | None]
    created_at: Mapped[CreatedAt]
    finished_at: Mapped[datetime | None]
    undone_at: Mapped[datetime | None]


class MailChangeItemTable(Base):
    """The messages of a change, until it can no longer be undone."""

    __tablename__ = "mail_change_items"

    change_id: Mapped[UUID] = mapped_column(ForeignKey("mail_changes.id", ondelete="CASCADE"), primary_key=True)
    message_id: Mapped[UUID] = mapped_column(primary_key=True)
    is_done: Mapped[bool] = mapped_column(server_default=false())
    is_changed: Mapped[bool] = mapped_column(server_default=false())
    """Whether anything was changed: it had not been like that before."""
