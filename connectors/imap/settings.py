"""The settings of an IMAP source."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any, Literal, Self

from pydantic import Field, SecretStr, StringConstraints, model_validator

from connectors.imap.presets import OAUTH_PRESETS, ProviderName
from connectors.selection import Destination, LongText, ServerSettings, Strict, Texts

Name = Annotated[str, StringConstraints(min_length=1, pattern=r"^[^\x00-\x1f\x7f]+$")]


class ImapSettings(ServerSettings):
    host: Annotated[Name, Destination.HOST] = Field(description="the server's name or address")
    port: Annotated[int | None, Destination.ROUTE] = Field(
        default=None, ge=1, le=65535, description="by default 993, or 143 if tls is not implicit"
    )
    tls: Annotated[Literal["implicit", "starttls", "none"], Destination.ROUTE] = Field(
        default="implicit", description="implicit, starttls, or none (sends the password in the clear)"
    )
    ca: Annotated[LongText | None, Destination.ROUTE] = Field(
        default=None, description="certificates to trust instead of the system's (PEM)"
    )
    ca_file: Annotated[Path | None, Destination.ROUTE] = Field(default=None, description="the same as a file on the server")
    accept_invalid_certificate: Annotated[bool, Destination.ROUTE] = Field(
        default=False, description="trust any certificate: anyone on the network path can read the password"
    )

    user: Name | None = Field(default=None, description="login name of the mailbox")
    users: Texts = Field(default=(), description="several login names, separated by commas")
    users_list: LongText | None = Field(default=None, description="CSV with one login name per line: user[,address[,name]]")
    users_file: Path | None = Field(default=None, description="the same as a file on the server")
    domain: Name | None = Field(default=None, description="domain for login names without @; by default, the host")
    master_user: Name | None = Field(default=None, description="one login for all mailboxes, with its own password")
    master_login: Literal["suffix", "sasl"] = Field(
        default="suffix", description="suffix: USER*MASTER as in Dovecot; sasl: AUTHENTICATE PLAIN on behalf of USER"
    )
    master_separator: Name = Field(default="*", description="separator between USER and MASTER")
    auth: Literal["password", "xoauth2", "oauthbearer"] = "password"
    oauth_token_url: Annotated[Name | None, Destination.URL] = Field(
        default=None, description="URL that exchanges a refresh token for an access token"
    )
    oauth_provider: ProviderName | None = Field(
        default=None, description="sets server, auth and all oauth addresses for Google, Microsoft, Yahoo or Fastmail"
    )
    oauth_client_id: Name | None = Field(default=None, description="id of the app that is registered at the provider")
    oauth_auth_url: Annotated[Name | None, Destination.URL] = Field(default=None, description="URL of the sign-in page")
    oauth_device_url: Annotated[Name | None, Destination.URL] = Field(
        default=None, description="URL that issues codes for sign-in on another device"
    )
    oauth_scope: Name | None = Field(default=None, description="what the sign-in asks for")

    gmail_labels: bool = Field(default=True, description="Gmail: each message once with its labels, not once per label")
    watch: bool = Field(default=False, description="keep a connection open (IDLE), so that new mail arrives within seconds")
    connections: int | None = Field(
        default=None, ge=1, le=8, description="connections per mailbox; by default, IMAP_CONNECTIONS"
    )
    compress: Literal["auto", "always", "never"] = Field(
        default="auto", description="COMPRESS=DEFLATE; auto: only if the connection turns out to be slow"
    )
    connect_timeout_seconds: float = Field(default=30.0, gt=0, le=600)
    timeout_seconds: float = Field(default=120.0, gt=0, le=3600, description="how long to wait for a response")

    @model_validator(mode="before")
    @classmethod
    def _apply_preset(cls, given: Any) -> Any:
        """Values that are given take precedence. Without an app, an account of the same provider uses a password."""
        preset = OAUTH_PRESETS.get(str(given.get("oauth_provider"))) if isinstance(given, Mapping) else None
        if preset is None or not given.get("oauth_client_id"):
            return given
        filled = {
            "host": preset.host,
            "auth": preset.mechanism,
            "oauth_auth_url": preset.auth_url,
            "oauth_token_url": preset.token_url,
            "oauth_scope": preset.scope,
            "oauth_device_url": preset.device_url,
        }
        kept = {
            name: value for name, value in given.items() if value not in (None, "") and (name, value) != ("auth", "password")
        }
        return {**{name: value for name, value in filled.items() if value}, **kept}

    @model_validator(mode="after")
    def _check_users(self) -> Self:
        given = [name for name in ("user", "users", "users_list", "users_file") if getattr(self, name)]
        if len(given) != 1:
            raise ValueError("set exactly one of user, users, users_list and users_file")
        for name in ("oauth_token_url", "oauth_auth_url", "oauth_device_url"):
            if (url := getattr(self, name)) and not url.startswith(("https://", "http://127.0.0.1", "http://localhost")):
                raise ValueError(f"{name} must be https://…")
        if self.ca and self.ca_file:
            raise ValueError("set only one of ca and ca_file")
        if self.tls == "none" and (self.ca or self.ca_file or self.accept_invalid_certificate):
            raise ValueError("tls=none uses no certificate: remove ca, ca_file and accept_invalid_certificate")
        return self

    @property
    def port_number(self) -> int:
        return self.port or (993 if self.tls == "implicit" else 143)


class ImapSecrets(Strict):
    password: SecretStr | None = None
    """The password of the user, or of the master user."""
    passwords: SecretStr | None = None
    """For several users without a master user: CSV lines `user,password`."""
    token: SecretStr | None = None
    """An OAuth access token."""
    refresh_token: SecretStr | None = None
    client_secret: SecretStr | None = None
