"""Signing in with OpenID Connect: discovery, PKCE, an ID token that is checked in full, and roles by group."""

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

import orjson
import requests
from authlib.common.errors import AuthlibBaseError
from authlib.integrations.requests_client import OAuth2Session
from joserfc import jwt
from joserfc.errors import JoseError
from joserfc.jwk import KeySet
from sqlalchemy import Connection, Engine, text

from archiver.config import Settings
from archiver.errors import Conflict, NotAllowed, NotReady, NotSignedIn, UsageError, WrongKey
from archiver.models.states import Role
from archiver.secrets import Keyring
from archiver.services import api_keys, users
from archiver.services.principal import Principal
from archiver.services.sessions import NewSession
from archiver.services.sign_in import open_session
from archiver.services.users import User

_PURPOSE = b"oidc sign-in"
_MINUTES = 10
_TIMEOUT_SECONDS = 10
_KEPT_SECONDS = 3600
_LEEWAY_SECONDS = 60
_ALGORITHMS = ["RS256", "RS384", "RS512", "PS256", "PS384", "PS512", "ES256", "ES384", "ES512", "EdDSA"]
"""No `none`, and nothing with a shared secret."""
_SCOPE = "openid email profile"


@dataclass(frozen=True, slots=True)
class Started:
    url: str
    """Where the browser goes."""
    cookie: str
    """What it brings back, sealed."""


class Provider:
    """One OpenID provider. Its documents are fetched when they are needed, and kept for an hour."""

    def __init__(self, settings: Settings) -> None:
        assert settings.oidc_issuer is not None
        assert settings.oidc_client_id is not None
        assert settings.archiver_url is not None
        self.settings = settings
        self.issuer = settings.oidc_issuer.get_secret_value()
        self.client_id = settings.oidc_client_id
        self.redirect_uri = settings.archiver_url.get_secret_value().rstrip("/") + "/api/v1/oidc/callback"
        self._lock = threading.Lock()
        self._kept: dict[str, tuple[float, dict[str, Any]]] = {}

    def start(self, keyring: Keyring, return_to: str | None) -> Started:
        state, nonce, verifier = (secrets.token_urlsafe(32) for _ in range(3))
        with self._session() as client:
            address = self._metadata()["authorization_endpoint"]
            url, _ = client.create_authorization_url(address, state=state, nonce=nonce, code_verifier=verifier)
        kept = {
            "state": state,
            "nonce": nonce,
            "verifier": verifier,
            "to": local_path(return_to),
            "until": time.time() + _MINUTES * 60,
        }
        return Started(url, base64.urlsafe_b64encode(keyring.seal(orjson.dumps(kept), _PURPOSE)).decode())

    def finish(
        self, keyring: Keyring, cookie: str | None, state: str, code: str, first_use: Callable[[str], bool]
    ) -> tuple[dict[str, Any], str]:
        """The claims of the one who came back, and where they wanted to go. `first_use`: this state was not used before."""
        kept = _opened(keyring, cookie)
        if not hmac.compare_digest(str(kept["state"]).encode(), state.encode("utf-8", "replace")) or not first_use(state):
            raise NotSignedIn("this sign-in was not begun here, or has been used: begin again")
        try:
            with self._session() as client:
                token = client.fetch_token(
                    self._metadata()["token_endpoint"], code=code, code_verifier=kept["verifier"], timeout=_TIMEOUT_SECONDS
                )
                claims = self._claims(str(token.get("id_token", "")), str(kept["nonce"]))
                if self.settings.oidc_groups_claim not in claims or "email" not in claims:
                    claims = {**self._userinfo(client, claims["sub"]), **claims}
        except (AuthlibBaseError, requests.RequestException) as error:
            raise NotSignedIn("the provider did not confirm this sign-in") from error
        return claims, str(kept["to"])

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
            raise NotReady(f"the provider calls itself {str(found.get('issuer'))[:200]!r}, not OIDC_ISSUER")
        return found

    def _fetch(self, url: str, *, again: bool = False) -> dict[str, Any]:
        with self._lock:
            at, value = self._kept.get(url, (0.0, {}))
            if not again and time.monotonic() - at < _KEPT_SECONDS and value:
                return value
            try:
                answer = requests.get(url, timeout=_TIMEOUT_SECONDS)
                answer.raise_for_status()
                fetched = answer.json()
            except (requests.RequestException, ValueError) as error:
                raise NotReady("the OpenID provider does not answer as it should") from error
            if not isinstance(fetched, dict):
                raise NotReady("the OpenID provider does not answer as it should")
            self._kept[url] = time.monotonic(), fetched
            return fetched

    def _claims(self, id_token: str, nonce: str) -> dict[str, Any]:
        """Signed by this issuer, for us, now, and for this very sign-in."""
        for again in (False, True):  # a provider that has changed its keys is asked for them once more
            try:
                keys = KeySet.import_key_set(self._fetch(self._metadata()["jwks_uri"], again=again))  # type: ignore[arg-type]
                claims: dict[str, Any] = jwt.decode(id_token, keys, algorithms=_ALGORITHMS).claims
                break
            except (JoseError, ValueError) as error:
                if again:
                    raise NotSignedIn("the provider's token can't be trusted") from error
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
            raise NotSignedIn("the provider's token can't be trusted")
        return claims

    def _userinfo(self, client: OAuth2Session, subject: str) -> dict[str, Any]:
        address = self._metadata().get("userinfo_endpoint")
        if not address:
            return {}
        answer = client.get(address, timeout=_TIMEOUT_SECONDS)
        found = answer.json() if answer.ok else {}
        return found if isinstance(found, dict) and found.get("sub") == subject else {}


