"""The completeness ledger: what a source said it has, as far as it is not explained by a copy or a dead letter."""

from __future__ import annotations

from uuid import UUID

from sqlalchemy import DDL, ForeignKey, Index, event, text
from sqlalchemy.orm import Mapped, mapped_column

from archiver.models.base import Base, Count, CreatedAt


class FolderListing(Base):
    """The last time that a folder was listed in full."""

    __tablename__ = "folder_listings"

    mailbox_id: Mapped[UUID] = mapped_column(ForeignKey("mailboxes.id", ondelete="CASCADE"), primary_key=True)
    folder: Mapped[str] = mapped_column(primary_key=True)
    listed: Mapped[Count]
    """How many keys the source named."""
    listed_at: Mapped[CreatedAt]


class UnaccountedKey(Base):
    """Named in the last full listing and not archived, skipped or dead when it was written. What stays is the gap."""

    __tablename__ = "unaccounted_keys"

    mailbox_id: Mapped[UUID] = mapped_column(ForeignKey("mailboxes.id", ondelete="CASCADE"), primary_key=True)
    provider_key: Mapped[str] = mapped_column(primary_key=True)
    folder: Mapped[str]

    __table_args__ = (Index("ix_unaccounted_keys_folder", "mailbox_id", "folder", postgresql_where=text("folder IS NOT NULL")),)


class SkippedMessage(Base):
    """Left out by a rule of the source's settings, and which."""

    __tablename__ = "skipped_messages"

    mailbox_id: Mapped[UUID] = mapped_column(ForeignKey("mailboxes.id", ondelete="CASCADE"), primary_key=True)
    provider_key: Mapped[str] = mapped_column(primary_key=True)
    folder: Mapped[str]
    rule: Mapped[str]
    skipped_at: Mapped[CreatedAt]


# The only temporary table that the program uses, created for it by the owner of the tables: its own role may create none.
# (Per cent signs are doubled for DDL.)
LISTED_KEYS = """
CREATE FUNCTION create_listed_keys() RETURNS void LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
BEGIN
    CREATE TEMPORARY TABLE listed_keys (key text NOT NULL) ON COMMIT DROP;
    EXECUTE format('GRANT SELECT, INSERT ON pg_temp.listed_keys TO %%I', session_user);
END $$;
CREATE FUNCTION analyze_listed_keys() RETURNS void LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
BEGIN
    ANALYZE pg_temp.listed_keys;
END $$;
"""
event.listen(UnaccountedKey.__table__, "after_create", DDL(LISTED_KEYS))  # type: ignore[no-untyped-call]
