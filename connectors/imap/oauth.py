"""Exchanges a refresh token for an access token (RFC 6749, section 6)."""

from __future__ import annotations

import json
from urllib.parse import urlsplit

from connectors.base import Context
from connectors.errors import AuthFailed, Throttled, Unavailable
from connectors.http import HttpClient, read_body, retry_after
from connectors.imap.settings import ImapSecrets, ImapSettings

_ANSWER_BYTES = 1 << 20
_PAUSE_SECONDS = 30.0


class Token:
    """The access token of a source; renewed when the server rejects it, and stored for later jobs."""

    def __init__(self, settings: ImapSettings, secrets: ImapSecrets, context: Context) -> None:
        self._settings, self._secrets, self._context = settings, secrets, context
        self._http = HttpClient()
        self.value = secrets.token.get_secret_value() if secrets.token else None

    @property
    def can_renew(self) -> bool:
        return bool(self._settings.auth != "password" and self._settings.oauth_token_url and self._secrets.refresh_token)

    def close(self) -> None:
        """From any thread."""
        self._http.close()

    def renew(self) -> None:
        """Raises AuthFailed if the refresh token is rejected too."""
        assert self._settings.oauth_token_url is not None, "the caller checked can_renew"
        assert self._secrets.refresh_token is not None
        form = {
            "grant_type": "refresh_token",
            "refresh_token": self._secrets.refresh_token.get_secret_value(),
            "client_id": self._settings.oauth_client_id or "",
        }
        if self._secrets.client_secret:
            form["client_secret"] = self._secrets.client_secret.get_secret_value()
        with self._http.request("POST", self._settings.oauth_token_url, data=form) as response:
            status, data = response.status_code, read_body(response, _ANSWER_BYTES, "the token server")
        host = urlsplit(self._settings.oauth_token_url).hostname
        if status in (400, 401, 403):
            raise AuthFailed(f"{host} rejected the refresh token (HTTP {status})")
        if status == 429 or (status >= 500 and "retry-after" in response.headers):
            raise Throttled(f"{host} asks for a pause", retry_after(response.headers, _PAUSE_SECONDS))
        try:
            given = json.loads(data)
            self.value = str(given["access_token"])
        except (ValueError, KeyError, TypeError):
            raise Unavailable(f"{host} returned no token (HTTP {status})") from None
        renewed = {"token": self.value}
        if isinstance(given.get("refresh_token"), str):
            renewed["refresh_token"] = given["refresh_token"]
        self._context.save_credentials(renewed)