def local_path(return_to: str | None) -> str:
    """A path on this very server, or its root: nobody is sent elsewhere."""
    if not return_to or not return_to.startswith("/") or return_to.startswith(("//", "/\\")):
        return "/"
    if any(ord(char) < 0x21 or char == "\\" or ord(char) == 0x7F for char in return_to):
        return "/"
    return return_to[:1000]


def role_of(settings: Settings, claims: dict[str, Any]) -> Role:
    given = claims.get(settings.oidc_groups_claim, [])
    groups = {str(one) for one in (given if isinstance(given, list) else [given])}
    for group, role in settings.oidc_roles:
        if group == "*" or group in groups:
            return Role(role)
    raise NotAllowed("your groups give no role here")


def sign_in(
    engine: Engine, settings: Settings, who: Principal, claims: dict[str, Any], user_agent: str | None
) -> tuple[User, NewSession, bool]:
    """The user of this subject, or of this verified address, or a new one. Their role is what their groups say now.

    The last value: something about the user has changed.
    """
    subject = f"{claims['iss']}|{claims['sub']}"
    try:
        role = role_of(settings, claims)
    except NotAllowed:
        _shut_out(engine, who, subject)
        raise
    if claims.get("email_verified") is not True or not claims.get("email"):
        raise NotAllowed("the provider does not say that your address is verified")
    with engine.begin() as connection:
        known = connection.execute(text("SELECT id FROM users WHERE oidc_subject = :subject"), {"subject": subject}).scalar()
        user = users.load(connection, known) if known else _link_or_add(connection, who, claims, subject, role)
        changed = known is None or user.role is not role
        if user.disabled_at is not None:
            raise NotSignedIn("this account is disabled")
        acting = Principal(user.email, role, frozenset(), user.id, client_address=who.client_address, request_id=who.request_id)
        if user.role is not role:
            try:
                with connection.begin_nested():
                    user = users.change(connection, acting, user, role=role)
            except Conflict:
                pass  # the only administrator stays one
        return user, open_session(connection, settings, user, acting, user_agent, "oidc"), changed


def _shut_out(engine: Engine, who: Principal, subject: str) -> None:
    """Whoever has no role any more keeps neither sessions nor the right to read everything, nor keys."""
    with engine.begin() as connection:
        known = connection.execute(text("SELECT id FROM users WHERE oidc_subject = :subject"), {"subject": subject}).scalar()
        if known is not None:
            user = users.load(connection, known)
            users.end_sign_ins(connection, user.id)
            api_keys.revoke_all(connection, who, user.id)
            users.change(connection, who, user, may_read_all=False)


def _link_or_add(connection: Connection, who: Principal, claims: dict[str, Any], subject: str, role: Role) -> User:
    email = users.clean_email(str(claims["email"]))
    known = users.by_email(connection, email)
    if known is not None and known.email != email:
        # equal but for letter case: which of both the provider means can't be known
        raise NotAllowed(f"your address is known here as {known.email}: an administrator has to make them the same")
    if known is None:
        name = str(claims.get("name") or "") or None
        return users.add(connection, who, email, role=role, name=name, oidc_subject=subject)
    linked = connection.execute(
        text(
            "UPDATE users SET oidc_subject = :subject, address_verified_at = coalesce(address_verified_at, now())"
            " WHERE id = :id AND oidc_subject IS NULL"
        ),
        {"subject": subject, "id": known.id},
    )
    if not linked.rowcount:
        raise NotAllowed("this address belongs to another account of the provider")
    return known


def _opened(keyring: Keyring, cookie: str | None) -> dict[str, Any]:
    try:
        kept: dict[str, Any] = orjson.loads(keyring.unseal(base64.urlsafe_b64decode((cookie or "").encode()), _PURPOSE))
    except (WrongKey, binascii.Error, ValueError, IndexError):
        raise NotSignedIn("this sign-in was not begun here, or took too long: begin again") from None
    if float(kept["until"]) < time.time():
        raise NotSignedIn("this sign-in was not begun here, or took too long: begin again")
    return kept


def provider_of(settings: Settings) -> Provider:
    if settings.oidc_issuer is None:
        raise UsageError("sign-in by OpenID Connect is not set up (OIDC_ISSUER)")
    return Provider(settings)
