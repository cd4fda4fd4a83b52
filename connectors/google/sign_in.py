"""Signs in the owner of a Gmail account: OAuth for installed apps, with PKCE (RFC 8252, RFC 7636)."""

from __future__ import annotations

import base64
import hashlib
import secrets
from collections.abc import Mapping
from urllib.parse import urlencode

from connectors.errors import AuthFailed
from connectors.google.settings import GmailSecrets, GmailSettings
from connectors.google.tokens import GMAIL_SCOPE, GMAIL_WRITE_SCOPE, exchange_code
from connectors.http import HttpClient


class GmailSignIn:
    """The code in the redirect is useless without our verifier."""

    def __init__(self, settings: GmailSettings, given: GmailSecrets) -> None:
        self._settings, self._secret = settings, given.client_secret.get_secret_value()
        self._http = HttpClient()
        self._verifier = secrets.token_urlsafe(64)
        self._state = secrets.token_urlsafe(24)
        self._redirect_uri = ""

    def start_in_browser(self, redirect_uri: str) -> str:
        self._redirect_uri = redirect_uri
        digest = hashlib.sha256(self._verifier.encode()).digest()
        question = {
            "client_id": self._settings.client_id,
            "redirect_uri": redirect_uri,
            "response_type": "code",
            "scope": GMAIL_WRITE_SCOPE if self._settings.write_access else GMAIL_SCOPE,
            "code_challenge": base64.urlsafe_b64encode(digest).decode().rstrip("="),
            "code_challenge_method": "S256",
            "state": self._state,
            "access_type": "offline",
            "prompt": "consent",  # without it, Google returns a refresh token only the first time
            "login_hint": self._settings.address,
        }
        return f"{self._settings.auth_url}?{urlencode(question)}"

    def complete_in_browser(self, query: Mapping[str, str]) -> dict[str, str]:
        if not secrets.compare_digest(query.get("state", "").encode(), self._state.encode()):
            raise AuthFailed("this redirect belongs to another sign-in; start again")
        if query.get("error") or not query.get("code"):
            raise AuthFailed(f"Google did not grant access: {query.get('error') or 'no code'}")
        form = {
            "code": query["code"],
            "code_verifier": self._verifier,
            "client_id": self._settings.client_id,
            "redirect_uri": self._redirect_uri,
        }
        if self._secret:
            form["client_secret"] = self._secret
        return {"refresh_token": exchange_code(self._http, self._settings.token_url, form)}

    def close(self) -> None:
        self._http.close()
