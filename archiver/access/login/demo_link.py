"""The link that `archiver demo` prints: it signs in as the administrator of the sample organisation, once, within minutes.

It works on an archive of sample data alone (SAMPLE_SOURCES), which only `archiver demo` sets.
"""

from __future__ import annotations

import hashlib
import hmac
import secrets
import time

from sqlalchemy import Connection, Engine

from archiver.access import users
from archiver.access.login.logins import NewSession
from archiver.access.login.sign_in import open_session
from archiver.access.login.throttle import SignInThrottle
from archiver.access.principal import LOCAL_OPERATOR, Principal, rights_of
from archiver.access.users import User
from archiver.config import Settings
from archiver.db.states import UserRole
from archiver.errors import NotFound, NotSignedIn
from archiver.secrets import SecretFolder

EMAIL = "demo@lanternworks.example"
_FILE = "demo-sign-in.token"
_VALID_SECONDS = 15 * 60


def new_token(engine: Engine, settings: Settings) -> str:
    """Replaces the previous one, and creates the demo's administrator where there is none. Only a hash is stored."""
    with engine.begin() as connection:
        _administrator(connection)
    token = secrets.token_urlsafe(18)
    SecretFolder(settings.archiver_data).write(_FILE, f"{int(time.time()) + _VALID_SECONDS} {_hash(token)}")
    return token


def sign_in(engine: Engine, settings: Settings, principal: Principal, token: str, user_agent: str | None) -> NewSession:
    if not settings.sample_sources:
        raise NotFound("This archive holds no sample data.")
    SignInThrottle(engine).take_address(principal.client_address)
    folder = SecretFolder(settings.archiver_data)
    expires, _, stored = (folder.read(_FILE) or "").partition(" ")
    is_valid = bool(stored) and hmac.compare_digest(stored, _hash(token)) and time.time() < int(expires)
    if not is_valid or not _take(folder):
        raise NotSignedIn("This link has been used or has expired. Run `archiver demo` again for a new one.")
    with engine.begin() as connection:
        user = _administrator(connection)
        who = Principal(user.email, user.role, rights_of(user.role), user.id, client_address=principal.client_address)
        return open_session(connection, settings, user, who, user_agent, "demo link")


def _take(folder: SecretFolder) -> bool:
    """Of two requests with the same link, one removes the file and is let in."""
    try:
        (folder.path / _FILE).unlink()
    except FileNotFoundError:
        return False
    return True


def _administrator(connection: Connection) -> User:
    found = users.find_by_email(connection, EMAIL)
    if found is not None:
        return found
    role, settings = UserRole.ADMINISTRATOR, {"own_mail": True}
    return users.add(connection, LOCAL_OPERATOR, EMAIL, role=role, name="Demo", address_verified=False, settings=settings)


def _hash(token: str) -> str:
    return hashlib.sha256(token.encode("utf-8", "replace")).hexdigest()
