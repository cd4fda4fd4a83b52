"""What Postgres knows about the search server's indexes, and the keys that link messages to threads."""

from __future__ import annotations

from datetime import datetime
from uuid import UUID

from sqlalchemy import CheckConstraint, ForeignKey, Integer, SmallInteger, text
from sqlalchemy.orm import Mapped, mapped_column

from archiver.db.states import SearchIndexState
from archiver.db.tables.base import Base, Count, CreatedAt, Id, one_of


class SearchIndexTable(Base):
    """An index that documents are written to: the live one, and the one that a reindex is filling."""

    __tablename__ = "search_indexes"

    id: Mapped[Id]
    uid: Mapped[str] = mapped_column(unique=True)
    """Its name on the search server."""
    state: Mapped[str] = mapped_column(unique=True)
    generation: Mapped[str]
    """The generation of the document builder and the index settings."""
    engine_created_at: Mapped[str]
    """As reported by the server: identifies the index whatever its name, even after a swap."""
    engine_updated_at: Mapped[str | None]
    """The latest value seen: an index that reports an earlier one was rolled back to an older state."""
    engine_version: Mapped[str | None]
    """Of the server that filled it: another version may split words differently, so the index is filled again."""
    cursor_pack_id: Mapped[UUID | None]
    cursor_position: Mapped[int | None]
    """The progress of a reindex, in pack order."""
    done: Mapped[Count]
    total: Mapped[Count]
    is_filled: Mapped[bool] = mapped_column(server_default="false")
    """The reindex only has to be swapped with the live index."""
    compared_at: Mapped[datetime | None]
    """When every id and version was last compared with Postgres."""
    created_at: Mapped[CreatedAt]

    __table_args__ = (one_of("state", SearchIndexState),)


class ThreadLinkTable(Base):
    """A Message-ID that messages carry (their own, or one they reply to), and the thread that it belongs to.

    This is the truth; `messages.thread_id` follows it.
    """

    __tablename__ = "thread_links"

    key: Mapped[UUID] = mapped_column(primary_key=True)
    """The first half of the SHA-256 of the Message-ID."""
    thread_id: Mapped[UUID] = mapped_column(index=True)


class ThreadSplitTable(Base):
    """A person's decision: from this message on, it is a conversation of its own."""

    __tablename__ = "thread_splits"

    id: Mapped[Id]
    message_id: Mapped[UUID]
    """No foreign key: after a rebuild, the row is there before the message."""
    created_by: Mapped[str]
    created_by_id: Mapped[UUID | None]
    created_at: Mapped[CreatedAt]
    undone_at: Mapped[datetime | None]
    undone_by: Mapped[str | None]


class ThreadSplitMemberTable(Base):
    """A message of the part that was split off: the key of its Message-ID in `thread_links`."""

    __tablename__ = "thread_split_members"

    key: Mapped[UUID] = mapped_column(primary_key=True)
    split_id: Mapped[UUID] = mapped_column(ForeignKey("thread_splits.id", ondelete="CASCADE"), primary_key=True, index=True)


class ThreadRulesTable(Base):
    """One row: the rules that all threads follow, and how far the job `rethread` has come with newer ones."""

    __tablename__ = "thread_rules"

    id: Mapped[int] = mapped_column(SmallInteger, primary_key=True, server_default=text("1"))
    version: Mapped[int] = mapped_column(Integer)
    stage: Mapped[str] = mapped_column(server_default=text("'subjects'"))
    cursor: Mapped[UUID | None]

    __table_args__ = (CheckConstraint("id = 1", name="one_row"),)
