"""People: added, changed, disabled, removed. Mail never goes with a person."""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any
from uuid import UUID

from sqlalchemy import Connection, Row, text
from sqlalchemy.exc import IntegrityError

from archiver.db import json_text
from archiver.errors import Conflict, NotFound, UsageError
from archiver.models.ids import uuid7
from archiver.models.states import Role
from archiver.services import api_keys, audit, passwords
from archiver.services.principal import Principal

_ADDRESS = re.compile(r"[^\s@\x00-\x1f\x7f<>\"',;]{1,64}@[^\s@\x00-\x1f\x7f<>\"',;]{1,253}")
_COLUMNS = (
    "id, email, name, role, may_read_all, address_verified_at, totp_confirmed_at, oidc_subject IS NOT NULL AS has_oidc,"
    " password_hash, settings, created_at, last_sign_in_at, disabled_at"
)


@dataclass(frozen=True, slots=True)
class User:
    id: UUID
    email: str
    name: str | None
    role: Role
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
        """Said at the first start that this archive is for their own mail: mailboxes they add are theirs to read."""
        return self.settings.get("own_mail") is True


def _user(row: Row[Any]) -> User:
    return User(**{**row._asdict(), "role": Role(row.role)})


def clean_email(email: str) -> str:
    email = email.strip()
    if not _ADDRESS.fullmatch(email) or len(email) > 254 or _is_disguised(email):
        raise UsageError(f"{email[:100]!r} is not an email address")
    return email


def _is_disguised(email: str) -> bool:
    """A character that turns into an ASCII one in lower case (the Kelvin sign, for one): addresses are compared that way."""
    return any(not char.isascii() and any(one.isascii() for one in char.lower()) for char in email)


def load(connection: Connection, user_id: UUID) -> User:
    row = connection.execute(text(f"SELECT {_COLUMNS} FROM users WHERE id = :id"), {"id": user_id}).first()  # noqa: S608
    if row is None:
        raise NotFound(f"there is no user {user_id}")
    return _user(row)


def find(connection: Connection, given: str) -> User:
    """By address, whatever the case, or by id."""
    statement = text(f"SELECT {_COLUMNS} FROM users WHERE lower(email) = lower(:given) OR CAST(id AS text) = :given")  # noqa: S608
    row = connection.execute(statement, {"given": given}).first() if "\0" not in given else None
    if row is None:
        raise NotFound(f"there is no user {given[:100]!r}")
    return _user(row)


def by_email(connection: Connection, email: str) -> User | None:
    try:
        return find(connection, email) if "@" in email else None
    except NotFound:
        return None


def listed(connection: Connection, *, after: UUID | None = None, most: int = 100) -> list[User]:
    """Oldest first; `after` continues behind one."""
    statement = text(
        f"SELECT {_COLUMNS} FROM users WHERE CAST(:after AS uuid) IS NULL OR id > :after ORDER BY id LIMIT :most"  # noqa: S608
    )
    return [_user(row) for row in connection.execute(statement, {"after": after, "most": most})]


def owns_address(connection: Connection, who: Principal, address: str) -> bool:
    """It is theirs, and somebody who may say so has said so."""
    if who.user_id is None:
        return False
    user = load(connection, who.user_id)
    return user.address_verified_at is not None and user.email.lower() == address.lower()


def any_user(connection: Connection) -> bool:
    return bool(connection.execute(text("SELECT EXISTS (SELECT 1 FROM users)")).scalar())


def add(
    connection: Connection,
    who: Principal,
    email: str,
    *,
    role: Role = Role.USER,
    name: str | None = None,
    password: str | None = None,
    address_verified: bool = True,
    settings: dict[str, Any] | None = None,
    oidc_subject: str | None = None,
) -> User:
    """Without a password they can sign in by OIDC only. Whoever adds them vouches for the address."""
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
        raise Conflict(f"there is a user {email} already") from error
    audit.record(connection, who, "user.added", "user", values["id"], email=email, role=str(role), verified=address_verified)
    return load(connection, UUID(str(values["id"])))


def change(
    connection: Connection,
    who: Principal,
    user: User,
    *,
    name: str | None = None,
    role: Role | None = None,
    may_read_all: bool | None = None,
    disabled: bool | None = None,
    address_verified: bool | None = None,
) -> User:
    """What is None stays, but a change of role takes the right to read everything away. It has its own audit entries."""
    if role is not None and role is not user.role and may_read_all is None and user.may_read_all:
        may_read_all = False
    if (role not in (None, Role.ADMINISTRATOR) or disabled) and user.role is Role.ADMINISTRATOR and not user.disabled_at:
        _keep_one_administrator(connection, user)
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
        end_sign_ins(connection, user.id)
    given = {"name": name, "role": role, "disabled": disabled, "address_verified": address_verified}
    changes = {key: value for key, value in given.items() if value is not None}
    if changes:
        audit.record(connection, who, "user.changed", "user", user.id, email=user.email, **changes)
    if may_read_all is not None and may_read_all is not user.may_read_all:
        action = "user.read_all_granted" if may_read_all else "user.read_all_revoked"
        audit.record(connection, who, action, "user", user.id, email=user.email)
    return load(connection, user.id)


def change_settings(connection: Connection, user: User, **changes: Any) -> None:
    """How pages look for this person; a None takes a setting away."""
    kept = {name: value for name, value in changes.items() if value is not None}
    connection.execute(
        text("UPDATE users SET settings = (settings || CAST(:kept AS jsonb)) - CAST(:gone AS text[]) WHERE id = :id"),
        {"id": user.id, "kept": json_text(kept), "gone": [name for name in changes if changes[name] is None]},
    )


def remove(connection: Connection, who: Principal, user: User) -> None:
    """With their sessions, keys and grants. Mail and sources stay."""
    if user.role is Role.ADMINISTRATOR and not user.disabled_at:
        _keep_one_administrator(connection, user)
    connection.execute(text("DELETE FROM users WHERE id = :id"), {"id": user.id})
    audit.record(connection, who, "user.removed", "user", user.id, email=user.email)


def set_password(
    connection: Connection, who: Principal, user: User, password: str, *, keep_session: UUID | None = None
) -> None:
    """Ends all other sign-ins of this user. One that somebody else sets revokes their API keys, too."""
    passwords.check_new(password, user.email)
    connection.execute(
        text("UPDATE users SET password_hash = :hash WHERE id = :id"),
        {"hash": passwords.hash_password(password), "id": user.id},
    )
    end_sign_ins(connection, user.id, keep_session)
    audit.record(connection, who, "user.password_changed", "user", user.id, email=user.email)
    if who.user_id != user.id:
        api_keys.revoke_all(connection, who, user.id)


def end_sign_ins(connection: Connection, user_id: UUID, keep_session: UUID | None = None) -> None:
    connection.execute(
        text("DELETE FROM sessions WHERE user_id = :id AND (CAST(:keep AS uuid) IS NULL OR id <> :keep)"),
        {"id": user_id, "keep": keep_session},
    )


def _keep_one_administrator(connection: Connection, user: User) -> None:
    """Locked, so that two administrators can't remove each other at once."""
    others = connection.execute(
        text("SELECT id FROM users WHERE role = 'administrator' AND disabled_at IS NULL ORDER BY id FOR UPDATE")
    ).scalars()
    if set(others) <= {user.id}:
        raise Conflict(f"{user.email} is the only administrator: make another one first")


def _clean_name(name: str | None) -> str | None:
    return None if name is None else re.sub(r"[\x00-\x1f\x7f]", " ", name).strip()[:200] or None
