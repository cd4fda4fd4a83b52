"""Users: adding, changing, disabling and removing them. Removing a user never removes mail."""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any
from uuid import UUID

from sqlalchemy import Connection, text
from sqlalchemy.exc import IntegrityError

from archiver.access import api_keys, audit
from archiver.access.login import passwords
from archiver.access.principal import Principal, rights_of
from archiver.db.ids import uuid7
from archiver.db.sql import query, query_one, query_optional
from archiver.db.states import UserRole
from archiver.db.values import json_text
from archiver.errors import Conflict, NotAllowed, NotFound, UsageError

_ADDRESS = re.compile(r"[^\s@\x00-\x1f\x7f<>\"',;]{1,64}@[^\s@\x00-\x1f\x7f<>\"',;]{1,253}")
_COLUMNS = (
    "id, email, name, role, may_read_all, address_verified_at, totp_confirmed_at, oidc_subject IS NOT NULL AS has_oidc,"
    " password_hash, settings, created_at, last_sign_in_at, disabled_at"
)
_LOAD = f"SELECT {_COLUMNS} FROM users WHERE id = :id"  # noqa: S608
_FIND = f"SELECT {_COLUMNS} FROM users WHERE lower(email) = lower(:name) OR CAST(id AS text) = :name"  # noqa: S608
_PAGE = f"SELECT {_COLUMNS} FROM users WHERE CAST(:after AS uuid) IS NULL OR id > :after ORDER BY id LIMIT :limit"  # noqa: S608
_LOCK_ADMINISTRATORS = "SELECT id FROM users WHERE role = 'administrator' AND disabled_at IS NULL ORDER BY id FOR UPDATE"


@dataclass(frozen=True, slots=True)
class User:
    id: UUID
    email: str
    name: str | None
    role: UserRole
    may_read_all: bool
    address_verified_at: datetime | None
    totp_confirmed_at: datetime | None
    has_oidc: bool
    password_hash: str | None = field(repr=False)
    settings: dict[str, Any]
    created_at: datetime
    last_sign_in_at: datetime | None
    disabled_at: datetime | None

    @property
    def own_mail(self) -> bool:
        """Declared at the first start that this archive is for their own mail: they can read the mailboxes they add."""
        return self.settings.get("own_mail") is True

    @property
    def may_restore(self) -> bool:
        """An administrator allows them to restore mail into their own mailboxes."""
        return self.settings.get("may_restore") is True

    def principal(self) -> Principal:
        """With their current rights, for work that they have asked for earlier."""
        rights = rights_of(self.role, may_restore=self.may_restore)
        return Principal(self.email, self.role, rights, self.id, self.may_read_all)


def clean_email(email: str) -> str:
    email = email.strip()
    if not _ADDRESS.fullmatch(email) or len(email) > 254 or _is_disguised(email):
        raise UsageError(f"{email[:100]!r} is not an email address")
    return email


def _is_disguised(email: str) -> bool:
    """Contains a character whose lower case is ASCII, such as the Kelvin sign: addresses are compared in lower case."""
    return any(not char.isascii() and any(lower.isascii() for lower in char.lower()) for char in email)


def load(connection: Connection, user_id: UUID) -> User:
    found = query_optional(connection, _LOAD, User, id=user_id)
    if found is None:
        raise NotFound(f"there is no user {user_id}")
    return found


def principal_of(connection: Connection, user_id: UUID) -> Principal:
    """For work that goes on without the user: with the rights that they have at this moment."""
    user = load(connection, user_id)
    if user.disabled_at is not None:
        raise NotAllowed(f"the user {user.email} is disabled")
    return Principal(user.email, user.role, rights_of(user.role), user.id, user.may_read_all)


def find(connection: Connection, name: str) -> User:
    """By address, ignoring case, or by id."""
    found = query_optional(connection, _FIND, User, name=name) if "\0" not in name else None
    if found is None:
        raise NotFound(f"there is no user {name[:100]!r}")
    return found


def find_by_email(connection: Connection, email: str) -> User | None:
    try:
        return find(connection, email) if "@" in email else None
    except NotFound:
        return None


def list_users(connection: Connection, *, after: UUID | None = None, limit: int = 100) -> list[User]:
    """Oldest first; `after` continues behind a user."""
    return query(connection, _PAGE, User, after=after, limit=limit)


def owns_address(connection: Connection, principal: Principal, address: str) -> bool:
    """The address is their own, and was verified."""
    if principal.user_id is None:
        return False
    user = load(connection, principal.user_id)
    return user.address_verified_at is not None and user.email.lower() == address.lower()


def any_exists(connection: Connection) -> bool:
    return query_one(connection, "SELECT EXISTS (SELECT 1 FROM users)", bool)


