"""The first administrator. Until there is one, everything is closed.

Whoever has the one-time token, which only the terminal or the log of the web process shows, creates the administrator on the
page; ARCHIVER_ADMIN_EMAIL and ARCHIVER_ADMIN_PASSWORD create it without a person.
"""

from __future__ import annotations

import hashlib
import hmac
import secrets

from sqlalchemy import Connection, Engine, text

from archiver.access import users
from archiver.access.login.throttle import SignInThrottle
from archiver.access.principal import LOCAL_OPERATOR, Principal
from archiver.access.users import User
from archiver.config import Settings
from archiver.db.states import UserRole
from archiver.errors import Conflict, NotSignedIn
from archiver.secrets import SecretFolder

_FILE = "first-start.token"
_LOCK = text("SELECT pg_advisory_xact_lock(hashtextextended('archiver:first-start', 0))")


def is_needed(connection: Connection) -> bool:
    return not users.any_exists(connection)


def new_token(settings: Settings) -> str:
    """Replaces the previous one. Only its hash is stored."""
    token = secrets.token_urlsafe(18)
    SecretFolder(settings.archiver_data).write(_FILE, _hash(token))
    return token


def announcement(engine: Engine, settings: Settings, page: str) -> str | None:
    """What a terminal or log says while there is no user: a link with a new token. None when there are users.

    The token is in the fragment of the link, which browsers do not send: no log of requests ever has it.
    """
    with engine.begin() as connection:
        connection.execute(_LOCK)
        if not is_needed(connection):
            return None
        if settings.archiver_admin_email and settings.archiver_admin_password:
            _add_administrator(
                connection,
                LOCAL_OPERATOR,
                settings.archiver_admin_email,
                settings.archiver_admin_password.get_secret_value(),
                name=None,
                own_mail=settings.archiver_admin_purpose == "own_mail",
            )
            return f"Created the administrator {settings.archiver_admin_email} (ARCHIVER_ADMIN_EMAIL). Sign in at {page}"
    return (
        "There is no user yet. Open this link to create the administrator; it works once:\n\n"
        f"    {page}/welcome#token={new_token(settings)}\n\n"
        "or run `archiver user add EMAIL --role administrator`. Until then everything is closed."
    )


def create_administrator(
    engine: Engine,
    settings: Settings,
    principal: Principal,
    token: str,
    *,
    email: str,
    password: str,
    name: str | None,
    own_mail: bool,
) -> User:
    """`own_mail`: this archive is for their own mail, so they may read every mailbox that belongs to no other user."""
    SignInThrottle(engine).take_address(principal.client_address)
    stored = SecretFolder(settings.archiver_data).read(_FILE)
    if stored is None or not hmac.compare_digest(stored, _hash(token)):
        raise NotSignedIn("That token is not valid. Use the link that the terminal or the log of the web process showed last.")
    with engine.begin() as connection:
        connection.execute(_LOCK)
        if not is_needed(connection):
            raise Conflict("There is an administrator already: sign in.")
        user = _add_administrator(connection, principal, email, password, name=name, own_mail=own_mail)
    delete_token(settings)
    return user


def _add_administrator(
    connection: Connection, principal: Principal, email: str, password: str, *, name: str | None, own_mail: bool
) -> User:
    return users.add(
        connection,
        principal,
        email,
        role=UserRole.ADMINISTRATOR,
        name=name,
        password=password,
        address_verified=own_mail,
        settings={"own_mail": own_mail},
    )


def delete_token(settings: Settings) -> None:
    (SecretFolder(settings.archiver_data).path / _FILE).unlink(missing_ok=True)


def _hash(token: str) -> str:
    return hashlib.sha256(token.encode("utf-8", "replace")).hexdigest()
