"""Login sessions: a random token in a cookie and its hash in Postgres. They expire, and can be ended earlier."""

from __future__ import annotations

import base64
import hashlib
import hmac
import secrets
from dataclasses import dataclass, field
from datetime import datetime
from uuid import UUID

from sqlalchemy import Connection, Engine, text

from archiver.access import audit
from archiver.access.principal import Principal, rights_of
from archiver.config import Settings
from archiver.db.engine import autocommit
from archiver.db.ids import uuid7
from archiver.db.sql import query, query_optional
from archiver.db.states import UserRole
from archiver.errors import NotFound

_SEEN_EVERY_SECONDS = 60

_RESOLVE = """
    SELECT s.id, u.id AS user_id, u.email, u.role, u.may_read_all,
           u.settings @> '{"may_restore": true}' AS may_restore,
           s.last_seen_at < now() - make_interval(secs => :every) AS stale
    FROM sessions s JOIN users u ON u.id = s.user_id
    WHERE s.token_hash = :hash AND s.expires_at > now() AND s.last_seen_at > now() - make_interval(mins => :idle)
      AND u.disabled_at IS NULL"""
_LISTED = """
    SELECT id, created_at, last_seen_at, expires_at, client_address, user_agent FROM sessions
    WHERE user_id = :user_id AND expires_at > now() AND last_seen_at > now() - make_interval(mins => :idle) ORDER BY id DESC"""
_DELETE_EXPIRED = text("DELETE FROM sessions WHERE expires_at <= now() OR last_seen_at <= now() - make_interval(mins => :idle)")


@dataclass(frozen=True, slots=True)
class NewSession:
    id: UUID
    token: str = field(repr=False)


@dataclass(frozen=True, slots=True)
class UsedSession:
    """A valid login session, with its user."""

    id: UUID
    user_id: UUID
    email: str
    role: UserRole
    may_read_all: bool
    may_restore: bool
    stale: bool
    """Its last use was recorded some time ago."""


@dataclass(frozen=True, slots=True)
class LoginSession:
    id: UUID
    created_at: datetime
    last_seen_at: datetime
    expires_at: datetime
    client_address: str | None
    user_agent: str | None


def token_hash(token: str) -> bytes:
    return hashlib.sha256(token.encode("utf-8", "replace")).digest()


def csrf_token(token: str) -> str:
    """Derived from the session's token without revealing it."""
    return (
        base64.urlsafe_b64encode(hmac.digest(token.encode("utf-8", "replace"), b"archiver csrf", "sha256")).decode().rstrip("=")
    )


def start(
    connection: Connection, settings: Settings, user_id: UUID, client_address: str | None, user_agent: str | None
) -> NewSession:
    connection.execute(_DELETE_EXPIRED, {"idle": settings.session_idle_minutes})
    session = NewSession(uuid7(), secrets.token_urlsafe(32))
    connection.execute(
        text(
            "INSERT INTO sessions (id, token_hash, user_id, expires_at, client_address, user_agent)"
            " VALUES (:id, :hash, :user_id, now() + make_interval(days => :days), :address, :agent)"
        ),
        {
            "id": session.id,
            "hash": token_hash(session.token),
            "user_id": user_id,
            "days": settings.session_days,
            "address": client_address,
            "agent": (user_agent or "").replace("\0", "")[:300] or None,
        },
    )
    return session


def resolve(engine: Engine, settings: Settings, token: str, *, touch: bool = True) -> Principal | None:
    """The principal of this token; None if it is not valid (any more). `touch`: the request keeps the session alive."""
    values = {"hash": token_hash(token), "idle": settings.session_idle_minutes, "every": _SEEN_EVERY_SECONDS}
    with autocommit(engine) as connection:
        row = query_optional(connection, _RESOLVE, UsedSession, **values)
        if row is None:
            return None
        if row.stale and touch:
            connection.execute(text("UPDATE sessions SET last_seen_at = now() WHERE id = :id"), {"id": row.id})
    rights = rights_of(row.role, may_restore=row.may_restore)
    return Principal(row.email, row.role, rights, row.user_id, row.may_read_all, session_id=row.id)


def list_sessions(connection: Connection, settings: Settings, user_id: UUID) -> list[LoginSession]:
    """Newest first."""
    return query(connection, _LISTED, LoginSession, user_id=user_id, idle=settings.session_idle_minutes)


def end(connection: Connection, principal: Principal, session_id: UUID) -> None:
    """Users can only end their own sessions."""
    done = connection.execute(
        text("DELETE FROM sessions WHERE id = :id AND user_id = :user_id"), {"id": session_id, "user_id": principal.user_id}
    )
    if not done.rowcount:
        raise NotFound(f"there is no session {session_id}")
    audit.record(connection, principal, "session.ended", "session", session_id)


def end_token(connection: Connection, token: str) -> None:
    connection.execute(text("DELETE FROM sessions WHERE token_hash = :hash"), {"hash": token_hash(token)})
