"""`X-Forwarded-For` from a peer that is not in TRUSTED_PROXIES: everybody behind it has one address here, and one pause."""

from __future__ import annotations

import threading

from starlette.types import Scope

from archiver.logs import get_logger

_MOST_PEERS = 100
log = get_logger("web")


def header(scope: Scope, name: bytes) -> str:
    return ",".join(value.decode("latin-1") for key, value in scope["headers"] if key == name)


def is_forwarded(scope: Scope) -> bool:
    """A request that a proxy passed on is not from this machine, even if the proxy runs on it."""
    return any(header(scope, name) for name in (b"x-forwarded-for", b"forwarded", b"x-real-ip", b"via"))


class UntrustedPeers:
    """Warns once for each."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._warned: set[str] = set()

    def notice(self, scope: Scope) -> None:
        told = header(scope, b"x-forwarded-for")
        peer = scope["client"][0] if scope.get("client") else ""
        # a header that was believed has put one of its addresses in the place of the peer's
        if not told or not peer or peer in {one.strip() for one in told.split(",")}:
            return
        with self._lock:
            if peer in self._warned or len(self._warned) >= _MOST_PEERS:
                return
            self._warned.add(peer)
        log.warning("forwarded_by_untrusted_peer", peer=peer, hint="name it in TRUSTED_PROXIES if it is your proxy")
