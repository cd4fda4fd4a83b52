"""Users, grants, login sessions, API keys, uploads, exports and the audit log."""

from __future__ import annotations

from datetime import datetime
from typing import Any
from uuid import UUID

from sqlalchemy import DDL, BigInteger, CheckConstraint, ForeignKey, Identity, Index, event, func, text
from sqlalchemy.dialects.postgresql import JSONB
from sqlalchemy.orm import Mapped, mapped_column

from archiver.db.states import ExportState, UploadState, UserRole
from archiver.db.tables.base import Base, Count, CreatedAt, Id, JsonList, JsonObject, Texts, one_of


class UserTable(Base):
    __tablename__ = "users"

    id: Mapped[Id]
    email: Mapped[str]
    address_verified_at: Mapped[datetime | None]
    """When an authority confirmed that the address belongs to this user: only then do its mailboxes."""
    name: Mapped[str | None]
    password_hash: Mapped[str | None]
    role: Mapped[str] = mapped_column(server_default=UserRole.USER)
    may_read_all: Mapped[bool] = mapped_column(server_default=text("false"))
    totp_secret: Mapped[bytes | None]
    """Sealed (archiver.secrets) for the user's id. Required at sign-in once it has been confirmed with a code."""
    totp_confirmed_at: Mapped[datetime | None]
    totp_last_step: Mapped[int | None]
    """The 30-second step of the last code used: no code is accepted twice."""
    recovery_code_hashes: Mapped[Texts]
    oidc_subject: Mapped[str | None] = mapped_column(unique=True)
    settings: Mapped[JsonObject]
    created_at: Mapped[CreatedAt]
    last_sign_in_at: Mapped[datetime | None]
    disabled_at: Mapped[datetime | None]

    __table_args__ = (one_of("role", UserRole), Index("uq_users_email", func.lower(text("email")), unique=True))


class GrantTable(Base):
    """Lets a user see one mailbox, all mailboxes whose address matches a pattern, or all of a source."""

    __tablename__ = "grants"

    id: Mapped[Id]
    user_id: Mapped[UUID] = mapped_column(ForeignKey("users.id", ondelete="CASCADE"), index=True)
    mailbox_id: Mapped[UUID | None] = mapped_column(ForeignKey("mailboxes.id", ondelete="CASCADE"), index=True)
    address_pattern: Mapped[str | None]
    source_id: Mapped[UUID | None] = mapped_column(ForeignKey("ingestion_sources.id", ondelete="CASCADE"), index=True)
    may_ingest: Mapped[bool] = mapped_column(server_default=text("false"))
    """The user may also submit messages, not only read."""
    granted_by: Mapped[UUID | None] = mapped_column(ForeignKey("users.id", ondelete="SET NULL"))
    created_at: Mapped[CreatedAt]

    __table_args__ = (
        CheckConstraint("num_nonnulls(mailbox_id, address_pattern, source_id) = 1", name="one_target"),
        Index(
            "uq_grants_target",
            "user_id",
            "mailbox_id",
            "address_pattern",
            "source_id",
            unique=True,
            postgresql_nulls_not_distinct=True,
        ),
    )


class LoginSessionTable(Base):
    """A signed-in browser. (A running sync cycle is a SyncSession.)"""

    __tablename__ = "sessions"

    id: Mapped[Id]
    token_hash: Mapped[bytes] = mapped_column(unique=True)
    user_id: Mapped[UUID] = mapped_column(ForeignKey("users.id", ondelete="CASCADE"), index=True)
    created_at: Mapped[CreatedAt]
    last_seen_at: Mapped[CreatedAt]
    expires_at: Mapped[datetime] = mapped_column(index=True)
    client_address: Mapped[str | None]
    user_agent: Mapped[str | None]


class ApiKeyTable(Base):
    __tablename__ = "api_keys"

    id: Mapped[Id]
    user_id: Mapped[UUID] = mapped_column(ForeignKey("users.id", ondelete="CASCADE"), index=True)
    name: Mapped[str]
    prefix: Mapped[str] = mapped_column(unique=True)
    key_hash: Mapped[bytes]
    scopes: Mapped[Texts]
    created_at: Mapped[CreatedAt]
    expires_at: Mapped[datetime | None]
    last_used_at: Mapped[datetime | None]
    revoked_at: Mapped[datetime | None]


class SignInPauseTable(Base):
    """Failed sign-ins by account and by client address, and when the next attempt is allowed."""

    __tablename__ = "sign_in_pauses"

    key: Mapped[str] = mapped_column(primary_key=True)
    failures: Mapped[Count]
    blocked_until: Mapped[CreatedAt]
    last_failed_at: Mapped[CreatedAt] = mapped_column(index=True)


class UploadTable(Base):
    """A resumable upload; its bytes are stored in ARCHIVER_DATA/uploads under its id."""

    __tablename__ = "uploads"

    id: Mapped[Id]
    user_id: Mapped[UUID | None] = mapped_column(ForeignKey("users.id", ondelete="SET NULL"), index=True)
    name: Mapped[str]
    size_bytes: Mapped[int]
    sha256: Mapped[bytes | None]
    """Announced by the client; compared at the end."""
    state: Mapped[str] = mapped_column(server_default=UploadState.RECEIVING)
    import_id: Mapped[UUID | None] = mapped_column(ForeignKey("imports.id", ondelete="SET NULL"), index=True)
    """The most recent import that reads it; the file is stored until that import succeeds."""
    created_at: Mapped[CreatedAt]
    updated_at: Mapped[CreatedAt]

    __table_args__ = (one_of("state", UploadState), CheckConstraint("size_bytes >= 0", name="size_bytes"))


