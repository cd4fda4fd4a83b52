"""Browser sign-in for an IMAP account, with the presets of connectors.imap.presets or the addresses in the settings."""

from __future__ import annotations

from connectors.code_sign_in import CodeSignIn, OAuthApp
from connectors.errors import AuthFailed
from connectors.imap.presets import OAUTH_PRESETS
from connectors.imap.settings import ImapSecrets, ImapSettings


class ImapSignIn(CodeSignIn):
    def __init__(self, settings: ImapSettings, given: ImapSecrets) -> None:
        preset = OAUTH_PRESETS.get(settings.oauth_provider or "")
        if settings.auth == "password" or not (
            settings.oauth_auth_url and settings.oauth_token_url and settings.oauth_client_id
        ):
            raise AuthFailed(
                "sign-in needs oauth_provider and oauth_client_id, or auth, oauth_auth_url, oauth_token_url and oauth_client_id"
            )
        extra = dict(preset.extra) if preset else {}
        if settings.user and "@" in settings.user:
            extra["login_hint"] = settings.user
        app = OAuthApp(
            preset.title if preset else settings.host,
            settings.oauth_auth_url,
            settings.oauth_token_url,
            settings.oauth_client_id,
            settings.oauth_scope or "",
            given.client_secret.get_secret_value() if given.client_secret else "",
            settings.oauth_device_url,
            extra,
        )
        super().__init__(app)
