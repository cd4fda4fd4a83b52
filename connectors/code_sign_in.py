"""OAuth sign-in of one person: authorization code with PKCE (RFC 6749, RFC 7636), or a code on any device (RFC 8628)."""

from __future__ import annotations

import base64
import hashlib
import json
import secrets
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import urlencode, urlsplit

from connectors.errors import AuthFailed, Unavailable
from connectors.http import HttpClient, read_body

_ANSWER_BYTES = 1 << 20
_PENDING = ("authorization_pending", "slow_down")
_DEVICE_GRANT = "urn:ietf:params:oauth:grant-type:device_code"


@dataclass(frozen=True, slots=True)
class OAuthApp:
    """An app registration at a provider, and the provider's addresses."""

    provider: str
    """Shown to users."""
    auth_url: str
    token_url: str
    client_id: str
    scope: str
    client_secret: str = field(default="", repr=False)
    device_url: str | None = None
    extra: Mapping[str, str] = field(default_factory=dict)
    """Further parameters of the sign-in page."""


class CodeSignIn:
    """One attempt. The code in the redirect is useless without our verifier, which `save` contains."""

    def __init__(self, app: OAuthApp) -> None:
        self._app = app
        self._http = HttpClient()
        self._saved: dict[str, Any] = {"verifier": secrets.token_urlsafe(64), "state": secrets.token_urlsafe(32)}

    @property
    def has_device_code(self) -> bool:
        return self._app.device_url is not None

    def save(self) -> dict[str, Any]:
        return dict(self._saved)

    def restore(self, saved: Mapping[str, Any]) -> None:
        self._saved = dict(saved)

    def start_in_browser(self, redirect_uri: str) -> str:
        self._saved["redirect_uri"] = redirect_uri
        digest = hashlib.sha256(self._saved["verifier"].encode()).digest()
        question = {
            "client_id": self._app.client_id,
            "redirect_uri": redirect_uri,
            "response_type": "code",
            "scope": self._app.scope,
            "code_challenge": base64.urlsafe_b64encode(digest).decode().rstrip("="),
            "code_challenge_method": "S256",
            "state": self._saved["state"],
            **self._app.extra,
        }
        return f"{self._app.auth_url}{'&' if '?' in self._app.auth_url else '?'}{urlencode(question)}"

    def complete_in_browser(self, query: Mapping[str, str]) -> dict[str, str]:
        if not secrets.compare_digest(query.get("state", "").encode(), str(self._saved["state"]).encode()):
            raise AuthFailed("this redirect belongs to another sign-in; start again")
        if query.get("error") or not query.get("code"):
            reason = query.get("error_description") or query.get("error") or "no code"
            raise AuthFailed(f"{self._app.provider} did not grant access: {reason[:300]}")
        form = {
            "grant_type": "authorization_code",
            "code": query["code"],
            "code_verifier": self._saved["verifier"],
            "redirect_uri": self._saved["redirect_uri"],
        }
        return self._tokens(self._post(self._app.token_url, form))

    def start_on_device(self) -> tuple[str, str]:
        if self._app.device_url is None:
            raise AuthFailed(f"{self._app.provider} does not support a code on another device")
        answer = self._post(self._app.device_url, {"scope": self._app.scope})
        if "device_code" not in answer:
            raise self._refusal(answer)
        self._saved |= {"device_code": str(answer["device_code"]), "interval": float(answer.get("interval") or 5)}
        address = answer.get("verification_uri_complete") or answer.get("verification_uri") or answer.get("verification_url")
        return str(address), str(answer.get("user_code", ""))

    def poll_on_device(self) -> dict[str, str] | None:
        answer = self._post(self._app.token_url, {"grant_type": _DEVICE_GRANT, "device_code": self._saved["device_code"]})
        return None if answer.get("error") in _PENDING else self._tokens(answer)

    def complete_on_device(self) -> dict[str, str]:
        while (found := self.poll_on_device()) is None:
            self._http.pause(float(self._saved["interval"]))
        return found

    def close(self) -> None:
        self._http.close()

    def _tokens(self, answer: Mapping[str, Any]) -> dict[str, str]:
        if not isinstance(answer.get("access_token"), str):
            raise self._refusal(answer)
        if not isinstance(answer.get("refresh_token"), str):
            raise AuthFailed(f"{self._app.provider} returned no refresh token: the app must be allowed offline access")
        return {"token": answer["access_token"], "refresh_token": answer["refresh_token"]}

    def _refusal(self, answer: Mapping[str, Any]) -> AuthFailed:
        reason = str(answer.get("error_description") or answer.get("error") or "an answer without a token")
        return AuthFailed(f"{self._app.provider} refused the sign-in: {reason.splitlines()[0][:300]}")

    def _post(self, url: str, form: Mapping[str, str]) -> dict[str, Any]:
        sent = {"client_id": self._app.client_id, **form}
        if self._app.client_secret:
            sent["client_secret"] = self._app.client_secret
        with self._http.request("POST", url, data=sent) as response:
            status, data = response.status_code, read_body(response, _ANSWER_BYTES, "the token server")
        host = urlsplit(url).hostname
        if status >= 500:
            raise Unavailable(f"{host} answered with HTTP {status}")
        try:
            found = json.loads(data)
        except ValueError:
            found = None
        if not isinstance(found, dict):
            raise AuthFailed(f"{host} did not answer as a token server does (HTTP {status})")
        return found
