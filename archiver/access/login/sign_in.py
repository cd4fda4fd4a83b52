"""Sign-in with a password and, if enabled, a second factor. An unknown account and a wrong password give the same error."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from datetime import datetime

from sqlalchemy import Connection, Engine, text

from archiver.access import audit, users
from archiver.access.login import devices, logins, passwords, totp
from archiver.access.login.logins import NewSession
from archiver.access.login.throttle import SignInThrottle
from archiver.access.principal import NOBODY, Principal
from archiver.access.users import User
from archiver.config import Settings
from archiver.db.sql import query_one, query_optional
from archiver.errors import NotSignedIn, UsageError
from archiver.secrets import Keyring

_FRESH_SECONDS = 600


class CodeNeeded(NotSignedIn):
    """The password is correct, and a second factor is required."""


class ConfirmationNeeded(UsageError):
    """A login session alone is not enough for this action."""

    code = "confirmation_needed"


_LOCK_FACTORS = "SELECT totp_secret, totp_confirmed_at, password_hash, disabled_at FROM users WHERE id = :id FOR UPDATE"
_IS_FRESH = "SELECT created_at > now() - make_interval(secs => :seconds) FROM sessions WHERE id = :id"


@dataclass(frozen=True, slots=True)
class SignInFactors:
    """What a sign-in is checked against, locked."""

    totp_secret: bytes | None = field(repr=False)
    """Sealed."""
    totp_confirmed_at: datetime | None
    password_hash: str | None = field(repr=False)
    disabled_at: datetime | None


@dataclass(frozen=True, slots=True)
class Attempt:
    email: str
    password: str = field(repr=False)
    code: str | None = field(default=None, repr=False)
    client_address: str | None = None
    user_agent: str | None = None
    request_id: str | None = None
    replaces: str | None = field(default=None, repr=False)
    """The token of the client's previous session, which ends."""
    device: str | None = field(default=None, repr=False)
    """The cookie of an earlier sign-in (archiver.access.login.devices)."""


def sign_in(engine: Engine, settings: Settings, keyring: Keyring, attempt: Attempt) -> tuple[User, NewSession]:
    throttle, device = SignInThrottle(engine), devices.known_device(keyring, attempt.device, attempt.email)
    throttle.take(attempt.email, attempt.client_address, device)
    with engine.connect() as connection:
        user = users.find_by_email(connection, attempt.email)
    # Also without a user: an unknown address must take as long as a wrong password, or it could be told apart.
    is_correct = passwords.verify(user.password_hash if user else None, attempt.password)
    if user is None or not is_correct or user.disabled_at is not None:
        _record_failure(engine, attempt, user, "password")
        raise NotSignedIn("the address or the password is wrong")
    session = _second_step(engine, settings, keyring, attempt, user)
    # Only after the second factor: otherwise, a correct password would reset the pauses for guessing codes.
    throttle.record_success(attempt.email, attempt.client_address, device)
    return user, session


def _second_step(engine: Engine, settings: Settings, keyring: Keyring, attempt: Attempt, user: User) -> NewSession:
    if user.totp_confirmed_at is not None and not attempt.code:
        raise CodeNeeded("enter the code of your second factor as well")
    principal = _principal(user, attempt)
    with engine.begin() as connection:
        # locked until the session exists, so that a concurrent change of the password ends this sign-in too
        row = query_optional(connection, _LOCK_FACTORS, SignInFactors, id=user.id)
        if (
            row is not None
            and row.password_hash == user.password_hash
            and row.disabled_at is None
            and (
                row.totp_confirmed_at is None
                or totp.check(connection, keyring, user.id, row.totp_secret or b"", attempt.code or "")
            )
        ):
            return _open(connection, settings, attempt, user, principal)
    _record_failure(engine, attempt, user, "code")
    raise NotSignedIn("the code is wrong or was already used")


