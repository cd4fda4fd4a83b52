"""What has to be said about a Microsoft source."""

from __future__ import annotations

from enum import StrEnum
from pathlib import Path
from typing import Annotated, Self
from urllib.parse import urlsplit

from pydantic import AfterValidator, Field, SecretStr, model_validator

from connectors.selection import Destination, LongText, SourceSettings, Strict, Texts


class Cloud(StrEnum):
    """Microsoft's national clouds: each has servers of its own."""

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
    """Tokens go there."""
    if not address.startswith("https://") or not address[8:].strip("/"):
        raise ValueError("expected an address that begins with https://")
    return address.rstrip("/")


def _plain(text: str) -> str:
    if not text.strip() or not all(char.isalnum() or char in "-._" for char in text.strip()):
        raise ValueError("expected letters, digits, dots and hyphens only")
    return text.strip()


Https = Annotated[str, AfterValidator(_https)]
Name = Annotated[str, AfterValidator(_plain)]


class GraphSettings(SourceSettings):
    """What both kinds have in common."""

    client_id: Name = Field(description="the app registration's Application (client) ID")
    cloud: Annotated[Cloud, Destination.ROUTE] = Field(
        default=Cloud.GLOBAL, description="global, us-government, us-dod or china"
    )
    authority: Annotated[Https | None, Destination.URL] = Field(
        default=None, description="where tokens come from, instead of the cloud's own address"
    )
    graph: Annotated[Https | None, Destination.URL] = Field(
        default=None, description="where Microsoft Graph is, instead of the cloud's own address"
    )
    ca: Annotated[LongText | None, Destination.ROUTE] = Field(
        default=None, description="certificates to trust instead of the system's (PEM)"
    )
    ca_file: Annotated[Path | None, Destination.ROUTE] = Field(default=None, description="the same as a file of the server")
    include_hidden: bool = Field(default=False, description="hidden folders too")
    requests_per_minute: int = Field(
        default=1000, ge=1, description="what Microsoft allows for one mailbox (10,000 in ten minutes)"
    )
    requests_at_once: int = Field(default=4, ge=1, le=4, description="what Microsoft allows for one mailbox")

    def hosts(self) -> tuple[str, ...]:
        return tuple(urlsplit(url).hostname or "" for url in (self.authority_url, self.graph_url))

    @model_validator(mode="after")
    def _certificates_once(self) -> Self:
        if self.ca and self.ca_file:
            raise ValueError("give the certificates once: either ca or ca_file")
        return self

    @property
    def authority_url(self) -> str:
        return self.authority or _SERVERS[self.cloud][0]

    @property
    def graph_url(self) -> str:
        return self.graph or _SERVERS[self.cloud][1]


class Microsoft365Settings(GraphSettings):
    tenant: Name = Field(description="the organisation: its Directory (tenant) ID, or one of its domains")
    groups_in: Texts = Field(default=(), description="only the members of these groups (address, name or id)")
    groups_out: Texts = Field(default=(), description="not the members of these groups (address, name or id)")
    include_shared: bool = Field(default=False, description="shared mailboxes too")
    include_archives: bool = Field(default=False, description="in-place archives too, each as a mailbox of its own")


class Microsoft365Secrets(Strict):
    """One of both: a client secret, or a certificate with its private key."""

    client_secret: SecretStr | None = None
    certificate: SecretStr | None = None
    """PEM: the certificate and its private key, in any order."""
    certificate_password: SecretStr | None = None

    @model_validator(mode="after")
    def _one_of_both(self) -> Self:
        if (self.client_secret is None) == (self.certificate is None):
            raise ValueError("give either client_secret or certificate")
        if self.certificate:
            text = self.certificate.get_secret_value()
            for part in ("CERTIFICATE-----", "PRIVATE KEY-----"):
                if part not in text:
                    raise ValueError(f"the certificate needs two parts (PEM), and has no “{part.strip('-').lower()}”")
        return self


class OutlookSettings(GraphSettings):
    tenant: Name = Field(
        default="common",
        description="who may sign in: common (anyone), consumers (personal accounts), organizations, or one tenant",
    )


class OutlookSecrets(Strict):
    refresh_token: SecretStr = SecretStr("")
    """Comes from signing in (`--sign-in`). Replaced by a newer one as Microsoft hands them out."""
