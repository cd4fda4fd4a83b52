"""Legal holds, retention policies and the runs that carry them out, and erasure on request."""

from __future__ import annotations

from datetime import datetime
from typing import Any
from uuid import UUID

from sqlalchemy import DDL, CheckConstraint, ForeignKey, Index, Integer, event, func, text
from sqlalchemy.dialects.postgresql import ARRAY, JSONB
from sqlalchemy.dialects.postgresql import UUID as PG_UUID
from sqlalchemy.orm import Mapped, mapped_column

from archiver.db.states import AgeOrigin
from archiver.db.tables.base import Base, Count, CreatedAt, Id, Texts, one_of


class HoldTable(Base):
    """Mail that nothing may delete: mailboxes, mail of people, what a query finds, single messages (HoldMessageTable)."""

    __tablename__ = "holds"

    id: Mapped[Id]
    name: Mapped[str]
    reason: Mapped[str]
    mailbox_ids: Mapped[list[UUID]] = mapped_column(ARRAY(PG_UUID(as_uuid=True)), server_default=text("'{}'::uuid[]"))
    addresses: Mapped[Texts]
    """Of people, lowercase: mail from and to them, and mailboxes with these addresses."""
    query: Mapped[str | None]
    zone: Mapped[str] = mapped_column(server_default=text("'UTC'"))
    """The time zone of the days in the query."""
    created_by: Mapped[str]
    created_by_id: Mapped[UUID | None]
    created_at: Mapped[CreatedAt]
    evaluated_at: Mapped[datetime | None]
    """When the messages that the query finds were last added to HoldMessageTable."""
    release_requested_at: Mapped[datetime | None]
    release_requested_by: Mapped[str | None]
    release_requested_by_id: Mapped[UUID | None]
    release_reason: Mapped[str | None]
    released_at: Mapped[datetime | None]
    released_by: Mapped[str | None]

    __table_args__ = (
        Index("uq_holds_name", func.lower(text("name")), unique=True, postgresql_where=text("released_at IS NULL")),
    )


class HoldMessageTable(Base):
    """A single message on hold: selected, or found by the hold's query. What a query has found once stays on hold.

    No foreign key to messages: after a rebuild, the rows are there before the messages.
    """

    __tablename__ = "hold_messages"

    hold_id: Mapped[UUID] = mapped_column(ForeignKey("holds.id", ondelete="CASCADE"), primary_key=True)
    message_id: Mapped[UUID] = mapped_column(primary_key=True, index=True)
    is_selected: Mapped[bool] = mapped_column(server_default=text("false"))
    """Chosen by a person; the others were found by the query."""


class HoldNoticeTable(Base):
    """A notice to a person that a hold is about, by mail, which they acknowledge by a link."""

    __tablename__ = "hold_notices"

    id: Mapped[Id]
    hold_id: Mapped[UUID] = mapped_column(ForeignKey("holds.id", ondelete="CASCADE"))
    address: Mapped[str]
    requested_by: Mapped[str]
    requested_at: Mapped[datetime]
    token_sha256: Mapped[bytes | None]
    sent_at: Mapped[datetime | None]
    attempts: Mapped[int] = mapped_column(Integer, server_default=text("0"))
    error: Mapped[str | None]
    acknowledged_at: Mapped[datetime | None]
    text: Mapped[str]

    __table_args__ = (Index("uq_hold_notices_hold_id_address", "hold_id", "address", unique=True),)


class PolicyVersionTable(Base):
    """A retention policy, or a change of one. A version is never edited: it is simulated, approved or rejected, replaced."""

    __tablename__ = "policy_versions"

    id: Mapped[Id]
    policy_id: Mapped[UUID]
    number: Mapped[int] = mapped_column(Integer)
    name: Mapped[str]
    query: Mapped[str] = mapped_column(server_default=text("''"))
    """Which mail it applies to; all mail if it is empty."""
    zone: Mapped[str] = mapped_column(server_default=text("'UTC'"))
    counted_from: Mapped[str]
    from_year_end: Mapped[bool] = mapped_column(server_default=text("false"))
    """The period begins with the end of the calendar year."""
    keep_for: Mapped[str | None]
    """A period such as 10y, 18m, 90d: before its end, nothing deletes the mail."""
    delete_after: Mapped[str | None]
    """A period: after its end, the mail is deleted."""
    is_retired: Mapped[bool] = mapped_column(server_default=text("false"))
    """The policy no longer applies, once this version is approved."""
    reason: Mapped[str]
    created_by: Mapped[str]
    created_at: Mapped[CreatedAt]
    simulation: Mapped[dict[str, Any] | None] = mapped_column(JSONB)
    simulation_started_at: Mapped[datetime | None]
    simulated_at: Mapped[datetime | None]
    approved_by: Mapped[str | None]
    approved_at: Mapped[datetime | None]
    rejected_by: Mapped[str | None]
    rejected_at: Mapped[datetime | None]

    __table_args__ = (
        one_of("counted_from", AgeOrigin),
        CheckConstraint("num_nonnulls(approved_at, rejected_at) < 2", name="one_decision"),
        Index("uq_policy_versions_policy_id_number", "policy_id", "number", unique=True),
    )


