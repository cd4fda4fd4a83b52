"""Retention labels, and the messages that people have put them on."""

from __future__ import annotations

from datetime import datetime
from uuid import UUID

from sqlalchemy import DDL, ForeignKey, event, text
from sqlalchemy.orm import Mapped, mapped_column

from archiver.db.tables.base import Base, CreatedAt


class RetentionLabelTable(Base):
    """A label that people can put on messages, for policies to refer to (`retention:NAME`)."""

    __tablename__ = "retention_labels"

    name: Mapped[str] = mapped_column(primary_key=True)
    """Lowercase letters, digits and dashes."""
    title: Mapped[str]
    takes_date: Mapped[bool] = mapped_column(server_default=text("false"))
    """It is put on a message with a date, until which nothing deletes the message."""
    hides_from_auditors: Mapped[bool] = mapped_column(server_default=text("false"))
    is_locked: Mapped[bool] = mapped_column(server_default=text("false"))
    """Once on a message, it stays; a date can only be moved to a later one."""
    created_by: Mapped[str]
    created_at: Mapped[CreatedAt]
    retired_at: Mapped[datetime | None]
    """It can't be put on further messages."""


class MessageLabelTable(Base):
    """A label on a message.

    No foreign key to messages: after a rebuild, the rows are there before the messages.
    """

    __tablename__ = "message_labels"

    message_id: Mapped[UUID] = mapped_column(primary_key=True)
    label: Mapped[str] = mapped_column(ForeignKey("retention_labels.name"), primary_key=True, index=True)
    keep_until: Mapped[datetime | None]
    reason: Mapped[str] = mapped_column(server_default=text("''"))
    set_by: Mapped[str]
    set_by_id: Mapped[UUID | None]
    set_at: Mapped[datetime]


BUILT_IN = """
INSERT INTO retention_labels (name, title, takes_date, created_by) VALUES
    ('keep-until', 'Keep until', true, 'archiver'), ('personal', 'Personal', false, 'archiver') ON CONFLICT DO NOTHING
"""
event.listen(Base.metadata, "after_create", DDL(BUILT_IN))  # type: ignore[no-untyped-call]
