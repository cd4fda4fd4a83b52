"""The host names that this server answers to. Prevents DNS rebinding: another site's name that resolves to our address."""

from __future__ import annotations

import hmac
from ipaddress import ip_address
from urllib.parse import urlsplit

from starlette.types import Scope

from archiver.config import Settings

_LOOPBACK = frozenset({"localhost", "127.0.0.1", "::1"})


class Hosts:
    """The host of ARCHIVER_URL, loopback, and the local address of the connection. Without ARCHIVER_URL also any IP address:
    those cannot be rebound.

    Loopback stays allowed behind a proxy that writes it into each request: a page of another site that gets through that way
    brings no cookie of ours, and the name alone opens nothing (`monitoring` requires more). METRICS_TOKEN
    opens /metrics under any name: Prometheus in the next container uses the name of the container.
    """

    def __init__(self, settings: Settings) -> None:
        self._settings, url = settings, settings.archiver_url
        hostname = urlsplit(url.get_secret_value()).hostname if url else None
        self._has_url = hostname is not None
        self._names = _LOOPBACK | {name.lower() for name in (hostname, settings.archiver_host) if name}

    def allows(self, scope: Scope) -> bool:
        host = host_of(scope)
        if host in self._names or self._is_monitoring(scope):
            return True
        server = scope.get("server")
        return _is_address(host) and (not self._has_url or (server is not None and host == server[0]))

    def _is_monitoring(self, scope: Scope) -> bool:
        """A monitoring system in the next container knows us by the container's name. No page of another site has the token."""
        given = next((value for name, value in scope["headers"] if name == b"authorization"), b"")
        return scope["path"] == "/metrics" and has_token(self._settings, given.decode("latin-1"))


def has_token(settings: Settings, authorization: str) -> bool:
    """METRICS_TOKEN."""
    scheme, _, given = authorization.partition(" ")
    wanted = settings.metrics_token
    if wanted is None or scheme.lower() != "bearer":
        return False
    return hmac.compare_digest(given.strip().encode(), wanted.get_secret_value().encode())


def host_of(scope: Scope) -> str:
    header = next((value for name, value in scope["headers"] if name == b"host"), b"").decode("latin-1")
    try:
        return (urlsplit(f"//{header}").hostname or "").rstrip(".")
    except ValueError:
        return ""


def _is_address(host: str) -> bool:
    try:
        ip_address(host)
    except ValueError:
        return False
    return True
