"""Access tokens: from a service account's key on behalf of a user, or from the refresh token of a sign-in.

Each is valid for about an hour. If our clock is wrong, the request for one is repeated with the time of Google's clock.
"""

from __future__ import annotations

import hashlib
import json
import time
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Protocol
from urllib.parse import urlencode

from connectors.errors import AuthFailed, Throttled, Unavailable
from connectors.extras import LazyModule
from connectors.google.http import GoogleHttpClient
from connectors.google.settings import signer
from connectors.http import http_date, retry_after
from connectors.oauth import TokenCache

if TYPE_CHECKING:
    from google.auth import jwt
else:
    jwt = LazyModule("google.auth.jwt", "google")

GMAIL_SCOPE = "https://www.googleapis.com/auth/gmail.readonly"
USERS_SCOPE = "https://www.googleapis.com/auth/admin.directory.user.readonly"
MEMBERS_SCOPE = "https://www.googleapis.com/auth/admin.directory.group.member.readonly"

_AUDIENCE = "https://oauth2.googleapis.com/token"
_LIFE_SECONDS = 3600
_PAUSE_SECONDS = 5.0


class GoogleTokens(Protocol):
    def get(self, http: GoogleHttpClient) -> str:
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

    def get(self, http: GoogleHttpClient) -> str:
        return _TOKENS.get(self._name, lambda: self._ask(http))

    def forget(self, token: str) -> None:
        _TOKENS.forget(self._name, token)

    def _ask(self, http: GoogleHttpClient, skew_seconds: float = 0.0, again: bool = False) -> tuple[str, float]:
        now = int(time.time() + skew_seconds)
        claims = {
            "iss": self._key["client_email"],
            "sub": self._subject,
            "scope": " ".join(self._scopes),
            "aud": _AUDIENCE,
            "iat": now,
            "exp": now + _LIFE_SECONDS,
        }
        key = signer(self._key["private_key"], str(self._key.get("private_key_id", "")))
        signed: bytes = jwt.encode(key, claims)  # type: ignore[no-untyped-call]
        form = {"grant_type": "urn:ietf:params:oauth:grant-type:jwt-bearer", "assertion": signed.decode()}
        answer, skew = _post(http, self._key["token_uri"], form)
        if "Invalid JWT" in str(answer.get("error_description", "")) and abs(skew) > 30 and not again:
            return self._ask(http, skew, again=True)  # our clock is wrong, Google's is not
        if "access_token" not in answer:
            raise AuthFailed(_delegation_problem(answer, self._key, self._subject, self._scopes))
        return _token(answer)


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
        self._form = {"grant_type": "refresh_token", "client_id": client_id, "refresh_token": refresh_token}
        if client_secret:
            self._form["client_secret"] = client_secret
        self._name = hashlib.sha256("\0".join((token_url, *self._form.values())).encode()).hexdigest()

    def get(self, http: GoogleHttpClient) -> str:
        return _TOKENS.get(self._name, lambda: self._ask(http))

    def forget(self, token: str) -> None:
        _TOKENS.forget(self._name, token)

    def _ask(self, http: GoogleHttpClient) -> tuple[str, float]:
        if not self._form["refresh_token"]:
            raise AuthFailed("the account has not signed in yet: run `archiver source edit NAME --sign-in`")
        answer, _ = _post(http, self._url, self._form)
        if "access_token" not in answer:
            raise AuthFailed(_sign_in_problem(answer))
        if answer.get("refresh_token"):
            self._save({"refresh_token": str(answer["refresh_token"])})
        return _token(answer)


def exchange_code(http: GoogleHttpClient, token_url: str, form: Mapping[str, str]) -> str:
    """Exchanges the code of a sign-in for a refresh token."""
    answer, _ = _post(http, token_url, {"grant_type": "authorization_code", **form})
    if not answer.get("refresh_token"):
        raise AuthFailed(_sign_in_problem(answer) if "error" in answer else "Google returned no refresh token")
    return str(answer["refresh_token"])


def _post(http: GoogleHttpClient, url: str, form: Mapping[str, str]) -> tuple[dict[str, Any], float]:
    """The server's response, and how many seconds its clock is ahead of ours."""
    headers = {"Content-Type": "application/x-www-form-urlencoded"}
    with http.request(url, headers, urlencode(form).encode()) as answer:
        status, body, date = answer.status, answer.read(), answer.headers.get("date", "")
        pause = answer.headers.get("retry-after", "")
    if status == 429 or status >= 500:
        if status == 429 or pause:
            raise Throttled("Google's token server asks for a pause", retry_after(pause, date, _PAUSE_SECONDS))
        raise Unavailable(f"Google's token server responded with HTTP {status}")
    try:
        said = json.loads(body)
    except ValueError:
        said = None
    if not isinstance(said, dict):
        raise Unavailable(f"Google's token server returned an invalid response (HTTP {status})")
    return said, _ahead(date)


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
