"""Keys for programs: shown once, kept as a hash, known by their prefix, good for what their scopes say."""

from __future__ import annotations

import hashlib
import hmac
import re
import secrets
from collections.abc import Collection
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from uuid import UUID

from sqlalchemy import Connection, Engine, text

from archiver.db import autocommit
from archiver.errors import NotFound, UsageError
from archiver.models.ids import uuid7
from archiver.models.states import Role
from archiver.services import audit
from archiver.services.principal import SCOPE_RIGHTS, Principal, Right, Scope, rights_of

_FORM = re.compile(r"arc_([0-9a-f]{12})_([A-Za-z0-9_-]{43})")
_USED_EVERY_SECONDS = 60
_DEFAULT_DAYS = 365

_RESOLVE = text("""
    SELECT k.id, k.key_hash, k.scopes, u.id AS user_id, u.email, u.role, u.may_read_all,
           k.last_used_at IS NULL OR k.last_used_at < now() - make_interval(secs => :every) AS stale
    FROM api_keys k JOIN users u ON u.id = k.user_id
    WHERE k.prefix = :prefix AND k.revoked_at IS NULL AND coalesce(k.expires_at, k.created_at + interval '1 year') > now()
      AND u.disabled_at IS NULL""")
_LISTED = text("""
    SELECT k.id, k.user_id, u.email, k.name, k.prefix, k.scopes, k.created_at, k.expires_at, k.last_used_at, k.revoked_at
    FROM api_keys k JOIN users u ON u.id = k.user_id
    WHERE CAST(:user_id AS uuid) IS NULL OR k.user_id = :user_id ORDER BY k.id DESC LIMIT 1000""")


@dataclass(frozen=True, slots=True)
class KeyRow:
    id: UUID
    user_id: UUID
    user: str
    name: str
    prefix: str
    scopes: list[str]
    created_at: datetime
    expires_at: datetime | None
    last_used_at: datetime | None
    revoked_at: datetime | None


def create(
    connection: Connection,
    who: Principal,
    name: str,
    scopes: Collection[Scope],
    expires_at: datetime | None,
    most_days: int = _DEFAULT_DAYS,
) -> tuple[UUID, str]:
    """The id and the key itself, which nobody can show again. It never can do more than its owner, and it always expires."""
    assert who.user_id is not None
    name = re.sub(r"[\x00-\x1f\x7f]", " ", name).strip()[:100]
    if not name or not scopes:
        raise UsageError("a key needs a name and at least one scope")
    useless = [str(scope) for scope in scopes if not SCOPE_RIGHTS[scope] & who.rights]
    if useless:
        raise UsageError(f"your role does not give {', '.join(useless)}")
    expires_at = _expiry(expires_at, most_days)
    key_id, prefix = uuid7(), secrets.token_hex(6)
    key = f"arc_{prefix}_{secrets.token_urlsafe(32)}"
    values = {"id": key_id, "user_id": who.user_id, "name": name, "prefix": prefix, "hash": _hash(key)}
    chosen = sorted(str(scope) for scope in set(scopes))
    connection.execute(
        text(
            "INSERT INTO api_keys (id, user_id, name, prefix, key_hash, scopes, expires_at)"
            " VALUES (:id, :user_id, :name, :prefix, :hash, :scopes, :expires_at)"
        ),
        {**values, "scopes": chosen, "expires_at": expires_at},
    )
    audit.record(connection, who, "key.created", "key", key_id, name=name, prefix=prefix, scopes=chosen, expires_at=expires_at)
    return key_id, key


def _expiry(given: datetime | None, most_days: int) -> datetime:
    now = datetime.now(UTC)
    if given is None:
        return now + timedelta(days=min(_DEFAULT_DAYS, most_days))
    if given.tzinfo is None or given <= now:
        raise UsageError("expires_at: a time in the future, with its zone")
    if given > now + timedelta(days=most_days, minutes=5):
        raise UsageError(f"expires_at: at most {most_days} days from now (API_KEY_DAYS)")
    return given


def resolve(engine: Engine, key: str) -> Principal | None:
    match = _FORM.fullmatch(key)
    if match is None:
        return None
    with autocommit(engine) as connection:
        row = connection.execute(_RESOLVE, {"prefix": match[1], "every": _USED_EVERY_SECONDS}).first()
        if row is None or not hmac.compare_digest(bytes(row.key_hash), _hash(key)):
            return None
        if row.stale:
            connection.execute(text("UPDATE api_keys SET last_used_at = now() WHERE id = :id"), {"id": row.id})
    role = Role(row.role)
    return Principal(row.email, role, rights_of(role, row.scopes), row.user_id, row.may_read_all, key_id=row.id)


def listed(connection: Connection, user_id: UUID | None) -> list[KeyRow]:
    """Of one user, or of all; newest first."""
    return [KeyRow(*row) for row in connection.execute(_LISTED, {"user_id": user_id})]


def revoke(connection: Connection, who: Principal, key_id: UUID) -> None:
    """One's own; an administrator everybody's."""
    everybody = Right.ADMIN in who.rights
    done = connection.execute(
        text(
            "UPDATE api_keys SET revoked_at = now()"
            " WHERE id = :id AND revoked_at IS NULL AND (:everybody OR user_id = :user_id)"
        ),
        {"id": key_id, "user_id": who.user_id, "everybody": everybody},
    )
    if not done.rowcount:
        raise NotFound(f"there is no key {key_id}")
    audit.record(connection, who, "key.revoked", "key", key_id)


def revoke_all(connection: Connection, who: Principal, user_id: UUID) -> None:
    """Those of one user."""
    statement = text("UPDATE api_keys SET revoked_at = now() WHERE user_id = :id AND revoked_at IS NULL RETURNING id")
    for key_id in connection.execute(statement, {"id": user_id}).scalars().all():
        audit.record(connection, who, "key.revoked", "key", key_id)


def _hash(key: str) -> bytes:
    return hashlib.sha256(key.encode()).digest()
