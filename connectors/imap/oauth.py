"""Exchanges a refresh token for an access token (RFC 6749, section 6)."""

from __future__ import annotations

import json
import urllib.error
import urllib.parse
import urllib.request

from connectors.base import Context
from connectors.errors import AuthFailed, Unavailable
from connectors.imap.settings import ImapSecrets, ImapSettings

_ANSWER_BYTES = 1 << 20


class Token:
    """The access token of a source; renewed when the server rejects it, and stored for later jobs."""

    def __init__(self, settings: ImapSettings, secrets: ImapSecrets, context: Context) -> None:
        self._settings, self._secrets, self._context = settings, secrets, context
        self.value = secrets.token.get_secret_value() if secrets.token else None

    @property
    def can_renew(self) -> bool:
        return bool(self._settings.auth != "password" and self._settings.oauth_token_url and self._secrets.refresh_token)

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
        host = urllib.parse.urlsplit(self._settings.oauth_token_url).hostname
        try:
            request = urllib.request.Request(self._settings.oauth_token_url, urllib.parse.urlencode(form).encode())  # noqa: S310
            with urllib.request.urlopen(request, timeout=self._settings.connect_timeout_seconds) as answer:  # noqa: S310
                given = json.loads(answer.read(_ANSWER_BYTES))
            self.value = str(given["access_token"])
        except urllib.error.HTTPError as error:
            error.close()
            if error.code in (400, 401, 403):
                raise AuthFailed(f"{host} rejected the refresh token (HTTP {error.code})") from None
            raise Unavailable(f"{host} returned no token (HTTP {error.code})") from None
        except (OSError, ValueError, KeyError, TypeError) as error:
            raise Unavailable(f"{host} returned no token ({type(error).__name__})") from None
        renewed = {"token": self.value}
        if isinstance(given.get("refresh_token"), str):
            renewed["refresh_token"] = given["refresh_token"]
        self._context.save_credentials(renewed)
