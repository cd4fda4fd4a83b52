"""What the search server holds, as Postgres knows it, and by which keys messages find their threads."""

from __future__ import annotations

from datetime import datetime
from uuid import UUID

from sqlalchemy.orm import Mapped, mapped_column

from archiver.models.base import Base, Count, CreatedAt, Id, one_of
from archiver.models.states import SearchIndexState


class SearchIndex(Base):
    """An index that documents are written to: the live one, and the one beside it while a reindex fills it."""

    __tablename__ = "search_indexes"

    id: Mapped[Id]
    uid: Mapped[str] = mapped_column(unique=True)
    """What the search server calls it."""
    state: Mapped[str] = mapped_column(unique=True)
    generation: Mapped[str]
    """Of the document builder and the settings that fill it."""
    engine_created_at: Mapped[str]
    """As the server tells it: says which index it is, whatever it is called, also after a swap."""
    engine_updated_at: Mapped[str | None]
    """The latest that was seen: an index that tells an earlier one has been put back to an older state."""
    cursor_pack_id: Mapped[UUID | None]
    cursor_position: Mapped[int | None]
    """How far a reindex has come, in pack order."""
    done: Mapped[Count]
    total: Mapped[Count]
    is_filled: Mapped[bool] = mapped_column(server_default="false")
    """All that is left of the reindex is to change places with the live one."""
    compared_at: Mapped[datetime | None]
    """When each id and version was last compared with Postgres."""
    created_at: Mapped[CreatedAt]

    __table_args__ = (one_of("state", SearchIndexState),)


class ThreadLink(Base):
    """An id that messages carry (their own, or one that they answer to), and the thread that it belongs to.

    This is the truth; `messages.thread_id` follows it.
    """

    __tablename__ = "thread_links"

    key: Mapped[UUID] = mapped_column(primary_key=True)
    """The first half of the SHA-256 of the Message-ID."""
    thread_id: Mapped[UUID] = mapped_column(index=True)
