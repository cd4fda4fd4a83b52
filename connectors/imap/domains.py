"""The IMAP servers of well-known mail domains. What a user has to do before the first login is in connectors.imap.providers."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal


@dataclass(frozen=True, slots=True)
class DomainServer:
    host: str
    port: int = 993
    tls: Literal["implicit", "starttls"] = "implicit"
    user: Literal["address", "local"] = "address"
    """What the login name is: the whole address, or the part before the @."""
    oauth: str | None = None
    """A name of connectors.imap.presets.OAUTH_PRESETS."""


_MICROSOFT = DomainServer("outlook.office365.com", oauth="microsoft")
_YAHOO = DomainServer("imap.mail.yahoo.com", oauth="yahoo")
_FASTMAIL = DomainServer("imap.fastmail.com", oauth="fastmail")
_BRIDGE = DomainServer("127.0.0.1", 1143, "starttls")

_SERVERS: tuple[tuple[str, DomainServer], ...] = (
    ("gmail.com googlemail.com", DomainServer("imap.gmail.com", oauth="google")),
    ("outlook.com outlook.de outlook.fr outlook.es outlook.it hotmail.com hotmail.de hotmail.fr hotmail.co.uk", _MICROSOFT),
    ("live.com live.de live.nl live.co.uk msn.com", _MICROSOFT),
    ("yahoo.com yahoo.de yahoo.fr yahoo.it yahoo.es yahoo.co.uk ymail.com rocketmail.com", _YAHOO),
    ("aol.com aol.de", DomainServer("imap.aol.com")),
    ("fastmail.com fastmail.fm fastmail.de sent.com", _FASTMAIL),
    ("icloud.com me.com mac.com", DomainServer("imap.mail.me.com", user="local")),
    ("gmx.net gmx.de gmx.at gmx.ch", DomainServer("imap.gmx.net")),
    ("gmx.com mail.com", DomainServer("imap.mail.com")),
    ("web.de", DomainServer("imap.web.de")),
    ("t-online.de magenta.de", DomainServer("secureimap.t-online.de")),
    ("freenet.de", DomainServer("mx.freenet.de")),
    ("posteo.de posteo.net", DomainServer("posteo.de")),
    ("mailbox.org", DomainServer("imap.mailbox.org")),
    ("mail.de", DomainServer("imap.mail.de")),
    ("zoho.com zohomail.com", DomainServer("imap.zoho.com")),
    ("zohomail.eu", DomainServer("imap.zoho.eu")),
    ("yandex.com", DomainServer("imap.yandex.com")),
    ("yandex.ru", DomainServer("imap.yandex.ru")),
    ("mail.ru", DomainServer("imap.mail.ru")),
    ("orange.fr", DomainServer("imap.orange.fr")),
    ("free.fr", DomainServer("imap.free.fr", user="local")),
    ("laposte.net", DomainServer("imap.laposte.net")),
    ("libero.it", DomainServer("imapmail.libero.it")),
    ("bluewin.ch", DomainServer("imaps.bluewin.ch")),
    ("proton.me protonmail.com pm.me", _BRIDGE),
)
DOMAINS: dict[str, DomainServer] = {domain: server for domains, server in _SERVERS for domain in domains.split()}
