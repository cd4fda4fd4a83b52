"""The settings of Google sources."""

from __future__ import annotations

import json
from functools import lru_cache
from typing import TYPE_CHECKING, Annotated, Any, Self
from urllib.parse import urlsplit

from pydantic import AfterValidator, ConfigDict, Field, SecretStr, model_validator

from connectors.extras import LazyModule
from connectors.pace import Pace
from connectors.selection import Destination, ServerSettings, Strict, Texts

if TYPE_CHECKING:
    from google.auth import crypt
else:
    crypt = LazyModule("google.auth.crypt", "google")

TOKEN_URL = "https://oauth2.googleapis.com/token"  # noqa: S105
_LOOPBACK = ("127.0.0.1", "localhost", "::1")


def safe_url(url: str) -> str:
    """Tokens are only sent encrypted, except to a test server on the same machine."""
    parts = urlsplit(url)
    if parts.hostname is None or parts.scheme not in ("http", "https"):
        raise ValueError("expected a URL such as https://gmail.googleapis.com")
    if parts.scheme == "http" and parts.hostname not in _LOOPBACK:
        raise ValueError("expected https, because access tokens are sent there")
    return url.rstrip("/")


Url = Annotated[str, AfterValidator(safe_url)]


def _address(value: str) -> str:
    if value.count("@") != 1 or value.strip() != value or value.startswith("@") or value.endswith("@"):
        raise ValueError("expected an address such as alice@example.org")
    return value


Address = Annotated[str, AfterValidator(_address)]


class GoogleSettings(ServerSettings):
    """What both kinds have in common. For Gmail, `folders_in` and `folders_out` mean labels."""

    units_per_user: int = Field(
        default=6000, ge=60, description="Gmail quota units per minute for one user (15000 for a project older than May 2026)"
    )
    units_per_project: int = Field(default=1_200_000, ge=60, description="Gmail quota units per minute for the whole project")
    units_per_message: int = Field(
        default=20, ge=1, description="quota units per message (5 for a project older than May 2026)"
    )
    parallel: int = Field(default=8, ge=1, le=32, description="messages of one mailbox to fetch at the same time")
    gmail_url: Annotated[Url, Destination.URL] = Field(
        default="https://gmail.googleapis.com", description="base URL of the Gmail API"
    )


class WorkspaceSettings(GoogleSettings):
    admin: Address = Field(description="the administrator on whose behalf users are listed")
    include_suspended: bool = Field(default=False, description="include mailboxes of suspended users")
    include_archived: bool = Field(default=False, description="include mailboxes of archived users")
    groups_in: Texts = Field(default=(), description="only members of these groups (addresses), including nested ones")
    groups_out: Texts = Field(default=(), description="no members of these groups")
    units_in: Texts = Field(default=(), description="only users of these organisational units (/Sales) and their sub-units")
    units_out: Texts = Field(default=(), description="no users of these organisational units and their sub-units")
    customer: str = Field(default="my_customer", description="the customer id, for resellers")
    directory_url: Annotated[Url, Destination.URL] = Field(
        default="https://admin.googleapis.com", description="base URL of the Admin SDK"
    )


class GmailSettings(GoogleSettings):
    address: Address = Field(description="the account's address")
    client_id: str = Field(min_length=1, description="the id of an OAuth client of type `Desktop app`")
    write_access: bool = Field(
        default=False,
        description="ask for permission to restore mail, and to delete it at the source; then sign in again",
    )
    auth_url: Annotated[Url, Destination.URL] = Field(
        default="https://accounts.google.com/o/oauth2/v2/auth", description="URL of the sign-in page"
    )
    token_url: Annotated[Url, Destination.URL] = Field(default=TOKEN_URL, description="URL that issues tokens")


@lru_cache(maxsize=64)
def signer(private_key: str, key_id: str) -> crypt.RSASigner:
    """Cached, because parsing a key takes tens of milliseconds and every slice of every mailbox needs it."""
    made: crypt.RSASigner = crypt.RSASigner.from_string(private_key, key_id)  # type: ignore[no-untyped-call]
    return made


def read_key(text: str) -> dict[str, Any]:
    """Parses a service account's key file. Raises ValueError with the problem, never with the content."""
    try:
        key = json.loads(text)
    except ValueError:
        key = None
    if not isinstance(key, dict):
        raise ValueError("this is not the JSON key file of a service account")
    if key.get("type") != "service_account":
        raise ValueError(f"expected the key of a service account, but this is of type {key.get('type')!r}")
    for name in ("client_email", "client_id", "private_key", "project_id"):
        if not isinstance(key.get(name), str) or not key[name]:
            raise ValueError(f"the key file has no {name}")
    key["token_uri"] = safe_url(str(key.get("token_uri") or TOKEN_URL))
    try:
        signer(key["private_key"], str(key.get("private_key_id", "")))
    except Exception:  # noqa: BLE001 - whatever the library raises, its text may contain the key
        raise ValueError("the private_key in the key file can't be read") from None
    return key


class _Secrets(Strict):
    model_config = ConfigDict(hide_input_in_errors=True)


class WorkspaceSecrets(_Secrets):
    key: SecretStr
    """The service account's key file."""

    @model_validator(mode="after")
    def _readable(self) -> Self:
        read_key(self.key.get_secret_value())
        return self


class GmailSecrets(_Secrets):
    client_secret: SecretStr = SecretStr("")
    refresh_token: SecretStr = SecretStr("")
    """Set by signing in (`--sign-in`)."""


def google_pace(settings: GoogleSettings) -> Pace:
    """As Gmail's quota allows."""
    cost = 60 * settings.units_per_message
    return Pace(settings.units_per_user / cost, settings.units_per_project / cost)
