"""The kinds of sources: how each is configured, and how it is opened."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from pydantic import BaseModel

from connectors.base import Connector, Context, MailboxRef
from connectors.fake import FakeConnector, FakeSecrets, FakeSettings
from connectors.files import FilesConnector, FilesSecrets, FilesSettings, ImportSettings
from connectors.google import (
    GmailConnector,
    GmailSecrets,
    GmailSettings,
    WorkspaceConnector,
    WorkspaceSecrets,
    WorkspaceSettings,
)
from connectors.google.settings import google_pace
from connectors.google.sign_in import GmailSignIn
from connectors.imap import ImapConnector, ImapSecrets, ImapSettings, ImapTarget
from connectors.imap.domains import DOMAINS
from connectors.imap.providers import PROVIDERS, imap_pace, provider_of
from connectors.imap.sign_in import ImapSignIn
from connectors.imap.trash import ImapTrash
from connectors.jmap import JmapConnector, JmapSecrets, JmapSettings
from connectors.microsoft import (
    Microsoft365Secrets,
    Microsoft365Settings,
    OutlookSecrets,
    OutlookSettings,
    open_organisation,
    open_outlook,
)
from connectors.microsoft.settings import graph_pace
from connectors.microsoft.sign_in import OutlookSignIn
from connectors.pace import Pace
from connectors.sign_in import BrowserSignIn
from connectors.target import MailTarget, SourceTrash


@dataclass(frozen=True, slots=True)
class ConnectorKind:
    name: str
    title: str
    """Shown to users."""
    settings: type[BaseModel]
    """A SourceSettings class. Validated whenever a source is added or edited; an unknown key is an error."""
    secrets: type[BaseModel]
    """The fields that are stored sealed. All are SecretStr; there may be none."""
    open: Callable[[Any, Any, Context], Connector]
    """Creates a connector from validated settings, validated secrets and a context. Does not connect yet."""
    sign_in: Callable[[Any, Any], BrowserSignIn] | None = None
    """Creates a sign-in from validated settings and secrets, for kinds whose secrets can't be typed in."""
    runs_once: bool = False
    """File imports, which are read only once."""
    is_sample: bool = False
    """Generated mail, offered only by `archiver demo` (SAMPLE_SOURCES)."""
    guide: tuple[tuple[str, str], ...] = ()
    """Notes for the person who adds a source, by provider."""
    watches: bool = False
    """Its connectors can wait for new mail (connectors.base.Watching), if the setting `watch` enables it."""
    target: Callable[[Any, Any, Context, MailboxRef], MailTarget] | None = None
    """Opens one of its mailboxes to restore mail to; from validated settings, validated secrets and a context."""
    pace: Callable[[Any], Pace] = lambda _: Pace()
    """How fast its provider lets mail be read, from validated settings."""
    trash: Callable[[Any, Any, Context, MailboxRef], SourceTrash] | None = None
    """Opens one of its mailboxes to move archived mail to its trash."""
    extra: str | None = None
    """Its packages are installed with this extra (connectors.extras)."""


MAIL_DOMAINS = DOMAINS
"""The IMAP servers of well-known mail domains."""


def _open_fake(settings: FakeSettings, _: FakeSecrets, context: Context) -> Connector:
    return FakeConnector(settings, context)


def _imap_target(settings: ImapSettings, secrets: ImapSecrets, context: Context, box: MailboxRef) -> MailTarget:
    return ImapTarget(settings, secrets, context, box.address)


def _workspace_target(settings: WorkspaceSettings, secrets: WorkspaceSecrets, context: Context, box: MailboxRef) -> MailTarget:
    return WorkspaceConnector(settings, secrets, context).target(box.address)


def _gmail_target(settings: GmailSettings, secrets: GmailSecrets, context: Context, box: MailboxRef) -> MailTarget:
    return GmailConnector(settings, secrets, context).target(box.address)


def _organisation_target(
    settings: Microsoft365Settings, secrets: Microsoft365Secrets, context: Context, box: MailboxRef
) -> MailTarget:
    return open_organisation(settings, secrets, context).target(box)


