"""Access tokens: from a service account's key on behalf of a user, or from the refresh token of a sign-in.

Each is valid for about an hour. google-auth obtains them, over our connections. If our clock is wrong, which it can't correct,
the request is repeated with the time of Google's clock.
"""

from __future__ import annotations

import hashlib
import json
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Protocol
from urllib.parse import urlencode

from connectors.errors import AuthFailed, Throttled, Unavailable, first_line
from connectors.extras import LazyModule
from connectors.google.settings import signer
from connectors.http import HttpClient, http_date, read_body, retry_after
from connectors.oauth import TokenCache

if TYPE_CHECKING:
    from google.auth import exceptions, jwt
    from google.oauth2 import credentials, service_account
else:
    exceptions = LazyModule("google.auth.exceptions", "google")
    jwt = LazyModule("google.auth.jwt", "google")
    credentials = LazyModule("google.oauth2.credentials", "google")
    service_account = LazyModule("google.oauth2.service_account", "google")

GMAIL_SCOPE = "https://www.googleapis.com/auth/gmail.readonly"
GMAIL_WRITE_SCOPE = "https://www.googleapis.com/auth/gmail.modify"
"""To restore mail, and to move archived mail to the trash."""
USERS_SCOPE = "https://www.googleapis.com/auth/admin.directory.user.readonly"
MEMBERS_SCOPE = "https://www.googleapis.com/auth/admin.directory.group.member.readonly"

_AUDIENCE = "https://oauth2.googleapis.com/token"
_LIFE_SECONDS = 3600
_PAUSE_SECONDS = 5.0
_SKEW_SECONDS = 30
_ANSWER_BYTES = 1 << 20


class GoogleTokens(Protocol):
    def get(self, http: HttpClient) -> str:
        """A token that should be valid. Raises AuthFailed if none is available."""

    def forget(self, token: str) -> None:
        """Drops a token that the server no longer accepts."""


_TOKENS = TokenCache()


class DelegatedTokens:
    """A service account on behalf of one user (domain-wide delegation)."""

    def __init__(self, key: Mapping[str, Any], subject: str, scopes: Sequence[str]) -> None:
        self._key, self._subject, self._scopes = key, subject, scopes
        who = [key["private_key"], key["client_email"], key["token_uri"], subject, *scopes]
        self._name = hashlib.sha256("\0".join(who).encode()).hexdigest()

    def get(self, http: HttpClient) -> str:
        return _TOKENS.get(self._name, lambda: self._ask(http))

    def forget(self, token: str) -> None:
        _TOKENS.forget(self._name, token)

    def _ask(self, http: HttpClient) -> tuple[str, float]:
        key = signer(self._key["private_key"], str(self._key.get("private_key_id", "")))
        server = _TokenServer(http)
        email, url = self._key["client_email"], self._key["token_uri"]
        delegated = service_account.Credentials(  # type: ignore[no-untyped-call]
            key, email, url, scopes=self._scopes, subject=self._subject
        )
        _refresh(delegated, server)
        if "Invalid JWT" in str(server.answer.get("error_description", "")) and abs(server.ahead_seconds) > _SKEW_SECONDS:
            server.post(url, self._form(time.time() + server.ahead_seconds))  # our clock is wrong, Google's is not
        if "access_token" not in server.answer:
            raise AuthFailed(_delegation_problem(server.answer, self._key, self._subject, self._scopes))
        return _token(server.answer)

    def _form(self, now: float) -> dict[str, str]:
        """RFC 7523, section 2.1."""
        claims = {
            "iss": self._key["client_email"],
            "sub": self._subject,
            "scope": " ".join(self._scopes),
            "aud": _AUDIENCE,
            "iat": int(now),
            "exp": int(now) + _LIFE_SECONDS,
        }
        key = signer(self._key["private_key"], str(self._key.get("private_key_id", "")))
        signed: bytes = jwt.encode(key, claims)  # type: ignore[no-untyped-call]
        return {"grant_type": "urn:ietf:params:oauth:grant-type:jwt-bearer", "assertion": signed.decode()}


class RefreshedTokens:
    """An account whose owner has signed in."""

    def __init__(
        self,
        token_url: str,
        client_id: str,
        client_secret: str,
        refresh_token: str,
        save: Callable[[Mapping[str, str]], None],
    ) -> None:
        self._url, self._save = token_url, save
        self._client_id, self._client_secret, self._refresh_token = client_id, client_secret, refresh_token
        who = (token_url, client_id, client_secret, refresh_token)
        self._name = hashlib.sha256("\0".join(who).encode()).hexdigest()

    def get(self, http: HttpClient) -> str:
        return _TOKENS.get(self._name, lambda: self._ask(http))

    def forget(self, token: str) -> None:
        _TOKENS.forget(self._name, token)

    def _ask(self, http: HttpClient) -> tuple[str, float]:
        if not self._refresh_token:
            raise AuthFailed("the account has not signed in yet: run `archiver source edit NAME --sign-in`")
        server = _TokenServer(http)
        signed_in = credentials.Credentials(  # type: ignore[no-untyped-call]
            None,
            refresh_token=self._refresh_token,
            token_uri=self._url,
            client_id=self._client_id,
            client_secret=self._client_secret,
        )
        _refresh(signed_in, server)
        if "access_token" not in server.answer:
            raise AuthFailed(_sign_in_problem(server.answer))
        if server.answer.get("refresh_token"):
            self._save({"refresh_token": str(server.answer["refresh_token"])})
        return _token(server.answer)


