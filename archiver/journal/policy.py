"""Who may send, how much, and to which addresses."""

from __future__ import annotations

import hmac
import threading
import time
from collections import OrderedDict
from collections.abc import Callable
from dataclasses import dataclass, field
from ipaddress import IPv4Network, IPv6Address, IPv6Network, ip_address

from archiver.config import Settings

_CLIENTS = 10_000
_MINUTE = 60.0


@dataclass(frozen=True, slots=True)
class JournalPolicy:
    networks: tuple[IPv4Network | IPv6Network, ...]
    addresses: frozenset[str]
    """Accepted recipients: addresses, or @domain. Empty: all."""
    username: str | None
    password: str | None = field(repr=False)
    needs_tls: bool
    max_bytes: int
    connections: int
    messages_per_minute: int

    @classmethod
    def of(cls, settings: Settings) -> JournalPolicy:
        return cls(
            settings.journal_networks,
            frozenset(address.lower() for address in settings.journal_addresses),
            settings.journal_username,
            settings.journal_password.get_secret_value() if settings.journal_password else None,
            settings.journal_require_tls and settings.journal_tls_certificate is not None,
            settings.journal_max_bytes,
            settings.journal_connections,
            settings.journal_messages_per_minute,
        )

    def admits(self, client: str) -> bool:
        address = ip_address(client.partition("%")[0])
        if isinstance(address, IPv6Address) and address.ipv4_mapped:
            address = address.ipv4_mapped
        return any(address in network for network in self.networks if network.version == address.version)

    def accepts(self, recipient: str) -> bool:
        lower = recipient.lower()
        return not self.addresses or lower in self.addresses or f"@{lower.rpartition('@')[2]}" in self.addresses

    @property
    def needs_password(self) -> bool:
        return self.password is not None

    def knows(self, username: str, password: str) -> bool:
        """In the same time, whichever of the two is wrong."""
        right_name = hmac.compare_digest(username.encode(), (self.username or "").encode())
        return hmac.compare_digest(password.encode(), (self.password or "").encode()) and right_name


@dataclass(slots=True)
class RateLimit:
    """Tokens for each client address, refilled over a minute. Thread-safe."""

    per_minute: int
    clock: Callable[[], float] = time.monotonic
    _tokens: OrderedDict[str, tuple[float, float]] = field(default_factory=OrderedDict)
    _lock: threading.Lock = field(default_factory=threading.Lock)

    def allows(self, client: str) -> bool:
        if not self.per_minute:
            return True
        with self._lock:
            now = self.clock()
            left, since = self._tokens.pop(client, (float(self.per_minute), now))
            left = min(float(self.per_minute), left + (now - since) * self.per_minute / _MINUTE)
            self._tokens[client] = (max(0.0, left - 1), now) if left >= 1 else (left, now)
            if len(self._tokens) > _CLIENTS:
                self._tokens.popitem(last=False)
            return left >= 1
