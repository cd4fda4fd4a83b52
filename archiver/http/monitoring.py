"""Access to `/metrics` and `/parts`: with METRICS_TOKEN, or from this machine.

A proxy on this machine need not say that it forwards a request, so that its requests look like local ones. Loopback is trusted
only while neither the settings nor the request point to a proxy.
"""

from __future__ import annotations

from ipaddress import ip_address
from urllib.parse import urlsplit

from fastapi import Request, Response
from fastapi.responses import PlainTextResponse

from archiver.config import Settings
from archiver.http.forwarded import is_forwarded
from archiver.http.hosts import has_token, host_of


def refusal(request: Request, settings: Settings) -> Response | None:
    """The response for a client without access; None for a client with access."""
    if has_token(settings, request.headers.get("Authorization", "")) or (_serves_this_machine(settings) and _is_local(request)):
        return None
    text = "Available with METRICS_TOKEN (Authorization: Bearer TOKEN), or from this machine if there is no proxy in front\n"
    return PlainTextResponse(text, 401, {"WWW-Authenticate": "Bearer"})


def _serves_this_machine(settings: Settings) -> bool:
    """False if people reach it by another address, or a proxy on this machine is trusted."""
    url = settings.archiver_url
    host = urlsplit(url.get_secret_value()).hostname if url else None
    return (host is None or _is_loopback(host)) and not any(network.is_loopback for network in settings.trusted_proxies)


def _is_local(request: Request) -> bool:
    """By the peer, and by the name that was asked for: a proxy that browsers can sign in through passes theirs on."""
    if request.client is None or is_forwarded(request.scope):
        return False
    return _is_loopback(request.client.host) and _is_loopback(host_of(request.scope))


def _is_loopback(host: str) -> bool:
    if host == "localhost":
        return True
    try:
        return ip_address(host).is_loopback
    except ValueError:
        return False