class ExportTable(Base):
    """A requested file of messages, stored in ARCHIVER_DATA/exports under its id until it expires."""

    __tablename__ = "exports"

    id: Mapped[Id]
    user_id: Mapped[UUID | None] = mapped_column(ForeignKey("users.id", ondelete="CASCADE"), index=True)
    """None for the local operator. The id is also that of the workflow's run."""
    selection: Mapped[JsonObject]
    format: Mapped[str]
    state: Mapped[str] = mapped_column(server_default=ExportState.QUEUED)
    messages: Mapped[Count]
    bytes: Mapped[Count]
    failed: Mapped[Count]
    error: Mapped[str | None]
    created_at: Mapped[CreatedAt]
    finished_at: Mapped[datetime | None]
    expires_at: Mapped[datetime | None]
    scope: Mapped[dict[str, Any] | None] = mapped_column(JSONB)
    """The mailboxes that its owner could read when it was written (`mailboxes`; null for all)."""
    files: Mapped[JsonList]
    """Its volumes, once it is done: name and bytes."""

    __table_args__ = (
        one_of("state", ExportState),
        Index("ix_exports_open", "id", postgresql_where=text("state IN ('queued', 'running')")),
    )


class ExportMessageTable(Base):
    """The frozen selection of an export that is being written. Without foreign keys to messages: one that is deleted meanwhile
    is named in the manifest as missing."""

    __tablename__ = "export_messages"

    export_id: Mapped[UUID] = mapped_column(ForeignKey("exports.id", ondelete="CASCADE"), primary_key=True)
    message_id: Mapped[UUID] = mapped_column(primary_key=True)
    number: Mapped[int | None]
    """Its place in the export, once all are there."""
    size_bytes: Mapped[int]
    mailbox_id: Mapped[UUID]
    folder: Mapped[str]
    sort_at: Mapped[datetime]

    __table_args__ = (Index("ix_export_messages_number", "export_id", "number"),)


class SigningKeyTable(Base):
    """The archive's signing keys; the newest one signs (archiver.evidence.signing)."""

    __tablename__ = "signing_keys"

    id: Mapped[Id]
    public_key: Mapped[bytes]
    private_key: Mapped[bytes]
    """Sealed (archiver.secrets) for its id."""
    created_at: Mapped[CreatedAt]


class AuditLogTable(Base):
    """Append-only and chained: `hash` covers the entry and `previous_hash`. No foreign keys: it outlives what it records.

    The database itself numbers, dates and chains the entries (AUDIT_CHAIN), and refuses to update or delete them.
    """

    __tablename__ = "audit_log"

    id: Mapped[int] = mapped_column(BigInteger, Identity(always=True), primary_key=True)
    at: Mapped[CreatedAt]
    actor: Mapped[str]
    actor_id: Mapped[UUID | None]
    action: Mapped[str]
    object_kind: Mapped[str | None]
    object_id: Mapped[str | None]
    detail: Mapped[JsonObject]
    client_address: Mapped[str | None]
    request_id: Mapped[str | None]
    previous_hash: Mapped[bytes]
    hash: Mapped[bytes]

    __table_args__ = (
        Index("ix_audit_log_at", text("at DESC"), text("id DESC")),
        Index("ix_audit_log_actor_id", "actor_id"),
        Index("ix_audit_log_object", "object_kind", "object_id"),
    )


# One writer at a time, until its transaction ends: so the chain has a single order, and numbers without gaps.
# Runs as the owner of the function with a fixed search path, so that the caller's own tables and functions can't replace ours.
# (Percent signs are doubled for DDL.)
AUDIT_CHAIN = """
CREATE FUNCTION audit_log_chain() RETURNS trigger LANGUAGE plpgsql SECURITY DEFINER
    SET search_path = pg_catalog, pg_temp AS $$
DECLARE last record;
BEGIN
    PERFORM pg_advisory_xact_lock(hashtextextended('archiver:audit_log', 0));
    EXECUTE format('SELECT id, hash FROM %%I.audit_log ORDER BY id DESC LIMIT 1', TG_TABLE_SCHEMA) INTO last;
    NEW.id := coalesce(last.id, 0) + 1;
    NEW.at := clock_timestamp();
    NEW.previous_hash := coalesce(last.hash, '\\x'::bytea);
    NEW.hash := sha256(NEW.previous_hash || convert_to(jsonb_build_array(NEW.id,
        floor(extract(epoch FROM NEW.at) * 1000000)::bigint, NEW.actor, NEW.actor_id, NEW.action, NEW.object_kind,
        NEW.object_id, NEW.detail, NEW.client_address, NEW.request_id)::text, 'UTF8'));
    RETURN NEW;
END $$;
CREATE TRIGGER audit_log_chain BEFORE INSERT ON audit_log FOR EACH ROW EXECUTE FUNCTION audit_log_chain();
REVOKE ALL ON FUNCTION audit_log_chain() FROM PUBLIC;
CREATE FUNCTION audit_log_refuse() RETURNS trigger LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $$
BEGIN
    RAISE EXCEPTION 'audit_log is append-only' USING ERRCODE = 'insufficient_privilege';
END $$;
CREATE TRIGGER audit_log_append_only BEFORE UPDATE OR DELETE OR TRUNCATE ON audit_log
    FOR EACH STATEMENT EXECUTE FUNCTION audit_log_refuse();
"""
event.listen(AuditLogTable.__table__, "after_create", DDL(AUDIT_CHAIN))  # type: ignore[no-untyped-call]
