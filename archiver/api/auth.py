"""Who asks: by session cookie or API key. Every route but the door itself depends on `needs(right)`."""

from __future__ import annotations

import hmac
from collections.abc import Callable
from typing import Annotated
from urllib.parse import urlsplit

from fastapi import Depends, Request, Response

from archiver.api.context import ApiContext
from archiver.api.problems import request_id
from archiver.errors import NotAllowed, NotReady, NotSignedIn, TooMany
from archiver.services import api_keys, devices, rate_limit, sessions
from archiver.services.principal import NOBODY, Principal, Right

CSRF_HEADER = "X-CSRF-Token"
_SAFE = frozenset({"GET", "HEAD", "OPTIONS"})


class Csrf(NotAllowed):
    code = "csrf"


class RateLimited(TooMany):
    code = "rate_limited"


def context_of(request: Request) -> ApiContext:
    context: ApiContext = request.app.state.context
    return context


async def _context(request: Request) -> ApiContext:
    return context_of(request)  # async: FastAPI takes all others to another thread


def client_address(request: Request) -> str | None:
    """Uvicorn has put in what the proxies of TRUSTED_PROXIES say, and nobody else."""
    return request.client.host if request.client else None


def is_https(request: Request) -> bool:
    return context_of(request).secure or request.url.scheme == "https"


def cookie_name(request: Request) -> str:
    """With https the name itself forbids that another host or plain http sets it."""
    return "__Host-archiver" if is_https(request) else "archiver"


def session_cookie(request: Request) -> str | None:
    return request.cookies.get(cookie_name(request))


def set_session_cookie(request: Request, response: Response, token: str) -> None:
    seconds = context_of(request).settings.session_days * 86400
    response.set_cookie(
        cookie_name(request), token, max_age=seconds, path="/", httponly=True, samesite="lax", secure=is_https(request)
    )


def drop_session_cookie(request: Request, response: Response) -> None:
    response.delete_cookie(cookie_name(request), path="/", httponly=True, samesite="lax", secure=is_https(request))


def device_cookie(request: Request) -> str | None:
    return request.cookies.get(f"{cookie_name(request)}-device")


def set_device_cookie(request: Request, response: Response, account: str) -> None:
    """So that the next sign-in from here does not wait for the failed tries of others."""
    value = devices.issue(context_of(request).keyring, account)
    seconds, name = devices.DAYS * 86400, f"{cookie_name(request)}-device"
    response.set_cookie(name, value, max_age=seconds, path="/", httponly=True, samesite="lax", secure=is_https(request))


def refuse_other_sites(request: Request) -> None:
    """A browser says where a request comes from; no other site may act here, not even sign somebody in."""
    if request.method in _SAFE:
        return
    if request.headers.get("Sec-Fetch-Site", "none") not in ("none", "same-origin"):
        raise Csrf("this request comes from another site")
    origin = request.headers.get("Origin")
    if origin is not None and urlsplit(origin).netloc != request.headers.get("Host"):
        raise Csrf("this request comes from another site")


def anybody(request: Request) -> Principal:
    """For the door itself."""
    refuse_other_sites(request)
    address = client_address(request)
    device = devices.known_device(context_of(request).keyring, device_cookie(request))
    _limit(request, f"device:{device}" if device else f"address:{address}")  # strangers behind one proxy share its address
    return NOBODY.at(address, request_id(request))


def _resolved(request: Request, *, seen: bool = True) -> tuple[Principal | None, str | None]:
    """Who sent this, and the token of the session, if it was one."""
    context = context_of(request)
    scheme, _, given = request.headers.get("Authorization", "").partition(" ")
    if scheme:
        return api_keys.resolve(context.engine, given.strip()) if scheme.lower() == "bearer" else None, None
    token = session_cookie(request)
    return sessions.resolve(context.engine, context.settings, token, seen=seen) if token else None, token


def still_may(request: Request, right: Right) -> bool:
    """For an answer that goes on and on: whoever asked for it is still signed in, and still has the right."""
    who, _ = _resolved(request, seen=False)
    return who is not None and right in who.rights


def signed_in(request: Request) -> Principal:
    who, token = _resolved(request)
    if who is None:
        _limit(request, f"address:{client_address(request)}")
        raise NotSignedIn("sign in first, or send an API key that is good")
    request.state.user_id = who.user_id
    if token is not None and request.method not in _SAFE:
        refuse_other_sites(request)
        shown = str(request.headers.get(CSRF_HEADER) or getattr(request.state, "csrf", ""))  # a form's field comes by the state
        if not hmac.compare_digest(shown.encode(), sessions.csrf_token(token).encode()):
            raise Csrf(f"a change needs the header {CSRF_HEADER}, as /api/v1/me gives it")
    _limit(request, f"key:{who.key_id}" if who.key_id else f"session:{who.session_id}")
    return who.at(client_address(request), request_id(request))


def needs(right: Right) -> Callable[[Request], Principal]:
    def check(request: Request) -> Principal:
        who = signed_in(request)
        who.require(right)
        return who

    return check


def _limit(request: Request, who: str) -> None:
    context = context_of(request)
    try:
        allowance = rate_limit.take(context.redis, who, context.settings.api_requests_per_minute)
    except NotReady:
        return
    if allowance is not None:
        request.state.headers = allowance.headers()
        if allowance.exceeded:
            raise RateLimited(f"more than {allowance.limit} requests in a minute", allowance.reset_seconds)


Context = Annotated[ApiContext, Depends(_context)]
Anybody = Annotated[Principal, Depends(anybody)]
Reader = Annotated[Principal, Depends(needs(Right.READ))]
Searcher = Annotated[Principal, Depends(needs(Right.SEARCH))]
Exporter = Annotated[Principal, Depends(needs(Right.EXPORT))]
Ingester = Annotated[Principal, Depends(needs(Right.INGEST))]
Viewer = Annotated[Principal, Depends(needs(Right.VIEW))]
Administrator = Annotated[Principal, Depends(needs(Right.ADMIN))]
Auditor = Annotated[Principal, Depends(needs(Right.AUDIT))]
Account = Annotated[Principal, Depends(needs(Right.ACCOUNT))]
