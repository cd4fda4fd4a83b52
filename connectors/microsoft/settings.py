"""The settings of Microsoft sources."""

from __future__ import annotations

from enum import StrEnum
from pathlib import Path
from typing import Annotated, Self
from urllib.parse import urlsplit

from pydantic import AfterValidator, Field, SecretStr, model_validator

from connectors.pace import Pace
from connectors.selection import Destination, LongText, ServerSettings, Strict, Texts


class Cloud(StrEnum):
    """Microsoft's national clouds, each with its own servers."""

    GLOBAL = "global"
    US_GOVERNMENT = "us-government"
    US_DOD = "us-dod"
    CHINA = "china"


_SERVERS = {
    Cloud.GLOBAL: ("https://login.microsoftonline.com", "https://graph.microsoft.com"),
    Cloud.US_GOVERNMENT: ("https://login.microsoftonline.us", "https://graph.microsoft.us"),
    Cloud.US_DOD: ("https://login.microsoftonline.us", "https://dod-graph.microsoft.us"),
    Cloud.CHINA: ("https://login.partner.microsoftonline.cn", "https://microsoftgraph.chinacloudapi.cn"),
}


def _https(address: str) -> str:
    """Required, because tokens are sent there."""
    if not address.startswith("https://") or not address[8:].strip("/"):
        raise ValueError("expected a URL that begins with https://")
    return address.rstrip("/")


def _plain(text: str) -> str:
    if not text.strip() or not all(char.isalnum() or char in "-._" for char in text.strip()):
        raise ValueError("expected letters, digits, dots and hyphens only")
    return text.strip()


Https = Annotated[str, AfterValidator(_https)]
Name = Annotated[str, AfterValidator(_plain)]


class GraphSettings(ServerSettings):
    """What both kinds have in common."""

    client_id: Name = Field(description="the app registration's Application (client) ID")
    cloud: Annotated[Cloud, Destination.ROUTE] = Field(
        default=Cloud.GLOBAL, description="global, us-government, us-dod or china"
    )
    authority: Annotated[Https | None, Destination.URL] = Field(
        default=None, description="URL that issues tokens, instead of the cloud's own"
    )
    graph: Annotated[Https | None, Destination.URL] = Field(
        default=None, description="base URL of Microsoft Graph, instead of the cloud's own"
    )
    ca: Annotated[LongText | None, Destination.ROUTE] = Field(
        default=None, description="certificates to trust instead of the system's (PEM)"
    )
    ca_file: Annotated[Path | None, Destination.ROUTE] = Field(default=None, description="the same as a file on the server")
    include_hidden: bool = Field(default=False, description="include hidden folders")
    include_recoverable: bool = Field(
        default=False, description="include what people have deleted for good while Exchange still keeps it (Recoverable Items)"
    )
    requests_per_minute: int = Field(
        default=1000, ge=1, description="Microsoft's limit for one mailbox (10,000 in ten minutes)"
    )
    requests_at_once: int = Field(default=4, ge=1, le=4, description="Microsoft's limit for one mailbox")

    def hosts(self) -> tuple[str, ...]:
        return tuple(urlsplit(url).hostname or "" for url in (self.authority_url, self.graph_url))

    @model_validator(mode="after")
    def _certificates_once(self) -> Self:
        if self.ca and self.ca_file:
            raise ValueError("set only one of ca and ca_file")
        return self

    @property
    def authority_url(self) -> str:
        return self.authority or _SERVERS[self.cloud][0]

    @property
    def graph_url(self) -> str:
        return self.graph or _SERVERS[self.cloud][1]


class Microsoft365Settings(GraphSettings):
    tenant: Name = Field(description="the organisation: its Directory (tenant) ID, or one of its domains")
    groups_in: Texts = Field(default=(), description="only members of these groups (address, name or id)")
    groups_out: Texts = Field(default=(), description="no members of these groups (address, name or id)")
    include_shared: bool = Field(default=False, description="include shared mailboxes")
    include_groups: bool = Field(
        default=False, description="include the conversations of Microsoft 365 groups, each group as a mailbox of its own"
    )
    include_archives: bool = Field(default=False, description="include in-place archives, each as a separate mailbox")


class Microsoft365Secrets(Strict):
    """Either a client secret, or a certificate with its private key."""

    client_secret: SecretStr | None = None
    certificate: SecretStr | None = None
    """PEM: the certificate and its private key, in any order."""
    certificate_password: SecretStr | None = None

    @model_validator(mode="after")
    def _one_of_both(self) -> Self:
        if (self.client_secret is None) == (self.certificate is None):
            raise ValueError("set either client_secret or certificate")
        if self.certificate:
            text = self.certificate.get_secret_value()
            for part in ("CERTIFICATE-----", "PRIVATE KEY-----"):
                if part not in text:
                    raise ValueError(f"the certificate needs two PEM parts, but has no “{part.strip('-').lower()}”")
        return self


class OutlookSettings(GraphSettings):
    tenant: Name = Field(
        default="common",
        description="who may sign in: common (anyone), consumers (personal accounts), organizations, or one tenant",
    )
    write_access: bool = Field(
        default=False,
        description="ask for permission to restore mail, and to delete it at the source; then sign in again",
    )


class OutlookSecrets(Strict):
    refresh_token: SecretStr = SecretStr("")
    """Set by signing in (`--sign-in`), and replaced whenever Microsoft issues a newer one."""


def graph_pace(settings: GraphSettings) -> Pace:
    """As Graph's limit for one mailbox allows; a message is a request."""
    return Pace(settings.requests_per_minute / 60)
