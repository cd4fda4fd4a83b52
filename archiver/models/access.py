"""Who may see what, who is signed in, and who did what."""

from __future__ import annotations

from datetime import datetime
from uuid import UUID

from sqlalchemy import BigInteger, CheckConstraint, ForeignKey, Identity, Index, func, text
from sqlalchemy.orm import Mapped, mapped_column

from archiver.models.base import Base, CreatedAt, Id, JsonObject, Texts, one_of
from archiver.models.states import Role


class User(Base):
    __tablename__ = "users"

    id: Mapped[Id]
    email: Mapped[str]
    name: Mapped[str | None]
    password_hash: Mapped[str | None]
    role: Mapped[str] = mapped_column(server_default=Role.USER)
    may_read_all: Mapped[bool] = mapped_column(server_default=text("false"))
    totp_secret: Mapped[bytes | None]
    recovery_code_hashes: Mapped[Texts]
    oidc_subject: Mapped[str | None] = mapped_column(unique=True)
    settings: Mapped[JsonObject]
    created_at: Mapped[CreatedAt]
    last_sign_in_at: Mapped[datetime | None]
    disabled_at: Mapped[datetime | None]

    __table_args__ = (one_of("role", Role), Index("uq_users_email", func.lower(text("email")), unique=True))


class Grant(Base):
    """A user may see one mailbox, or all whose address fits a pattern."""

    __tablename__ = "grants"

    id: Mapped[Id]
    user_id: Mapped[UUID] = mapped_column(ForeignKey("users.id", ondelete="CASCADE"), index=True)
    mailbox_id: Mapped[UUID | None] = mapped_column(ForeignKey("mailboxes.id", ondelete="CASCADE"), index=True)
    address_pattern: Mapped[str | None]
    granted_by: Mapped[UUID | None] = mapped_column(ForeignKey("users.id", ondelete="SET NULL"))
    created_at: Mapped[CreatedAt]

    __table_args__ = (
        CheckConstraint("(mailbox_id IS NULL) <> (address_pattern IS NULL)", name="one_target"),
        Index("uq_grants_target", "user_id", "mailbox_id", "address_pattern", unique=True, postgresql_nulls_not_distinct=True),
    )


class Session(Base):
    """A sign-in. (A running sync cycle is a SyncSession.)"""

    __tablename__ = "sessions"

    id: Mapped[Id]
    token_hash: Mapped[bytes] = mapped_column(unique=True)
    user_id: Mapped[UUID] = mapped_column(ForeignKey("users.id", ondelete="CASCADE"), index=True)
    created_at: Mapped[CreatedAt]
    last_seen_at: Mapped[CreatedAt]
    expires_at: Mapped[datetime] = mapped_column(index=True)
    client_address: Mapped[str | None]
    user_agent: Mapped[str | None]


class ApiKey(Base):
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


class AuditEntry(Base):
    """Append-only and chained: `hash` covers the entry and `previous_hash`. No foreign keys: it outlives what it tells of."""

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
