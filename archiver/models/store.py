"""Where the bytes are: packs, and the objects in them; and what ties the database to the journal in them."""

from __future__ import annotations

from datetime import datetime
from uuid import UUID

from sqlalchemy import CheckConstraint, ForeignKey, Index, Sequence, SmallInteger, text
from sqlalchemy.orm import Mapped, mapped_column

from archiver.models.base import Base, Count, CreatedAt, Id, JsonList, one_of, sha256_length
from archiver.models.states import PackState


class Pack(Base):
    __tablename__ = "packs"

    id: Mapped[Id]
    name: Mapped[str] = mapped_column(unique=True)
    state: Mapped[str] = mapped_column(server_default=PackState.OPEN)
    size_bytes: Mapped[Count]
    """Up to here the file is known to be good; a torn tail is never cut below it."""
    frames: Mapped[Count]
    sha256: Mapped[bytes | None]
    """The digest in its seal."""
    created_at: Mapped[CreatedAt]
    sealed_at: Mapped[datetime | None]
    retired_at: Mapped[datetime | None]
    removed_at: Mapped[datetime | None]
    """When the file of a retired pack went."""
    verified_at: Mapped[datetime | None]

    __table_args__ = (one_of("state", PackState), Index("ix_packs_state", "state"))


class StoredObject(Base):
    """A piece of content by its hash: the frame that holds it."""

    __tablename__ = "objects"

    sha256: Mapped[bytes] = mapped_column(primary_key=True)
    kind: Mapped[str] = mapped_column(primary_key=True)
    pack_id: Mapped[UUID]
    """No foreign key, which would look for the same pack once for each row: whoever adds objects ends with
    batch_sql.record_pack, which fails where the pack is not there."""
    position: Mapped[int]
    """The frame's offset in the pack. (`offset` is a word of SQL.)"""
    stored_bytes: Mapped[int]
    raw_bytes: Mapped[int]

    __table_args__ = (
        sha256_length("sha256"),
        Index("ix_objects_pack_id_position", "pack_id", "position"),
        Index("ix_objects_dictionaries", "pack_id", "position", postgresql_where=text("kind = 'dictionary'")),
    )


class MessagePart(Base):
    """Which messages a part was cut out of; it goes with the last of them."""

    __tablename__ = "message_parts"

    message_id: Mapped[UUID] = mapped_column(ForeignKey("messages.id", ondelete="CASCADE"), primary_key=True)
    part_sha256: Mapped[bytes] = mapped_column(primary_key=True, index=True)

    __table_args__ = (sha256_length("part_sha256"),)


journal_numbers = Sequence("journal_numbers", metadata=Base.metadata)
"""Numbers the frames of the journal. A frame whose number it has not given out is from a database that was rolled back."""


class ArchiveState(Base):
    """One row: which archive this database belongs to, and how often it was brought back from the packs."""

    __tablename__ = "archive_state"

    id: Mapped[int] = mapped_column(SmallInteger, primary_key=True, server_default=text("1"))
    archive_id: Mapped[UUID] = mapped_column(server_default=text("gen_random_uuid()"))
    generation: Mapped[int] = mapped_column(server_default=text("1"))
    knows_deletions: Mapped[bool] = mapped_column(server_default=text("true"))
    """Whether `message_copies.deleted_sha256` is complete: older versions kept it in the packs only."""

    __table_args__ = (CheckConstraint("id = 1", name="one_row"),)


class Tombstone(Base):
    """A deletion. What was committed here is confirmed in the packs after that, by whoever comes first."""

    __tablename__ = "tombstones"

    id: Mapped[Id]
    at: Mapped[datetime]
    reason: Mapped[str]
    actor: Mapped[str]
    generation: Mapped[int]
    number: Mapped[int]
    """The stamp of its frames in the journal."""
    copies: Mapped[JsonList]
    """[mailbox, provider key, SHA-256 in hex] of each."""
    confirmed_at: Mapped[datetime | None]

    __table_args__ = (Index("ix_tombstones_unconfirmed", "id", postgresql_where=text("confirmed_at IS NULL")),)
