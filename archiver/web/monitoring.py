"""Who may look at `/metrics` and `/parts`: this machine itself, or a monitoring system that has METRICS_TOKEN."""

from __future__ import annotations

import hmac
from ipaddress import ip_address

from fastapi import Request, Response
from fastapi.responses import PlainTextResponse

from archiver.config import Settings
from archiver.web.forwarded import is_forwarded


def refusal(request: Request, settings: Settings) -> Response | None:
    """The answer to one who may not look; None for those who may."""
    if _has_token(request, settings) or _is_local(request):
        return None
    text = "Only from this machine, or with the METRICS_TOKEN of this archive: Authorization: Bearer TOKEN\n"
    return PlainTextResponse(text, 401, {"WWW-Authenticate": "Bearer"})


def _has_token(request: Request, settings: Settings) -> bool:
    scheme, _, given = request.headers.get("Authorization", "").partition(" ")
    wanted = settings.metrics_token
    if wanted is None or scheme.lower() != "bearer":
        return False
    return hmac.compare_digest(given.strip().encode(), wanted.get_secret_value().encode())


def _is_local(request: Request) -> bool:
    if request.client is None or is_forwarded(request.scope):
        return False
    try:
        return ip_address(request.client.host).is_loopback
    except ValueError:
        return False
