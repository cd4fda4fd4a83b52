"""Mail in files: mbox, .eml, Maildir, MH, Apple's .emlx, and archives of any of these, one by one or as a whole tree."""

from connectors.files.connector import FilesConnector
from connectors.files.settings import FilesSecrets, FilesSettings, ImportSettings

__all__ = ["FilesConnector", "FilesSecrets", "FilesSettings", "ImportSettings"]
