"""Microsoft 365 through Microsoft Graph: all mailboxes of an organisation, or the mailbox of the signed-in user."""

from connectors.microsoft.connector import MicrosoftConnector, open_organisation, open_outlook
from connectors.microsoft.settings import Microsoft365Secrets, Microsoft365Settings, OutlookSecrets, OutlookSettings

__all__ = [
    "Microsoft365Secrets",
    "Microsoft365Settings",
    "MicrosoftConnector",
    "OutlookSecrets",
    "OutlookSettings",
    "open_organisation",
    "open_outlook",
]
