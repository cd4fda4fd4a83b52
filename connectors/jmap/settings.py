"""The settings of a JMAP source."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Self
from urllib.parse import urlsplit

from pydantic import Field, SecretStr, model_validator

from connectors.selection import Destination, LongText, SourceSettings, Strict, Texts

_LOCAL = ("127.0.0.1", "localhost", "::1")
_SISTERS = {"api.fastmail.com": ("www.fastmailusercontent.com",)}
"""Hosts that a provider is known to use in addition to the one of its session."""


class JmapSettings(SourceSettings):
    url: Annotated[str, Destination.URL] = Field(
        description="the session, such as https://api.fastmail.com/jmap/session, or only https://mail.example.org"
    )
    user: str | None = Field(
        default=None, description="login name, with the secret password; without it, the secret token is used"
    )
    include_shared: bool = Field(default=False, description="include accounts that others share with this login")
    other_hosts: Annotated[Texts, Destination.ROUTE] = Field(
        default=(),
        description="further hosts that the server may name for requests and downloads; they receive the credentials",
    )
    ca: Annotated[LongText | None, Destination.ROUTE] = Field(
        default=None, description="certificates to trust instead of the system's (PEM)"
    )
    ca_file: Annotated[Path | None, Destination.ROUTE] = Field(default=None, description="the same as a file on the server")
    watch: bool = Field(
        default=False, description="keep a connection open (EventSource), so that new mail arrives within seconds"
    )
    downloads_at_once: int = Field(default=4, ge=1, le=8, description="downloads of one mailbox at the same time")

    @model_validator(mode="after")
    def _check(self) -> Self:
        parts = urlsplit(self.url)
        if not parts.hostname or parts.scheme not in ("https", "http"):
            raise ValueError("url: expected https://…")
        if parts.scheme == "http" and parts.hostname not in _LOCAL:
            raise ValueError("url must begin with https://, because the credentials are sent there")
        if self.ca and self.ca_file:
            raise ValueError("set only one of ca and ca_file")
        return self

    @property
    def session_url(self) -> str:
        return self.url if urlsplit(self.url).path.strip("/") else f"{self.url.rstrip('/')}/.well-known/jmap"

    @property
    def host(self) -> str:
        return urlsplit(self.url).hostname or ""

    def hosts(self) -> tuple[str, ...]:
        return (self.host, *self.other_hosts, *_SISTERS.get(self.host, ()))


class JmapSecrets(Strict):
    password: SecretStr | None = None
    token: SecretStr | None = None
    """An API token, sent as a bearer token."""

    @model_validator(mode="after")
    def _one_of_both(self) -> Self:
        if (self.password is None) == (self.token is None):
            raise ValueError("set either password or token")
        return self