def _refresh(given: credentials.Credentials | service_account.Credentials, server: _TokenServer) -> None:
    """Afterwards the server's answer says what it did, in more detail than the library's error."""
    try:
        given.refresh(server)  # type: ignore[no-untyped-call]
    except (exceptions.GoogleAuthError, ValueError, TypeError, OverflowError) as error:
        if not server.answer:
            raise AuthFailed(f"no access token could be requested: {first_line(error)}") from None


@dataclass(slots=True)
class _TokenServer:
    """Our HTTP client in the form that google-auth expects (google.auth.transport.Request). Its own retries would sleep on when
    the connector is closed, so errors that pass are raised here."""

    http: HttpClient
    answer: dict[str, Any] = field(default_factory=dict)
    ahead_seconds: float = 0.0
    """How far the server's clock is ahead of ours."""

    def post(self, url: str, form: Mapping[str, str]) -> dict[str, Any]:
        self(url, "POST", urlencode(form).encode(), {"Content-Type": "application/x-www-form-urlencoded"})
        return self.answer

    def __call__(
        self, url: str, method: str = "GET", body: bytes | None = None, headers: Any = None, **_: Any
    ) -> TokenServerResponse:
        with self.http.request(method, url, content=body, headers=headers) as response:
            status, data = response.status_code, read_body(response, _ANSWER_BYTES, "Google's token server")
        if status == 429 or (status >= 500 and "retry-after" in response.headers):
            raise Throttled("Google's token server asks for a pause", retry_after(response.headers, _PAUSE_SECONDS))
        if status >= 500 or status == 408:
            raise Unavailable(f"Google's token server responded with HTTP {status}")
        try:
            said = json.loads(data)
        except ValueError:
            said = None
        if not isinstance(said, dict):
            raise Unavailable(f"Google's token server returned an invalid response (HTTP {status})")
        self.answer, self.ahead_seconds = said, _ahead(response.headers.get("date", ""))
        return TokenServerResponse(status, response.headers, data)


@dataclass(frozen=True, slots=True)
class TokenServerResponse:
    """google.auth.transport.Response"""

    status: int
    headers: Mapping[str, str]
    data: bytes


def _ahead(date: str) -> float:
    at = http_date(date)
    return at.timestamp() - time.time() if at else 0.0


def _token(answer: Mapping[str, Any]) -> tuple[str, float]:
    seconds = answer.get("expires_in")
    return str(answer["access_token"]), float(seconds) if isinstance(seconds, int | float) else float(_LIFE_SECONDS)


def _delegation_problem(answer: Mapping[str, Any], key: Mapping[str, Any], subject: str, scopes: Sequence[str]) -> str:
    """Names the missing setup step, derived from Google's response. Shows codes and descriptions, never what we sent."""
    error, said = str(answer.get("error", "")), str(answer.get("error_description", ""))
    if error in ("unauthorized_client", "access_denied"):
        return (
            f"domain-wide delegation is missing: in the Admin console, Security > Access and data control > API controls >"
            f" Manage domain-wide delegation, the client ID {key['client_id']} needs the scope {' and '.join(scopes)}"
            f" (changes there may take a while; Google says: {error})"
        )
    if error == "invalid_grant" and "Invalid email" in said:
        return f"there is no user {subject} in this Workspace, or the account is suspended (Google says: {said})"
    if error == "invalid_grant" and "Signature" in said:
        return f"the key of {key['client_email']} was deleted: create one in the Google Cloud console (Google says: {said})"
    if error == "invalid_grant" and "account not found" in said.lower():
        return f"the service account {key['client_email']} no longer exists (Google says: {said})"
    if error == "invalid_grant" and "Invalid JWT" in said:
        return f"Google rejects the time of this machine: correct its clock (Google says: {said})"
    if error in ("disabled_client", "invalid_client"):
        return f"the service account {key['client_email']} is disabled (Google says: {error})"
    return f"Google denies access on behalf of {subject}: {error} {said}".strip()


def _sign_in_problem(answer: Mapping[str, Any]) -> str:
    error, said = str(answer.get("error", "")), str(answer.get("error_description", ""))
    if error == "invalid_grant":
        return f"the sign-in has expired or was revoked; sign in again: `archiver source edit NAME --sign-in` ({said or error})"
    if error in ("invalid_client", "unauthorized_client"):
        return f"Google does not recognise this client_id and client_secret ({said or error})"
    return f"Google rejected the request: {error} {said}".strip()