def _open(connection: Connection, settings: Settings, attempt: Attempt, user: User, principal: Principal) -> NewSession:
    assert user.password_hash is not None
    # A new token for each sign-in, so that a token planted in the browser before it (session fixation) is worth nothing.
    if attempt.replaces:
        logins.end_token(connection, attempt.replaces)
    # The parameters of argon2 have been raised since; only now is the password at hand.
    if passwords.needs_rehash(user.password_hash):
        connection.execute(
            text("UPDATE users SET password_hash = :hash WHERE id = :id"),
            {"hash": passwords.hash_password(attempt.password), "id": user.id},
        )
    return open_session(connection, settings, user, principal, attempt.user_agent, "password")


def open_session(
    connection: Connection, settings: Settings, user: User, principal: Principal, user_agent: str | None, how: str
) -> NewSession:
    """`how`: password or oidc. Our own second factor is only checked with a password."""
    session = logins.start(connection, settings, user.id, principal.client_address, user_agent)
    connection.execute(text("UPDATE users SET last_sign_in_at = now() WHERE id = :id"), {"id": user.id})
    second_factor = how == "password" and user.totp_confirmed_at is not None
    audit.record(connection, principal, "session.started", "session", session.id, how=how, second_factor=second_factor)
    return session


def sign_out(engine: Engine, principal: Principal) -> None:
    assert principal.session_id is not None
    with engine.begin() as connection:
        logins.end(connection, principal, principal.session_id)


def confirm_password(engine: Engine, principal: Principal, password: str) -> User:
    """Required before actions that a stolen session must not allow."""
    throttle, user = _begin_confirmation(engine, principal)
    if not passwords.verify(user.password_hash, password):
        raise NotSignedIn("the password is wrong")
    throttle.record_success(principal.name, principal.client_address, str(principal.session_id))
    return user


def confirm(engine: Engine, keyring: Keyring, principal: Principal, password: str | None, code: str | None) -> User:
    """Like `confirm_password`, with the password or a code of the second factor.

    An account that has neither, because it signs in at a provider, must have signed in within the last minutes.
    """
    if password:
        return confirm_password(engine, principal, password)
    throttle, user = _begin_confirmation(engine, principal)
    if code and user.totp_confirmed_at is not None:
        with engine.begin() as connection:
            row = query_one(connection, _LOCK_FACTORS, SignInFactors, id=user.id)
            if row.totp_secret is None or not totp.check(connection, keyring, user.id, row.totp_secret, code):
                raise NotSignedIn("the code is wrong or was already used")
    elif user.password_hash is not None or user.totp_confirmed_at is not None:
        raise ConfirmationNeeded("enter your password, or a code of your second factor")
    elif not _is_fresh(engine, principal):
        raise ConfirmationNeeded("sign out and sign in again: this needs a sign-in within the last minutes")
    throttle.record_success(principal.name, principal.client_address, str(principal.session_id))
    return user


def _begin_confirmation(engine: Engine, principal: Principal) -> tuple[SignInThrottle, User]:
    """Failures count for this session only."""
    assert principal.user_id is not None
    throttle = SignInThrottle(engine)
    throttle.take(principal.name, principal.client_address, str(principal.session_id))
    with engine.connect() as connection:
        return throttle, users.load(connection, principal.user_id)


def _is_fresh(engine: Engine, principal: Principal) -> bool:
    with engine.connect() as connection:
        return query_optional(connection, _IS_FRESH, bool, id=principal.session_id, seconds=_FRESH_SECONDS) is True


def _record_failure(engine: Engine, attempt: Attempt, user: User | None, what: str) -> None:
    # users type passwords into the wrong field: only an address is written to the log
    named = attempt.email if "@" in attempt.email else "(no address)"
    principal = replace(NOBODY, client_address=attempt.client_address, request_id=attempt.request_id)
    with engine.begin() as connection:
        audit.record(connection, principal, "session.refused", "user", user.id if user else None, email=named, wrong=what)


def _principal(user: User, attempt: Attempt) -> Principal:
    return Principal(
        user.email, user.role, frozenset(), user.id, client_address=attempt.client_address, request_id=attempt.request_id
    )
