"""IMAP: one account, a list of accounts, or a whole server through a master user."""

from connectors.imap.connector import ImapConnector
from connectors.imap.settings import ImapSecrets, ImapSettings
from connectors.imap.target import ImapTarget

__all__ = ["ImapConnector", "ImapSecrets", "ImapSettings", "ImapTarget"]
