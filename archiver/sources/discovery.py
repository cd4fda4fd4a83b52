"""Finds the IMAP server of an address: well-known providers, what the domain itself publishes, SRV records.

Only published facts are used. Nothing is guessed, and no password is sent anywhere: the user sees the server, and decides.
"""

from __future__ import annotations

import http.client
import re
import socket
import ssl
from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal
from urllib.parse import quote
from xml.etree import ElementTree

from archiver.errors import UsageError
from archiver.public_address import is_public, resolve
from archiver.sources.srv_records import SrvRecord, find_srv
from connectors.kinds import MAIL_DOMAINS, provider_hint

_SECONDS = 5.0
_DOCUMENT_BYTES = 256 << 10
_DOMAIN = re.compile(r"(?=.{1,253}\Z)[a-z0-9](?:[a-z0-9-]{0,62})(?:\.[a-z0-9][a-z0-9-]{0,62})+", re.IGNORECASE)
_PLACES = (
    ("autoconfig.{domain}", "/mail/config-v1.1.xml?emailaddress={address}"),
    ("{domain}", "/.well-known/autoconfig/mail/config-v1.1.xml"),
)

Fetch = Callable[[str, str], bytes | None]
"""(host, path) → the document, if it is there"""
FindSrv = Callable[[str], list[SrvRecord]]


@dataclass(frozen=True, slots=True)
class FoundServer:
    host: str
    port: int
    tls: Literal["implicit", "starttls"]
    user: str
    origin: Literal["provider", "autoconfig", "srv"]
    oauth: str | None = None
    """The preset for sign-in with OAuth."""
    hint: str = ""
    """What to do before the first login."""

    def settings(self) -> dict[str, object]:
        port = {} if self.port == (993 if self.tls == "implicit" else 143) else {"port": self.port}
        oauth = {"oauth_provider": self.oauth} if self.oauth else {}
        return {"host": self.host, "tls": self.tls, "user": self.user, **port, **oauth}


def find_server(address: str, fetch: Fetch | None = None, srv: FindSrv = find_srv) -> FoundServer | None:
    """Raises UsageError for what is not an address."""
    address = address.strip()
    local, _, domain = address.rpartition("@")
    try:
        domain = domain.lower().encode("idna").decode()
    except UnicodeError:
        domain = ""
    if not local or len(address) > 320 or not _DOMAIN.fullmatch(domain):
        raise UsageError(f"{address[:100]!r} is not an address such as you@example.org")
    if known := MAIL_DOMAINS.get(domain):
        user = local if known.user == "local" else address
        return _with_hint(FoundServer(known.host, known.port, known.tls, user, "provider", known.oauth))
    found = _autoconfig(address, domain, fetch or fetch_document) or _by_srv(address, domain, srv)
    return _with_hint(found) if found else None


def _with_hint(found: FoundServer) -> FoundServer:
    oauth = found.oauth or next((one.oauth for one in MAIL_DOMAINS.values() if one.host == found.host), None)
    return FoundServer(found.host, found.port, found.tls, found.user, found.origin, oauth, provider_hint(found.host))


def _autoconfig(address: str, domain: str, fetch: Fetch) -> FoundServer | None:
    for host, path in _PLACES:
        document = fetch(host.format(domain=domain), path.format(address=quote(address, safe="@")))
        if document and (found := read_autoconfig(document, address)):
            return found
    return None


def read_autoconfig(document: bytes, address: str) -> FoundServer | None:
    """The first encrypted IMAP server of a configuration file (Thunderbird's format). Never raises."""
    if b"<!DOCTYPE" in document or b"<!ENTITY" in document:
        return None
    try:
        servers = ElementTree.fromstring(document).iterfind(".//incomingServer[@type='imap']")  # noqa: S314  (no entities)
        for server in servers:
            kind = (server.findtext("socketType") or "").strip().upper()
            host, port = (server.findtext("hostname") or "").strip(), (server.findtext("port") or "").strip()
            if kind in ("SSL", "STARTTLS") and _DOMAIN.fullmatch(host) and port.isascii() and port.isdigit():
                user = (server.findtext("username") or "%EMAILADDRESS%").strip()
                local, _, domain = address.rpartition("@")
                for mark, value in (("%EMAILADDRESS%", address), ("%EMAILLOCALPART%", local), ("%EMAILDOMAIN%", domain)):
                    user = user.replace(mark, value)
                tls: Literal["implicit", "starttls"] = "implicit" if kind == "SSL" else "starttls"
                if 0 < int(port) < 65536:
                    return FoundServer(host.lower(), int(port), tls, user[:320], "autoconfig")
    except (ElementTree.ParseError, ValueError):
        return None
    return None


def _by_srv(address: str, domain: str, srv: FindSrv) -> FoundServer | None:
    """RFC 6186. The name in a record is shown to the user, who decides whether it belongs to the domain."""
    names: tuple[tuple[str, Literal["implicit", "starttls"]], ...] = (("_imaps", "implicit"), ("_imap", "starttls"))
    for service, tls in names:
        for record in srv(f"{service}._tcp.{domain}"):
            if _DOMAIN.fullmatch(record.target) and record.port:
                return FoundServer(record.target.lower(), record.port, tls, address, "srv")
    return None


def fetch_document(host: str, path: str) -> bytes | None:
    """By HTTPS from a public server, without redirects: an address that a user types must not reach our own network."""
    try:
        addresses = resolve(host)
        if not addresses or not all(map(is_public, addresses)):
            return None
        with socket.create_connection((str(addresses[0]), 443), _SECONDS) as line:
            connection = http.client.HTTPSConnection(host)
            connection.sock = ssl.create_default_context().wrap_socket(line, server_hostname=host)
            connection.request("GET", path, headers={"User-Agent": "archiver", "Accept-Encoding": "identity"})
            with connection.getresponse() as answer:
                data = answer.read(_DOCUMENT_BYTES + 1)
                return data if answer.status == 200 and len(data) <= _DOCUMENT_BYTES else None
    except (OSError, http.client.HTTPException, UnicodeError):
        return None
