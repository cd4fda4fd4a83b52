"""Signs in the owner of a Gmail account."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from connectors.code_sign_in import CodeSignIn, OAuthApp
from connectors.google.settings import GmailSecrets, GmailSettings
from connectors.google.tokens import GMAIL_SCOPE, GMAIL_WRITE_SCOPE


class GmailSignIn(CodeSignIn):
    def __init__(self, settings: GmailSettings, given: GmailSecrets) -> None:
        # without `prompt`, Google returns a refresh token only the first time
        extra = {"access_type": "offline", "prompt": "consent", "login_hint": settings.address}
        secret = given.client_secret.get_secret_value()
        scope = GMAIL_WRITE_SCOPE if settings.write_access else GMAIL_SCOPE
        super().__init__(
            OAuthApp("Google", settings.auth_url, settings.token_url, settings.client_id, scope, secret, extra=extra)
        )

    def _tokens(self, answer: Mapping[str, Any]) -> dict[str, str]:
        """The access token is requested again when it is needed."""
        return {"refresh_token": super()._tokens(answer)["refresh_token"]}
