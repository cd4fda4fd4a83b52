"""IMAP servers with known limits and habits, as data. Each row says where it is documented.

A row is found by the host that a source connects to, or else by what the server says about itself (greeting and ID).
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from fnmatch import fnmatch

from connectors.pace import Pace
from connectors.selection import FolderRole


@dataclass(frozen=True, slots=True)
class ImapProvider:
    name: str
    hosts: tuple[str, ...] = ()
    """Patterns of host names, in lower case."""
    says: str = ""
    """A regular expression for the greeting and the ID of a server that anybody can run."""
    connections: int = 4
    """How many connections to one mailbox we open at most, unless the source has its own setting."""
    limits: str = ""
    """What the provider limits, for people."""
    newest_only: int = 0
    """A folder shows only this many of its newest messages; 0 if it shows all."""
    bytes_per_day: int = 0
    """How much one mailbox may download in a day; 0 if that is not limited, or not documented."""
    distrusted: frozenset[str] = frozenset()
    """Capabilities that the server announces and does not have."""
    roles: Mapping[str, FolderRole] = field(default_factory=dict)
    """Folders whose purpose neither SPECIAL-USE nor a common name tells: lower-case name → role."""
    habits: str = ""
    """What differs from other servers, for people."""
    hint: str = ""
    """What a person who adds a source should know."""
    documented: tuple[str, ...] = ()


_APP_PASSWORD = "Create an app password; the password of the account is refused."  # noqa: S105

PROVIDERS = (
    ImapProvider(
        "Gmail",
        hosts=("imap.gmail.com", "imap.googlemail.com"),
        limits="15 connections; 2,500 MB a day",
        bytes_per_day=2_500_000_000,
        habits="a message appears once for each label; a mailbox over the daily limit is refused (OVERQUOTA) until it is over",
        hint=f"{_APP_PASSWORD} Google allows 2.5 GB a day over IMAP: a larger mailbox takes several days. "
        "Sources of the kind gmail do not have this limit.",
        documented=(
            "https://support.google.com/a/answer/1071518",
            "https://developers.google.com/workspace/gmail/imap/imap-extensions",
        ),
    ),
    ImapProvider(
        "Exchange Online, Outlook.com",
        hosts=("outlook.office365.com", "imap-mail.outlook.com", "outlook.office.com"),
        habits="sizes are estimates; passwords are refused; calendars and contacts appear as folders",
        hint="Microsoft accepts no passwords: use auth=xoauth2, or better a source of the kind outlook or microsoft.",
        documented=(
            "https://learn.microsoft.com/exchange/clients-and-mobile-in-exchange-online/deprecation-of-basic-authentication-exchange-online",
            "https://learn.microsoft.com/exchange/client-developer/legacy-protocols/how-to-authenticate-an-imap-pop-smtp-application-by-using-oauth",
        ),
    ),
    ImapProvider(
        "Yahoo Mail, for export",
        hosts=("export.imap.mail.yahoo.com", "export.imap.aol.com"),
        connections=2,
        newest_only=100_000,
        limits="100,000 messages a folder; 1,000 messages a command",
        habits="INBOX is spelt Inbox",
        hint=_APP_PASSWORD,
        documented=("https://help.yahoo.com/kb/SLN28681.html", "https://www.rfc-editor.org/rfc/rfc9738"),
    ),
    ImapProvider(
        "Yahoo Mail, AOL",
        hosts=("imap.mail.yahoo.com", "imap.aol.com", "*.imap.mail.yahoo.com"),
        connections=2,
        newest_only=10_000,
        limits="10,000 messages a folder; 1,000 messages a command",
        habits="only the newest messages of a folder appear; INBOX is spelt Inbox; SEARCH may return a part (MESSAGELIMIT)",
        hint=f"{_APP_PASSWORD} Folders show only their newest 10,000 messages: to archive the others as well, first use the "
        "host export.imap.mail.yahoo.com (AOL: export.imap.aol.com).",
        documented=(
            "https://help.yahoo.com/kb/SLN28681.html",
            "https://senders.yahooinc.com/developer/documentation",
            "https://www.rfc-editor.org/rfc/rfc9738",
        ),
    ),
    ImapProvider(
        "GMX, WEB.DE, mail.com",
        hosts=("imap.gmx.net", "imap.gmx.com", "imap.web.de", "imap.mail.com", "imap.1und1.de"),
        connections=2,
        roles={"spamverdacht": FolderRole.SPAM},
        habits="UIDs are counted for the whole service: an inbox may begin at 743,000,000",
        hint="IMAP is off until you turn it on in the web mail's settings (POP3/IMAP). With two-factor login, create an app "
        "password.",
        documented=(
            "https://hilfe.gmx.net/pop-imap/einschalten.html",
            "https://www.rfc-editor.org/rfc/rfc9051#section-2.3.1.1",
        ),
    ),
    ImapProvider(
        "iCloud Mail",
        hosts=("imap.mail.me.com", "*.imap.mail.me.com"),
        connections=2,
        habits="FETCH RFC822 returns nothing (BODY[] works); folders of notes are listed and can't be opened",
        hint="Create an app-specific password at account.apple.com. The user is the part of the address before the @. If "
        "folders of notes can't be opened, exclude them with folders_out.",
        documented=("https://support.apple.com/102525", "https://github.com/modern-email/defects/issues/36"),
    ),
    ImapProvider(
        "Fastmail",
        hosts=("imap.fastmail.com", "imaps-proxy.fastmail.com"),
        habits="message ids (OBJECTID) survive moves",
        hint=f"{_APP_PASSWORD} A source of the kind jmap needs fewer requests.",
        documented=(
            "https://www.fastmail.help/hc/en-us/articles/1500000277382",
            "https://www.fastmail.help/hc/en-us/articles/360058752854",
        ),
    ),
    ImapProvider(
        "Zoho Mail",
        hosts=("imap.zoho.*", "imappro.zoho.*"),
        connections=2,
        limits="unusual activity blocks IMAP for a time",
        habits="folders can be hidden from IMAP; archived mail is hidden unless it is included",
        hint="Turn on IMAP access in Zoho Mail's settings, and there choose the folders and “Include archived emails”. With "
        "two-factor login, create an application-specific password.",
        documented=("https://www.zoho.com/mail/help/usage-policy.html", "https://www.zoho.com/mail/help/imap-access.html"),
    ),
    ImapProvider(
        "mail.de",
        hosts=("imap.mail.de",),
        connections=2,
        distrusted=frozenset({"ID"}),
        habits="announces ID and refuses it",
        documented=("https://github.com/bkaankose/Wino-Mail/issues/263",),
    ),
    ImapProvider(
        "Proton Mail Bridge",
        says=r"proton ?mail|gluon",
        connections=1,
        habits="`All Mail` shows everything again, spam and trash included; `Labels/…` shows mail of other folders",
        hint="Bridge runs on your own machine: port 1143, tls=starttls, the password that Bridge shows, and its certificate in "
        "ca. folders_out=All Mail,Labels/* saves downloading messages twice.",
        documented=(
            "https://proton.me/support/imap-smtp-and-pop3-setup",
            "https://github.com/ProtonMail/proton-bridge/issues/62",
        ),
    ),
    ImapProvider(
        "Courier",
        says=r"courier-imap",
        connections=2,
        limits="4 connections from one address (MAXPERIP)",
        habits="all folders are below INBOX; no SPECIAL-USE, CONDSTORE or LIST-STATUS",
        hint="Several mailboxes share MAXPERIP connections: raise it in /etc/courier/imapd for the machine of the archive.",
        documented=("https://www.courier-mta.org/imap/",),
    ),
    ImapProvider(
        "Cyrus",
        says=r"cyrus",
        habits="LIST-STATUS, CONDSTORE, QRESYNC and message ids (OBJECTID)",
        hint="For all mailboxes through an administrator: master_user and master_login=sasl (proxyservers in imapd.conf).",
        documented=("https://www.cyrusimap.org/imap/reference/manpages/configs/imapd.conf.html",),
    ),
    ImapProvider(
        "Stalwart",
        says=r"stalwart",
        limits="16 connections and 2,000 requests a minute for a user",
        habits="IMAP4rev2, message ids (OBJECTID)",
        hint="A source of the kind jmap needs fewer requests.",
        documented=("https://stalw.art/docs/email/settings/ratelimit/",),
    ),
    ImapProvider(
        "Exchange Server",
        says=r"microsoft exchange",
        limits="16 connections for a user",
        habits="sizes are estimates (EnableExactRFC822Size); no SPECIAL-USE; calendars and contacts appear as folders",
        hint="IMAP is off by default on Exchange Server (services MSExchangeImap4 and MSExchangeIMAP4BE). Exclude calendars "
        "and contacts with folders_out.",
        documented=(
            "https://learn.microsoft.com/exchange/clients/pop3-and-imap4/pop3-and-imap4",
            "https://learn.microsoft.com/powershell/module/exchange/set-imapsettings",
            "https://learn.microsoft.com/exchange/set-connection-limits-for-imap4-exchange-2013-help",
        ),
    ),
    ImapProvider(
        "hMailServer",
        says=r"hmailserver|^\* OK IMAPrev1\b",
        connections=2,
        limits="blocks an address after repeated failed logins (auto-ban)",
        habits="no UIDPLUS, CONDSTORE, LIST-STATUS or ESEARCH; the level separator is a setting",
        hint="Several wrong passwords block the machine of the archive: give its address an IP range with a priority over 20.",
        documented=("https://www.hmailserver.com/documentation/v5.6/?page=reference_autoban",),
    ),
    ImapProvider(
        "Dovecot",
        says=r"dovecot",
        limits="10 connections for a user and address (mail_max_userip_connections)",
        habits="message ids without announcing it (X-GUID)",
        documented=("https://doc.dovecot.org/2.3/settings/core/",),
    ),
)


_LONGEST_HOST, _LONGEST_GREETING = 255, 1000


def provider_of(host: str, said: str = "") -> ImapProvider | None:
    """By the host; otherwise by what the server has said about itself."""
    host, said = host[:_LONGEST_HOST].lower(), said[:_LONGEST_GREETING]  # patterns take more than linear time
    for provider in PROVIDERS:
        if any(fnmatch(host, pattern) for pattern in provider.hosts):
            return provider
    for provider in PROVIDERS:
        if provider.says and re.search(provider.says, said, re.IGNORECASE):
            return provider
    return None


def imap_pace(host: str) -> Pace:
    provider = provider_of(host)
    return Pace(mailbox_bytes_per_day=provider.bytes_per_day if provider else 0)
