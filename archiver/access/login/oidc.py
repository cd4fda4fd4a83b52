"""Sign-in with OpenID Connect: discovery, PKCE, full validation of the ID token, and roles by group."""

from __future__ import annotations

import base64
import binascii
import hmac
import secrets
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any
from uuid import UUID

import orjson
import requests
from authlib.common.errors import AuthlibBaseError
from authlib.integrations.requests_client import OAuth2Session
from joserfc import jwt
from joserfc.errors import JoseError
from joserfc.jwk import KeySet
from sqlalchemy import Connection, Engine, text

from archiver.access import api_keys, users
from archiver.access.login.logins import NewSession
from archiver.access.login.sign_in import open_session
from archiver.access.principal import Principal
from archiver.access.users import User
from archiver.config import Settings
from archiver.db.sql import query_optional
from archiver.db.states import UserRole
from archiver.errors import Conflict, NotAllowed, NotReady, NotSignedIn, UsageError, WrongKey
from archiver.secrets import Keyring

_PURPOSE = b"oidc sign-in"
_MINUTES = 10
_TIMEOUT_SECONDS = 10
_CACHE_SECONDS = 3600
_LEEWAY_SECONDS = 60
_ALGORITHMS = ["RS256", "RS384", "RS512", "PS256", "PS384", "PS512", "ES256", "ES384", "ES512", "EdDSA"]
"""No `none`, and nothing with a shared secret."""
_SCOPE = "openid email profile"


@dataclass(frozen=True, slots=True)
class Started:
    url: str
    """Where the browser is sent."""
    cookie: str
    """What it sends back with the callback, sealed."""


class Provider:
    """One OpenID provider. Its documents are fetched on demand and cached for an hour."""

    def __init__(self, settings: Settings) -> None:
        assert settings.oidc_issuer is not None
        assert settings.oidc_client_id is not None
        assert settings.archiver_url is not None
        self.settings = settings
        self.issuer = settings.oidc_issuer.get_secret_value()
        self.client_id = settings.oidc_client_id
        self.redirect_uri = settings.archiver_url.get_secret_value().rstrip("/") + "/api/v1/oidc/callback"
        self._lock = threading.Lock()
        self._cache: dict[str, tuple[float, dict[str, Any]]] = {}

    def start(self, keyring: Keyring, return_to: str | None) -> Started:
        state, nonce, verifier = (secrets.token_urlsafe(32) for _ in range(3))
        with self._session() as client:
            address = self._metadata()["authorization_endpoint"]
            url, _ = client.create_authorization_url(address, state=state, nonce=nonce, code_verifier=verifier)
        attempt = {
            "state": state,
            "nonce": nonce,
            "verifier": verifier,
            "to": local_path(return_to),
            "until": time.time() + _MINUTES * 60,
        }
        return Started(url, base64.urlsafe_b64encode(keyring.seal(orjson.dumps(attempt), _PURPOSE)).decode())

    def finish(
        self, keyring: Keyring, cookie: str | None, state: str, code: str, first_use: Callable[[str], bool]
    ) -> tuple[dict[str, Any], str]:
        """The claims of the user, and the path they wanted to open. `first_use`: whether this state was not used before."""
        attempt = _unseal(keyring, cookie)
        if not hmac.compare_digest(str(attempt["state"]).encode(), state.encode("utf-8", "replace")) or not first_use(state):
            raise NotSignedIn("this sign-in was not started in this browser, or was already completed: start again")
        try:
            with self._session() as client:
                token = client.fetch_token(
                    self._metadata()["token_endpoint"], code=code, code_verifier=attempt["verifier"], timeout=_TIMEOUT_SECONDS
                )
                claims = self._claims(str(token.get("id_token", "")), str(attempt["nonce"]))
                if self.settings.oidc_groups_claim not in claims or "email" not in claims:
                    claims = {**self._userinfo(client, claims["sub"]), **claims}
        except (AuthlibBaseError, requests.RequestException) as error:
            raise NotSignedIn("the OpenID provider did not confirm this sign-in: start again") from error
        return claims, str(attempt["to"])

    def _session(self) -> OAuth2Session:
        secret = self.settings.oidc_client_secret
        return OAuth2Session(
            self.client_id,
            secret.get_secret_value() if secret else None,
            token_endpoint_auth_method="client_secret_post" if secret else "none",
            scope=_SCOPE,
            redirect_uri=self.redirect_uri,
            code_challenge_method="S256",
        )

    def _metadata(self) -> dict[str, Any]:
        found = self._fetch(self.issuer.rstrip("/") + "/.well-known/openid-configuration")
        if found.get("issuer") != self.issuer:
            raise NotReady(
                f"the OpenID provider names {str(found.get('issuer'))[:200]!r} as its issuer: set OIDC_ISSUER to that value"
            )
        return found

    def _fetch(self, url: str, *, refresh: bool = False) -> dict[str, Any]:
        with self._lock:
            at, value = self._cache.get(url, (0.0, {}))
            if not refresh and time.monotonic() - at < _CACHE_SECONDS and value:
                return value
            try:
                answer = requests.get(url, timeout=_TIMEOUT_SECONDS)
                answer.raise_for_status()
                fetched = answer.json()
            except (requests.RequestException, ValueError) as error:
                raise NotReady("the OpenID provider sent an invalid response") from error
            if not isinstance(fetched, dict):
                raise NotReady("the OpenID provider sent an invalid response")
            self._cache[url] = time.monotonic(), fetched
            return fetched

    def _claims(self, id_token: str, nonce: str) -> dict[str, Any]:
        """Signed by this issuer, for this client, still valid, and for this sign-in."""
        for refresh in (False, True):  # the provider may have rotated its keys since they were cached
            try:
                keys = KeySet.import_key_set(self._fetch(self._metadata()["jwks_uri"], refresh=refresh))  # type: ignore[arg-type]
                claims: dict[str, Any] = jwt.decode(id_token, keys, algorithms=_ALGORITHMS).claims
                break
            except (JoseError, ValueError) as error:
                if refresh:
                    raise NotSignedIn("the OpenID provider's token is not valid") from error
        audience = claims.get("aud")
        now = time.time()
        if (
            claims.get("iss") != self.issuer
            or self.client_id not in (audience if isinstance(audience, list) else [audience])
            or claims.get("azp", self.client_id) != self.client_id
            or not isinstance(claims.get("exp"), int | float)
            or claims["exp"] < now - _LEEWAY_SECONDS
            or claims.get("iat", now) > now + _LEEWAY_SECONDS
            or not hmac.compare_digest(str(claims.get("nonce", "")).encode(), nonce.encode())
            or not claims.get("sub")
        ):
            raise NotSignedIn("the OpenID provider's token is not valid")
        return claims

    def _userinfo(self, client: OAuth2Session, subject: str) -> dict[str, Any]:
        address = self._metadata().get("userinfo_endpoint")
        if not address:
            return {}
        answer = client.get(address, timeout=_TIMEOUT_SECONDS)
        found = answer.json() if answer.ok else {}
        return found if isinstance(found, dict) and found.get("sub") == subject else {}


