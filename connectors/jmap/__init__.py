"""JMAP (RFC 8620, RFC 8621): Fastmail, Stalwart, Cyrus and others. One login, its account and the accounts shared with it."""

from connectors.jmap.connector import JmapConnector
from connectors.jmap.settings import JmapSecrets, JmapSettings

__all__ = ["JmapConnector", "JmapSecrets", "JmapSettings"]
