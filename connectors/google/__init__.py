"""Google: a whole Workspace through a service account with domain-wide delegation, or one Gmail account by sign-in."""

from connectors.google.connector import GmailConnector, WorkspaceConnector
from connectors.google.settings import GmailSecrets, GmailSettings, WorkspaceSecrets, WorkspaceSettings

__all__ = [
    "GmailConnector",
    "GmailSecrets",
    "GmailSettings",
    "WorkspaceConnector",
    "WorkspaceSecrets",
    "WorkspaceSettings",
]
