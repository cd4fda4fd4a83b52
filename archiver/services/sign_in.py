"""Signing in with a password and, where it is on, a second factor. A wrong account, password or code all look alike."""

from __future__ import annotations

from dataclasses import dataclass, field, replace

from sqlalchemy import Connection, Engine, text

from archiver.config import Settings
from archiver.errors import NotSignedIn, UsageError
from archiver.secrets import Keyring
from archiver.services import audit, devices, passwords, sessions, totp, users
from archiver.services.principal import NOBODY, Principal
from archiver.services.sessions import NewSession
from archiver.services.throttle import Throttle
from archiver.services.users import User

_FRESH_SECONDS = 600


class CodeNeeded(NotSignedIn):
    """The password is right, and the second factor is on."""


class ConfirmationNeeded(UsageError):
    """This is not done on the strength of a session alone."""

    code = "confirmation_needed"


@dataclass(frozen=True, slots=True)
class Attempt:
    email: str
    password: str = field(repr=False)
    code: str | None = field(default=None, repr=False)
    client_address: str | None = None
    user_agent: str | None = None
    request_id: str | None = None
    replaces: str | None = field(default=None, repr=False)
    """The token of the session that the client had before: it ends."""
    device: str | None = field(default=None, repr=False)
    """What the client holds of an earlier sign-in (archiver.services.devices)."""


def sign_in(engine: Engine, settings: Settings, keyring: Keyring, attempt: Attempt) -> tuple[User, NewSession]:
    throttle, device = Throttle(engine), devices.known_device(keyring, attempt.device, attempt.email)
    throttle.take(attempt.email, attempt.client_address, device)
    with engine.connect() as connection:
        user = users.by_email(connection, attempt.email)
    right = passwords.verify(user.password_hash if user else None, attempt.password)
    if user is None or not right or user.disabled_at is not None:
        _failed(engine, attempt, user, "password")
        raise NotSignedIn("the address or the password is wrong")
    session = _second_step(engine, settings, keyring, attempt, user)
    throttle.succeeded(attempt.email, attempt.client_address, device)
    return user, session


def _second_step(engine: Engine, settings: Settings, keyring: Keyring, attempt: Attempt, user: User) -> NewSession:
    if user.totp_confirmed_at is not None and not attempt.code:
        raise CodeNeeded("give the code of your second factor as well")
    who = _principal(user, attempt)
    with engine.begin() as connection:
        # held until the session is there: a password that is changed meanwhile ends this sign-in, too
        row = connection.execute(
            text("SELECT totp_secret, totp_confirmed_at, password_hash, disabled_at FROM users WHERE id = :id FOR UPDATE"),
            {"id": user.id},
        ).first()
        if (
            row is not None
            and row.password_hash == user.password_hash
            and row.disabled_at is None
            and (
                row.totp_confirmed_at is None
                or totp.check(connection, keyring, user.id, bytes(row.totp_secret), attempt.code or "")
            )
        ):
            return _open(connection, settings, attempt, user, who)
    _failed(engine, attempt, user, "code")
    raise NotSignedIn("the code is wrong, or was used already")


def _open(connection: Connection, settings: Settings, attempt: Attempt, user: User, who: Principal) -> NewSession:
    assert user.password_hash is not None
    if attempt.replaces:
        sessions.end_token(connection, attempt.replaces)
    if passwords.outdated(user.password_hash):
        connection.execute(
            text("UPDATE users SET password_hash = :hash WHERE id = :id"),
            {"hash": passwords.hash_password(attempt.password), "id": user.id},
        )
    return open_session(connection, settings, user, who, attempt.user_agent, "password")


def open_session(
    connection: Connection, settings: Settings, user: User, who: Principal, user_agent: str | None, how: str
) -> NewSession:
    """`how`: password or oidc. Only with a password our own second factor was asked for."""
    session = sessions.start(connection, settings, user.id, who.client_address, user_agent)
    connection.execute(text("UPDATE users SET last_sign_in_at = now() WHERE id = :id"), {"id": user.id})
    second_factor = how == "password" and user.totp_confirmed_at is not None
    audit.record(connection, who, "session.started", "session", session.id, how=how, second_factor=second_factor)
    return session


def sign_out(engine: Engine, who: Principal) -> None:
    assert who.session_id is not None
    with engine.begin() as connection:
        sessions.end(connection, who, who.session_id)


def confirm_password(engine: Engine, who: Principal, password: str) -> User:
    """Before something that a stolen session must not be able to do."""
    throttle, user = _asked_again(engine, who)
    if not passwords.verify(user.password_hash, password):
        raise NotSignedIn("the password is wrong")
    throttle.succeeded(who.name, who.client_address, str(who.session_id))
    return user


def confirm(engine: Engine, keyring: Keyring, who: Principal, password: str | None, code: str | None) -> User:
    """The same with the password or a code of the second factor, whichever is given.

    An account that has neither (it signs in at a provider) has to have signed in within the last minutes.
    """
    if password:
        return confirm_password(engine, who, password)
    throttle, user = _asked_again(engine, who)
    if code and user.totp_confirmed_at is not None:
        with engine.begin() as connection:
            sealed = connection.execute(
                text("SELECT totp_secret FROM users WHERE id = :id FOR UPDATE"), {"id": user.id}
            ).scalar()
            if sealed is None or not totp.check(connection, keyring, user.id, bytes(sealed), code):
                raise NotSignedIn("the code is wrong, or was used already")
    elif user.password_hash is not None or user.totp_confirmed_at is not None:
        raise ConfirmationNeeded("give your password, or a code of your second factor")
    elif not _is_fresh(engine, who):
        raise ConfirmationNeeded("sign out and in again first: this needs a sign-in of the last minutes")
    throttle.succeeded(who.name, who.client_address, str(who.session_id))
    return user


def _asked_again(engine: Engine, who: Principal) -> tuple[Throttle, User]:
    """Failed tries count for this session alone."""
    assert who.user_id is not None
    throttle = Throttle(engine)
    throttle.take(who.name, who.client_address, str(who.session_id))
    with engine.connect() as connection:
        return throttle, users.load(connection, who.user_id)


def _is_fresh(engine: Engine, who: Principal) -> bool:
    statement = text("SELECT created_at > now() - make_interval(secs => :seconds) FROM sessions WHERE id = :id")
    with engine.connect() as connection:
        return bool(connection.execute(statement, {"id": who.session_id, "seconds": _FRESH_SECONDS}).scalar())


def _failed(engine: Engine, attempt: Attempt, user: User | None, what: str) -> None:
    # people type passwords into the wrong field: what is no address is not written down
    named = attempt.email if "@" in attempt.email else "(no address)"
    who = replace(NOBODY, client_address=attempt.client_address, request_id=attempt.request_id)
    with engine.begin() as connection:
        audit.record(connection, who, "session.refused", "user", user.id if user else None, email=named, wrong=what)


def _principal(user: User, attempt: Attempt) -> Principal:
    return Principal(
        user.email, user.role, frozenset(), user.id, client_address=attempt.client_address, request_id=attempt.request_id
    )
