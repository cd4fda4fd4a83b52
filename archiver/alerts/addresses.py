"""Where notices go: an address of a channel, parsed.

`mailto:ann@example.org` (through SMTP_URL), `smtp://user:password@host:587?from=a@b&to=c@d` and `smtps://…`,
`https://host/path#secret` (a webhook, signed with the secret), and any address that Apprise knows, such as `ntfys://host/topic`.
"""

from __future__ import annotations

import importlib.util
import re
from dataclasses import dataclass, field
from urllib.parse import parse_qs, unquote, urlsplit

from archiver.config import Settings
from archiver.errors import UsageError

_MAX_CHARS = 2000
_ADDRESS = re.compile(r"[^\s@<>,;\"]{1,64}@[^\s@<>,;\"]{1,255}")
_PORTS = {"smtp": 587, "smtps": 465}
_FORMS = "mailto:ADDRESS, smtp://…, smtps://…, https://…, or an address of Apprise such as ntfys://host/topic"


@dataclass(frozen=True, slots=True)
class MailServer:
    host: str
    port: int
    is_tls: bool
    """TLS from the first byte; otherwise STARTTLS where the server offers it."""
    user: str | None
    password: str | None = field(repr=False)
    sender: str


@dataclass(frozen=True, slots=True)
class MailAddress:
    server: MailServer
    recipients: tuple[str, ...]

    @property
    def shown(self) -> str:
        return ", ".join(self.recipients)


@dataclass(frozen=True, slots=True)
class WebhookAddress:
    url: str
    secret: str | None = field(repr=False)

    @property
    def shown(self) -> str:
        parts = urlsplit(self.url)
        return f"{parts.scheme}://{parts.hostname}/…"


@dataclass(frozen=True, slots=True)
class AppriseAddress:
    url: str = field(repr=False)

    @property
    def shown(self) -> str:
        return f"{self.url.partition('://')[0]}://…"


NoticeAddress = MailAddress | WebhookAddress | AppriseAddress


def parse_address(address: str, settings: Settings) -> NoticeAddress:
    """Raises UsageError, which never contains the address: it may hold a password."""
    address = address.strip()
    if not address or len(address) > _MAX_CHARS or re.search(r"[\s\x00-\x1f]", address):
        raise UsageError(f"a channel needs an address without spaces of at most {_MAX_CHARS} characters: {_FORMS}")
    scheme = address.partition(":")[0].lower()
    if scheme == "mailto" and not address.startswith("mailto://"):
        return MailAddress(_own_server(settings), _recipients([address.partition(":")[2]]))
    try:
        if scheme in _PORTS:
            server, query = _mail_server(address)
            return MailAddress(server, _recipients(query.get("to", [])))
        if scheme in ("http", "https"):
            return _webhook(address)
    except ValueError as error:
        raise UsageError(f"the address {scheme}://… is not valid: {error}") from None
    if "://" not in address:
        raise UsageError(f"a channel's address has one of these forms: {_FORMS}")
    return _apprise(address)


def _own_server(settings: Settings) -> MailServer:
    if settings.smtp_url is None:
        raise UsageError("mail needs a server to send it: set SMTP_URL=smtp://user:password@host:587?from=ADDRESS")
    return _mail_server(settings.smtp_url.get_secret_value())[0]


def _mail_server(url: str) -> tuple[MailServer, dict[str, list[str]]]:
    parts, query = urlsplit(url), parse_qs(urlsplit(url).query)
    sender = query.get("from", [unquote(parts.username or "")])[0]
    if not parts.hostname:
        raise UsageError(f"the address {parts.scheme}://… names no server")
    if not _ADDRESS.fullmatch(sender):
        raise UsageError(f"the address {parts.scheme}://… needs a sender: add ?from=ADDRESS")
    user, password = (unquote(part) if part else None for part in (parts.username, parts.password))
    port = parts.port or _PORTS[parts.scheme]
    return MailServer(parts.hostname, port, parts.scheme == "smtps", user, password, sender), query


def _recipients(given: list[str]) -> tuple[str, ...]:
    found = tuple(one.strip() for entry in given for one in entry.split(",") if one.strip())
    if not found or not all(_ADDRESS.fullmatch(one) for one in found):
        raise UsageError("mail needs recipients: mailto:ann@example.org, or ?to=ann@example.org,bob@example.org")
    return found


def _webhook(address: str) -> WebhookAddress:
    url, _, secret = address.partition("#")
    if not urlsplit(url).hostname:
        raise UsageError("the address https://… names no server")
    _ = urlsplit(url).port  # raises ValueError for an invalid one
    return WebhookAddress(url, unquote(secret) or None)


def _apprise(address: str) -> AppriseAddress:
    scheme = address.partition("://")[0]
    if importlib.util.find_spec("apprise") is None:
        raise UsageError(f"{scheme}://… is an address for Apprise, which is not installed: pip install 'archiver[alerts]'")
    from apprise import Apprise

    if not Apprise().add(address):
        raise UsageError(f"Apprise does not accept this address {scheme}://…: check it against Apprise's documentation")
    return AppriseAddress(address)
