"""API keys for programs: shown once, stored as a hash, found by their prefix, limited by their scopes."""

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

from archiver.access import audit
from archiver.access.principal import SCOPE_RIGHTS, KeyScope, Principal, Right, rights_of
from archiver.db.engine import autocommit
from archiver.db.ids import uuid7
from archiver.db.sql import query, query_optional
from archiver.db.states import UserRole
from archiver.errors import NotFound, UsageError

_FORM = re.compile(r"arc_([0-9a-f]{12})_([A-Za-z0-9_-]{43})")
_USED_EVERY_SECONDS = 60
_DEFAULT_DAYS = 365

_RESOLVE = """
    SELECT k.id, k.key_hash, k.scopes, u.id AS user_id, u.email, u.role, u.may_read_all,
           u.settings @> '{"may_restore": true}' AS may_restore,
           k.last_used_at IS NULL OR k.last_used_at < now() - make_interval(secs => :every) AS stale
    FROM api_keys k JOIN users u ON u.id = k.user_id
    WHERE k.prefix = :prefix AND k.revoked_at IS NULL AND coalesce(k.expires_at, k.created_at + interval '1 year') > now()
      AND u.disabled_at IS NULL"""
_LISTED = """
    SELECT k.id, k.user_id, u.email AS user, k.name, k.prefix, k.scopes, k.created_at, k.expires_at, k.last_used_at,
        k.revoked_at
    FROM api_keys k JOIN users u ON u.id = k.user_id
    WHERE CAST(:user_id AS uuid) IS NULL OR k.user_id = :user_id ORDER BY k.id DESC LIMIT 1000"""


_REVOKE_ALL = "UPDATE api_keys SET revoked_at = now() WHERE user_id = :id AND revoked_at IS NULL RETURNING id"


@dataclass(frozen=True, slots=True)
class UsedKey:
    """A valid key, with its owner."""

    id: UUID
    key_hash: bytes
    scopes: list[str]
    user_id: UUID
    email: str
    role: UserRole
    may_read_all: bool
    may_restore: bool
    stale: bool
    """Its last use was recorded some time ago."""


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
    principal: Principal,
    name: str,
    scopes: Collection[KeyScope],
    expires_at: datetime | None,
    max_days: int = _DEFAULT_DAYS,
) -> tuple[UUID, str]:
    """The id and the key itself, which can't be shown again. A key never has more rights than its owner, and always expires."""
    assert principal.user_id is not None
    name = re.sub(r"[\x00-\x1f\x7f]", " ", name).strip()[:100]
    if not name or not scopes:
        raise UsageError("an API key needs a name and at least one scope")
    useless = [str(scope) for scope in scopes if not SCOPE_RIGHTS[scope] & principal.rights]
    if useless:
        raise UsageError(f"your role does not include the scope {', '.join(useless)}: choose other scopes")
    expires_at = _expiry(expires_at, max_days)
    key_id, prefix = uuid7(), secrets.token_hex(6)
    key = f"arc_{prefix}_{secrets.token_urlsafe(32)}"
    values = {"id": key_id, "user_id": principal.user_id, "name": name, "prefix": prefix, "hash": _hash(key)}
    chosen = sorted(str(scope) for scope in set(scopes))
    connection.execute(
        text(
            "INSERT INTO api_keys (id, user_id, name, prefix, key_hash, scopes, expires_at)"
            " VALUES (:id, :user_id, :name, :prefix, :hash, :scopes, :expires_at)"
        ),
        {**values, "scopes": chosen, "expires_at": expires_at},
    )
    audit.record(
        connection, principal, "key.created", "key", key_id, name=name, prefix=prefix, scopes=chosen, expires_at=expires_at
    )
    return key_id, key


def _expiry(requested: datetime | None, max_days: int) -> datetime:
    now = datetime.now(UTC)
    if requested is None:
        return now + timedelta(days=min(_DEFAULT_DAYS, max_days))
    if requested.tzinfo is None or requested <= now:
        raise UsageError("expires_at: expected a time in the future, with its time zone")
    if requested > now + timedelta(days=max_days, minutes=5):
        raise UsageError(f"expires_at: at most {max_days} days from now (API_KEY_DAYS)")
    return requested


def resolve(engine: Engine, key: str) -> Principal | None:
    match = _FORM.fullmatch(key)
    if match is None:
        return None
    with autocommit(engine) as connection:
        row = query_optional(connection, _RESOLVE, UsedKey, prefix=match[1], every=_USED_EVERY_SECONDS)
        if row is None or not hmac.compare_digest(row.key_hash, _hash(key)):
            return None
        if row.stale:
            connection.execute(text("UPDATE api_keys SET last_used_at = now() WHERE id = :id"), {"id": row.id})
    rights = rights_of(row.role, row.scopes, may_restore=row.may_restore)
    return Principal(row.email, row.role, rights, row.user_id, row.may_read_all, key_id=row.id)


def list_keys(connection: Connection, user_id: UUID | None) -> list[KeyRow]:
    """Those of one user, or all; newest first."""
    return query(connection, _LISTED, KeyRow, user_id=user_id)


def revoke(connection: Connection, principal: Principal, key_id: UUID) -> None:
    """Users revoke their own keys, administrators any key."""
    is_admin = Right.ADMIN in principal.rights
    done = connection.execute(
        text(
            "UPDATE api_keys SET revoked_at = now() WHERE id = :id AND revoked_at IS NULL AND (:is_admin OR user_id = :user_id)"
        ),
        {"id": key_id, "user_id": principal.user_id, "is_admin": is_admin},
    )
    if not done.rowcount:
        raise NotFound(f"there is no API key {key_id}")
    audit.record(connection, principal, "key.revoked", "key", key_id)


def revoke_all(connection: Connection, principal: Principal, user_id: UUID) -> None:
    """All keys of one user."""
    for key_id in query(connection, _REVOKE_ALL, UUID, id=user_id):
        audit.record(connection, principal, "key.revoked", "key", key_id)


def _hash(key: str) -> bytes:
    return hashlib.sha256(key.encode()).digest()
