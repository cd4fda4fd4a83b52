"""Access tokens: from a service account's key in the name of a user, or from the refresh token of somebody who signed in.

Tokens are kept for the whole process, since connectors come and go; each is good for about an hour by our own clock, which
starts when it arrives. A clock that is wrong is corrected by the server's.
"""

from __future__ import annotations

import hashlib
import json
import threading
import time
from collections import OrderedDict
from collections.abc import Callable, Mapping, Sequence
from email.utils import parsedate_to_datetime
from typing import Any, Protocol
from urllib.parse import urlencode

from google.auth import jwt

from connectors.errors import AuthFailed, Throttled, Unavailable
from connectors.google.http import Line
from connectors.google.settings import signer

GMAIL_SCOPE = "https://www.googleapis.com/auth/gmail.readonly"
USERS_SCOPE = "https://www.googleapis.com/auth/admin.directory.user.readonly"
MEMBERS_SCOPE = "https://www.googleapis.com/auth/admin.directory.group.member.readonly"

_AUDIENCE = "https://oauth2.googleapis.com/token"
_LIFE_SECONDS = 3600
_SPARE_SECONDS = 120.0
_KEPT_AT_MOST = 10_000
_PAUSE_SECONDS = 5.0


class Tokens(Protocol):
    def get(self, line: Line) -> str:
        """One that should be good. AuthFailed: there is none to be had."""

    def forget(self, token: str) -> None:
        """The server does not take it any more."""