class PolicyCheckTable(Base):
    """Whether a message in a mailbox matches the query of a policy, where its mail had to be read to know. A cache."""

    __tablename__ = "policy_checks"

    version_id: Mapped[UUID] = mapped_column(ForeignKey("policy_versions.id", ondelete="CASCADE"), primary_key=True)
    message_id: Mapped[UUID] = mapped_column(ForeignKey("messages.id", ondelete="CASCADE"), primary_key=True, index=True)
    mailbox_id: Mapped[UUID] = mapped_column(primary_key=True)
    index_version: Mapped[int]
    """Of the message: it rises when a copy is added, moved or labelled."""
    matches: Mapped[bool]


class RetentionRunTable(Base):
    """A run that deletes what the policies say. Its receipt is signed, and stays."""

    __tablename__ = "retention_runs"

    id: Mapped[Id]
    started_at: Mapped[CreatedAt]
    finished_at: Mapped[datetime | None]
    version_ids: Mapped[list[UUID]] = mapped_column(ARRAY(PG_UUID(as_uuid=True)))
    """The versions of the policies in force. If they change, the run ends and another one begins."""
    after_id: Mapped[UUID | None]
    """The copies up to here have been examined."""
    copies: Mapped[Count]
    messages: Mapped[Count]
    size_bytes: Mapped[Count]
    held: Mapped[Count]
    unclear: Mapped[Count]
    """Messages that could not be read, or not yet, to see whether a policy applies to them: they stay."""
    tombstone_ids: Mapped[list[UUID]] = mapped_column(ARRAY(PG_UUID(as_uuid=True)), server_default=text("'{}'::uuid[]"))
    error: Mapped[str | None]
    receipt: Mapped[str | None]
    """The exact text that is signed."""
    signature: Mapped[bytes | None]
    key: Mapped[str | None]

    __table_args__ = (
        Index("uq_retention_runs_open", text("(true)"), unique=True, postgresql_where=text("finished_at IS NULL")),
    )


class ErasureTable(Base):
    """A request to erase a person's mail. Once it is finished, it no longer says whom it was about."""

    __tablename__ = "erasures"

    id: Mapped[Id]
    name: Mapped[str]
    """The reference of the case: it stays, so it should not name the person."""
    reason: Mapped[str]
    addresses: Mapped[Texts]
    """Lowercase. These and the terms are removed with the mail."""
    terms: Mapped[Texts]
    created_by: Mapped[str]
    created_at: Mapped[CreatedAt]
    search_requested_at: Mapped[datetime | None]
    searched_at: Mapped[datetime | None]
    unread: Mapped[Count]
    """Messages that could not be read in the search, or not completely."""
    approved_by: Mapped[str | None]
    approved_at: Mapped[datetime | None]
    rejected_by: Mapped[str | None]
    rejected_at: Mapped[datetime | None]
    copies: Mapped[Count]
    messages: Mapped[Count]
    size_bytes: Mapped[Count]
    kept: Mapped[dict[str, Any]] = mapped_column(JSONB, server_default=text("'{}'::jsonb"))
    """How many copies stay, by what keeps them."""
    excluded: Mapped[dict[str, Any]] = mapped_column(JSONB, server_default=text("'{}'::jsonb"))
    """How many messages were excluded in the review, by reason."""
    exports: Mapped[list[Any]] = mapped_column(JSONB, server_default=text("'[]'::jsonb"))
    """Those that contained erased mail and were removed."""
    tombstone_ids: Mapped[list[UUID]] = mapped_column(ARRAY(PG_UUID(as_uuid=True)), server_default=text("'{}'::uuid[]"))
    deleted_at: Mapped[datetime | None]
    """The mail is unreadable from this moment; its bytes may still be in packs."""
    pack_ids: Mapped[list[UUID]] = mapped_column(ARRAY(PG_UUID(as_uuid=True)), server_default=text("'{}'::uuid[]"))
    """Packs that contained its bytes. They are replaced, and their files removed."""
    finished_at: Mapped[datetime | None]
    error: Mapped[str | None]
    """Why it can't go on at present."""
    receipt: Mapped[str | None]
    signature: Mapped[bytes | None]
    key: Mapped[str | None]

    __table_args__ = (CheckConstraint("num_nonnulls(approved_at, rejected_at) < 2", name="one_decision"),)


