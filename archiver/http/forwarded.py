"""`X-Forwarded-For` from a peer outside TRUSTED_PROXIES: all clients behind it share one address, and one sign-in throttle."""

from __future__ import annotations

import threading

from starlette.types import Scope

from archiver.logs import get_logger

_MAX_PEERS = 100
log = get_logger("web")


def header(scope: Scope, name: bytes) -> str:
    return ",".join(value.decode("latin-1") for key, value in scope["headers"] if key == name)


def is_forwarded(scope: Scope) -> bool:
    """A forwarded request is not local, even if the proxy runs on this machine."""
    return any(header(scope, name) for name in (b"x-forwarded-for", b"forwarded", b"x-real-ip", b"via"))


class UntrustedPeers:
    """Warns once for each peer."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._warned: set[str] = set()

    def notice(self, scope: Scope) -> None:
        forwarded_for = header(scope, b"x-forwarded-for")
        peer = scope["client"][0] if scope.get("client") else ""
        # Uvicorn has replaced the peer's address with one from the header if it trusted the header
        if not forwarded_for or not peer or peer in {one.strip() for one in forwarded_for.split(",")}:
            return
        with self._lock:
            if peer in self._warned or len(self._warned) >= _MAX_PEERS:
                return
            self._warned.add(peer)
        log.warning("forwarded_by_untrusted_peer", peer=peer, hint="if this is your proxy, add it to TRUSTED_PROXIES")
