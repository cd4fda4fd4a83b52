"""Which names this server answers to: a page of another site whose name suddenly means our address is not one of them."""

from __future__ import annotations

from ipaddress import ip_address
from urllib.parse import urlsplit

from starlette.types import Scope

from archiver.config import Settings

_LOOPBACK = frozenset({"localhost", "127.0.0.1", "::1"})


class Hosts:
    """ARCHIVER_URL, loopback, and the address that the connection came in by. Without ARCHIVER_URL any address in digits, too:
    no name can be made to mean something else there."""

    def __init__(self, settings: Settings) -> None:
        url = settings.archiver_url
        told = urlsplit(url.get_secret_value()).hostname if url else None
        self._has_url = told is not None
        self._names = _LOOPBACK | {name.lower() for name in (told, settings.archiver_host) if name}

    def allows(self, scope: Scope) -> bool:
        host = _host(scope)
        if host in self._names:
            return True
        server = scope.get("server")
        return _is_address(host) and (not self._has_url or (server is not None and host == server[0]))


def _host(scope: Scope) -> str:
    given = next((value for name, value in scope["headers"] if name == b"host"), b"").decode("latin-1")
    try:
        return (urlsplit(f"//{given}").hostname or "").rstrip(".")
    except ValueError:
        return ""


def _is_address(host: str) -> bool:
    try:
        ip_address(host)
    except ValueError:
        return False
    return True