def _outlook_target(settings: OutlookSettings, secrets: OutlookSecrets, context: Context, box: MailboxRef) -> MailTarget:
    return open_outlook(settings, secrets, context).target(box)


def _workspace_trash(settings: WorkspaceSettings, secrets: WorkspaceSecrets, context: Context, box: MailboxRef) -> SourceTrash:
    return WorkspaceConnector(settings, secrets, context).trash(box.address)


def _gmail_trash(settings: GmailSettings, secrets: GmailSecrets, context: Context, box: MailboxRef) -> SourceTrash:
    return GmailConnector(settings, secrets, context).trash(box.address)


def _organisation_trash(
    settings: Microsoft365Settings, secrets: Microsoft365Secrets, context: Context, box: MailboxRef
) -> SourceTrash:
    return open_organisation(settings, secrets, context).trash(box)


def _outlook_trash(settings: OutlookSettings, secrets: OutlookSecrets, context: Context, box: MailboxRef) -> SourceTrash:
    return open_outlook(settings, secrets, context).trash(box)


def _imap_trash(settings: ImapSettings, secrets: ImapSecrets, context: Context, box: MailboxRef) -> SourceTrash:
    return ImapTrash(settings, secrets, context, box.address)


def _open_files(settings: FilesSettings, _: FilesSecrets, context: Context) -> Connector:
    return FilesConnector(settings, context)


KINDS: dict[str, ConnectorKind] = {
    kind.name: kind
    for kind in (
        ConnectorKind(
            "google",
            "All mailboxes of a Google Workspace",
            WorkspaceSettings,
            WorkspaceSecrets,
            WorkspaceConnector,
            target=_workspace_target,
            trash=_workspace_trash,
            pace=google_pace,
            extra="google",
        ),
        ConnectorKind(
            "gmail",
            "One Gmail account, by browser sign-in",
            GmailSettings,
            GmailSecrets,
            GmailConnector,
            GmailSignIn,
            target=_gmail_target,
            trash=_gmail_trash,
            pace=google_pace,
            extra="google",
        ),
        ConnectorKind(
            "microsoft",
            "All mailboxes of an organisation in Microsoft 365",
            Microsoft365Settings,
            Microsoft365Secrets,
            open_organisation,
            target=_organisation_target,
            trash=_organisation_trash,
            pace=graph_pace,
            extra="microsoft",
        ),
        ConnectorKind(
            "outlook",
            "One mailbox of Microsoft 365 or Outlook.com, by browser sign-in",
            OutlookSettings,
            OutlookSecrets,
            open_outlook,
            OutlookSignIn,
            target=_outlook_target,
            trash=_outlook_trash,
            pace=graph_pace,
            extra="microsoft",
        ),
        ConnectorKind(
            "imap",
            "An IMAP server: one account, several, or all accounts",
            ImapSettings,
            ImapSecrets,
            ImapConnector,
            ImapSignIn,
            guide=tuple((row.name, row.hint) for row in PROVIDERS if row.hint),
            watches=True,
            target=_imap_target,
            trash=_imap_trash,
            pace=lambda settings: imap_pace(settings.host),
        ),
        ConnectorKind(
            "jmap", "A JMAP server, such as Fastmail, Stalwart or Cyrus", JmapSettings, JmapSecrets, JmapConnector, watches=True
        ),
        ConnectorKind("files", "Mail files in a folder, scanned regularly", FilesSettings, FilesSecrets, _open_files),
        ConnectorKind(
            "import", "Mail files, read once: see `archiver import`", ImportSettings, FilesSecrets, _open_files, runs_once=True
        ),
        ConnectorKind("fake", "Sample mail, generated on the fly", FakeSettings, FakeSecrets, _open_fake, is_sample=True),
    )
}


def provider_hint(host: str) -> str:
    """What a person who adds an IMAP server should know about its provider."""
    found = provider_of(host)
    return found.hint if found else ""