def add(
    connection: Connection,
    principal: Principal,
    email: str,
    *,
    role: UserRole = UserRole.USER,
    name: str | None = None,
    password: str | None = None,
    address_verified: bool = True,
    settings: dict[str, Any] | None = None,
    oidc_subject: str | None = None,
) -> User:
    """Without a password, the user can only sign in by OIDC. The principal who adds them vouches for the address."""
    email = clean_email(email)
    if password is not None:
        passwords.check_new(password, email)
    values = {
        "id": uuid7(),
        "email": email,
        "name": _clean_name(name),
        "password_hash": None if password is None else passwords.hash_password(password),
        "role": str(role),
        "verified": address_verified,
        "settings": json_text(settings or {}),
        "oidc_subject": oidc_subject,
    }
    statement = text(
        "INSERT INTO users (id, email, name, password_hash, role, address_verified_at, settings, oidc_subject)"
        " VALUES (:id, :email, :name, :password_hash, :role, CASE WHEN :verified THEN now() END, CAST(:settings AS jsonb),"
        " :oidc_subject)"
    )
    try:
        with connection.begin_nested():
            connection.execute(statement, values)
    except IntegrityError as error:
        raise Conflict(f"a user {email} already exists") from error
    audit.record(
        connection, principal, "user.added", "user", values["id"], email=email, role=str(role), verified=address_verified
    )
    return load(connection, UUID(str(values["id"])))


def change(
    connection: Connection,
    principal: Principal,
    user: User,
    *,
    name: str | None = None,
    role: UserRole | None = None,
    may_read_all: bool | None = None,
    may_restore: bool | None = None,
    disabled: bool | None = None,
    address_verified: bool | None = None,
) -> User:
    """None leaves a value unchanged, except that a change of role withdraws the right to read all mail. That right has audit
    entries of its own."""
    if role is not None and role is not user.role and may_read_all is None and user.may_read_all:
        may_read_all = False
    if (
        (role not in (None, UserRole.ADMINISTRATOR) or disabled)
        and user.role is UserRole.ADMINISTRATOR
        and not user.disabled_at
    ):
        _require_other_administrator(connection, user)
    connection.execute(
        text(
            "UPDATE users SET name = coalesce(:name, name), role = coalesce(:role, role),"
            " may_read_all = coalesce(:may_read_all, may_read_all),"
            " disabled_at = CASE WHEN :disabled THEN coalesce(disabled_at, now()) WHEN :disabled IS NULL THEN disabled_at END,"
            " address_verified_at = CASE WHEN :verified THEN coalesce(address_verified_at, now())"
            " WHEN :verified IS NULL THEN address_verified_at END WHERE id = :id"
        ),
        {
            "id": user.id,
            "name": _clean_name(name),
            "role": None if role is None else str(role),
            "may_read_all": may_read_all,
            "disabled": disabled,
            "verified": address_verified,
        },
    )
    if disabled or (role is not None and role is not user.role):
        end_sessions(connection, user.id)
    values = {"name": name, "role": role, "disabled": disabled, "address_verified": address_verified}
    changes = {key: value for key, value in values.items() if value is not None}
    if changes:
        audit.record(connection, principal, "user.changed", "user", user.id, email=user.email, **changes)
    if may_read_all is not None and may_read_all is not user.may_read_all:
        action = "user.read_all_granted" if may_read_all else "user.read_all_revoked"
        audit.record(connection, principal, action, "user", user.id, email=user.email)
    if may_restore is not None and may_restore is not user.may_restore:
        change_settings(connection, user, may_restore=may_restore or None)
        action = "user.restore_granted" if may_restore else "user.restore_revoked"
        audit.record(connection, principal, action, "user", user.id, email=user.email)
    return load(connection, user.id)


def change_settings(connection: Connection, user: User, **changes: Any) -> None:
    """Preferences of this user for the pages; None removes a setting."""
    values = {name: value for name, value in changes.items() if value is not None}
    connection.execute(
        text("UPDATE users SET settings = (settings || CAST(:values AS jsonb)) - CAST(:removed AS text[]) WHERE id = :id"),
        {"id": user.id, "values": json_text(values), "removed": [name for name in changes if changes[name] is None]},
    )


def remove(connection: Connection, principal: Principal, user: User) -> None:
    """With their login sessions, API keys and grants. Mail and sources stay."""
    if user.role is UserRole.ADMINISTRATOR and not user.disabled_at:
        _require_other_administrator(connection, user)
    connection.execute(text("DELETE FROM users WHERE id = :id"), {"id": user.id})
    audit.record(connection, principal, "user.removed", "user", user.id, email=user.email)


def set_password(
    connection: Connection, principal: Principal, user: User, password: str, *, keep_session: UUID | None = None
) -> None:
    """Ends all other login sessions of this user. A password set by another principal also revokes the user's API keys."""
    passwords.check_new(password, user.email)
    connection.execute(
        text("UPDATE users SET password_hash = :hash WHERE id = :id"),
        {"hash": passwords.hash_password(password), "id": user.id},
    )
    end_sessions(connection, user.id, keep_session)
    audit.record(connection, principal, "user.password_changed", "user", user.id, email=user.email)
    if principal.user_id != user.id:
        api_keys.revoke_all(connection, principal, user.id)


def end_sessions(connection: Connection, user_id: UUID, keep_session: UUID | None = None) -> None:
    connection.execute(
        text("DELETE FROM sessions WHERE user_id = :id AND (CAST(:keep AS uuid) IS NULL OR id <> :keep)"),
        {"id": user_id, "keep": keep_session},
    )


def _require_other_administrator(connection: Connection, user: User) -> None:
    """Locked, so that two administrators can't remove each other at once."""
    if set(query(connection, _LOCK_ADMINISTRATORS, UUID)) <= {user.id}:
        raise Conflict(f"{user.email} is the only administrator: appoint another one first")


def _clean_name(name: str | None) -> str | None:
    return None if name is None else re.sub(r"[\x00-\x1f\x7f]", " ", name).strip()[:200] or None
