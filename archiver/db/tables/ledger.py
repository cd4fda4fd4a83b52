"""The completeness ledger: what a source listed that no copy or dead letter accounts for."""

from __future__ import annotations

from uuid import UUID

from sqlalchemy import DDL, ForeignKey, Index, event, text
from sqlalchemy.orm import Mapped, mapped_column

from archiver.db.tables.base import Base, Count, CreatedAt


class FolderListingTable(Base):
    """The last full listing of a folder."""

    __tablename__ = "folder_listings"

    mailbox_id: Mapped[UUID] = mapped_column(ForeignKey("mailboxes.id", ondelete="CASCADE"), primary_key=True)
    folder: Mapped[str] = mapped_column(primary_key=True)
    listed: Mapped[Count]
    """The number of keys in the listing."""
    listed_at: Mapped[CreatedAt]


class UnaccountedKeyTable(Base):
    """Keys of the last full listing that were not archived, skipped or dead when it was written. What remains is the gap."""

    __tablename__ = "unaccounted_keys"

    mailbox_id: Mapped[UUID] = mapped_column(ForeignKey("mailboxes.id", ondelete="CASCADE"), primary_key=True)
    provider_key: Mapped[str] = mapped_column(primary_key=True)
    folder: Mapped[str]

    __table_args__ = (Index("ix_unaccounted_keys_folder", "mailbox_id", "folder", postgresql_where=text("folder IS NOT NULL")),)


class SkippedMessageTable(Base):
    """Skipped by a rule of the source's settings, with the rule."""

    __tablename__ = "skipped_messages"

    mailbox_id: Mapped[UUID] = mapped_column(ForeignKey("mailboxes.id", ondelete="CASCADE"), primary_key=True)
    provider_key: Mapped[str] = mapped_column(primary_key=True)
    folder: Mapped[str]
    rule: Mapped[str]
    skipped_at: Mapped[CreatedAt]


# The program's only temporary table, created by a function of the tables' owner, because the program's role may create none.
# (Percent signs are doubled for DDL.)
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
event.listen(UnaccountedKeyTable.__table__, "after_create", DDL(LISTED_KEYS))  # type: ignore[no-untyped-call]
