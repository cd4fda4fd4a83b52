"""The first administrator, made by whoever saw the one-time token that `archiver up` shows. Until then everything is closed."""

from __future__ import annotations

import hashlib
import hmac
import secrets

from sqlalchemy import Connection, Engine, text

from archiver.config import Settings
from archiver.errors import Conflict, NotSignedIn
from archiver.models.states import Role
from archiver.secrets import SecretFolder
from archiver.services import users
from archiver.services.principal import Principal
from archiver.services.throttle import Throttle
from archiver.services.users import User

_FILE = "first-start.token"
_LOCK = text("SELECT pg_advisory_xact_lock(hashtextextended('archiver:first-start', 0))")


def needed(connection: Connection) -> bool:
    return not users.any_user(connection)


def new_token(settings: Settings) -> str:
    """Replaces the one before. Only its hash is kept."""
    token = secrets.token_urlsafe(18)
    SecretFolder(settings.archiver_data).write(_FILE, _hash(token))
    return token


def make_administrator(
    engine: Engine,
    settings: Settings,
    who: Principal,
    token: str,
    *,
    email: str,
    password: str,
    name: str | None,
    own_mail: bool,
) -> User:
    """`own_mail`: this archive is for their own mail, so the address is theirs and mailboxes they add are theirs to read."""
    Throttle(engine).take_address(who.client_address)
    kept = SecretFolder(settings.archiver_data).read(_FILE)
    if kept is None or not hmac.compare_digest(kept, _hash(token)):
        raise NotSignedIn("the token is not the one that `archiver up` showed last")
    with engine.begin() as connection:
        connection.execute(_LOCK)
        if not needed(connection):
            raise Conflict("there is an administrator already: sign in")
        user = users.add(
            connection,
            who,
            email,
            role=Role.ADMINISTRATOR,
            name=name,
            password=password,
            address_verified=own_mail,
            settings={"own_mail": own_mail},
        )
    forget_token(settings)
    return user


def forget_token(settings: Settings) -> None:
    (SecretFolder(settings.archiver_data).path / _FILE).unlink(missing_ok=True)


def _hash(token: str) -> str:
    return hashlib.sha256(token.encode("utf-8", "replace")).hexdigest()