class _Kept:
    """The tokens of this process, by who they are for."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._tokens: OrderedDict[str, tuple[str, float]] = OrderedDict()
        self._makers: dict[str, threading.Lock] = {}

    def get(self, name: str, make: Callable[[], tuple[str, float]]) -> str:
        found = self._find(name)
        if found:
            return found
        with self._lock:
            maker = self._makers.setdefault(name, threading.Lock())
        with maker:  # threads that miss the same token ask for it once
            found = self._find(name)
            if found:
                return found
            token, seconds = make()
            with self._lock:
                self._tokens[name] = (token, time.monotonic() + seconds - _SPARE_SECONDS)
                while len(self._tokens) > _KEPT_AT_MOST:
                    old, _ = self._tokens.popitem(last=False)
                    self._makers.pop(old, None)
            return token

    def _find(self, name: str) -> str | None:
        with self._lock:
            token, until = self._tokens.get(name, ("", 0.0))
        return token if time.monotonic() < until else None

    def forget(self, name: str, token: str) -> None:
        with self._lock:
            if self._tokens.get(name, ("",))[0] == token:
                del self._tokens[name]


_kept = _Kept()


class DelegatedTokens:
    """A service account in the name of one user (domain-wide delegation)."""

    def __init__(self, key: Mapping[str, Any], subject: str, scopes: Sequence[str]) -> None:
        self._key, self._subject, self._scopes = key, subject, scopes
        who = [key["private_key"], key["client_email"], key["token_uri"], subject, *scopes]
        self._name = hashlib.sha256("\0".join(who).encode()).hexdigest()

    def get(self, line: Line) -> str:
        return _kept.get(self._name, lambda: self._ask(line))

    def forget(self, token: str) -> None:
        _kept.forget(self._name, token)

    def _ask(self, line: Line, skew_seconds: float = 0.0, again: bool = False) -> tuple[str, float]:
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
        answer, skew = _post(line, self._key["token_uri"], form)
        if "Invalid JWT" in str(answer.get("error_description", "")) and abs(skew) > 30 and not again:
            return self._ask(line, skew, again=True)  # our clock is wrong, Google's is not
        if "access_token" not in answer:
            raise AuthFailed(_delegation_problem(answer, self._key, self._subject, self._scopes))
        return _token(answer)


class RefreshedTokens:
    """One account whose owner has signed in."""

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

    def get(self, line: Line) -> str:
        return _kept.get(self._name, lambda: self._ask(line))

    def forget(self, token: str) -> None:
        _kept.forget(self._name, token)

    def _ask(self, line: Line) -> tuple[str, float]:
        if not self._form["refresh_token"]:
            raise AuthFailed("nobody has signed in yet: `archiver source edit NAME --sign-in`")
        answer, _ = _post(line, self._url, self._form)
        if "access_token" not in answer:
            raise AuthFailed(_sign_in_problem(answer))
        if answer.get("refresh_token"):
            self._save({"refresh_token": str(answer["refresh_token"])})
        return _token(answer)


def exchange_code(line: Line, token_url: str, form: Mapping[str, str]) -> str:
    """The refresh token for the code that signing in gave."""
    answer, _ = _post(line, token_url, {"grant_type": "authorization_code", **form})
    if not answer.get("refresh_token"):
        raise AuthFailed(_sign_in_problem(answer) if "error" in answer else "Google gave no refresh token")
    return str(answer["refresh_token"])


def _post(line: Line, url: str, form: Mapping[str, str]) -> tuple[dict[str, Any], float]:
    """What the server says, and by how many seconds its clock is ahead of ours."""
    headers = {"Content-Type": "application/x-www-form-urlencoded"}
    with line.ask(url, headers, urlencode(form).encode()) as answer:
        status, body, date = answer.status, answer.read(), answer.headers.get("date", "")
        pause = answer.headers.get("retry-after", "")
    if status == 429 or status >= 500:
        if status == 429 or pause:
            raise Throttled("Google's token server asks for a pause", float(pause) if pause.isdigit() else _PAUSE_SECONDS)
        raise Unavailable(f"Google's token server answers {status}")
    try:
        said = json.loads(body)
    except ValueError:
        said = None
    if not isinstance(said, dict):
        raise Unavailable(f"Google's token server gives no sensible answer ({status})")
    return said, _ahead(date)


def _ahead(date: str) -> float:
    try:
        return parsedate_to_datetime(date).timestamp() - time.time()
    except ValueError:
        return 0.0


def _token(answer: Mapping[str, Any]) -> tuple[str, float]:
    seconds = answer.get("expires_in")
    return str(answer["access_token"]), float(seconds) if isinstance(seconds, int | float) else float(_LIFE_SECONDS)


def _delegation_problem(answer: Mapping[str, Any], key: Mapping[str, Any], subject: str, scopes: Sequence[str]) -> str:
    """Which step of the setup is missing, from what Google says. Shows codes and descriptions, never what we sent."""
    error, said = str(answer.get("error", "")), str(answer.get("error_description", ""))
    if error in ("unauthorized_client", "access_denied"):
        return (
            f"domain-wide delegation is missing: in the Admin console, Security > Access and data control > API controls >"
            f" Manage domain-wide delegation, the client ID {key['client_id']} needs the scope {' and '.join(scopes)}"
            f" (a change there may take a while; Google says: {error})"
        )
    if error == "invalid_grant" and "Invalid email" in said:
        return f"there is no user {subject} in this Workspace, or the account is suspended (Google says: {said})"
    if error == "invalid_grant" and "Signature" in said:
        return f"the key of {key['client_email']} was deleted: make a new one in the Google Cloud console (Google says: {said})"
    if error == "invalid_grant" and "account not found" in said.lower():
        return f"the service account {key['client_email']} does not exist any more (Google says: {said})"
    if error == "invalid_grant" and "Invalid JWT" in said:
        return f"Google does not accept the time of this machine: set its clock (Google says: {said})"
    if error in ("disabled_client", "invalid_client"):
        return f"the service account {key['client_email']} is disabled (Google says: {error})"
    return f"Google gives no access in the name of {subject}: {error} {said}".strip()


def _sign_in_problem(answer: Mapping[str, Any]) -> str:
    error, said = str(answer.get("error", "")), str(answer.get("error_description", ""))
    if error == "invalid_grant":
        return f"the sign-in has expired or was revoked, sign in again: `archiver source edit NAME --sign-in` ({said or error})"
    if error in ("invalid_client", "unauthorized_client"):
        return f"Google does not know this client_id and client_secret ({said or error})"
    return f"Google refuses: {error} {said}".strip()
