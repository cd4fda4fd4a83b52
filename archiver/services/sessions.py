"""Sign-ins that last: a random token in a cookie, its hash in Postgres; they end by themselves, and can be ended."""

from __future__ import annotations

import base64
import hashlib
import hmac
import secrets
from dataclasses import dataclass, field
from datetime import datetime
from uuid import UUID

from sqlalchemy import Connection, Engine, text

from archiver.config import Settings
from archiver.db import autocommit
from archiver.errors import NotFound
from archiver.models.ids import uuid7
from archiver.models.states import Role
from archiver.services import audit
from archiver.services.principal import Principal, rights_of

_SEEN_EVERY_SECONDS = 60

_RESOLVE = text("""
    SELECT s.id, u.id AS user_id, u.email, u.role, u.may_read_all,
           s.last_seen_at < now() - make_interval(secs => :every) AS stale
    FROM sessions s JOIN users u ON u.id = s.user_id
    WHERE s.token_hash = :hash AND s.expires_at > now() AND s.last_seen_at > now() - make_interval(mins => :idle)
      AND u.disabled_at IS NULL""")
_LISTED = text("""
    SELECT id, created_at, last_seen_at, expires_at, client_address, user_agent FROM sessions
    WHERE user_id = :user_id AND expires_at > now() AND last_seen_at > now() - make_interval(mins => :idle) ORDER BY id DESC""")
_TIDY = text("DELETE FROM sessions WHERE expires_at <= now() OR last_seen_at <= now() - make_interval(mins => :idle)")


@dataclass(frozen=True, slots=True)
class NewSession:
    id: UUID
    token: str = field(repr=False)


@dataclass(frozen=True, slots=True)
class SessionRow:
    id: UUID
    created_at: datetime
    last_seen_at: datetime
    expires_at: datetime
    client_address: str | None
    user_agent: str | None


def token_hash(token: str) -> bytes:
    return hashlib.sha256(token.encode("utf-8", "replace")).digest()


def csrf_token(token: str) -> str:
    """Belongs to the session, and says nothing about its token."""
    return (
        base64.urlsafe_b64encode(hmac.digest(token.encode("utf-8", "replace"), b"archiver csrf", "sha256")).decode().rstrip("=")
    )


def start(
    connection: Connection, settings: Settings, user_id: UUID, client_address: str | None, user_agent: str | None
) -> NewSession:
    connection.execute(_TIDY, {"idle": settings.session_idle_minutes})
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


def resolve(engine: Engine, settings: Settings, token: str, *, seen: bool = True) -> Principal | None:
    """Who this token belongs to; None when it does not count (any more). `seen`: this is a sign of life."""
    values = {"hash": token_hash(token), "idle": settings.session_idle_minutes, "every": _SEEN_EVERY_SECONDS}
    with autocommit(engine) as connection:
        row = connection.execute(_RESOLVE, values).first()
        if row is None:
            return None
        if row.stale and seen:
            connection.execute(text("UPDATE sessions SET last_seen_at = now() WHERE id = :id"), {"id": row.id})
    role = Role(row.role)
    return Principal(row.email, role, rights_of(role), row.user_id, row.may_read_all, session_id=row.id)


def listed(connection: Connection, settings: Settings, user_id: UUID) -> list[SessionRow]:
    """Newest first."""
    values = {"user_id": user_id, "idle": settings.session_idle_minutes}
    return [SessionRow(*row) for row in connection.execute(_LISTED, values)]


def end(connection: Connection, who: Principal, session_id: UUID) -> None:
    """One of one's own."""
    done = connection.execute(
        text("DELETE FROM sessions WHERE id = :id AND user_id = :user_id"), {"id": session_id, "user_id": who.user_id}
    )
    if not done.rowcount:
        raise NotFound(f"there is no session {session_id}")
    audit.record(connection, who, "session.ended", "session", session_id)


def end_token(connection: Connection, token: str) -> None:
    connection.execute(text("DELETE FROM sessions WHERE token_hash = :hash"), {"hash": token_hash(token)})
