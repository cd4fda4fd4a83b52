"""Where the bytes are: packs and the objects in them; and what ties the database to the journal in the packs."""

from __future__ import annotations

from datetime import datetime
from uuid import UUID

from sqlalchemy import CheckConstraint, ForeignKey, Index, Sequence, SmallInteger, text
from sqlalchemy.orm import Mapped, mapped_column

from archiver.db.states import PackState
from archiver.db.tables.base import Base, Count, CreatedAt, Id, JsonList, one_of, sha256_length


class PackTable(Base):
    __tablename__ = "packs"

    id: Mapped[Id]
    name: Mapped[str] = mapped_column(unique=True)
    state: Mapped[str] = mapped_column(server_default=PackState.OPEN)
    size_bytes: Mapped[Count]
    """Up to here the file is known to be valid; a torn tail is never truncated below it."""
    frames: Mapped[Count]
    sha256: Mapped[bytes | None]
    """The digest in the pack's seal."""
    created_at: Mapped[CreatedAt]
    sealed_at: Mapped[datetime | None]
    retired_at: Mapped[datetime | None]
    removed_at: Mapped[datetime | None]
    """When the file of a retired pack was removed."""
    verified_at: Mapped[datetime | None]
    locked_until: Mapped[datetime | None]
    """In a bucket with Object Lock."""
    lock_checked_at: Mapped[datetime | None]

    __table_args__ = (one_of("state", PackState), Index("ix_packs_state", "state"))


class ObjectTable(Base):
    """Content by its hash: the frame that holds it."""

    __tablename__ = "objects"

    sha256: Mapped[bytes] = mapped_column(primary_key=True)
    kind: Mapped[str] = mapped_column(primary_key=True)
    pack_id: Mapped[UUID]
    """No foreign key, which would look up the same pack once per row: every transaction that adds objects ends with
    `statements.record_pack`, which fails if the pack does not exist."""
    position: Mapped[int]
    """The frame's offset in the pack. (`offset` is an SQL keyword.)"""
    stored_bytes: Mapped[int]
    raw_bytes: Mapped[int]

    __table_args__ = (
        sha256_length("sha256"),
        Index("ix_objects_pack_id_position", "pack_id", "position"),
        Index("ix_objects_dictionaries", "pack_id", "position", postgresql_where=text("kind = 'dictionary'")),
    )


class MessagePartTable(Base):
    """The messages that a part was cut out of; the part is deleted with the last of them."""

    __tablename__ = "message_parts"

    message_id: Mapped[UUID] = mapped_column(ForeignKey("messages.id", ondelete="CASCADE"), primary_key=True)
    part_sha256: Mapped[bytes] = mapped_column(primary_key=True, index=True)

    __table_args__ = (sha256_length("part_sha256"),)


journal_numbers = Sequence("journal_numbers", metadata=Base.metadata)
"""Numbers the frames of the journal. A frame with a number it has not issued is from a database that was rolled back."""


class ArchiveStateTable(Base):
    """A single row: which archive this database belongs to, and how often it was rebuilt from the packs."""

    __tablename__ = "archive_state"

    id: Mapped[int] = mapped_column(SmallInteger, primary_key=True, server_default=text("1"))
    archive_id: Mapped[UUID] = mapped_column(server_default=text("gen_random_uuid()"))
    generation: Mapped[int] = mapped_column(server_default=text("1"))
    knows_deletions: Mapped[bool] = mapped_column(server_default=text("true"))
    """Whether `message_copies.deleted_sha256` is complete: older releases stored it only in the packs."""

    __table_args__ = (CheckConstraint("id = 1", name="one_row"),)


class TombstoneTable(Base):
    """A deletion. After its commit here, the next process that can do so confirms it in the packs."""

    __tablename__ = "tombstones"

    id: Mapped[Id]
    at: Mapped[datetime]
    reason: Mapped[str]
    actor: Mapped[str]
    generation: Mapped[int]
    number: Mapped[int]
    """The stamp of its frames in the journal."""
    copies: Mapped[JsonList]
    """[mailbox, provider key, SHA-256 in hex] of each copy."""
    confirmed_at: Mapped[datetime | None]

    __table_args__ = (Index("ix_tombstones_unconfirmed", "id", postgresql_where=text("confirmed_at IS NULL")),)
