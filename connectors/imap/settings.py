"""What an IMAP source can be told."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Literal, Self

from pydantic import Field, SecretStr, StringConstraints, model_validator

from connectors.selection import Destination, LongText, SourceSettings, Strict, Texts

Name = Annotated[str, StringConstraints(min_length=1, pattern=r"^[^\x00-\x1f\x7f]+$")]


class ImapSettings(SourceSettings):
    host: Annotated[Name, Destination.HOST] = Field(description="the server's name or address")
    port: Annotated[int | None, Destination.ROUTE] = Field(
        default=None, ge=1, le=65535, description="without it 993, or 143 when tls is not implicit"
    )
    tls: Annotated[Literal["implicit", "starttls", "none"], Destination.ROUTE] = Field(
        default="implicit", description="implicit, starttls, or none (only then the password travels in the clear)"
    )
    ca: Annotated[LongText | None, Destination.ROUTE] = Field(
        default=None, description="certificates to trust instead of the system's (PEM)"
    )
    ca_file: Annotated[Path | None, Destination.ROUTE] = Field(default=None, description="the same as a file of the server")
    accept_invalid_certificate: Annotated[bool, Destination.ROUTE] = Field(
        default=False, description="trust whatever certificate comes: anybody on the way can read the password"
    )

    user: Name | None = Field(default=None, description="whose mailbox; the login name")
    users: Texts = Field(default=(), description="several login names, separated by commas")
    users_list: LongText | None = Field(default=None, description="CSV with a login name a line: user[,address[,name]]")
    users_file: Path | None = Field(default=None, description="the same as a file of the server")
    domain: Name | None = Field(default=None, description="makes addresses of login names without @; without it, the host")
    master_user: Name | None = Field(default=None, description="one login for all mailboxes, with its own password")
    master_login: Literal["suffix", "sasl"] = Field(
        default="suffix", description="suffix: USER*MASTER as Dovecot wants it; sasl: AUTHENTICATE PLAIN on behalf of USER"
    )
    master_separator: Name = Field(default="*", description="what stands between USER and MASTER")
    auth: Literal["password", "xoauth2", "oauthbearer"] = "password"
    oauth_token_url: Annotated[Name | None, Destination.URL] = Field(
        default=None, description="where a refresh token is changed into an access token"
    )
    oauth_client_id: Name | None = None

    gmail_labels: bool = Field(default=True, description="Gmail: all mail once, with its labels, and not once for each label")
    watch: bool = Field(default=False, description="hold a connection open (IDLE), so that new mail comes within seconds")
    connections: int | None = Field(
        default=None, ge=1, le=8, description="at once for one mailbox; without it, IMAP_CONNECTIONS"
    )
    compress: Literal["auto", "always", "never"] = Field(
        default="auto", description="COMPRESS=DEFLATE; auto: only when the line turns out to be slow"
    )
    connect_timeout_seconds: float = Field(default=30.0, gt=0, le=600)
    timeout_seconds: float = Field(default=120.0, gt=0, le=3600, description="how long a server may keep silent")

    @model_validator(mode="after")
    def _says_whose(self) -> Self:
        given = [name for name in ("user", "users", "users_list", "users_file") if getattr(self, name)]
        if len(given) != 1:
            raise ValueError("say whose mail: exactly one of user, users, users_list and users_file")
        if self.oauth_token_url and not self.oauth_token_url.startswith(("https://", "http://127.0.0.1", "http://localhost")):
            raise ValueError("oauth_token_url has to be https://…")
        if self.ca and self.ca_file:
            raise ValueError("give the certificates once: either ca or ca_file")
        if self.tls == "none" and (self.ca or self.ca_file or self.accept_invalid_certificate):
            raise ValueError(
                "without TLS there is no certificate: tls=none goes with none of ca, ca_file and accept_invalid_certificate"
            )
        return self

    @property
    def port_number(self) -> int:
        return self.port or (993 if self.tls == "implicit" else 143)


class ImapSecrets(Strict):
    password: SecretStr | None = None
    """Of the user, or of the master user."""
    passwords: SecretStr | None = None
    """For several users without a master user: lines of `user,password` (CSV)."""
    token: SecretStr | None = None
    """An OAuth access token."""
    refresh_token: SecretStr | None = None
    client_secret: SecretStr | None = None