class ErasureMessageTable(Base):
    """A message that was found for a request, until the request is finished or rejected."""

    __tablename__ = "erasure_messages"

    erasure_id: Mapped[UUID] = mapped_column(ForeignKey("erasures.id", ondelete="CASCADE"), primary_key=True)
    message_id: Mapped[UUID] = mapped_column(primary_key=True)
    in_people: Mapped[bool]
    """Found as sender or recipient; otherwise in subject, text, attachments or names."""
    excluded_by: Mapped[str | None]
    excluded_reason: Mapped[str | None]


class ErasureObjectTable(Base):
    """Content without a message since an erasure: its frames have to leave the packs before the erasure is finished."""

    __tablename__ = "erasure_objects"

    erasure_id: Mapped[UUID] = mapped_column(ForeignKey("erasures.id", ondelete="CASCADE"), primary_key=True)
    sha256: Mapped[bytes] = mapped_column(primary_key=True)


# Every deletion of mail marks a copy as deleted (or removes its row), so every deletion passes this trigger. The lock makes it
# wait for a hold that is being placed, and lets a hold wait for the deletions before it. Where a hold has a query, the deletion
# must have compared the messages with it in the same transaction (archiver.retention.holds). A deletion that was carried out
# before, and is replayed from the packs, is not a new one. (Percent signs are doubled for DDL.)
HOLD_GUARD = """
CREATE FUNCTION holds_on(message uuid, mailbox uuid) RETURNS SETOF holds LANGUAGE plpgsql STABLE
    SET search_path = pg_catalog, public, pg_temp AS $$
BEGIN
    RETURN QUERY SELECT h.* FROM holds h WHERE h.released_at IS NULL AND (
        mailbox = ANY(h.mailbox_ids)
        OR EXISTS (SELECT 1 FROM hold_messages x WHERE x.hold_id = h.id AND x.message_id = message)
        OR (h.addresses <> '{}' AND (
            EXISTS (SELECT 1 FROM participants p WHERE p.message_id = message AND p.address = ANY(h.addresses))
            OR EXISTS (SELECT 1 FROM mailboxes b WHERE b.id = mailbox AND lower(b.address) = ANY(h.addresses)))));
END $$;
CREATE FUNCTION refuse_deletion_on_hold() RETURNS trigger LANGUAGE plpgsql
    SET search_path = pg_catalog, public, pg_temp AS $$
DECLARE names text;
BEGIN
    PERFORM pg_advisory_xact_lock_shared(hashtextextended('archiver:holds', 0));
    IF current_setting('archiver.replays_deletions', true) IS DISTINCT FROM 'yes'
            AND EXISTS (SELECT 1 FROM holds WHERE released_at IS NULL) THEN
        SELECT string_agg(name, ', ' ORDER BY name) INTO names FROM holds_on(OLD.message_id, OLD.mailbox_id);
        IF names IS NOT NULL THEN
            RAISE EXCEPTION 'message %% is on hold: %%', OLD.message_id, names USING ERRCODE = 'restrict_violation';
        END IF;
        IF current_setting('archiver.holds_checked', true) IS DISTINCT FROM 'yes'
                AND EXISTS (SELECT 1 FROM holds WHERE released_at IS NULL AND query IS NOT NULL) THEN
            RAISE EXCEPTION 'message %% was not compared with the queries of the holds', OLD.message_id
                USING ERRCODE = 'restrict_violation';
        END IF;
    END IF;
    IF TG_OP = 'DELETE' THEN
        RETURN OLD;
    END IF;
    RETURN NEW;
END $$;
CREATE TRIGGER refuse_marking_on_hold BEFORE UPDATE ON message_copies FOR EACH ROW
    WHEN (OLD.deleted_at IS NULL AND OLD.message_id IS NOT NULL
        AND (NEW.deleted_at IS NOT NULL OR NEW.message_id IS DISTINCT FROM OLD.message_id))
    EXECUTE FUNCTION refuse_deletion_on_hold();
CREATE TRIGGER refuse_removal_on_hold BEFORE DELETE ON message_copies FOR EACH ROW
    WHEN (OLD.deleted_at IS NULL AND OLD.message_id IS NOT NULL) EXECUTE FUNCTION refuse_deletion_on_hold();
"""
event.listen(Base.metadata, "after_create", DDL(HOLD_GUARD))  # type: ignore[no-untyped-call]
