"""OAuth of well-known mail providers: everything but the app registration, as data."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal

ProviderName = Literal["google", "microsoft", "yahoo", "fastmail"]


@dataclass(frozen=True, slots=True)
class OAuthPreset:
    """What a provider needs for sign-in with OAuth, apart from the app registration."""

    title: str
    host: str
    auth_url: str
    token_url: str
    scope: str
    device_url: str | None = None
    extra: Mapping[str, str] = field(default_factory=dict)
    mechanism: Literal["xoauth2", "oauthbearer"] = "xoauth2"


_ENTRA = "https://login.microsoftonline.com/common/oauth2/v2.0"
OAUTH_PRESETS: dict[str, OAuthPreset] = {
    "google": OAuthPreset(
        "Google",
        "imap.gmail.com",
        "https://accounts.google.com/o/oauth2/v2/auth",
        "https://oauth2.googleapis.com/token",
        "https://mail.google.com/",
        extra={"access_type": "offline", "prompt": "consent"},  # without it, Google returns a refresh token only once
    ),
    "microsoft": OAuthPreset(
        "Microsoft",
        "outlook.office365.com",
        f"{_ENTRA}/authorize",
        f"{_ENTRA}/token",
        "https://outlook.office.com/IMAP.AccessAsUser.All offline_access",
        device_url=f"{_ENTRA}/devicecode",
    ),
    "yahoo": OAuthPreset(
        "Yahoo",
        "imap.mail.yahoo.com",
        "https://api.login.yahoo.com/oauth2/request_auth",
        "https://api.login.yahoo.com/oauth2/get_token",
        "mail-w",
    ),
    "fastmail": OAuthPreset(
        "Fastmail",
        "imap.fastmail.com",
        "https://api.fastmail.com/oauth/authorize",
        "https://api.fastmail.com/oauth/refresh",
        "https://www.fastmail.com/dev/protocol-imap offline_access",
        mechanism="oauthbearer",
    ),
}