def local_path(return_to: str | None) -> str:
    """A path on this server, or its root: no redirect leaves the server."""
    if not return_to or not return_to.startswith("/") or return_to.startswith(("//", "/\\")):
        return "/"
    if any(ord(char) < 0x21 or char == "\\" or ord(char) == 0x7F for char in return_to):
        return "/"
    return return_to[:1000]


def role_of(settings: Settings, claims: dict[str, Any]) -> UserRole:
    claimed = claims.get(settings.oidc_groups_claim, [])
    groups = {str(group) for group in (claimed if isinstance(claimed, list) else [claimed])}
    for group, role in settings.oidc_roles:
        if group == "*" or group in groups:
            return UserRole(role)
    raise NotAllowed("none of your groups has a role here: ask an administrator")


def sign_in(
    engine: Engine, settings: Settings, principal: Principal, claims: dict[str, Any], user_agent: str | None
) -> tuple[User, NewSession, bool]:
    """The user with this subject, or with this verified address, or a new one. Their role follows their current groups.

    The last value: whether something about the user has changed.
    """
    subject = f"{claims['iss']}|{claims['sub']}"
    try:
        role = role_of(settings, claims)
    except NotAllowed:
        _withdraw_access(engine, principal, subject)
        raise
    if claims.get("email_verified") is not True or not claims.get("email"):
        raise NotAllowed("the OpenID provider does not confirm that your email address is verified")
    with engine.begin() as connection:
        known = query_optional(connection, "SELECT id FROM users WHERE oidc_subject = :subject", UUID, subject=subject)
        user = users.load(connection, known) if known else _link_or_add(connection, principal, claims, subject, role)
        changed = known is None or user.role is not role
        if user.disabled_at is not None:
            raise NotSignedIn("this account is disabled")
        acting = Principal(
            user.email, role, frozenset(), user.id, client_address=principal.client_address, request_id=principal.request_id
        )
        if user.role is not role:
            try:
                with connection.begin_nested():
                    user = users.change(connection, acting, user, role=role)
            except Conflict:
                pass  # the only administrator stays one
        return user, open_session(connection, settings, user, acting, user_agent, "oidc"), changed


def _withdraw_access(engine: Engine, principal: Principal, subject: str) -> None:
    """A user without a role loses their login sessions, their API keys and the right to read all mail."""
    with engine.begin() as connection:
        known = query_optional(connection, "SELECT id FROM users WHERE oidc_subject = :subject", UUID, subject=subject)
        if known is not None:
            user = users.load(connection, known)
            users.end_sessions(connection, user.id)
            api_keys.revoke_all(connection, principal, user.id)
            users.change(connection, principal, user, may_read_all=False)


def _link_or_add(connection: Connection, principal: Principal, claims: dict[str, Any], subject: str, role: UserRole) -> User:
    email = users.clean_email(str(claims["email"]))
    known = users.find_by_email(connection, email)
    if known is not None and known.email != email:
        # the addresses differ only in letter case: it is unknown whether the provider means the same account
        raise NotAllowed(f"your address is registered here as {known.email}: ask an administrator to correct the spelling")
    if known is None:
        name = str(claims.get("name") or "") or None
        return users.add(connection, principal, email, role=role, name=name, oidc_subject=subject)
    linked = connection.execute(
        text(
            "UPDATE users SET oidc_subject = :subject, address_verified_at = coalesce(address_verified_at, now())"
            " WHERE id = :id AND oidc_subject IS NULL"
        ),
        {"subject": subject, "id": known.id},
    )
    if not linked.rowcount:
        raise NotAllowed("this address belongs to another account of the OpenID provider")
    return known


def _unseal(keyring: Keyring, cookie: str | None) -> dict[str, Any]:
    try:
        attempt: dict[str, Any] = orjson.loads(keyring.unseal(base64.urlsafe_b64decode((cookie or "").encode()), _PURPOSE))
    except (WrongKey, binascii.Error, ValueError, IndexError):
        raise NotSignedIn("this sign-in was not started in this browser, or took too long: start again") from None
    if float(attempt["until"]) < time.time():
        raise NotSignedIn("this sign-in was not started in this browser, or took too long: start again")
    return attempt


def provider_of(settings: Settings) -> Provider:
    if settings.oidc_issuer is None:
        raise UsageError("sign-in with OpenID Connect is not configured: set OIDC_ISSUER")
    return Provider(settings)
