"""The kinds of sources there are: how each is configured, and how it is opened."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from pydantic import BaseModel

from connectors.base import Connector, Context
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
from connectors.google.sign_in import GmailSignIn
from connectors.imap import ImapConnector, ImapSecrets, ImapSettings
from connectors.microsoft import (
    Microsoft365Secrets,
    Microsoft365Settings,
    OutlookSecrets,
    OutlookSettings,
    open_organisation,
    open_outlook,
)
from connectors.microsoft.sign_in import OutlookSignIn
from connectors.sign_in import SignIn


@dataclass(frozen=True, slots=True)
class Kind:
    name: str
    title: str
    """For people."""
    settings: type[BaseModel]
    """A SourceSettings. Validated whenever a source is added or edited; an unknown key is an error."""
    secrets: type[BaseModel]
    """What is sealed. All fields are SecretStr; there may be none."""
    open: Callable[[Any, Any, Context], Connector]
    """From validated settings, validated secrets and the context of a job. Connects to nothing yet."""
    sign_in: Callable[[Any, Any], SignIn] | None = None
    """From validated settings and secrets: how somebody signs in, where that gives secrets that nobody could type."""
    runs_once: bool = False
    """File imports: there is no next time."""
    is_sample: bool = False
    """Its mail is made up: offered by `archiver demo` only (SAMPLE_SOURCES)."""
    watches: bool = False
    """Its connectors can wait for new mail (connectors.base.Watching), if the setting `watch` asks for it."""


def _open_fake(settings: FakeSettings, _: FakeSecrets, context: Context) -> Connector:
    return FakeConnector(settings, context)


def _open_files(settings: FilesSettings, _: FilesSecrets, context: Context) -> Connector:
    return FilesConnector(settings, context)


KINDS: dict[str, Kind] = {
    kind.name: kind
    for kind in (
        Kind("google", "All mailboxes of a Google Workspace", WorkspaceSettings, WorkspaceSecrets, WorkspaceConnector),
        Kind("gmail", "One Gmail account, by signing in", GmailSettings, GmailSecrets, GmailConnector, GmailSignIn),
        Kind(
            "microsoft",
            "All mailboxes of an organisation in Microsoft 365",
            Microsoft365Settings,
            Microsoft365Secrets,
            open_organisation,
        ),
        Kind(
            "outlook",
            "One mailbox of Microsoft 365 or Outlook.com, by signing in",
            OutlookSettings,
            OutlookSecrets,
            open_outlook,
            OutlookSignIn,
        ),
        Kind(
            "imap",
            "An IMAP server: one account, several, or all of them",
            ImapSettings,
            ImapSecrets,
            ImapConnector,
            watches=True,
        ),
        Kind("files", "Mail files in a folder, looked at again and again", FilesSettings, FilesSecrets, _open_files),
        Kind(
            "import", "Mail files, read once: see `archiver import`", ImportSettings, FilesSecrets, _open_files, runs_once=True
        ),
        Kind("fake", "Sample mail, made on the spot", FakeSettings, FakeSecrets, _open_fake, is_sample=True),
    )
}
